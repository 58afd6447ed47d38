"""Gradients of one batch computed on every core, by replicas of the model that share its weights.

Each replica is a second set of modules over the same weight storage, with gradients of its own. A batch is cut
into one part a replica; each part runs forward and backward in a thread of its own on one core, and the gradients
are summed. The sum is that of the whole batch. Measured with preset tiny on two cores: 1.3 times the tokens a
second of two threads inside each operation, for small operations do not divide well.

Several processes are the same one level up: the parts of a batch go to the replicas of the first process, then to those
of the second, and so on, and the sums of the processes are summed. On a GPU a process has one replica.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from clearhead.data.batching import Indices
from clearhead.model.loss import Loss
from clearhead.training.distributed.process_group import ALONE, ProcessGroup

Part = TypeVar("Part")
Result = TypeVar("Result")

# Below this many tokens a replica the overhead of a step outweighs its work.
MIN_TOKENS = 512


def replica_count(threads: int, batch_tokens: int) -> int:
    """How many replicas serve best."""
    return max(1, min(threads, batch_tokens // MIN_TOKENS))


@contextmanager
def torch_threads(count: int) -> Iterator[None]:
    """Torch on so many threads."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ThreadReplicas(Generic[Part, Result]):
    """Models that share their weights, each with a thread of its own; a context manager that ends the threads."""

    def __init__(self, model: nn.Module, count: int, threads: int, processes: ProcessGroup = ALONE) -> None:
        self.models = [model, *(_sharing_copy(model) for _ in range(count - 1))]
        self.processes = processes
        self.is_sharded = is_sharded(model)
        self._figures = _running_figures(model)
        each = max(1, threads // count)
        self._pool = ThreadPoolExecutor(count, initializer=lambda: torch.set_num_threads(each))

    def __enter__(self) -> "ThreadReplicas[Part, Result]":
        return self

    def __exit__(self, *_: object) -> None:
        self._pool.shutdown()

    @property
    def total(self) -> int:
        """Replicas in all processes together."""
        return len(self.models) * self.processes.count

    @property
    def first(self) -> int:
        """The number of this process's first replica among all."""
        return len(self.models) * self.processes.rank

    def mine(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Those of a batch's parts that this process computes; where there are few, none may be left for it."""
        return parts[self.first : self.first + len(self.models)]

    def run(self, compute: Callable[[int, nn.Module, Part], Result], parts: Sequence[Part]) -> list[Result]:
        """`compute(i, replica i, part i)` for all parts side by side; it may call backward."""
        assert len(parts) <= len(self.models)
        started = [
            self._pool.submit(compute, number, model, part)
            for number, (model, part) in enumerate(zip(self.models, parts, strict=False))
        ]
        wait(started)  # all of them, also where one has failed: whoever deals with that finds nothing running
        return [each.result() for each in started]

    def drop_gradients(self) -> None:
        """Forgets what was computed so far."""
        for model in self.models:
            model.zero_grad()

    def gather_gradients(self) -> list[Tensor]:
        """The gradients of all replicas of all processes summed into the first model's, and taken from the others."""
        first, *others = (list(model.parameters()) for model in self.models)
        for other in others:
            for parameter, copied in zip(first, other, strict=True):
                if copied.grad is None:
                    continue
                parameter.grad = copied.grad if parameter.grad is None else parameter.grad.add_(copied.grad)
                copied.grad = None
        self._sum_over_processes(first)
        self._share_figures()
        return [parameter.grad for parameter in first if parameter.grad is not None]

    def _sum_over_processes(self, parameters: Sequence[nn.Parameter]) -> None:
        """A weight that had no gradient in any process has none afterwards: the optimiser leaves it alone."""
        if self.processes.count == 1 or self.is_sharded:  # sharded ones were summed while they were computed
            return
        counts = self.processes.sum(*(float(parameter.grad is not None) for parameter in parameters))
        for parameter, count in zip(parameters, counts, strict=True):
            if count and parameter.grad is None:
                parameter.grad = torch.zeros_like(parameter)
        self.processes.sum_tensors([parameter.grad for parameter in parameters if parameter.grad is not None])

    @torch.no_grad()
    def _share_figures(self) -> None:
        """The running figures of norms, each the mean over the replicas, which saw different parts of the batch."""
        if not self._figures or self.total == 1:
            return
        mean = {name: self.models[0].get_buffer(name) for name in self._figures}
        if len(self.models) > 1:
            mean = {name: torch.stack([model.get_buffer(name) for model in self.models]).mean(0) for name in mean}
        self.processes.sum_tensors(list(mean.values()))
        for model in self.models:
            for name, figures in mean.items():
                model.get_buffer(name).copy_(figures / self.processes.count)


def open_replicas(
    model: nn.Module, threads: int, batch_tokens: int, processes: ProcessGroup
) -> ThreadReplicas[Indices, Loss]:
    """As many replicas as serve best: one where a GPU computes, or where all processes hold each weight together."""
    count = replica_count(threads, batch_tokens // processes.count)
    if processes.device.type != "cpu" or is_sharded(model):
        count = 1
    return ThreadReplicas(model, count, threads, processes)


def is_sharded(model: nn.Module) -> bool:
    """Whether each process holds only a part of every weight."""
    return any(isinstance(parameter, DTensor) for parameter in model.parameters())


def _running_figures(model: nn.Module) -> list[str]:
    """The buffers that training changes and a model keeps: of all that are saved, those that are no counts."""
    saved = model.state_dict(keep_vars=True)
    return [name for name, buffer in model.named_buffers() if name in saved and buffer.is_floating_point()]


def _sharing_copy(model: nn.Module) -> nn.Module:
    """The same modules over the same weights, of which no copy is made on the way."""
    shared = {id(one): nn.Parameter(one.data, one.requires_grad) for one in model.parameters()}
    return copy.deepcopy(model, shared)
