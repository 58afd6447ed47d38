"""C15: the same blocks to more than 10^11 parameters: cost by size, from measured figures.

A network is built for real up to the size that a cell can train, and beyond that on torch's meta device: the same code
with the same shapes, but no numbers behind them. Floating-point operations are counted by torch over a whole forward
and backward pass, the time is measured.

B batch, T tokens

What a size costs to train, on one machine and on many: from measured figures, and assumptions that are listed.

P parameters, M machines
"""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from clearhead.model.parameters import count_parameters
from clearhead.study.harness.charts import Chart, Series
from clearhead.study.harness.models_and_data import VOCAB_SIZE, random_ids, untrained_network
from clearhead.study.harness.protocol import (
    DecisionRule,
    Findings,
    Numbers,
    Requirement,
    SeedNumbers,
    StudyContext,
    StudyInfo,
    StudyTable,
)

BYTES = 16  # a parameter in training: weight, gradient and Adam's two averages, float32 each; a cell checks it
TOKENS_A_PARAMETER = 20
BATCH_TOKENS = 3_200_000
EXCHANGED = 2 * 4  # bytes a parameter: a float32 gradient goes round once to be summed and once to be handed out
LINK = 1.25e9  # bytes a second
MACHINES = (1, 100, 10_000)
UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


@dataclass(frozen=True)
class ModelSize:
    """One size, and the speed at which machines would train it."""

    name: str
    parameters: float
    flops_token: float
    speed: float

    def seconds(self, machines: int) -> float:
        """To train it on as many tokens as its size asks for."""
        tokens = TOKENS_A_PARAMETER * self.parameters
        updates = max(1.0, tokens / BATCH_TOKENS)
        exchange = EXCHANGED * self.parameters * (machines - 1) / machines / LINK
        return self.flops_token * tokens / (self.speed * machines) + updates * exchange


def largest_measured(found: Findings) -> str:
    """The condition with the most parameters among those whose time was measured; nothing while there is none."""
    timed = [kind for kind in found.conditions if found.values(kind, "speed")]
    return max(timed, key=lambda kind: found.values(kind, "parameters")[0], default="")


def model_sizes(found: Findings) -> list[ModelSize]:
    """All sizes, the smallest first: by their own speed where that was measured, else by that of the largest."""
    known = largest_measured(found)
    if not known:
        return []
    made = [
        ModelSize(kind, found.values(kind, "parameters")[0], found.values(kind, "flops_token")[0],
             fmean(found.values(kind, "speed") or found.values(known, "speed")))
        for kind in found.conditions
    ]  # fmt: skip
    return sorted(made, key=lambda one: one.parameters)


def tables(found: Findings) -> list[StudyTable]:
    """What a size would cost, and what was assumed for it."""
    known = largest_measured(found)
    return [_costs(model_sizes(found)), _assumptions(known, fmean(found.values(known, "speed")))] if known else []


def _costs(every: list[ModelSize]) -> StudyTable:
    heading = ["", "parameters", "operations", "GB", *(f"on {number:,}" for number in MACHINES),
               f"GB each of {MACHINES[-1]:,}"]  # fmt: skip
    rows = [
        [one.name, f"{one.parameters:.3g}", f"{one.flops_token * TOKENS_A_PARAMETER * one.parameters:.2g}",
         f"{BYTES * one.parameters / 1e9:.3g}", *(duration(one.seconds(number)) for number in MACHINES),
         f"{BYTES * one.parameters / 1e9 / MACHINES[-1]:.2g}"]
        for one in every
    ]  # fmt: skip
    return StudyTable("To train it once, on machines like this one", [heading, *rows])


def _assumptions(known: str, speed: float) -> StudyTable:
    rows = [
        ["operations a token", "counted, forward and backward", "measured: torch's own counter"],
        ["speed of a machine", f"{speed:.2g} operations a second", f"measured at {known}; beyond it the same"],
        ["memory a parameter", f"{BYTES} bytes", "measured: weight, gradient, two averages, float32"],
        ["activations", "not counted", "assumed: computed again where they do not fit"],
        ["tokens to train on", f"{TOKENS_A_PARAMETER} a parameter", "assumed: Hoffmann et al. 2022"],
        ["tokens an update", f"{BATCH_TOKENS:,}", "assumed: Brown et al. 2020, 175 billion parameters"],
        ["work on many machines", "divides evenly", "assumed: no machine waits, none fails"],
        ["memory on many machines", "divides evenly", "assumed: weights, gradients and averages are sharded"],
        [
            "exchange an update",
            f"{EXCHANGED} bytes a parameter",
            "assumed: float32 gradients, there and back in a ring",
        ],
        ["link of a machine", f"{LINK / 1e9:g} GB a second", "assumed: 10 Gbit Ethernet"],
        ["exchange and computing", "one after the other", "assumed: the worst case"],
    ]
    return StudyTable("What that rests on", [["what", "value", "where from"], *rows])


def duration(seconds: float) -> str:
    """In the largest unit of which there is at least one."""
    for unit, length in UNITS:
        if seconds >= length:
            return f"{seconds / length:,.3g} {unit}" if seconds < 1000 * length else f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.2g} seconds"


def time_chart(found: Findings) -> Chart:
    """Days to train, by size and number of machines."""
    every = model_sizes(found)
    series = [
        Series(f"{number:,} machine{'s' * (number > 1)}",
               [(one.parameters, [one.seconds(number) / 86400]) for one in every])
        for number in MACHINES
    ]  # fmt: skip
    return Chart("scale-time", f"Time to train on {TOKENS_A_PARAMETER} tokens a parameter, machines like this one",
                 "parameters", "days", series, log_x=True, log_y=True)  # fmt: skip


# Published shapes of decoder-only models: layers, width, heads; inner width 4 times the width, vocabulary 50,257.
ON_PAPER = {"gpt2 shape": (12, 768, 12), "gpt2-xl shape": (48, 1600, 25), "gpt3 shape": (96, 12288, 96)}
PAPER_VOCABULARY = 50257
PAPER_TOKENS = 2048


def _measured(seen: SeedNumbers) -> list[Numbers]:
    """What was trained for real, the smallest first."""
    found = sorted((one for one in seen.values() if "seconds" in one), key=lambda one: one["parameters"])
    if len(found) < 3:
        raise KeyError("fewer than three measured sizes")
    return found


def _off(seen: SeedNumbers) -> float:
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
    tables=tables,
    is_timed=True,
)


@dataclass(frozen=True)
class ComputeScalingStudy:
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
        network = untrained_network(
            "lm", seed, _shape(layers, width, max(1, width // 64), VOCAB_SIZE, self.tokens)
        ).train()
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
            time_chart(found),
        ]  # fmt: skip


def _shape(layers: int, width: int, heads: int, vocabulary: int, tokens: int) -> dict[str, Any]:
    return {"num_decoder_layers": layers, "model_dim": width, "feed_forward_dim": 4 * width, "num_heads": heads,
            "vocab_size": vocabulary, "max_positions": tokens, "positions": "learned"}  # fmt: skip


def _on_paper(layers: int, width: int, heads: int) -> Numbers:
    """A published shape, without a number behind it."""
    with torch.device("meta"):
        network = untrained_network("lm", 1, _shape(layers, width, heads, PAPER_VOCABULARY, PAPER_TOKENS))
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
