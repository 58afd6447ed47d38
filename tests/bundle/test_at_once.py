"""Several that save and load at once."""

import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from safetensors.torch import load_file
from torch import Tensor

from clearhead import bundle
from clearhead.bundle import reading
from clearhead.errors import BundleError
from tests.bundle.saving import NAMES, names_in, number_in, save


def in_threads(*bodies: Callable[[], None]) -> None:
    """Run all at once; what one raises is raised here."""
    errors: list[BaseException] = []

    def guarded(body: Callable[[], None]) -> None:
        try:
            body()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=guarded, args=(body,)) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def test_a_reader_always_finds_a_whole_bundle_during_saves(tmp_path: Path) -> None:
    save(tmp_path, 0)
    numbers = []
    is_done = threading.Event()

    def write() -> None:
        for number in range(1, 51):
            save(tmp_path, number)
        is_done.set()

    def read() -> None:
        while not is_done.is_set():
            numbers.append(number_in(bundle.load(tmp_path)))

    in_threads(write, read, read)
    assert len(set(numbers)) > 5  # the reader did look in between
    assert number_in(bundle.load(tmp_path)) == 50


@pytest.mark.parametrize("is_found", [True, False], ids=["replaced", "gone"])
def test_weights_replaced_while_they_are_mapped_are_read_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_found: bool
) -> None:
    save(tmp_path, 2)
    calls = []

    def load_file_late(path: Path) -> dict[str, Tensor]:
        calls.append(path)
        if len(calls) == 1:
            save(tmp_path, 3)
            if not is_found:
                raise RuntimeError("unable to open file")  # what torch says when the file was moved
        return load_file(path)

    monkeypatch.setattr(reading, "load_file", load_file_late)
    assert number_in(bundle.load(tmp_path)) == 3
    assert len(calls) == 2


def test_a_folder_that_never_rests_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 2)

    def load_moved(path: Path) -> dict[str, Tensor]:
        save(tmp_path, 3)
        return load_file(path)

    monkeypatch.setattr(reading, "load_file", load_moved)
    monkeypatch.setattr(reading, "_PAUSE", 0)
    with pytest.raises(BundleError, match="changed 50 times while it was being read"):
        bundle.load(tmp_path)


def test_two_that_save_into_one_folder_do_not_break_it(tmp_path: Path) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 15):
            save(tmp_path, number)
            assert number_in(bundle.load(tmp_path)) >= 0

    in_threads(lambda: write(100), lambda: write(200))
    assert number_in(bundle.load(tmp_path)) in (114, 214)
    assert names_in(tmp_path) == NAMES
