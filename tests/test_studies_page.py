"""docs/studies.md agrees with the result files, and `make studies` can write it."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.report import read_section, replace_section
from benchmarks.studies import __main__ as command
from benchmarks.studies import page

from clearhead.study import registry
from clearhead.study.harness import runner
from clearhead.study.harness.charts import draw
from clearhead.study.harness.results import RESULT_FILE
from tests.study.toy import ToyStudy

RECORDS = {name: page.read(page.DOCS / "studies" / f"{name}.json") for name in registry.STUDIES}
RUN = {name: record for name, record in RECORDS.items() if record is not None}


@pytest.mark.parametrize("name", [page.VERDICTS, *registry.STUDIES])
def test_page_agrees_with_the_results(name: str) -> None:
    written = (page.DOCS / "studies.md").read_text(encoding="utf-8")
    assert read_section(written, name, page.COMMAND) == page.sections()[name], "make studies NAME=..., or --page-only"


def test_every_study_has_an_introduction() -> None:
    written = (page.DOCS / "studies.md").read_text(encoding="utf-8")
    for name in registry.STUDIES:
        introduction = written.split(f"\n### {name}\n")[1].split("<!--")[0]
        assert len(introduction.split()) > 5, name


@pytest.mark.parametrize("name", RUN or [pytest.param("", marks=pytest.mark.skip(reason="no study has run yet"))])
def test_numbers_rule_and_verdict_agree(name: str) -> None:
    """A rule that was changed after its study ran fails here."""
    record = RUN[name]
    assert {**page.results_of(record).to_json(), "machine": record["machine"]} == record
    assert record["is_finished"] and record["plan"]["size"] == "default"


@pytest.mark.parametrize("name", RUN or [pytest.param("", marks=pytest.mark.skip(reason="no study has run yet"))])
def test_figures_agree_with_the_results(name: str) -> None:
    import matplotlib

    results = page.results_of(RUN[name])
    for chart in results.study.charts(results.findings):
        figure = (page.DOCS / "studies" / f"{chart.name}.svg").read_bytes()
        if f"Matplotlib v{matplotlib.__version__}".encode() in figure:  # other versions write different bytes
            assert figure == draw(chart, "svg")


@pytest.fixture
def docs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a page with one finished study and one that has not run."""
    toy = ToyStudy()
    sizes = dict.fromkeys(("miniature", "default", "full"), toy)
    monkeypatch.setattr(page, "STUDIES", {"order": registry.STUDIES["order"], "toy": sizes})
    runner.run(toy, tmp_path / "run", runner.make_plan(toy, "default"), threads=1)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "studies.md").write_text("# Page\n\nText by hand.\n", encoding="utf-8")
    page.publish(tmp_path / "run", "2 cores", tmp_path / "docs")
    page.write_page(tmp_path / "docs")
    return tmp_path / "docs"


def test_a_section_depends_only_on_the_results(docs: Path) -> None:
    text = page.sections(docs)["toy"]
    for part in ("**C0, holds.** near is more than far.", "| near | 4.5 ±0.7 |", "![A toy](studies/toy.svg)",
                 "| near is above far | 3, 3 | pass if >= 1, fail if <= 0, otherwise inconclusive (some reason) "
                 "| passed |", "only a toy",
                 "seeds: 2", "minutes. 2 cores."):  # fmt: skip
        assert part in text, part
    assert (docs / "studies" / "toy.svg").read_bytes().startswith(b"<?xml")
    assert "Not run at its default size yet" in page.sections(docs)["order"]


def test_a_changed_number_changes_the_page(docs: Path) -> None:
    written = (docs / "studies.md").read_text(encoding="utf-8")
    assert read_section(written, "toy", page.COMMAND) == page.sections(docs)["toy"]
    path = docs / "studies" / "toy.json"
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    record["cells"][0]["numbers"]["x"] = 0.5
    path.write_text(json.dumps(record), encoding="utf-8")
    assert read_section(written, "toy", page.COMMAND) != page.sections(docs)["toy"]
    assert page.results_of(record).to_json()["verdict"] == "not decided" != record["verdict"]


def test_claims_that_do_not_hold_come_first(docs: Path) -> None:
    path = docs / "studies" / "toy.json"
    lines = page.sections(docs)[page.VERDICTS].splitlines()
    assert [line.rsplit("|", 2)[1].strip() for line in lines[2:]] == ["holds", "not run"]
    record = json.loads(path.read_text(encoding="utf-8"))
    for cell in record["cells"]:
        cell["numbers"]["x"] = 0.0
    path.write_text(json.dumps(record), encoding="utf-8")
    assert "does not hold here" in page.sections(docs)[page.VERDICTS].splitlines()[2]


def test_text_by_hand_is_kept(docs: Path) -> None:
    path = docs / "studies.md"
    path.write_text(path.read_text(encoding="utf-8") + "\nMore text.\n", encoding="utf-8")
    page.write_page(docs)
    assert path.read_text(encoding="utf-8").startswith("# Page\n\nText by hand.\n")
    assert path.read_text(encoding="utf-8").endswith("<!-- end of toy -->\n\nMore text.\n")
    assert (
        replace_section("a\n", "x", "make y", "1").count("generated by") == 1
        and read_section("a\n", "x", "make y") is None
    )


def test_the_command_continues_after_a_failed_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran: list[str] = []
    published: list[str] = []

    def run(name: str, folder: Path, seeds: int | None) -> int:
        ran.append(name)
        return 1 if name == "mask" else 0

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "publish", lambda folder, machine: published.append(folder.name))
    monkeypatch.setattr(command, "write_page", lambda: None)
    monkeypatch.setattr(sys, "argv", ["studies", "order", "mask", "reach", "--runs", str(tmp_path)])
    assert command.main() == 1
    assert (ran, published) == (["order", "mask", "reach"], ["order", "reach"])
    assert "failed: mask" in capsys.readouterr().err


@pytest.mark.slow
def test_a_study_runs_through_the_command_line(tmp_path: Path) -> None:
    assert command.run("order", tmp_path, 1) == 0
    record = json.loads((tmp_path / RESULT_FILE).read_text(encoding="utf-8"))
    assert record["plan"] == {"minutes": 1.0, "seeds": 1, "size": "default"} and record["is_finished"]
