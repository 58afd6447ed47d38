"""Benchmark of large corpora on small data: distinct pairs, and a report of times and memory."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.corpus_scale import MemoryMonitor, StageRecorder, _pair_indices, report, write_pairs

from clearhead.data.readers.pairs import load_pairs


def test_pairs_are_distinct(tmp_path: Path) -> None:
    assert len(set(_pair_indices(7, 49))) == 49
    write_pairs(tmp_path / "pairs.tsv", 90)
    corpus = load_pairs([tmp_path / "pairs.tsv"], deduplicate=True)
    assert len(corpus.records) == 90 and not corpus.skips.total


def test_the_report_has_speed_and_memory() -> None:
    recorder = StageRecorder()
    recorder.work("reading pairs", 500, 0)
    recorder.work("reading pairs", 1000, 0)
    assert recorder.stages["reading pairs"][2] == 1000 and recorder.stages["reading pairs"][3] > 10
    measured = {"seconds": 7.0, "stages": {"reading pairs": [1.0, 3.0, 1000, 55.0]}, "main": 99.0, "worker": 44.0}
    measured["all"] = 120.0
    lines = report("first", measured, 1000).splitlines()
    assert lines[0] == "first: 7 s for 1,000 pairs" and "500 per second" in lines[1] and "55 MiB" in lines[1]
    assert lines[2].endswith(
        "peak of the training process 99 MiB, of the largest worker 44 MiB, of all processes 120 MiB"
    )


def test_memory_of_descendants_is_included() -> None:
    allocate = "import time; allocated = bytearray(b'x') * (90 << 20); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {allocate!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], start_new_session=True) as process:
        try:
            with MemoryMonitor(process.pid) as monitor:
                end = time.monotonic() + 50
                while monitor.peak < 90 and time.monotonic() < end:
                    time.sleep(0.2)
            assert 90 <= monitor.peak < 150
        finally:
            os.killpg(process.pid, signal.SIGKILL)
