"""C2: sequential operations, time and gradient path of recurrent networks compared with self-attention.

B batch, S positions, D model width
"""

import copy
import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import capture_embeddings, random_ids, untrained_network
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    SeedNumbers,
    StudyContext,
    StudyInfo,
    first_and_last,
    sweep,
)

RECURRENT = ("rnn", "gru", "lstm")
ATTENTION = "transformer"
MIN_GRADIENT = 1e-300  # avoids division by zero


def growth_exponent(numbers: Numbers, name: str) -> float:
    """Return the exponent of growth between the ends of a sweep: 1 for O(n), 0 for O(1)."""
    values = sweep(numbers, name)
    low, high = min(values), max(values)
    return math.log(values[high] / values[low]) / math.log(high / low)


def _remaining_gradient(numbers: Numbers) -> float:
    """Return the gradient at the largest distance divided by that at the smallest distance."""
    nearest, farthest = first_and_last(numbers, "gradient")
    return farthest / max(nearest, MIN_GRADIENT)


def _relative_slowdown(runs: SeedNumbers) -> float:
    """Return the slowdown with length of the recurrent network that slows down least, relative to self-attention."""

    def slowdown(kind: str) -> float:
        shortest, longest = first_and_last(runs[kind], "seconds_per_token")
        return longest / shortest

    return min(slowdown(kind) for kind in RECURRENT) / slowdown(ATTENTION)


# O(n) has exponent 1 and O(1) exponent 0; graphs have a few additional nodes at their ends, hence 0.8 and 0.1. A
# gradient that falls to a thousandth is lost among others, one that keeps a tenth is not. Time per token, at a constant
# number of tokens per batch: attention pays for its n x n weights, recurrence for fewer rows per step.
RULE = DecisionRule(
    (
        Requirement("the longest path of sequential operations grows like n in every recurrent network (exponent)",
                    lambda runs: min(growth_exponent(runs[kind], "path_length") for kind in RECURRENT), 0.8, 0.3,
                    "O(n) has exponent 1"),
        Requirement("with self-attention the path does not grow (exponent)",
                    lambda runs: growth_exponent(runs[ATTENTION], "path_length"), 0.1, 0.5, "O(1) has exponent 0"),
        Requirement("the gradient from the largest distance vanishes in the plain network and the LSTM (fraction left)",
                    lambda runs: max(_remaining_gradient(runs["rnn"]), _remaining_gradient(runs["lstm"])), 1e-3, 0.1,
                    "a thousandth is lost among other gradients, a tenth is not"),
        Requirement("with self-attention the gradient is preserved (fraction left)",
                    lambda runs: _remaining_gradient(runs[ATTENTION]), 0.1, 1e-3,
                    "a thousandth is lost among other gradients, a tenth is not"),
        Requirement("the time per token grows faster with length in recurrent networks (ratio, smallest of the three)",
                    _relative_slowdown, 1.5, 1.0, "a factor of 1.5 is more than timing noise"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "parallel",
    "C2",
    "A recurrent layer needs O(n) sequential steps, self-attention O(1): time by length and the gradient over a "
    "distance differ accordingly",
    RULE,
    "Untrained weights and the cores of this machine: with thousands of cores the difference in time is larger.",
    is_timed=True,
)


@dataclass(frozen=True)
class ParallelismStudy:
    """Sequential operations, time, memory and gradients by length."""

    info: StudyInfo = INFO
    minutes: float = 5.0
    seeds: int = 3
    lengths: tuple[int, ...] = (16, 64, 256, 1024, 2048)
    distances: tuple[int, ...] = (1, 4, 16, 64, 256, 1000)
    batch_tokens: int = 4096
    width: int = 64
    layers: int = 2
    repeats: int = 3

    @property
    def conditions(self) -> tuple[str, ...]:
        """Encoders of one width and depth."""
        return (*RECURRENT, ATTENTION)

    @property
    def columns(self) -> Mapping[str, str]:
        """Values at the shortest and the longest length, and the gradient at the largest distance."""
        short, long, far = self.lengths[0], self.lengths[-1], self.distances[-1]
        return {f"path_length@{short}": f"longest path, n={short}", f"path_length@{long}": f"n={long}",
                f"seconds_per_token@{short}": f"seconds per token, n={short}", f"seconds_per_token@{long}": f"n={long}",
                f"bytes_per_token@{long}": f"bytes per token, n={long}",
                f"gradient@{far}": f"gradient, distance {far}"}  # fmt: skip

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Measure all lengths and distances of one encoder."""
        encoder = self._encoder(condition, seed)
        numbers: dict[str, float] = {}
        for length in self.lengths:
            rows = max(1, self.batch_tokens // length)
            ids_BS = random_ids(rows, length, seed)
            numbers[f"seconds_per_token@{length}"] = self._seconds(encoder, ids_BS) / ids_BS.numel()
            numbers[f"bytes_per_token@{length}"] = saved_bytes(encoder, ids_BS) / ids_BS.numel()
            numbers[f"path_length@{length}"] = float(longest_path(encoder, ids_BS))
        norms = gradient_norms(encoder.double(), random_ids(1, self.distances[-1] + 1, seed), self.distances)
        return numbers | {f"gradient@{distance}": norm for distance, norm in norms.items()}

    def _encoder(self, condition: str, seed: int) -> Any:
        model: dict[str, Any] = {"model_dim": self.width, "num_encoder_layers": self.layers, "num_labels": 3}
        model["max_positions"] = max(*self.lengths, self.distances[-1] + 1)
        if condition == ATTENTION:
            model |= {"feed_forward_dim": 2 * self.width, "num_heads": 4}
        else:
            model |= {"family": condition, "pooling": "last"}
        return untrained_network("classify", seed, model).backbone

    def _seconds(self, encoder: nn.Module, ids_BS: Tensor) -> float:
        """Return the shortest of several times for one forward and backward pass."""
        best = math.inf
        for _ in range(self.repeats):
            start = time.perf_counter()
            encoder(ids_BS).states_BSD.square().mean().backward()
            best = min(best, time.perf_counter() - start)
        return best

    def charts(self, findings: Findings) -> list[Chart]:
        """Return time by length and gradient by distance."""
        times = [findings.sweep_series(kind, "seconds_per_token", self.lengths) for kind in self.conditions]
        norms = [Series(kind, [(k, [max(v, 1e-30) for v in findings.values(kind, f"gradient@{k}")])
                               for k in self.distances]) for kind in self.conditions]  # fmt: skip
        return [
            Chart("parallel-time", "Training time per token, batches of equal size", "length", "seconds", times,
                  log_x=True, log_y=True),
            Chart("parallel-gradient", "Gradient by distance, untrained weights", "distance in positions", "norm",
                  norms, log_x=True, log_y=True),
        ]  # fmt: skip


def saved_bytes(encoder: nn.Module, ids_BS: Tensor) -> float:
    """Return the memory that the forward pass saves for the backward pass: distinct storages without the parameters."""
    parameters = {parameter.untyped_storage().data_ptr() for parameter in encoder.parameters()}
    sizes: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in parameters:
            sizes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        states_BSD = encoder(ids_BS).states_BSD
    del states_BSD
    return float(sum(sizes.values()))


def longest_path(encoder: nn.Module, ids_BS: Tensor) -> int:
    """Return the number of operations on the longest path through the autograd graph of the last state.

    The network runs in float64, in which torch executes recurrent steps separately: the oneDNN kernel for float32
    executes all steps of a sequence in one call and would hide them.
    """
    output = copy.deepcopy(encoder).double()(ids_BS[:1]).states_BSD[0, -1].sum()
    depth: dict[Any, int] = {}
    stack: list[Any] = [output.grad_fn]
    while stack:
        node = stack[-1]
        inputs = [function for function, _ in node.next_functions if function is not None]
        unvisited = [function for function in inputs if function not in depth]
        if unvisited:
            stack += unvisited
        else:
            depth[node] = 1 + max((depth[function] for function in inputs), default=0)
            stack.pop()
    return depth[output.grad_fn]


def gradient_norms(encoder: Any, ids_BS: Tensor, distances: tuple[int, ...]) -> dict[int, float]:
    """Return the norms of the last state's gradient with respect to the embeddings at the given distances before it."""
    embedding = encoder.embedding if hasattr(encoder, "embedding") else encoder.encoder.embedding
    with capture_embeddings(embedding) as embeddings:
        states_BSD = encoder(ids_BS).states_BSD
    direction_D = torch.linspace(-1.0, 1.0, states_BSD.shape[-1], dtype=states_BSD.dtype)
    [gradient_BSD] = torch.autograd.grad((states_BSD[0, -1] * direction_D).sum(), embeddings)
    norm_S = gradient_BSD[0].norm(dim=-1)
    return {distance: float(norm_S[-1 - distance]) for distance in distances}
