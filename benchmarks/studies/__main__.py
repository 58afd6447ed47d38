"""`python -m benchmarks.studies [NAME ...]`: run studies at their default size and write docs/studies.md.

Each study has its own folder under runs/studies and resumes there after an interruption. After each study, its results
and figures are copied to docs/studies/ and the page is updated.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.harness.record import require_core
from benchmarks.results.__main__ import machine
from benchmarks.studies.page import DOCS, publish, write_page
from clearhead.study.registry import STUDIES, get_study

INTERRUPTED = (130, 143)


def main() -> int:
    """Run the unfinished studies, publish their results and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"studies to run (default: all): {', '.join(STUDIES)}")
    parser.add_argument("--runs", type=Path, default=Path("runs/studies"), help="parent folder of the study folders")
    parser.add_argument("--seeds", type=int, help="number of seeds (default: chosen by each study)")
    parser.add_argument("--page-only", action="store_true", help="only write docs/studies.md from docs/studies/")
    arguments = parser.parse_args()
    require_core()
    studies = [] if arguments.page_only else [get_study(name) for name in arguments.names or STUDIES]
    failed = []
    for index, study in enumerate(studies):
        name, minutes = study.info.name, sum(remaining.minutes for remaining in studies[index:])
        print(f"{name}: {index + 1} of {len(studies)}, at most {minutes:.0f} minutes left", file=sys.stderr)
        exit_code = run(name, arguments.runs / name, arguments.seeds)
        if exit_code in INTERRUPTED:
            return exit_code
        if exit_code:
            failed.append(name)
            continue
        publish(arguments.runs / name, machine())
        write_page()
    write_page()
    print(f"wrote {DOCS / 'studies.md'}" + (f"; failed: {', '.join(failed)}" if failed else ""), file=sys.stderr)
    return 1 if failed else 0


def run(name: str, folder: Path, seeds: int | None) -> int:
    """Run one study through the command line, so that a crash does not affect the others, and return its exit code."""
    options = [] if seeds is None else ["--seeds", str(seeds)]
    command = [sys.executable, "-m", "clearhead", "study", name, "--out", str(folder), *options]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED[0])
