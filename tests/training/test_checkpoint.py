"""Checkpoints on disk: complete at any moment, whatever fails, and refused if they are damaged."""

import itertools
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from clearhead.errors import BundleError, TrainingError
from clearhead.tasks.trainable.task import Validation
from clearhead.training.checkpoint import checkpoint
from clearhead.training.checkpoint.checkpoint import CheckpointFolder, RunOrigin
from clearhead.training.loop.train_state import TrainState
from tests.faults import Faults, disk_full, end_of, fork

pytestmark = pytest.mark.forks

ORIGIN = RunOrigin(
    config={"task": "translate"}, data={"records": 7}, pretrained="", threads=1, torch="2", started="then"
)
CALLS = ("fsync", "rename", "replace", "chmod", "unlink")


def save(folder: CheckpointFolder, step: int, average: int = 2) -> None:
    """Save a state in which every tensor contains its step."""
    best = Validation(float("inf"), 0.1 + 0.2, "bleu", "exact", ("a", "b\n", "ü"))
    state = TrainState(step=step, epoch=step // 3, batch=step % 3, best=best, best_step=2, loss=float("nan"))
    folder.save(ORIGIN, state, {"w": torch.full((5, 7), float(step))}, {"w:step": torch.tensor(float(step))},
                average=average, metrics_bytes=step)  # fmt: skip


def new_folder(path: Path) -> CheckpointFolder:
    path.mkdir(parents=True)
    folder = CheckpointFolder(path)
    folder.save_tokenizer('{"a tokenizer": 1}')
    return folder


def saved_step(path: Path) -> int:
    """Return the step of the saved state after checking that all files belong to that step."""
    restored = CheckpointFolder.load(path)
    assert restored and restored.state
    step = restored.state.train_state.step
    assert torch.equal(restored.load_tensors(restored.state.weights)["w"], torch.full((5, 7), float(step)))
    assert restored.load_tensors(restored.state.optimizer)["w:step"].item() == step == restored.state.metrics_bytes
    assert restored.load_tokenizer() == '{"a tokenizer": 1}'
    return step


def names_in(path: Path) -> set[str]:
    return {file.name for file in path.iterdir()}


def test_a_state_is_loaded_unchanged(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "t")
    save(folder, 5)
    assert saved_step(tmp_path / "t") == 5
    restored = CheckpointFolder.load(tmp_path / "t")
    assert restored and restored.state and folder.state
    assert restored.state.origin == ORIGIN
    assert restored.state.train_state.best == folder.state.train_state.best  # the infinite loss and the last digit too
    assert CheckpointFolder.load(tmp_path / "none") is None


def test_a_state_before_the_first_update_has_no_optimizer_tensors(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "t")
    folder.save(ORIGIN, TrainState(), {"w": torch.ones(3)}, {})
    restored = CheckpointFolder.load(tmp_path / "t")
    assert restored and restored.state and restored.load_tensors(restored.state.optimizer) == {}


def test_unneeded_files_are_removed(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "t")
    folder.save_best(1, {"w": torch.ones(3)})
    for step in (1, 2, 3):
        save(folder, step)
    save(folder, 4, average=0)  # not a checkpoint: the weights are saved to resume, but not averaged
    numbers = {"state.json", "tokenizer.json", "weights-00000001.safetensors", "optimizer-00000004.safetensors"}
    assert names_in(tmp_path / "t") == numbers | {f"weights-0000000{step}.safetensors" for step in (2, 3, 4)}
    assert folder.checkpoints == ("weights-00000002.safetensors", "weights-00000003.safetensors")
    save(folder, 5)
    assert folder.checkpoints == ("weights-00000003.safetensors", "weights-00000005.safetensors")
    assert "weights-00000004.safetensors" not in names_in(tmp_path / "t")


@pytest.mark.parametrize("is_lasting", [False, True], ids=["once", "from then on"])
def test_an_error_at_any_step_of_a_save_leaves_a_complete_state(tmp_path: Path, is_lasting: bool) -> None:
    steps = []
    for step in itertools.count(1):
        folder = new_folder(tmp_path / str(step))
        save(folder, 2)
        before = names_in(folder.folder)
        with pytest.MonkeyPatch.context() as patch:
            hits = (lambda call, step=step: call >= step) if is_lasting else (lambda call, step=step: call == step)
            faults = Faults(patch, hits, disk_full, checkpoint, CALLS[:-1])
            try:
                save(folder, 3)
            except TrainingError as error:
                assert "No space left on device; the state of step" in str(error) and "--resume" in str(error)
        steps.append(saved_step(folder.folder))
        if steps[-1] == 2:
            assert names_in(folder.folder) == before  # no temporary file, and none of the new state
        save(folder, 4)
        assert saved_step(folder.folder) == 4
        assert not [name for name in names_in(folder.folder) if name.startswith(".")]
        if faults.calls < step:
            break
    assert steps.count(2) > 10 and steps[-1] == 3
    assert is_lasting or steps == sorted(steps)


def test_a_crash_at_any_step_of_a_save_leaves_the_old_state_or_the_new(tmp_path: Path) -> None:
    steps = []
    for step in itertools.count(1):
        folder = new_folder(tmp_path / str(step))
        save(folder, 2)

        def crash(step: int = step, folder: CheckpointFolder = folder) -> None:
            Faults(pytest.MonkeyPatch(), lambda call: call == step, lambda: os._exit(9), checkpoint, CALLS)
            save(folder, 3, average=1)

        code = end_of(fork(crash))
        steps.append(saved_step(folder.folder))
        again = CheckpointFolder.load(folder.folder)
        assert again
        save(again, 4, average=1)
        assert saved_step(folder.folder) == 4
        left = {"state.json", "tokenizer.json", "weights-00000004.safetensors", "optimizer-00000004.safetensors"}
        assert names_in(folder.folder) == left  # the files of the dead process are deleted
        if code == 0:
            break
        assert code == 9
    assert steps == sorted(steps)  # the old state up to one moment, the new one afterwards
    assert steps.count(2) > 10 and steps.count(3) > 2


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


@pytest.mark.parametrize(
    "name", ["state.json", "tokenizer.json", "weights-00000002.safetensors", "optimizer-00000003.safetensors"]
)
@pytest.mark.parametrize("damage", [flip, cut, Path.unlink], ids=["flipped", "cut off", "gone"])
def test_damage_is_refused_by_name(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    folder = new_folder(tmp_path / "t")
    save(folder, 2)
    save(folder, 3)
    damage(tmp_path / "t" / name)
    with pytest.raises(BundleError, match=re.escape(str(tmp_path / "t" / name))) as caught:
        CheckpointFolder.load(tmp_path / "t")
    assert "--overwrite" in str(caught.value) and "\n" not in str(caught.value)


def test_tensors_without_a_state_are_a_new_run_only_if_nothing_was_saved(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "t")
    save(folder, 2)
    CheckpointFolder.create_empty(tmp_path / "t")
    assert names_in(tmp_path / "t") == {"nothing-saved-yet"} and CheckpointFolder.load(tmp_path / "t") is None
    folder = CheckpointFolder(tmp_path / "t")
    folder.save_tokenizer("{}")
    folder.save_best(1, {"w": torch.ones(3)})  # a validation before the first save
    assert CheckpointFolder.load(tmp_path / "t") is None
    save(folder, 2)
    assert "nothing-saved-yet" not in names_in(tmp_path / "t")


def test_the_owner_of_a_run_is_retained_by_saves(tmp_path: Path) -> None:
    folder = CheckpointFolder.create_empty(tmp_path / "t")
    folder.set_owner("")
    assert names_in(tmp_path / "t") == {"nothing-saved-yet"} and not folder.is_owned_by("")
    folder.set_owner("torchrun 12 345")
    folder.save_tokenizer("{}")
    save(folder, 2)
    assert folder.is_owned_by("torchrun 12 345") and not folder.is_owned_by("torchrun 13 345")


def test_every_bit_of_the_state_file_counts(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "t")
    save(folder, 3)
    path = tmp_path / "t" / "state.json"
    whole = path.read_bytes()
    for position in range(0, len(whole), 7):
        path.write_bytes(whole[:position] + bytes([whole[position] ^ 4]) + whole[position + 1 :])
        with pytest.raises(BundleError, match=r"state\.json is damaged"):
            CheckpointFolder.load(tmp_path / "t")
