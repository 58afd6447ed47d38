"""Every field of the training section changes a training: on a toy task for the loop, else on real tasks."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from clearhead.config import Config, TrainingConfig
from clearhead.errors import TrainingError
from clearhead.model.parameters import snapshot
from clearhead.tasks.registry import TASKS
from clearhead.training.checkpoint.checkpoint import CheckpointFolder, RunOrigin
from clearhead.training.checkpoint.run_folder import TRAINING, RunFolder, initialize
from clearhead.training.loop.train_state import TrainState
from tests.tasks.all_tasks import TRAINABLE_TASKS, prepare_task
from tests.training.test_trainer import Regression, build_trainer

# Each field is tested with settings under which it has an effect.
OF_THE_LOOP: dict[str, tuple[Any, dict[str, Any]]] = {
    "gradient_accumulation": (2, {}), "learning_rate": (0.05, {}), "warmup": (3, {}), "cooldown": (0.5, {}),
    "schedule": ("cosine", {}), "adam_beta1": (0.5, {}), "adam_beta2": (0.5, {}), "adam_epsilon": (0.1, {}),
    "weight_decay": (0.5, {}), "clip_norm": (0.01, {}),
    "validate_every": (7, {}), "save_every": (7, {}), "patience": (2, {}), "max_nonfinite_steps": (2, {"poison": True}),
    "precision": ("bfloat16", {}),
}  # fmt: skip
BY_TASK = {"seed": 9, "batch_tokens": 30, "label_smoothing": 0.3, "validate_lines": 2}
# Separate tests cover the length of a run, and options that must not change its losses.
ELSEWHERE = {"steps", "epochs", "minutes", "average_checkpoints", "ema_decay", "activation_checkpointing", "sharding"}


def outcome(settings: dict[str, Any]) -> list[Any]:
    """Return all results of a run of the loop."""
    given = dict(settings)
    task = Regression(float("nan") if given.pop("poison", False) else 0.0, scores=[3, 2, 1, 2, 1, 2])
    task.plan = lambda epoch: [np.array([5])] if task.y.isnan().any() else Regression.plan(task, epoch)  # type: ignore[method-assign]
    trainer, logger = build_trainer(task, steps=24, **given)
    try:
        done = trainer.run()
    except TrainingError:
        return [trainer.state.step]
    weights = [value for tensor in snapshot(trainer.model).values() for value in tensor.flatten().tolist()]
    return [done.step, done.reason, logger.steps, task.validations, logger.best_step, *weights]


@pytest.mark.parametrize("field", OF_THE_LOOP)
def test_a_field_of_the_loop_changes_the_run(field: str) -> None:
    value, more = OF_THE_LOOP[field]
    assert outcome({**more, field: value}) != outcome(more)


def test_every_field_is_tested() -> None:
    assert {*OF_THE_LOOP, *BY_TASK, *ELSEWHERE} == set(TrainingConfig.model_fields)


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_a_task_uses_seed_batch_and_smoothing(task: str, tmp_path: Path) -> None:
    def seen(**training: Any) -> tuple[list[list[int]], float, int]:
        prepared = prepare_task(tmp_path, task, **training)
        plan = [batch.tolist() for batch in prepared.task.plan(0)]
        torch.manual_seed(1)
        for parameter in prepared.model.parameters():
            torch.nn.init.normal_(parameter, std=0.1)
        loss = prepared.task.loss(prepared.model, prepared.task.batch(np.arange(5), 0))
        return plan, float(loss.smoothed.detach()), loss.tokens

    usual, seeded, smaller, smoothed = seen(), seen(seed=9), seen(batch_tokens=30), seen(label_smoothing=0.3)
    assert usual == seen()
    assert seeded[0] != usual[0] and len(seeded[0]) == len(usual[0])
    assert len(smaller[0]) > len(usual[0])
    assert smoothed[1] != usual[1] and smoothed[2] == usual[2]


@pytest.mark.parametrize("task", [name for name, each in TASKS.items() if each.verb == "translate"])
def test_validate_lines_is_the_number_of_decoded_texts(task: str, tmp_path: Path) -> None:
    signatures = set()
    for count in (2, 3):
        prepared = prepare_task(tmp_path, task, validate_lines=count)
        validation = prepared.task.validate(prepared.model)
        signatures.add((len(getattr(prepared.task, "valid_pairs", [])), validation.signature))
    assert len(signatures) == 2


def test_average_checkpoints_is_the_number_of_averaged_checkpoints(tmp_path: Path) -> None:
    initialize(tmp_path)
    checkpoint = CheckpointFolder(tmp_path / TRAINING)
    checkpoint.save_tokenizer("null")
    origin = RunOrigin(config={}, data={}, pretrained="", threads=1, torch="", started="")
    folder = RunFolder(
        tmp_path, Config(training=TrainingConfig(average_checkpoints=3)), "null", {}, {}, origin, checkpoint
    )
    for step in range(1, 6):
        folder.save(TrainState(step=step), {"x": torch.full((2,), float(step))}, {}, is_checkpoint=True)
    assert folder.checkpoint.checkpoints == tuple(f"weights-{step:08d}.safetensors" for step in (3, 4, 5))
    assert folder.average_checkpoints()["x"].tolist() == [4.0, 4.0]
