"""Scores of guessed pieces: how many are right, and how surprising they were."""

import math
from dataclasses import dataclass
from typing import Any

FIXED_SEED = 0  # of the masks that scores are counted over: the same for every model with the same pieces


@dataclass(frozen=True)
class MaskedReport:
    """How well hidden pieces are guessed: each text has the same pieces hidden whenever it is scored."""

    loss: float  # mean negative log-likelihood of a hidden piece
    right: int
    pieces: int
    examples: int
    share: float
    whole_word_masking: bool
    skipped: int = 0  # parts of which no piece is known, so that nothing could be hidden

    @property
    def accuracy(self) -> float:
        """The share of hidden pieces whose best guess is right, from 0 to 1."""
        return self.right / self.pieces

    @property
    def pseudo_perplexity(self) -> float:
        """The exponential of the loss. Not comparable with the perplexity of a model that reads from left to right."""
        return math.exp(min(self.loss, 50.0))

    @property
    def signature(self) -> str:
        """What the figures were counted over."""
        unit = "words" if self.whole_word_masking else "pieces"
        return f"hidden:{self.pieces}|share:{self.share:g}|unit:{unit}|shown:mask|seed:{FIXED_SEED}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "accuracy": {"score": self.accuracy, "signature": self.signature},
            "pseudo_perplexity": {"score": self.pseudo_perplexity, "signature": self.signature},
            "loss": self.loss,
            "examples": self.examples,
            "skipped": self.skipped,
        }

    def __str__(self) -> str:
        return (
            f"accuracy {100 * self.accuracy:.2f} % {self.signature}\n"
            f"pseudo-perplexity {self.pseudo_perplexity:.2f} {self.signature}\n"
            f"examples {self.examples}" + (f", skipped {self.skipped} without a known piece" if self.skipped else "")
        )
