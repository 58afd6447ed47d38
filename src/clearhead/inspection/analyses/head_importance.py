"""Which heads a model needs, over a corpus: Are Sixteen Heads Really Better than One? (Michel et al. 2019).

`gradient`: the expected |d loss / d gate| of a gate on the head's output (section 4.1 there), all heads in one pass.
`ablation`: the log-probability that is lost when the head is off, a pass for every head: slower, and exact.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from clearhead.config import DecodingConfig
from clearhead.errors import InspectionError
from clearhead.inspection.analyses.ablation import ablate
from clearhead.inspection.trace import run_trace
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.inspection.trace.run_trace import TraceInput
from clearhead.inspection.trace.sublayers import heads, tap
from clearhead.tasks.task import LoadedModel

Method = Literal["gradient", "ablation"]


@dataclass(frozen=True)
class HeadImportance:
    """How much one head matters, a token in the mean."""

    part: HeadRef
    value: float


def head_importance(
    model: LoadedModel,
    corpus: Sequence[tuple[str, str | None]],
    settings: DecodingConfig,
    method: Method = "gradient",
) -> list[HeadImportance]:
    """Every head, the most important first; a corpus is texts with their targets, or None for the model's own."""
    if method not in ("gradient", "ablation"):
        raise InspectionError(f'expected method="gradient" or "ablation", got {method!r}')
    parts = heads(model.network)
    if not corpus or not parts:
        missing = "corpus" if parts else "head"
        raise InspectionError(f"the importance of heads needs a corpus and a network with heads; there is no {missing}")
    inputs = []
    for text, target in corpus:
        given = run_trace.trace_input(model, text)
        inputs.append((given, run_trace.trace(model, given, target, settings).output_ids))
    measure = _by_gradient if method == "gradient" else _by_ablation
    num_tokens = sum(len(outputs) for _, outputs in inputs)
    values = measure(model, parts, inputs) / num_tokens
    found = [HeadImportance(part, value) for part, value in zip(parts, values.tolist(), strict=True)]
    return sorted(found, key=lambda one: -one.value)


Inputs = Sequence[tuple[TraceInput, tuple[int, ...]]]


def _by_gradient(model: LoadedModel, parts: Sequence[HeadRef], inputs: Inputs) -> Tensor:
    network, gates = share_weights(model.network), torch.ones(len(parts), requires_grad=True)
    for number, part in enumerate(parts):
        tap(network, part, lambda y, number=number: y * gates[number])  # type: ignore[misc]
    total = torch.zeros(len(parts), dtype=torch.float64)
    with torch.enable_grad():
        for given, outputs in inputs:
            loss = -run_trace.log_probs_of(network, given.src, outputs).sum()
            total += torch.autograd.grad(loss, gates)[0].abs()
    return total


def _by_ablation(model: LoadedModel, parts: Sequence[HeadRef], inputs: Inputs) -> Tensor:
    lost = []
    with torch.inference_mode():
        whole = sum(float(run_trace.log_probs_of(model.network, given.src, outputs).sum()) for given, outputs in inputs)
        for part in parts:
            off = ablate(model.network, [part])
            left = sum(float(run_trace.log_probs_of(off, given.src, outputs).sum()) for given, outputs in inputs)
            lost.append(whole - left)
    return torch.tensor(lost, dtype=torch.float64)
