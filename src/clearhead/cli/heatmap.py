"""A heat map in the terminal: colours where there are some, shades of grey in characters elsewhere."""

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.style import Style
from rich.table import Table
from rich.text import Text

from clearhead.inspection.analyses.head_statistics import head_statistics
from clearhead.inspection.render.heatmap import HeatMap, colour
from clearhead.inspection.trace.trace_types import Trace

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
    shown = {one.part for one in maps}
    table = Table(box=None, pad_edge=False)
    for name in ("head", "entropy", "distance", "diagonality", "on specials"):
        table.add_column(name, justify="left" if name == "head" else "right")
    for one in head_statistics(trace):
        if one.part in shown:
            numbers = (one.entropy, one.distance, one.diagonality, one.special)
            table.add_row(str(one.part), *("" if number is None else f"{number:.2f}" for number in numbers))
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
        red, green, blue = colour(weight)
        return Text(" " * CELL, style=Style(bgcolor=f"rgb({red},{green},{blue})"))
    return Text(SHADES[min(len(SHADES) - 1, int(weight * len(SHADES)))] * CELL)


def _plain(label: str) -> str:
    """Without what would move the cursor: control characters are shown, not sent."""
    return "".join(char if char.isprintable() else "�" for char in label)
