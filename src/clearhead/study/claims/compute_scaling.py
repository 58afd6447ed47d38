"""C15: the same blocks scale to more than 10^11 parameters: training cost by size, from measurements.

Networks up to the size that a cell can train are built and trained; larger ones are built on torch's meta device, which
has shapes without values. torch counts the floating-point operations of one forward and backward pass; the time is
measured. These numbers and a table of assumptions give the time to train each size on one machine and on many.

B batch, T tokens, M, D the shape of a matrix product
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

BYTES_PER_PARAMETER = 16  # in training: weight, gradient and two Adam averages in float32; verified by the study
TOKENS_PER_PARAMETER = 20
BATCH_TOKENS = 3_200_000
EXCHANGED_BYTES = 2 * 4  # per parameter: a ring all-reduce sends each float32 gradient twice, to sum and to distribute
LINK_SPEED = 1.25e9  # bytes per second
MACHINES = (1, 100, 10_000)
UNITS = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0))


@dataclass(frozen=True)
class ModelSize:
    """One model size, and the speed at which a machine trains it."""

    name: str
    parameters: float
    flops_per_token: float
    flops_per_second: float

    def seconds(self, machines: int) -> float:
        """Return the time to train on `TOKENS_PER_PARAMETER` tokens per parameter."""
        tokens = TOKENS_PER_PARAMETER * self.parameters
        updates = max(1.0, tokens / BATCH_TOKENS)
        exchange = EXCHANGED_BYTES * self.parameters * (machines - 1) / machines / LINK_SPEED
        return self.flops_per_token * tokens / (self.flops_per_second * machines) + updates * exchange


def largest_measured(findings: Findings) -> str:
    """Return the condition with the most parameters whose time was measured, or an empty string."""
    timed = [kind for kind in findings.conditions if findings.values(kind, "flops_per_second")]
    return max(timed, key=lambda kind: findings.values(kind, "parameters")[0], default="")


def model_sizes(findings: Findings) -> list[ModelSize]:
    """Return all sizes in ascending order; sizes without a measured speed use that of the largest measured one."""
    largest = largest_measured(findings)
    if not largest:
        return []
    sizes = [
        ModelSize(
            kind,
            findings.values(kind, "parameters")[0],
            findings.values(kind, "flops_per_token")[0],
            fmean(findings.values(kind, "flops_per_second") or findings.values(largest, "flops_per_second")),
        )
        for kind in findings.conditions
    ]
    return sorted(sizes, key=lambda size: size.parameters)


def tables(findings: Findings) -> list[StudyTable]:
    """Return a table of costs by size and a table of assumptions."""
    largest = largest_measured(findings)
    if not largest:
        return []
    speed = fmean(findings.values(largest, "flops_per_second"))
    return [_costs(model_sizes(findings)), _assumptions(largest, speed)]


def _costs(sizes: list[ModelSize]) -> StudyTable:
    heading = ["", "parameters", "operations", "GB", *(f"on {count:,}" for count in MACHINES),
               f"GB on each of {MACHINES[-1]:,}"]  # fmt: skip
    rows = [
        [size.name, f"{size.parameters:.3g}", f"{size.flops_per_token * TOKENS_PER_PARAMETER * size.parameters:.2g}",
         f"{BYTES_PER_PARAMETER * size.parameters / 1e9:.3g}",
         *(format_duration(size.seconds(count)) for count in MACHINES),
         f"{BYTES_PER_PARAMETER * size.parameters / 1e9 / MACHINES[-1]:.2g}"]
        for size in sizes
    ]  # fmt: skip
    return StudyTable("Cost of one training on machines like this one", [heading, *rows])


def _assumptions(largest: str, speed: float) -> StudyTable:
    rows = [
        ["operations per token", "counted, forward and backward", "measured: torch's FLOP counter"],
        ["speed of a machine", f"{speed:.2g} operations per second", f"measured at {largest}; constant beyond it"],
        ["memory per parameter", f"{BYTES_PER_PARAMETER} bytes", "measured: weight, gradient, two averages, float32"],
        ["activations", "not counted", "assumed: recomputed where they do not fit"],
        ["training tokens", f"{TOKENS_PER_PARAMETER} per parameter", "assumed: Hoffmann et al. 2022"],
        ["tokens per update", f"{BATCH_TOKENS:,}", "assumed: Brown et al. 2020, 175 billion parameters"],
        ["work on many machines", "divides evenly", "assumed: no waiting, no failures"],
        ["memory on many machines", "divides evenly", "assumed: weights, gradients and averages are sharded"],
        [
            "exchange per update",
            f"{EXCHANGED_BYTES} bytes per parameter",
            "assumed: ring all-reduce of float32 gradients",
        ],
        ["link of a machine", f"{LINK_SPEED / 1e9:g} GB per second", "assumed: 10 Gbit Ethernet"],
        ["exchange and computation", "not overlapped", "assumed: the worst case"],
    ]
    return StudyTable("Assumptions", [["quantity", "value", "source"], *rows])


def format_duration(seconds: float) -> str:
    """Return the duration in the largest unit that gives at least 1."""
    for unit, length in UNITS:
        if seconds >= length:
            return f"{seconds / length:,.3g} {unit}" if seconds < 1000 * length else f"{seconds / length:,.0f} {unit}"
    return f"{seconds:.2g} seconds"


def time_chart(findings: Findings) -> Chart:
    """Return the days of training by size and number of machines."""
    sizes = model_sizes(findings)
    series = [
        Series(f"{count:,} machine{'s' * (count > 1)}",
               [(size.parameters, [size.seconds(count) / 86400]) for size in sizes])
        for count in MACHINES
    ]  # fmt: skip
    title = f"Time to train on {TOKENS_PER_PARAMETER} tokens per parameter, machines like this one"
    return Chart("scale-time", title, "parameters", "days", series, log_x=True, log_y=True)


# Published shapes of decoder-only models: layers, width, heads; the feed-forward width is 4 times the width.
PAPER_SHAPES = {"gpt2 shape": (12, 768, 12), "gpt2-xl shape": (48, 1600, 25), "gpt3 shape": (96, 12288, 96)}
PAPER_VOCAB_SIZE = 50257
PAPER_TOKENS = 2048


def _trained_sizes(runs: SeedNumbers) -> list[Numbers]:
    """Return the numbers of the sizes that were trained, in ascending order."""
    trained = [numbers for numbers in runs.values() if "seconds" in numbers]
    if len(trained) < 3:
        raise KeyError("fewer than three sizes were trained")
    return sorted(trained, key=lambda numbers: numbers["parameters"])


def _largest_size(runs: SeedNumbers) -> Numbers:
    return max(runs.values(), key=lambda numbers: numbers["parameters"])


def _symmetric_ratio(value: float, expected: float) -> float:
    """Return the ratio of two values, the larger divided by the smaller."""
    return math.exp(abs(math.log(value / expected)))


def _time_prediction_error(runs: SeedNumbers) -> float:
    """Return the ratio between the time of the largest trained size and its prediction from the next smaller one."""
    *_, smaller, largest = _trained_sizes(runs)
    return _symmetric_ratio(largest["flops"] / (smaller["flops"] / smaller["seconds"]), largest["seconds"])


def _memory_error(runs: SeedNumbers) -> float:
    return max(abs(numbers["bytes_per_parameter"] / BYTES_PER_PARAMETER - 1) for numbers in _trained_sizes(runs))


# The claim states 10^11. 6 x parameters x tokens is the usual estimate of operations; attention and embeddings change
# it by less than a third for common shapes. A prediction for the next larger size is an estimate up to a factor of 2
# and useless at a factor of 5.
RULE = DecisionRule(
    (
        Requirement("the same blocks build a network of more than 10^11 parameters (largest size)",
                    lambda runs: _largest_size(runs)["parameters"], 1e11, 1e10, "the claim states this number"),
        Requirement("the operations match 6 x parameters x tokens (ratio)",
                    lambda runs: _symmetric_ratio(_largest_size(runs)["flops_ratio"], 1.0), 1.33, 2.0,
                    "attention and embeddings change it by less than a third"),
        Requirement("time is proportional to operations: the speed of one size predicts the time of the next (ratio)",
                    _time_prediction_error, 2.0, 5.0, "a factor of 2 is an estimate, a factor of 5 is not"),
        Requirement("memory is proportional to parameters: 16 bytes per parameter in training (largest relative error)",
                    _memory_error, 0.05, 0.5, "weight, gradient and two averages"),
    )
)  # fmt: skip
INFO = StudyInfo(
    "scale",
    "C15",
    "The architecture scales: the same blocks build networks of more than 10^11 parameters (memory and time by size, "
    "extrapolated from measurements)",
    RULE,
    "Times beyond the measured sizes and for many machines are computed from the table of assumptions.",
    tables=tables,
    is_timed=True,
)


@dataclass(frozen=True)
class ComputeScalingStudy:
    """Training cost by size, measured and extrapolated."""

    info: StudyInfo = INFO
    minutes: float = 4.0
    seeds: int = 2
    shapes: tuple[tuple[int, int], ...] = ((2, 64), (4, 128), (4, 256), (6, 512), (8, 768))
    paper_shapes: tuple[str, ...] = tuple(PAPER_SHAPES)
    tokens: int = 512
    rows: int = 2
    repeats: int = 3

    @property
    def conditions(self) -> tuple[str, ...]:
        """Sizes that are trained (layers x width), then sizes that are only built."""
        return (*(f"{layers} x {width}" for layers, width in self.shapes), *self.paper_shapes)

    @property
    def columns(self) -> Mapping[str, str]:
        """Size and cost."""
        return {"parameters": "parameters", "flops_per_token": "operations per token",
                "flops_ratio": "/ 6 x parameters", "seconds": "seconds per batch",
                "flops_per_second": "operations per second", "gigabytes": "GB to train"}  # fmt: skip

    def measure(self, condition: str, seed: int, context: StudyContext) -> Numbers:
        """Train one size for a few batches, or only build it."""
        if condition in PAPER_SHAPES:
            return _count_paper_shape(*PAPER_SHAPES[condition])
        layers, width = (int(part) for part in condition.split(" x "))
        shape = _shape(layers, width, max(1, width // 64), VOCAB_SIZE, self.tokens)
        network = untrained_network("lm", seed, shape).train()
        ids_BT = random_ids(self.rows, self.tokens, seed)
        flops, size = count_flops(network, ids_BT), count_parameters(network)
        optimizer = torch.optim.AdamW(network.parameters())
        best = math.inf
        for _ in range(self.repeats + 1):  # the first repetition also allocates the optimizer state
            start = time.perf_counter()
            network.logits(network(ids_BT)).logsumexp(-1).mean().backward()
            optimizer.step()
            best = min(best, time.perf_counter() - start)
        return _numbers(size, flops, ids_BT.numel()) | {
            "seconds": best,
            "flops_per_second": flops / best,
            "bytes_per_parameter": _training_bytes(network, optimizer) / size,
        }

    def charts(self, findings: Findings) -> list[Chart]:
        """Return operations per token by parameters, and training time by size and number of machines."""
        counted = [(findings.values(kind, "parameters")[0], findings.values(kind, "flops_per_token"))
                   for kind in self.conditions if findings.values(kind, "parameters")]  # fmt: skip
        return [
            Chart("scale", "Operations to train on one token", "parameters", "floating-point operations",
                  [Series("counted", counted), Series("6 x parameters", [(x, [6 * x]) for x, _ in counted])],
                  log_x=True, log_y=True),
            time_chart(findings),
        ]  # fmt: skip


def _training_bytes(network: torch.nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Return the memory of weights, gradients and optimizer averages."""
    weights = sum(weight.nbytes + (0 if weight.grad is None else weight.grad.nbytes) for weight in network.parameters())
    averages = [value for state in optimizer.state.values() for name, value in state.items() if name != "step"]
    return weights + sum(int(value.nbytes) for value in averages)


def _shape(layers: int, width: int, heads: int, vocab_size: int, tokens: int) -> dict[str, Any]:
    return {"num_decoder_layers": layers, "model_dim": width, "feed_forward_dim": 4 * width, "num_heads": heads,
            "vocab_size": vocab_size, "max_positions": tokens, "positions": "learned"}  # fmt: skip


def _count_paper_shape(layers: int, width: int, heads: int) -> Numbers:
    """Count parameters and operations of a published shape on the meta device, without allocating its weights."""
    with torch.device("meta"):
        network = untrained_network("lm", 1, _shape(layers, width, heads, PAPER_VOCAB_SIZE, PAPER_TOKENS))
        ids_BT = torch.zeros(1, PAPER_TOKENS, dtype=torch.long)
        flops = count_flops(network, ids_BT)
    return _numbers(count_parameters(network), flops, PAPER_TOKENS)


def _numbers(size: int, flops: float, tokens: int) -> dict[str, float]:
    return {"parameters": float(size), "flops": flops, "flops_per_token": flops / tokens,
            "flops_ratio": flops / tokens / (6 * size), "gigabytes": BYTES_PER_PARAMETER * size / 1e9}  # fmt: skip


def _matmul_flops(left_MD: tuple[int, ...], *_: Any, out_shape: tuple[int, ...], **__: Any) -> int:
    """Return the operations of a matrix product from the shapes of its left factor and its result."""
    return 2 * math.prod(out_shape) * left_MD[-1]


def count_flops(network: Any, ids_BT: torch.Tensor) -> float:
    """Return the operations of one forward and backward pass, counted by torch.

    torch's counter has no formula for the matrix product of oneDNN, so this function registers one.
    """
    by_kernel = (
        {torch.ops.mkldnn._linear_pointwise: _matmul_flops} if hasattr(torch.ops.mkldnn, "_linear_pointwise") else {}
    )
    with FlopCounterMode(display=False, custom_mapping=by_kernel) as counter:
        network.logits(network(ids_BT)).sum().backward()
    for parameter in network.parameters():
        parameter.grad = None
    return float(counter.get_total_flops())
