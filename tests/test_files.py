"""Single files are replaced whole or not at all."""

import os
from pathlib import Path

import pytest

from clearhead.files import replacing, write_atomically
from tests.bundle.saving import disk_full, names_in


def test_one_file_is_replaced_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    write_atomically(path, "älter")
    with pytest.raises(ZeroDivisionError), replacing(path) as aside:
        aside.write_text("half")
        raise ZeroDivisionError
    monkeypatch.setattr(os, "fsync", lambda _: disk_full())
    with pytest.raises(OSError, match="No space"):
        write_atomically(path, b"new")
    monkeypatch.undo()
    assert (path.read_bytes(), names_in(tmp_path)) == ("älter".encode(), {"state.json"})
    write_atomically(path, b"new")
    assert (path.read_bytes(), names_in(tmp_path)) == (b"new", {"state.json"})
