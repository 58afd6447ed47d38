"""Damaged folders: messages name the missing or changed file and what to do."""

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from clearhead import bundle
from clearhead.bundle import writer
from clearhead.errors import BundleError
from tests.bundle.example_bundles import number_in, save


def edit_manifest(folder: Path, **changes: object) -> None:
    path = folder / "manifest.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


def put_a_folder_at(path: Path) -> None:
    path.unlink()
    path.mkdir()


DAMAGES: list[tuple[str, Callable[[Path], object], str]] = [
    ("no folder", shutil.rmtree, r"there is no folder .*run.*clearhead train"),
    ("missing weights", lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors is missing"),
    ("missing tokenizer", lambda f: (f / "tokenizer.json").unlink(), r"tokenizer\.json is missing"),
    ("truncated", lambda f: os.truncate(f / "model.safetensors", 100), r"model\.safetensors .*\d bytes, found 100;"),
    ("flipped", lambda f: flip_a_bit(f / "model.safetensors"), r"model\.safetensors was changed.*[0-9a-f]{16}…, found"),
    ("edited", lambda f: flip_a_bit(f / "config.json"), r"config\.json was changed"),
    (
        "newer",
        lambda f: edit_manifest(f, format_version=7),
        r"newer version of clearhead \(format 7; .* format 2\); upgrade",
    ),
    (
        "pre-release",
        lambda f: edit_manifest(f, format_version=1),
        r"run was written by a pre-release version .*format 1; this version reads format 2\); train the model again, "
        "or import it again$",
    ),
    ("no version", lambda f: edit_manifest(f, format_version="1"), r"format_version of 1 or more, found '1'"),
    ("no record", lambda f: edit_manifest(f, files={}), r"no checksum for model\.safetensors"),
    ("wrong kind", lambda f: edit_manifest(f, weights_kind="worst"), r"weights_kind: .*'best'"),
    ("loose tie", lambda f: edit_manifest(f, tied={"a": "b"}), r"a is tied to b, which is not stored"),
    ("half a manifest", lambda f: os.truncate(f / "manifest.json", 40), r"manifest\.json is damaged: not valid JSON"),
    ("a list", lambda f: (f / "manifest.json").write_text("[]"), r"not a clearhead manifest"),
    ("a foreign checkpoint", lambda f: (f / "manifest.json").unlink(), r"another toolkit"),
    (
        "a folder for a file",
        lambda f: put_a_folder_at(f / "config.json"),
        r"cannot read .*config",
    ),
]


@pytest.mark.parametrize(("damage", "message"), [case[1:] for case in DAMAGES], ids=[case[0] for case in DAMAGES])
def test_damaged_files_are_named(tmp_path: Path, damage: Callable[[Path], object], message: str) -> None:
    save(tmp_path / "run", 2)
    damage(tmp_path / "run")
    with pytest.raises(BundleError, match=message) as caught:
        bundle.load(tmp_path / "run")
    assert "\n" not in str(caught.value)


def test_other_folders_get_specific_messages(tmp_path: Path) -> None:
    with pytest.raises(
        BundleError, match=r"expected model\.safetensors, config\.json, tokenizer\.json, manifest\.json"
    ):
        bundle.load(tmp_path)
    save(tmp_path / "de", 2)
    with pytest.raises(BundleError, match=f"did you mean {tmp_path / 'de'}"):
        bundle.load(tmp_path)
    (tmp_path / "metrics.jsonl").touch()
    with pytest.raises(BundleError, match="a training that has not saved a model yet"):
        bundle.load(tmp_path)
    with pytest.raises(BundleError, match="is a file"):
        bundle.load(tmp_path / "metrics.jsonl")
    assert bundle.exists(tmp_path / "de") and not bundle.exists(tmp_path) and not bundle.exists(tmp_path / "none")


def test_the_card_may_be_edited_or_removed(tmp_path: Path) -> None:
    save(tmp_path, 2)
    (tmp_path / "README.md").write_text("better")
    assert number_in(bundle.load(tmp_path)) == 2
    (tmp_path / "README.md").unlink()
    assert number_in(bundle.load(tmp_path)) == 2


def test_weights_in_another_format_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "save_file", lambda _, path: path.write_bytes(b"PK, a pickle"))
    save(tmp_path, 2)
    with pytest.raises(BundleError, match=r"model\.safetensors is not a safetensors file"):
        bundle.load(tmp_path)
