"""Generated sections of docs/studies.md. Each is computed only from the results in docs/studies/NAME.json.

The text around the sections is written by hand and stays unchanged.
"""

import json
import shutil
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import replace_section
from clearhead.files import write_atomically
from clearhead.study.harness.protocol import Study
from clearhead.study.harness.results import (
    RESULT_FILE,
    Results,
    StudyPlan,
    fit_width,
    format_by_seed,
    parse_cells,
    table_rows,
)
from clearhead.study.registry import STUDIES

DOCS = Path(__file__).parent.parent.parent / "docs"
COMMAND = "make studies"
MAX_WIDTH = 140  # characters; wider tables are transposed
LINE_WIDTH = 120  # of paragraphs
VERDICTS = "verdicts"
VERDICT_ORDER = ("does not hold here", "not decided", "holds", "")  # claims that do not hold come first


def publish(folder: Path, machine: str, docs: Path = DOCS) -> None:
    """Copy the results and figures of a finished study to the folder of the page."""
    record = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    text = json.dumps({**record, "machine": machine}, ensure_ascii=False, indent=1) + "\n"
    write_atomically(docs / "studies" / f"{record['study']}.json", text)
    for figure in folder.glob("*.svg"):
        shutil.copyfile(figure, docs / "studies" / figure.name)


def write_page(docs: Path = DOCS) -> None:
    """Update every generated section of the page."""
    page = (docs / "studies.md").read_text(encoding="utf-8")
    for name, text in sections(docs).items():
        page = replace_section(page, name, COMMAND, text)
    write_atomically(docs / "studies.md", page)


def sections(docs: Path = DOCS) -> dict[str, str]:
    """Return the Markdown of each section by name: the table of verdicts, then each study."""
    records = {name: read(docs / "studies" / f"{name}.json") for name in STUDIES}
    texts = {name: render(record) if record else not_run(STUDIES[name]["default"]) for name, record in records.items()}
    return {VERDICTS: _verdicts([record for record in records.values() if record]), **texts}


def read(path: Path) -> dict[str, Any] | None:
    """Return the results of a study, or None if it has not run."""
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def results_of(record: dict[str, Any], study: Study | None = None) -> Results:
    """Return the results together with their study, so that its rule is applied again."""
    study = study or STUDIES[record["study"]][record["plan"]["size"]]
    return Results(DOCS, study, StudyPlan(**record["plan"]), parse_cells(record))


def not_run(study: Study) -> str:
    """Return the text for a study without results."""
    return f"Not run at its default size yet: `clearhead study {study.info.name}`, at most {study.minutes:g} minutes."


def render(record: dict[str, Any], study: Study | None = None) -> str:
    """Return the section of one study: verdict, tables, figures, requirements and source of the numbers."""
    results = results_of(record, study)
    info, judged = results.study.info, results.judge()
    table = fit_width(table_rows(results), MAX_WIDTH)
    lines = [_wrap(f"**{info.claim_id}, {judged.verdict}.** {info.claim}."), "", *_table(table)]
    for derived in info.tables(results.findings):
        lines += ["", f"{derived.title}:", "", *_table(derived.rows)]
    for chart in results.study.charts(results.findings):
        lines += ["", f"![{chart.title}](studies/{chart.name}.svg)"]
    lines += ["", *_table([["requirement, fixed in advance", "by seed", "bounds", "status"], *_requirements(results)])]
    seconds = sum(cell.seconds for cell in results.cells.values())
    unit = "minutes" if info.is_timed else "minutes of one core"
    unfinished = f" Unfinished: {len(results.missing_cells())} cells are missing." if results.missing_cells() else ""
    return "\n".join([
        *lines, "", *([_wrap(info.caveat), ""] if info.caveat else []),
        _wrap(f"`clearhead study {info.name}`, size {results.plan.size}, seeds: {results.plan.seeds}, time: "
        f"{seconds / 60:.1f} {unit}. {record['machine']}. Raw numbers: "
        f"[{info.name}.json](studies/{info.name}.json).{unfinished}"),
    ])  # fmt: skip


def _wrap(text: str) -> str:
    return textwrap.fill(text, LINE_WIDTH, break_long_words=False, break_on_hyphens=False)


def _requirements(results: Results) -> list[list[str]]:
    return [
        [
            outcome.requirement.statement,
            format_by_seed(outcome),
            f"{outcome.requirement.bounds} ({outcome.requirement.reason})",
            outcome.status,
        ]
        for outcome in results.judge().outcomes
    ]


def _verdicts(records: Sequence[dict[str, Any]]) -> str:
    """Return a table with one row per study; those that do not hold come first."""
    results = {record["study"]: results_of(record) for record in records}
    rows = []
    for name, sizes in STUDIES.items():
        verdict = results[name].judge().verdict if name in results else ""
        info = sizes["default"].info
        row = [f"[{name}](#{name})", info.claim_id, info.claim, verdict or "not run"]
        rows.append((VERDICT_ORDER.index(verdict), row))
    ranked = [row for _, row in sorted(rows, key=lambda item: item[0])]
    return "\n".join(_table([["study", "", "claim", "verdict"], *ranked]))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a Markdown table; vertical bars inside cells are escaped."""
    heading, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [_line(heading), _line(["---"] * len(heading)), *map(_line, body)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
