"""How well a language model foresees a text. Knows sums and counts only; the caller measured them.

Scores of guessed pieces: how many are right, and how surprising they were.
"""

import math
from dataclasses import dataclass
from typing import Any


def perplexity(nll: float) -> float:
    """Return the perplexity of a mean negative log-likelihood in nats; above 50 nats that of 50, which is finite."""
    return math.exp(min(nll, 50.0))


@dataclass(frozen=True)
class PerplexityReport:
    """The scores of one text. Only bits a byte or a character compare models that cut text into other pieces."""

    nll: float
    """Negative log-likelihood of the whole text in nats."""
    tokens: int
    """Predictions: all pieces, and the end of each document."""
    unknown: int
    """Pieces that the vocabulary does not hold: they cost less than the text that they stand for."""
    characters: int
    bytes: int
    window: int
    stride: int
    documents: str
    """Whether a token saw only its own document (apart), or those before it too (together)."""

    @property
    def nats(self) -> float:
        """Nats a token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """Among how many equally likely tokens the model was undecided."""
        return perplexity(self.nats)

    @property
    def bits_per_byte(self) -> float:
        """Bits a byte of UTF-8."""
        return self.nll / math.log(2) / self.bytes

    @property
    def bits_per_character(self) -> float:
        """Bits a character."""
        return self.nll / math.log(2) / self.characters

    @property
    def signature(self) -> str:
        """How the figures came about."""
        seen = f"window:{self.window}|stride:{self.stride}|documents:{self.documents}"
        return f"{seen}|tokens:{self.tokens}|unknown:{self.unknown}"

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        names = ("nats", "perplexity", "bits_per_byte", "bits_per_character")
        scores = {name: {"score": getattr(self, name), "signature": self.signature} for name in names}
        return {**scores, "tokens": self.tokens, "characters": self.characters, "bytes": self.bytes}

    def __str__(self) -> str:
        return "\n".join(
            [
                f"nats per token {self.nats:.4f} {self.signature}",
                f"perplexity {self.perplexity:.3f} {self.signature}",
                f"bits per byte {self.bits_per_byte:.4f} bytes:{self.bytes}",
                f"bits per character {self.bits_per_character:.4f} characters:{self.characters}",
            ]
        )


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
        return perplexity(self.loss)

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
