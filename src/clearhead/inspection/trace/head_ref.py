"""Names of attention heads and sub-layers. Layers and heads are counted from 0. Does not import torch."""

from dataclasses import dataclass
from typing import Literal, Self

from clearhead.config import RECURRENT, ModelConfig
from clearhead.errors import InspectionError

Kind = Literal["encoder", "decoder", "cross"]
"""encoder: self-attention that sees everything; decoder: self-attention that sees what came before; cross: from what is
written to the source."""
KINDS: tuple[Kind, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class HeadRef:
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


@dataclass(frozen=True)
class HeadRefInfo:
    """A sub-layer of a model, and its number of heads; 0 for a feed-forward network."""

    name: str
    layer: int
    heads: int


def list_head_refs(config: ModelConfig) -> list[HeadRefInfo]:
    """Return the sub-layers of a model in the order in which they run, as its settings say."""
    found = []
    if config.family in ("transformer", "encoder", "vit"):
        for layer in range(config.num_encoder_layers):
            found += [HeadRefInfo("encoder", layer, config.num_heads), HeadRefInfo("encoder_feed_forward", layer, 0)]
    if config.family in ("transformer", "decoder"):
        for layer in range(config.num_decoder_layers):
            found.append(HeadRefInfo("decoder", layer, config.num_heads))
            if config.family == "transformer":
                found.append(HeadRefInfo("cross", layer, config.num_heads))
            found.append(HeadRefInfo("decoder_feed_forward", layer, 0))
    if config.family in RECURRENT and config.head == "generation" and config.attention != "none":
        found.append(HeadRefInfo("cross", 0, 1))
    return found
