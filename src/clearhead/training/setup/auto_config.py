"""What a user did not set, chosen from the amount of data and the time, each choice with its reason.

What a training will take, from updates measured before it begins.
"""

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
from clearhead.training.distributed.process_group import ALONE, ProcessGroup
from clearhead.training.distributed.thread_data_parallel import open_replicas, torch_threads
from clearhead.training.loop.gradient_accumulation import GradientAccumulator, MicroBatch
from clearhead.training.loop.schedule import MIN_STEPS, VALIDATION_SHARE

LENGTH = ("steps", "epochs", "minutes")
# Rules of thumb, not fitted to measurements. (up to so many pairs, value): small corpora overfit large vocabularies.
VOCABULARIES = ((2_000, 1_000), (10_000, 3_000), (60_000, 6_000), (300_000, 10_000), (2_000_000, 16_000))
LARGEST_VOCABULARY = 32_000
DROPOUTS = ((60_000, 0.3), (200_000, 0.2))
LARGEST_DROPOUT_FREE = 0.1
SMALL_PAIRS = 100_000  # from here on the data feeds preset small ...
BASE_PAIRS = 2_000_000  # ... and from here on the paper's base model
SMALL_MINUTES = 60  # below this preset small sees the data too rarely on two cores
BASE_MINUTES = 24 * 60


@dataclass(frozen=True)
class AutoConfig:
    """Settings, and why."""

    preset: str
    settings: dict[str, Any]
    reasons: list[str]


def choose_config(
    pairs: int, noun: str, given: Mapping[str, Any], preset: str, *, is_start: bool = False, has_text: bool = True
) -> AutoConfig:
    """Settings for a corpus of that many examples; what is in `given` or in a named preset is left as it is.

    `is_start`: training starts from a model, whose shape and tokenizer are kept. `has_text`: there is a tokenizer.
    """
    lengths = {key: float(given.get("training", {}).get(key, 0)) for key in LENGTH}
    minutes = lengths["minutes"]
    reasons, settings = [], dict[str, Any]()
    fixed = merge(PRESETS.get(preset, {}), given)

    def set_unless_given(section: str, field: str, value: object, reason: str) -> None:
        if field not in fixed.get(section, {}):
            nonlocal settings
            settings = merge(settings, {section: {field: value}})
            reasons.append(f"{section}.{field}={value}: {reason}")

    if not preset and not is_start:
        preset, reason = _size(pairs, noun, minutes)
        reasons.append(f"preset {preset}: {reason}")
        rate = _by_size(DROPOUTS, pairs, LARGEST_DROPOUT_FREE)
        set_unless_given("model", "dropout", rate, f"{pairs:,} {noun} {'overfit soon' if rate > 0.1 else 'are many'}")
    if has_text and not is_start and given.get("tokenizer", {}).get("kind") not in ("pretokenized", "char"):
        size = _by_size(VOCABULARIES, pairs, LARGEST_VOCABULARY)
        set_unless_given("tokenizer", "vocab_size", size, f"fits {pairs:,} {noun}")
    if pairs < 10_000:
        set_unless_given("training", "batch_tokens", 2048, "small corpora need more updates")
    else:
        set_unless_given("training", "batch_tokens", 4096, "the usual; enough for two cores")
    if not any(lengths.values()):
        set_unless_given("training", "epochs", default_epochs(pairs), "no time was given; --minutes sets it")
        set_unless_given("training", "patience", 5, "stops when five validations in a row bring no gain")
    return AutoConfig(preset, settings, reasons)


def default_epochs(pairs: int) -> int:
    """Return the passes over the data that a run without a length makes, unless validations bring no gain before."""
    return min(60, max(5, 1_000_000 // pairs))


def without_length(given: Mapping[str, Any]) -> dict[str, Any]:
    """The settings without a length that is 0, which is the same as none."""
    training = given.get("training", {})
    if any(float(training.get(key, 0)) for key in LENGTH):
        return dict(given)
    return {**given, "training": {key: value for key, value in training.items() if key not in LENGTH}}


def _size(pairs: int, noun: str, minutes: float) -> tuple[str, str]:
    if pairs >= BASE_PAIRS and minutes >= BASE_MINUTES:
        return "paper-base", f"{pairs:,} {noun} and a day or more feed the paper's base model"
    if pairs >= SMALL_PAIRS and (not minutes or minutes >= SMALL_MINUTES):
        return "small", f"{pairs:,} {noun} feed 3+3 layers of width 256"
    if pairs >= SMALL_PAIRS:
        return "tiny", f"{minutes:g} minutes are too short for a larger one to see {pairs:,} {noun} often enough"
    return "tiny", f"{pairs:,} {noun} would be learned by heart by a larger one"


def _by_size(table: tuple[tuple[int, Any], ...], pairs: int, otherwise: Any) -> Any:
    return next((value for limit, value in table if pairs < limit), otherwise)


SECONDS = 4.0  # for measuring, at most; with --minutes up to half as many more


@dataclass(frozen=True)
class Estimate:
    """What a run will take, from measured updates."""

    steps: int
    epochs: float
    seconds_per_update: float
    minutes: float
    memory_mib: float  # peak of this process while it measured


def benchmark_step(
    task: TrainingTask[Any], model: nn.Module, config: TrainingConfig, threads: int, processes: ProcessGroup = ALONE
) -> Estimate:
    """How long the run will take, and with `minutes` how many updates fit: fixed here, once, for all processes."""
    plan = task.plan(0)
    budget = min(1.5 * SECONDS, 0.6 * config.minutes) if config.minutes else SECONDS
    each = seconds_per_update(task, model, config, threads, budget, processes)
    updates_an_epoch = len(plan) / config.gradient_accumulation
    if config.steps:
        steps = config.steps
    elif config.minutes:
        steps = max(MIN_STEPS, int(config.minutes * 60 * (1 - VALIDATION_SHARE) / each))
    else:
        steps = steps_of_epochs(config.epochs, updates_an_epoch)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    minutes = steps * each / (1 - VALIDATION_SHARE) / 60
    return Estimate(steps, steps / updates_an_epoch, each, minutes, memory)


def steps_of_epochs(epochs: float, updates_an_epoch: float) -> int:
    """How many updates so many passes over the data are."""
    return max(1, math.ceil(round(epochs * updates_an_epoch, 6)))  # 0.07 x 100 is 7.000000000000001


def describe(estimate: Estimate) -> str:
    """The estimate in a sentence."""
    return (
        f"{estimate.steps:,} updates ({estimate.epochs:.1f} epochs) of {estimate.seconds_per_update:.3f} s (measured): "
        f"about {_shown(estimate.minutes)} minutes; memory {estimate.memory_mib:,.0f} MiB"
    )


def _shown(minutes: float) -> str:
    """Return minutes with the digits that matter: 87, 2.7, 0.37."""
    return f"{minutes:.0f}" if minutes >= 10 else f"{minutes:.1f}" if minutes >= 1 else f"{minutes:.2f}"


def minutes_of(epochs: float, estimate: Estimate) -> float:
    """Return how long so many passes over the data take, with validations."""
    updates = epochs * estimate.steps / estimate.epochs
    return updates * estimate.seconds_per_update / (1 - VALIDATION_SHARE) / 60


def describe_useful(estimate: Estimate, usual_epochs: int) -> str:
    """Return the updates and the time of one epoch, and of as many as a run without a length has at most."""
    updates = max(1, round(estimate.steps / estimate.epochs))
    return (
        f"one epoch is {updates:,} updates, about {_shown(minutes_of(1, estimate))} minutes; useful duration: up to "
        f"{usual_epochs} epochs, about {_shown(minutes_of(usual_epochs, estimate))} minutes (the default for this much "
        "data, which stops earlier when validations bring no gain)"
    )


def warn_short(estimate: Estimate) -> str:
    """Return a warning about a run that does not see all data once; empty otherwise."""
    if estimate.epochs >= 1:
        return ""
    return (
        f"warning: this run sees {100 * estimate.epochs:.0f} % of the data once and will hardly learn its task; one "
        f"epoch takes about {_shown(minutes_of(1, estimate))} minutes"
    )


def seconds_per_update(
    task: TrainingTask[Any],
    model: nn.Module,
    config: TrainingConfig,
    threads: int,
    budget: float,
    processes: ProcessGroup = ALONE,
) -> float:
    """Measured time of an update: gradients of real batches from all over the first epoch, weights left alone.

    Several processes measure in step, with what they exchange; the slowest counts. The first third is left out, where
    memory and caches are still cold; of the others the median, so that a moment in which something else ran does not
    count for the whole training.
    """
    plan = task.plan(0)
    seconds: list[float] = []
    buffers = {name: buffer.clone() for name, buffer in model.named_buffers()}
    began = time.monotonic()
    with torch_threads(1), open_replicas(model, threads, config.batch_tokens, processes) as replicas:
        model.train()
        gradients = GradientAccumulator(task, replicas, config.seed, lambda _: None, config.precision)
        for index in np.random.default_rng(0).integers(0, len(plan), 90):
            start = time.monotonic()
            gradients.add([MicroBatch(0, plan[index])], 0)
            replicas.gather_gradients()
            model.zero_grad()
            seconds.append(time.monotonic() - start)
            if len(seconds) > 4 and processes.largest(time.monotonic() - began) > budget:
                break
    for name, buffer in model.named_buffers():  # running figures of a batch norm
        buffer.copy_(buffers[name])
    return processes.largest(float(np.median(seconds[len(seconds) // 3 :]))) * config.gradient_accumulation
