"""The benchmark of large corpora, in miniature: its pairs are different ones, and its report says what was noted."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.corpus_scale import Clock, Together, _joined, report, write_pairs

from clearhead.data.readers.pairs import load_pairs


def test_all_pairs_are_different(tmp_path: Path) -> None:
    assert len(set(_joined(7, 49))) == 49
    write_pairs(tmp_path / "pairs.tsv", 90)
    corpus = load_pairs([tmp_path / "pairs.tsv"], deduplicate=True)
    assert len(corpus.records) == 90 and not corpus.skips.total


def test_the_report_has_speed_and_memory() -> None:
    clock = Clock()
    clock.work("reading pairs", 500, 0)
    clock.work("reading pairs", 1000, 0)
    assert clock.stages["reading pairs"][2] == 1000 and clock.stages["reading pairs"][3] > 10
    found = {"seconds": 7.0, "stages": {"reading pairs": [1.0, 3.0, 1000, 55.0]}, "this": 99.0, "workers": 44.0}
    found["together"] = 120.0
    lines = report("first", found, 1000).splitlines()
    assert lines[0] == "first: 7 s for 1,000 pairs" and "500 a second" in lines[1] and "55 MiB" in lines[1]
    assert lines[2].endswith(
        "peak of the training process 99 MiB, of the largest worker 44 MiB, of all together 120 MiB"
    )


def test_memory_of_a_family_of_processes_is_seen_whole() -> None:
    hungry = "import time; held = bytearray(b'x') * (90 << 20); time.sleep(60)"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hungry!r}])"
    with subprocess.Popen([sys.executable, "-c", parent], start_new_session=True) as process:
        try:
            with Together(process.pid) as together:
                end = time.monotonic() + 50
                while together.peak < 90 and time.monotonic() < end:
                    time.sleep(0.2)
            assert 90 <= together.peak < 150
        finally:
            os.killpg(process.pid, signal.SIGKILL)
