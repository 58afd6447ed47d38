"""Options that save memory or time in training: bfloat16, activation checkpointing, moving averages, validations."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from clearhead.bundle import load, read_manifest
from clearhead.config import merge
from clearhead.errors import ConfigError
from clearhead.kernels.dropout_masks import _draw_by_torch, dropout_seed, keep_mask
from clearhead.model.dropout import Dropout
from clearhead.model.encoder import Stack
from clearhead.model.loss import cross_entropy
from clearhead.training.distributed import device_setup
from clearhead.training.distributed.device_setup import place_model
from clearhead.training.distributed.process_group import SINGLE_PROCESS
from clearhead.training.distributed.thread_data_parallel import open_replicas
from clearhead.training.loop.callbacks import NullCallback
from clearhead.training.loop.gradient_accumulation import GradientAccumulator, MicroBatch
from clearhead.training.loop.train_state import EMA
from clearhead.training.run import PreparedRun
from tests.tasks.all_tasks import TRAINABLE_TASKS, prepare_task
from tests.training.runs import RecordingCallback, model_of, run, traces, write_data
from tests.training.test_trainer import Regression, build_trainer


def gradients(prepared: PreparedRun, dropout: float = 0.3, **training: Any) -> tuple[float, list[torch.Tensor]]:
    """Return loss and gradient of one update."""
    config = prepared.config.training.model_copy(update=training)
    place_model(prepared.model, config, SINGLE_PROCESS, NullCallback())
    for module in prepared.model.modules():
        if isinstance(module, Dropout):
            module.rate = dropout
    prepared.model.train()
    with open_replicas(prepared.model, 1, config.batch_tokens, SINGLE_PROCESS) as replicas:
        accumulator = GradientAccumulator(prepared.task, replicas, 1, print, config.precision)
        loss = accumulator.add([MicroBatch(0, np.arange(7)), MicroBatch(0, np.arange(7, 19))], 3)
        summed = [gradient.clone() for gradient in replicas.gather_gradients()]
        replicas.drop_gradients()
    return loss, summed


# Activation checkpointing


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_recomputed_layers_have_the_same_gradients(task: str, tmp_path: Path) -> None:
    prepared = prepare_task(tmp_path, task)
    expected, expected_gradients = gradients(prepared)
    calls: list[object] = []
    stacks = [module for module in prepared.model.modules() if isinstance(module, Stack)]
    for stack in stacks:
        stack.layers[0].feed_forward.register_forward_pre_hook(lambda *_: calls.append(1))  # type: ignore[union-attr]
    loss, summed = gradients(prepared, activation_checkpointing=True)
    assert len(calls) == 2 * 2 * len(stacks) > 0  # two batches, forward and back
    assert loss == expected
    for gradient, right in zip(summed, expected_gradients, strict=True):
        torch.testing.assert_close(gradient, right, atol=1e-6, rtol=1e-6)


def test_recomputation_saves_memory(tmp_path: Path) -> None:
    """Compare how many numbers autograd stores between forward and backward."""
    prepared = prepare_task(tmp_path, "classify")
    held = []
    for recompute in (False, True):
        place_model(
            prepared.model,
            prepared.config.training.model_copy(update={"activation_checkpointing": recompute}),
            SINGLE_PROCESS,
            NullCallback(),
        )
        sizes: list[int] = []
        prepared.model.train()
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):  # type: ignore[misc]
            prepared.task.loss(prepared.model, prepared.task.batch(np.arange(19), 0))
        held.append(sum(sizes))
    assert held[1] < 0.6 * held[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"model": {"family": "lstm"}, "training": {"activation_checkpointing": True}},
            r"training\.activation_checkpointing has no meaning for",
        ),
        (
            {"model": {"norm": "batch"}, "training": {"activation_checkpointing": True}},
            r"does not work with model\.norm=batch",
        ),
        ({"model": {"family": "gru"}, "training": {"precision": "bfloat16"}}, r"is not for model\.family=gru"),
    ],
)
def test_unsupported_training_settings_are_refused(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    from clearhead.training.run import TrainRequest, prepare

    data = write_data("classify", tmp_path)
    with pytest.raises(ConfigError, match=message):
        prepare(
            TrainRequest([data], tmp_path / "out", settings=settings, task="classify", preset="tiny"), NullCallback()
        )


# bfloat16


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_products_in_bfloat16_are_close_and_leave_float32(task: str, tmp_path: Path) -> None:
    """Dropout is disabled, because bfloat16 computes more rows and therefore has other masks."""
    prepared = prepare_task(tmp_path, task)
    expected, expected_gradients = gradients(prepared, dropout=0.0)
    loss, bfloat16_gradients = gradients(prepared, dropout=0.0, precision="bfloat16")
    assert loss != expected and loss == pytest.approx(expected, rel=0.02)
    flat, right = (
        torch.cat([gradient.flatten() for gradient in each]) for each in (bfloat16_gradients, expected_gradients)
    )
    assert flat.dtype == torch.float32
    assert float(torch.cosine_similarity(flat, right, dim=0)) > 0.995


@pytest.mark.parametrize(
    ("can", "is_reported"),
    [
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": False}, True),
        ({"architecture": "x86_64", "avx512_bf16": True, "amx_bf16": False}, False),
        ({"architecture": "x86_64", "avx512_bf16": False, "amx_bf16": True}, False),
        ({"architecture": "aarch64"}, False),
        ({}, False),
    ],
)
def test_a_cpu_without_bfloat16_is_reported(
    can: dict[str, object], is_reported: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_setup, "cpu_capabilities", lambda: can)
    prepared, callback = prepare_task(tmp_path, "classify"), RecordingCallback()
    for precision, count in (("float32", 0), ("bfloat16", int(is_reported))):
        config = prepared.config.training.model_copy(update={"precision": precision})
        place_model(prepared.model, config, SINGLE_PROCESS, callback)
        assert sum("no instructions" in message for message in callback.messages) == count


def test_torch_reports_cpu_capabilities() -> None:
    assert {"architecture"} <= device_setup.cpu_capabilities().keys()


def test_the_loss_in_bfloat16_sums_in_float32() -> None:
    torch.manual_seed(2)
    hidden, weight = (torch.randn(size, 13, requires_grad=True) for size in (37, 53))
    target = torch.randint(1, 53, (37,))
    with torch.autocast("cpu", torch.bfloat16):
        loss_sums = cross_entropy(hidden.bfloat16(), weight, target, 0, 0.1)
    loss_sums.smoothed.backward()  # type: ignore[no-untyped-call]
    assert loss_sums.smoothed.dtype == torch.float32 and weight.grad is not None
    logits = hidden.detach() @ weight.detach().t()
    right = nn.functional.cross_entropy(logits, target, label_smoothing=0.1, reduction="sum")
    loss = loss_sums.smoothed.item()
    assert loss == pytest.approx(right.item(), rel=5e-3) and loss != right.item()


def test_masks_in_bfloat16_keep_the_mean() -> None:
    drop = Dropout(0.1).train()
    x = torch.ones(400_000, dtype=torch.bfloat16)
    with dropout_seed(1), torch.autocast("cpu", torch.bfloat16):
        assert float(drop(x).max()) == pytest.approx(256 / (256 - round(0.1 * 256)), rel=1e-6)  # 1.117 in bfloat16


# Masks on other devices


def test_masks_that_torch_draws_are_a_function_of_the_seed(monkeypatch: pytest.MonkeyPatch) -> None:
    shape, cpu = torch.Size([211, 307]), torch.device("cpu")
    with dropout_seed(1, 2):
        first, second = (_draw_by_torch(shape, 64, cpu) for _ in range(2))
    with dropout_seed(1, 2):
        again = _draw_by_torch(shape, 64, cpu)
    assert torch.equal(first, again) and not torch.equal(first, second)
    assert float(first.float().mean()) == pytest.approx(0.75, abs=0.01)
    monkeypatch.setattr("clearhead.kernels.dropout_masks._draw_on_cpu", _draw_by_torch)
    with dropout_seed(1, 2):
        assert float(keep_mask(shape, 0.25).mean()) == pytest.approx(1.0, abs=0.01)


# Moving averages


def test_the_average_is_the_recurrence() -> None:
    """Compare with the recurrence, computed in the test."""
    trainer, _ = build_trainer(Regression(), steps=30, ema_decay=0.8)
    weight, step = trainer.model.get_parameter("weight"), trainer._step_optimizer
    mean: float | None = None

    def recording_step(*arguments: Any) -> None:
        nonlocal mean
        step(*arguments)
        decay = min(0.8, (1 + trainer.state.step) / (10 + trainer.state.step))
        mean = weight.item() if mean is None else decay * mean + (1 - decay) * weight.item()

    trainer._step_optimizer = recording_step  # type: ignore[method-assign,assignment]
    trainer.run()
    assert trainer.optimizer.state[weight][EMA].item() == pytest.approx(mean, rel=1e-5)
    average = trainer.ema_weights()["weight"].item()
    assert average == pytest.approx(mean, rel=1e-5) and average != pytest.approx(weight.item(), rel=1e-5)


def test_a_run_with_an_average_resumes_exactly_and_reports_its_selection(tmp_path: Path) -> None:
    data, more = write_data("classify", tmp_path), {"training": {"ema_decay": 0.9}}
    callback = RecordingCallback()
    run("classify", data, tmp_path / "whole", callback, more=more)
    (line,) = [text for text in callback.messages if "of the weights" in text]
    assert ", ema " in line and line.endswith(f"selected: {read_manifest(tmp_path / 'whole').weights_kind}")
    run("classify", data, tmp_path / "parts", RecordingCallback(5), more=more)
    run("classify", data, tmp_path / "parts", more=more, resume=True)
    assert (model_of(tmp_path / "parts"), traces(tmp_path / "parts")) == (
        model_of(tmp_path / "whole"),
        traces(tmp_path / "whole"),
    )


def test_an_average_that_is_best_becomes_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last updates are much too large, so that only the average of the weights is good."""
    data = write_data("classify", tmp_path)
    wild = merge(
        {"training": {"ema_decay": 0.99, "average_checkpoints": 1}},
        {"training": {"learning_rate": 0.3, "warmup": 0, "cooldown": 0}},
    )
    from clearhead.tasks.classification.training import ClassificationTask

    validate, scores = ClassificationTask.validate, iter([9.0, 8.0, 7.0, 6.0, 99.0, 5.0])

    def scored(self: Any, model: Any, decode: Any) -> Any:
        validation = validate(self, model, decode)
        return type(validation)(validation.loss, next(scores), *list(vars(validation).values())[2:])

    monkeypatch.setattr(ClassificationTask, "validate", scored)
    result = run("classify", data, tmp_path / "out", more=wild)
    assert result.weights_kind == "ema" == read_manifest(tmp_path / "out").weights_kind
    assert "moving average" in (tmp_path / "out" / "README.md").read_text()
    saved = load(tmp_path / "out").tensors()
    assert saved.keys()


# Validations of short runs


def test_a_run_with_minutes_spaces_its_validations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import time

    from clearhead.tasks.classification.training import ClassificationTask

    validate = ClassificationTask.validate

    def slow(self: Any, model: Any, decode: Any) -> Any:
        time.sleep(0.4)
        return validate(self, model, decode)

    monkeypatch.setattr(ClassificationTask, "validate", slow)
    data = write_data("classify", tmp_path)
    more = {"training": {"validate_every": 0, "save_every": 0, "minutes": 0.05, "steps": 0}}
    run("classify", data, tmp_path / "out", more=more, steps=0)
    lines = [json.loads(line) for line in (tmp_path / "out" / "metrics.jsonl").read_text().splitlines()]
    assert 1 <= sum("valid" in line for line in lines) <= 3
