"""What of a trace goes over the wire: a summary first, then what is asked for, by layer and head.

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
from clearhead.inspection.analyses.head_statistics import head_statistics
from clearhead.inspection.analyses.logit_lens import logit_lens
from clearhead.inspection.analyses.position_ablation import order_difference, position_table, without_positions
from clearhead.inspection.trace import run_trace
from clearhead.inspection.trace.head_ref import KINDS, Kind
from clearhead.inspection.trace.trace_types import Bools, Floats, TokenSpan, Trace, TracedAttention
from clearhead.serving.trace_store import StoredTrace
from clearhead.tasks.registry import get_task

SHOWN_POSITIONS = 96  # of the position table
THUMBNAIL = 28  # places a side; what is longer is drawn by its largest weights


def summary(held: StoredTrace) -> dict[str, Any]:
    """A trace without its tensors."""
    seen = held.trace
    record = seen.to_json(layers=[])
    record["hypotheses"] = [{**asdict(one), "text": _text(held.model, one.tokens)} for one in seen.hypotheses]
    if held.model.config.model.reads_images:
        record["source_text"] = ""  # a path of this machine is nobody's business
    return {
        "id": held.id,
        "model": held.name,
        "settings": {"beam_size": held.settings.beam_size, "length_penalty": held.settings.length_penalty},
        "off": held.request.off,
        "positions": held.request.positions,
        **record,
        "output_ids": list(seen.output_ids),
        "heads": [{"kind": one.part.name, **{key: value for key, value in asdict(one).items() if key != "part"},
                   "layer": one.part.layer, "head": one.part.head} for one in head_statistics(seen)],
    }  # fmt: skip


def _text(model: Model, tokens: Sequence[int]) -> str:
    return get_task(model.config.task).codec.detokenize(model.tokenizer, tokens)


def thumbnails(seen: Trace, hide_special: bool) -> dict[str, Any]:
    """Every head, small: a byte a cell, 255 for a weight of 1."""
    heads, allowed = [], {}
    for one in seen.attention:
        rows, columns = _shown(seen, one.kind, hide_special)
        allowed[one.kind] = _bytes(shrink(one.allowed_TS[np.ix_(rows, columns)].astype(np.float32)))
        for head, weights_TS in enumerate(one.weights_HTS):
            small = shrink(renormalised(weights_TS, rows, columns, hide_special))
            heads.append({"kind": one.kind, "layer": one.layer, "head": head, "rows": len(small),
                          "columns": small.shape[1], "pixels": _bytes(small)})  # fmt: skip
    return {"heads": heads, "allowed": allowed}


def _shown(seen: Trace, kind: Kind, hide_special: bool) -> tuple[list[int], list[int]]:
    """The rows and columns that are drawn: a start token is hidden as a key, but writes the first word."""
    row_places, column_places = seen.rows(kind), seen.columns(kind)
    hides_rows = hide_special and kind == "encoder"
    return _without_special(row_places, hides_rows), _without_special(column_places, hide_special)


def _without_special(places: Sequence[TokenSpan], hide: bool) -> list[int]:
    return [number for number, place in enumerate(places) if not (hide and place.is_special)]


def renormalised(weights_TS: Floats, rows: list[int], columns: list[int], hide_special: bool) -> Floats:
    """These rows and columns; where columns are hidden, each row sums to 1 again."""
    picked: Floats = weights_TS[np.ix_(rows, columns)]
    if hide_special and picked.size:
        sums_T1 = picked.sum(1, keepdims=True)
        picked = np.divide(picked, sums_T1, out=np.zeros_like(picked), where=sums_T1 > 0)
    return picked


def shrink(weights_TS: Floats) -> Floats:
    """At most THUMBNAIL places a side: each cell the largest of what it stands for, so that thin lines stay."""
    if not weights_TS.size:
        return weights_TS
    for axis in (0, 1):
        length = weights_TS.shape[axis]
        if length > THUMBNAIL:
            starts = np.arange(THUMBNAIL) * length // THUMBNAIL
            weights_TS = np.maximum.reduceat(weights_TS, starts, axis)
    return weights_TS


def _bytes(weights_TS: Floats) -> str:
    return base64.b64encode(np.round(weights_TS * 255).astype(np.uint8).tobytes()).decode()


def attention_of(seen: Trace, kind: str, layer: int, head: int) -> TracedAttention:
    """One attention; refuses what there is not."""
    known = next((one for one in KINDS if one == kind), None)
    if known is None:
        raise InspectionError(f"expected one of {', '.join(KINDS)} as the kind of attention, got {kind!r}")
    seen.weights(known, layer, head)  # says what is wrong
    return seen.layers(known)[layer]


def one_head(seen: Trace, kind: str, layer: int, head: int, packed: bool = False) -> dict[str, Any]:
    """The weights of one head, exactly: as lists, or as little-endian float32 and bytes in base64."""
    one = attention_of(seen, kind, layer, head)
    weights_TS, allowed_TS = one.weights_HTS[head], one.allowed_TS
    record: dict[str, Any] = {"kind": kind, "layer": layer, "head": head}
    if not packed:
        return {**record, "weights": weights_TS.astype(float).tolist(), "allowed": allowed_TS.tolist()}
    rows, columns = weights_TS.shape
    return {**record, "rows": rows, "columns": columns,
            "weights": base64.b64encode(weights_TS.astype("<f4").tobytes()).decode(),
            "allowed": base64.b64encode(allowed_TS.astype(np.uint8).tobytes()).decode()}  # fmt: skip


def one_row(seen: Trace, kind: str, layer: int, head: int, row: int) -> dict[str, Any]:
    """What the weights of one row were made of: the query, every key and value, and the model's own weights."""
    one = attention_of(seen, kind, layer, head)
    allowed_S: Bools = _row(one.allowed_TS, row)
    made = one.arithmetic
    assert made is not None
    bias_S = None if made.bias_HTS is None else np.where(allowed_S, made.bias_HTS[head, row], 0.0).tolist()
    return {
        "kind": kind, "layer": layer, "head": head, "row": row, "scale": made.scale,
        "query": made.q_HTK[head, row].astype(float).tolist(), "keys": made.k_HSK[head].astype(float).tolist(),
        "values": made.v_HSE[head].astype(float).tolist(), "bias": bias_S, "allowed": allowed_S.tolist(),
        "weights": one.weights_HTS[head, row].astype(float).tolist(),
    }  # fmt: skip


def _row(allowed_TS: Bools, row: int) -> Bools:
    if not 0 <= row < len(allowed_TS):
        raise InspectionError(f"the attention has {len(allowed_TS)} rows, counted from 0; there is no row {row}")
    found: Bools = allowed_TS[row]
    return found


def lens(held: StoredTrace) -> dict[str, Any]:
    """What the model would have answered after each layer."""
    return {"layers": [asdict(one) for one in logit_lens(held.model, held.trace)]}


def attribution(held: StoredTrace) -> dict[str, Any]:
    """What outputs hang on, by gradient x input and by leaving words out."""
    gradients, left_out = gradient_times_input(held.model, held.trace), leave_one_out(held.model, held.trace)
    return {
        "caution": CAUTION,
        "source": None if gradients.source_TS is None else gradients.source_TS.astype(float).tolist(),
        "inputs": None if gradients.inputs_TI is None else gradients.inputs_TI.astype(float).tolist(),
        "left_out": {"units": left_out.units, "texts": left_out.texts, "losses": left_out.losses_UT.tolist()},
    }


def effects(held: StoredTrace, outputs: bool) -> dict[str, Any]:
    """What every head is good for, one at a time; with outputs, what the model writes without it: a search a head."""
    found: list[dict[str, Any]] = []
    for part, change in head_effects(held.model, held.trace).items():
        found.append({"part": str(part), "change": change})
        if outputs:
            off = held.model.with_ablated([part])
            found[-1]["after"] = ablation_effect(held.model, off, held.trace, held.settings).after.target_text
    return {"effects": found}


def positions(held: StoredTrace) -> dict[str, Any]:
    """Return the position table of the model, and its output for the source in order and reversed, with and without."""
    model, text = held.placed, held.trace.source_text
    length = min(SHOWN_POSITIONS, held.model.config.model.max_positions)
    found = position_table(model.network, model.config.model.positions, length)
    blind = model.with_network(without_positions(model.network))
    record: dict[str, Any] = {
        "kind": found.kind,
        "table": None if found.table_LD is None else found.table_LD.astype(float).tolist(),
        "bias": None if found.bias_HO is None else found.bias_HO.astype(float).tolist(),
        "order": None,
    }
    if found.kind == "none" or model.config.model.reads_images:
        return record
    words = text.split()
    given, swapped = (run_trace.text_input(model, each) for each in (text, " ".join(reversed(words))))
    settings = model.config.decoding
    record["order"] = {"text": given.text, "reversed": swapped.text} | {
        name: {"difference": order_difference(each.network, given.src),
               "output": run_trace.trace(each, given, None, settings).target_text,
               "reversed_output": run_trace.trace(each, swapped, None, settings).target_text}
        for name, each in (("with", model), ("without", blind))
    }  # fmt: skip
    return record


def ablation(held: StoredTrace, off: list[str]) -> dict[str, Any]:
    """Return the output of the model with parts ablated, and the log-probability that the old output has then."""
    found = ablation_effect(held.model, held.model.with_ablated(off), held.trace, held.settings)
    after = found.after
    return {**found.to_json(), "pieces_before": [one.text for one in held.trace.outputs],
            "pieces_after": [one.text for one in after.outputs], "log_prob_before": held.trace.log_prob,
            "log_prob_after": after.log_prob, "output_ids_after": list(after.output_ids)}  # fmt: skip
