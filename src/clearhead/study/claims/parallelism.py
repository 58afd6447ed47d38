"""C2: sequential steps, time and the path of the gradient, recurrent networks against self-attention.

B batch, S places, D model width
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
)

RECURRENT = ("rnn", "gru", "lstm")
ATTENTION = "transformer"
FLOOR = 1e-300  # a logarithm has no zero


def sweep(numbers: Numbers, name: str) -> dict[int, float]:
    """`name@16`, `name@64`, ... as a row, by what stands behind the sign; KeyError if there is none."""
    row = {int(key.partition("@")[2]): value for key, value in numbers.items() if key.startswith(f"{name}@")}
    if not row:
        raise KeyError(name)
    return dict(sorted(row.items()))


def growth(numbers: Numbers, name: str) -> float:
    """The exponent with which a row grows between its ends: 1 for O(n), 0 for O(1)."""
    row = sweep(numbers, name)
    low, high = min(row), max(row)
    return math.log(row[high] / row[low]) / math.log(high / low)


def _lasting(numbers: Numbers) -> float:
    """What is left of the gradient at the greatest distance, against distance 1."""
    row = sweep(numbers, "gradient")
    return row[max(row)] / max(row[min(row)], FLOOR)


def _slower(seen: SeedNumbers) -> float:
    """How many times more a recurrent network slows down with length than self-attention does (the mildest case)."""

    def slowing(kind: str) -> float:
        row = sweep(seen[kind], "seconds")
        return row[max(row)] / row[min(row)]

    return min(slowing(kind) for kind in RECURRENT) / slowing(ATTENTION)


# O(n) is exponent 1 and O(1) exponent 0; a graph has a few nodes more at its ends, hence 0.8 and 0.1. A gradient that
# falls to a thousandth is lost beside others, one that keeps a tenth is not. The time a token: at a constant number of
# tokens a batch, attention pays n for its n x n weights, recurrence pays for ever fewer rows a step.
RULE = DecisionRule(
    (
        Requirement("the longest chain of operations grows like n in every recurrent network (exponent)",
                    lambda seen: min(growth(seen[kind], "chain") for kind in RECURRENT), 0.8, 0.3, "O(n) is 1"),
        Requirement("with self-attention it does not grow (exponent)",
                    lambda seen: growth(seen[ATTENTION], "chain"), 0.1, 0.5, "O(1) is 0"),
        Requirement("the gradient from the greatest distance is lost in the plain network and the LSTM (share left)",
                    lambda seen: max(_lasting(seen["rnn"]), _lasting(seen["lstm"])), 1e-3, 0.1,
                    "a thousandth is lost beside the rest, a tenth is not"),
        Requirement("with self-attention it arrives (share left)",
                    lambda seen: _lasting(seen[ATTENTION]), 0.1, 1e-3, "the same bounds, the other way"),
        Requirement("the time a token grows more with the length for recurrent networks (times, the mildest of them)",
                    _slower, 1.5, 1.0, "half as much again is more than timing noise"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "parallel",
    "C2",
    "A recurrent layer needs O(n) sequential steps, self-attention O(1): time by length and the gradient that arrives "
    "from a distance differ accordingly",
    RULE,
    "Fresh weights and the cores of this machine: with thousands of cores the difference in time is larger.",
    is_timed=True,
)


@dataclass(frozen=True)
class ParallelismStudy:
    """Steps, time, memory and gradients by length."""

    about: StudyInfo = ABOUT
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
        """Readers of one width and depth."""
        return (*RECURRENT, ATTENTION)

    @property
    def columns(self) -> Mapping[str, str]:
        """The ends of the rows."""
        short, long, far = self.lengths[0], self.lengths[-1], self.distances[-1]
        return {f"chain@{short}": f"chain, n={short}", f"chain@{long}": f"n={long}",
                f"seconds@{short}": f"s a token, n={short}", f"seconds@{long}": f"n={long}",
                f"bytes@{long}": f"bytes a token, n={long}", f"gradient@{far}": f"gradient, {far} back"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """All lengths."""
        reader = self._reader(condition, seed)
        found: dict[str, float] = {}
        for length in self.lengths:
            rows = max(1, self.batch_tokens // length)
            ids_BS = random_ids(rows, length, seed)
            found[f"seconds@{length}"] = self._seconds(reader, ids_BS) / ids_BS.numel()
            found[f"bytes@{length}"] = saved_bytes(reader, ids_BS) / ids_BS.numel()
            found[f"chain@{length}"] = float(longest_path(reader, ids_BS))
        norms = gradient_norms(reader.double(), random_ids(1, self.distances[-1] + 1, seed), self.distances)
        return found | {f"gradient@{distance}": norm for distance, norm in norms.items()}

    def _reader(self, condition: str, seed: int) -> Any:
        model: dict[str, Any] = {"model_dim": self.width, "num_encoder_layers": self.layers, "num_labels": 3}
        model["max_positions"] = max(*self.lengths, self.distances[-1] + 1)
        if condition == ATTENTION:
            model |= {"feed_forward_dim": 2 * self.width, "num_heads": 4}
        else:
            model |= {"family": condition, "pooling": "last"}
        return untrained_network("classify", seed, model).backbone

    def _seconds(self, reader: nn.Module, ids_BS: Tensor) -> float:
        """Forward and backward over one batch, the fastest of some."""
        best = math.inf
        for _ in range(self.repeats):
            began = time.perf_counter()
            reader(ids_BS).states_BSD.square().mean().backward()
            best = min(best, time.perf_counter() - began)
        return best

    def charts(self, found: Findings) -> list[Chart]:
        """Time by length, and the gradient by distance."""
        times = [Series(kind, [(n, found.values(kind, f"seconds@{n}")) for n in self.lengths])
                 for kind in self.conditions]  # fmt: skip
        norms = [Series(kind, [(k, [max(v, 1e-30) for v in found.values(kind, f"gradient@{k}")])
                               for k in self.distances]) for kind in self.conditions]  # fmt: skip
        return [
            Chart("parallel-time", "Training time a token, batches of equal size", "length", "seconds", times,
                  log_x=True, log_y=True),
            Chart("parallel-gradient", "What arrives of the gradient, fresh weights", "places back", "norm", norms,
                  log_x=True, log_y=True),
        ]  # fmt: skip


def saved_bytes(reader: nn.Module, ids_BS: Tensor) -> float:
    """What the forward pass keeps for the backward pass, each storage once; weights are not counted."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in reader.parameters()}
    held: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            held[storage.data_ptr()] = storage.nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        states_BSD = reader(ids_BS).states_BSD
    del states_BSD
    return float(sum(held.values()))


def longest_path(reader: nn.Module, ids_BS: Tensor) -> int:
    """Operations that must wait for each other: the longest path through the graph behind the last state.

    oneDNN's kernel does all steps of a sequence in one call and would hide them. It has no double precision, in which
    torch shows each step.
    """
    output = copy.deepcopy(reader).double()(ids_BS[:1]).states_BSD[0, -1].sum()
    depth: dict[Any, int] = {}
    waiting: list[Any] = [output.grad_fn]
    while waiting:
        node = waiting[-1]
        before = [one for one, _ in node.next_functions if one is not None]
        unknown = [one for one in before if one not in depth]
        if unknown:
            waiting += unknown
        else:
            depth[node] = 1 + max((depth[one] for one in before), default=0)
            waiting.pop()
    return depth[output.grad_fn]


def gradient_norms(reader: Any, ids_BS: Tensor, distances: tuple[int, ...]) -> dict[int, float]:
    """Norms of the gradient of the last state, at the embeddings so many places back."""
    embedding = reader.embedding if hasattr(reader, "embedding") else reader.encoder.embedding
    with capture_embeddings(embedding) as kept:
        states_BSD = reader(ids_BS).states_BSD
    direction_D = torch.linspace(-1.0, 1.0, states_BSD.shape[-1], dtype=states_BSD.dtype)
    [gradient_BSD] = torch.autograd.grad((states_BSD[0, -1] * direction_D).sum(), kept)
    norm_S = gradient_BSD[0].norm(dim=-1)
    return {distance: float(norm_S[-1 - distance]) for distance in distances}
