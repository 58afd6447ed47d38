"""Attribution of outputs to inputs, measured on the log-probabilities of the outputs instead of attention weights.

Gradient x input is a first-order estimate of the decrease in an output's log-probability if an input embedding became
zero. Leave-one-out is the actual decrease if a word is removed from the text, or a patch of an image becomes grey.

T outputs, S source positions, I decoder inputs, U units (words or patches)
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from clearhead.errors import InspectionError
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.forced_pass import forced_pass, output_log_probs, require_outputs
from clearhead.inspection.trace.trace_input import TraceInput, read_input
from clearhead.inspection.trace.trace_types import Floats, TokenSpan, Trace
from clearhead.model.embedding import TokenEmbedding
from clearhead.model.vision.vision_transformer import PatchEmbedding
from clearhead.tasks.task import LoadedModel

CAUTION = "Attention shows which positions a head attended to; it is not an explanation of the model's output."
"""Displayed wherever attribution and attention are shown together."""


@dataclass(frozen=True, eq=False)
class GradientAttribution:
    """Gradient x input of each output's log-probability, summed over the dimensions of the embedding."""

    source_TS: Floats | None
    """Attribution to source positions; None for language models, which have decoder inputs only."""
    inputs_TI: Floats | None
    """Attribution to decoder inputs; None for models without a decoder."""


def gradient_times_input(model: LoadedModel, trace: Trace) -> GradientAttribution:
    """Return gradient x input of every output of a trace, for every source position and decoder input.

    Raises InspectionError for a model without output probabilities, or without embeddings of tokens or patches.
    """
    require_outputs(len(trace.outputs))
    network = share_weights(model.network)
    embeddings = _detach_embeddings(network)
    trace_input = read_input(model, trace.source_text)
    with torch.enable_grad():
        logits_TV = forced_pass(network, trace_input.src, trace.output_ids).logits_TV
        if not embeddings:
            raise InspectionError("gradient x input needs embeddings of tokens or patches; this network has none")
        log_probs_TV = logits_TV.double().log_softmax(-1)
        rows = [_scores(log_probs_TV[row, output.token], embeddings) for row, output in enumerate(trace.outputs)]
    attributions = [np.stack(embedding_rows) for embedding_rows in zip(*rows, strict=True)]  # one per embedding
    inputs_TI = attributions.pop() if trace.inputs else None
    source_TS = attributions.pop() if attributions else None
    num_positions = len(trace_input.positions)
    if source_TS is not None and source_TS.shape[1] < num_positions:  # the class token has no patch embedding
        source_TS = np.pad(source_TS, ((0, 0), (num_positions - source_TS.shape[1], 0)))
    return GradientAttribution(source_TS, inputs_TI)


def _detach_embeddings(network: nn.Module) -> list[Tensor]:
    """Make the embeddings of the network leaf tensors; return the list to which each forward pass appends them.

    The source embedding comes first, then that of the decoder inputs. Gradients stop at leaf tensors.
    """
    leaves: list[Tensor] = []

    def detach(_: nn.Module, args: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        leaves.append(embedded.detach().requires_grad_())
        return leaves[-1]

    for module in network.modules():
        if isinstance(module, TokenEmbedding):
            module.register_forward_hook(detach)
        elif isinstance(module, PatchEmbedding):
            module.projection.register_forward_hook(detach)
    return leaves


def _scores(log_prob: Tensor, embeddings: Sequence[Tensor]) -> list[Floats]:
    """Return gradient x input of one log-probability: for each embedding, one number per position."""
    gradients = torch.autograd.grad(log_prob, embeddings, retain_graph=True, allow_unused=True)
    return [
        np.zeros(embedding.shape[1], dtype=np.float32) if gradient is None
        else (gradient * embedding.detach())[0].sum(-1).numpy()
        for gradient, embedding in zip(gradients, embeddings, strict=True)
    ]  # fmt: skip


@dataclass(frozen=True, eq=False)
class LeaveOneOut:
    """Decrease in the log-probabilities of the outputs when one unit (word or patch) of the input is removed."""

    units: tuple[tuple[int, ...], ...]
    """The source positions of each unit."""
    texts: tuple[str, ...]
    """The word of each unit, or the row and column of the patch."""
    losses_UT: NDArray[np.float64]
    """Decrease for each unit and output; negative if the output is more probable without the unit. In models with one
    output per position, 0 for the outputs at removed positions."""


def leave_one_out(model: LoadedModel, trace: Trace) -> LeaveOneOut:
    """Return the decrease in log-probability without each word of the source, or each patch of the image."""
    trace_input = read_input(model, trace.source_text)
    num_positions = len(trace_input.positions)
    units = _units(trace_input.positions)
    if not units:
        raise InspectionError("leave-one-out needs words or patches; this network has none")
    outputs = trace.output_ids
    has_output_per_position = not trace.inputs and len(trace.outputs) == num_positions > 1
    old_log_probs_T = np.array(trace.token_log_probs[trace.prompt_length :])
    losses_UT = np.zeros((len(units), len(outputs)))
    for number, unit in enumerate(units):
        remaining = [position for position in range(num_positions) if position not in unit]
        compared = remaining if has_output_per_position else list(range(len(outputs)))
        with torch.inference_mode():
            src = _without_unit(model, trace_input, unit, remaining)
            new_log_probs = output_log_probs(model.network, src, [outputs[position] for position in compared])
        losses_UT[number, compared] = old_log_probs_T[compared] - new_log_probs.numpy()
    return LeaveOneOut(units, tuple(_unit_text(trace_input, unit) for unit in units), losses_UT)


def _units(positions: Sequence[TokenSpan]) -> tuple[tuple[int, ...], ...]:
    """Return the positions of each word; each patch is a separate unit."""
    groups: dict[int | tuple[int], list[int]] = {}
    for number, position in enumerate(positions):
        if position.token is None and not position.is_special:
            groups[(number,)] = [number]
        elif position.word >= 0:
            groups.setdefault(position.word, []).append(number)
    return tuple(tuple(group) for group in groups.values())


def _without_unit(model: LoadedModel, trace_input: TraceInput, unit: Sequence[int], remaining: Sequence[int]) -> Tensor:
    """Return the input without the word, or with the pixels of the patch set to 0, which is medium grey."""
    if trace_input.grid is None:
        return trace_input.src[:, list(remaining)]
    size, patch = model.config.model.patch_size, unit[0] - trace_input.grid.has_class_token
    row, column = divmod(patch, trace_input.grid.columns)
    src = trace_input.src.clone()
    src[:, :, row * size : (row + 1) * size, column * size : (column + 1) * size] = 0.0
    return src


def _unit_text(trace_input: TraceInput, unit: Sequence[int]) -> str:
    """Return the word, cut from the text, or the name of the patch."""
    positions = [trace_input.positions[number] for number in unit]
    starts = [position.start for position in positions if position.start is not None]
    ends = [position.end for position in positions if position.end is not None]
    return trace_input.text[min(starts) : max(ends)] if starts and ends else positions[0].text
