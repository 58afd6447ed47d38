"""Ablation: parts of a network switched off, and what changes then.

A part that is off gives nothing (`zero`), or always the same, its mean over some texts (`mean`): then what is lost is
only what it says about this text.

E width of what a part gives
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from clearhead.config import DecodingConfig
from clearhead.errors import InspectionError
from clearhead.inspection.trace import run_trace
from clearhead.inspection.trace.activation_recorder import share_weights
from clearhead.inspection.trace.head_ref import HeadRef
from clearhead.inspection.trace.sublayers import Change, find, heads, tap
from clearhead.inspection.trace.trace_types import Trace
from clearhead.tasks.task import LoadedModel

By = Literal["zero", "mean"]


def heads_and_sublayers(network: nn.Module, named: Iterable[HeadRef | str]) -> list[HeadRef]:
    """Parts, some of them written as `cross.1.0`, each once; refuses what the network has not, and nothing at all."""
    parts = list(dict.fromkeys(HeadRef.parse(one) if isinstance(one, str) else one for one in named))
    if not parts:
        raise InspectionError("expected heads or sub-layers to switch off, such as cross.1.0, got none")
    for part in parts:
        find(network, part)
    return parts


def ablate(network: nn.Module, parts: Sequence[HeadRef], means: Mapping[HeadRef, Tensor] | None = None) -> nn.Module:
    """A network with the same weights in which these parts give nothing, or their means."""
    off = share_weights(network)
    for part in parts:
        tap(off, part, torch.zeros_like if means is None else _always(means[part]))
    return off


def _always(mean_E: Tensor) -> Change:
    """The same everywhere."""
    return lambda y: mean_E.expand_as(y)


def mean_outputs(
    model: LoadedModel, parts: Sequence[HeadRef], texts: Sequence[str], settings: DecodingConfig
) -> dict[HeadRef, Tensor]:
    """What each part gives in the mean, over all places of these texts (or pictures) and of the model's outputs."""
    if not texts:
        raise InspectionError("expected texts to take the mean over, got none; give some, or use by='zero'")
    watched = share_weights(model.network)
    kept: dict[HeadRef, list[Tensor]] = {part: [] for part in parts}
    for part in parts:
        tap(watched, part, _keeping(kept[part]))
    for text in texts:
        given = run_trace.trace_input(model, text)
        outputs = run_trace.trace(model, given, None, settings).output_ids
        with torch.no_grad():
            run_trace.run(watched, given.src, outputs)
    return {part: torch.cat(values).mean(0) for part, values in kept.items()}


def _keeping(values: list[Tensor]) -> Change:
    """Changes nothing, but keeps what goes by, a row a place."""

    def keep(y: Tensor) -> Tensor:
        values.append(y.flatten(0, -2))
        return y

    return keep


@dataclass(frozen=True)
class AblationEffect:
    """What changes when parts are off: the new output, and how probable the old one still is."""

    before: Trace
    after: Trace
    """What the model makes of the input with the parts off."""
    token_changes: tuple[float, ...]
    """In the log-probability of each token, or answer, of the old output; below 0: less probable without the parts."""

    @property
    def change(self) -> float:
        """In the log-probability of the old output."""
        return sum(self.token_changes)

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "before": self.before.target_text,
            "after": self.after.target_text,
            "change": self.change,
            "token_changes": list(self.token_changes),
        }


def ablation_effect(model: LoadedModel, off: LoadedModel, before: Trace, settings: DecodingConfig) -> AblationEffect:
    """What the model with parts off does with the input of a trace of the whole model."""
    given = run_trace.trace_input(model, before.source_text)
    with torch.inference_mode():
        still = run_trace.log_probs_of(off.network, given.src, before.output_ids).tolist()
    after = run_trace.trace(off, given, None, settings)
    old = before.token_log_probs[before.num_given :]
    return AblationEffect(before, after, tuple(new - was for new, was in zip(still, old, strict=True)))


def head_effects(model: LoadedModel, before: Trace) -> dict[HeadRef, float]:
    """How the log-probability of what was written changes when each head is off, one at a time."""
    given = run_trace.trace_input(model, before.source_text)
    found = {}
    with torch.inference_mode():
        for part in heads(model.network):
            off = ablate(model.network, [part])
            still = run_trace.log_probs_of(off, given.src, before.output_ids)
            found[part] = float(still.sum()) - before.log_prob
    return found
