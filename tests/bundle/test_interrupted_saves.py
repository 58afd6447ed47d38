"""Saves that are interrupted at each step: the folder contains the old or the new bundle, completely."""

import errno
import itertools
import os
import warnings
from pathlib import Path

import pytest
import torch

from clearhead import bundle
from clearhead.bundle import writer
from clearhead.errors import BundleError
from tests.bundle.example_bundles import NAMES, Faults, disk_full, names_in, number_in, save

pytestmark = pytest.mark.forks


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from then on"])
@pytest.mark.parametrize("has_old", [False, True], ids=["first save", "second save"])
def test_an_error_at_any_step_leaves_a_complete_bundle(tmp_path: Path, has_old: bool, is_lasting: bool) -> None:
    errors = []
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        if has_old:
            save(folder, 2)
        with pytest.MonkeyPatch.context() as patch:
            hits = (lambda call, step=step: call >= step) if is_lasting else (lambda call, step=step: call == step)
            faults = Faults(patch, hits, disk_full)
            message = ""
            try:
                save(folder, 3)
            except BundleError as error:
                message = str(error)
                errors.append(message)
        if faults.calls < step:
            break
        assert "No space left" in message or (not is_lasting and step == 1)  # mkdir of an existing folder may fail
        if "cannot save" in message:
            assert ("unchanged" in message) == has_old
            assert number_in(bundle.load(folder)) == 2 if has_old else not bundle.exists(folder)
        else:
            assert number_in(bundle.load(folder)) == 3
        if not is_lasting and folder.exists():
            assert not [name for name in names_in(folder) if name.startswith(".incoming-")]
        save(folder, 4)
        assert number_in(bundle.load(folder)) == 4
        assert names_in(folder) == NAMES
    assert step > 20
    assert {"cannot save" in error for error in errors} == {True, False}  # before and after the commit


def test_a_crash_at_any_step_leaves_the_old_or_the_new_bundle(tmp_path: Path) -> None:
    numbers = []
    for step in itertools.count(1):
        folder = tmp_path / str(step)
        save(folder, 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # Python 3.12 warns about forks of threaded processes
            child = os.fork()
        if child == 0:
            Faults(pytest.MonkeyPatch(), lambda call, step=step: call == step, lambda: os._exit(9))  # type: ignore[misc]
            save(folder, 3)
            os._exit(0)
        exit_code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        numbers.append(number_in(bundle.load(folder)))
        assert bundle.read_manifest(folder).training["steps"] == numbers[-1]
        save(folder, 4)
        assert number_in(bundle.load(folder)) == 4
        assert names_in(folder) == NAMES  # the leftovers of the dead process are removed
        if exit_code == 0:
            break
        assert exit_code == 9
    assert numbers == sorted(numbers)  # old before the commit, new after it
    assert numbers.count(2) > 10 and numbers.count(3) > 5


def interrupt(folder: Path, old: int, new: int) -> None:
    """Leave the folder in the state of a crash between two moves."""
    save(folder / "aside", new)
    save(folder, old)
    (folder / "aside").rename(folder / ".commit")
    (folder / ".commit" / "model.safetensors").replace(folder / "model.safetensors")


def test_an_interrupted_save_is_read_without_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    interrupt(tmp_path, old=2, new=3)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}

    def refuse() -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    Faults(monkeypatch, lambda _: True, refuse)
    assert number_in(bundle.load(tmp_path)) == 3
    assert bundle.exists(tmp_path)
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before


def test_the_next_save_completes_an_interrupted_one_first(tmp_path: Path) -> None:
    interrupt(tmp_path, old=2, new=3)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writer, "save_file", lambda *_: disk_full())
        with pytest.raises(BundleError, match="the previously saved model is unchanged"):
            save(tmp_path, 4)
    assert names_in(tmp_path) == NAMES
    assert number_in(bundle.load(tmp_path)) == 3


def test_only_the_leftovers_of_dead_processes_are_removed(tmp_path: Path) -> None:
    dead, alive, unknown = (tmp_path / f".incoming-{name}" for name in (f"{2**22 + 1}-ab", f"{os.getppid()}-ab", "x"))
    for leftover in (dead, alive, unknown):
        leftover.mkdir()
        (leftover / "model.safetensors").touch()
    save(tmp_path, 2)
    assert names_in(tmp_path) == NAMES | {alive.name, unknown.name}


def test_a_full_disk_keeps_the_old_bundle(tmp_path: Path) -> None:
    resource = pytest.importorskip("resource")
    save(tmp_path, 2)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))  # a real error inside the writer of safetensors
    try:
        with pytest.raises(BundleError, match=r"cannot save the model in .*File too large.*unchanged"):
            save(tmp_path, 3, weights={"encoder": torch.zeros(101, 1009)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert number_in(bundle.load(tmp_path)) == 2
    assert names_in(tmp_path) == NAMES


def test_ctrl_c_leaves_no_temporary_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(writer, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save(tmp_path / "run", 2)
    assert not (tmp_path / "run").exists()


def test_everything_is_synced_before_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new bundle is synced before the commit, and the commit before the first move: a power failure keeps both."""
    synced: set[int] = set()
    fsync, rename, replace = os.fsync, os.rename, os.replace
    moves = []

    def watched_fsync(handle: int) -> None:
        synced.add(os.fstat(handle).st_ino)
        fsync(handle)

    def watched_rename(source: Path, target: Path) -> None:
        assert target == tmp_path / ".commit"
        assert {path.stat().st_ino for path in (source, *source.iterdir())} <= synced
        assert len(list(source.iterdir())) == len(NAMES)
        synced.clear()
        rename(source, target)

    def watched_replace(source: Path, target: Path) -> None:
        assert tmp_path.stat().st_ino in synced
        moves.append(target.name)
        replace(source, target)

    monkeypatch.setattr(os, "fsync", watched_fsync)
    monkeypatch.setattr(os, "rename", watched_rename)
    monkeypatch.setattr(os, "replace", watched_replace)
    save(tmp_path, 2)
    assert set(moves) == NAMES and moves[-1] == "manifest.json"
