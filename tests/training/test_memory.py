"""Memory between updates: kept while a run lasts."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clearhead.training import memory
from clearhead.training.trainer import Trainer
from tests.training.runs import run, write_data

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be told")

PAGES_OF_FIVE = """
import resource, torch
from clearhead.training.memory import kept_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(20_000_000)  # 80 MB, freed at once: more than glibc ever keeps by itself
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

torch.set_num_threads(1)
torch.ones(10)
before = pages()
with kept_memory():
    with kept_memory():
        for _ in range(5):
            pages()  # small things find their places between the large ones
    inside = pages()
print(before, inside)
"""


def test_memory_is_asked_for_once_inside() -> None:
    done = subprocess.run([sys.executable, "-c", PAGES_OF_FIVE], capture_output=True, text=True, check=True)
    before, inside = map(int, done.stdout.split())
    assert inside < before / 10, (before, inside)


def test_it_is_kept_while_a_model_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen, update = [], Trainer._update

    def noting(self: Trainer, *given: Any) -> None:
        seen.append(memory._inside)
        update(self, *given)

    monkeypatch.setattr(Trainer, "_update", noting)
    run("classify", write_data("classify", tmp_path), tmp_path / "out")
    assert set(seen) == {1} and memory._inside == 0
