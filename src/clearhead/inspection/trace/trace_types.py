"""What was seen of one run: tokens, every attention, the residual stream, logits, candidates and the beam tree.

Layers and heads are counted from 0.

H heads, T queries, S keys, K head width, E head width of values, D model width, V vocabulary or labels
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from clearhead.decoding.observer import ROOT, Candidate
from clearhead.decoding.requests import Hypothesis
from clearhead.errors import InspectionError
from clearhead.inspection.trace.head_ref import Kind

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
DIGITS = 7  # behind the point, in JSON: float32 has no more for numbers up to 1
NO_WORD = -1


@dataclass(frozen=True)
class TokenSpan:
    """One token, one patch of a picture, or one answer."""

    text: str
    """The piece as people see it; `class` or `row,column` for patches; a label or a tag."""
    token: int | None = None
    """Its id; none for patches."""
    start: int | None = None
    """Where it stands in the text, in characters; none for what stands for no text."""
    end: int | None = None
    is_special: bool = False
    word: int = NO_WORD
    """Which word it belongs to, from 0."""


@dataclass(frozen=True)
class PatchGrid:
    """How the patches of a picture lie: row by row, behind a class token if there is one."""

    rows: int
    columns: int
    has_class_token: bool


@dataclass(frozen=True, eq=False)
class AttentionArithmetic:
    """What the weights of an attention were made of: softmax(q k^T * scale + bias), and what they mix."""

    q_HTK: Floats
    k_HSK: Floats
    v_HSE: Floats
    scale: float | None
    """None where the similarity is no scaled product."""
    bias_HTS: Floats | None


@dataclass(frozen=True, eq=False)
class TracedAttention:
    """One attention of one layer. Rows are queries: what looks; columns are keys: what is looked at."""

    kind: Kind
    layer: int
    weights_HTS: Floats
    allowed_TS: Bools
    """Where a weight may be more than 0: a masked place is not one that was looked at little."""
    arithmetic: AttentionArithmetic | None = None


@dataclass(frozen=True, eq=False)
class ResidualStream:
    """The residual stream after a sub-layer; before the first one, `layer` is -1."""

    name: str
    layer: int
    states_TD: Floats


@dataclass(frozen=True)
class TokenProb:
    """A token or label that could have come, and its log-probability."""

    token: int
    text: str
    log_prob: float


@dataclass(frozen=True)
class TreeNode:
    """A node of the beam tree: a candidate that search looked at, and the piece that it would write."""

    candidate: Candidate
    text: str

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "text": self.text,
            **{name: value for name, value in asdict(self.candidate).items() if name != "sentence"},
        }


@dataclass(frozen=True, eq=False)
class Trace:
    """One run of a model over one input, with everything that was computed on the way."""

    source_text: str
    """The text that was given, or the path of the picture."""
    target_text: str
    """What was written, or the label; of a model that writes on from a prompt, the prompt and what follows."""
    source: tuple[TokenSpan, ...]
    """What was read: keys of `encoder` and `cross`. Empty where the text is a prompt."""
    inputs: tuple[TokenSpan, ...]
    """What the decoder was given, from the start token on: keys of `decoder`, rows of `decoder` and `cross`."""
    outputs: tuple[TokenSpan, ...]
    """What followed each of the inputs; of a model that does not write, its answers."""
    num_given: int
    """How many of the outputs belong to the prompt."""
    grid: PatchGrid | None
    attention: tuple[TracedAttention, ...]
    streams: tuple[ResidualStream, ...]
    logits_TV: Floats
    """Before the softmax, one row for each of the outputs."""
    candidates: tuple[tuple[TokenProb, ...], ...]
    """The best for each of the outputs, best first."""
    token_log_probs: tuple[float, ...]
    """Of each of the outputs."""
    hypotheses: tuple[Hypothesis, ...] = ()
    """What search found, best first; empty where the target was given."""
    tree: tuple[TreeNode, ...] = ()
    """Everything that search looked at."""
    chosen: int | None = None
    """Which of the hypotheses this is."""

    @property
    def log_prob(self) -> float:
        """Of everything that was not given."""
        return sum(self.token_log_probs[self.num_given :])

    @property
    def output_ids(self) -> tuple[int, ...]:
        """The ids of what was not given: this run again is `tokens=trace.output_ids`."""
        return tuple(place.token for place in self.outputs[self.num_given :] if place.token is not None)

    @cached_property
    def kinds(self) -> tuple[Kind, ...]:
        """The kinds of attention that there are."""
        return tuple(dict.fromkeys(one.kind for one in self.attention))

    def layers(self, kind: Kind) -> list[TracedAttention]:
        """The attention of all layers of a kind, from the lowest up."""
        return [one for one in self.attention if one.kind == kind]

    def weights(self, kind: Kind, layer: int, head: int) -> Floats:
        """weights_TS of one head."""
        if kind not in self.kinds:
            there = ", ".join(self.kinds) or "no attention"
            raise InspectionError(f"expected a kind of attention that this model has ({there}), got {kind!r}")
        layers = self.layers(kind)
        if not 0 <= layer < len(layers):
            raise InspectionError(f"{kind} has {len(layers)} layers, counted from 0; there is no layer {layer}")
        num_heads = len(layers[layer].weights_HTS)
        if not 0 <= head < num_heads:
            raise InspectionError(
                f"{kind} layer {layer} has {num_heads} heads, counted from 0; there is no head {head}"
            )
        weights_TS: Floats = layers[layer].weights_HTS[head]
        return weights_TS

    def rows(self, kind: Kind) -> tuple[TokenSpan, ...]:
        """What looks."""
        return self.source if kind == "encoder" else self.inputs

    def columns(self, kind: Kind) -> tuple[TokenSpan, ...]:
        """What is looked at."""
        return self.inputs if kind == "decoder" else self.source

    def path(self, node: int) -> tuple[int, ...]:
        """The tokens from the root of the beam tree to a node: that hypothesis is `tokens=trace.path(node)`."""
        by_number = {one.candidate.node: one.candidate for one in self.tree}
        tokens: list[int] = []
        while node != ROOT:
            if node not in by_number:
                raise InspectionError(f"expected a node of the beam tree, got {node}; there are {len(by_number)} nodes")
            tokens.append(by_number[node].token)
            node = by_number[node].parent
        return tuple(reversed(tokens))

    def to_json(
        self,
        kinds: Sequence[str] | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        *,
        streams: bool = False,
        logits: bool = False,
    ) -> dict[str, Any]:
        """For programs; the attention of these kinds, layers and heads, or of all."""
        self._check_choice(kinds, layers, heads)
        chosen = [
            _attention_json(one, heads)
            for one in self.attention
            if (kinds is None or one.kind in kinds) and (layers is None or one.layer in layers)
        ]
        record: dict[str, Any] = {
            "source_text": self.source_text,
            "target_text": self.target_text,
            **{name: [asdict(place) for place in getattr(self, name)] for name in ("source", "inputs", "outputs")},
            "num_given": self.num_given,
            "grid": None if self.grid is None else asdict(self.grid),
            "log_prob": self.log_prob,
            "token_log_probs": list(self.token_log_probs),
            "candidates": [[asdict(option) for option in options] for options in self.candidates],
            "hypotheses": [asdict(one) for one in self.hypotheses],
            "chosen": self.chosen,
            "tree": [node.to_json() for node in self.tree],
            "attention": chosen,
        }
        if streams:
            record["streams"] = [
                {"name": one.name, "layer": one.layer, "states": one.states_TD.tolist()} for one in self.streams
            ]
        if logits:
            record["logits"] = self.logits_TV.tolist()
        return record

    def _check_choice(
        self, kinds: Sequence[str] | None, layers: Sequence[int] | None, heads: Sequence[int] | None
    ) -> None:
        """Refuses what no attention has: a choice is never ignored."""
        held: list[tuple[str, set[Any], Sequence[Any]]] = [
            ("kind", set(self.kinds), kinds or ()),
            ("layer", {one.layer for one in self.attention}, layers or ()),
            ("head", {head for one in self.attention for head in range(len(one.weights_HTS))}, heads or ()),
        ]
        for what, there, wanted in held:
            for each in wanted:
                if each not in there:
                    listed = ", ".join(map(str, sorted(there))) or "none"
                    raise InspectionError(f"there is no {what} {each} of attention in this model; there are {listed}")


def _attention_json(one: TracedAttention, heads: Sequence[int] | None) -> dict[str, Any]:
    picked = [head for head in range(len(one.weights_HTS)) if heads is None or head in heads]
    record: dict[str, Any] = {
        "kind": one.kind,
        "layer": one.layer,
        "heads": picked,
        "weights": _rounded(one.weights_HTS[picked]),
        "allowed": one.allowed_TS.tolist(),
    }
    if one.arithmetic is not None:
        made = one.arithmetic
        bias = None if made.bias_HTS is None else made.bias_HTS[picked]
        record |= {
            "queries": made.q_HTK[picked].tolist(),
            "keys": made.k_HSK[picked].tolist(),
            "values": made.v_HSE[picked].tolist(),
            "scale": made.scale,
            # minus infinity is no JSON: what is not allowed has no bias
            "bias": None if bias is None else np.where(one.allowed_TS, bias, 0.0).tolist(),
        }
    return record


def _rounded(weights_HTS: Floats) -> list[Any]:
    rounded: list[Any] = np.round(weights_HTS.astype(np.float64), DIGITS).tolist()
    return rounded
