"""Logit lens: the predictions that a model would make if it ended after a given layer.

The residual stream after the layer replaces the input of the final normalization, so that the model's own normalization
and output projection turn it into logits.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import InspectionError
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.forced_pass import forced_pass, require_outputs
from clearhead.inspection.trace.run_trace import output_names, rank_candidates
from clearhead.inspection.trace.sublayers import FEED_FORWARD, find_stacks
from clearhead.inspection.trace.trace_input import read_input
from clearhead.inspection.trace.trace_types import ResidualStream, TokenProb, Trace
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class LogitLens:
    """Predictions after one layer."""

    layer: int
    """-1 for the predictions from the embedding, before the first layer."""
    candidates: tuple[tuple[TokenProb, ...], ...]
    """The most probable tokens for each output, best first."""
    token_log_probs: tuple[float, ...]
    """Log-probability that this layer gives to each output of the trace."""


def logit_lens(model: LoadedModel, trace: Trace) -> list[LogitLens]:
    """Return the predictions from the embedding and after each layer; those after the last layer are the model's own.

    The layers are those of the decoder, or of the encoder if there is no decoder. Raises InspectionError for a network
    without Transformer layers.
    """
    require_outputs(len(trace.outputs))
    network = share_weights(model.network)
    stacks = find_stacks(network)
    if not stacks:
        raise InspectionError("the logit lens needs a stack of layers with a residual stream; this network has none")
    stack = next((stack for stack in stacks if stack.is_causal), stacks[-1])
    replacement: list[Tensor] = []
    stack.norm.register_forward_pre_hook(lambda _, args: (replacement[-1],))
    trace_input, side = read_input(model, trace.source_text), "decoder" if stack.is_causal else "encoder"
    outputs = [output.token for output in trace.outputs if output.token is not None]
    lenses = []
    for stream in trace.residual_streams:
        if _ends_layer(stream, side):
            replacement.append(torch.from_numpy(stream.states_TD)[None])
            with torch.inference_mode():
                logits_TV = forced_pass(network, trace_input.src, trace.output_ids).logits_TV
            lenses.append(LogitLens(stream.layer, *rank_candidates(logits_TV, outputs, output_names(model))))
    return lenses


def _ends_layer(stream: ResidualStream, side: str) -> bool:
    """Return whether a residual stream precedes the first layer, or follows the last sub-layer of a layer."""
    return stream.name == (side if stream.layer < 0 else f"{side}_{FEED_FORWARD}")
