"""Ctrl-C ends a long search; a fork after a search can search too."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

INTERRUPTED = """
import signal
import numpy as np
from clearhead.runtime import CoreSearch
from tests.runtime.models import native, random_model
model = native(random_model(max_positions=1024, tied_embeddings="none"))
asked = CoreSearch(np.ones(1100, np.float32), end_id=3, start_id=2, beam_size=8, min_length=1000, threads=2)
signal.signal(signal.SIGALRM, signal.default_int_handler)  # as Ctrl-C does
signal.setitimer(signal.ITIMER_REAL, 0.5)
try:
    model.search([[5] * 900] * 5000, [1000] * 5000, asked)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_search_that_would_take_minutes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED], cwd=ROOT, capture_output=True, text=True, check=False, timeout=100
    )
    assert (done.returncode, done.stdout) == (0, "interrupted\n"), done.stderr


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
