"""The logit lens: what a model would answer if it stopped after a layer.

The stream after a layer goes through the model's own last norm, output projection and whatever else it does there: it
is put in where the last layer's comes out.

T places, D model width
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from clearhead.errors import InspectionError
from clearhead.inspection.trace import run_trace
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.sublayers import FEED_FORWARD, stacks
from clearhead.inspection.trace.trace_types import ResidualStream, TokenProb, Trace
from clearhead.tasks.task import LoadedModel


@dataclass(frozen=True)
class LogitLens:
    """What stands at the top after one layer; after the embedding, `layer` is -1."""

    layer: int
    candidates: tuple[tuple[TokenProb, ...], ...]
    """The best for each of the outputs, best first."""
    token_log_probs: tuple[float, ...]
    """Of what came out at last."""


def logit_lens(model: LoadedModel, seen: Trace) -> list[LogitLens]:
    """After the embedding and after each layer of the stack that answers; the last is what the model did."""
    run_trace.need_answers(len(seen.outputs))
    network = share_weights(model.network)
    all_stacks = stacks(network)
    if not all_stacks:
        raise InspectionError("the logit lens needs a stack of layers with a residual stream; this network has none")
    stack = next((one for one in all_stacks if one.is_causal), all_stacks[-1])
    instead: list[Tensor] = []
    stack.norm.register_forward_pre_hook(lambda _, args: (instead[-1],))
    given, side = run_trace.trace_input(model, seen.source_text), "decoder" if stack.is_causal else "encoder"
    chosen = [place.token for place in seen.outputs if place.token is not None]
    found = []
    for stream in seen.streams:
        if _ends_a_layer(stream, side):
            instead.append(torch.from_numpy(stream.states_TD)[None])
            with torch.inference_mode():
                logits_TV = run_trace.run(network, given.src, seen.output_ids).logits_TV
            candidates, log_probs = run_trace.best(logits_TV, chosen, run_trace.names(model))
            found.append(LogitLens(stream.layer, candidates, log_probs))
    return found


def _ends_a_layer(stream: ResidualStream, side: str) -> bool:
    """The stream before the first layer, or after the last sub-layer of one."""
    return stream.name == (side if stream.layer < 0 else f"{side}_{FEED_FORWARD}")
