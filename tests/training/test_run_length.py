"""Runs with --minutes end in time by their own clock, and the shown remaining time is never zero."""

import itertools
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import nn

from clearhead.cli.progress_display import format_remaining_time as shown_clock
from clearhead.config import TrainingConfig
from clearhead.model.loss import Loss
from clearhead.model.parameters import Weights, snapshot
from clearhead.tasks.trainable.task import Decode, Validation
from clearhead.training.loop.callbacks import NullCallback, Progress
from clearhead.training.loop.schedule import MIN_STEPS, Schedule, Timetable
from clearhead.training.loop.train_state import SchedulePlan, TrainState
from clearhead.training.loop.trainer import Trainer
from tests.training.test_trainer import RecordingLogger, Regression

MINUTES = 10.0
BUDGET = 60 * MINUTES


class Clock:
    """Clock whose time the test sets."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Timed(Regression):
    """Task whose updates and validations take a known time, on a machine that becomes slower."""

    def __init__(self, clock: Clock, slower_at: float = 1e9, factor: float = 3.0, validation: float = 2.0) -> None:
        super().__init__()
        self.clock, self.slower_at, self.factor, self.validation = clock, 1000.0 + slower_at, factor, validation

    def _pass(self, seconds: float) -> None:
        self.clock.now += seconds * (self.factor if self.clock.now >= self.slower_at else 1.0)

    def loss(self, model: Any, batch: Any) -> Loss:
        self._pass(0.5)
        return super().loss(model, batch)

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        self._pass(self.validation)
        return super().validate(model, decode)


class ProgressRecorder(NullCallback):
    """Callback that stores the reported progress."""

    def __init__(self) -> None:
        self.updates: list[Progress] = []

    def progress(self, progress: Progress) -> None:
        self.updates.append(progress)


@dataclass
class TimedRun:
    trainer: Trainer
    task: Timed
    logger: RecordingLogger
    callback: ProgressRecorder


def timed(steps: int = 1080, length: dict[str, Any] | None = None, **task_settings: Any) -> TimedRun:
    """Return a trainer with a fake clock; 1,080 updates of 0.5 seconds are nine tenths of ten minutes."""
    torch.manual_seed(3)
    clock = Clock()
    task, logger, callback = Timed(clock, **task_settings), RecordingLogger(), ProgressRecorder()
    settings = {
        "learning_rate": 0.1,
        "warmup": 50,
        "cooldown": 0.4,
        "average_checkpoints": 5,
        **(length or {"minutes": MINUTES}),
    }
    config = TrainingConfig(**settings)
    trainer = Trainer(task, nn.Linear(1, 1), config, Schedule.fit(config, 1, steps), callback, logger, 1, clock=clock)
    return TimedRun(trainer, task, logger, callback)


def finish_run(timed_run: TimedRun) -> float:
    """Run to the end and validate averaged weights, as a whole training does; return the seconds used."""
    timed_run.trainer.run()
    timed_run.trainer.score()
    return timed_run.task.clock.now - 1000.0


@pytest.mark.parametrize("slower_at", [10, 60, 200, 350, 500])
@pytest.mark.parametrize("validation", [0.5, 20.0])
def test_a_run_on_a_machine_that_becomes_slower_ends_in_time(slower_at: int, validation: float) -> None:
    timed_run = timed(slower_at=slower_at, validation=validation)
    used = finish_run(timed_run)
    outcome = timed_run.trainer.state
    validating = 3 * 2.0 * validation  # the last ones take three times as long, whatever is planned
    assert 0.85 * BUDGET < used <= 1.05 * BUDGET + validating
    assert outcome.plan and outcome.step == outcome.plan.steps < 1080 and outcome.validated_step == outcome.step


def test_a_plan_that_fits_is_unchanged() -> None:
    timed_run = timed(validation=2.7)
    used = finish_run(timed_run)
    assert timed_run.trainer.state.plan is None and timed_run.trainer.state.step == 1080
    assert used <= 1.02 * BUDGET


def test_a_machine_faster_than_measured_makes_more_updates() -> None:
    timed_run = timed(steps=400)
    assert 0.9 * BUDGET < finish_run(timed_run) <= 1.02 * BUDGET
    assert timed_run.trainer.state.step > 900


@pytest.mark.parametrize("length", [{"steps": 200}, {"epochs": 50.0}])
def test_runs_of_a_fixed_length_are_never_replanned(length: dict[str, Any]) -> None:
    timed_run = timed(200, length, slower_at=10, factor=50.0)
    timed_run.trainer.run()
    assert timed_run.trainer.state.step == 200 and timed_run.trainer.state.plan is None
    assert timed_run.task.validations == 20


def test_the_learning_rate_still_ends_at_its_minimum() -> None:
    timed_run = timed(slower_at=200)
    fits = timed()
    finish_run(timed_run)
    finish_run(fits)
    rates, expected = ([update.rate for update in each.callback.updates] for each in (timed_run, fits))
    assert len(rates) < len(expected)
    assert rates[-1] == pytest.approx(expected[-1]) and rates[-1] < 0.01 * max(rates)
    changes = [after / before for before, after in itertools.pairwise(rates[60:-9])]
    assert min(changes) > 0.9 and max(changes) <= 1.0  # no jump where the plan changed


def test_a_plan_maps_the_rest_of_the_updates_to_the_rest_of_the_schedule() -> None:
    schedule = Schedule(peak=1.0, warmup=1, steps=100, cooldown=1.0)
    plan = SchedulePlan(steps=60, start=40, position=40.0)
    assert [plan.position_of(step, schedule.steps) for step in (40, 50, 60)] == [40.0, 70.0, 100.0]


class Stopping(RecordingLogger):
    """Logger that copies the complete state at each save, like a run folder."""

    def __init__(self) -> None:
        super().__init__()
        self.states: dict[int, tuple[TrainState, Weights, Weights]] = {}

    def save(self, state: TrainState, weights: Weights, optimizer: Weights, is_checkpoint: bool) -> None:
        super().save(state, weights, optimizer, is_checkpoint)
        weight_copies, optimizer_copies = (
            {name: tensor.clone() for name, tensor in each.items()} for each in (weights, optimizer)
        )
        self.states[state.step] = (state.model_copy(deep=True), weight_copies, optimizer_copies)


def test_a_run_resumed_after_a_new_plan_makes_the_same_updates() -> None:
    whole = timed(slower_at=200)
    logger = Stopping()
    whole.trainer.logger = logger
    finish_run(whole)
    plan = whole.trainer.state.plan
    assert plan
    slow = [step for step, (state, _, _) in logger.states.items() if state.plan and state.seconds > 300]
    assert len(slow) > 5
    for step in (slow[0], slow[-3]):
        state, weights, optimizer = logger.states[step]
        rest = timed(slower_at=-1.0)
        rest.task.clock.now = 1000.0  # another process has another clock
        rest.trainer.model.load_state_dict(weights)
        rest.trainer.restore(TrainState.model_validate_json(state.model_dump_json()), optimizer)
        rest.trainer.run()
        assert rest.trainer.state.plan == plan and rest.trainer.state.step == whole.trainer.state.step
        torch.testing.assert_close(snapshot(rest.trainer.model), snapshot(whole.trainer.model), atol=0, rtol=0)


def test_a_new_plan_is_saved_at_once() -> None:
    """A new plan is also saved between checkpoints; a run resumed from an older state would make another plan."""
    timed_run, logger = timed(slower_at=60, validation=20.0), Stopping()
    timed_run.trainer.logger = logger
    finish_run(timed_run)
    plans = {entry["step"]: entry["plan"]["steps"] for entry in logger.records if "plan" in entry}
    assert len(plans) > 1 and any(step not in logger.steps for step in plans)
    for step, steps in plans.items():
        plan = logger.states[step][0].plan
        assert plan is not None and (plan.start, plan.steps) == (step, steps)


def test_the_remaining_time_includes_all_validations() -> None:
    timed_run = timed(validation=20.0)
    finish_run(timed_run)
    last = timed_run.callback.updates[-1]
    assert last.step == last.steps and last.seconds_left == pytest.approx(
        40.0
    )  # its own validation, and that of the averaged weights
    assert all(shown_clock(update.seconds_left) != "0:00" for update in timed_run.callback.updates)
    for update in timed_run.callback.updates[-300:]:
        assert update.seconds + update.seconds_left == pytest.approx(BUDGET, rel=0.05)


def timetable(state: TrainState, steps: int = 1000, **settings: Any) -> Timetable:
    config = TrainingConfig(**settings)
    return Timetable(state, config, Schedule.fit(config, 1, steps))


def test_the_remaining_time_before_the_first_validation_includes_a_share_for_it() -> None:
    state = TrainState(step=50, seconds=25.0)
    assert timetable(state).seconds_left() == pytest.approx(500 / 0.9 - 25)
    assert timetable(TrainState(step=1000, seconds=500.0)).seconds_left() > 50


def scored(score: float | None) -> Validation:
    return Validation(1.0, score, "bleu", "", ("", "", ""))


def test_validations_with_decoding_are_expected_to_take_longer() -> None:
    times = {"seconds": 100.0, "seconds_per_update": 0.5, "seconds_per_validation": 4.0, "validations": 1}
    known = TrainState(step=100, validated_step=100, last_validation=scored(3.0), **times)
    unknown = TrainState(step=100, validated_step=100, last_validation=scored(None), **times)
    assert timetable(known, average_checkpoints=1).seconds_left() == pytest.approx(450 + 18 * 4)
    assert timetable(unknown, average_checkpoints=1).seconds_left() == pytest.approx(450 + 18 * 8)


def test_validations_of_a_short_run_take_their_share_of_the_time() -> None:
    def next_validation(step: int, validating: float, minutes: float) -> int:
        state = TrainState(
            step=step, seconds=10.0, last_validation=scored(1.0), seconds_per_update=0.6, seconds_per_validation=3.0,
            seconds_validating=validating, validations=1,
        )  # fmt: skip
        return timetable(state, 200, minutes=minutes, average_checkpoints=1).fit()[1]

    assert (
        next_validation(1, 3.0, 2.0) == 1 + 56
    )  # 168 updates and three validations fit: three more fit into a tenth of the time, besides the first
    assert next_validation(150, 9.0, 2.0) > 165  # the share is used up: only the last one
    assert next_validation(1, 3.0, 1e4) > 1000


def test_there_are_always_a_few_updates() -> None:
    state = TrainState(
        step=4, seconds=1e6, last_validation=scored(1.0), seconds_per_update=1.0, seconds_per_validation=1.0
    )
    assert timetable(state, minutes=0.001).fit()[0] == MIN_STEPS
    late = state.model_copy(update={"step": 400})
    assert timetable(late, minutes=0.001).fit()[0] == 400
