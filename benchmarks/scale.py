"""Figures of docs/scale.md: the work of an update of a preset, and the data that processes exchange for it.

    python -m benchmarks.scale --preset paper-base --tokens 512
    torchrun --nproc-per-node 2 -m benchmarks.scale --preset paper-base --tokens 512
    python -m benchmarks.scale --estimate

Measures gradients of random sentences on one thread, alternating with products of large matrices, in CPU time: the
share of the peak is their ratio, independent of other programs. With several processes, the time for summing the
gradients is measured separately, in wall-clock time. `--estimate` measures nothing and prints the table that follows
from the assumptions in this file.
"""

import argparse
import statistics
import time
from dataclasses import dataclass

import torch

from benchmarks.harness.record import require_core
from clearhead import config as configs
from clearhead.config import Config
from clearhead.model.parameters import count_parameters
from clearhead.model.registry import build_model
from clearhead.tasks.trainable.seq2seq import Seq2SeqBatch, seq2seq_loss
from clearhead.training.distributed.process_group import ProcessGroup, init_distributed

TOKENS = 25_000  # target tokens per update in the paper
STEPS = {"paper-base": 100_000, "paper-big": 300_000}  # section 5.2 of the paper
# Assumptions of the estimate, not measured.
PEAKS = {"A100": 312e12, "H100": 989e12}  # bfloat16 operations per second without sparsity, from the vendor
SHARE = 0.3  # of the peak reached by matrix products of this size
INSIDE, BETWEEN = 200e9, 12.5e9  # bytes per second and GPU within a machine, and between machines (100 Gbit/s)
OVERHEAD = 0.02  # seconds per update in which Python starts kernels and the GPU waits
LENGTH = 32  # tokens per sentence
SIDE = 1536  # size of the matrices for measuring the peak


def measure(preset: str, tokens: int, rounds: int, processes: ProcessGroup) -> dict[str, float]:
    """Return the figures of one update of `tokens` target tokens, medians over rounds."""
    torch.set_num_threads(1)
    config = _with_vocabulary(configs.build(preset=preset))
    model = build_model(config.model).train()
    batch = random_batch(config.model.vocab_size, tokens // LENGTH)
    seconds: dict[str, list[float]] = {"product": [], "update": [], "sum": []}
    for number in range(rounds + 1):
        seconds["product"].append(product_seconds())
        began = time.process_time()
        seq2seq_loss(model, batch, config.model.pad_id, 0.1).smoothed.backward()  # type: ignore[no-untyped-call]
        seconds["update"].append(time.process_time() - began)
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        processes.max(0)  # barrier
        began = time.perf_counter()
        processes.sum_tensors(gradients)
        seconds["sum"].append(time.perf_counter() - began)
        model.zero_grad()
        if not number:  # the first round is a warm-up
            seconds = {name: [] for name in seconds}
    product, update, exchanged = (statistics.median(values) for values in seconds.values())
    parameters = count_parameters(model)
    peak, work = 2 * SIDE**3 / product, 6 * parameters * tokens
    return {
        "parameters": parameters,
        "gflop_of_update": work / 1e9,
        "seconds_of_update": update,
        "peak_gflops": peak / 1e9,
        "share_of_peak": work / update / peak,
        "megabytes_exchanged": 4 * parameters / 1e6,
        "seconds_exchanging": exchanged,
    }


@dataclass(frozen=True)
class Row:
    """Estimated training time of a preset on some machines with GPUs."""

    preset: str
    gpu: str
    machines: int
    gpus: int
    """Total over all machines."""
    computing: float
    exchanging: float

    @property
    def seconds(self) -> float:
        """Return the seconds of an update."""
        return self.computing + self.exchanging + OVERHEAD

    @property
    def hours(self) -> float:
        """Return the hours of the whole training."""
        return self.seconds * STEPS[self.preset] / 3600

    def __str__(self) -> str:
        where = f"{self.machines} x {self.gpus // self.machines} {self.gpu}"
        computing, exchanging = 1000 * self.computing, 1000 * self.exchanging
        return (
            f"| {self.preset} | {where} | {computing:.1f} | {exchanging:.1f} | {1000 * self.seconds:.0f} "
            f"| {self.hours:.1f} | {self.hours * self.gpus:.0f} |"
        )


def estimate() -> list[Row]:
    """Return the rows of the presets of the paper on one GPU, one machine, and several machines."""
    rows = []
    for preset in STEPS:
        parameters = parameters_of(preset)
        for gpu, peak in PEAKS.items():
            for machines, gpus in ((1, 1), (1, 8), (2, 16), (4, 32)):
                link = INSIDE if machines == 1 else BETWEEN
                computing = 6 * parameters * TOKENS / (gpus * SHARE * peak)
                rows.append(Row(preset, gpu, machines, gpus, computing, 2 * (gpus - 1) / gpus * 4 * parameters / link))
    return rows


def parameters_of(preset: str) -> int:
    """Return the number of parameters with the preset's vocabulary, without allocating them."""
    config = configs.build(preset=preset)
    with torch.device("meta"):
        return count_parameters(build_model(_with_vocabulary(config).model))


def _with_vocabulary(config: Config) -> Config:
    return configs.override(config, {"model": {"vocab_size": config.tokenizer.vocab_size}})


def random_batch(vocab_size: int, sentences: int) -> Seq2SeqBatch:
    """Return random sentences of one length, without padding."""
    src_NS, tgt_NT = torch.randint(10, vocab_size, (2, sentences, LENGTH))
    return Seq2SeqBatch(src_NS, tgt_NT, tgt_NT)


def product_seconds() -> float:
    """Return the CPU seconds of a product of two large matrices, after a warm-up product."""
    left, right = torch.randn(2, SIDE, SIDE)
    left @ right
    began = time.process_time()
    left @ right
    return time.process_time() - began


def main() -> None:
    """Print the figures, one per line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="paper-base")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--estimate", action="store_true")
    options = parser.parse_args()
    require_core()
    if options.estimate:
        print("\n".join(map(str, estimate())))
        return
    with init_distributed("cpu") as processes:
        figures = measure(options.preset, options.tokens, options.rounds, processes)
        if processes.is_rank0:
            print("\n".join(f"{name:<20} {value:,.4g}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
