"""Runs with infinite losses or gradients: they end with a message that names the training lines."""

import json
from pathlib import Path
from typing import NoReturn

import pytest

from clearhead.config import DecodingConfig
from clearhead.decoding.requests import Hypothesis, NoOutputError, Request
from clearhead.engines import constrained_decoding
from clearhead.errors import TrainingError
from clearhead.tasks.trainable import seq2seq
from tests.training.runs import Settings, run, write_data


@pytest.mark.parametrize("task", ["translate", "denoise", "caption"])
def test_a_run_that_diverges_ends_with_one_message(task: str, tmp_path: Path) -> None:
    """The run has validations in between, in which a model without finite probabilities has no output."""
    more: Settings = {"training": {"learning_rate": 1e30, "warmup": 0, "validate_every": 2, "max_nonfinite_steps": 4}}
    with pytest.raises(TrainingError, match="4 updates in a row had an infinite loss or gradient"):
        run(task, write_data(task, tmp_path), tmp_path / "out", more=more)
    with pytest.raises(TrainingError, match="4 updates in a row"):
        run(task, write_data(task, tmp_path), tmp_path / "out", more=more, resume=True)


def test_a_skipped_batch_is_reported_by_file_and_line(tmp_path: Path) -> None:
    files = [write_data("translate", tmp_path / "a"), write_data("translate", tmp_path / "b", count=37)]
    more: Settings = {"training": {"learning_rate": 1e30, "warmup": 0, "max_nonfinite_steps": 3}}
    with pytest.raises(TrainingError):
        run("translate", files, tmp_path / "out", more=more)
    entries = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    places = {place for entry in entries if "skipped_update" in entry for place in entry["skipped_update"]["lines"]}
    assert {place.rpartition(":")[0] for place in places} == {str(path) for path in files}


def test_only_sentences_without_output_are_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    """One sentence without finite probabilities does not affect the others."""
    requests = [Request((5, 6)), Request((7,))]
    written = Hypothesis((8, 9), -1.0, -1.0, (-0.5, -0.5), "end")

    def half(*_: object) -> NoReturn:
        raise NoOutputError(requests, [[written], []])

    monkeypatch.setattr(constrained_decoding, "decode", half)
    monkeypatch.setattr(seq2seq, "network_engine", lambda network: None)
    assert seq2seq.decode_requests(requests, None, DecodingConfig()) == [(8, 9), ()]
