"""Run studies at their default size and write docs/studies.md: `python -m benchmarks.studies [NAME ...]`.

Each study has a folder under runs/studies, where an interrupted run is resumed. After each study its raw numbers and
plots are copied to docs/studies/ and the page is updated.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.record import require_core
from benchmarks.results.__main__ import machine
from benchmarks.studies.page import DOCS, publish, write_page
from clearhead.study.registry import STUDIES, find

INTERRUPTED = (130, 143)


def main() -> int:
    """Run unfinished studies and update the page; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: all of {', '.join(STUDIES)}")
    parser.add_argument("--runs", type=Path, default=Path("runs/studies"), help="parent of the studies' folders")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: the study's)")
    parser.add_argument("--page-only", action="store_true", help="only write docs/studies.md from docs/studies/")
    arguments = parser.parse_args()
    require_core()
    studies = [] if arguments.page_only else [find(name) for name in arguments.names or STUDIES]
    failed = []
    for number, study in enumerate(studies):
        left = sum(each.minutes for each in studies[number:])
        print(f"{study.about.name}: {number + 1} of {len(studies)}, at most {left:.0f} minutes left", file=sys.stderr)
        code = run(study.about.name, arguments.runs / study.about.name, arguments.seeds)
        if code in INTERRUPTED:
            return code
        if code:
            failed.append(study.about.name)
            continue
        publish(arguments.runs / study.about.name, machine())
        write_page()
    write_page()
    print(f"wrote {DOCS / 'studies.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""), file=sys.stderr)
    return 1 if failed else 0


def run(name: str, folder: Path, seeds: int | None) -> int:
    """Run one study as a command, so that a failing study does not affect the others; return its exit code."""
    options = [] if seeds is None else ["--seeds", str(seeds)]
    command = [sys.executable, "-m", "clearhead", "study", name, "--out", str(folder), *options]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED[0])
