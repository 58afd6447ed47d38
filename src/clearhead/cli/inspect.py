"""`clearhead inspect`: attention for one input as heat maps in the terminal, HTML, SVG, PNG or JSON.

Terminals without colours show block characters of increasing density.
"""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from clearhead.cli.options import Beam, ComputeType, EngineName, Folder, Json, Tag, Threads, use_threads
from clearhead.errors import InspectionError
from clearhead.inspection.analyses.head_statistics import head_statistics
from clearhead.inspection.render.heatmap import HeatMap, weight_color
from clearhead.inspection.trace.trace_types import Trace

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.inspection.analyses.ablation import AblationEffect

app = typer.Typer(rich_markup_mode=None, add_completion=False)

SHADES = " ░▒▓█"
MASKED = "·"
CELL_WIDTH = 2  # characters
MAX_LABEL_HEIGHT = 12  # characters of a label above a column

InputText = Annotated[
    str, typer.Argument(metavar="SENTENCE", help="Input text; a PNG file for an image model.", show_default=False)
]
Target = Annotated[
    str | None,
    typer.Option(
        "--target",
        help="Output text for teacher forcing; for a classifier, a label. [default: found by search]",
        show_default=False,
    ),
]
Kind = Annotated[
    str | None,
    typer.Option(
        "--kind", help="Attention to show: encoder, decoder or cross. [default: the last of these that the model has]"
    ),
]
Layer = Annotated[int | None, typer.Option("--layer", help="Only this layer, counted from 0.")]
Head = Annotated[int | None, typer.Option("--head", help="Only this head, counted from 0.")]
Ablated = Annotated[
    list[str],
    typer.Option("--off", metavar="HEAD", help="Ablate a head (cross.1.0) or a sub-layer (cross.1); repeatable."),
]
Html = Annotated[Path | None, typer.Option("--html", help="Write a self-contained HTML file with every head.")]
Svg = Annotated[Path | None, typer.Option("--svg", help="Write the heat maps as SVG.")]
Png = Annotated[Path | None, typer.Option("--png", help="Write the heat maps as PNG.")]


@app.command()
def inspect(
    folder: Folder,
    text: InputText,
    target: Target = None,
    kind: Kind = None,
    layer: Layer = None,
    head: Head = None,
    off: Ablated = [],  # noqa: B006
    beam: Beam = None,
    tag: Tag = "",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    html: Html = None,
    svg: Svg = None,
    png: Png = None,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Show the attention of every head of every layer for one input.

    Rows are queries, columns are keys; a row of decoder attention is labelled with the token that this step generates.
    Without --layer and --head the terminal shows a table of all heads of --kind and the heat map of the head with the
    lowest entropy; --svg and --png draw the heat maps of all heads.

    Example: clearhead inspect runs/de "The small dog sees the cat." --layer 1 --head 0
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    inspected = model.with_ablated(off) if off else model
    trace = _trace(inspected, text, target, beam)
    is_drawn = not (as_json or html) or svg or png or kind or layer is not None or head is not None
    maps = _maps(trace, kind, layer, head) if is_drawn else []
    effect = _effect(model, inspected, text, target, beam) if off else None
    if html is not None:
        from clearhead.inspection.render.html import render_html

        _write(html, render_html(trace, str(folder)).encode())
    for path, form in ((svg, "svg"), (png, "png")):
        if path is not None:
            from clearhead.inspection.render.heatmap import draw_heat_maps

            title = f"{trace.source_text} → {trace.target_text}"
            _write(path, draw_heat_maps(maps, title, form))  # type: ignore[arg-type]
    if as_json:
        _print_json(trace, effect, kind, layer, head)
    elif html is None and svg is None and png is None:
        _print_trace(trace, maps, effect)
    elif effect is not None:
        print(_describe_effect(effect))


def _trace(model: "Model", text: str, target: str | None, beam: int | None) -> "Trace":
    return (model.trace_image if model.config.model.reads_images else model.trace)(text, target, beam)


def _effect(model: "Model", off: "Model", text: str, target: str | None, beam: int | None) -> "AblationEffect":
    from clearhead.inspection.analyses.ablation import ablation_effect

    return ablation_effect(model, off, _trace(model, text, target, beam), model.inspection_settings(beam_size=beam))


def _maps(trace: "Trace", kind: str | None, layer: int | None, head: int | None) -> "list[HeatMap]":
    from clearhead.inspection.render.heatmap import default_kind, heat_maps

    return heat_maps(trace, default_kind(trace, kind), layer, head)


def _write(path: Path, data: bytes) -> None:
    from clearhead.files import write_atomically

    try:
        write_atomically(path, data)
    except OSError as error:
        raise InspectionError(f"cannot write {path}: {error.strerror}; choose another file") from error
    typer.echo(f"wrote {path}", err=True)


def _print_json(
    trace: "Trace", effect: "AblationEffect | None", kind: str | None, layer: int | None, head: int | None
) -> None:
    from dataclasses import asdict

    record = trace.to_json(
        None if kind is None else [kind], None if layer is None else [layer], None if head is None else [head]
    )
    record["heads"] = [
        {**asdict(statistics), "head_ref": str(statistics.head_ref)} for statistics in head_statistics(trace)
    ]
    record["ablation"] = None if effect is None else effect.to_json()
    print(json.dumps(record, ensure_ascii=False))


def _describe_effect(effect: "AblationEffect") -> str:
    return (
        f"output without ablation: {effect.before.target_text}\n"
        f"ablation changes its log-probability by {effect.log_prob_change:+.3f}"
    )


def _print_trace(trace: "Trace", maps: "list[HeatMap]", effect: "AblationEffect | None") -> None:
    from clearhead.inspection.render.heatmap import most_focused

    console = Console(highlight=False, markup=False)
    print(trace.source_text)
    if trace.outputs:  # sentence embedding models have no outputs
        print(f"→ {trace.target_text}\nlog-probability {trace.log_prob:.3f}")
    if effect is not None:
        print(_describe_effect(effect))
    if len(maps) > 1:
        console.print(statistics_table(trace, maps))
    focused = most_focused(trace, maps)
    head_ref = focused.head_ref
    print(f"\n{head_ref}: layer {head_ref.layer}, head {head_ref.head} of {head_ref.name}, counted from 0\n")
    for line in draw(focused, console):
        console.print(line, soft_wrap=True)
    print()
    console.print(legend(console))


def draw(heat_map: HeatMap, console: Console) -> Iterator[Text]:
    """Yield the lines of a heat map; columns that exceed the width of the console follow below."""
    margin = max(map(len, map(_plain, heat_map.row_labels)), default=0)
    per_line = max(1, (console.width - margin - 1) // CELL_WIDTH)
    for start in range(0, len(heat_map.column_labels), per_line):
        columns = range(start, min(start + per_line, len(heat_map.column_labels)))
        yield from _header([heat_map.column_labels[number] for number in columns], margin)
        for label, weights_S, allowed_S in zip(
            heat_map.row_labels, heat_map.weights_TS, heat_map.allowed_TS, strict=True
        ):
            line = Text(f"{_plain(label):>{margin}} ", no_wrap=True)
            for number in columns:
                line.append_text(_cell(float(weights_S[number]), bool(allowed_S[number]), bool(console.color_system)))
            yield line
        if columns.stop < len(heat_map.column_labels):
            yield Text("")


def legend(console: Console) -> Text:
    """Return the colour scale from 0 to 1."""
    text = Text("0 ")
    for step in range(11):
        text.append_text(_cell(step / 10, is_allowed=True, has_colour=bool(console.color_system)))
    return text.append(" 1").append(f"   {MASKED} masked")


def statistics_table(trace: Trace, maps: Sequence[HeatMap]) -> Table:
    """Return a table of the statistics of each head that has a heat map."""
    shown = {heat_map.head_ref for heat_map in maps}
    table = Table(box=None, pad_edge=False)
    for name in ("head", "entropy", "distance", "diagonality", "on specials"):
        table.add_column(name, justify="left" if name == "head" else "right")
    for head in head_statistics(trace):
        if head.head_ref in shown:
            numbers = (head.entropy, head.distance, head.diagonality, head.special_share)
            table.add_row(str(head.head_ref), *("" if number is None else f"{number:.2f}" for number in numbers))
    return table


def _header(labels: Sequence[str], margin: int) -> Iterator[Text]:
    """Yield the column labels, written vertically."""
    shown = [_plain(label)[:MAX_LABEL_HEIGHT] for label in labels]
    height = max(map(len, shown))
    for row in range(height):
        letters = "".join(f"{label.rjust(height)[row]:<{CELL_WIDTH}}" for label in shown)
        yield Text(" " * (margin + 1) + letters, no_wrap=True)


def _cell(weight: float, is_allowed: bool, has_colour: bool) -> Text:
    if not is_allowed:
        return Text(f"{MASKED:<{CELL_WIDTH}}", style="dim")
    if has_colour:
        red, green, blue = weight_color(weight)
        return Text(" " * CELL_WIDTH, style=Style(bgcolor=f"rgb({red},{green},{blue})"))
    return Text(SHADES[min(len(SHADES) - 1, int(weight * len(SHADES)))] * CELL_WIDTH)


def _plain(label: str) -> str:
    """Return the label with control characters replaced, because they would move the cursor."""
    return "".join(char if char.isprintable() else "�" for char in label)
