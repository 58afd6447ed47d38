"""C11: the causal mask makes position i depend on positions up to i only, while all are trained at once.

B batch, T positions, D model width
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import capture_embeddings, random_ids, untrained_network
from clearhead.study.harness.protocol import DecisionRule, Findings, Numbers, Requirement, StudyContext, StudyInfo

MASKED = ("decoder only", "encoder-decoder")
UNMASKED = "no mask"


def _largest(seen: Mapping[str, Numbers], conditions: tuple[str, ...], name: str) -> float:
    return max(value for kind in conditions for key, value in seen[kind].items() if key.startswith(f"{name}@"))


def _longest(numbers: Numbers, name: str) -> float:
    """The value at the greatest length."""
    lengths = [int(key.partition("@")[2]) for key in numbers if key.startswith(f"{name}@")]
    if not lengths:
        raise KeyError(name)
    return numbers[f"{name}@{max(lengths)}"]


# A weight behind exp(-inf) is 0, and 0 times anything finite is 0: nothing but an exact zero shows a mask that holds.
# What is below 1e-12 without being zero would be a leak too small to matter, yet no proof: open.
RULE = DecisionRule(
    (
        Requirement("no gradient at all comes from the future (largest norm)",
                    lambda seen: _largest(seen, MASKED, "future"), 0.0, 1e-12, "exp(-inf) is exactly 0"),
        Requirement("without the mask it does come (smallest norm over the lengths)",
                    lambda seen: min(v for k, v in seen[UNMASKED].items() if k.startswith("future@")), 1e-9, 0.0,
                    "else the probe could see nothing"),
        Requirement("one pass over n positions gives what n passes over ever longer beginnings give",
                    lambda seen: _largest(seen, MASKED, "difference"), 1e-9, 1e-5,
                    "relative, in double precision, where kernels differ by rounding"),
        Requirement("the one pass is cheaper: n passes take this many times as long at the greatest length",
                    lambda seen: min(_longest(seen[kind], "times") for kind in MASKED), 3.0, 1.0,
                    "three times is beyond what timing on a busy machine invents"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "mask",
    "C11",
    "The causal mask plus the shift make position i depend on positions < i only, while all are trained at once",
    RULE,
    "Fresh weights: that the future cannot be seen is a matter of wiring, not of what was learned.",
    is_timed=True,
)


@dataclass(frozen=True)
class CausalMaskStudy:
    """Gradients from the future, and one pass against many."""

    about: StudyInfo = ABOUT
    minutes: float = 2.0
    seeds: int = 3
    lengths: tuple[int, ...] = (8, 16, 32, 64, 128)
    width: int = 64
    layers: int = 2

    @property
    def conditions(self) -> tuple[str, ...]:
        """Two masked stacks, and one that sees everything."""
        return (*MASKED, UNMASKED)

    @property
    def columns(self) -> Mapping[str, str]:
        """At the greatest length."""
        last = self.lengths[-1]
        return {f"future@{last}": "gradient from the future", f"past@{last}": "from the past",
                f"difference@{last}": "one pass against n", f"times@{last}": "n passes / one pass"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """All lengths."""
        shape = {"model_dim": self.width, "feed_forward_dim": 2 * self.width, "num_heads": 4}
        depth = {"num_encoder_layers": self.layers, "num_decoder_layers": self.layers}
        found: dict[str, float] = {}
        for length in self.lengths:
            ids_BT, src_BS = random_ids(1, length, seed), random_ids(1, length, seed + 1)
            if condition == "decoder only":
                network = untrained_network("lm", seed, {**shape, "num_decoder_layers": self.layers}).double()
                run, embedding = network, network.embedding
            elif condition == "encoder-decoder":
                network = untrained_network("translate", seed, {**shape, **depth, "tied_embeddings": "none"}).double()
                run, embedding = _with_source(network, src_BS), network.target_embedding
            else:
                network = untrained_network(
                    "classify", seed, {**shape, "num_encoder_layers": self.layers, "num_labels": 3}
                )
                network = network.double()
                run, embedding = _states(network), network.backbone.embedding
            future, past = future_and_past_gradients(run, embedding, ids_BT)
            found |= {f"future@{length}": future, f"past@{length}": past}
            if condition != UNMASKED:
                difference, times = compare_passes(run, ids_BT)
                found |= {f"difference@{length}": difference, f"times@{length}": times}
        return found

    def charts(self, found: Findings) -> list[Chart]:
        """The cost of n passes."""
        series = [
            Series(kind, [(length, found.values(kind, f"times@{length}")) for length in self.lengths])
            for kind in MASKED
        ]
        return [Chart("mask-cost", "What training all positions at once saves", "positions",
                      "time of n passes / time of one", series, log_x=True, log_y=True)]  # fmt: skip


Run = Callable[[Tensor], Tensor]


def _with_source(network: nn.Module, src_BS: Tensor) -> Run:
    return lambda ids_BT: network(src_BS, ids_BT)


def _states(network: Any) -> Run:
    return lambda ids_BT: network.backbone(ids_BT).states_BSD


def future_and_past_gradients(run: Run, embedding: nn.Module, ids_BT: Tensor) -> tuple[float, float]:
    """The largest gradient that a state takes from a later place, and the smallest from its own or an earlier one."""
    length = ids_BT.shape[1]
    future, past = 0.0, float("inf")
    with capture_embeddings(embedding) as kept:
        states_BTD = run(ids_BT)
    [x_BTD] = kept
    direction_D = torch.linspace(-1.0, 1.0, states_BTD.shape[-1], dtype=states_BTD.dtype)
    for place in range(length):
        [gradient_BTD] = torch.autograd.grad((states_BTD[0, place] * direction_D).sum(), x_BTD, retain_graph=True)
        norm_T = gradient_BTD[0].norm(dim=-1)
        past = min(past, float(norm_T[: place + 1].min()))
        if place + 1 < length:
            future = max(future, float(norm_T[place + 1 :].max()))
    return future, past


@torch.no_grad()
def compare_passes(run: Run, ids_BT: Tensor) -> tuple[float, float]:
    """How far one pass is from n passes, and how many times as long those take."""
    run(ids_BT)  # the first call pays for what is set up once
    began = time.perf_counter()
    at_once_TD = run(ids_BT)[0]
    between = time.perf_counter()
    one_by_one_TD = torch.stack([run(ids_BT[:, : place + 1])[0, -1] for place in range(ids_BT.shape[1])])
    ended = time.perf_counter()
    difference = float((at_once_TD - one_by_one_TD).abs().max() / at_once_TD.abs().max())
    return difference, (ended - between) / (between - began)
