"""Models that have not learned their task are recognised, and users are warned."""

import json
import math
import re
from pathlib import Path

import pytest

import clearhead
from clearhead.bundle import read_manifest
from clearhead.cli.main import main
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.tasks.trainable.baseline import Baseline, count_targets, frequency_loss
from clearhead.training.checkpoint.finalize import TrainingResult
from tests.training.runs import MORE, RecordingCallback, Settings, run, settings_of, write_data

LONGER: Settings = {"training": {"batch_tokens": 400, "gradient_accumulation": 1, "cooldown": 0, "validate_every": 50}}


@pytest.fixture(scope="module")
def short(tmp_path_factory: pytest.TempPathFactory) -> TrainingResult:
    """Return a translator after two updates."""
    folder = tmp_path_factory.mktemp("short")
    return run("translate", write_data("translate", folder), folder / "out", steps=2)


def test_frequencies_are_smoothed_and_counted_with_ends() -> None:
    store = IdArrays.build([[3, 3, 4], [3]])
    counts_V = count_targets(store, 5, eos_id=2)
    assert counts_V.tolist() == [0, 0, 2, 3, 1]
    valid_V = count_targets(IdArrays.build([[4, 0]]), 5, eos_id=2)
    expected = -(math.log(2 / 11) + math.log(1 / 11) + math.log(3 / 11)) / 3
    assert frequency_loss(counts_V, valid_V) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("loss", "score", "problem"),
    [
        (1.0, 30.0, ""),
        (4.7, 30.0, ""),  # overfitted, but the score is good
        (4.7, 21.0, "validation loss 4.70 is not clearly below 5.00, that of token frequencies alone"),
        (1.0, 19.0, "validation bleu 19.00 is not above 20.00, the score of copying the source"),
        (float("nan"), 20.0, "validation loss nan is not clearly below"),
        (4.7, None, "validation loss 4.70 is not clearly below"),
        (1.0, None, ""),
    ],
)
def test_both_loss_and_score_must_be_better_than_trivial(loss: float, score: float | None, problem: str) -> None:
    baseline = Baseline(5.0, score=20.0, trivial="copying the source")
    actual = baseline.problem(loss, score, "bleu")
    assert actual.startswith(problem) and bool(actual) == bool(problem)


@pytest.mark.parametrize("task", MORE)
def test_one_update_teaches_no_task(task: str, tmp_path: Path) -> None:
    more: Settings = {"training": {"learning_rate": 1e-9, "seed": 2}}  # with some seeds a random tagger has F1 30
    result = run(task, write_data(task, tmp_path), tmp_path / "out", more=more, steps=1)
    assert "has not learned its task" in result.validation.warning
    assert read_manifest(tmp_path / "out").training["warning"] == result.validation.warning
    assert result.validation.score is not None  # scored once, at the end


@pytest.mark.parametrize("task", ["classify", "tag", "lm", "caption"])
def test_a_task_that_is_learned_has_no_warning(task: str, tmp_path: Path) -> None:
    data = write_data(task, tmp_path, 200)
    result = run(task, data, tmp_path / "out", more=LONGER, steps=150)
    assert result.validation.baseline and not result.validation.warning
    assert "warning" not in read_manifest(tmp_path / "out").training
    assert "Warning" not in (tmp_path / "out" / "README.md").read_text()


def test_nothing_is_decoded_until_the_loss_is_low_enough(tmp_path: Path) -> None:
    data, callback = write_data("translate", tmp_path, 200), RecordingCallback()
    more: Settings = {**LONGER, "training": {**LONGER["training"], "validate_every": 20, "schedule": "none"}}
    result = run("translate", data, tmp_path / "out", callback, more=more, steps=150)
    assert not result.validation.warning
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    valid = [line["valid"] for line in lines if "valid" in line]
    scores = [each["bleu"]["score"] for each in valid]
    decoded = scores.index(next(score for score in scores if score is not None))
    assert 0 < decoded < len(scores)
    assert None not in scores[decoded:]
    limit = 0.75 * valid[0]["baseline"]["loss"]
    assert all(each["loss"] >= limit for each in valid[:decoded]) and valid[decoded]["loss"] < limit
    assert valid[decoded]["outputs"]["examples"] == 5 and "outputs" not in valid[0]


def test_the_end_of_a_training_warns_that_nothing_was_learned(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data, out = write_data("translate", tmp_path), tmp_path / "out"
    sets = [word for section, fields in settings_of("translate").items() for name, value in fields.items()
            for word in ("--set", f"{section}.{name}={value}")]  # fmt: skip
    assert main(["train", str(data), "--out", str(out), "--steps", "2", "--threads", "1", *sets]) == 0
    captured = capsys.readouterr()
    assert (
        "Next:" not in captured.out and f"Model saved to {out}." in captured.out and "repetition loops" in captured.out
    )
    assert "warning: this model has not learned its task: validation loss" in captured.err


def test_users_of_the_model_are_warned(
    short: TrainingResult, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    import io
    import sys

    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"the cat eats\n")))
    assert main(["translate", str(short.folder)]) == 0
    err = capsys.readouterr().err
    assert err.count(f"warning: {short.folder}: this model has not learned its task") == 1
    assert main(["info", str(short.folder)]) == 0
    assert "this model has not learned its task" in capsys.readouterr().out
    card = (short.folder / "README.md").read_text()
    assert f"**Warning:** {short.validation.warning}." in card and "- baseline: loss" in card


def test_evaluate_counts_degenerate_outputs(
    short: TrainingResult, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = write_data("translate", tmp_path)
    assert main(["evaluate", str(short.folder), str(data), "--json"]) == 0
    outputs = json.loads(capsys.readouterr().out)["outputs"]
    assert outputs["examples"] == 60 and 0 <= outputs["loops"] <= 60 and outputs["copies"] == 0
    model = clearhead.load(short.folder)
    assert model.manifest.training["warning"]


def test_a_dry_run_reports_a_useful_duration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_data("classify", tmp_path)
    arguments = [
        "train",
        str(data),
        "--task",
        "classify",
        "--out",
        str(tmp_path / "out"),
        "--threads",
        "1",
        "--dry-run",
    ]
    sets = ["--set", "training.batch_tokens=60", "--set", "model.model_dim=16", "--set", "model.feed_forward_dim=16"]
    assert main([*arguments, *sets, "--steps", "2"]) == 0
    err = capsys.readouterr().err
    epoch_message = re.search(
        r"one epoch is (\d+) updates, about [\d.]+ minutes; useful duration: up to 60 epochs", err
    )
    assert epoch_message and int(epoch_message[1]) > 2
    share = round(100 * 2 / int(epoch_message[1]))
    assert f"warning: this run sees {share} % of the data once and will hardly learn its task" in err
    assert main([*arguments, *sets, "--epochs", "1"]) == 0
    assert "warning" not in capsys.readouterr().err
