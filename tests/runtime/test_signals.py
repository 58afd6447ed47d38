"""Ctrl-C ends a long search; a fork after a search can search too."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

# The profiler's events show where the interrupt was raised: with `c_exception` by the core itself; without it the
# search had ended before, and Python raised the interrupt afterwards.
INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from clearhead.runtime import CoreSearch, _core
from tests.runtime.models import native, random_model
model = native(random_model(max_positions=1024, tied_embeddings="none"))
asked = CoreSearch(np.ones(1100, np.float32), end_id=3, start_id=2, beam_size=8, min_length=1000, threads=2)
prepared = _core.allocated_bytes()

def interrupt():
    while _core.allocated_bytes() == prepared:  # until the search has its caches
        time.sleep(0.001)
    os.kill(os.getpid(), signal.SIGINT)

events = []
def record(frame, event, called):
    if getattr(called, "__name__", "") == "search":
        events.append(event)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have it ignored
threading.Thread(target=interrupt, daemon=True).start()
sys.setprofile(record)
try:
    model.search([[5] * 900] * 500, [1000] * 500, asked)
    sys.setprofile(None)
except KeyboardInterrupt:
    sys.setprofile(None)
    print(*events, flush=True)
"""


def test_ctrl_c_ends_a_search_that_has_begun() -> None:
    """The signal is sent when the core has allocated the caches of the search."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "c_call c_exception\n"), done.stderr


FORKED = """
import os
import numpy as np
from clearhead.runtime import CoreSearch
from tests.runtime.models import native, random_model
model = native(random_model())
asked = CoreSearch(np.ones(65, np.float32), end_id=3, start_id=2, beam_size=4, threads=2)
def search():
    return model.search([[5, 6, 3]] * 40, [30] * 40, asked)
before = search()
child = os.fork()
if child == 0:
    os._exit(0 if search() == before else 7)
assert os.waitpid(child, 0)[1] == 0
"""


def test_a_forked_process_searches_too() -> None:
    done = subprocess.run([sys.executable, "-c", FORKED], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
