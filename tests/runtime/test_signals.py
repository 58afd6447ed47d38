"""Ctrl-C ends a long search; a process ends during a search; a fork after a search can search too."""

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

# The profiler's events show where the interrupt was raised: with `c_exception` by the core itself; without it the
# search had ended before, and Python raised the interrupt afterwards.
INTERRUPTED = """
import os, signal, sys, threading, time
import numpy as np
from clearhead.runtime import CoreSearch, _core
from tests.runtime.models import native, random_model
model = native(random_model(max_positions=1024, tied_embeddings="none"))
penalties, threads = np.ones(1100, np.float32), int(sys.argv[2])
asked = CoreSearch(penalties, end_id=3, start_id=2, beam_size=8, min_length=1000, threads=threads)
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
    count = int(sys.argv[1])
    model.search([[5] * 900] * count, [1000] * count, asked)
    sys.setprofile(None)
except KeyboardInterrupt:
    sys.setprofile(None)
    print(*events, flush=True)
"""


@pytest.mark.parametrize(("sentences", "threads"), [(500, 2), (20, 8)])
def test_ctrl_c_ends_a_search_that_has_begun(sentences: int, threads: int) -> None:
    """The signal is sent when the core has allocated the caches of the search."""
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(sentences), str(threads)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, "c_call c_exception\n"), done.stderr


LONG = """
import signal
import numpy as np
from clearhead.runtime import CoreSearch
from tests.runtime.models import native, random_model
signal.signal(signal.SIGINT, signal.default_int_handler)
model = native(random_model(max_positions=1024, vocab_size=8009, model_dim=256, feed_forward_dim=1024, num_heads=4))
asked = CoreSearch(np.ones(1100, np.float32), end_id=3, start_id=2, beam_size=8, min_length=1000, threads=2)
print("begins", flush=True)
model.search([[5] * 900] * 500, [1000] * 500, asked)
"""


@pytest.mark.slow
def test_ctrl_c_ends_a_process() -> None:
    """The whole search takes minutes; after the signal the process ends long before."""
    program = [sys.executable, "-c", LONG]
    with subprocess.Popen(program, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None and process.stdout.readline() == b"begins\n"
            time.sleep(3)
            assert process.poll() is None, "the search has ended already"
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == -signal.SIGINT and said.endswith(b"KeyboardInterrupt\n"), said


# A timer sends a signal every 10 ms. Python calls the handler when the core looks for signals; the 20th call raises.
POLLED = """
import signal, time
import numpy as np
from clearhead.runtime import CoreSearch
from tests.runtime.models import native, random_model
model = native(random_model(max_positions=1024, vocab_size=8009, model_dim=256, feed_forward_dim=1024, num_heads=4))
asked = CoreSearch(np.ones(1100, np.float32), end_id=3, start_id=2, beam_size=8, min_length=1000, threads=2)
seconds = []

def look(*_):
    seconds.append(time.thread_time())
    if len(seconds) == 20:
        signal.setitimer(signal.ITIMER_REAL, 0)  # one more signal may have come
        raise KeyboardInterrupt

signal.signal(signal.SIGALRM, look)
signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
try:
    model.search([[5] * 900] * 500, [1000] * 500, asked)
except KeyboardInterrupt:
    print(*np.diff(seconds)[:19])
"""


def test_a_search_checks_for_signals_several_times_per_second() -> None:
    """The intervals are CPU seconds of the calling thread, so other processes do not affect them."""
    done = subprocess.run(
        [sys.executable, "-c", POLLED], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    seconds = [*map(float, done.stdout.split())]
    assert len(seconds) == 19 and max(seconds) < 0.5


SAMPLED = """
import os, signal, threading
from clearhead.config import DecodingConfig
from clearhead.decoding.requests import Request
from clearhead.engines.native_engine import NativeEngine
from clearhead.engines.torch_engine import TorchEngine
from clearhead.runtime import NativeModel
from tests.runtime.models import native, random_model
import sys, torch

torch.set_num_threads(1)
network = random_model(max_positions=1024)
steps = [0]
def counted(step):
    def run(*arguments, **options):
        steps[0] += 1
        if steps[0] == 20:
            os.kill(os.getpid(), signal.SIGINT)
        return step(*arguments, **options)
    return run

if sys.argv[1] == "native":
    NativeModel.step = counted(NativeModel.step)
    engine = NativeEngine(native(network), threads=2)
else:
    type(network).step = counted(type(network).step)
    engine = TorchEngine(network, 3, 0, 107, 1024, threads=2)
signal.signal(signal.SIGINT, signal.default_int_handler)
requests = [Request((5, 6, 3)) for _ in range(400)]
try:
    engine.run(requests, DecodingConfig(method="sample", max_length="900", min_length=900))
except KeyboardInterrupt:
    print(steps[0] < 2000, flush=True)
"""


@pytest.mark.parametrize("engine", ["native", "torch"])
def test_ctrl_c_ends_a_search_outside_of_the_core(engine: str) -> None:
    """Without the interrupt there are 4,500 steps or more."""
    done = subprocess.run(
        [sys.executable, "-c", SAMPLED, engine], cwd=ROOT, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


# The interpreter ends while a daemon thread is in the core. It then deletes the attributes of modules, when such
# threads may no longer take the interpreter lock; the destructor of `Last` releases the lock that the thread waits for.
ENDING = """
import os, sys, threading, time
import numpy as np
from clearhead.runtime import CoreSearch, _core
from tests.runtime.models import native, random_model
model = native(random_model(max_positions=1024))
asked = CoreSearch(np.ones(1100, np.float32), end_id=3, start_id=2, beam_size=8, min_length=1000)
count, length = int(sys.argv[1]), int(sys.argv[2])
prepared = _core.allocated_bytes()

def run():
    while True:
        model.search([[5] * 90] * count, [length] * count, asked)

class Last:
    def __del__(self, sleep=time.sleep, write=os.write):
        sleep(0.5)
        write(1, b"deleted")

sys.last = Last()
threading.Thread(target=run, daemon=True).start()
while _core.allocated_bytes() == prepared:  # until the search has its caches
    time.sleep(0.001)
"""


@pytest.mark.parametrize(("sentences", "length"), [(500, 1000), (1, 30)], ids=["a long search", "many short searches"])
def test_a_process_ends_while_a_daemon_thread_searches(sentences: int, length: int) -> None:
    """The thread requests the interpreter lock to check for signals, or because a search has ended."""
    done = subprocess.run(
        [sys.executable, "-c", ENDING, str(sentences), str(length)],
        cwd=ROOT, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "deleted", "")


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
