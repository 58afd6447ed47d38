"""Tables of names: which tensors of a foreign format are which of ours, applied in either direction.

A format is a list of links. Applying it reads nothing before every name and shape is known to fit.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.config import ModelConfig
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors, Shape, count_values, to_float32
from clearhead.model.parameters import Weights, named_weights
from clearhead.model.registry import build_model

Arrangement = Literal["same", "transposed", "reshaped"]
PROJECTIONS = ("query", "key", "value")
_SHOWN = 8  # names in a message
_FAR = 4


@dataclass(frozen=True)
class TensorLink:
    """One tensor of ours and the tensor of theirs with the same numbers, or the block of its rows that has them."""

    ours: str
    theirs: str
    arrangement: Arrangement = "same"
    shape: Shape = ()  # of theirs, where reshaped
    block: int = 0
    blocks: int = 1  # into which the rows of theirs are divided

    def their_shape(self, ours: Shape) -> Shape:
        """Return the shape of theirs, all blocks together."""
        if self.arrangement == "reshaped":
            return self.shape
        whole = (self.blocks * ours[0], *ours[1:])
        return whole[::-1] if self.arrangement == "transposed" else whole

    def read(self, theirs: Tensor, ours: Shape) -> Tensor:
        """Return our tensor."""
        if self.arrangement == "transposed":
            theirs = theirs.T
        return theirs.chunk(self.blocks)[self.block].reshape(ours)

    def write(self, ours: Tensor) -> Tensor:
        """Return their tensor, or its block."""
        if self.arrangement == "reshaped":
            return ours.reshape(self.shape)
        return ours.T if self.arrangement == "transposed" else ours


@dataclass(frozen=True)
class WeightMapping:
    """A format's names for one network."""

    links: Sequence[TensorLink]
    copies: Mapping[str, str] = field(default_factory=dict)
    """Further names of theirs for a tensor of theirs: where they are there, they must be equal."""
    ignored: str = r"(?!)"
    """What is no weight, as a pattern: position numbers, versions."""
    left_out: str = r"(?!)"
    """Weights that the network has no use for, as a pattern: they are named, not read."""


@dataclass(frozen=True)
class MappedWeights:
    """Our weights, and what of theirs was not used."""

    weights: Weights
    left_out: list[str]


def linear_links(ours: str, theirs: str, bias: bool = True, arrangement: Arrangement = "same") -> Iterator[TensorLink]:
    """A linear layer or a norm."""
    yield TensorLink(f"{ours}.weight", f"{theirs}.weight", arrangement)
    if bias:
        yield TensorLink(f"{ours}.bias", f"{theirs}.bias")


def attention_links(ours: str, theirs: Sequence[str], output: str, bias: bool = True) -> Iterator[TensorLink]:
    """Attention whose queries, keys and values are three linear layers there as here."""
    for name, their_name in zip(PROJECTIONS, theirs, strict=True):
        yield from linear_links(f"{ours}.{name}", their_name, bias)
    yield from linear_links(f"{ours}.output", output, bias)


def joint_projection_links(
    ours: str, weight: str, bias: str, arrangement: Arrangement = "same"
) -> Iterator[TensorLink]:
    """Queries, keys and values that are one linear layer there."""
    for block, name in enumerate(PROJECTIONS):
        yield TensorLink(f"{ours}.{name}.weight", weight, arrangement, block=block, blocks=len(PROJECTIONS))
        yield TensorLink(f"{ours}.{name}.bias", bias, block=block, blocks=len(PROJECTIONS))


def import_weights(table: WeightMapping, tensors: CheckpointTensors, config: ModelConfig) -> MappedWeights:
    """Our weights from theirs. Everything is checked before anything is read."""
    check_parameter_count(config, tensors)
    shapes = weight_shapes(config)
    links = {link.ours: link for link in table.links}
    assert links.keys() == shapes.keys(), f"the table does not fit the network: {links.keys() ^ shapes.keys()}"
    _check_names(table, tensors.shapes)
    for name, link in links.items():
        _check_shapes(link, shapes[name], tensors.shapes)
    _check_copies(table, tensors)
    weights = {
        name: link.read(to_float32(tensors.get(link.theirs), link.theirs), shapes[name]).clone()
        for name, link in links.items()
    }
    unused = [name for name in tensors.shapes if re.fullmatch(table.left_out, name)]
    return MappedWeights(weights, sorted(unused))


def export_weights(table: WeightMapping, weights: Mapping[str, Tensor]) -> Weights:
    """Their tensors from our weights."""
    blocks: dict[str, dict[int, Tensor]] = {}
    axes: dict[str, int] = {}
    for link in table.links:
        found, tensor = blocks.setdefault(link.theirs, {}), link.write(weights[link.ours].detach())
        if link.block in found and not torch.equal(found[link.block], tensor):
            raise InteropError(
                f"{link.ours} is not tied here, but the format has one tensor, {link.theirs}, for it and others"
            )
        found[link.block] = tensor
        axes[link.theirs] = 1 if link.arrangement == "transposed" else 0
    return {
        name: torch.cat([tensor for _, tensor in sorted(found.items())], axes[name])
        if len(found) > 1
        else found[0].contiguous()
        for name, found in blocks.items()
    }


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """The shape of each weight that a network would have, which is not built."""
    with torch.device("meta"):
        network: Any = build_model(config)
    return {name: tuple(tensor.shape) for name, tensor in named_weights(network).items()}


def check_parameter_count(config: ModelConfig, tensors: CheckpointTensors) -> None:
    """Refuses a config that asks for far more numbers than the file holds, before a network is thought of.

    Of smaller differences the names of missing tensors tell more.
    """
    width, keys = config.model_dim, config.num_heads * (config.head_key_dim + config.head_value_dim)
    layer = 2 * width * (keys + config.feed_forward_dim)
    layers = {
        "decoder": config.num_decoder_layers,
        "transformer": config.num_encoder_layers + config.num_decoder_layers,
    }
    asked = layers.get(config.family, config.num_encoder_layers) * layer
    asked += width * config.read_vocab_size if config.has_text else 0
    held = count_values(tensors)
    if asked > _FAR * held:
        raise InteropError(
            f"the settings ask for {asked:,} parameters or more, the file holds {held:,} numbers; "
            "they do not belong together"
        )


def _check_names(table: WeightMapping, shapes: Mapping[str, Shape]) -> None:
    expected = {link.theirs for link in table.links}
    missing = expected - shapes.keys()
    unused = f"(?:{table.ignored})|(?:{table.left_out})"
    unexpected = {name for name in shapes.keys() - expected - table.copies.keys() if not re.fullmatch(unused, name)}
    if missing or unexpected:
        raise InteropError(
            f"the tensors do not fit the settings: missing {_join_names(missing)}; unexpected {_join_names(unexpected)}"
        )


def _join_names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _SHOWN} more" if len(ordered) > _SHOWN else ""
    return (", ".join(ordered[:_SHOWN]) or "none") + more


def _check_shapes(link: TensorLink, ours: Shape, shapes: Mapping[str, Shape]) -> None:
    expected, found = link.their_shape(ours), shapes[link.theirs]
    if found != expected or link.blocks * prod(ours) != prod(expected):
        raise InteropError(
            f"{link.theirs} has shape {found}, the settings ask for {expected}; they do not belong together"
        )


def _check_copies(table: WeightMapping, tensors: CheckpointTensors) -> None:
    for name, original in table.copies.items():
        if name in tensors.shapes and original in tensors.shapes:
            same = tensors.shapes[name] == tensors.shapes[original]
            if not same or not torch.equal(tensors.get(name), tensors.get(original)):
                raise InteropError(f"{name} must be tied to {original} by the settings, but holds other numbers")
