"""The translation of a text, joined from those of its parts. Does not import torch."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from clearhead.config import DecodingConfig
from clearhead.data.segmentation import SegmentedText
from clearhead.decoding.penalties import normalized_score


@dataclass(frozen=True)
class Translation:
    """One translation. `score` is its length-normalised log-probability, by which hypotheses are ranked.

    `finish_reason` is that of search, or "skipped" for a text that is longer than the model accepts.
    """

    text: str
    score: float
    tokens: tuple[str, ...]
    log_prob: float
    token_log_probs: tuple[float, ...]
    finish_reason: str
    unmet: tuple[str, ...] = ()
    """Words to include that are missing, words to exclude that occur; a prefix that the text does not begin with."""
    parts: tuple["TranslatedPart", ...] = ()
    """The parts of a text that was split into several; log-probabilities are summed over them."""

    def to_json(self) -> dict[str, Any]:
        """Return the fields; `parts` only for a text that was split."""
        record = {
            "text": self.text,
            "score": self.score,
            "log_prob": self.log_prob,
            "tokens": list(self.tokens),
            "token_log_probs": list(self.token_log_probs),
            "finish_reason": self.finish_reason,
            "unmet": list(self.unmet),
        }
        return {**record, "parts": [part.to_json() for part in self.parts]} if self.parts else record


@dataclass(frozen=True)
class TranslatedPart:
    """One part of a text, such as a sentence, and its translation."""

    source: str
    translation: Translation

    def to_json(self) -> dict[str, Any]:
        """Return the source and the fields of the translation."""
        return {"source": self.source, **self.translation.to_json()}


SKIPPED = Translation("", 0.0, (), 0.0, (), "skipped")


def join_translations(
    segmented: SegmentedText, found: Sequence[Translation], settings: DecodingConfig, text: str | None = None
) -> Translation:
    """Return the translation of a text from those of its parts; `text` if it is already joined.

    The score is normalised as that of a single hypothesis with the tokens of all parts.
    """
    if len(found) == 1:
        return found[0]
    log_prob = sum(one.log_prob for one in found)
    length = sum(len(one.tokens) + (one.finish_reason == "end") for one in found)
    reasons = [one.finish_reason for one in found if one.finish_reason != "end"]
    return Translation(
        text=segmented.join([one.text for one in found]) if text is None else text,
        score=normalized_score(log_prob, length, settings) if length else 0.0,
        tokens=tuple(chain.from_iterable(one.tokens for one in found)),
        log_prob=log_prob,
        token_log_probs=tuple(chain.from_iterable(one.token_log_probs for one in found)),
        finish_reason=reasons[0] if reasons else "end",
        unmet=tuple(dict.fromkeys(chain.from_iterable(one.unmet for one in found))),
        parts=tuple(TranslatedPart(*each) for each in zip(segmented.parts, found, strict=True)),
    )
