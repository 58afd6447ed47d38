"""What a training will take, from updates measured before it begins."""

import math
import resource
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
from torch import nn

from clearhead.config import TrainingConfig
from clearhead.tasks.trainable.task import TrainingTask
from clearhead.training.distributed.process_group import ALONE, ProcessGroup
from clearhead.training.distributed.thread_data_parallel import open_replicas, torch_threads
from clearhead.training.loop.gradient_accumulation import GradientAccumulator, MicroBatch
from clearhead.training.loop.timetable import MIN_STEPS, VALIDATION_SHARE

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
