"""Masked language models (S7): predictions for the masks of a text, and evaluation with fixed masks.

M masked positions of a text, K predictions per mask, V vocabulary
"""

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np

from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import batch_by_length
from clearhead.data.readers.documents import Document, load_documents
from clearhead.data.records import SkipReport
from clearhead.data.segmentation import Segmenter
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import MASK_TOKEN
from clearhead.engines.engine import EncoderEngine
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.perplexity import FIXED_SEED, MaskedReport
from clearhead.json_format import JsonResult
from clearhead.tasks.long_texts import LongTexts, segment_texts
from clearhead.tasks.masked_lm.masking import MaskableRows, MaskedRow, MaskingVocabulary, masking_units
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import (
    NUM_SPECIAL_TOKENS,
    EncoderCodec,
    encode_documents,
    max_input_tokens,
    max_training_tokens,
)

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>")
SPACE_SHOWN = "▁"


class MaskedCodec(EncoderCodec):
    """Text for masked language models, with [MASK] or <mask> for masked tokens."""

    def encode(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Return the ids of each text, without special tokens except masks."""
        return [encode_with_masks(tokenizer, text) for text in texts]


CODEC = MaskedCodec()


@dataclass(frozen=True)
class MaskFilling(JsonResult):
    """One prediction for one mask."""

    mask: int
    """Number of the mask in the text, from 1."""
    word: str
    token: str
    """The token in the spelling of the vocabulary, with "▁" for a space."""
    probability: float
    text: str
    """The whole text with this prediction; other masks remain."""


def fill(
    model: LoadedModel, texts: Sequence[str], top: int, first_line: int = 1, long_texts: LongTexts | None = None
) -> list[list[list[MaskFilling]]]:
    """Return the `top` most probable tokens for each mask of each text, best first; no results without a mask.

    A long text is split, and each mask is filled in the part that contains it. Errors name a text by its line.
    """
    if top < 1:
        raise DataError(f"expected at least 1 filling per mask, not {top}; try 5")
    limit = max_input_tokens(model.config) - NUM_SPECIAL_TOKENS
    segmenter = Segmenter("none", "", limit, partial(_count_tokens, model.tokenizer))
    results: list[list[list[MaskFilling]]] = []
    tally = long_texts or LongTexts()
    for line, text in enumerate(texts, first_line):
        [segmented] = segment_texts([text], segmenter, tally, line) if MASK_PATTERN.search(text) else [None]
        parts = [part for part in segmented.parts if MASK_PATTERN.search(part)] if segmented else []
        results.append(_fill_parts(model, text, parts, top) if parts else [])
    return results


def _count_tokens(tokenizer: Tokenizer, parts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each part; a mask is one token."""
    unmasked = iter(tokenizer.encode_batch([part for part in parts if not MASK_PATTERN.search(part)]))
    return [len(encode_with_masks(tokenizer, part) if MASK_PATTERN.search(part) else next(unmasked)) for part in parts]


def _fill_parts(model: LoadedModel, text: str, parts: Sequence[str], top: int) -> list[list[MaskFilling]]:
    """Return the predictions for the masks of a text; `parts` are the parts of the text that contain masks."""
    tokenizer, masks = model.tokenizer, list(MASK_PATTERN.finditer(text))
    mask_id = find_mask_id(tokenizer)
    rows = [CODEC.add_special_tokens(tokenizer, encode_with_masks(tokenizer, part)) for part in parts]
    positions = [[position for position, token in enumerate(row) if token == mask_id] for row in rows]
    log_probs_MV = np.concatenate(model.encoder_engine.masked_lm(rows, positions))
    log_probs_MV[:, list(tokenizer.special_ids)] = -np.inf  # special tokens are not text
    count = min(top, tokenizer.vocab_size - len(tokenizer.special_ids))
    best_MK = np.argsort(-log_probs_MV, axis=1, kind="stable")[:, :count]
    return [
        [
            _filling(tokenizer, text, masks, number, token, float(np.exp(log_probs_V[token])))
            for token in best_K.tolist()
        ]
        for number, (log_probs_V, best_K) in enumerate(zip(log_probs_MV, best_MK, strict=True))
    ]


def _filling(
    tokenizer: Tokenizer, text: str, masks: Sequence[re.Match[str]], number: int, token: int, probability: float
) -> MaskFilling:
    """Return the prediction of a token for one mask; its text has the whitespace that the token requires."""
    form, kind = tokenizer.token(token), tokenizer.config.kind
    decoded = tokenizer.decode_tokens([token])
    if "\ufffd" in decoded:  # a byte that is only a part of a character
        decoded = form
    before, after = text[: masks[number].start()], text[masks[number].end() :]
    if kind != "char" and not (kind == "pretokenized" or form.startswith(SPACE_SHOWN)):
        before = before.rstrip()  # a token that continues the word before it has no space
    elif kind != "char" and before and not before[-1].isspace():
        before += " "
    word = decoded if decoded.strip() else form
    return MaskFilling(number + 1, word, form, probability, before + decoded + after)


def find_mask_id(tokenizer: Tokenizer) -> int:
    """Return the id of the mask token; raise ConfigError if the tokenizer has none."""
    require_mask(tokenizer.config.special_tokens)
    assert tokenizer.mask_id is not None
    return tokenizer.mask_id


def require_mask(special_tokens: Sequence[str]) -> None:
    """Raise ConfigError if a vocabulary has no mask token."""
    if MASK_TOKEN not in special_tokens:
        found = ", ".join(special_tokens) or "none"
        raise ConfigError(
            f"the task mlm needs {MASK_TOKEN} among tokenizer.special_tokens, found {found}; add it, or start from a "
            "model with it"
        )


def encode_with_masks(tokenizer: Tokenizer, text: str) -> list[int]:
    """Return the ids of a text in which each mask is encoded as <mask>, without changing the tokens around it.

    During encoding, a placeholder that does not occur in the text replaces each mask. It is neither a letter, a digit
    nor a space, so it is always a separate token. As in a word, the space before a mask is part of its token, except
    in a tokenizer of single characters.
    """
    mask_id = find_mask_id(tokenizer)
    encoded = tokenizer.encode_masked(MASK_PATTERN.sub("<mask>", text))
    if encoded is not None:
        return encoded
    placeholders = _unused_characters(text, 2)  # two that alternate, because equal neighbours would become one token
    is_pretokenized = tokenizer.config.kind == "pretokenized"
    replaced, starts = "", []
    end = 0
    for number, match in enumerate(MASK_PATTERN.finditer(text)):
        replaced += text[end : match.start()]
        if is_pretokenized and replaced and not replaced[-1].isspace():
            replaced += " "
        starts.append(len(replaced))
        replaced += placeholders[number % 2]
        end = match.end()
        if is_pretokenized and end < len(text) and not text[end].isspace():
            replaced += " "
    return _replace_placeholders(tokenizer, replaced + text[end:], starts, mask_id)


def _replace_placeholders(tokenizer: Tokenizer, text: str, starts: Sequence[int], mask_id: int) -> list[int]:
    """Return the ids of a text in which the tokens of each placeholder become one <mask>."""
    encoding = tokenizer.encode(text)
    placeholders, keeps_space = set(starts), tokenizer.config.kind == "char"
    ids: list[int] = []
    last_placeholder = -1
    for token, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
        if start not in placeholders or (keeps_space and start == end):
            ids.append(token)
        elif start != last_placeholder:  # the first token of this placeholder
            ids.append(mask_id)
            last_placeholder = start
    return ids


def _unused_characters(text: str, count: int) -> list[str]:
    """Return `count` characters of Unicode's private use area that do not occur in the text."""
    return list(islice((char for char in map(chr, range(0xE000, 0xF8FF)) if char not in text), count))


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> MaskedReport:
    """Return accuracy and pseudo-perplexity with fixed masks."""
    config, tokenizer = model.config, model.tokenizer
    documents = load_documents(paths, config.data.document_unit).records
    skips = SkipReport()
    texts = split_documents(documents, tokenizer, max_row_tokens(config), skips, paths[0])
    report = score_masks(model.encoder_engine, build_maskable_rows(texts.rows, tokenizer, config), tokenizer, config)
    return replace(report, skipped=skips.total)


def score_masks(engine: EncoderEngine, texts: MaskableRows, tokenizer: Tokenizer, config: Config) -> MaskedReport:
    """Return loss and accuracy over all texts with fixed masks."""
    total, num_correct = 0.0, 0
    for indices in batch_by_length(texts.ids.lengths.tolist(), config.training.batch_tokens):
        masked = apply_fixed_masks(texts, indices, tokenizer)
        scores = engine.masked_lm([row.ids_S.tolist() for row in masked], [row.positions_M.tolist() for row in masked])
        for index, row, log_probs_MV in zip(indices, masked, scores, strict=True):
            targets_M = texts.ids[index][row.positions_M]
            total -= float(log_probs_MV[np.arange(len(targets_M)), targets_M].sum(dtype=np.float64))
            num_correct += int((log_probs_MV.argmax(-1) == targets_M).sum())
    count, data = int(texts.counts_N.sum()), config.data
    return MaskedReport(
        total / count, num_correct, count, len(texts.ids), data.mask_probability, data.whole_word_masking
    )


def apply_fixed_masks(texts: MaskableRows, indices: Sequence[int], tokenizer: Tokenizer) -> list[MaskedRow]:
    """Return these rows with the masks of validation and test data, which depend only on the index of a row."""
    vocabulary = masking_vocabulary(tokenizer)
    rngs = [np.random.default_rng([FIXED_SEED, index]) for index in indices]
    return [texts.mask(index, rng, vocabulary, only_masks=True) for index, rng in zip(indices, rngs, strict=True)]


@dataclass(frozen=True)
class DocumentRows:
    """Documents as input rows of the network, and the line at which the document of each row begins."""

    rows: list[list[int]]
    lines: list[int]
    num_split: int
    """Number of documents that were split into several rows."""


def split_documents(
    documents: Sequence[Document], tokenizer: Tokenizer, limit: int, skips: SkipReport, path: Path
) -> DocumentRows:
    """Return documents as rows of at most `limit` tokens with special tokens; a long one as rows of equal length."""
    rows, lines, num_split = [], [], 0
    for document, ids in encode_documents(documents, tokenizer):
        num_parts = max(1, math.ceil(len(ids) / (limit - NUM_SPECIAL_TOKENS)))
        num_split += num_parts > 1
        for part in np.array_split(np.asarray(ids, dtype=np.int64), num_parts):
            if not np.isin(part, tokenizer.special_ids).all():
                rows.append(CODEC.add_special_tokens(tokenizer, part.tolist()))
                lines.append(document.line)
            else:
                skips.add("no known token", path, document.line)
    if not rows:
        raise DataError(f"{path}: expected text with tokens of the tokenizer, found none; use text in its language")
    return DocumentRows(rows, lines, num_split)


def masking_vocabulary(tokenizer: Tokenizer) -> MaskingVocabulary:
    """Return the ids by which masking replaces tokens."""
    text_ids = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    return MaskingVocabulary(find_mask_id(tokenizer), text_ids)


def build_maskable_rows(rows: Sequence[Sequence[int]], tokenizer: Tokenizer, config: Config) -> MaskableRows:
    """Return the rows with their maskable units: tokens, or words for whole word masking."""
    specials, are_words = tokenizer.special_ids, config.data.whole_word_masking
    units = [masking_units(row, tokenizer.word_indices(row) if are_words else None, specials) for row in rows]
    return MaskableRows.build(rows, units, config.data.mask_probability)


def max_row_tokens(config: Config) -> int:
    """Return the largest number of tokens of a row, special tokens included; raise ConfigError if no text fits."""
    limit = max_training_tokens(config)
    if limit <= NUM_SPECIAL_TOKENS:
        raise ConfigError(f"data.max_tokens={limit} leaves no room between <s> and </s>; try 256")
    return limit
