"""Several processes and threads save and load the same folder."""

import threading
from collections.abc import Callable
from io import BufferedReader
from pathlib import Path

import pytest

from clearhead import bundle
from clearhead.bundle import manifest, reader
from clearhead.bundle.manifest import WEIGHTS
from clearhead.errors import BundleError
from tests.bundle.example_bundles import NAMES, names_in, number_in, save


def in_threads(*bodies: Callable[[], None]) -> None:
    """Run all actions in parallel threads and raise their exceptions."""
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


def test_a_reader_always_finds_a_complete_bundle_during_saves(tmp_path: Path) -> None:
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
    assert len(set(numbers)) > 5  # bundles of several saves were read
    assert number_in(bundle.load(tmp_path)) == 50


def saving_at_weights(folder: Path, times: int, is_before: bool) -> Callable[[Path, str], BufferedReader]:
    """Return an `open_file` that saves another bundle before or after it opens the weights, `times` times."""
    remaining = [times]

    def open_file(path: Path, name: str) -> BufferedReader:
        is_due = name == WEIGHTS and remaining[0] > 0
        remaining[0] -= is_due
        if is_due and is_before:
            save(folder, 3 + remaining[0])
        file = manifest.open_file(path, name)
        if is_due and not is_before:
            save(folder, 3 + remaining[0])
        return file

    return open_file


@pytest.mark.parametrize(("is_before", "number"), [(True, 3), (False, 2)], ids=["before", "after"])
def test_weights_replaced_while_a_bundle_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_before: bool, number: int
) -> None:
    save(tmp_path, 2)
    monkeypatch.setattr(reader, "open_file", saving_at_weights(tmp_path, 1, is_before))
    assert number_in(bundle.load(tmp_path)) == number


def test_reading_a_constantly_changing_folder_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 2)
    monkeypatch.setattr(reader, "open_file", saving_at_weights(tmp_path, 50, is_before=True))
    monkeypatch.setattr(reader, "_PAUSE_SECONDS", 0)
    with pytest.raises(BundleError, match="changed 50 times while it was being read"):
        bundle.load(tmp_path)


def test_concurrent_saves_leave_a_complete_bundle(tmp_path: Path) -> None:
    def write(first: int) -> None:
        for number in range(first, first + 15):
            save(tmp_path, number)
            assert number_in(bundle.load(tmp_path)) >= 0

    in_threads(lambda: write(100), lambda: write(200))
    assert number_in(bundle.load(tmp_path)) in (114, 214)
    assert names_in(tmp_path) == NAMES
