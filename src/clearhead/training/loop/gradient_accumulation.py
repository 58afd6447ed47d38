"""The gradient of one update, computed on every core of every process; what does not fit into memory, in pieces.

The loss of a batch is a sum over its examples divided by the tokens of the whole update, so the gradients of its pieces
add up to its own.
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
from clearhead.tasks.task import Tell
from clearhead.tasks.trainable.task import TrainingTask
from clearhead.training.distributed.thread_data_parallel import ThreadReplicas
from clearhead.training.loop.process_environment import is_out_of_memory


@dataclass(frozen=True)
class MicroBatch:
    """One batch of an update."""

    epoch: int
    indices: Indices


class GradientAccumulator:
    """Makes gradients of batches. `tell` hears, once, that a batch had to be divided."""

    def __init__(
        self,
        task: TrainingTask[Any],
        replicas: ThreadReplicas[Indices, Loss],
        seed: int,
        tell: Tell,
        precision: str = "float32",
    ) -> None:
        self.task, self.replicas, self.seed, self.tell, self.precision = task, replicas, seed, tell, precision
        self._was_told = False

    def add(self, portions: Sequence[MicroBatch], step: int) -> float:
        """Leaves the gradient of all portions, as a mean over their tokens, in the replicas, and gives their loss.

        Of both it is this process's share: those of all processes are to be summed.
        """
        most = max(len(portion.indices) for portion in portions)
        pieces = 1
        while True:
            loss = self._try(portions, step, pieces)
            if loss is not None:
                return loss
            if pieces >= most:
                raise TrainingError(
                    f"step {step:,}: memory does not suffice for a single example; "
                    "lower data.max_tokens or the size of the model, or free memory"
                )
            if self.replicas.is_sharded:  # all processes go through the layers together
                raise TrainingError(
                    f"step {step:,}: memory does not suffice for a batch, which cannot be divided where weights are "
                    "sharded; lower training.batch_tokens, raise training.gradient_accumulation, then begin anew"
                )
            pieces = min(2 * pieces, most)
            if not self._was_told:
                self._was_told = True
                self.tell(
                    f"step {step:,}: not enough memory for a batch; it is computed in pieces, with the same gradient "
                    "(said once; a lower training.batch_tokens needs less)"
                )

    def _try(self, portions: Sequence[MicroBatch], step: int, pieces: int) -> float | None:
        """The loss, or nothing where memory did not suffice; then no gradient is left."""
        tokens = sum(self.task.tokens(portion.indices) for portion in portions)
        loss = 0.0
        try:
            for number, portion in enumerate(portions):
                for piece, parts in enumerate(self._rounds(portion.indices, pieces)):
                    words = (step, number) if pieces == 1 else (step, number, piece, pieces)
                    loss += self._add_parts(parts, portion.epoch, tokens, words)
                    if (
                        not parts and self.replicas.is_sharded
                    ):  # all go through the layers together, idle ones for naught
                        idle = self.task.split(portion.indices, self.replicas.total)[:1]
                        self._add_parts(idle, portion.epoch, math.inf, words)
            return loss
        except (MemoryError, RuntimeError) as error:
            if not is_out_of_memory(error):
                raise
        self.replicas.drop_gradients()
        gc.collect()  # the error, the threads' results and what they hold refer to each other
        return None

    def _rounds(self, indices: Indices, pieces: int) -> list[Sequence[Indices]]:
        """This process's parts of a batch, side by side; or one after the other, pieces of each of them."""
        parts = self.replicas.mine(self.task.split(indices, self.replicas.total))
        if pieces == 1:
            return [parts]
        cut = [self.task.split(part, pieces) for part in parts]
        return [[part[piece] for part in cut if piece < len(part)] for piece in range(max(map(len, cut), default=0))]

    def _add_parts(self, parts: Sequence[Indices], epoch: int, tokens: float, words: tuple[int, ...]) -> float:
        """Adds the gradient of parts of a batch, as a mean over `tokens`, and gives their loss."""
        device = self.replicas.processes.device

        def compute(replica: int, model: nn.Module, part: Indices) -> Loss:
            batch = on_device(self.task.batch(part, epoch), device)
            with dropout_seed(self.seed, *words, self.replicas.first + replica):
                with torch.autocast(device.type, torch.bfloat16, enabled=self.precision == "bfloat16"):
                    loss = self.task.loss(model, batch)
                (loss.smoothed / tokens).backward()  # type: ignore[no-untyped-call]
            return Loss(loss.smoothed.detach(), loss.nll, loss.tokens)

        losses = self.replicas.run(compute, parts)
        return sum(float(loss.smoothed) for loss in losses) / tokens
