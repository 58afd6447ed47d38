"""Mapping between the tensors of clearhead's models and those of other formats, in both directions.

A mapping is a list of links between local names (weights in clearhead) and external names (tensors of the other
format). All names and shapes are checked before a tensor is read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Literal

import torch
from torch import Tensor

from clearhead.config import Config, ModelConfig
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import InteropError
from clearhead.interop.checkpoint_tensors import CheckpointTensors, Shape, count_values, to_float32
from clearhead.model.parameters import Weights, named_weights
from clearhead.model.registry import build_model

Arrangement = Literal["same", "transposed", "reshaped"]
PROJECTIONS = ("query", "key", "value")
_NOTHING = r"(?!)"
"""Pattern that matches no name."""
_MAX_NAMES = 8  # in a message
_MAX_SIZE_RATIO = 4
"""Largest accepted ratio of parameters of the config to values in the file; smaller mismatches are found by tensor."""


@dataclass(frozen=True)
class TensorLink:
    """Link between a weight and the external tensor that contains its values, all of it or one block of its rows."""

    local: str
    external: str
    arrangement: Arrangement = "same"
    shape: Shape = ()
    """Shape of the external tensor, if reshaped."""
    block: int = 0
    num_blocks: int = 1
    """Number of blocks that the rows of the external tensor are divided into."""

    def external_shape(self, local_shape: Shape) -> Shape:
        """Return the shape of the external tensor with all its blocks."""
        if self.arrangement == "reshaped":
            return self.shape
        whole = (self.num_blocks * local_shape[0], *local_shape[1:])
        return whole[::-1] if self.arrangement == "transposed" else whole

    def to_local(self, external: Tensor, local_shape: Shape) -> Tensor:
        """Return the weight that an external tensor contains."""
        if self.arrangement == "transposed":
            external = external.T
        return external.chunk(self.num_blocks)[self.block].reshape(local_shape)

    def to_external(self, local: Tensor) -> Tensor:
        """Return the external tensor of a weight, or its block."""
        if self.arrangement == "reshaped":
            return local.reshape(self.shape)
        return local.T if self.arrangement == "transposed" else local


@dataclass(frozen=True)
class WeightMapping:
    """Links between all weights of a network and the tensors of one format."""

    links: Sequence[TensorLink]
    copies: Mapping[str, str] = field(default_factory=dict)
    """External name of a tied tensor -> name of the tensor that it must equal if both are present."""
    ignored: str = _NOTHING
    """Pattern of names that are not weights, such as position ids or versions."""
    unused: str = _NOTHING
    """Pattern of weights that the network does not have; they are reported, not read."""


@dataclass(frozen=True)
class MappedWeights:
    """Weights of an imported network, and the external tensors that were not used."""

    weights: Weights
    unused_tensors: list[str]


@dataclass(frozen=True)
class ImportedModel:
    """A checkpoint of another toolkit, converted to clearhead's settings, weights and tokenizer."""

    config: Config
    weights: Weights
    tokenizer: Tokenizer | None
    unused_tensors: list[str]
    format: str
    notes: list[str]
    """Messages on settings that could not be converted."""


def linear_links(
    local: str, external: str, bias: bool = True, arrangement: Arrangement = "same"
) -> Iterator[TensorLink]:
    """Yield the links of a linear layer or a normalization."""
    yield TensorLink(f"{local}.weight", f"{external}.weight", arrangement)
    if bias:
        yield TensorLink(f"{local}.bias", f"{external}.bias")


def attention_links(local: str, projections: Sequence[str], output: str, bias: bool = True) -> Iterator[TensorLink]:
    """Yield the links of an attention whose projections of queries, keys and values are three external layers."""
    for name, projection in zip(PROJECTIONS, projections, strict=True):
        yield from linear_links(f"{local}.{name}", projection, bias)
    yield from linear_links(f"{local}.output", output, bias)


def joint_projection_links(
    local: str, weight: str, bias: str, arrangement: Arrangement = "same"
) -> Iterator[TensorLink]:
    """Yield the links of the projections of queries, keys and values, which are one external layer."""
    for block, name in enumerate(PROJECTIONS):
        yield TensorLink(f"{local}.{name}.weight", weight, arrangement, block=block, num_blocks=len(PROJECTIONS))
        yield TensorLink(f"{local}.{name}.bias", bias, block=block, num_blocks=len(PROJECTIONS))


def import_weights(mapping: WeightMapping, tensors: CheckpointTensors, config: ModelConfig) -> MappedWeights:
    """Return the weights of the network that a config describes.

    Raise InteropError if names or shapes differ from those in the file; this is checked before a tensor is read.
    """
    check_parameter_count(config, tensors)
    shapes = weight_shapes(config)
    links = {link.local: link for link in mapping.links}
    assert links.keys() == shapes.keys(), f"the mapping does not fit the network: {links.keys() ^ shapes.keys()}"
    _check_names(mapping, tensors.shapes)
    for name, link in links.items():
        _check_shape(link, shapes[name], tensors.shapes)
    _check_copies(mapping, tensors)
    weights = {
        name: link.to_local(to_float32(tensors.get(link.external), link.external), shapes[name]).clone()
        for name, link in links.items()
    }
    return MappedWeights(weights, sorted(name for name in tensors.shapes if re.fullmatch(mapping.unused, name)))


def export_weights(mapping: WeightMapping, weights: Mapping[str, Tensor]) -> Weights:
    """Return the external tensors of a network's weights."""
    blocks: dict[str, dict[int, Tensor]] = {}
    axes: dict[str, int] = {}
    for link in mapping.links:
        tensor_blocks = blocks.setdefault(link.external, {})
        tensor = link.to_external(weights[link.local].detach())
        if link.block in tensor_blocks and not torch.equal(tensor_blocks[link.block], tensor):
            raise InteropError(
                f"{link.local} is not tied in this model, but the format stores it and another weight in one tensor, "
                f"{link.external}; choose another format"
            )
        tensor_blocks[link.block] = tensor
        axes[link.external] = 1 if link.arrangement == "transposed" else 0
    return {
        name: torch.cat([tensor for _, tensor in sorted(tensor_blocks.items())], axes[name])
        if len(tensor_blocks) > 1
        else tensor_blocks[0].contiguous()
        for name, tensor_blocks in blocks.items()
    }


def weight_shapes(config: ModelConfig) -> dict[str, Shape]:
    """Return the shape of each weight of a network, without allocating it."""
    with torch.device("meta"):
        network: Any = build_model(config)
    return {name: tuple(tensor.shape) for name, tensor in named_weights(network).items()}


def check_parameter_count(config: ModelConfig, tensors: CheckpointTensors) -> None:
    """Raise InteropError for a config with far more parameters than the file has values, before building a network."""
    width, keys = config.model_dim, config.num_heads * (config.head_key_dim + config.head_value_dim)
    layer = 2 * width * (keys + config.feed_forward_dim)
    layers = {
        "decoder": config.num_decoder_layers,
        "transformer": config.num_encoder_layers + config.num_decoder_layers,
    }
    expected = layers.get(config.family, config.num_encoder_layers) * layer
    expected += width * config.input_vocab_size if config.has_text else 0
    num_values = count_values(tensors)
    if expected > _MAX_SIZE_RATIO * num_values:
        raise InteropError(
            f"the settings describe a model of {expected:,} parameters or more, but the file has {num_values:,}; "
            "use the settings and the weights of one model"
        )


def _check_names(mapping: WeightMapping, shapes: Mapping[str, Shape]) -> None:
    """Raise InteropError for missing and unexpected tensors."""
    expected = {link.external for link in mapping.links}
    missing = expected - shapes.keys()
    allowed = f"(?:{mapping.ignored})|(?:{mapping.unused})"
    others = shapes.keys() - expected - mapping.copies.keys()
    unexpected = {name for name in others if not re.fullmatch(allowed, name)}
    if missing or unexpected:
        raise InteropError(
            f"the tensors do not match the settings: missing {_join_names(missing)}; "
            f"unexpected {_join_names(unexpected)}"
        )


def _join_names(names: Iterable[str]) -> str:
    ordered = sorted(names)
    more = f" and {len(ordered) - _MAX_NAMES} more" if len(ordered) > _MAX_NAMES else ""
    return (", ".join(ordered[:_MAX_NAMES]) or "none") + more


def _check_shape(link: TensorLink, local_shape: Shape, shapes: Mapping[str, Shape]) -> None:
    """Raise InteropError if an external tensor has another shape than the settings imply."""
    expected, found = link.external_shape(local_shape), shapes[link.external]
    if found != expected or link.num_blocks * prod(local_shape) != prod(expected):
        raise InteropError(
            f"{link.external} has shape {found}, but the settings imply {expected}; "
            "use the settings and the weights of one model"
        )


def _check_copies(mapping: WeightMapping, tensors: CheckpointTensors) -> None:
    """Raise InteropError if tensors that the settings tie differ."""
    for name, original in mapping.copies.items():
        if name in tensors.shapes and original in tensors.shapes:
            is_same_shape = tensors.shapes[name] == tensors.shapes[original]
            if not is_same_shape or not torch.equal(tensors.get(name), tensors.get(original)):
                raise InteropError(f"{name} must be tied to {original} according to the settings, but has other values")
