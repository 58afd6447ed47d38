"""`clearhead inspect`: what a model does inside with one sentence: in the terminal, as HTML, JSON or a picture.

A heat map in the terminal: colours where there are some, shades of grey in characters elsewhere.
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
    from clearhead.inspection.render.heatmap import HeatMap
    from clearhead.inspection.trace.trace_types import Trace


app = typer.Typer(rich_markup_mode=None, add_completion=False)


@app.command()
def inspect(
    folder: Folder,
    text: Annotated[
        str, typer.Argument(metavar="SENTENCE", help="What to read; a PNG for a model of pictures.", show_default=False)
    ],
    target: Annotated[
        str | None, typer.Option("--target", help="Output to force; for a classifier, a label.", show_default=False)
    ] = None,
    kind: Annotated[
        str | None, typer.Option("--kind", help="encoder, decoder or cross. [default: the last that there is]")
    ] = None,
    layer: Annotated[int | None, typer.Option("--layer", help="Only this layer, counted from 0.")] = None,
    head: Annotated[int | None, typer.Option("--head", help="Only this head, counted from 0.")] = None,
    off: Annotated[
        list[str], typer.Option("--off", metavar="PART", help="Switch off a head (cross.1.0) or sub-layer (cross.1).")
    ] = [],  # noqa: B006
    beam: Beam = None,
    tag: Tag = "",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    html: Annotated[Path | None, typer.Option("--html", help="Write one self-contained page with every head.")] = None,
    svg: Annotated[Path | None, typer.Option("--svg", help="Write the heat maps as SVG.")] = None,
    png: Annotated[Path | None, typer.Option("--png", help="Write the heat maps as PNG.")] = None,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """Look inside a model while it reads a sentence: every head of every layer.

    Without --layer and --head the terminal shows the head that points most clearly at words, under a table of all of
    its kind; a picture shows all of them. Rows look, columns are looked at; where something is written, a row is the
    step that writes the piece beside it.

    Example: clearhead inspect runs/de "The small dog sees the cat." --layer 1 --head 0
    """
    from clearhead.api import load

    use_threads(threads)
    model = load(folder, tag, engine=engine, compute_type=compute_type)
    looked_at = model.with_ablated(off) if off else model
    trace = _trace(looked_at, text, target, beam)
    is_drawn = not (as_json or html) or svg or png or kind or layer is not None or head is not None
    maps = _maps(trace, kind, layer, head) if is_drawn else []
    effect = _effect(model, looked_at, text, target, beam) if off else None
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
        _show(trace, maps, effect)
    elif effect is not None:
        print(_words(effect))


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


def _print_json(
    trace: "Trace", effect: "AblationEffect | None", kind: str | None, layer: int | None, head: int | None
) -> None:
    from dataclasses import asdict

    from clearhead.inspection.analyses.head_statistics import head_statistics

    record = trace.to_json(
        None if kind is None else [kind], None if layer is None else [layer], None if head is None else [head]
    )
    record["heads"] = [{**asdict(one), "head_ref": str(one.head_ref)} for one in head_statistics(trace)]
    record["ablation"] = None if effect is None else effect.to_json()
    print(json.dumps(record, ensure_ascii=False))


def _words(effect: "AblationEffect") -> str:
    return (
        f"with nothing switched off: {effect.before.target_text}\n"
        f"its log-probability changes by {effect.log_prob_change:+.3f} with the parts off"
    )


def _show(trace: "Trace", maps: "list[HeatMap]", effect: "AblationEffect | None") -> None:
    from rich.console import Console

    pass  # MERGED
    from clearhead.inspection.render.heatmap import most_focused

    console = Console(highlight=False, markup=False)
    print(trace.source_text)
    if trace.outputs:  # a model that embeds has none
        print(f"→ {trace.target_text}\nlog-probability {trace.log_prob:.3f}")
    if effect is not None:
        print(_words(effect))
    if len(maps) > 1:
        console.print(statistics_table(trace, maps))
    one = most_focused(trace, maps)
    head_ref = one.head_ref
    print(f"\n{head_ref}: layer {head_ref.layer}, head {head_ref.head} of {head_ref.name}, counted from 0\n")
    for line in draw(one, console):
        console.print(line, soft_wrap=True)
    print()
    console.print(legend(console))


SHADES = " ░▒▓█"
MASKED = "·"
CELL = 2  # characters
TALLEST = 12  # characters of a label above a column


def draw(one: HeatMap, console: Console) -> Iterator[Text]:
    """Rows beside their words, columns under theirs; what does not fit beside goes below."""
    margin = max(map(len, map(_plain, one.row_labels)), default=0)
    room = max(1, (console.width - margin - 1) // CELL)
    for start in range(0, len(one.column_labels), room):
        columns = range(start, min(start + room, len(one.column_labels)))
        yield from _head([one.column_labels[number] for number in columns], margin)
        for label, weights_S, allowed_S in zip(one.row_labels, one.weights_TS, one.allowed_TS, strict=True):
            line = Text(f"{_plain(label):>{margin}} ", no_wrap=True)
            for number in columns:
                line.append_text(_cell(float(weights_S[number]), bool(allowed_S[number]), bool(console.color_system)))
            yield line
        if columns.stop < len(one.column_labels):
            yield Text("")


def legend(console: Console) -> Text:
    """What the colours mean."""
    text = Text("0 ")
    for step in range(11):
        text.append_text(_cell(step / 10, is_allowed=True, has_colour=bool(console.color_system)))
    return text.append(" 1").append(f"   {MASKED} masked")


def statistics_table(trace: Trace, maps: Sequence[HeatMap]) -> Table:
    """What kind of head each one is."""
    shown = {one.head_ref for one in maps}
    table = Table(box=None, pad_edge=False)
    for name in ("head", "entropy", "distance", "diagonality", "on specials"):
        table.add_column(name, justify="left" if name == "head" else "right")
    for one in head_statistics(trace):
        if one.head_ref in shown:
            numbers = (one.entropy, one.distance, one.diagonality, one.special_share)
            table.add_row(str(one.head_ref), *("" if number is None else f"{number:.2f}" for number in numbers))
    return table


def _head(labels: Sequence[str], margin: int) -> Iterator[Text]:
    """The words of the columns, written downwards."""
    shown = [_plain(label)[:TALLEST] for label in labels]
    height = max(map(len, shown))
    for row in range(height):
        letters = "".join(f"{label.rjust(height)[row]:<{CELL}}" for label in shown)
        yield Text(" " * (margin + 1) + letters, no_wrap=True)


def _cell(weight: float, is_allowed: bool, has_colour: bool) -> Text:
    if not is_allowed:
        return Text(f"{MASKED:<{CELL}}", style="dim")
    if has_colour:
        red, green, blue = weight_color(weight)
        return Text(" " * CELL, style=Style(bgcolor=f"rgb({red},{green},{blue})"))
    return Text(SHADES[min(len(SHADES) - 1, int(weight * len(SHADES)))] * CELL)


def _plain(label: str) -> str:
    """Without what would move the cursor: control characters are shown, not sent."""
    return "".join(char if char.isprintable() else "�" for char in label)
