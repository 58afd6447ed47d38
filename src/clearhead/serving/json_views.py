"""JSON views of traces: a summary without tensors, and one view for each tensor and analysis.

H heads, T queries, S keys
"""

import base64
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import numpy as np

from clearhead.api import Model
from clearhead.errors import InspectionError
from clearhead.inspection.analyses.ablation import ablation_effect, head_effects
from clearhead.inspection.analyses.attribution import CAUTION, gradient_times_input, leave_one_out
from clearhead.inspection.analyses.head_statistics import HeadStatistics, head_statistics
from clearhead.inspection.analyses.logit_lens import logit_lens
from clearhead.inspection.analyses.position_ablation import ablate_positions, order_difference, position_table
from clearhead.inspection.trace.head_ref import ATTENTION_KINDS, AttentionKind
from clearhead.inspection.trace.run_trace import run_trace
from clearhead.inspection.trace.trace_input import text_input
from clearhead.inspection.trace.trace_types import Bools, Floats, TokenSpan, Trace, TracedAttention
from clearhead.serving.trace_store import StoredTrace
from clearhead.tasks.registry import get_task

MAX_TABLE_POSITIONS = 96  # rows of the position table
THUMBNAIL_SIZE = 28  # maximum number of rows and of columns of a thumbnail


def summary(stored: StoredTrace) -> dict[str, Any]:
    """Return a trace without its tensors."""
    trace = stored.trace
    record = trace.to_json(layers=[])
    record["hypotheses"] = [
        {**asdict(hypothesis), "text": _detokenize(stored.model, hypothesis.tokens)} for hypothesis in trace.hypotheses
    ]
    if stored.model.config.model.reads_images:
        record["source_text"] = ""  # the source text of an image is its path, which clients must not see
    return {
        "id": stored.id,
        "model": stored.model_name,
        "settings": {"beam_size": stored.settings.beam_size, "length_penalty": stored.settings.length_penalty},
        "ablated": stored.request.ablated,
        "positions": stored.request.positions,
        **record,
        "output_ids": list(trace.output_ids),
        "heads": [_statistics_json(statistics) for statistics in head_statistics(trace)],
    }


def _detokenize(model: Model, tokens: Sequence[int]) -> str:
    return get_task(model.config.task).codec.detokenize(model.tokenizer, tokens)


def _statistics_json(statistics: HeadStatistics) -> dict[str, Any]:
    record = asdict(statistics)
    head_ref = record.pop("head_ref")
    return {"kind": head_ref["name"], "layer": head_ref["layer"], "head": head_ref["head"], **record}


def thumbnails(trace: Trace, hide_special: bool) -> dict[str, Any]:
    """Return a small image of every head and the mask of each kind, in base64 with one byte per cell.

    A weight of 1 is the byte 255. `hide_special` leaves out special tokens and renormalizes the rows.
    """
    heads, allowed = [], {}
    for attention in trace.attention:
        kind = attention.kind
        rows, columns = _visible_positions(trace, kind, hide_special)
        allowed[kind] = _encode_pixels(shrink(attention.allowed_TS[np.ix_(rows, columns)].astype(np.float32)))
        for head, weights_TS in enumerate(attention.weights_HTS):
            small = shrink(select_cells(weights_TS, rows, columns, hide_special))
            heads.append({"kind": kind, "layer": attention.layer, "head": head, "rows": len(small),
                          "columns": small.shape[1], "pixels": _encode_pixels(small)})  # fmt: skip
    return {"heads": heads, "allowed": allowed}


def _visible_positions(trace: Trace, kind: AttentionKind, hide_special: bool) -> tuple[list[int], list[int]]:
    """Return the displayed rows and columns.

    `hide_special` hides special tokens as keys, but as queries only in the encoder: the decoder row of the start token
    predicts the first word.
    """
    hides_rows = hide_special and kind == "encoder"
    return (
        _without_special(trace.query_positions(kind), hides_rows),
        _without_special(trace.key_positions(kind), hide_special),
    )


def _without_special(positions: Sequence[TokenSpan], hide_special: bool) -> list[int]:
    return [number for number, position in enumerate(positions) if not (hide_special and position.is_special)]


def select_cells(weights_TS: Floats, rows: list[int], columns: list[int], renormalize: bool) -> Floats:
    """Return the weights of these rows and columns; `renormalize` scales each row to the sum 1."""
    selected: Floats = weights_TS[np.ix_(rows, columns)]
    if renormalize and selected.size:
        sums_T1 = selected.sum(1, keepdims=True)
        selected = np.divide(selected, sums_T1, out=np.zeros_like(selected), where=sums_T1 > 0)
    return selected


def shrink(weights_TS: Floats) -> Floats:
    """Return the weights with at most THUMBNAIL_SIZE rows and columns.

    Each cell is the maximum of the cells that it replaces: with a mean, single large weights would disappear.
    """
    if not weights_TS.size:
        return weights_TS
    for axis in (0, 1):
        length = weights_TS.shape[axis]
        if length > THUMBNAIL_SIZE:
            starts = np.arange(THUMBNAIL_SIZE) * length // THUMBNAIL_SIZE
            weights_TS = np.maximum.reduceat(weights_TS, starts, axis)
    return weights_TS


def _encode_pixels(weights_TS: Floats) -> str:
    """Return weights from 0 to 1 as bytes from 0 to 255, in base64."""
    return base64.b64encode(np.round(weights_TS * 255).astype(np.uint8).tobytes()).decode()


def _find_attention(trace: Trace, kind: str, layer: int, head: int) -> TracedAttention:
    """Return the attention of one layer; raise InspectionError if the model has no such kind, layer or head."""
    valid_kind = next((name for name in ATTENTION_KINDS if name == kind), None)
    if valid_kind is None:
        raise InspectionError(f"expected one of {', '.join(ATTENTION_KINDS)} as the kind of attention, got {kind!r}")
    trace.weights(valid_kind, layer, head)  # raises InspectionError for a missing layer or head
    return trace.layers(valid_kind)[layer]


def head_attention(trace: Trace, kind: str, layer: int, head: int, as_base64: bool = False) -> dict[str, Any]:
    """Return the unrounded weights and the mask of one head.

    They are lists, or with `as_base64` little-endian float32 and mask bytes, row by row.
    """
    attention = _find_attention(trace, kind, layer, head)
    weights_TS, allowed_TS = attention.weights_HTS[head], attention.allowed_TS
    record: dict[str, Any] = {"kind": kind, "layer": layer, "head": head}
    if not as_base64:
        return {**record, "weights": weights_TS.astype(float).tolist(), "allowed": allowed_TS.tolist()}
    rows, columns = weights_TS.shape
    return {**record, "rows": rows, "columns": columns,
            "weights": base64.b64encode(weights_TS.astype("<f4").tobytes()).decode(),
            "allowed": base64.b64encode(allowed_TS.astype(np.uint8).tobytes()).decode()}  # fmt: skip


def row_arithmetic(trace: Trace, kind: str, layer: int, head: int, row: int) -> dict[str, Any]:
    """Return the query of one row, all keys and values, scale, bias and mask, and the weights of the model."""
    attention = _find_attention(trace, kind, layer, head)
    if not 0 <= row < len(attention.allowed_TS):
        raise InspectionError(f"expected a row of the attention from 0 to {len(attention.allowed_TS) - 1}, got {row}")
    allowed_S: Bools = attention.allowed_TS[row]
    arithmetic = attention.arithmetic
    assert arithmetic is not None
    bias_HTS = arithmetic.bias_HTS
    return {
        "kind": kind, "layer": layer, "head": head, "row": row, "scale": arithmetic.scale,
        "query": arithmetic.q_HTK[head, row].astype(float).tolist(),
        "keys": arithmetic.k_HSK[head].astype(float).tolist(),
        "values": arithmetic.v_HSE[head].astype(float).tolist(),
        "bias": None if bias_HTS is None else np.where(allowed_S, bias_HTS[head, row], 0.0).tolist(),
        "allowed": allowed_S.tolist(), "weights": attention.weights_HTS[head, row].astype(float).tolist(),
    }  # fmt: skip


def lens(stored: StoredTrace) -> dict[str, Any]:
    """Return the model's predictions after each layer."""
    return {"layers": [asdict(layer) for layer in logit_lens(stored.model, stored.trace)]}


def attribution(stored: StoredTrace) -> dict[str, Any]:
    """Return the attribution of the outputs by gradient x input and by leave-one-out."""
    gradients = gradient_times_input(stored.model, stored.trace)
    removals = leave_one_out(stored.model, stored.trace)
    return {
        "caution": CAUTION,
        "source": None if gradients.source_TS is None else gradients.source_TS.astype(float).tolist(),
        "inputs": None if gradients.inputs_TI is None else gradients.inputs_TI.astype(float).tolist(),
        "leave_one_out": {"units": removals.units, "texts": removals.texts, "losses": removals.losses_UT.tolist()},
    }


def effects(stored: StoredTrace, with_outputs: bool) -> dict[str, Any]:
    """Return the effect of ablating each head; `with_outputs` adds the ablated models' outputs, by one search each."""
    records: list[dict[str, Any]] = []
    for head_ref, log_prob_change in head_effects(stored.model, stored.trace).items():
        records.append({"head_ref": str(head_ref), "log_prob_change": log_prob_change})
        if with_outputs:
            ablated = stored.model.with_ablated([head_ref])
            effect = ablation_effect(stored.model, ablated, stored.trace, stored.settings)
            records[-1]["after"] = effect.after.target_text
    return {"effects": records}


def positions(stored: StoredTrace) -> dict[str, Any]:
    """Return the position encodings, and for a text model their effect on the source and on the reversed source."""
    model, text = stored.model_with_positions, stored.trace.source_text
    length = min(MAX_TABLE_POSITIONS, stored.model.config.model.max_positions)
    table = position_table(model.network, model.config.model.positions, length)
    record: dict[str, Any] = {
        "kind": table.kind,
        "table": None if table.table_LD is None else table.table_LD.astype(float).tolist(),
        "bias": None if table.bias_HO is None else table.bias_HO.astype(float).tolist(),
        "order": None,
    }
    if table.kind != "none" and not model.config.model.reads_images:
        record["order"] = _word_order_effect(model, text)
    return record


def _word_order_effect(model: Model, text: str) -> dict[str, Any]:
    """Return the outputs for a text and its reversed words, and the difference of encoder states.

    Both are computed with the model's position encodings and without them.
    """
    ablated = model.with_network(ablate_positions(model.network))
    original, reverse = (text_input(model, words) for words in (text, " ".join(reversed(text.split()))))
    settings = model.config.decoding
    return {"text": original.text, "reversed": reverse.text} | {
        name: {"difference": order_difference(variant.network, original.src),
               "output": run_trace(variant, original, None, settings).target_text,
               "reversed_output": run_trace(variant, reverse, None, settings).target_text}
        for name, variant in (("with", model), ("without", ablated))
    }  # fmt: skip


def ablation(stored: StoredTrace, head_refs: list[str]) -> dict[str, Any]:
    """Return the output of the ablated model, and the change in the log-probability of the original output."""
    ablated = stored.model.with_ablated(head_refs)
    effect = ablation_effect(stored.model, ablated, stored.trace, stored.settings)
    return {**effect.to_json(), "tokens_before": [output.text for output in stored.trace.outputs],
            "tokens_after": [output.text for output in effect.after.outputs], "log_prob_before": stored.trace.log_prob,
            "log_prob_after": effect.after.log_prob, "output_ids_after": list(effect.after.output_ids)}  # fmt: skip
