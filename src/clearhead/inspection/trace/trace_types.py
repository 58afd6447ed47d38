"""Data types of a trace: tokens, attention, residual streams, logits, candidates and the beam tree.

Layers and heads are counted from 0. The module does not import torch.

H heads, T query positions, S key positions, K head width of queries and keys, E head width of values, D model width,
V vocabulary or labels
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
from clearhead.inspection.trace.head_ref import AttentionKind

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]
JSON_DECIMALS = 7  # float32 weights up to 1 have about 7 significant digits
NO_WORD = -1  # word index of special tokens and patches


@dataclass(frozen=True)
class TokenSpan:
    """One position: a token, an image patch, or a predicted label."""

    text: str
    """The token, the label or tag, or for patches `class` or `row,column`."""
    token: int | None = None
    """Id of the token or label; None for patches."""
    start: int | None = None
    """Index of the first character in the text; None for special tokens, labels and patches."""
    end: int | None = None
    """Index after the last character in the text; None in the same cases."""
    is_special: bool = False
    word: int = NO_WORD
    """Index of the word that contains the token."""


@dataclass(frozen=True)
class PatchGrid:
    """Layout of the patches of an image: row by row, after the class token if there is one."""

    rows: int
    columns: int
    has_class_token: bool


@dataclass(frozen=True, eq=False)
class AttentionArithmetic:
    """Inputs of one attention: its weights are softmax(q k^T * scale + bias), its output is the weights times v."""

    q_HTK: Floats
    k_HSK: Floats
    v_HSE: Floats
    scale: float | None
    """None if the scores are not scaled dot products."""
    bias_HTS: Floats | None
    """Relative position bias; None for other position encodings."""


@dataclass(frozen=True, eq=False)
class TracedAttention:
    """The attention weights of one layer. Rows are queries, columns are keys."""

    kind: AttentionKind
    layer: int
    weights_HTS: Floats
    allowed_TS: Bools
    """True where a query may attend to a key; masked weights are exactly 0."""
    arithmetic: AttentionArithmetic | None = None


@dataclass(frozen=True, eq=False)
class ResidualStream:
    """The residual stream after one sub-layer, or before the first sub-layer of a stack."""

    name: str
    """Name of the sub-layer; before the first sub-layer, `encoder` or `decoder`."""
    layer: int
    """Layer of the sub-layer; -1 before the first sub-layer."""
    states_TD: Floats


@dataclass(frozen=True)
class TokenProb:
    """A possible token or label and its log-probability."""

    token: int
    text: str
    log_prob: float


@dataclass(frozen=True)
class TreeNode:
    """A node of the beam tree: a candidate of the search with the text of its token."""

    candidate: Candidate
    text: str

    def to_json(self) -> dict[str, Any]:
        """Return the node as a JSON object."""
        candidate = asdict(self.candidate)
        del candidate["sentence"]  # index in the batch: always 0, because a trace has one input
        return {"text": self.text, **candidate}


@dataclass(frozen=True, eq=False)
class Trace:
    """The intermediate results of one run of a model on one input."""

    source_text: str
    """The input text, or the path of the input image."""
    target_text: str
    """The output text or label; of a language model, the prompt and its continuation."""
    source: tuple[TokenSpan, ...]
    """Positions of the encoder: queries of `encoder`, keys of `encoder` and `cross`. Empty for language models."""
    inputs: tuple[TokenSpan, ...]
    """Inputs of the decoder, beginning with the start token: queries of `decoder` and `cross`, keys of `decoder`."""
    outputs: tuple[TokenSpan, ...]
    """The token that follows each decoder input; for models without a decoder, the predicted or forced labels."""
    prompt_length: int
    """Number of outputs that are prompt tokens, not generated ones."""
    grid: PatchGrid | None
    """Layout of the source positions of an image; None for texts."""
    attention: tuple[TracedAttention, ...]
    residual_streams: tuple[ResidualStream, ...]
    logits_TV: Floats
    """Scores before the softmax, one row per output."""
    candidates: tuple[tuple[TokenProb, ...], ...]
    """The most probable tokens for each output, best first."""
    token_log_probs: tuple[float, ...]
    """Log-probability of each output."""
    hypotheses: tuple[Hypothesis, ...] = ()
    """Results of the search, best first; empty if the output was forced."""
    tree: tuple[TreeNode, ...] = ()
    """Every candidate of the search; empty if the output was forced."""
    hypothesis_index: int | None = None
    """Index of the traced hypothesis; None if the output was forced."""

    @property
    def log_prob(self) -> float:
        """Sum of the log-probabilities of the outputs after the prompt."""
        return sum(self.token_log_probs[self.prompt_length :])

    @property
    def output_ids(self) -> tuple[int, ...]:
        """Ids of the outputs after the prompt; `model.trace(text, tokens=trace.output_ids)` reproduces this trace."""
        return tuple(span.token for span in self.outputs[self.prompt_length :] if span.token is not None)

    @cached_property
    def kinds(self) -> tuple[AttentionKind, ...]:
        """The kinds of attention that the model has."""
        return tuple(dict.fromkeys(attention.kind for attention in self.attention))

    def layers(self, kind: AttentionKind) -> list[TracedAttention]:
        """Return the attention of all layers of one kind, lowest layer first."""
        return [attention for attention in self.attention if attention.kind == kind]

    def weights(self, kind: AttentionKind, layer: int, head: int) -> Floats:
        """Return weights_TS of one head; raise InspectionError if there is no such head."""
        if kind not in self.kinds:
            available = ", ".join(self.kinds) or "no attention"
            raise InspectionError(f"expected a kind of attention that this model has ({available}), got {kind!r}")
        layers = self.layers(kind)
        if not 0 <= layer < len(layers):
            raise InspectionError(f"expected a layer of {kind} from 0 to {len(layers) - 1}, got {layer}")
        num_heads = len(layers[layer].weights_HTS)
        if not 0 <= head < num_heads:
            raise InspectionError(f"expected a head of {kind} layer {layer} from 0 to {num_heads - 1}, got {head}")
        weights_TS: Floats = layers[layer].weights_HTS[head]
        return weights_TS

    def query_positions(self, kind: AttentionKind) -> tuple[TokenSpan, ...]:
        """Return the positions of the rows of attention weights."""
        return self.source if kind == "encoder" else self.inputs

    def key_positions(self, kind: AttentionKind) -> tuple[TokenSpan, ...]:
        """Return the positions of the columns of attention weights."""
        return self.inputs if kind == "decoder" else self.source

    def path(self, node: int) -> tuple[int, ...]:
        """Return the tokens from the root of the beam tree to a node; `tokens=trace.path(node)` traces this path.

        Raises InspectionError if the tree has no such node.
        """
        candidates = {tree_node.candidate.node: tree_node.candidate for tree_node in self.tree}
        tokens: list[int] = []
        while node != ROOT:
            if node not in candidates:
                raise InspectionError(
                    f"expected a node of the beam tree, got {node}; the tree has {len(candidates)} nodes"
                )
            tokens.append(candidates[node].token)
            node = candidates[node].parent
        return tuple(reversed(tokens))

    def to_json(
        self,
        kinds: Sequence[str] | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        *,
        residual_streams: bool = False,
        logits: bool = False,
    ) -> dict[str, Any]:
        """Return the trace as a JSON object, with the attention of these kinds, layers and heads (default: all).

        Raises InspectionError for a kind, layer or head that the trace does not have.
        """
        self._check_selection(kinds, layers, heads)
        record: dict[str, Any] = {
            "source_text": self.source_text,
            "target_text": self.target_text,
            **{name: [asdict(span) for span in getattr(self, name)] for name in ("source", "inputs", "outputs")},
            "prompt_length": self.prompt_length,
            "grid": None if self.grid is None else asdict(self.grid),
            "log_prob": self.log_prob,
            "token_log_probs": list(self.token_log_probs),
            "candidates": [[asdict(token_prob) for token_prob in token_probs] for token_probs in self.candidates],
            "hypotheses": [asdict(hypothesis) for hypothesis in self.hypotheses],
            "hypothesis_index": self.hypothesis_index,
            "tree": [node.to_json() for node in self.tree],
            "attention": [
                _attention_json(attention, heads)
                for attention in self.attention
                if (kinds is None or attention.kind in kinds) and (layers is None or attention.layer in layers)
            ],
        }
        if residual_streams:
            record["residual_streams"] = [
                {"name": stream.name, "layer": stream.layer, "states": stream.states_TD.tolist()}
                for stream in self.residual_streams
            ]
        if logits:
            record["logits"] = self.logits_TV.tolist()
        return record

    def _check_selection(
        self, kinds: Sequence[str] | None, layers: Sequence[int] | None, heads: Sequence[int] | None
    ) -> None:
        """Raise InspectionError for a kind, layer or head that no attention of this trace has."""
        selections: list[tuple[str, set[Any], Sequence[Any]]] = [
            ("kind", set(self.kinds), kinds or ()),
            ("layer", {attention.layer for attention in self.attention}, layers or ()),
            ("head", {head for attention in self.attention for head in range(len(attention.weights_HTS))}, heads or ()),
        ]
        for name, available, selected in selections:
            for value in selected:
                if value not in available:
                    values = ", ".join(map(str, sorted(available))) or "none"
                    raise InspectionError(
                        f"expected a {name} that the attention of this model has ({values}), got {value!r}"
                    )


def _attention_json(attention: TracedAttention, heads: Sequence[int] | None) -> dict[str, Any]:
    selected = [head for head in range(len(attention.weights_HTS)) if heads is None or head in heads]
    record: dict[str, Any] = {
        "kind": attention.kind,
        "layer": attention.layer,
        "heads": selected,
        "weights": _rounded(attention.weights_HTS[selected]),
        "allowed": attention.allowed_TS.tolist(),
    }
    arithmetic = attention.arithmetic
    if arithmetic is not None:
        bias = None if arithmetic.bias_HTS is None else arithmetic.bias_HTS[selected]
        record |= {
            "queries": arithmetic.q_HTK[selected].tolist(),
            "keys": arithmetic.k_HSK[selected].tolist(),
            "values": arithmetic.v_HSE[selected].tolist(),
            "scale": arithmetic.scale,
            # JSON cannot represent minus infinity, so the bias of masked cells is written as 0.
            "bias": None if bias is None else np.where(attention.allowed_TS, bias, 0.0).tolist(),
        }
    return record


def _rounded(weights_HTS: Floats) -> list[Any]:
    rounded: list[Any] = np.round(weights_HTS.astype(np.float64), JSON_DECIMALS).tolist()
    return rounded
