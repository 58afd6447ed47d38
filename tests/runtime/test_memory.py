"""Calls that need more memory than the system gives raise MemoryError, and the model works afterwards."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import resource
import threading
from pathlib import Path

import numpy as np
from clearhead.runtime import CoreSearch, _core
from tests.runtime.models import native, random_model

model = native(random_model(max_positions=1024, vocab_size=1009))
sources = [[5, 6, 7, 3]] * 40
small = CoreSearch(np.ones(1025, np.float32), end_id=3, start_id=2, beam_size=4, threads=2)
huge = CoreSearch(np.ones(1025, np.float32), end_id=3, start_id=2, beam_size=4096, min_length=99, threads=2)

def search(settings, limit):
    return model.search(sources, [limit] * len(sources), settings)

expected = search(small, 9)
pages = int(Path("/proc/self/statm").read_text().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (600 << 20),) * 2)
for attempt in range(3):
    try:
        search(huge, 99)
        raise SystemExit("a search without enough memory ended normally")
    except MemoryError:
        print("MemoryError")
    thread = threading.Thread(target=lambda: print(search(small, 9) == expected))  # not without the GIL
    thread.start()
    thread.join()
print(search(small, 9) == expected)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS limits memory on Linux only")
def test_memory_that_is_refused_is_an_exception() -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"exit code {done.returncode}: {done.stderr[-2000:]}"
    assert done.stdout.split() == ["MemoryError", "True"] * 3 + ["True"]
