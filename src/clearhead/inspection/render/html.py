"""A trace as one HTML file that needs nothing else: no server, no connection, no script from elsewhere.

The numbers lie in the file as JSON, and a small script draws them. Text is only ever put in as text.
"""

import json
from importlib.resources import files
from typing import Any

from clearhead.inspection.analyses.attribution import CAUTION
from clearhead.inspection.analyses.head_statistics import head_statistics
from clearhead.inspection.render.heatmap import PALETTE, default_kind, heat_maps
from clearhead.inspection.trace.head_ref import KINDS
from clearhead.inspection.trace.trace_types import Trace

HOLE = "/*DATA*/"
DIGITS = 4  # behind the point: what a reader can tell apart


def render_html(trace: Trace, name: str) -> str:
    """The whole file."""
    template = files("clearhead.inspection").joinpath("heads.html").read_text(encoding="utf-8")
    before, after = template.split(HOLE)
    # In a script element only `<` could end the element or begin a comment: as \\u003c it is the same string.
    return before + json.dumps(_data(trace, name), ensure_ascii=False).replace("<", "\\u003c") + after


def _data(trace: Trace, name: str) -> dict[str, Any]:
    numbers = {one.part: one for one in head_statistics(trace)}
    kinds = []
    for kind in (one for one in KINDS if one in trace.kinds):
        maps = heat_maps(trace, kind)
        heads = [
            {
                "part": str(one.part),
                "layer": one.part.layer,
                "head": one.part.head,
                "weights": one.weights_TS.round(DIGITS).astype(float).round(DIGITS).tolist(),
                "entropy": numbers[one.part].entropy,
                "special": numbers[one.part].special,
            }
            for one in maps
        ]
        shown = {"rows": maps[0].row_labels, "columns": maps[0].column_labels, "allowed": maps[0].allowed_TS.tolist()}
        kinds.append({"kind": kind, "heads": heads, **shown})
    return {
        "name": name,
        "source": trace.source_text,
        "target": trace.target_text,
        "log_prob": trace.log_prob,
        "steps": [
            [{"text": option.text, "log_prob": option.log_prob} for option in options[:5]]
            for options in trace.candidates
        ],
        "outputs": [place.text for place in trace.outputs],
        "kinds": kinds,
        "first": default_kind(trace) if trace.kinds else None,
        "palette": PALETTE,
        "caution": CAUTION,
    }
