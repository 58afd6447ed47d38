"""Allocator settings: memory stays in the process while a run lasts."""

import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from clearhead.training.loop import process_environment
from clearhead.training.loop.trainer import Trainer
from tests.training.runs import run, write_data

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="only glibc can be message")

PAGES_OF_FIVE = """
import resource, torch
from concurrent.futures import ThreadPoolExecutor
from clearhead.training.loop.process_environment import no_malloc_trim, use_single_arena

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(5):
        torch.ones(20_000_000)  # 80 MB, freed at once: more than glibc retains by default
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

use_single_arena()
torch.set_num_threads(1)
torch.ones(10)
before = pages()
with no_malloc_trim(), ThreadPoolExecutor(1) as pool:
    with no_malloc_trim():
        for _ in range(5):
            pages()  # small allocations between the large ones
            pool.submit(pages).result()
    inside = pages(), pool.submit(pages).result()
print(before, *inside)
"""


def test_memory_is_requested_once() -> None:
    done = subprocess.run([sys.executable, "-c", PAGES_OF_FIVE], capture_output=True, text=True, check=True)
    before, inside, in_a_thread = map(int, done.stdout.split())
    assert inside < before / 10 and in_a_thread < before / 10, (before, inside, in_a_thread)


@pytest.mark.parametrize(
    ("words", "is_memory"),
    [
        ("could not create a primitive", True),
        ("[enforce fail] DefaultCPUAllocator: can't allocate memory", True),
        ("could not create a primitive descriptor for the matmul primitive", False),
        ("a bug", False),
    ],
)
def test_messages_about_exhausted_memory_are_recognised(words: str, is_memory: bool) -> None:
    assert process_environment.is_out_of_memory(RuntimeError(words)) == is_memory
    assert process_environment.is_out_of_memory(MemoryError())


def test_an_arena_setting_in_the_environment_takes_precedence(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []
    monkeypatch.setattr(process_environment, "_mallopt", lambda option, value: calls.append((option, value)) or True)  # type: ignore[func-returns-value]
    for name in ("MALLOC_ARENA_MAX", "GLIBC_TUNABLES"):
        monkeypatch.delenv(name, raising=False)
    process_environment.use_single_arena()
    assert calls == [(process_environment._ARENA_MAX, 1)]
    for name, value in (("MALLOC_ARENA_MAX", "4"), ("GLIBC_TUNABLES", "glibc.malloc.arena_max=4")):
        monkeypatch.setenv(name, value)
        process_environment.use_single_arena()
        monkeypatch.delenv(name)
    assert len(calls) == 1


def test_an_older_glibc_gets_its_largest_threshold(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[int, int]] = []

    def older(option: int, value: int) -> bool:
        calls.append((option, value))
        return option != process_environment._MMAP_THRESHOLD or value <= 32 * 2**20

    monkeypatch.setattr(process_environment, "_mallopt", older)
    with process_environment.no_malloc_trim():
        assert calls[-1] == (process_environment._MMAP_THRESHOLD, 32 * 2**20)


def test_memory_is_kept_while_a_model_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    active_counts, update = [], Trainer._update

    def recording(self: Trainer, *arguments: Any) -> None:
        active_counts.append(process_environment._active)
        update(self, *arguments)

    monkeypatch.setattr(Trainer, "_update", recording)
    calls = []
    monkeypatch.setattr("clearhead.training.run.use_single_arena", lambda: calls.append(len(active_counts)))
    run("classify", write_data("classify", tmp_path), tmp_path / "out")
    assert calls == [0]  # before anything else
    assert set(active_counts) == {1} and process_environment._active == 0
