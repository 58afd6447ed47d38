"""Inputs of traces: a text or an image as an input tensor, with the token or patch at each position.

S source positions, C image channels, Y and X pixels
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from clearhead.decoding.generator import Sources
from clearhead.errors import DataError
from clearhead.inspection.trace.token_spans import source_token_spans
from clearhead.inspection.trace.trace_types import PatchGrid, TokenSpan
from clearhead.model.vision.vision_transformer import PatchEmbedding, patches_per_side
from clearhead.tasks.image_classification.inference import read_images, scale_pixels
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import LoadedModel
from clearhead.tasks.text_codec import max_input_tokens


@dataclass(frozen=True)
class TraceInput:
    """One input of a network."""

    text: str
    """The text, or the path of the image."""
    src: Tensor  # src_1S or images_1CYX
    positions: tuple[TokenSpan, ...]
    grid: PatchGrid | None = None

    @property
    def sources(self) -> Sources:
        """The input in the format of the search: an array of pixels, or lists of token ids."""
        return self.src.numpy() if self.src.is_floating_point() else self.src.tolist()

    @property
    def length(self) -> int:
        """Input length that `decoding.max_length` refers to: the number of tokens or patches without special ones."""
        return sum(not position.is_special for position in self.positions)


def read_input(model: LoadedModel, source: str | Path) -> TraceInput:
    """Return the input for a text, or for the path of an image if the model reads images."""
    return image_input(model, Path(source)) if model.config.model.reads_images else text_input(model, str(source))


def text_input(model: LoadedModel, text: str) -> TraceInput:
    """Return the input for a text; raise DataError if it is empty or too long."""
    task = get_task(model.config.task)
    [text_ids] = task.codec.encode(model.tokenizer, [text])
    if not text_ids:
        raise DataError("expected a text to inspect, got an empty one; enter a sentence")
    ids = task.codec.add_special_tokens(model.tokenizer, text_ids)
    limit = max_input_tokens(model.config)
    if len(ids) > limit:
        num_special = len(ids) - len(text_ids)
        raise DataError(f"the text has {len(text_ids):,} tokens, the model accepts {limit - num_special:,}; shorten it")
    return TraceInput(text, torch.tensor([ids]), source_token_spans(model.tokenizer, text, ids))


def image_input(model: LoadedModel, path: Path) -> TraceInput:
    """Return the input for an image file."""
    positions, grid = _patch_positions(model.network)
    return TraceInput(
        str(path), torch.from_numpy(scale_pixels(read_images(model.config.model, [path]))), positions, grid
    )


def _patch_positions(network: nn.Module) -> tuple[tuple[TokenSpan, ...], PatchGrid | None]:
    """Return the positions of the patches and their grid; no positions and None for networks without patches."""
    for module in network.modules():
        if isinstance(module, PatchEmbedding):
            side, has_class_token = patches_per_side(module.config), module.class_token is not None
            patches = [TokenSpan(f"{row},{column}") for row in range(side) for column in range(side)]
            class_token = [TokenSpan("class", is_special=True)] * has_class_token
            return (*class_token, *patches), PatchGrid(side, side, has_class_token)
    return (), None
