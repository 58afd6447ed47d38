"""Perplexity reports of causal and masked language models, computed from sums and counts."""

import math
from dataclasses import dataclass
from typing import Any


def perplexity(nll: float) -> float:
    """Return the perplexity of a mean negative log-likelihood in nats, limited to that of 50 nats to stay finite."""
    return math.exp(min(nll, 50.0))


@dataclass(frozen=True)
class PerplexityReport:
    """Perplexity of one text; only bits per byte or character compare models with different tokenizers."""

    nll: float
    """Negative log-likelihood of the whole text in nats."""
    tokens: int
    """Number of predictions: all tokens, and the end of each document."""
    unknown: int
    """Number of unknown tokens, which cost less than the text they replace."""
    characters: int
    bytes: int
    window: int
    stride: int
    documents: str
    """Context of a token: only its document (apart), or also the previous documents (together)."""

    @property
    def nats(self) -> float:
        """Return nats per token."""
        return self.nll / self.tokens

    @property
    def perplexity(self) -> float:
        """Return the exponential of nats per token."""
        return perplexity(self.nats)

    @property
    def bits_per_byte(self) -> float:
        """Return bits per byte of UTF-8."""
        return self.nll / math.log(2) / self.bytes

    @property
    def bits_per_character(self) -> float:
        """Return bits per character."""
        return self.nll / math.log(2) / self.characters

    @property
    def signature(self) -> str:
        """Return the settings and counts that the scores are based on."""
        context = f"window:{self.window}|stride:{self.stride}|documents:{self.documents}"
        return f"{context}|tokens:{self.tokens}|unknown:{self.unknown}"

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
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


FIXED_SEED = 0  # seed of the masks, so that models with the same tokenizer are scored on the same masked tokens


@dataclass(frozen=True)
class MaskedReport:
    """Scores of masked-token prediction; a text has the same masked tokens each time it is scored."""

    loss: float  # mean negative log-likelihood per masked token
    correct: int
    tokens: int
    examples: int
    mask_probability: float
    whole_word_masking: bool
    skipped: int = 0  # texts without a known token, in which nothing can be masked

    @property
    def accuracy(self) -> float:
        """Return the fraction of masked tokens that are predicted correctly."""
        return self.correct / self.tokens

    @property
    def pseudo_perplexity(self) -> float:
        """Return the exponential of the loss, which is not comparable with the perplexity of a causal model."""
        return perplexity(self.loss)

    @property
    def signature(self) -> str:
        """Return the settings and counts that the scores are based on."""
        unit = "words" if self.whole_word_masking else "tokens"
        return (
            f"masked:{self.tokens}|probability:{self.mask_probability:g}|unit:{unit}|replacement:mask|seed:{FIXED_SEED}"
        )

    def to_json(self) -> dict[str, Any]:
        """Return the fields of the JSON output."""
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
            f"examples {self.examples}" + (f", skipped {self.skipped} without a known token" if self.skipped else "")
        )
