"""Speed and peak memory of training on a large corpus, from text to the first updates.

    PYTHONPATH=src python -m benchmarks.corpus_scale --pairs 10000000 --folder path/with/10/GB

Writes distinct pairs (two sentences of the built-in grammar each) and trains the preset tiny on them for a few
updates, in separate processes, and then once more with cached ids. The peak of a process is its resident memory,
including mapped files. The peak of all processes is sampled twice per second: the sum of the private pages of all
processes, plus the shared pages (libraries, mapped ids) of the process with the most shared pages.
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

from benchmarks.harness.record import require_core

BASE = 20_000  # sentences of the grammar; each pair consists of two
PRIME = 7919


def write_pairs(path: Path, count: int) -> None:
    """Write a TSV file of distinct pairs."""
    from clearhead.grammar import generate

    assert count < BASE * BASE
    examples = [(example.source, example.target) for example in generate(min(BASE, count), seed=1)]
    with path.open("w", encoding="utf-8") as file:
        for first, second in _pair_indices(len(examples), count):
            (source, target), (second_source, second_target) = examples[first], examples[second]
            file.write(f"{source} {second_source}\t{target} {second_target}\n")


def _pair_indices(base: int, count: int) -> Iterator[tuple[int, int]]:
    """Yield the indices of the two sentences of each pair; all pairs are distinct."""
    for number in range(count):
        offset, first = divmod(number, base)
        yield first, (first * PRIME + offset) % base


class StageRecorder:
    """Training callback that records start, end and peak memory of each stage."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.stages: dict[str, list[float]] = {}

    def record(self, stage: str, done: int) -> None:
        """Update a stage: start and end in seconds, finished items, and the peak memory of the process in MiB."""
        now, peak = time.monotonic() - self.start, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        measured = self.stages.setdefault(stage, [now, 0, 0, 0])
        measured[1:] = [now, done, peak]

    def work(self, what: str, done: int, total: int) -> None:
        self.record(what, done)

    def message(self, text: str) -> None:
        print(f"{time.monotonic() - self.start:8.1f} s  {text}", file=sys.stderr, flush=True)

    def progress(self, progress: object) -> None:
        self.record("training", getattr(progress, "step", 0))

    def validation(self, step: int, validation: object, is_best: bool) -> None:
        self.record("validation", step)


def train(path: Path, out: Path, steps: int, bpe_dropout: float) -> None:
    """Train on the pairs and print times and memory as JSON."""
    from clearhead.training.run import TrainRequest
    from clearhead.training.run import train as run

    recorder = StageRecorder()
    settings = {
        "training": {"steps": steps, "validate_lines": 20, "validate_every": steps},
        "data": {"deduplicate": True, "bpe_dropout": bpe_dropout, "validation_max": 500},
    }
    run(TrainRequest([path], out, preset="tiny", settings=settings, overwrite=True), recorder)
    usage = {name: resource.getrusage(scope).ru_maxrss / 1024
             for name, scope in (("main", resource.RUSAGE_SELF), ("worker", resource.RUSAGE_CHILDREN))}  # fmt: skip
    print(json.dumps({"seconds": time.monotonic() - recorder.start, "stages": recorder.stages, **usage}))


class MemoryMonitor:
    """Peak of the resident memory of a process and its descendants, sampled twice per second; Linux only."""

    def __init__(self, first: int) -> None:
        self.first, self.peak = first, 0.0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> "MemoryMonitor":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def _sample(self) -> None:
        while not self._ended.wait(0.5):
            sizes = [_memory_of(process) for process in _with_descendants(self.first)]
            self.peak = max(self.peak, sum(private for private, _ in sizes) + max(shared for _, shared in sizes))


def _with_descendants(first: int) -> list[int]:
    """Return the ids of a process and all its descendants."""
    processes = [first]
    for process in processes:
        with suppress(OSError):
            for file in Path(f"/proc/{process}/task").glob("*/children"):
                processes += map(int, file.read_text().split())
    return processes


def _memory_of(process: int) -> tuple[float, float]:
    """Return private and shared resident memory in MiB; zeros for a process that has ended."""
    with suppress(OSError):
        lines = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()[1:]
        sizes = {name: int(rest.split()[0]) / 1024 for name, _, rest in (line.partition(":") for line in lines)}
        if sizes:
            shared = sizes["Shared_Clean"] + sizes["Shared_Dirty"]
            return sizes["Rss"] - shared, shared
    return 0.0, 0.0


def run_monitored(command: list[str], environment: dict[str, str]) -> dict[str, object]:
    """Run a command and return its JSON output with the peak memory of all its processes."""
    with (
        subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process,
        MemoryMonitor(process.pid) as monitor,
    ):
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(process.returncode)
    return {**json.loads(output), "all": monitor.peak}


def report(name: str, measured: dict[str, object], pairs: int) -> str:
    """Return the measurements of a run as text."""
    lines = [f"{name}: {measured['seconds']:.0f} s for {pairs:,} pairs"]
    stages = measured["stages"]
    assert isinstance(stages, dict)
    for stage, (start, end, done, peak) in stages.items():
        speed = f"{done / max(1e-9, end - start):12,.0f} per second" if "pairs" in stage else ""
        lines.append(f"  {stage:28} from {start:6.1f} s to {end:6.1f} s {speed}  peak so far {peak:7,.0f} MiB")
    lines.append(
        f"  peak of the training process {measured['main']:,.0f} MiB, of the largest worker "
        f"{measured['worker']:,.0f} MiB, of all processes {measured['all']:,.0f} MiB"
    )
    return "\n".join(lines)


def main() -> None:
    """Run each part in a separate process, so that its memory is measured separately."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=10_000_000)
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--bpe-dropout", type=float, default=0.0)
    parser.add_argument("--part", choices=("write", "train"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    require_core()
    options.folder.mkdir(parents=True, exist_ok=True)
    path, out = options.folder / f"pairs-{options.pairs}.tsv", options.folder / "model"
    if options.part == "write":
        return write_pairs(path, options.pairs)
    if options.part == "train":
        return train(path, out, options.steps, options.bpe_dropout)
    environment = os.environ | {"XDG_CACHE_HOME": str(options.folder / "cache")}
    command = [sys.executable, "-m", "benchmarks.corpus_scale", *sys.argv[1:], "--part"]
    if not path.exists():
        subprocess.run([*command, "write"], check=True)
    print(f"{path}: {path.stat().st_size / 2**20:,.0f} MiB")
    for name in ("first", "again"):
        print(report(name, run_monitored([*command, "train"], environment), options.pairs), flush=True)
    cached = sum(file.stat().st_size for file in (options.folder / "cache").rglob("*") if file.is_file())
    print(f"cache on disk: {cached / 2**20:,.0f} MiB")
    return None


if __name__ == "__main__":
    main()
