"""Ablation of heads and sub-layers, and its effect on the model's output.

The output of an ablated head becomes zero (`zero`), or its mean over several texts (`mean`). Mean ablation removes only
the part of the output that depends on the input.

T output positions, E width of a head or sub-layer
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearhead.config import DecodingConfig
from clearhead.errors import InspectionError
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.forced_pass import forced_pass, output_log_probs
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.inspection.trace.run_trace import run_trace
from clearhead.inspection.trace.sublayers import OutputTransform, find_heads, find_sublayer, transform_output
from clearhead.inspection.trace.trace_input import read_input
from clearhead.inspection.trace.trace_types import Trace
from clearhead.tasks.task import LoadedModel

AblationMethod = Literal["zero", "mean"]


def parse_head_refs(network: nn.Module, names: Iterable[HeadRef | str]) -> list[HeadRef]:
    """Return the references without duplicates.

    Raises InspectionError if there are none, or if the network does not have one of the heads or sub-layers.
    """
    head_refs = list(dict.fromkeys(HeadRef.parse(name) if isinstance(name, str) else name for name in names))
    if not head_refs:
        raise InspectionError("expected heads or sub-layers to ablate, such as cross.1.0, got none")
    for head_ref in head_refs:
        find_sublayer(network, head_ref)
    return head_refs


def ablate(
    network: nn.Module, head_refs: Sequence[HeadRef], means: Mapping[HeadRef, Tensor] | None = None
) -> nn.Module:
    """Return a network that shares the weights, in which the output of these heads is zero, or their mean output."""
    ablated = share_weights(network)
    for head_ref in head_refs:
        transform_output(ablated, head_ref, torch.zeros_like if means is None else _constant(means[head_ref]))
    return ablated


def _constant(mean_E: Tensor) -> OutputTransform:
    """Return a transform that replaces the output at every position by the mean."""
    return lambda output: mean_E.expand_as(output)


def mean_outputs(
    model: LoadedModel, head_refs: Sequence[HeadRef], texts: Sequence[str], settings: DecodingConfig
) -> dict[HeadRef, Tensor]:
    """Return the mean output of each head over all positions of these texts (or images) and their outputs."""
    if not texts:
        raise InspectionError('expected texts to average over, got none; pass texts, or use method="zero"')
    network = share_weights(model.network)
    collected: dict[HeadRef, list[Tensor]] = {head_ref: [] for head_ref in head_refs}
    for head_ref in head_refs:
        transform_output(network, head_ref, _collector(collected[head_ref]))
    for text in texts:
        trace_input = read_input(model, text)
        outputs = run_trace(model, trace_input, None, settings).output_ids
        with torch.no_grad():
            forced_pass(network, trace_input.src, outputs)
    return {head_ref: torch.cat(values).mean(0) for head_ref, values in collected.items()}


def _collector(values: list[Tensor]) -> OutputTransform:
    """Return a transform that appends the output to `values`, one row per position, and leaves it unchanged."""

    def collect(output: Tensor) -> Tensor:
        values.append(output.flatten(0, -2))
        return output

    return collect


@dataclass(frozen=True)
class AblationEffect:
    """Effect of an ablation: the ablated model's output, and the change in the probability of the original output."""

    before: Trace
    """Trace of the complete model."""
    after: Trace
    """Trace of the ablated model, which searches for its own output for the same input."""
    token_log_prob_changes: tuple[float, ...]
    """Change in the log-probability of each token or label of the original output; negative: it is less probable."""

    @property
    def log_prob_change(self) -> float:
        """Change in the log-probability of the complete original output."""
        return sum(self.token_log_prob_changes)

    def to_json(self) -> dict[str, Any]:
        """Return the effect as a JSON object."""
        return {
            "before": self.before.target_text,
            "after": self.after.target_text,
            "log_prob_change": self.log_prob_change,
            "token_log_prob_changes": list(self.token_log_prob_changes),
        }


def ablation_effect(
    model: LoadedModel, ablated: LoadedModel, before: Trace, settings: DecodingConfig
) -> AblationEffect:
    """Return the effect of an ablation on the output of `before`, a trace of the complete model."""
    trace_input = read_input(model, before.source_text)
    with torch.inference_mode():
        new_log_probs = output_log_probs(ablated.network, trace_input.src, before.output_ids).tolist()
    after = run_trace(ablated, trace_input, None, settings)
    old_log_probs = before.token_log_probs[before.prompt_length :]
    changes = tuple(new - old for new, old in zip(new_log_probs, old_log_probs, strict=True))
    return AblationEffect(before, after, changes)


def head_effects(model: LoadedModel, before: Trace) -> dict[HeadRef, float]:
    """Return the change in the log-probability of the output of `before` when a head is ablated, for each head."""
    trace_input = read_input(model, before.source_text)
    effects = {}
    with torch.inference_mode():
        for head_ref in find_heads(model.network):
            ablated = ablate(model.network, [head_ref])
            log_probs_T = output_log_probs(ablated, trace_input.src, before.output_ids)
            effects[head_ref] = float(log_probs_T.sum()) - before.log_prob
    return effects
