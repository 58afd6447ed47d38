"""Gradient accumulation: the gradient of one update, computed on all cores, in smaller parts if memory is short.

The loss of a batch is a sum over its examples divided by the tokens of the whole update, so the gradients of the parts
of a batch sum to the gradient of the batch.
"""

import gc
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from clearhead.data.batching import Indices
from clearhead.engines.torch_forward import on_device
from clearhead.errors import TrainingError
from clearhead.kernels import dropout_seed
from clearhead.model.loss import Loss
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.task import TrainingTask
from clearhead.training.distributed.thread_data_parallel import ThreadReplicas
from clearhead.training.loop.process_environment import is_out_of_memory


@dataclass(frozen=True)
class MicroBatch:
    """One of the batches whose gradients are accumulated in an update."""

    epoch: int
    indices: Indices


class GradientAccumulator:
    """Accumulator of the gradients of batches. When a batch is divided for the first time, it logs a message."""

    def __init__(
        self,
        task: TrainingTask[Any],
        replicas: ThreadReplicas[Indices, Loss],
        seed: int,
        log: Log,
        precision: str = "float32",
    ) -> None:
        self.task, self.replicas, self.seed, self.log, self.precision = task, replicas, seed, log, precision
        self._has_logged = False

    def add(self, batches: Sequence[MicroBatch], step: int) -> float:
        """Add the gradient of the batches to the replicas and return their loss, both as means over all tokens.

        Each process computes its share of gradient and loss; the caller sums them over all processes.
        """
        largest = max(len(batch.indices) for batch in batches)
        divisor = 1
        while True:
            loss = self._try(batches, step, divisor)
            if loss is not None:
                return loss
            self._check_divisible(step, is_single=divisor >= largest)
            divisor = min(2 * divisor, largest)

    def _check_divisible(self, step: int, is_single: bool) -> None:
        """Raise TrainingError if a batch that exceeds the memory cannot be divided; log the first division."""
        if is_single:
            raise TrainingError(
                f"step {step:,}: not enough memory for a single example; "
                "lower data.max_tokens or the size of the model, or free memory"
            )
        if self.replicas.is_sharded:  # all processes have to run each layer equally often
            raise TrainingError(
                f"step {step:,}: not enough memory for a batch, and with training.sharding=full it cannot be divided; "
                "lower training.batch_tokens and raise training.gradient_accumulation, then start again"
            )
        if not self._has_logged:
            self._has_logged = True
            self.log(
                f"step {step:,}: not enough memory for a batch; it is computed in smaller parts, with the same "
                "gradient (reported once; a lower training.batch_tokens needs less memory)"
            )

    def _try(self, batches: Sequence[MicroBatch], step: int, divisor: int) -> float | None:
        """Return the loss; if memory is exhausted, delete all gradients and return None."""
        tokens = sum(self.task.tokens(batch.indices) for batch in batches)
        loss = 0.0
        try:
            for number, batch in enumerate(batches):
                for round_number, parts in enumerate(self._rounds(batch.indices, divisor)):
                    seed = (step, number) if divisor == 1 else (step, number, round_number, divisor)
                    loss += self._add_parts(parts, batch.epoch, tokens, seed)
                    if not parts and self.replicas.is_sharded:
                        # All ranks must run the sharded layers: this rank computes any part and divides it by infinity.
                        idle = self.task.split(batch.indices, self.replicas.total)[:1]
                        self._add_parts(idle, batch.epoch, math.inf, seed)
            return loss
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        self.replicas.drop_gradients()
        gc.collect()  # frees tensors in reference cycles of the error and the threads' results
        return None

    def _rounds(self, indices: Indices, divisor: int) -> list[Sequence[Indices]]:
        """Return this process's parts of a batch, one list per round; the parts of a round run in parallel."""
        parts = self.replicas.local_parts(self.task.split(indices, self.replicas.total))
        if divisor == 1:
            return [parts]
        divided = [self.task.split(part, divisor) for part in parts]
        rounds = max(map(len, divided), default=0)
        return [[part[number] for part in divided if number < len(part)] for number in range(rounds)]

    def _add_parts(self, parts: Sequence[Indices], epoch: int, tokens: float, seed: tuple[int, ...]) -> float:
        """Add the gradient of parts of a batch, as a mean over `tokens`, and return their loss."""
        device = self.replicas.group.device

        def compute(replica: int, model: nn.Module, part: Indices) -> Loss:
            batch = on_device(self.task.batch(part, epoch), device)
            with dropout_seed(self.seed, *seed, self.replicas.first + replica):
                with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
                    loss = self.task.loss(model, batch)
                (loss.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
            return Loss(loss.smoothed.detach(), loss.nll, loss.tokens)

        losses = self.replicas.run(compute, parts)
        return sum(float(loss.smoothed) for loss in losses) / tokens
