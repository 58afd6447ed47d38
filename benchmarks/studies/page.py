"""docs/studies.md: its generated sections, each made from the raw numbers in docs/studies/NAME.json and nothing else.

The words around the sections are written by hand; no program touches them.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.sections import put
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
WIDEST = 140  # characters of a table before its columns become rows
VERDICTS = "verdicts"
ORDER = ("does not hold here", "not decided", "holds", "")  # what did not hold is said first


def publish(folder: Path, machine: str, docs: Path = DOCS) -> None:
    """Puts the raw numbers and the pictures of a study that has run beside the page."""
    record = json.loads((folder / RESULT_FILE).read_text(encoding="utf-8"))
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    text = json.dumps({**record, "machine": machine}, ensure_ascii=False, indent=1) + "\n"
    write_atomically(docs / "studies" / f"{record['study']}.json", text)
    for picture in folder.glob("*.svg"):
        shutil.copyfile(picture, docs / "studies" / picture.name)


def write_page(docs: Path = DOCS) -> None:
    """Every generated section anew."""
    page = (docs / "studies.md").read_text(encoding="utf-8")
    for name, text in sections(docs).items():
        page = put(page, name, COMMAND, text)
    write_atomically(docs / "studies.md", page)


def sections(docs: Path = DOCS) -> dict[str, str]:
    """Name -> Markdown: the verdicts of all, then each study."""
    records = {name: read(docs / "studies" / f"{name}.json") for name in STUDIES}
    made = {name: render(record) if record else not_run(STUDIES[name]["default"]) for name, record in records.items()}
    return {VERDICTS: _verdicts([record for record in records.values() if record]), **made}


def read(path: Path) -> dict[str, Any] | None:
    """The raw numbers of a study; None where it has not run."""
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def results_of(record: dict[str, Any], study: Study | None = None) -> Results:
    """The raw numbers with the study that they belong to, so that its rule is applied to them anew."""
    known = study or STUDIES[record["study"]][record["plan"]["size"]]
    return Results(DOCS, known, StudyPlan(**record["plan"]), parse_cells(record))


def not_run(study: Study) -> str:
    """Instead of results."""
    return f"Not run at its default size yet: `clearhead study {study.about.name}`, at most {study.minutes:g} minutes."


def render(record: dict[str, Any], study: Study | None = None) -> str:
    """One study: verdict, numbers, pictures, the rule, and where all of it comes from."""
    results = results_of(record, study)
    about, judged = results.study.about, results.judge()
    lines = [
        f"**{about.claim_id}, {judged.verdict}.** {about.claim}.",
        "",
        *_table(fit_width(table_rows(results), WIDEST)),
    ]
    for more in about.tables(results.findings):
        lines += ["", f"{more.title}:", "", *_table(more.rows)]
    for chart in results.study.charts(results.findings):
        lines += ["", f"![{chart.title}](studies/{chart.name}.svg)"]
    lines += ["", *_table([["the rule, stated beforehand", "by seed", "bounds", "stands"], *_requirements(results)])]
    seconds = sum(one.seconds for one in results.cells.values())
    unit = "minutes" if about.is_timed else "minutes of one core"
    unfinished = f" Unfinished: {len(results.missing())} cells are missing." if results.missing() else ""
    return "\n".join([
        *lines, "", *([about.caveat, ""] if about.caveat else []),
        f"`clearhead study {about.name}`, size {results.plan.size}, seeds: {results.plan.seeds}, time: "
        f"{seconds / 60:.1f} {unit}. {record['machine']}. Raw numbers: "
        f"[{about.name}.json](studies/{about.name}.json).{unfinished}",
    ])  # fmt: skip


def _requirements(results: Results) -> list[list[str]]:
    return [
        [
            one.requirement.says,
            format_by_seed(one),
            f"{one.requirement.bounds} ({one.requirement.because})",
            one.standing,
        ]
        for one in results.judge().outcomes
    ]


def _verdicts(records: Sequence[dict[str, Any]]) -> str:
    """One line a study, those that did not hold first."""
    found = {record["study"]: results_of(record) for record in records}
    lines = []
    for name, sizes in STUDIES.items():
        verdict = found[name].judge().verdict if name in found else ""
        about = sizes["default"].about
        lines.append((ORDER.index(verdict), [f"[{name}](#{name})", about.claim_id, about.claim, verdict or "not run"]))
    ranked = [line for _, line in sorted(lines, key=lambda one: one[0])]
    return "\n".join(_table([["study", "", "claim", "verdict"], *ranked]))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Markdown; a bar inside a cell would end it."""
    heading, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [_line(heading), _line(["---"] * len(heading)), *map(_line, body)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
