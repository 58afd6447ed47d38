"""References to attention heads and sub-layers. Layers and heads are counted from 0. Does not import torch."""

from dataclasses import dataclass
from typing import Literal, Self

from clearhead.config import RECURRENT, ModelConfig
from clearhead.errors import InspectionError

AttentionKind = Literal["encoder", "decoder", "cross"]
"""encoder: self-attention of the encoder; decoder: masked self-attention; cross: encoder-decoder attention."""
ATTENTION_KINDS: tuple[AttentionKind, ...] = ("encoder", "decoder", "cross")


@dataclass(frozen=True)
class HeadRef:
    """Reference to an attention head (`cross.1.0`), or to a whole sub-layer if `head` is None (`cross.1`)."""

    name: str
    layer: int
    head: int | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the reference for `name.layer` or `name.layer.head`; raise InspectionError for any other text."""
        name, *numbers = text.split(".")
        if not 1 <= len(numbers) <= 2 or not all(number.isdecimal() for number in numbers):
            raise InspectionError(
                f"expected a head such as cross.1.0 (kind, layer, head, counted from 0) or a sub-layer such as "
                f"cross.1, got {text!r}"
            )
        return cls(name, *map(int, numbers))

    def __str__(self) -> str:
        return f"{self.name}.{self.layer}" + ("" if self.head is None else f".{self.head}")


@dataclass(frozen=True)
class SubLayerInfo:
    """A sub-layer of a model: an attention or a feed-forward network."""

    name: str
    layer: int
    num_heads: int
    """0 for a feed-forward network."""


def list_sublayers(config: ModelConfig) -> list[SubLayerInfo]:
    """Return the sub-layers of a model in the order in which they run.

    They follow from the model's settings, so that the server can list them without torch.
    """
    sublayers = []
    if config.family in ("transformer", "encoder", "vit"):
        for layer in range(config.num_encoder_layers):
            sublayers.append(SubLayerInfo("encoder", layer, config.num_heads))
            sublayers.append(SubLayerInfo("encoder_feed_forward", layer, 0))
    if config.family in ("transformer", "decoder"):
        for layer in range(config.num_decoder_layers):
            sublayers.append(SubLayerInfo("decoder", layer, config.num_heads))
            if config.family == "transformer":
                sublayers.append(SubLayerInfo("cross", layer, config.num_heads))
            sublayers.append(SubLayerInfo("decoder_feed_forward", layer, 0))
    if config.family in RECURRENT and config.head == "generation" and config.attention != "none":
        sublayers.append(SubLayerInfo("cross", 0, 1))
    return sublayers
