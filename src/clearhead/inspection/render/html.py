"""Rendering of a trace as one self-contained HTML file, which loads nothing else.

The file contains the weights as JSON and a small script that draws them. The script inserts texts only as text nodes,
so that HTML in a text has no effect.
"""

import json
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from clearhead.inspection.analyses.attribution import CAUTION
from clearhead.inspection.analyses.head_statistics import HeadStatistics, head_statistics
from clearhead.inspection.render.heatmap import PALETTE, default_kind, heat_maps
from clearhead.inspection.trace.head_ref import ATTENTION_KINDS, AttentionKind, HeadRef
from clearhead.inspection.trace.trace_types import Trace

DATA_PLACEHOLDER = "/*DATA*/"
DECIMALS = 4
NUM_CANDIDATES = 5


def render_html(trace: Trace, name: str) -> str:
    """Return the content of an HTML file with the heads of a trace; `name` is its title."""
    template = files("clearhead.inspection.render").joinpath("heads.html").read_text(encoding="utf-8")
    before, after = template.split(DATA_PLACEHOLDER)
    # `<` could end the script element or begin a comment; JSON reads \\u003c as the same character.
    return before + json.dumps(_page_data(trace, name), ensure_ascii=False).replace("<", "\\u003c") + after


def _page_data(trace: Trace, name: str) -> dict[str, Any]:
    statistics = {head.head_ref: head for head in head_statistics(trace)}
    return {
        "name": name,
        "source_text": trace.source_text,
        "target_text": trace.target_text,
        "log_prob": trace.log_prob,
        "candidates": [
            [{"text": token_prob.text, "log_prob": token_prob.log_prob} for token_prob in token_probs[:NUM_CANDIDATES]]
            for token_probs in trace.candidates
        ],
        "outputs": [output.text for output in trace.outputs],
        "kinds": [_kind_data(trace, kind, statistics) for kind in ATTENTION_KINDS if kind in trace.kinds],
        "default_kind": default_kind(trace) if trace.kinds else None,
        "palette": PALETTE,
        "caution": CAUTION,
    }


def _kind_data(trace: Trace, kind: AttentionKind, statistics: Mapping[HeadRef, HeadStatistics]) -> dict[str, Any]:
    maps = heat_maps(trace, kind)
    return {
        "kind": kind,
        "heads": [
            {
                "head_ref": str(heat_map.head_ref),
                "layer": heat_map.head_ref.layer,
                "head": heat_map.head_ref.head,
                "weights": heat_map.weights_TS.round(DECIMALS).astype(float).round(DECIMALS).tolist(),
                "entropy": statistics[heat_map.head_ref].entropy,
                "special_share": statistics[heat_map.head_ref].special_share,
            }
            for heat_map in maps
        ],
        "rows": maps[0].row_labels,
        "columns": maps[0].column_labels,
        "allowed": maps[0].allowed_TS.tolist(),
    }
