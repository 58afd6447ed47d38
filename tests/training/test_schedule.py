"""The learning rate: the paper's values, warmup, cooldown."""

import pytest
import torch

from clearhead.config import TrainingConfig, build
from clearhead.training.loop.schedule import Schedule
from clearhead.training.setup.auto_config import choose_config, without_zero_length


@pytest.mark.parametrize("step", [1, 100, 3999, 4000, 4001, 50_000, 100_000])
def test_the_learning_rate_of_the_paper(step: int) -> None:
    schedule = Schedule.fit(build(preset="paper-base").training, 512, 100_000)
    assert schedule.rate(step) == pytest.approx(512**-0.5 * min(step**-0.5, step * 4000**-1.5))


@pytest.mark.parametrize("steps", [1, 3, 40, 1000, 100_000])
def test_warmup_is_at_most_a_quarter(steps: int) -> None:
    schedule = Schedule.fit(TrainingConfig(warmup=4000, learning_rate=0.1), 128, steps)
    assert schedule.warmup <= max(1, steps / 4)
    assert max(schedule.rate(step) for step in range(1, steps + 1)) == pytest.approx(0.1)


def test_cooldown_ends_near_zero() -> None:
    schedule = Schedule.fit(TrainingConfig(warmup=10, learning_rate=1.0, cooldown=0.5), 128, 100)
    plain = Schedule.fit(TrainingConfig(warmup=10, learning_rate=1.0), 128, 100)
    assert schedule.rate(50) == plain.rate(50)
    assert schedule.rate(100) == pytest.approx(plain.rate(100) / 50)
    rates = [schedule.rate(step) for step in range(50, 101)]
    assert rates == sorted(rates, reverse=True)


def test_constant_and_cosine_schedules() -> None:
    """Compare with torch's schedulers."""
    held = Schedule.fit(TrainingConfig(warmup=10, learning_rate=0.1, schedule="none", cooldown=0.5), 128, 100)
    assert [held.rate(step) for step in (5, 10, 30, 50)] == pytest.approx([0.05, 0.1, 0.1, 0.1])
    assert held.rate(76) == pytest.approx(0.05)
    falling = Schedule.fit(TrainingConfig(warmup=10, learning_rate=0.1, schedule="cosine"), 128, 100)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=90)
    for step in range(10, 101):
        assert falling.rate(step) == pytest.approx(scheduler.get_last_lr()[0], abs=1e-9)
        optimizer.step()
        scheduler.step()
    assert falling.rate(1) == pytest.approx(0.01)


@pytest.mark.parametrize(
    ("pairs", "minutes", "preset"),
    [(500, 5, "tiny"), (30_000, 600, "tiny"), (200_000, 10, "tiny"), (200_000, 120, "small"),
     (5_000_000, 3000, "paper-base")],
)  # fmt: skip
def test_size_follows_data_and_time(pairs: int, minutes: float, preset: str) -> None:
    choice = choose_config(pairs, "pairs", {"training": {"minutes": minutes}}, "")
    assert choice.preset == preset
    assert any(reason.startswith(f"preset {preset}: ") for reason in choice.reasons)


def test_settings_of_the_user_are_not_changed() -> None:
    settings = {
        "model": {"dropout": 0.5},
        "tokenizer": {"vocab_size": 77},
        "training": {"batch_tokens": 9, "epochs": 1},
    }
    choice = choose_config(1000, "pairs", settings, "small")
    assert choice.preset == "small"
    assert choice.settings == {}


@pytest.mark.parametrize("zero", [0, "0", "0.0"])
def test_lengths_of_zero_mean_unset(zero: object) -> None:
    settings = {"training": {"steps": zero, "epochs": zero, "warmup": 3}, "model": {"dropout": 0.1}}
    assert without_zero_length(settings) == {"training": {"warmup": 3}, "model": {"dropout": 0.1}}
    assert (
        choose_config(1000, "pairs", settings | {"training": {"steps": zero}}, "").settings["training"]["epochs"] == 60
    )
    with_minutes = {"training": {"steps": zero, "minutes": "2"}}
    assert without_zero_length(with_minutes) == with_minutes
