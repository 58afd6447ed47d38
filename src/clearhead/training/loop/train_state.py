"""What the loop of a training keeps count of, and how fast it goes.

The optimiser, and what it remembers of a run as tensors by name: its moments, and a moving mean of the weights.
"""

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

Clock = Callable[[], float]


class SchedulePlan(BaseModel):
    """Number of updates of a run that was planned again, and how they map to its learning-rate schedule.

    The rest of the schedule is stretched or compressed to the rest of the updates, so that it has no jump and still
    ends at its minimum.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    steps: int
    start: int
    """The update at which the plan was made."""
    position: float
    """The position in the original schedule at that update."""

    def position_of(self, step: int, schedule_steps: int) -> float:
        """Return the position of an update in the original schedule, which has `schedule_steps` updates."""
        share = (step - self.start) / max(1, self.steps - self.start)
        return self.position + share * (schedule_steps - self.position)


class TrainState(BaseModel):
    """Where a run stands after an update: all that the loop needs to go on from there, besides tensors."""

    model_config = ConfigDict(extra="forbid")

    step: int = 0
    epoch: int = 0
    batch: int = 0
    """How many batches of the epoch's plan are used up."""
    tokens: int = 0
    bad_steps: int = 0
    bad_in_a_row: int = 0
    without_gain: int = 0
    loss: float = math.nan
    best: Validation | None = None
    best_step: int = 0
    validated: int = 0
    """The step of the last validation."""
    validations: int = 0
    validate_at: int = 0
    """The step of the next validation, where a run with --minutes has spaced them; 0: by `training.validate_every`."""
    plan: SchedulePlan | None = None
    """Set when a run with --minutes was planned anew."""
    last: Validation | None = None
    """The last validation."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    seconds_validating: float = 0.0
    seconds_at_validation: float = 0.0
    """Time used when the last validation ended."""
    seconds_per_update: float = 0.0
    """Expected from the updates before the last validation; 0: there was none."""
    seconds_per_validation: float = 0.0
    """Time of the last validation."""

    def note_updates(self, recent: float) -> None:
        """Take the time per update since the last validation, or of the `recent` ones if that is longer.

        To be called before the next validation. A machine that has just become slower is expected to stay so.
        """
        if self.step > self.validated:
            mean = (self.seconds - self.seconds_at_validation) / (self.step - self.validated)
            self.seconds_per_update = max(mean, recent)

    def note_validation(self, validation: Validation, seconds: float) -> None:
        """Record a validation and its duration."""
        self.last, self.validated = validation, self.step
        self.validations += 1
        self.seconds_per_validation = seconds
        self.seconds_validating += seconds


class Throughput:
    """Time and speed of a run, counted on from the time that it had used before."""

    def __init__(self, counts: TrainState, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = clock() - counts.seconds
        self._cpu_began = time.process_time() - counts.cpu_seconds
        self._recent = [(clock(), 0)]  # (time, tokens) of the last updates, behind the time of their beginning
        self._speed = 0.0

    def note(self, counts: TrainState) -> None:
        """Write the time used into the counts."""
        counts.seconds, counts.cpu_seconds = self._clock() - self._began, time.process_time() - self._cpu_began

    def updated(self, tokens: int) -> None:
        """An update was made."""
        self._recent = [*self._recent[-49:], (self._clock(), tokens)]

    def paused(self) -> None:
        """Something else took its time."""
        self._recent = [(self._clock(), 0)]

    def seconds_per_update(self) -> float:
        """Return the mean time of the last updates; 0 if there are none since the last pause."""
        return (self._recent[-1][0] - self._recent[0][0]) / max(1, len(self._recent) - 1)

    def speed(self) -> float:
        """Return target tokens per second over the last updates."""
        if len(self._recent) > 1:
            seconds = self._recent[-1][0] - self._recent[0][0]
            self._speed = sum(tokens for _, tokens in self._recent[1:]) / max(1e-9, seconds)
        return self._speed


EMA = "ema"
_WARM = 10  # the first updates count less: with a decay of (1 + n) / (10 + n) the beginning is soon forgotten


def build_optimizer(model: nn.Module, config: TrainingConfig) -> torch.optim.Optimizer:
    """Adam with decoupled weight decay; its learning rate is set at every update."""
    return torch.optim.AdamW(
        model.parameters(),
        betas=(config.adam_beta1, config.adam_beta2),
        eps=config.adam_epsilon,
        weight_decay=config.weight_decay,
        fused=True,
    )


def optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module) -> Weights:
    """The tensors themselves, not copies: both moments and the number of updates of each weight that had one."""
    return {
        f"{name}:{key}": tensor
        for name, parameter in model.named_parameters()
        for key, tensor in optimizer.state.get(parameter, {}).items()
    }


def restore_optimizer_state(optimizer: torch.optim.Optimizer, model: nn.Module, kept: Weights) -> None:
    """Puts back what `moments` gave; where the weights are sharded, each process takes its part."""
    parameters = dict(model.named_parameters())
    optimizer.state.clear()
    for key, tensor in kept.items():
        name, _, part = key.rpartition(":")
        if name not in parameters or tensor.shape not in (parameters[name].shape, torch.Size([])):
            raise BundleError(f"the state of the optimiser does not fit the model: {key}")
        optimizer.state[parameters[name]][part] = _like(tensor, parameters[name])


def _like(tensor: Tensor, parameter: nn.Parameter) -> Tensor:
    """On the device of the weight, and sharded as it is; the number of updates stays where it is."""
    if not tensor.dim():
        return tensor
    if isinstance(parameter.data, DTensor):
        whole, mesh = tensor.to(parameter.data.device), parameter.data.device_mesh
        return distribute_tensor(whole, mesh, parameter.data.placements, src_data_rank=None)
    return tensor.to(parameter.device)


@torch.no_grad()
def update_ema(optimizer: torch.optim.Optimizer, decay: float, step: int) -> None:
    """Moves the mean of each weight towards the weight as update `step` left it; the first one begins it."""
    weights = [parameter for group in optimizer.param_groups for parameter in group["params"]
               if optimizer.state.get(parameter)]  # fmt: skip
    for parameter in weights:
        optimizer.state[parameter].setdefault(EMA, parameter.detach().clone())
    means = [optimizer.state[parameter][EMA] for parameter in weights]
    torch._foreach_lerp_(means, weights, 1 - min(decay, (1 + step) / (_WARM + step)))


def ema_weights(optimizer: torch.optim.Optimizer, model: nn.Module) -> Weights:
    """The mean of each weight; what has none, such as running figures of norms, as it is. Tensors, not copies."""
    return {
        name: optimizer.state.get(tensor, {}).get(EMA, tensor) if isinstance(tensor, nn.Parameter) else tensor
        for name, tensor in named_weights(model).items()
    }
