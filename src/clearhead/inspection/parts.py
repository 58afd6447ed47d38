"""Names of attention heads and sub-layers. Layers and heads are counted from 0. Does not import torch."""

from dataclasses import dataclass
from typing import Literal, Self

from clearhead.errors import InspectionError

Kind = Literal["encoder", "decoder", "cross"]
"""encoder: self-attention that sees everything; decoder: self-attention that sees what came before; cross: from what is
written to the source."""
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class Part:
    """A head of an attention, or a whole sub-layer where no head is named; written `cross.1.0` or `cross.1`."""

    name: str
    layer: int
    head: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """The part that is written so."""
        name, *numbers = text.split(".")
        if not 1 <= len(numbers) <= 2 or not all(number.isdecimal() for number in numbers):
            raise InspectionError(
                f"expected a part such as cross.1.0 (kind, layer, head, counted from 0) or cross.1 (the whole "
                f"sub-layer), got {text!r}"
            )
        return cls(name, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.name}.{self.layer}" + ("" if self.head is None else f".{self.head}")
