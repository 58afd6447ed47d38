"""Plain text for the tasks that learn from text alone: what is trained on, and what is held out."""

import math
import re
from collections.abc import Iterator, Sequence

from clearhead.config import Config
from clearhead.data.corpus.cached_corpus import CachedDocuments, load_documents_cached
from clearhead.data.corpus.held_out import HeldOutSplit, split_valid
from clearhead.data.readers.documents import Document, load_documents
from clearhead.errors import DataError
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.task import MIN_RECORDS, TaskRecords, TrainingFiles

RECORD_NAME = "documents"
MIN_CHARACTERS = 100  # less is no corpus
TOKENIZER_DOCUMENTS = 500_000  # so many, from all over a larger text, are enough to learn a vocabulary from
CHARACTERS_PER_SENTENCE = (
    60  # characters, about: sizes are chosen by the number of sentences, for a document may be a book
)


def load_and_split_text(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[Document]:
    """The documents of the files; where there are few of them, the end of the text is held out."""
    data = config.data
    corpus = load_documents_cached(files.train, data.document_unit, work=files.work)
    characters = sum(len(document.text) for document in corpus.records)
    if characters < MIN_CHARACTERS and files.minimum > 1:
        names = " and ".join(map(str, files.train))
        raise DataError(
            f"{names}: at least {MIN_CHARACTERS} characters of text are needed, found {characters}; add text"
        )
    if files.valid:
        train, valid = corpus.records, load_documents(files.valid, data.document_unit).records
    elif len(corpus.records) >= MIN_RECORDS:
        train, valid = split_valid(corpus.records, data.validation_share, data.validation_max)
    else:
        train, valid = split_end(corpus.records, data.validation_share)
        tell(f"to validate, the last {100 * data.validation_share:g} % of the text (data.validation_share)")
    tell(f"{len(train):,} {RECORD_NAME} to train on, {len(valid):,} to validate")
    return TaskRecords(train, valid, corpus, sentences=max(1, characters // CHARACTERS_PER_SENTENCE), work=files.work)


def tokenizer_texts(documents: Sequence[Document], tell: Log) -> Iterator[str]:
    """What a vocabulary is learned from."""
    if isinstance(documents, CachedDocuments) and len(documents) > TOKENIZER_DOCUMENTS:
        tell(f"the vocabulary is learned from {TOKENIZER_DOCUMENTS:,} of them")
        documents = documents.spread(TOKENIZER_DOCUMENTS)
    return (document.text for document in documents)


def split_end(documents: Sequence[Document], share: float) -> HeldOutSplit[Document]:
    """Holds out the end of the text: the last `share` of its characters, from the next white space on.

    For few documents, where none can be spared as a whole.
    """
    left = math.floor((1 - share) * sum(len(document.text) for document in documents))
    train, valid = list[Document](), list[Document]()
    for document in documents:
        cut = min(max(left, 0), len(document.text))
        left -= len(document.text)
        space = re.compile(r"\s").search(document.text, cut - 1) if 0 < cut < len(document.text) else None
        cut = space.end() if space and document.text[space.end() :].strip() else cut
        before, behind = document.text[:cut], document.text[cut:]
        if before.strip():
            train.append(Document(before, document.line))
        if behind.strip():
            valid.append(Document(behind, document.line + before.count("\n")))
    if not train or not valid:
        raise DataError("expected text to train on and to validate, got too little of it; add text or --valid FILE")
    return HeldOutSplit(train, valid)
