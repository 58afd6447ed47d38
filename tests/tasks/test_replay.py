"""Replay: the share of each batch, examples that depend on the epoch alone, and losses that add up."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from clearhead.tasks.trainable.replay import ReplayTask
from tests.tasks.all_tasks import TRAINABLE_TASKS, prepare_task

SHARE = 0.3


def tasks(folder: Path, task: str, **training: Any) -> tuple[ReplayTask, Any]:
    """Return a task that replays the examples of a second one, and a network for it."""
    new, old = (prepare_task(make(folder / name), task, seed=seed, **training) for name, seed in (("a", 1), ("b", 2)))
    return ReplayTask(new.task, old.task, SHARE, "old.tsv"), new.model


def make(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_batches_have_the_share_and_every_example_is_replayed(task: str, tmp_path: Path) -> None:
    mixed, _ = tasks(tmp_path, task, batch_tokens=170)
    new = mixed.new
    seen = set[int]()
    num_replayed = total = 0
    for epoch in range(12):
        plain, plan = new.plan(epoch), mixed.plan(epoch)
        assert [batch[batch >= 0].tolist() for batch in plan] == [batch.tolist() for batch in plain]
        surplus = 0.0
        for batch in plan:
            old = ~batch[batch < 0]
            tokens = mixed.old.tokens(old)
            num_replayed, total = num_replayed + tokens, total + mixed.tokens(batch)
            largest = max((mixed.old.tokens(old[n : n + 1]) for n in range(len(old))), default=0)
            surplus += mixed.ratio * new.tokens(batch[batch >= 0]) - tokens
            assert -max(largest, 16) <= surplus <= 0  # a surplus of one batch is balanced by the next
            seen |= set(old.tolist())
    assert num_replayed / total == pytest.approx(SHARE, abs=0.02)
    if task != "lm":  # its windows differ in every pass
        assert seen == set(range(mixed.old.num_examples()[0]))


def test_passes_over_the_old_data_are_even(tmp_path: Path) -> None:
    """No example is replayed twice as often as another: epochs continue where the ones before stopped."""
    mixed, _ = tasks(tmp_path, "classify", batch_tokens=170)
    replayed = [~batch[batch < 0] for epoch in range(40) for batch in mixed.plan(epoch)]
    counts = np.bincount(np.concatenate(replayed))
    assert counts.min() >= 0.6 * counts.mean() and counts.max() <= 1.4 * counts.mean()


@pytest.mark.parametrize("task", ["translate", "lm", "tag"])
def test_a_plan_depends_on_the_epoch_alone(task: str, tmp_path: Path) -> None:
    mixed, _ = tasks(tmp_path, task)
    again = ReplayTask(mixed.new, mixed.old, SHARE, "old.tsv")
    backwards = [again.plan(epoch) for epoch in (5, 0, 3)]
    for plan, epoch in zip(backwards, (5, 0, 3), strict=True):
        assert [batch.tolist() for batch in mixed.plan(epoch)] == [batch.tolist() for batch in plan]
    assert [batch.tolist() for batch in mixed.plan(0)] != [batch.tolist() for batch in mixed.plan(1)]


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_the_loss_is_the_sum_of_both_and_of_its_parts(task: str, tmp_path: Path) -> None:
    mixed, model = tasks(tmp_path, task)
    batch = max(mixed.plan(1), key=len)
    assert (batch < 0).any() and (batch >= 0).any()
    whole = mixed.loss(model, mixed.batch(batch, 1))
    new, old = batch[batch >= 0], ~batch[batch < 0]
    apart = mixed.new.loss(model, mixed.new.batch(new, 1)), mixed.old.loss(model, mixed.old.batch(old, 1))
    assert whole.smoothed.item() == pytest.approx(sum(loss.smoothed.item() for loss in apart), rel=1e-5)
    assert whole.tokens == mixed.tokens(batch) == sum(loss.tokens for loss in apart)
    parts = mixed.split(batch, 3)
    assert sorted(np.concatenate(parts).tolist()) == sorted(batch.tolist())
    losses = [mixed.loss(model, mixed.batch(part, 1)) for part in parts]
    assert whole.smoothed.item() == pytest.approx(sum(loss.smoothed.item() for loss in losses), rel=1e-4)
    lines = mixed.lines(batch)
    assert len(lines) == len(batch) and str(lines[-1]).startswith("old.tsv:")
