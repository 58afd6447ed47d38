"""Automatic configuration: settings from the amount of data and the time, and the length of a run from its speed."""

import math
import resource
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from clearhead.config import PRESETS, TrainingConfig, merge
from clearhead.tasks.trainable.task import TrainingTask
from clearhead.training.distributed.process_group import SINGLE_PROCESS, ProcessGroup
from clearhead.training.distributed.thread_data_parallel import open_replicas, torch_threads
from clearhead.training.loop.gradient_accumulation import GradientAccumulator, MicroBatch
from clearhead.training.loop.schedule import MIN_STEPS, VALIDATION_SHARE

LENGTH = ("steps", "epochs", "minutes")
# Rules of thumb, not fitted to measurements. Each row is (number of pairs below which it applies, value). Small corpora
# have small vocabularies and a high dropout because they overfit.
VOCABULARY_SIZES = ((2_000, 1_000), (10_000, 3_000), (60_000, 6_000), (300_000, 10_000), (2_000_000, 16_000))
LARGEST_VOCABULARY = 32_000
DROPOUT_RATES = ((60_000, 0.3), (200_000, 0.2))
SMALLEST_DROPOUT = 0.1
SMALL_PAIRS = 100_000  # enough data for preset small
BASE_PAIRS = 2_000_000  # enough data for the paper's base model
SMALL_MINUTES = 60  # in less time, preset small makes too few epochs on two cores
BASE_MINUTES = 24 * 60

BENCHMARK_SECONDS = 4.0  # duration of the measurement; with --minutes up to 1.5 times as long


@dataclass(frozen=True)
class AutoConfig:
    """Automatically chosen settings with their reasons."""

    preset: str
    settings: dict[str, Any]
    reasons: list[str]


def choose_config(
    pairs: int,
    noun: str,
    settings: Mapping[str, Any],
    preset: str,
    *,
    is_finetuning: bool = False,
    has_text: bool = True,
) -> AutoConfig:
    """Return settings for `pairs` examples; values in `settings` or in a named preset are not changed.

    `is_finetuning` means that shape and tokenizer are those of a pretrained model, and `has_text` that there is a
    tokenizer. `noun` names the examples in the reasons.
    """
    lengths = {key: float(settings.get("training", {}).get(key, 0)) for key in LENGTH}
    reasons, chosen = [], dict[str, Any]()
    fixed = merge(PRESETS.get(preset, {}), settings)

    def choose(section: str, field: str, value: object, reason: str) -> None:
        if field not in fixed.get(section, {}):
            nonlocal chosen
            chosen = merge(chosen, {section: {field: value}})
            reasons.append(f"{section}.{field}={value}: {reason}")

    if not preset and not is_finetuning:
        preset, reason = _choose_preset(pairs, noun, lengths["minutes"])
        reasons.append(f"preset {preset}: {reason}")
        rate = _by_size(DROPOUT_RATES, pairs, SMALLEST_DROPOUT)
        choose(
            "model",
            "dropout",
            rate,
            f"{pairs:,} {noun} {'overfit easily' if rate > SMALLEST_DROPOUT else 'hardly overfit'}",
        )
    if has_text and not is_finetuning and settings.get("tokenizer", {}).get("kind") not in ("pretokenized", "char"):
        size = _by_size(VOCABULARY_SIZES, pairs, LARGEST_VOCABULARY)
        choose("tokenizer", "vocab_size", size, f"fits {pairs:,} {noun}")
    if pairs < 10_000:
        choose("training", "batch_tokens", 2048, "small corpora need more updates")
    else:
        choose("training", "batch_tokens", 4096, "the default, enough for two cores")
    if not any(lengths.values()):
        choose("training", "epochs", default_epochs(pairs), "no length was set; --minutes, --epochs or --steps sets it")
        choose("training", "patience", 5, "training stops after five validations in a row without improvement")
    return AutoConfig(preset, chosen, reasons)


def default_epochs(pairs: int) -> int:
    """Return the epochs of a run without a length, which ends earlier when validations stop improving."""
    return min(60, max(5, 1_000_000 // pairs))


def without_zero_length(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings without steps, epochs and minutes if all of them are 0, which means unset."""
    training = settings.get("training", {})
    if any(float(training.get(key, 0)) for key in LENGTH):
        return dict(settings)
    return {**settings, "training": {key: value for key, value in training.items() if key not in LENGTH}}


def _choose_preset(pairs: int, noun: str, minutes: float) -> tuple[str, str]:
    """Return a preset and the reason for it."""
    if pairs >= BASE_PAIRS and minutes >= BASE_MINUTES:
        return "paper-base", f"{pairs:,} {noun} and a day or more suffice for the paper's base model"
    if pairs >= SMALL_PAIRS and (not minutes or minutes >= SMALL_MINUTES):
        return "small", f"{pairs:,} {noun} suffice for 3+3 layers of width 256"
    if pairs >= SMALL_PAIRS:
        return "tiny", f"in {minutes:g} minutes a larger model would not see {pairs:,} {noun} often enough"
    return "tiny", f"a larger model would overfit {pairs:,} {noun}"


def _by_size(table: tuple[tuple[int, Any], ...], pairs: int, default: Any) -> Any:
    """Return the value of the first row whose limit exceeds the number of pairs, else the default."""
    return next((value for limit, value in table if pairs < limit), default)


@dataclass(frozen=True)
class Estimate:
    """Estimated length and memory of a run, from measured updates."""

    steps: int
    epochs: float
    seconds_per_update: float
    minutes: float
    memory_mib: float  # peak of this process during the measurement

    def minutes_of(self, epochs: float) -> float:
        """Return the minutes of a number of epochs, validations included."""
        updates = epochs * self.steps / self.epochs
        return updates * self.seconds_per_update / (1 - VALIDATION_SHARE) / 60

    def __str__(self) -> str:
        return (
            f"{self.steps:,} updates ({self.epochs:.1f} epochs) of {self.seconds_per_update:.3f} s (measured): "
            f"about {_format_minutes(self.minutes)} minutes; memory {self.memory_mib:,.0f} MiB"
        )

    def describe_epochs(self, epochs: int) -> str:
        """Return updates and time of one epoch, and the time of the default number of epochs."""
        updates = max(1, round(self.steps / self.epochs))
        return (
            f"one epoch is {updates:,} updates, about {_format_minutes(self.minutes_of(1))} minutes; useful duration: "
            f"up to {epochs} epochs, about {_format_minutes(self.minutes_of(epochs))} minutes (the default for this "
            "amount of data, which stops earlier when validations stop improving)"
        )

    @property
    def warning(self) -> str:
        """A warning if the run is shorter than one epoch; empty otherwise."""
        if self.epochs >= 1:
            return ""
        return (
            f"warning: this run sees {100 * self.epochs:.0f} % of the data once and will hardly learn its task; one "
            f"epoch takes about {_format_minutes(self.minutes_of(1))} minutes"
        )


def _format_minutes(minutes: float) -> str:
    """Return minutes with two significant digits below 10, such as 2.7 or 0.37, and else as an integer."""
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}" if minutes >= 1 else f"{minutes:.2f}"


def benchmark_step(
    task: TrainingTask[Any],
    model: nn.Module,
    config: TrainingConfig,
    threads: int,
    group: ProcessGroup = SINGLE_PROCESS,
) -> Estimate:
    """Return the estimated length of the run; with --minutes, this determines its number of updates."""
    budget = min(1.5 * BENCHMARK_SECONDS, 0.6 * config.minutes) if config.minutes else BENCHMARK_SECONDS
    per_update = seconds_per_update(task, model, config, threads, budget, group)
    updates_per_epoch = len(task.plan(0)) / config.gradient_accumulation
    if config.steps:
        steps = config.steps
    elif config.minutes:
        steps = max(MIN_STEPS, int(config.minutes * 60 * (1 - VALIDATION_SHARE) / per_update))
    else:
        steps = steps_of_epochs(config.epochs, updates_per_epoch)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    minutes = steps * per_update / (1 - VALIDATION_SHARE) / 60
    return Estimate(steps, steps / updates_per_epoch, per_update, minutes, memory)


def steps_of_epochs(epochs: float, updates_per_epoch: float) -> int:
    """Return the number of updates of a number of epochs, rounded up."""
    return max(1, math.ceil(round(epochs * updates_per_epoch, 6)))  # 0.07 x 100 is 7.000000000000001


def seconds_per_update(
    task: TrainingTask[Any],
    model: nn.Module,
    config: TrainingConfig,
    threads: int,
    budget: float,
    group: ProcessGroup = SINGLE_PROCESS,
) -> float:
    """Return the measured time of an update, from computing gradients of random batches without changing weights.

    Several processes measure together, including their communication, and the slowest determines the result. The first
    third is discarded because caches are cold, and the median of the rest excludes moments in which other programs ran.
    """
    plan = task.plan(0)
    seconds: list[float] = []
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    start = time.monotonic()
    with torch_threads(1), open_replicas(model, threads, config.batch_tokens, group) as replicas:
        model.train()
        gradients = GradientAccumulator(task, replicas, config.seed, lambda _: None, config.precision)
        for index in np.random.default_rng(0).integers(0, len(plan), 90):
            update_start = time.monotonic()
            gradients.add([MicroBatch(0, plan[index])], 0)
            replicas.gather_gradients()
            model.zero_grad()
            seconds.append(time.monotonic() - update_start)
            if len(seconds) > 4 and group.max(time.monotonic() - start) > budget:
                break
    for name, buffer in model.named_buffers():  # the running statistics of batch norms
        buffer.copy_(buffers[name])
    return group.max(float(np.median(seconds[len(seconds) // 3 :]))) * config.gradient_accumulation
