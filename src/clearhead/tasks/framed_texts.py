"""Texts as the rows that an encoder reads: one row per text, several for a text that is too long."""

from collections.abc import Sequence
from dataclasses import dataclass

from clearhead.data.segmentation import Segmenter
from clearhead.tasks.long_texts import LongTexts, segment_texts
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens


@dataclass(frozen=True)
class FramedTexts:
    """Rows of token ids, with the parts of each text that they come from."""

    rows: list[list[int]]
    parts: list[list[str]]
    """The parts of each text: none if it is empty or skipped, several if it was too long."""
    spans: list[slice]
    """The rows of each text."""
    num_special_tokens: int
    """Special tokens of each row."""


def split_framed(model: LoadedModel, texts: Sequence[str], long_texts: LongTexts, first_line: int = 1) -> FramedTexts:
    """Return the rows of the texts, with special tokens; each has at most as many tokens as the model accepts."""
    encode, codec = model.tokenizer.encode_batch, get_task(model.config.task).codec
    num_special_tokens = len(codec.add_special_tokens(model.tokenizer, []))
    limit = max_input_tokens(model.config) - num_special_tokens
    segmenter = Segmenter("none", "", limit, lambda parts: [len(ids) for ids in encode(parts)])
    segmented = segment_texts(texts, segmenter, long_texts, first_line)
    encoded = iter(encode([part for one in segmented if one for part in one.parts]))
    found = FramedTexts([], [], [], num_special_tokens)
    for one in segmented:
        parts = [(part, ids) for part in (one.parts if one else ()) if (ids := next(encoded))]
        start = len(found.rows)
        found.rows.extend(codec.add_special_tokens(model.tokenizer, ids) for _, ids in parts)
        found.parts.append([part for part, _ in parts])
        found.spans.append(slice(start, len(found.rows)))
    return found
