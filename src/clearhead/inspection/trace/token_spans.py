"""Token spans: each token with the range of characters that it covers in the text. Does not import torch."""

import re
from collections.abc import Callable, Sequence

from clearhead.data.tokenizer import Tokenizer
from clearhead.inspection.trace.trace_types import TokenSpan

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>|<x[0-9]+>")
CharRange = tuple[int | None, int | None]
"""Start and end in characters; None for special tokens, which cover no text."""


def source_token_spans(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> tuple[TokenSpan, ...]:
    """Return one span per token of an encoded text, including special tokens.

    Masks and sentinels are written in the text, so the segments between them are matched separately.
    """
    mask_positions = [position for position, token in enumerate(ids) if _is_mask(tokenizer, token)]
    ranges: list[CharRange] = [(None, None)] * len(ids)
    text_start, first = 0, 0
    matches = list(MASK_PATTERN.finditer(text)) if mask_positions else []
    assert len(matches) == len(mask_positions), "every mask token must be written in the text"
    for position, match in zip(mask_positions, matches, strict=True):
        ranges[first:position] = _segment_ranges(
            tokenizer, text[text_start : match.start()], ids[first:position], text_start
        )
        ranges[position] = match.span()
        text_start, first = match.end(), position + 1
    ranges[first:] = _segment_ranges(tokenizer, text[text_start:], ids[first:], text_start)
    return _to_token_spans(tokenizer, ids, ranges)


def target_token_spans(
    tokenizer: Tokenizer, detokenize: Callable[[Tokenizer, Sequence[int]], str], ids: Sequence[int]
) -> tuple[TokenSpan, ...]:
    """Return one span per generated token, with its range in the detokenized text.

    A token ends where the detokenized text of the tokens up to it ends.
    """
    text, previous_end = detokenize(tokenizer, ids), 0
    ranges: list[CharRange] = []
    for position, token in enumerate(ids):
        end = max(previous_end, min(len(detokenize(tokenizer, ids[: position + 1])), len(text)))
        start = end - len(text[previous_end:end].lstrip())
        ranges.append((None, None) if _is_special(tokenizer, token) else (start, end))
        previous_end = end
    return _to_token_spans(tokenizer, ids, ranges)


def _is_special(tokenizer: Tokenizer, token: int) -> bool:
    """Return whether a token is a start, end, padding or prefix token, which covers no text."""
    return token in (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *tokenizer.prefix_ids)


def _is_mask(tokenizer: Tokenizer, token: int) -> bool:
    """Return whether a token is a mask or sentinel that the user has written into the text."""
    return token in tokenizer.special_ids and token != tokenizer.unk_id and not _is_special(tokenizer, token)


def _segment_ranges(tokenizer: Tokenizer, text: str, ids: Sequence[int], text_start: int) -> list[CharRange]:
    """Return the character ranges of the tokens of a text segment that starts at `text_start`."""
    text_ids = [token for token in ids if not _is_special(tokenizer, token)]
    encoding = tokenizer.encode(text)
    prefix_length = len(tokenizer.prefix_ids) if encoding.ids else 0
    has_same_ids = encoding.ids[prefix_length:] == text_ids  # tokenization of a segment may depend on its context
    offsets = iter(encoding.offsets[prefix_length:] if has_same_ids else _find_tokens(tokenizer, text, text_ids))
    ranges: list[CharRange] = []
    for token in ids:
        if _is_special(tokenizer, token):
            ranges.append((None, None))
        else:
            start, end = next(offsets)
            ranges.append((text_start + start, text_start + end))
    return ranges


def _find_tokens(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return the range of the next occurrence of each token's text; a token that does not occur gets an empty range."""
    ranges, end = [], 0
    for token in ids:
        token_text = tokenizer.decode_tokens([token]).strip()
        start = text.find(token_text, end) if token_text else -1
        ranges.append((end, end) if start < 0 else (start, start + len(token_text)))
        end = ranges[-1][1]
    return ranges


def _to_token_spans(tokenizer: Tokenizer, ids: Sequence[int], ranges: Sequence[CharRange]) -> tuple[TokenSpan, ...]:
    words = tokenizer.word_indices(ids)
    return tuple(
        TokenSpan(tokenizer.token(token), token, start, end, _is_special(tokenizer, token), word)
        for token, (start, end), word in zip(ids, ranges, words, strict=True)
    )
