"""Evaluation of masked language models (S7): the same tokens of a text are masked whenever it is scored.

M masked positions of a text, V vocabulary
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import length_batches
from clearhead.data.readers.documents import Document, load_documents
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.engine import EncoderEngine
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.perplexity import FIXED_SEED, MaskedReport
from clearhead.tasks.masked_lm.mask_tokens import find_mask_id
from clearhead.tasks.masked_lm.masking import MaskableRows, MaskedRow, MaskingVocabulary, masking_units
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import EncoderCodec, encode_documents


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> MaskedReport:
    """Accuracy and pseudo-perplexity at the fixed masks."""
    config = model.config
    documents = load_documents(paths, config.data.document_unit).records
    skips = SkipReport()
    cut = split_documents(documents, model.tokenizer, max_row_tokens(config), skips, paths[0])
    report = score_masks(
        model.encoder_engine, build_maskable_rows(cut.rows, model.tokenizer, config), model.tokenizer, config
    )
    return replace(report, skipped=skips.total)


def score_masks(engine: EncoderEngine, texts: MaskableRows, tokenizer: Tokenizer, config: Config) -> MaskedReport:
    """Return loss and accuracy over all texts at the fixed masks."""
    total, right = 0.0, 0
    for indices in length_batches(texts.ids.lengths.tolist(), config.training.batch_tokens):
        hidden = fixed_masks(texts, indices, tokenizer)
        found = engine.masked_lm([one.ids_S.tolist() for one in hidden], [one.places_M.tolist() for one in hidden])
        for index, one, log_probs_MV in zip(indices, hidden, found, strict=True):
            targets_M = texts.ids[index][one.places_M]
            total -= float(log_probs_MV[np.arange(len(targets_M)), targets_M].sum(dtype=np.float64))
            right += int((log_probs_MV.argmax(-1) == targets_M).sum())
    pieces = int(texts.counts_N.sum())
    data = config.data
    return MaskedReport(total / pieces, right, pieces, len(texts.ids), data.mask_probability, data.whole_word_masking)


def fixed_masks(texts: MaskableRows, indices: Sequence[int], tokenizer: Tokenizer) -> list[MaskedRow]:
    """Return these rows with the masks that scores are computed at."""
    vocabulary = masking_vocabulary(tokenizer)
    rngs = [np.random.default_rng([FIXED_SEED, index]) for index in indices]
    return [texts.hide(index, rng, vocabulary, only_masks=True) for index, rng in zip(indices, rngs, strict=True)]


@dataclass(frozen=True)
class DocumentRows:
    """Documents as rows that the network can read, and the line that each began on."""

    rows: list[list[int]]
    lines: list[int]
    num_long: int  # documents that were cut into several rows


def split_documents(
    documents: Sequence[Document], tokenizer: Tokenizer, limit: int, skips: SkipReport, path: Path
) -> DocumentRows:
    """Every document as rows of at most `limit` pieces with their frame: a long one gives several of equal length."""
    rows, lines, num_long = [], [], 0
    for document, ids in encode_documents(documents, tokenizer):
        windows = np.array_split(np.asarray(ids, dtype=np.int64), max(1, math.ceil(len(ids) / (limit - 2))))
        num_long += len(windows) > 1
        for window in windows:
            if not np.isin(window, tokenizer.special_ids).all():
                rows.append(EncoderCodec().add_special_tokens(tokenizer, window.tolist()))
                lines.append(document.line)
            else:
                skips.add("no known piece", path, document.line)
    if not rows:
        raise DataError(f"{path}: nothing is left; the tokenizer knows no piece of the text")
    return DocumentRows(rows, lines, num_long)


def masking_vocabulary(tokenizer: Tokenizer) -> MaskingVocabulary:
    """What hiding needs to know of this tokenizer."""
    text_ids = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    return MaskingVocabulary(find_mask_id(tokenizer), text_ids)


def build_maskable_rows(rows: Sequence[Sequence[int]], tokenizer: Tokenizer, config: Config) -> MaskableRows:
    """The rows with what may be hidden in them."""
    specials = tokenizer.special_ids
    units = [
        masking_units(row, tokenizer.words(row) if config.data.whole_word_masking else None, specials) for row in rows
    ]
    return MaskableRows.build(rows, units, config.data.mask_probability)


def max_row_tokens(config: Config) -> int:
    """The most pieces of a row, with its frame."""
    limit = min(config.data.max_tokens, config.model.max_positions)
    if limit < 3:
        raise ConfigError(f"data.max_tokens={limit} leaves no room between <s> and </s>; try 256")
    return limit
