"""Handling of texts with more tokens than a model accepts: they are split, skipped or refused, and counted."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from clearhead.data.segmentation import SegmentedText, Segmenter
from clearhead.errors import ConfigError, DecodingError
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens

LongTextPolicy = Literal["split", "skip", "stop"]


@dataclass
class LongTexts:
    """Policy for long texts, and the number of texts that it was applied to."""

    policy: LongTextPolicy = "split"
    count: int = 0
    first_line: int = 0
    limit: int = 0

    @classmethod
    def of(cls, policy: "LongTextPolicy | LongTexts") -> "LongTexts":
        """Return a new tally for a policy; return an existing tally unchanged."""
        if isinstance(policy, cls):
            return policy
        if policy not in get_args(LongTextPolicy):
            raise ConfigError(f"long_texts: expected {', '.join(get_args(LongTextPolicy))}, got {policy!r}")
        return cls(policy)  # type: ignore[arg-type]

    def record(self, line: int, tokens: int, limit: int) -> bool:
        """Count a long text; return whether it is split (True) or skipped (False). Raise DecodingError to stop."""
        if self.policy == "stop":
            raise DecodingError(f"line {line} has {tokens:,} tokens, the model accepts {limit:,}; split the line")
        self.count += 1
        self.first_line = self.first_line or line
        self.limit = limit
        return self.policy == "split"

    def report(self) -> str:
        """Return one sentence about the long texts, or an empty string if there were none."""
        if not self.count:
            return ""
        lines = "1 line has" if self.count == 1 else f"{self.count:,} lines have"
        action = "split and processed in parts" if self.policy == "split" else "skipped, with empty output"
        location = f"line {self.first_line}" if self.count == 1 else f"the first is line {self.first_line}"
        return f"{lines} more than {self.limit:,} tokens, the model's limit: {action} ({location})"


def segment_texts(
    texts: Sequence[str], segmenter: Segmenter, long_texts: LongTexts, first_line: int = 1
) -> list[SegmentedText | None]:
    """Return the parts of each text; None for a text that is skipped because it is too long."""
    results: list[SegmentedText | None] = []
    for line, (text, segmented) in enumerate(zip(texts, segmenter.segment(texts), strict=True), first_line):
        is_used = not segmented.is_long
        if segmented.is_long:
            is_used = long_texts.record(line, segmenter.count_tokens([text])[0], segmenter.limit)
        results.append(segmented if is_used else None)
    return results


@dataclass(frozen=True)
class EncoderRows:
    """Input rows of an encoder: one row of token ids per text, several for a long text."""

    rows: list[list[int]]
    parts: list[list[str]]
    """Parts of each text: none if it is empty or skipped, several if it was split."""
    spans: list[slice]
    """Slice of `rows` for each text."""
    num_special_tokens: int
    """Number of special tokens in each row."""


def split_into_rows(
    model: LoadedModel, texts: Sequence[str], long_texts: LongTexts, first_line: int = 1
) -> EncoderRows:
    """Return the rows of the texts, with special tokens; each has at most as many tokens as the model accepts."""
    encode, codec = model.tokenizer.encode_batch, model.task.codec
    num_special_tokens = len(codec.add_special_tokens(model.tokenizer, []))
    limit = max_input_tokens(model.config) - num_special_tokens
    segmenter = Segmenter("none", "", limit, lambda parts: [len(ids) for ids in encode(parts)])
    segmented = segment_texts(texts, segmenter, long_texts, first_line)
    parts_of = [text.parts if text else () for text in segmented]
    encoded = iter(encode([part for parts in parts_of for part in parts]))
    result = EncoderRows([], [], [], num_special_tokens)
    for parts in parts_of:
        rows = [(part, ids) for part in parts if (ids := next(encoded))]
        start = len(result.rows)
        result.rows.extend(codec.add_special_tokens(model.tokenizer, ids) for _, ids in rows)
        result.parts.append([part for part, _ in rows])
        result.spans.append(slice(start, len(result.rows)))
    return result
