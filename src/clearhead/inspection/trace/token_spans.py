"""Token spans: the text of each token and the characters of the text that it covers. Does not import torch."""

import re
from collections.abc import Callable, Sequence

from clearhead.data.tokenizer import Tokenizer
from clearhead.inspection.trace.trace_types import TokenSpan

MASK_PATTERN = re.compile(r"\[MASK\]|<mask>|<x[0-9]+>")
Span = tuple[int | None, int | None]


def source_token_spans(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> tuple[TokenSpan, ...]:
    """Return the spans of the ids of an encoded text, including its special tokens."""
    mask_positions = [position for position, token in enumerate(ids) if _is_mask(tokenizer, token)]
    spans: list[Span] = [(None, None)] * len(ids)
    text_start, first = 0, 0
    matches = list(MASK_PATTERN.finditer(text)) if mask_positions else []
    assert len(matches) == len(mask_positions), "every mask token of the ids is written in the text"
    for position, match in zip(mask_positions, matches, strict=True):
        spans[first:position] = _segment_spans(
            tokenizer, text[text_start : match.start()], ids[first:position], text_start
        )
        spans[position] = match.span()
        text_start, first = match.end(), position + 1
    spans[first:] = _segment_spans(tokenizer, text[text_start:], ids[first:], text_start)
    return _to_token_spans(tokenizer, ids, spans)


def target_token_spans(
    tokenizer: Tokenizer, detokenize: Callable[[Tokenizer, Sequence[int]], str], ids: Sequence[int]
) -> tuple[TokenSpan, ...]:
    """Return the spans of generated ids in their detokenized text."""
    text, previous_end = detokenize(tokenizer, ids), 0
    spans: list[Span] = []
    for position, token in enumerate(ids):
        end = max(previous_end, min(len(detokenize(tokenizer, ids[: position + 1])), len(text)))
        start = end - len(text[previous_end:end].lstrip())
        spans.append((None, None) if _is_special(tokenizer, token) else (start, end))
        previous_end = end
    return _to_token_spans(tokenizer, ids, spans)


def _is_special(tokenizer: Tokenizer, token: int) -> bool:
    """Return whether a token is start, end, padding or a source tag, which cover no text."""
    return token in (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *tokenizer.prefix_ids)


def _is_mask(tokenizer: Tokenizer, token: int) -> bool:
    """Return whether a token is a mask or sentinel that the user has written into the text."""
    return token in tokenizer.special_ids and token != tokenizer.unk_id and not _is_special(tokenizer, token)


def _segment_spans(tokenizer: Tokenizer, text: str, ids: Sequence[int], text_start: int) -> list[Span]:
    """Return the spans of the ids of a text segment that starts at `text_start`; special tokens get none."""
    text_ids = [token for token in ids if not _is_special(tokenizer, token)]
    encoding = tokenizer.encode(text)
    prefix_length = len(tokenizer.prefix_ids) if encoding.ids else 0
    is_same = encoding.ids[prefix_length:] == text_ids  # a segment can be tokenized differently than within the text
    offsets = iter(encoding.offsets[prefix_length:] if is_same else _search_tokens(tokenizer, text, text_ids))
    spans: list[Span] = []
    for token in ids:
        if _is_special(tokenizer, token):
            spans.append((None, None))
        else:
            start, end = next(offsets)
            spans.append((text_start + start, text_start + end))
    return spans


def _search_tokens(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Return where the text of each token occurs next; a token that does not occur gets an empty span."""
    spans, end = [], 0
    for token in ids:
        token_text = tokenizer.decode_tokens([token]).strip()
        start = text.find(token_text, end) if token_text else -1
        spans.append((end, end) if start < 0 else (start, start + len(token_text)))
        end = spans[-1][1]
    return spans


def _to_token_spans(tokenizer: Tokenizer, ids: Sequence[int], spans: Sequence[Span]) -> tuple[TokenSpan, ...]:
    words = tokenizer.word_indices(ids)
    return tuple(
        TokenSpan(tokenizer.token(token), token, start, end, _is_special(tokenizer, token), word)
        for token, (start, end), word in zip(ids, spans, words, strict=True)
    )
