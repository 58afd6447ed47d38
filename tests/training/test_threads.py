"""`--threads` applies to every part of a training: gradients, validations, and the selection of the weights."""

import threading
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import torch

from clearhead.cli.main import main
from clearhead.engines.native_engine import NativeEngine
from clearhead.tasks.classification.training import ClassificationTask
from clearhead.tasks.trainable.task import Validation
from clearhead.tasks.translation.training import TranslationTask
from tests.tasks.all_tasks import settings_for, write_files
from tests.tasks.artificial_text import sets

Seen = dict[str, set[int]]


def watch(monkeypatch: pytest.MonkeyPatch, task: type[Any]) -> Seen:
    """Record torch's number of threads in each part of a task, and the threads that compute losses."""
    seen: Seen = defaultdict(set)
    loss, validate = task.loss, task.validate

    def watched_loss(self: Any, model: Any, batch: Any) -> Any:
        seen["loss"].add(torch.get_num_threads())
        seen["workers"].add(threading.get_ident())
        return loss(self, model, batch)

    def watched_validate(self: Any, model: Any, decode: Any) -> Validation:
        seen["validation"].add(torch.get_num_threads())
        validation: Validation = validate(self, model, decode)
        return validation

    monkeypatch.setattr(task, "loss", watched_loss)
    monkeypatch.setattr(task, "validate", watched_validate)
    return seen


@pytest.mark.parametrize(("threads", "usual"), [(1, 3), (2, 1)])
def test_a_training_uses_the_given_number_of_threads(
    threads: int, usual: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = watch(monkeypatch, ClassificationTask)
    torch.set_num_threads(usual)
    data = write_files(tmp_path, "classify")
    options = ["--task", "classify", "--out", str(tmp_path / "out"), "--threads", str(threads), "--steps", "4"]
    options += [*sets(settings_for("classify")), "--set", "training.validate_every=2"]
    assert main(["train", str(data), *options, "--set", "training.batch_tokens=1100"]) == 0
    assert seen["loss"] == {1}  # one thread of torch for each replica
    assert seen["validation"] == {threads}
    assert torch.get_num_threads() == usual  # the caller's number is restored


def test_validation_decodes_with_the_given_number_of_threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workers: list[int] = []
    run = NativeEngine.run

    def watched(self: NativeEngine, *arguments: Any) -> Any:
        workers.append(self.threads)
        return run(self, *arguments)

    monkeypatch.setattr(NativeEngine, "run", watched)
    seen = watch(monkeypatch, TranslationTask)
    torch.set_num_threads(3)
    data = write_files(tmp_path, "translate")
    options = ["--out", str(tmp_path / "out"), "--threads", "1", "--steps", "1", *sets(settings_for("translate"))]
    assert main(["train", str(data), *options]) == 0
    assert set(workers) == seen["validation"] == {1}
