"""Atomic replacement of files and folders."""

import os
from pathlib import Path

import pytest

from clearhead.files import create_folder, replace_file, write_atomically
from tests.bundle.example_bundles import disk_full, names_in


def test_a_file_is_replaced_atomically(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, "älter")
    with pytest.raises(ZeroDivisionError), replace_file(path) as temporary:
        temporary.write_text("half")
        raise ZeroDivisionError
    monkeypatch.setattr(os, "fsync", lambda _: disk_full())
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert (path.read_bytes(), names_in(tmp_path)) == ("älter".encode(), {"state.json"})
    write_atomically(path, b"new")
    assert (path.read_bytes(), names_in(tmp_path)) == (b"new", {"state.json"})


def test_a_folder_is_created_atomically(tmp_path: Path) -> None:
    out = tmp_path / "out"
    with create_folder(out) as temporary:
        assert not list(temporary.iterdir())
        (temporary / "part").mkdir()
        (temporary / "part" / "file").write_text("made")
    with pytest.raises(FileExistsError), create_folder(out) as temporary:
        (temporary / "new").touch()
    with pytest.raises(KeyboardInterrupt), create_folder(out, overwrite=True) as temporary:
        raise KeyboardInterrupt
    assert names_in(out) == {"part"} and (out / "part" / "file").read_text() == "made"
    with create_folder(out, overwrite=True) as temporary:
        (temporary / "new").touch()
    assert names_in(out) == {"new"}
    assert names_in(tmp_path) == {"out"}
