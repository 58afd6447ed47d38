"""State of the training loop: counters and times, the optimizer with its tensors, and the moving average of weights."""

import math
import time
from collections.abc import Callable

import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor

from clearhead.config import TrainingConfig
from clearhead.errors import BundleError
from clearhead.model.parameters import Weights, named_weights
from clearhead.tasks.trainable.task import Validation

EMA = "ema"
EMA_WARMUP = 10  # the decay is at most (1 + n) / (10 + n) at update n, so that the first weights lose their influence
RECENT_UPDATES = 50  # number of updates over which the displayed speed is averaged

Clock = Callable[[], float]


class SchedulePlan(BaseModel):
    """Number of updates of a replanned run, and their mapping to the learning rate schedule.

    The rest of the schedule is stretched or compressed to the remaining updates, so that the learning rate does not
    jump and still ends at its minimum.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int
    start: int
    """Update at which the run was replanned."""
    position: float
    """Position in the original schedule at that update."""

    def position_of(self, step: int, schedule_steps: int) -> float:
        """Return the position of update `step` in the original schedule, which has `schedule_steps` updates."""
        share = (step - self.start) / max(1, self.steps - self.start)
        return self.position + share * (schedule_steps - self.position)


class TrainState(BaseModel):
    """State of the training loop after an update: everything needed to resume, except tensors."""

    model_config = ConfigDict(extra="forbid")

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """Number of batches of the epoch that were used."""
    tokens: int = 0
    nonfinite_steps: int = 0
    """Number of updates that were skipped because the loss or the gradient was not finite."""
    nonfinite_in_a_row: int = 0
    validations_without_gain: int = 0
    loss: float = math.nan
    """Smoothed training loss per token."""
    best: Validation | None = None
    best_step: int = 0
    validations: int = 0
    validated_step: int = 0
    """Step of the last validation."""
    last_validation: Validation | None = None
    next_validation_step: int = 0
    """Step of the next validation of a run with --minutes; 0 if `training.validate_every` determines it."""
    plan: SchedulePlan | None = None
    """Plan of a run with --minutes that was replanned; None before."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    seconds_validating: float = 0.0
    seconds_at_validation: float = 0.0
    """Time used up to the end of the last validation."""
    seconds_per_update: float = 0.0
    """Expected time per update, measured before the last validation; 0 before the first validation."""
    seconds_per_validation: float = 0.0
    """Duration of the last validation."""

    def record_updates(self, recent: float) -> None:
        """Set the expected time per update to the mean since the last validation, or to `recent` if that is longer.

        This is called before a validation. A machine that has just become slower is expected to stay slower.
        """
        if self.step > self.validated_step:
            mean = (self.seconds - self.seconds_at_validation) / (self.step - self.validated_step)
            self.seconds_per_update = max(mean, recent)

    def record_validation(self, validation: Validation, seconds: float) -> None:
        """Record a validation and its duration."""
        self.last_validation, self.validated_step = validation, self.step
        self.validations += 1
        self.seconds_per_validation = seconds
        self.seconds_validating += seconds


class Throughput:
    """Time and speed of a run, including the time before it was resumed."""

    def __init__(self, state: TrainState, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._start = clock() - state.seconds
        self._cpu_start = time.process_time() - state.cpu_seconds
        self._recent = [(clock(), 0)]  # (end time, tokens) of the last updates; the first entry is their start time
        self._tokens_per_second = 0.0

    def write_times(self, state: TrainState) -> None:
        """Write the time used so far into the state."""
        state.seconds, state.cpu_seconds = self._clock() - self._start, time.process_time() - self._cpu_start

    def add_update(self, tokens: int) -> None:
        """Count an update of this many tokens."""
        self._recent = [*self._recent[1 - RECENT_UPDATES :], (self._clock(), tokens)]

    def restart(self) -> None:
        """Discard the last updates, because something else, such as a validation, has taken time since then."""
        self._recent = [(self._clock(), 0)]

    def seconds_per_update(self) -> float:
        """Return the mean time of the last updates; 0 if there are none since the last restart."""
        return (self._recent[-1][0] - self._recent[0][0]) / max(1, len(self._recent) - 1)

    def tokens_per_second(self) -> float:
        """Return target tokens per second over the last updates."""
        if len(self._recent) > 1:
            seconds = self._recent[-1][0] - self._recent[0][0]
            self._tokens_per_second = sum(tokens for _, tokens in self._recent[1:]) / max(1e-9, seconds)
        return self._tokens_per_second


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Return Adam with decoupled weight decay; the trainer sets its learning rate at every update."""
    return torch.optim.AdamW(
        model.parameters(),
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> Weights:
    """Return the optimizer's tensors by name, without copying: moments and update count of each trained weight."""
    return {
        f"{name}:{key}": tensor
        for name, parameter in model.named_parameters()
        for key, tensor in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, tensors: Weights) -> None:
    """Restore the tensors that `optimizer_state` returned; a sharded weight receives its shard."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, tensor in tensors.items():
        name, _, field = key.rpartition(":")
        if name not in parameters or tensor.shape not in (parameters[name].shape, torch.Size([])):
            raise BundleError(f"the saved optimizer state does not fit the model: unexpected tensor {key}")
        optimizer.state[parameters[name]][field] = _place_like(tensor, parameters[name])


def _place_like(tensor: Tensor, parameter: nn.Parameter) -> Tensor:
    """Return the tensor on the device and with the sharding of a weight; update counts stay unchanged."""
    if not tensor.dim():
        return tensor
    if isinstance(parameter.data, DTensor):
        whole, mesh = tensor.to(parameter.data.device), parameter.data.device_mesh
        return distribute_tensor(whole, mesh, parameter.data.placements, src_data_rank=None)
    return tensor.to(parameter.device)


@torch.no_grad()
def update_ema(optimizer: torch.optim.Optimizer, decay: float, step: int) -> None:
    """Update the moving average of each weight after update `step`; the first call initializes it."""
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]
               if optimizer.state.get(parameter)]  # fmt: skip
    for parameter in weights:
        optimizer.state[parameter].setdefault(EMA, parameter.detach().clone())
    averages = [optimizer.state[parameter][EMA] for parameter in weights]
    torch._foreach_lerp_(averages, weights, 1 - min(decay, (1 + step) / (EMA_WARMUP + step)))


def ema_weights(optimizer: torch.optim.Optimizer, model: nn.Module) -> Weights:
    """Return the moving average of each weight, without copying.

    Tensors without an average, such as running statistics, are returned with their current values.
    """
    return {
        name: optimizer.state.get(tensor, {}).get(EMA, tensor) if isinstance(tensor, nn.Parameter) else tensor
        for name, tensor in named_weights(model).items()
    }
