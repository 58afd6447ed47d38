"""Resumed runs end with the same bits as uninterrupted ones; and changes that resuming refuses."""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import clearhead
from clearhead.bundle import read_manifest
from clearhead.cli.main import main
from clearhead.errors import BundleError, ClearheadError, ConfigError, TrainingError
from clearhead.training.checkpoint.checkpoint import CheckpointFolder
from clearhead.training.checkpoint.run_history import locked
from tests.faults import end_of, fork
from tests.tasks.artificial_text import sets
from tests.training.runs import MORE, RecordingCallback, Settings, model_of, run, settings_of, traces, write_data

pytestmark = pytest.mark.forks


@pytest.mark.parametrize("task", MORE)
def test_every_task_resumes_as_if_uninterrupted(task: str, tmp_path: Path) -> None:
    """The run is stopped between checkpoints and validations, and at a step with a validation."""
    data = write_data(task, tmp_path)
    run(task, data, tmp_path / "whole")
    for stop_at in (5, 8):
        callback = RecordingCallback(stop_at)
        assert run(task, data, tmp_path / "parts", callback, resume=True).outcome.reason == "interrupted"
        assert callback.steps[-1] == stop_at
    callback = RecordingCallback()
    result = run(task, data, tmp_path / "parts", callback, resume=True)
    assert (result.outcome.reason, result.outcome.step) == ("finished", 13)
    assert callback.steps == [9, 10, 11, 12, 13]
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")
    assert traces(tmp_path / "parts") == traces(tmp_path / "whole")


def test_replicas_on_two_cores_resume_exactly(tmp_path: Path) -> None:
    data = write_data("translate", tmp_path, count=120)
    more: Settings = {
        "training": {"batch_tokens": 1024, "gradient_accumulation": 1, "average_checkpoints": 3, "validate_every": 2}
    }
    run("translate", data, tmp_path / "whole", more=more, threads=2, steps=4)
    run("translate", data, tmp_path / "parts", RecordingCallback(3), more=more, threads=2, steps=4)
    run("translate", data, tmp_path / "parts", more=more, threads=2, steps=4, resume=True)
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")


def test_weighted_files_resume_exactly(tmp_path: Path) -> None:
    first, second = write_data("translate", tmp_path / "a"), write_data("translate", tmp_path / "b", count=37)
    weighted = [Path(f"{first}:0.5"), Path(f"{second}:2")]
    callback = RecordingCallback()
    run("translate", weighted, tmp_path / "whole", callback)
    assert [text for text in callback.messages if "each seen 2.00 times per epoch" in text]
    run("translate", weighted, tmp_path / "parts", RecordingCallback(7))
    with pytest.raises(ConfigError, match=r"data\.file_weights was \(0\.5, 2\.0\), is \(3\.0, 1\.0\)"):
        run("translate", [Path(f"{first}:3"), second], tmp_path / "parts", resume=True)
    run("translate", weighted, tmp_path / "parts", resume=True)
    assert (model_of(tmp_path / "parts"), traces(tmp_path / "parts")) == (
        model_of(tmp_path / "whole"), traces(tmp_path / "whole"),
    )  # fmt: skip
    with pytest.raises(ConfigError, match="has 1 numbers for 2 files of pairs"):
        run("translate", [first, second], tmp_path / "none", more={"data": {"file_weights": [2.0]}})


@dataclass(frozen=True)
class Stopped:
    """Data of a run, the run stopped at step 5 of 13, and the same run without a stop."""

    data: Path
    parts: Path
    whole: Path


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Stopped:
    """Return runs that are trained once; tests must not write into their folders."""
    folder = tmp_path_factory.mktemp("stopped")
    data = write_data("classify", folder)
    run("classify", data, folder / "parts", RecordingCallback(5))
    run("classify", data, folder / "whole")
    return Stopped(data, folder / "parts", folder / "whole")


@pytest.fixture
def parts(stopped: Stopped, tmp_path: Path) -> Path:
    """Copy of the stopped run."""
    return shutil.copytree(stopped.parts, tmp_path / "parts")


@pytest.fixture
def whole(stopped: Stopped, tmp_path: Path) -> Path:
    """Copy of the finished run."""
    return shutil.copytree(stopped.whole, tmp_path / "whole")


def test_an_interrupted_run_leaves_a_model_and_its_state(stopped: Stopped) -> None:
    manifest = read_manifest(stopped.parts)
    assert manifest.training["state"] == "interrupted" and manifest.training["steps"] == 5
    assert manifest.training["best_step"] == 4
    assert clearhead.load(stopped.parts).classify("The old cow eats.").label


@pytest.mark.parametrize("kind", ["parts", "whole"])
def test_an_existing_run_is_described_and_refused_without_resume(kind: str, stopped: Stopped) -> None:
    folder: Path = getattr(stopped, kind)
    description = {"parts": "has an unfinished run, saved at update 5 of 13", "whole": "has a finished run of 13"}[kind]
    with pytest.raises(BundleError, match=description) as caught:
        run("classify", stopped.data, folder)
    assert "--resume" in str(caught.value) and "--overwrite" in str(caught.value)


def test_overwriting_starts_again(stopped: Stopped, parts: Path) -> None:
    callback = RecordingCallback()
    run("classify", stopped.data, parts, callback, overwrite=True)
    assert callback.steps[0] == 1
    assert model_of(parts) == model_of(stopped.whole)
    with pytest.raises(ConfigError, match="--resume continues a run and --overwrite replaces it"):
        run("classify", stopped.data, parts, overwrite=True, resume=True)


def test_without_a_checkpoint_the_run_starts_from_the_beginning(stopped: Stopped, tmp_path: Path) -> None:
    for folder in (tmp_path / "none", tmp_path / "begun", tmp_path / "removed"):
        if folder.name == "removed":  # an unfinished run of which the state was deleted
            shutil.copytree(stopped.parts, folder)
            shutil.rmtree(folder / "training")
        if folder.name == "begun":  # killed before its first checkpoint, with the model of an earlier run
            shutil.copytree(stopped.whole, folder)
            (folder / "training" / "state.json").unlink()
            (folder / "training" / "nothing-saved-yet").touch()
        callback = RecordingCallback()
        run("classify", stopped.data, folder, callback, resume=True)
        assert f"{folder} has no checkpoint yet: starting from the beginning" in callback.messages
        assert callback.steps[0] == 1
        assert model_of(folder) == model_of(stopped.whole)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    with pytest.raises(BundleError, match="has no run of clearhead"):
        run("classify", stopped.data, tmp_path / "other", resume=True)


def test_a_lost_state_is_not_mistaken_for_a_new_run(stopped: Stopped, parts: Path) -> None:
    (parts / "training" / "state.json").unlink()
    before = {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()}
    for resume in (True, False):
        with pytest.raises(BundleError, match=r"state\.json is missing; restore the folder from a copy"):
            run("classify", stopped.data, parts, resume=resume)
    assert {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()} == before
    run("classify", stopped.data, parts, overwrite=True)
    assert model_of(parts) == model_of(stopped.whole)


def test_truncated_metrics_are_reported(stopped: Stopped, parts: Path) -> None:
    (parts / "metrics.jsonl").write_text("")
    callback = RecordingCallback()
    run("classify", stopped.data, parts, callback, resume=True)
    assert [message for message in callback.messages if "metrics.jsonl was truncated" in message]
    assert model_of(parts) == model_of(stopped.whole)


def test_a_model_without_a_run_is_not_overwritten(stopped: Stopped, whole: Path) -> None:
    shutil.rmtree(whole / "training")
    (whole / "metrics.jsonl").unlink()
    with pytest.raises(BundleError, match="has a model but no run; use --from to train it further"):
        run("classify", stopped.data, whole, resume=True)
    with pytest.raises(BundleError, match="has a finished run; use --from"):
        run("classify", stopped.data, whole)
    assert clearhead.load(whole)


def test_a_finished_run_reports_its_end(stopped: Stopped, whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {path: path.stat().st_mtime_ns for path in whole.rglob("*")}
    arguments = ["train", str(stopped.data), "--task", "classify", "--out", str(whole), "--threads", "1", "--resume"]
    for length in (["--steps", "13"], []):
        assert main([*arguments, *length, *sets(settings_of("classify"))]) == 0
        captured = capsys.readouterr()
        message = captured.err.splitlines()[0]  # a warning that nothing was learned may follow
        assert message == f"{whole} is finished after 13 updates; to continue it, set --steps above 13"
        score = read_manifest(whole).training["scores"]["accuracy"]["score"]  # type: ignore[index,call-overload]
        assert captured.out.startswith(f"accuracy {score:.2f} ")
        has_learned = "has not learned its task" not in captured.err
        assert (f"Next: clearhead classify {whole}" in captured.out) is has_learned
    assert {path: path.stat().st_mtime_ns for path in whole.rglob("*")} == before


@pytest.mark.parametrize("has_state", [True, False])
def test_a_finished_run_refuses_another_command(stopped: Stopped, whole: Path, has_state: bool, tmp_path: Path) -> None:
    """Changes are refused for a finished run as for an unfinished one."""
    if not has_state:
        shutil.rmtree(whole / "training")
    other = write_data("classify", tmp_path / "other", count=50)
    for more, data, message in (
        ({"model": {"dropout": 0.9}}, stopped.data, r"model\.dropout was 0\.2, is 0\.9"),
        ({"model": {"nope": 3}}, stopped.data, r"unknown key model\.nope"),
        ({}, other, r"the training data of .*whole changed: it was labels\.tsv of 60 records"),
        ({}, tmp_path / "none.tsv", "no such file"),
    ):
        with pytest.raises(ClearheadError, match=message):
            run("classify", data, whole, more=more, resume=True)
    with pytest.raises(ConfigError, match="task was classify, is translate"):
        run("translate", stopped.data, whole, resume=True)
    assert run("classify", stopped.data, whole, resume=True).outcome.step == 13


def test_a_restart_resumes_only_its_own_run(
    stopped: Stopped, parts: Path, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """torchrun also restarts processes that were refused; the run of another job must stay refused."""
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    for folder, description in ((parts, "has an unfinished run"), (whole, "has a finished run")):
        with pytest.raises(BundleError, match=description):
            run("classify", stopped.data, folder)
    callback = RecordingCallback(8)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "0")
    run("classify", stopped.data, parts, callback, resume=True)
    assert callback.steps == [6, 7, 8]
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    run("classify", stopped.data, parts, callback)
    assert callback.steps[3:] == [9, 10, 11, 12, 13] and model_of(parts) == model_of(stopped.whole)


def test_a_restart_does_not_overwrite_its_own_run(
    stopped: Stopped, whole: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    callback = RecordingCallback(5)
    run("classify", stopped.data, whole, callback, overwrite=True)
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    run("classify", stopped.data, whole, callback, overwrite=True)
    assert callback.steps == [*range(1, 14)]


def test_a_restart_without_a_known_run_deletes_nothing(
    stopped: Stopped, parts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCHELASTIC_MAX_RESTARTS", "1")
    monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "1")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "another")
    with pytest.raises(BundleError, match="has an unfinished run"):
        run("classify", stopped.data, parts, overwrite=True)
    run("classify", stopped.data, parts, resume=True)
    assert model_of(parts) == model_of(stopped.whole)


def test_more_steps_continue_as_one_run(stopped: Stopped, tmp_path: Path) -> None:
    """With a schedule that does not depend on the length, 8 updates continued to 12 equal 12 updates."""
    more: Settings = {"training": {"cooldown": 0, "save_every": 4, "warmup": 2}}
    run("classify", stopped.data, tmp_path / "whole", more=more, steps=12)
    run("classify", stopped.data, tmp_path / "parts", more=more, steps=8)
    callback = RecordingCallback()
    run("classify", stopped.data, tmp_path / "parts", callback, more=more, steps=12, resume=True)
    assert callback.steps == [9, 10, 11, 12]
    assert "resuming after update 8 of 12 (instead of 8)" in callback.messages
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")
    with pytest.raises(ConfigError, match="at least 12 updates, which are done already"):
        (tmp_path / "parts" / "training" / "state.json").write_bytes(unfinished(tmp_path / "parts"))
        run("classify", stopped.data, tmp_path / "parts", more=more, steps=7, resume=True)


def unfinished(folder: Path) -> bytes:
    """Return the content of `state.json` as it was before the run was marked as finished."""
    from clearhead.training.checkpoint.checkpoint import _to_bytes

    restored = CheckpointFolder.load(folder / "training")
    assert restored and restored.state
    return _to_bytes(restored.state.model_copy(update={"is_finished": False}))


def test_an_interrupted_end_is_repeated(stopped: Stopped, whole: Path) -> None:
    (whole / "training" / "state.json").write_bytes(unfinished(whole))
    (whole / "model.safetensors").unlink()
    callback = RecordingCallback()
    run("classify", stopped.data, whole, callback, resume=True)
    assert not callback.steps
    assert model_of(whole) == model_of(stopped.whole)
    assert clearhead.load(whole)


@pytest.mark.parametrize("is_there", [True, False])
def test_a_finished_run_without_its_state_cannot_be_resumed(is_there: bool, stopped: Stopped, whole: Path) -> None:
    shutil.rmtree(whole / "training")
    if is_there:  # emptied, not removed
        (whole / "training").mkdir()
    assert run("classify", stopped.data, whole, resume=True).outcome.step == 13
    with pytest.raises(TrainingError, match=f"cannot be resumed; --from {whole} with another --out"):
        run("classify", stopped.data, whole, steps=20, resume=True)


@pytest.mark.parametrize(
    ("more", "asked", "message"),
    [
        ({"training": {"learning_rate": 0.02}}, {}, "training.learning_rate was 0.01, is 0.02"),
        ({"tokenizer": {"vocab_size": 50}}, {}, "tokenizer.vocab_size was 60, is 50"),
        ({"model": {"dropout": 0.0}, "data": {"max_chars": 9}}, {}, "model.dropout was 0.2, is 0.0; data.max_chars"),
        ({}, {"preset": "small"}, "preset was tiny, is small"),
        ({}, {"steps": 4}, "expected at least 5 updates, which are done already, found 4"),
        ({"training": {"minutes": 3}}, {}, "set twice, by steps and minutes"),
        ({"training": {"minutes": 3}}, {"steps": 0}, "was fixed at the start of the run, at 13"),
    ],
)
def test_other_settings_are_refused_by_name(
    more: Settings, asked: dict[str, Any], message: str, stopped: Stopped, parts: Path
) -> None:
    before = {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=message.replace(".", r"\.")):
        run("classify", stopped.data, parts, more=more, resume=True, **asked)
    assert {path: path.read_bytes() for path in parts.rglob("*") if path.is_file()} == before


def test_another_task_is_refused(stopped: Stopped, parts: Path) -> None:
    with pytest.raises(ConfigError, match="task was classify, is translate"):
        run("translate", stopped.data, parts, resume=True)


def test_other_data_are_refused(stopped: Stopped, parts: Path, tmp_path: Path) -> None:
    lines = stopped.data.read_text().splitlines(keepends=True)
    other = tmp_path / "labels.tsv"
    other.write_text("".join([lines[1], lines[0], *lines[2:]]))
    with pytest.raises(TrainingError, match=r"the training data of .*parts changed: .* 60 records, fingerprint"):
        run("classify", other, parts, resume=True)
    held_out = r"the validation data of .*parts changed: it was the part held out from labels\.tsv"
    with pytest.raises(TrainingError, match=rf"{held_out}, .*; now it is labels\.tsv, fingerprint"):
        run("classify", stopped.data, parts, valid=[other], resume=True)


def test_another_model_to_start_from_is_refused(stopped: Stopped, parts: Path) -> None:
    with pytest.raises(ConfigError, match="did not start from a model"):
        run("classify", stopped.data, parts, start=stopped.whole, resume=True)


def test_fine_tuning_resumes_only_from_the_same_model(stopped: Stopped, tmp_path: Path) -> None:
    start = shutil.copytree(stopped.whole, tmp_path / "start")
    run("classify", stopped.data, tmp_path / "whole", start=start, steps=5)
    run("classify", stopped.data, tmp_path / "parts", RecordingCallback(3), start=start, steps=5)
    run("classify", stopped.data, start, overwrite=True, steps=2)
    with pytest.raises(ConfigError, match="started from another model than"):
        run("classify", stopped.data, tmp_path / "parts", start=start, steps=5, resume=True)
    run("classify", stopped.data, tmp_path / "parts", steps=5, resume=True)
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")


def test_damage_is_refused_by_name(stopped: Stopped, parts: Path) -> None:
    path = parts / "training" / "optimizer-00000005.safetensors"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BundleError, match=r"optimizer-00000005\.safetensors is damaged"):
        run("classify", stopped.data, parts, resume=True)


def test_another_number_of_threads_is_reported(stopped: Stopped, parts: Path) -> None:
    callback = RecordingCallback(6)
    run("classify", stopped.data, parts, callback, threads=2, resume=True)
    assert "the run started with 1 threads and continues with 2: sums are rounded differently" in callback.messages


def test_minutes_are_converted_to_steps_once(stopped: Stopped, tmp_path: Path) -> None:
    """The number of updates is fixed at the start, however fast the machine is when the run is resumed."""
    more: Settings = {"training": {"minutes": 0.001}}
    first = run("classify", stopped.data, tmp_path / "m", RecordingCallback(5), more=more, steps=0).outcome
    second = run("classify", stopped.data, tmp_path / "m", more=more, steps=0, resume=True).outcome
    assert first.step == 5 and first.steps == second.step == second.steps >= 20
    assert second.seconds > first.seconds  # the time is added up too


def test_early_stopping_counts_across_a_resume(stopped: Stopped, tmp_path: Path) -> None:
    """No validation improves, so the third one stops the run, even if the run was resumed."""
    more: Settings = {"training": {"learning_rate": 1e-30, "validate_every": 2, "save_every": 1, "patience": 2}}
    whole = run("classify", stopped.data, tmp_path / "whole", more=more).outcome
    run("classify", stopped.data, tmp_path / "parts", RecordingCallback(5), more=more)
    rest = run("classify", stopped.data, tmp_path / "parts", more=more, resume=True).outcome
    assert whole.reason == rest.reason == "stopped early" and whole.step == rest.step == 6
    assert model_of(tmp_path / "parts") == model_of(tmp_path / "whole")
    assert run("classify", stopped.data, tmp_path / "parts", more=more, resume=True).outcome.step == 6


def test_a_second_training_in_a_folder_is_refused(stopped: Stopped, parts: Path, tmp_path: Path) -> None:
    def try_to_train() -> None:
        for resume, overwrite in ((True, False), (False, True)):
            with pytest.raises(TrainingError, match="another training is running in"):
                run("classify", stopped.data, parts, resume=resume, overwrite=overwrite)

    with locked(parts):
        assert end_of(fork(try_to_train)) == 0
    run("classify", stopped.data, parts, resume=True)
    with pytest.raises(ClearheadError), locked(tmp_path / "new" / "er"):
        raise ClearheadError
    assert not (tmp_path / "new" / "er").exists()


def test_the_python_function_resumes(stopped: Stopped, parts: Path) -> None:
    settings = settings_of("classify")
    model = clearhead.train(stopped.data, parts, task="classify", steps=13, settings=settings, threads=1, resume=True)
    assert model.manifest.fingerprint == model_of(stopped.whole)
