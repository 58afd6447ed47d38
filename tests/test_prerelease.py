"""Folders of format 1, which only pre-release versions wrote: every command prints one sentence and exits with 2."""

import json
import shutil
from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.training.checkpoint.checkpoint import CheckpointFolder, _to_bytes
from tests.tasks.all_tasks import Models, write_files


@pytest.fixture
def old(models: Models, tmp_path: Path) -> Path:
    """Return the folder of a classifier whose files have the format number of a pre-release version."""
    folder = shutil.copytree(models["classify"], tmp_path / "old")
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps(manifest | {"format_version": 1}))
    found = CheckpointFolder.load(folder / "training")
    assert found and found.state
    state = found.state.model_copy(update={"format_version": 1, "is_finished": False})
    (folder / "training" / "state.json").write_bytes(_to_bytes(state))
    return folder


@pytest.mark.parametrize(
    "command", [["classify"], ["info"], ["evaluate", "{test}"], ["export", "--to", "onnx", "{out}"]]
)
def test_a_bundle(command: list[str], old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    verb, *options = (word.format(test=tmp_path / "none.tsv", out=tmp_path / "out") for word in command)
    assert main([verb, str(old), *options]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line == (
        f"clearhead: {old} was written by a pre-release version of clearhead (format 1; this version reads format 2); "
        "train the model again, or import it again"
    )


def test_a_training_that_was_interrupted(old: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_files(tmp_path, "classify")
    assert main(["train", str(data), "--task", "classify", "--out", str(old), "--resume"]) == 2
    line = capsys.readouterr().err.splitlines()[-1]
    assert "state.json was written by a pre-release version of clearhead (format 1; " in line
    assert line.endswith("; train again from the beginning with --overwrite")
