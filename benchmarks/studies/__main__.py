"""`python -m benchmarks.studies [NAME ...]`: run studies at their default size, and write docs/studies.md.

Each has its own folder under runs/studies and goes on there if it was cut off. After each one its raw numbers and
pictures go to docs/studies/, and the page is written anew, so that it grows while the studies run.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.core import require_core
from benchmarks.results.__main__ import machine
from benchmarks.studies.page import DOCS, publish, write_page
from clearhead.study.registry import STUDIES, get_study

INTERRUPTED = (130, 143)


def main() -> int:
    """Runs what is missing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(STUDIES)}; none: all of them")
    parser.add_argument("--runs", type=Path, default=Path("runs/studies"), help="where their folders are")
    parser.add_argument("--seeds", type=int, help="more than the study's own")
    parser.add_argument("--page-only", action="store_true", help="only write docs/studies.md from docs/studies/")
    arguments = parser.parse_args()
    require_core()
    studies = [] if arguments.page_only else [get_study(name) for name in arguments.names or STUDIES]
    failed = []
    for number, study in enumerate(studies):
        left = sum(one.minutes for one in studies[number:])
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
    """One study as a user runs it, in a process of its own, so that one that breaks leaves the others alone."""
    more = [] if seeds is None else ["--seeds", str(seeds)]
    command = [sys.executable, "-m", "clearhead", "study", name, "--out", str(folder), *more]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED[0])
