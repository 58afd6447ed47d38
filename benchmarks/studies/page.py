"""Generated sections of docs/studies.md, each a function of the raw numbers in docs/studies/NAME.json.

The text around the sections is written by hand and not changed by programs.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.report import replace_section
from clearhead.files import write_atomically
from clearhead.study.harness.protocol import Study
from clearhead.study.harness.results import FILE, Results, StudyPlan, by_seed, cells_of, fitting, rows
from clearhead.study.registry import STUDIES

DOCS = Path(__file__).parent.parent.parent / "docs"
COMMAND = "make studies"
MAX_WIDTH = 140  # characters of a table before it is transposed
VERDICTS = "verdicts"
ORDER = ("does not hold here", "not decided", "holds", "")  # claims that do not hold come first


def publish(folder: Path, machine: str, docs: Path = DOCS) -> None:
    """Copy the raw numbers and the plots of a finished study to the folder of the page."""
    record = json.loads((folder / FILE).read_text(encoding="utf-8"))
    (docs / "studies").mkdir(parents=True, exist_ok=True)
    text = json.dumps({**record, "machine": machine}, ensure_ascii=False, indent=1) + "\n"
    write_atomically(docs / "studies" / f"{record['study']}.json", text)
    for plot in folder.glob("*.svg"):
        shutil.copyfile(plot, docs / "studies" / plot.name)


def write_page(docs: Path = DOCS) -> None:
    """Update all generated sections."""
    page = (docs / "studies.md").read_text(encoding="utf-8")
    for name, text in sections(docs).items():
        page = replace_section(page, name, COMMAND, text)
    write_atomically(docs / "studies.md", page)


def sections(docs: Path = DOCS) -> dict[str, str]:
    """Return the Markdown of each section by name: the verdicts of all studies, then each study."""
    records = {name: read(docs / "studies" / f"{name}.json") for name in STUDIES}
    texts = {name: render(record) if record else not_run(STUDIES[name]["default"]) for name, record in records.items()}
    return {VERDICTS: _verdicts([record for record in records.values() if record]), **texts}


def read(path: Path) -> dict[str, Any] | None:
    """Return the raw numbers of a study, None if it has not been run."""
    if not path.exists():
        return None
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def results_of(record: dict[str, Any], study: Study | None = None) -> Results:
    """Return the raw numbers with their study, so that its rule is applied again."""
    owner = study or STUDIES[record["study"]][record["plan"]["size"]]
    return Results(DOCS, owner, StudyPlan(**record["plan"]), cells_of(record))


def not_run(study: Study) -> str:
    """Return the text for a study without results."""
    return f"Not run at its default size yet: `clearhead study {study.about.name}`, at most {study.minutes:g} minutes."


def render(record: dict[str, Any], study: Study | None = None) -> str:
    """Return the section of a study: verdict, numbers, plots, the rule, and the command and machine."""
    results = results_of(record, study)
    about, judged = results.study.about, results.judge()
    lines = [f"**{about.claim_id}, {judged.verdict}.** {about.claim}.", "", *_table(fitting(rows(results), MAX_WIDTH))]
    for table in about.tables(results.findings):
        lines += ["", f"{table.title}:", "", *_table(table.rows)]
    for chart in results.study.charts(results.findings):
        lines += ["", f"![{chart.title}](studies/{chart.name}.svg)"]
    lines += ["", *_table([["criterion, stated in advance", "by seed", "bounds", "outcome"], *_requirements(results)])]
    seconds = sum(cell.seconds for cell in results.cells.values())
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
        [one.requirement.says, by_seed(one), f"{one.requirement.bounds} ({one.requirement.because})", one.standing]
        for one in results.judge().outcomes
    ]


def _verdicts(records: Sequence[dict[str, Any]]) -> str:
    """Return the table of verdicts, with claims that do not hold first."""
    by_name = {record["study"]: results_of(record) for record in records}
    lines = []
    for name, sizes in STUDIES.items():
        verdict = by_name[name].judge().verdict if name in by_name else ""
        about = sizes["default"].about
        lines.append((ORDER.index(verdict), [f"[{name}](#{name})", about.claim_id, about.claim, verdict or "not run"]))
    ranked = [line for _, line in sorted(lines, key=lambda line: line[0])]
    return "\n".join(_table([["study", "", "claim", "verdict"], *ranked]))


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return a Markdown table; vertical bars inside cells are escaped."""
    heading, *body = [[cell.replace("|", "\\|") for cell in row] for row in rows]
    return [_line(heading), _line(["---"] * len(heading)), *map(_line, body)]


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
