"""C15: the same blocks to more than 10^11 parameters: cost by size, from measured figures.

A network is built for real up to the size that a cell can train, and beyond that on torch's meta device: the same code
with the same shapes, but no numbers behind them. Floating-point operations are counted by torch over a whole forward
and backward pass, the time is measured.

B batch, T tokens
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from clearhead.model.parameters import count_parameters
from clearhead.study.claims import training_costs
from clearhead.study.claims.training_costs import BYTES
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.networks import VOCABULARY, fresh, random_ids
from clearhead.study.harness.protocol import Findings, StudyContext, StudyInfo
from clearhead.study.harness.verdict import DecisionRule, Numbers, Requirement, Seen

# Published shapes of decoder-only models: layers, width, heads; inner width 4 times the width, vocabulary 50,257.
ON_PAPER = {"gpt2 shape": (12, 768, 12), "gpt2-xl shape": (48, 1600, 25), "gpt3 shape": (96, 12288, 96)}
PAPER_VOCABULARY = 50257
PAPER_TOKENS = 2048


def _measured(seen: Seen) -> list[Numbers]:
    """What was trained for real, the smallest first."""
    found = sorted((one for one in seen.values() if "seconds" in one), key=lambda one: one["parameters"])
    if len(found) < 3:
        raise KeyError("fewer than three measured sizes")
    return found


def _off(seen: Seen) -> float:
    """How far the largest measured time is from what the others predict by their speed (times, either way)."""
    *smaller, largest = _measured(seen)
    speed = smaller[-1]["flops"] / smaller[-1]["seconds"]
    return math.exp(abs(math.log(largest["flops"] / speed / largest["seconds"])))


# The claim names 10^11. "6 x parameters x tokens" is the usual estimate: attention and embeddings make it differ, by
# less than a third for shapes that are used. An extrapolation that is off by a factor of 2 one size further on is still
# an estimate; by 5 it is none.
RULE = DecisionRule(
    (
        Requirement("the same blocks build a network of more than 10^11 parameters (the largest)",
                    lambda seen: max(one["parameters"] for one in seen.values()), 1e11, 1e10, "the claim names it"),
        Requirement("its operations are those that the size predicts (counted / 6 x parameters x tokens)",
                    lambda seen: math.exp(abs(math.log(
                        max(seen.values(), key=lambda one: one["parameters"])["flops_ratio"]))), 1.33, 2.0,
                    "a third for attention and embeddings"),
        Requirement("time follows operations: the next size is predicted from the speed of the one before (times off)",
                    _off, 2.0, 5.0, "a factor of 2 is an estimate, 5 is none"),
        Requirement("memory follows parameters: bytes a parameter that training holds, against 16 (times off)",
                    lambda seen: max(abs(one["bytes"] / BYTES - 1) for one in _measured(seen)), 0.05, 0.5,
                    "weights, gradients and two averages"),
    )
)  # fmt: skip
ABOUT = StudyInfo(
    "scale",
    "C15",
    "The architecture scales: the same blocks to more than 10^11 parameters (on paper: cost in memory and time by "
    "size, from measured figures)",
    RULE,
    "Beyond the measured sizes, and for many machines, the time is computed: the table of assumptions says from what.",
    tables=training_costs.tables,
    is_timed=True,
)


@dataclass(frozen=True)
class Scale:
    """Cost by size, measured and on paper."""

    about: StudyInfo = ABOUT
    minutes: float = 4.0
    seeds: int = 2
    shapes: tuple[tuple[int, int], ...] = ((2, 64), (4, 128), (4, 256), (6, 512), (8, 768))
    on_paper: tuple[str, ...] = tuple(ON_PAPER)
    tokens: int = 512
    rows: int = 2
    repeats: int = 3

    @property
    def conditions(self) -> tuple[str, ...]:
        """Sizes that are run, then sizes that are only built."""
        return (*(f"{layers} x {width}" for layers, width in self.shapes), *self.on_paper)

    @property
    def columns(self) -> Mapping[str, str]:
        """Size and cost."""
        return {"parameters": "parameters", "flops_token": "operations a token", "flops_ratio": "/ 6 x parameters",
                "seconds": "s a batch", "speed": "operations a second", "gigabytes": "GB to train"}  # fmt: skip

    def measure(self, condition: str, seed: int, bench: StudyContext) -> Numbers:
        """One size."""
        if condition in ON_PAPER:
            layers, width, heads = ON_PAPER[condition]
            return _on_paper(layers, width, heads)
        layers, width = (int(part) for part in condition.split(" x "))
        network = fresh("lm", seed, _shape(layers, width, max(1, width // 64), VOCABULARY, self.tokens)).train()
        ids_BT = random_ids(self.rows, self.tokens, seed)
        flops, size = count_flops(network, ids_BT), count_parameters(network)
        optimizer = torch.optim.AdamW(network.parameters())
        best = math.inf
        for _ in range(self.repeats + 1):  # the first one makes the optimiser's state
            began = time.perf_counter()
            network.logits(network(ids_BT)).logsumexp(-1).mean().backward()
            optimizer.step()
            best = min(best, time.perf_counter() - began)
        held = sum(
            weight.nbytes + (0 if weight.grad is None else weight.grad.nbytes) for weight in network.parameters()
        )
        state = sum(value.nbytes for one in optimizer.state.values() for name, value in one.items() if name != "step")
        return _numbers(size, flops, ids_BT.numel()) | {
            "seconds": best, "speed": flops / best, "bytes": (held + state) / size,
        }  # fmt: skip

    def charts(self, found: Findings) -> list[Chart]:
        """Operations a token by parameters; and the time to train, on one machine and on many."""
        counted = [(found.values(kind, "parameters")[0], found.values(kind, "flops_token"))
                   for kind in self.conditions if found.values(kind, "parameters")]  # fmt: skip
        return [
            Chart("scale", "Operations to train on one token", "parameters", "floating-point operations",
                  [Series("counted", counted), Series("6 x parameters", [(x, [6 * x]) for x, _ in counted])],
                  log_x=True, log_y=True),
            training_costs.time_chart(found),
        ]  # fmt: skip


def _shape(layers: int, width: int, heads: int, vocabulary: int, tokens: int) -> dict[str, Any]:
    return {"num_decoder_layers": layers, "model_dim": width, "feed_forward_dim": 4 * width, "num_heads": heads,
            "vocab_size": vocabulary, "max_positions": tokens, "positions": "learned"}  # fmt: skip


def _on_paper(layers: int, width: int, heads: int) -> Numbers:
    """A published shape, without a number behind it."""
    with torch.device("meta"):
        network = fresh("lm", 1, _shape(layers, width, heads, PAPER_VOCABULARY, PAPER_TOKENS))
        ids_BT = torch.zeros(1, PAPER_TOKENS, dtype=torch.long)
        flops = count_flops(network, ids_BT)
    return _numbers(count_parameters(network), flops, PAPER_TOKENS)


def _numbers(size: int, flops: float, tokens: int) -> dict[str, float]:
    return {"parameters": float(size), "flops": flops, "flops_token": flops / tokens,
            "flops_ratio": flops / tokens / (6 * size), "gigabytes": BYTES * size / 1e9}  # fmt: skip


def _of_product(left_MD: tuple[int, ...], *_: Any, out_shape: tuple[int, ...], **__: Any) -> int:
    """From the shapes of what is multiplied and what comes of it."""
    return 2 * math.prod(out_shape) * left_MD[-1]


def count_flops(network: Any, ids_BT: torch.Tensor) -> float:
    """Of one forward and backward pass, by torch's own counter, which has to be told of oneDNN's products."""
    by_kernel = (
        {torch.ops.mkldnn._linear_pointwise: _of_product} if hasattr(torch.ops.mkldnn, "_linear_pointwise") else {}
    )
    with FlopCounterMode(display=False, custom_mapping=by_kernel) as counter:
        network.logits(network(ids_BT)).sum().backward()
    for parameter in network.parameters():
        parameter.grad = None
    return float(counter.get_total_flops())
