"""Records of the training files, divided into training and validation data, and datasets of token ids.

N sequences, S length
"""

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Generic

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead.config import Config
from clearhead.data.batching import Indices, Lengths, pad_rows
from clearhead.data.corpus.cached_corpus import CachedDocuments, load_documents_cached
from clearhead.data.corpus.held_out import HeldOutSplit, find_overlap, split_held_out
from clearhead.data.corpus.id_arrays import IdArrays, ProgressCallback, ignore_progress
from clearhead.data.readers.documents import Document, load_documents
from clearhead.data.readers.lines import excerpt
from clearhead.data.records import Corpus, R, SkipReport
from clearhead.errors import DataError
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.task import ExampleTable

MIN_RECORDS = 10  # smallest number of training records
MIN_CHARACTERS = 100  # smallest length of a training text
DOCUMENTS = "documents"
TOKENIZER_DOCUMENTS = 500_000  # a tokenizer is trained on at most this number, evenly spaced over a larger text
# Assumed average, to choose a preset by the number of sentences: the number of documents is unsuitable, because a
# document may be a book.
CHARACTERS_PER_SENTENCE = 60


@dataclass(frozen=True)
class TrainingFiles:
    """Training files and validation files; without validation files a part of the training data is held out."""

    train: Sequence[Path]
    valid: Sequence[Path] = ()
    work: ProgressCallback = ignore_progress
    """Callback for read progress on large files."""
    minimum: int = MIN_RECORDS
    """Smallest number of usable training records."""


@dataclass(frozen=True)
class TaskRecords(Generic[R]):
    """Training and validation records, and the corpus that they are taken from."""

    train: Sequence[R]
    valid: Sequence[R]
    corpus: Corpus[R]
    sentences: int = 0
    """Approximate number of sentences if a record may contain several; 0 if each record is one sentence."""
    work: ProgressCallback = ignore_progress
    """Callback for progress of encoding large corpora."""
    names: Sequence[str] = ()
    """Names of the training files."""

    def report_skips(self, skips: SkipReport, log: Log) -> None:
        """Log the records skipped after reading, and add them to the report of the corpus."""
        for line in skips.messages():
            log(line)
        self.corpus.skips.merge(skips)

    @property
    def size(self) -> int:
        """Size by which a preset is chosen: the number of sentences if it is known, or of records."""
        return self.sentences or len(self.corpus.records)


def load_and_split(
    load: Callable[[Sequence[Path], int], Corpus[R]], files: TrainingFiles, config: Config, log: Log, record_name: str
) -> TaskRecords[R]:
    """Read the files with `load(paths, minimum)`; hold out a part if there are no validation files."""
    corpus = load(files.train, files.minimum)
    messages = corpus.skips.messages()
    if files.valid:
        valid = load(files.valid, 1)
        messages += [line for line in valid.skips.messages() if line not in messages]
        messages += overlap_warning(corpus.records, valid.records, files.valid)
        parts = HeldOutSplit(corpus.records, list(valid.records))
    else:
        parts = split_held_out(corpus.records, config.data.validation_share, config.data.validation_max)
    records = TaskRecords(parts.train, parts.valid, corpus, work=files.work, names=[str(path) for path in files.train])
    for line in messages:
        log(line)
    log(f"{len(records.train):,} {record_name} to train on, {len(records.valid):,} to validate")
    return records


def overlap_warning(train: Sequence[R], valid: Sequence[R], valid_paths: Sequence[Path]) -> list[str]:
    """Return a warning if validation inputs also occur in the training data; it names the line of the first one."""
    shared = find_overlap(train, valid)
    if not shared:
        return []
    name = f"{valid_paths[0]}:{shared[0].line}" if len(valid_paths) == 1 else f"line {shared[0].line}"
    return [
        f"warning: {len(shared):,} of {len(valid):,} validation inputs are also in the training data, such as {name} "
        f"({excerpt(shared[0].fields[0])}); the validation score will be too high: remove them from one of the files"
    ]


def load_and_split_text(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[Document]:
    """Read the documents of the files; with fewer than `MIN_RECORDS` documents, hold out the end of the text."""
    data = config.data
    corpus = load_documents_cached(files.train, data.document_unit, progress=files.work)
    characters = sum(len(document.text) for document in corpus.records)
    if characters < MIN_CHARACTERS and files.minimum > 1:
        names = " and ".join(map(str, files.train))
        raise DataError(f"{names}: expected at least {MIN_CHARACTERS} characters of text, found {characters}; add text")
    if files.valid:
        train, valid = corpus.records, load_documents(files.valid, data.document_unit).records
    elif len(corpus.records) >= MIN_RECORDS:
        train, valid = split_held_out(corpus.records, data.validation_share, data.validation_max)
    else:
        train, valid = split_end(corpus.records, data.validation_share)
        log(f"to validate, the last {100 * data.validation_share:g} % of the text (data.validation_share)")
    log(f"{len(train):,} {DOCUMENTS} to train on, {len(valid):,} to validate")
    sentences = max(1, characters // CHARACTERS_PER_SENTENCE)
    return TaskRecords(train, valid, corpus, sentences=sentences, work=files.work)


def split_end(documents: Sequence[Document], share: float) -> HeldOutSplit[Document]:
    """Hold out the last `share` of the characters, from the next whitespace on.

    This is used when there are too few documents to hold out whole ones.
    """
    num_left = math.floor((1 - share) * sum(len(document.text) for document in documents))
    train, valid = list[Document](), list[Document]()
    for document in documents:
        cut = min(max(num_left, 0), len(document.text))
        num_left -= len(document.text)
        space = re.compile(r"\s").search(document.text, cut - 1) if 0 < cut < len(document.text) else None
        cut = space.end() if space and document.text[space.end() :].strip() else cut
        before, after = document.text[:cut], document.text[cut:]
        if before.strip():
            train.append(Document(before, document.line))
        if after.strip():
            valid.append(Document(after, document.line + before.count("\n")))
    if not train or not valid:
        raise DataError("expected text to train on and to validate, found too little of it; add text or --valid FILE")
    return HeldOutSplit(train, valid)


def tokenizer_texts(documents: Sequence[Document], log: Log) -> Iterator[str]:
    """Return the texts that a tokenizer is trained on."""
    if isinstance(documents, CachedDocuments) and len(documents) > TOKENIZER_DOCUMENTS:
        log(f"the tokenizer is trained on {TOKENIZER_DOCUMENTS:,} of them")
        documents = documents.sample_evenly(TOKENIZER_DOCUMENTS)
    return (document.text for document in documents)


@dataclass(frozen=True)
class SequenceDataset:
    """Sequences of ids as input of the network, and the lines of their records."""

    ids: IdArrays
    lines_N: NDArray[np.int64]

    @classmethod
    def build(cls, sequences: Sequence[Sequence[int]], lines: Sequence[int]) -> "SequenceDataset":
        """Return the dataset of these sequences."""
        return cls(IdArrays.build(sequences), np.asarray(lines, dtype=np.int64))

    def __len__(self) -> int:
        return len(self.ids)

    def examples(self, num_predictions_N: Lengths) -> ExampleTable:
        """Return the table of examples; `num_predictions_N` are their numbers of predictions."""
        return ExampleTable(self.ids.lengths, self.ids.lengths, num_predictions_N, self.lines_N)

    def rows(self, indices: Indices, pad_id: int) -> Tensor:
        """Return ids_NS of these sequences, padded at the end."""
        return torch.from_numpy(pad_rows([self.ids[index] for index in indices], pad_id))


def drop_long(
    records: Sequence[R], rows: list[list[int]], limit: int, skips: SkipReport, path: Path
) -> tuple[list[R], list[list[int]]]:
    """Return the records whose rows have at most `limit` tokens, and these rows; add the others to `skips`."""
    short = [index for index, row in enumerate(rows) if len(row) <= limit]
    for index, row in enumerate(rows):
        if len(row) > limit:
            skips.add(f"longer than {limit} tokens", path, records[index].line)
    if not short:
        raise DataError(f"{path}: all examples have more than {limit} tokens; raise data.max_tokens or shorten them")
    return [records[index] for index in short], [rows[index] for index in short]
