"""A large corpus from text to the first updates: pairs a second of each stage, and the peak of resident memory.

    PYTHONPATH=src python -m benchmarks.corpus_scale --pairs 10000000 --folder path/with/10/GB

Writes that many different pairs (two sentences of the built-in grammar each), and trains the preset tiny on them for a
few updates, in processes of their own. Then once more, when the ids are there already. A peak is what the system counts
for a process, mapped files included. The peak of all processes together is looked at twice a second: the pages that
each has alone, and what it shares with others (libraries, mapped ids) once, of the process that shares most.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from benchmarks.core import require_core

BASE = 20_000  # sentences of the grammar, of which each pair joins two
PRIME = 7919


def write_pairs(path: Path, count: int) -> None:
    """A TSV of different pairs."""
    from clearhead.grammar import generate

    assert count < BASE * BASE
    examples = [(example.source, example.target) for example in generate(min(BASE, count), seed=1)]
    with path.open("w", encoding="utf-8") as file:
        for first, second in _joined(len(examples), count):
            (source, target), (more, translated) = examples[first], examples[second]
            file.write(f"{source} {more}\t{target} {translated}\n")


def _joined(base: int, count: int) -> Iterator[tuple[int, int]]:
    """Which two sentences each pair joins; never the same two."""
    for number in range(count):
        turn, first = divmod(number, base)
        yield first, (first * PRIME + turn) % base


class Clock:
    """A watcher that notes when each stage began and ended, and the peak of memory by then."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.stages: dict[str, list[float]] = {}

    def note(self, what: str, done: int) -> None:
        now, peak = time.monotonic() - self.began, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        first = self.stages.setdefault(what, [now, 0, 0, 0])
        first[1:] = [now, done, peak]

    def work(self, what: str, done: int, total: int) -> None:
        self.note(what, done)

    def message(self, text: str) -> None:
        print(f"{time.monotonic() - self.began:8.1f} s  {text}", file=sys.stderr, flush=True)

    def progress(self, progress: object) -> None:
        self.note("training", getattr(progress, "step", 0))

    def validation(self, step: int, validation: object, is_best: bool) -> None:
        self.note("validation", step)


def train(path: Path, out: Path, steps: int, bpe_dropout: float) -> None:
    """Trains on the pairs, and prints what it took as JSON."""
    from clearhead.training.run import TrainRequest
    from clearhead.training.run import train as run

    clock = Clock()
    settings = {
        "training": {"steps": steps, "validate_lines": 20, "validate_every": steps},
        "data": {"deduplicate": True, "bpe_dropout": bpe_dropout, "validation_max": 500},
    }
    run(TrainRequest([path], out, preset="tiny", settings=settings, overwrite=True), clock)
    usage = {name: resource.getrusage(who).ru_maxrss / 1024
             for name, who in (("this", resource.RUSAGE_SELF), ("workers", resource.RUSAGE_CHILDREN))}  # fmt: skip
    print(json.dumps({"seconds": time.monotonic() - clock.began, "stages": clock.stages, **usage}))


class Together:
    """Looks, twice a second, at the resident memory of a process and of all that it started; Linux only."""

    def __init__(self, first: int) -> None:
        self.first, self.peak = first, 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self) -> "Together":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _look(self) -> None:
        while not self._ended.wait(0.5):
            found = [_resident(process) for process in _family(self.first)]
            alone, shared = sum(own for own, _ in found), max(common for _, common in found)
            self.peak = max(self.peak, alone + shared)


def _family(first: int) -> list[int]:
    """A process and all that descend from it."""
    found = [first]
    for process in found:
        with suppress(OSError):
            for file in Path(f"/proc/{process}/task").glob("*/children"):
                found += map(int, file.read_text().split())
    return found


def _resident(process: int) -> tuple[float, float]:
    """MiB of memory that it has alone, and that it shares; none of a process that has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)}
        if sizes:
            shared = sizes["Shared_Clean"] + sizes["Shared_Dirty"]
            return sizes["Rss"] - shared, shared
    return 0.0, 0.0


def watched(command: list[str], environment: dict[str, str]) -> dict[str, object]:
    """Runs it, and gives what it says and the peak of all its processes together."""
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
        Together(process.pid) as together,
    ):
        said, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return {**json.loads(said), "together": together.peak}


def report(name: str, found: dict[str, object], pairs: int) -> str:
    """A few lines for people."""
    lines = [f"{name}: {found['seconds']:.0f} s for {pairs:,} pairs"]
    stages = found["stages"]
    assert isinstance(stages, dict)
    for what, (began, ended, done, peak) in stages.items():
        speed = f"{done / max(1e-9, ended - began):12,.0f} a second" if "pairs" in what else ""
        lines.append(f"  {what:28} from {began:6.1f} s to {ended:6.1f} s {speed}  peak so far {peak:7,.0f} MiB")
    lines.append(
        f"  peak of the training process {found['this']:,.0f} MiB, of the largest worker {found['workers']:,.0f} MiB, "
        f"of all together {found['together']:,.0f} MiB"
    )
    return "\n".join(lines)


def main() -> None:
    """Runs each part in a process of its own, so that none counts for another."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--bpe-dropout", type=float, default=0.0)
    parser.add_argument("--part", choices=("write", "train"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    require_core()
    given.folder.mkdir(parents=True, exist_ok=True)
    path, out = given.folder / f"pairs-{given.pairs}.tsv", given.folder / "model"
    if given.part == "write":
        return write_pairs(path, given.pairs)
    if given.part == "train":
        return train(path, out, given.steps, given.bpe_dropout)
    environment = os.environ | {"XDG_CACHE_HOME": str(given.folder / "cache")}
    command = [sys.executable, "-m", "benchmarks.corpus_scale", *sys.argv[1:], "--part"]
    if not path.exists():
        subprocess.run([*command, "write"], check=True)
    print(f"{path}: {path.stat().st_size / 2**20:,.0f} MiB")
    for name in ("first", "again"):
        print(report(name, watched([*command, "train"], environment), given.pairs), flush=True)
    kept = sum(file.stat().st_size for file in (given.folder / "cache").rglob("*") if file.is_file())
    print(f"kept on disk: {kept / 2**20:,.0f} MiB")
    return None


if __name__ == "__main__":
    main()
