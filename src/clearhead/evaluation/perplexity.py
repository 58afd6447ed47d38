"""How well a language model foresees a text. Knows sums and counts only; the caller measured them."""

import math
from dataclasses import dataclass
from typing import Any


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
        return math.exp(min(self.nats, 50.0))

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
