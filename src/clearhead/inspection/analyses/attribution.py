"""Which part of the input an output hangs on, asked of the model and not of its attention.

Gradient x input: how much the log-probability of an output would change, by first order, if an embedding went to zero.
Leaving out: how much it does change when a word, or a patch of a picture, is not there.

T outputs, S source places, I inputs of the decoder, U units (words or patches), D model width
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.errors import InspectionError
from clearhead.inspection.trace import run_trace
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.run_trace import TraceInput
from clearhead.inspection.trace.trace_types import Floats, TokenSpan, Trace
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.vision.vision_transformer import PatchEmbedding
from clearhead.tasks.task import LoadedModel

CAUTION = "Attention says where a head looked; by itself it does not explain why the model wrote what it wrote."
"""To be shown wherever attribution stands beside attention."""


@dataclass(frozen=True, eq=False)
class GradientAttribution:
    """Gradient x input of the log-probability of each output, summed over the embedding's width."""

    source_TS: Floats | None
    """None where the text is a prompt."""
    inputs_TI: Floats | None
    """None where nothing is written."""


def gradient_times_input(model: LoadedModel, seen: Trace) -> GradientAttribution:
    """Of every output of a trace, with respect to every place that was read or given."""
    run_trace.need_answers(len(seen.outputs))
    network = share_weights(model.network)
    leaves = _cut_at_embeddings(network)
    given = run_trace.trace_input(model, seen.source_text)
    with torch.enable_grad():
        ran = run_trace.run(network, given.src, seen.output_ids)
        if not leaves:
            raise InspectionError("gradient x input needs embeddings of pieces or patches; this network has none")
        log_probs_TV = ran.logits_TV.double().log_softmax(-1)
        scores = [_scores(log_probs_TV[row, place.token], leaves) for row, place in enumerate(seen.outputs)]
    each = [np.stack(rows) for rows in zip(*scores, strict=True)]
    inputs_TI = each.pop() if seen.inputs else None
    source_TS = each.pop() if each else None
    if source_TS is not None and source_TS.shape[1] < len(given.places):  # the class token is no part of the picture
        source_TS = np.pad(source_TS, ((0, 0), (len(given.places) - source_TS.shape[1], 0)))
    return GradientAttribution(source_TS, inputs_TI)


def _cut_at_embeddings(network: nn.Module) -> list[Tensor]:
    """What embeddings give from now on, in the order in which they are asked: of the source, then of the inputs."""
    leaves: list[Tensor] = []

    def cut(_: nn.Module, args: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        leaves.append(embedded.detach().requires_grad_())
        return leaves[-1]

    for module in network.modules():
        if isinstance(module, TokenEmbedding):
            module.register_forward_hook(cut)
        elif isinstance(module, PatchEmbedding):
            module.projection.register_forward_hook(cut)
    return leaves


def _scores(log_prob: Tensor, leaves: Sequence[Tensor]) -> list[Floats]:
    gradients = torch.autograd.grad(log_prob, leaves, retain_graph=True, allow_unused=True)
    return [
        np.zeros(leaf.shape[1], dtype=np.float32) if gradient is None
        else (gradient * leaf.detach())[0].sum(-1).numpy()
        for gradient, leaf in zip(gradients, leaves, strict=True)
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """What every unit of the input was good for."""

    units: tuple[tuple[int, ...], ...]
    """The source places of each unit."""
    texts: tuple[str, ...]
    losses_UT: NDArray[np.float64]
    """How much log-probability each output loses without the unit; below 0 where it gains. Of a model that answers at
    every place, 0 at the places that are left out."""


def leave_one_out(model: LoadedModel, seen: Trace) -> LeaveOneOut:
    """Every word of the source, or patch of the picture, in turn."""
    given = run_trace.trace_input(model, seen.source_text)
    units = _units(given.places)
    if not units:
        raise InspectionError("leaving out needs words or patches; this network has none")
    outputs = seen.output_ids
    answers_places = not seen.inputs and len(seen.outputs) == len(given.places) > 1
    old_T = np.array(seen.token_log_probs[seen.num_given :])
    losses_UT = np.zeros((len(units), len(outputs)))
    for number, unit in enumerate(units):
        stays = [place for place in range(len(given.places)) if place not in unit]
        kept = stays if answers_places else list(range(len(outputs)))
        with torch.inference_mode():
            src, asked = _without(model, given, unit, stays), [outputs[place] for place in kept]
            losses_UT[number, kept] = old_T[kept] - run_trace.log_probs_of(model.network, src, asked).numpy()
    return LeaveOneOut(units, tuple(_text(given, unit) for unit in units), losses_UT)


def _units(places: Sequence[TokenSpan]) -> tuple[tuple[int, ...], ...]:
    """Pieces of one word together; every patch by itself."""
    groups: dict[int | tuple[int], list[int]] = {}
    for number, place in enumerate(places):
        if place.token is None and not place.is_special:
            groups[(number,)] = [number]
        elif place.word >= 0:
            groups.setdefault(place.word, []).append(number)
    return tuple(tuple(group) for group in groups.values())


def _without(model: LoadedModel, given: TraceInput, unit: Sequence[int], stays: Sequence[int]) -> Tensor:
    """The input without a word; a patch becomes grey, for a picture has no gaps."""
    if given.grid is None:
        return given.src[:, list(stays)]
    size, patch = model.config.model.patch_size, unit[0] - given.grid.has_class_token
    row, column = divmod(patch, given.grid.columns)
    src = given.src.clone()
    src[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size] = 0.0
    return src


def _text(given: TraceInput, unit: Sequence[int]) -> str:
    places = [given.places[number] for number in unit]
    starts = [place.start for place in places if place.start is not None]
    ends = [place.end for place in places if place.end is not None]
    return given.text[min(starts) : max(ends)] if starts and ends else places[0].text
