"""`clearhead inspect`: heat map, JSON, HTML, SVG, PNG and user errors."""

import io
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from PIL import Image
from rich.console import Console

import clearhead
from clearhead import bundle
from clearhead.bundle.writer import save as save_bundle
from clearhead.cli.inspect import draw
from clearhead.cli.main import main
from clearhead.inspection.render import heatmap, html
from clearhead.inspection.render.heatmap import PALETTE, heat_maps, most_focused, weight_color
from clearhead.model.parameters import snapshot
from clearhead.model.registry import with_tied_names
from tests.inspection.small_models import TEXT, small_model, write_image
from tests.trained_model import Trained

SOURCE = "The small dog sees the old cat."
SCRIPT = "<script>alert('x')</script><!-- &amp; ]]>"


def saved(name: str, folder: Path) -> Path:
    """Save a small model and return its folder."""
    model = small_model(name)
    words = bundle.NO_TOKENIZER if model.tokenizer is None else model.tokenizer.to_json()
    config = model.config.model_dump(mode="json")
    weights = with_tied_names(model.config.model, snapshot(model.network))
    save_bundle(folder, weights=weights, config=config, tokenizer=words, weights_kind="last",
                data={}, training={})  # fmt: skip
    return folder


def test_the_terminal_shows_words_and_weights(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(trained.folder), SOURCE, "--layer", "1", "--head", "1", "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    trace = clearhead.load(trained.folder).trace(SOURCE)
    assert lines[0] == SOURCE and lines[1] == f"→ {trace.target_text}"
    assert lines[2] == f"log-probability {trace.log_prob:.3f}"
    assert any(line.startswith("cross.1.1: layer 1, head 1 of cross") for line in lines)
    for output, weights_S in zip(trace.outputs, trace.weights("cross", 1, 1), strict=True):
        cells = "".join(" ░▒▓█"[min(4, int(weight * 5))] * 2 for weight in weights_S)
        assert any(line.rstrip() == f"{output.text:>{max(len(one.text) for one in trace.outputs)}} {cells}".rstrip()
                   for line in lines), output  # fmt: skip


def test_without_a_head_all_are_listed(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(trained.folder), SOURCE, "--kind", "encoder", "--threads", "1"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"^head +entropy +distance +diagonality +on specials", out, re.M)
    assert len(re.findall(r"^encoder\.0\.\d +\d\.\d\d", out, re.M)) == 2


def test_colours_and_masks_reach_the_terminal() -> None:
    trace = small_model("transformer").trace(TEXT)
    one = heat_maps(trace, "decoder", 0, 0)[0]
    console = Console(file=io.StringIO(), force_terminal=True, color_system="truecolor", width=200)
    for line in draw(one, console):
        console.print(line, soft_wrap=True)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    red, green, blue = weight_color(float(one.weights_TS[1, 0]))
    assert f"48;2;{red};{green};{blue}m" in text and "·" in text


def test_narrow_terminals_wrap_the_columns() -> None:
    one = heat_maps(small_model("transformer").trace(TEXT, target="The dog"), "cross", 0, 0)[0]
    margin = max(map(len, one.row_labels))
    console = Console(file=io.StringIO(), width=margin + 1 + 2 * 5)
    lines = [line.plain for line in draw(one, console)]
    assert max(map(len, lines)) <= console.width and len(one.column_labels) == 12
    rows = [line[margin + 1 :] for line in lines if line.startswith(f"{one.row_labels[0]:>{margin}} ")]
    assert [len(row) for row in rows] == [10, 10, 4]


def test_the_palette_is_matplotlibs() -> None:
    from matplotlib import colormaps

    for weight in np.linspace(0, 1, len(PALETTE)):
        np.testing.assert_allclose(weight_color(weight), 255 * np.array(colormaps["viridis"](weight)[:3]), atol=2)


def test_json_is_the_trace(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", str(trained.folder), SOURCE, "--target", "Der Hund.", "--json", "--threads", "1"]
    assert main([*arguments, "--kind", "cross", "--layer", "0", "--head", "1"]) == 0
    record = json.loads(capsys.readouterr().out)
    trace = clearhead.load(trained.folder).trace(SOURCE, "Der Hund.")
    assert record["target_text"] == "Der Hund." and len(record["attention"]) == 1
    np.testing.assert_allclose(record["attention"][0]["weights"][0], trace.weights("cross", 0, 1), atol=1e-6)
    assert [one["head_ref"] for one in record["heads"]][:2] == ["encoder.0.0", "encoder.0.1"]
    assert record["ablation"] is None and not record["tree"]


def test_ablation_reports_its_effect(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["inspect", str(trained.folder), SOURCE, "--off", "cross.0", "--off", "cross.1", "--threads", "1"]
    assert main([*arguments, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    model = clearhead.load(trained.folder)
    assert record["ablation"]["before"] == model.translate(SOURCE).text
    assert record["target_text"] == record["ablation"]["after"] != record["ablation"]["before"]
    assert main(arguments) == 0
    assert f"changes its log-probability by {record['ablation']['log_prob_change']:+.3f}" in capsys.readouterr().out


class Page(HTMLParser):
    """Parser that collects the scripts, the embedded data and every URL of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.scripts: list[str] = []
        self.addresses: list[str] = []
        self._is_script = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._is_script = tag == "script"
        if self._is_script:
            self.scripts.append("")
        self.addresses += [value or "" for name, value in attrs if name in ("src", "href", "action", "data")]

    def handle_endtag(self, tag: str) -> None:
        self._is_script = False

    def handle_data(self, data: str) -> None:
        if self._is_script:
            self.scripts[-1] += data


def test_html_is_one_file_with_every_head(trained: Trained, tmp_path: Path) -> None:
    path = tmp_path / "heads.html"
    assert main(["inspect", str(trained.folder), SOURCE, "--html", str(path), "--threads", "1"]) == 0
    text = path.read_text(encoding="utf-8")
    page = Page(text)
    assert not page.addresses and "http://" not in text and "https://" not in text and "@import" not in text
    assert "default-src 'none'" in text and len(page.scripts) == 2
    data, trace = json.loads(page.scripts[0]), clearhead.load(trained.folder).trace(SOURCE)
    assert data["target_text"] == trace.target_text and [one["kind"] for one in data["kinds"]] == [*trace.kinds]
    for kind in data["kinds"]:
        assert len(kind["heads"]) == sum(len(one.weights_HTS) for one in trace.layers(kind["kind"]))
        for head in kind["heads"]:
            weights_TS = trace.weights(kind["kind"], head["layer"], head["head"])
            np.testing.assert_allclose(head["weights"], weights_TS, atol=1e-4)


def test_text_stays_text_in_html() -> None:
    trace = small_model("transformer").trace(SCRIPT)
    text = html.render_html(trace, SCRIPT)
    page = Page(text)
    assert SCRIPT not in text and len(page.scripts) == 2
    assert json.loads(page.scripts[0])["source_text"] == SCRIPT
    for sink in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
        assert sink not in text


def test_images_of_one_head_and_of_all(trained: Trained, tmp_path: Path) -> None:
    one, everything = tmp_path / "one.svg", tmp_path / "all.png"
    command = ["inspect", str(trained.folder), SOURCE, "--threads", "1"]
    assert main([*command, "--layer", "0", "--head", "0", "--svg", str(one)]) == 0
    assert main([*command, "--png", str(everything)]) == 0
    assert ElementTree.parse(one).getroot().tag == "{http://www.w3.org/2000/svg}svg"
    with Image.open(everything) as image:
        pixels = np.asarray(image.convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels, axis=0)) > 100
    second_svg = tmp_path / "again.svg"
    assert main([*command, "--layer", "0", "--head", "0", "--svg", str(second_svg)]) == 0
    assert one.read_bytes() == second_svg.read_bytes()


def test_labels_with_markup_are_drawn_verbatim() -> None:
    trace = small_model("transformer").trace("$x_1$ 🙂 \\frac dog", target="$$ \\alpha")
    drawn = heatmap.draw_heat_maps(heat_maps(trace, "cross", 0, 0), "$title$ {", "png")
    assert drawn.startswith(b"\x89PNG")


@pytest.mark.parametrize(
    "name", ["decoder", "encoder for tags", "encoder for masks", "T5", "lstm, additive", "patches", "captions"]
)
def test_every_family_can_be_inspected(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.inspection.small_models import text_for

    folder = saved(name, tmp_path / "model")
    source = str(write_image(tmp_path)) if name in ("patches", "captions") else text_for(name)
    assert main(["inspect", str(folder), source, "--threads", "1"]) == 0
    trace = (
        clearhead.load(folder).trace_image(source) if source.endswith("png") else clearhead.load(folder).trace(source)
    )
    assert f"→ {trace.target_text}" in capsys.readouterr().out
    assert main(["inspect", str(folder), source, "--html", str(tmp_path / "page.html"), "--threads", "1"]) == 0
    assert len(Page((tmp_path / "page.html").read_text(encoding="utf-8")).scripts) == 2


def test_the_clearest_head_points_at_words() -> None:
    trace = small_model("transformer").trace(TEXT)
    maps = heat_maps(trace, "cross")
    best = most_focused(trace, maps)
    words = [number for number, place in enumerate(trace.source) if not place.is_special]
    assert best.weights_TS[:, words].max(1).mean() == max(one.weights_TS[:, words].max(1).mean() for one in maps)


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["", "--layer", "0"], "expected a text"),
        (["x " * 10_000], "shorten it"),
        ([SOURCE, "--layer", "2"], "expected a layer of cross from 0 to 1, got 2"),
        ([SOURCE, "--layer", "0", "--head", "-1"], "expected a head of cross layer 0 from 0 to 1, got -1"),
        ([SOURCE, "--kind", "middle"], "encoder, decoder, cross"),
        ([SOURCE, "--off", "cross.5"], "expected a layer of cross from 0 to 1, got 5"),
        ([SOURCE, "--html", "/no/such/folder/x.html"], "cannot write"),
        ([SOURCE, "--json", "--head", "9"], "expected a head of cross layer 0 from 0 to 1, got 9"),
        ([SOURCE, "--beam", "0"], "beam"),
    ],
)
def test_user_errors_are_one_line_and_exit_with_2(
    arguments: list[str], part: str, trained: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["inspect", str(trained.folder), *arguments, "--threads", "1"]) == 2
    err = capsys.readouterr().err
    assert part in err and err.count("\n") == 1


def test_a_model_without_attention_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = saved("gru without attention", tmp_path / "model")
    assert main(["inspect", str(folder), TEXT, "--threads", "1"]) == 2
    assert "no attention to inspect" in capsys.readouterr().err
    assert main(["inspect", str(folder), TEXT, "--json", "--threads", "1"]) == 0
    assert json.loads(capsys.readouterr().out)["attention"] == []
    shutil.rmtree(folder)


@pytest.mark.parametrize("options", [["--layer", "9"], ["--head", "7"], ["--kind", "sideways"], ["--off", "cross.9"]])
def test_invalid_options_write_no_file(
    options: list[str], trained: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All options are checked before the first of several files is written."""
    files = [word for form in ("html", "svg", "png") for word in (f"--{form}", str(tmp_path / f"page.{form}"))]
    for more in ([], ["--json"]):
        assert main(["inspect", str(trained.folder), SOURCE, *options, *files, *more, "--threads", "1"]) == 2
        captured = capsys.readouterr()
        assert captured.out == "" and len(captured.err.splitlines()) == 1
        assert list(tmp_path.iterdir()) == []
