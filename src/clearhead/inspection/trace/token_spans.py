"""Tokens as places: what to show, and which characters of the text each stands for. Does not import torch."""

import re
from collections.abc import Callable, Sequence

from clearhead.data.tokenizer import Tokenizer
from clearhead.inspection.trace.trace_types import TokenSpan

MARK = re.compile(r"\[MASK\]|<mask>|<x[0-9]+>")
Span = tuple[int | None, int | None]


def source_token_spans(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> tuple[TokenSpan, ...]:
    """The places of ids that were made of a text, frame and all."""
    marks = [number for number, index in enumerate(ids) if _is_mark(tokenizer, index)]
    spans: list[Span] = [(None, None)] * len(ids)
    begin, first = 0, 0
    found = list(MARK.finditer(text)) if marks else []
    assert len(found) == len(marks), "every mark of the ids stands in the text"
    for number, match in zip(marks, found, strict=True):
        spans[first:number] = _spans(tokenizer, text[begin : match.start()], ids[first:number], begin)
        spans[number] = match.span()
        begin, first = match.end(), number + 1
    spans[first:] = _spans(tokenizer, text[begin:], ids[first:], begin)
    return _places(tokenizer, ids, spans)


def target_token_spans(
    tokenizer: Tokenizer, spell: Callable[[Tokenizer, Sequence[int]], str], ids: Sequence[int]
) -> tuple[TokenSpan, ...]:
    """The places of ids that a network wrote, in the text that they spell."""
    text, reach = spell(tokenizer, ids), 0
    spans: list[Span] = []
    for number, index in enumerate(ids):
        end = max(reach, min(len(spell(tokenizer, ids[: number + 1])), len(text)))
        start = end - len(text[reach:end].lstrip())
        spans.append((None, None) if _is_frame(tokenizer, index) else (start, end))
        reach = end
    return _places(tokenizer, ids, spans)


def _is_frame(tokenizer: Tokenizer, index: int) -> bool:
    """A start, an end, padding or a tag: what stands for no text."""
    return index in (tokenizer.pad_id, tokenizer.bos_id, tokenizer.eos_id, *tokenizer.prefix_ids)


def _is_mark(tokenizer: Tokenizer, index: int) -> bool:
    """A special token that a user wrote: a gap or a hole."""
    return index in tokenizer.special_ids and index != tokenizer.unk_id and not _is_frame(tokenizer, index)


def _spans(tokenizer: Tokenizer, text: str, ids: Sequence[int], begin: int) -> list[Span]:
    """Where pieces stand in a stretch of text that begins at a character; special ones of a frame stand nowhere."""
    inner = [index for index in ids if not _is_frame(tokenizer, index)]
    encoding = tokenizer.encode(text)
    own = len(tokenizer.prefix_ids) if encoding.ids else 0
    is_same = encoding.ids[own:] == inner  # else cut otherwise here than in the whole text
    found = iter(encoding.offsets[own:] if is_same else _search(tokenizer, text, inner))
    spans: list[Span] = []
    for index in ids:
        if _is_frame(tokenizer, index):
            spans.append((None, None))
        else:
            start, end = next(found)
            spans.append((begin + start, begin + end))
    return spans


def _search(tokenizer: Tokenizer, text: str, ids: Sequence[int]) -> list[tuple[int, int]]:
    """Each piece where its text comes next; one that is not found takes no room."""
    spans, reach = [], 0
    for index in ids:
        piece = tokenizer.decode_tokens([index]).strip()
        start = text.find(piece, reach) if piece else -1
        spans.append((reach, reach) if start < 0 else (start, start + len(piece)))
        reach = spans[-1][1]
    return spans


def _places(tokenizer: Tokenizer, ids: Sequence[int], spans: Sequence[Span]) -> tuple[TokenSpan, ...]:
    words = tokenizer.word_indices(ids)
    return tuple(
        TokenSpan(tokenizer.token(index), index, start, end, _is_frame(tokenizer, index), word)
        for index, (start, end), word in zip(ids, spans, words, strict=True)
    )
