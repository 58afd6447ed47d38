"""Importance of heads over a corpus, after "Are Sixteen Heads Really Better than One?" (Michel et al. 2019).

`gradient`: |d loss / d gate| for a gate that multiplies the head's output (their section 4.1); it needs one backward
pass per text for all heads.
`ablation`: the decrease in log-probability when the head is ablated; it is exact, but needs one forward pass per head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.errors import InspectionError
from clearhead.inspection.analyses.ablation import ablate
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.forced_pass import output_log_probs
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.inspection.trace.run_trace import run_trace
from clearhead.inspection.trace.sublayers import find_heads, transform_output
from clearhead.inspection.trace.trace_input import TraceInput, read_input
from clearhead.tasks.task import LoadedModel

ImportanceMethod = Literal["gradient", "ablation"]
ForcedOutputs = Sequence[tuple[TraceInput, tuple[int, ...]]]


@dataclass(frozen=True)
class HeadImportance:
    """Importance of one head, as the mean per output token."""

    head_ref: HeadRef
    value: float


def head_importance(
    model: LoadedModel,
    corpus: Sequence[tuple[str, str | None]],
    settings: DecodingConfig,
    method: ImportanceMethod = "gradient",
) -> list[HeadImportance]:
    """Return the importance of every head, most important first.

    The corpus consists of pairs of a text and a target; for a target of None, the model's own output is used. Raises
    InspectionError for an empty corpus, a network without heads or an unknown method.
    """
    if method not in ("gradient", "ablation"):
        raise InspectionError(f'expected method="gradient" or "ablation", got {method!r}')
    head_refs = find_heads(model.network)
    if not corpus or not head_refs:
        missing = "corpus" if head_refs else "head"
        raise InspectionError(f"the importance of heads needs a corpus and a network with heads; got no {missing}")
    examples = []
    for text, target in corpus:
        trace_input = read_input(model, text)
        examples.append((trace_input, run_trace(model, trace_input, target, settings).output_ids))
    measure = _by_gradient if method == "gradient" else _by_ablation
    num_tokens = sum(len(outputs) for _, outputs in examples)
    values = measure(model, head_refs, examples) / num_tokens
    importances = [HeadImportance(head_ref, value) for head_ref, value in zip(head_refs, values.tolist(), strict=True)]
    return sorted(importances, key=lambda importance: -importance.value)


def _by_gradient(model: LoadedModel, head_refs: Sequence[HeadRef], examples: ForcedOutputs) -> Tensor:
    """Return |d loss / d gate| of each head, summed over the examples."""
    network, gates = share_weights(model.network), torch.ones(len(head_refs), requires_grad=True)
    for number, head_ref in enumerate(head_refs):
        transform_output(network, head_ref, lambda output, number=number: output * gates[number])  # type: ignore[misc]
    total = torch.zeros(len(head_refs), dtype=torch.float64)
    with torch.enable_grad():
        for trace_input, outputs in examples:
            loss = -output_log_probs(network, trace_input.src, outputs).sum()
            total += torch.autograd.grad(loss, gates)[0].abs()
    return total


def _by_ablation(model: LoadedModel, head_refs: Sequence[HeadRef], examples: ForcedOutputs) -> Tensor:
    """Return the decrease in the total log-probability of the examples when each head is ablated."""

    def total_log_prob(network: torch.nn.Module) -> float:
        return sum(
            float(output_log_probs(network, trace_input.src, outputs).sum()) for trace_input, outputs in examples
        )

    with torch.inference_mode():
        complete = total_log_prob(model.network)
        losses = [complete - total_log_prob(ablate(model.network, [head_ref])) for head_ref in head_refs]
    return torch.tensor(losses, dtype=torch.float64)
