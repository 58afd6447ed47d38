"""C11: the causal mask restricts position i to positions up to i, while all positions are trained in one pass.

B batch, T positions, D model width
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.study.harness.charts import Chart
from clearhead.study.harness.models_and_data import capture_embeddings, random_ids, transformer_shape, untrained_network
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

MASKED = ("decoder only", "encoder-decoder")
UNMASKED = "no mask"


def _largest(runs: SeedNumbers, name: str) -> float:
    """Return the largest value over the masked networks and all lengths."""
    return max(value for kind in MASKED for value in sweep(runs[kind], name).values())


# A weight exp(-inf) is 0, and 0 times any finite number is 0: only an exact zero proves that the mask works. A nonzero
# gradient below 1e-12 would be too small to matter, but it is not a proof: inconclusive.
RULE = DecisionRule(
    (
        Requirement("no gradient comes from future positions (largest norm)",
                    lambda runs: _largest(runs, "future_gradient"), 0.0, 1e-12, "exp(-inf) is exactly 0"),
        Requirement("without the mask there is a gradient from future positions (smallest norm over the lengths)",
                    lambda runs: min(sweep(runs[UNMASKED], "future_gradient").values()), 1e-9, 0.0,
                    "otherwise the measurement could not detect anything"),
        Requirement("one pass over n positions equals n passes over prefixes of increasing length",
                    lambda runs: _largest(runs, "difference"), 1e-9, 1e-5,
                    "relative difference in float64, where kernels differ by rounding error"),
        Requirement("one pass is cheaper (time of n passes relative to one pass, at the largest length)",
                    lambda runs: min(first_and_last(runs[kind], "time_ratio")[1] for kind in MASKED), 3.0, 1.0,
                    "a factor of 3 exceeds timing noise on a busy machine"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "mask",
    "C11",
    "The causal mask plus the shift make position i depend on positions < i only, while all are trained in one pass",
    RULE,
    "Untrained weights: the mask works independently of what the network has learned.",
    is_timed=True,
)


@dataclass(frozen=True)
class CausalMaskStudy:
    """Gradients from future positions, and one pass compared with many."""

    info: StudyInfo = INFO
    minutes: float = 2.0
    seeds: int = 3
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128)
    width: int = 64
    layers: int = 2

    @property
    def conditions(self) -> tuple[str, ...]:
        """Two networks with a causal mask and one without."""
        return (*MASKED, UNMASKED)

    @property
    def columns(self) -> Mapping[str, str]:
        """Values at the largest length."""
        last = self.lengths[-1]
        return {
            f"future_gradient@{last}": "gradient from future positions",
            f"past_gradient@{last}": "from past positions",
            f"difference@{last}": "one pass compared with n",
            f"time_ratio@{last}": "n passes / one pass",
        }

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Measure gradients and times at all lengths."""
        numbers: dict[str, float] = {}
        for length in self.lengths:
            ids_BT = random_ids(1, length, seed)
            forward, embedding = self._network(condition, length, seed)
            future, past = future_and_past_gradients(forward, embedding, ids_BT)
            numbers |= {f"future_gradient@{length}": future, f"past_gradient@{length}": past}
            if condition != UNMASKED:
                difference, time_ratio = compare_passes(forward, ids_BT)
                numbers |= {f"difference@{length}": difference, f"time_ratio@{length}": time_ratio}
        return numbers

    def _network(self, condition: str, length: int, seed: int) -> tuple["Forward", nn.Module]:
        """Return the function from ids to states of a network in float64, and the module that embeds these ids."""
        if condition == "decoder only":
            decoder = untrained_network("lm", seed, transformer_shape(self.width, 0, self.layers)).double()
            return decoder, decoder.embedding
        if condition == "encoder-decoder":
            settings = transformer_shape(self.width, self.layers, self.layers, tied_embeddings="none")
            network = untrained_network("translate", seed, settings).double()
            return _with_source(network, random_ids(1, length, seed + 1)), network.target_embedding
        settings = transformer_shape(self.width, self.layers, num_labels=3)
        encoder = untrained_network("classify", seed, settings).double()
        return _encoder_states(encoder), encoder.backbone.embedding

    def charts(self, findings: Findings) -> list[Chart]:
        """Return the cost of n passes by length."""
        series = [findings.sweep_series(kind, "time_ratio", self.lengths) for kind in MASKED]
        return [Chart("mask-cost", "Time saved by training all positions in one pass", "positions",
                      "time of n passes / time of one", series, log_x=True, log_y=True)]  # fmt: skip


Forward = Callable[[Tensor], Tensor]


def _with_source(network: nn.Module, src_BS: Tensor) -> Forward:
    return lambda ids_BT: network(src_BS, ids_BT)


def _encoder_states(network: Any) -> Forward:
    return lambda ids_BT: network.backbone(ids_BT).states_BSD


def future_and_past_gradients(forward: Forward, embedding: nn.Module, ids_BT: Tensor) -> tuple[float, float]:
    """Return the largest gradient of a state at later positions, and the smallest at its own and earlier positions."""
    length = ids_BT.shape[1]
    future, past = 0.0, float("inf")
    with capture_embeddings(embedding) as embeddings:
        states_BTD = forward(ids_BT)
    [x_BTD] = embeddings
    direction_D = torch.linspace(-1.0, 1.0, states_BTD.shape[-1], dtype=states_BTD.dtype)
    for position in range(length):
        [gradient_BTD] = torch.autograd.grad((states_BTD[0, position] * direction_D).sum(), x_BTD, retain_graph=True)
        norm_T = gradient_BTD[0].norm(dim=-1)
        past = min(past, float(norm_T[: position + 1].min()))
        if position + 1 < length:
            future = max(future, float(norm_T[position + 1 :].max()))
    return future, past


@torch.no_grad()
def compare_passes(forward: Forward, ids_BT: Tensor) -> tuple[float, float]:
    """Return the relative difference between one pass and n passes over prefixes, and the ratio of their times."""
    forward(ids_BT)  # exclude one-time initialization from the measurement
    start = time.perf_counter()
    one_pass_TD = forward(ids_BT)[0]
    middle = time.perf_counter()
    n_passes_TD = torch.stack([forward(ids_BT[:, : position + 1])[0, -1] for position in range(ids_BT.shape[1])])
    end = time.perf_counter()
    difference = float((one_pass_TD - n_passes_TD).abs().max() / one_pass_TD.abs().max())
    return difference, (end - middle) / (middle - start)
