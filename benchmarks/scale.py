"""What docs/scale.md is computed from: the work of an update of a preset, and what processes exchange for it.

    python -m benchmarks.scale --preset paper-base --tokens 512
    torchrun --nproc-per-node 2 -m benchmarks.scale --preset paper-base --tokens 512
    python -m benchmarks.scale --estimate

Gradients of random sentences on one thread, by turns with products of large matrices, in CPU time: the share of the
peak is their ratio, whatever else the machine does. In several processes the gradients are summed too, and that time is
told apart, by the clock.
`--estimate` measures nothing: it prints the table that follows from the assumptions in this file.
"""

import argparse
import statistics
import time
from dataclasses import dataclass

import torch

from benchmarks.core import require_core
from clearhead import config as configs
from clearhead.config import Config
from clearhead.model.parameters import count_parameters
from clearhead.model.registry import build_model
from clearhead.tasks.trainable.seq2seq import Seq2SeqBatch, seq2seq_loss
from clearhead.training.distributed.process_group import ProcessGroup, init_distributed

TOKENS = 25_000  # target tokens of an update of the paper
STEPS = {"paper-base": 100_000, "paper-big": 300_000}  # the paper's, section 5.2
# Assumptions of the estimate, none of them measured here.
PEAKS = {"A100": 312e12, "H100": 989e12}  # bfloat16 operations a second, without sparsity, as the vendor gives them
SHARE = 0.3  # of the peak that matrix products of this size reach
INSIDE, BETWEEN = (
    200e9,
    12.5e9,
)  # bytes a second that a GPU exchanges within a machine, and between machines (100 Gbit/s)
OVERHEAD = 0.02  # seconds an update in which Python starts kernels and the GPU waits
LENGTH = 32  # pieces a sentence
SIDE = 1536  # of the matrices that the peak is measured with


def measure(preset: str, tokens: int, rounds: int, processes: ProcessGroup) -> dict[str, float]:
    """Figures of one update of so many target tokens, medians over rounds."""
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
        processes.max(0)  # all are here
        began = time.perf_counter()
        processes.sum_tensors(gradients)
        seconds["sum"].append(time.perf_counter() - began)
        model.zero_grad()
        if not number:  # the first round is cold
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
    """What a training takes on so many machines with so many GPUs each."""

    preset: str
    gpu: str
    machines: int
    gpus: int
    """In all."""
    computing: float
    exchanging: float

    @property
    def seconds(self) -> float:
        """Of an update."""
        return self.computing + self.exchanging + OVERHEAD

    @property
    def hours(self) -> float:
        """Of the whole training."""
        return self.seconds * STEPS[self.preset] / 3600

    def __str__(self) -> str:
        where = f"{self.machines} x {self.gpus // self.machines} {self.gpu}"
        computing, exchanging = 1000 * self.computing, 1000 * self.exchanging
        return (
            f"| {self.preset} | {where} | {computing:.1f} | {exchanging:.1f} | {1000 * self.seconds:.0f} "
            f"| {self.hours:.1f} | {self.hours * self.gpus:.0f} |"
        )


def estimate() -> list[Row]:
    """The presets of the paper on one GPU, on one machine, and on several."""
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
    """Of the network with the vocabulary of the preset; nothing is computed."""
    config = configs.build(preset=preset)
    with torch.device("meta"):
        return count_parameters(build_model(_with_vocabulary(config).model))


def _with_vocabulary(config: Config) -> Config:
    return configs.override(config, {"model": {"vocab_size": config.tokenizer.vocab_size}})


def random_batch(vocab_size: int, sentences: int) -> Seq2SeqBatch:
    """Sentences of one length, without padding."""
    src_NS, tgt_NT = torch.randint(10, vocab_size, (2, sentences, LENGTH))
    return Seq2SeqBatch(src_NS, tgt_NT, tgt_NT)


def product_seconds() -> float:
    """Of a product of two large matrices, without the first, which is cold."""
    left, right = torch.randn(2, SIDE, SIDE)
    left @ right
    began = time.process_time()
    left @ right
    return time.process_time() - began


def main() -> None:
    """Prints the figures, one a line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="paper-base")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--estimate", action="store_true")
    given = parser.parse_args()
    require_core()
    if given.estimate:
        print("\n".join(map(str, estimate())))
        return
    with init_distributed("cpu") as processes:
        figures = measure(given.preset, given.tokens, given.rounds, processes)
        if processes.is_rank0:
            print("\n".join(f"{name:<20} {value:,.4g}" for name, value in figures.items()))


if __name__ == "__main__":
    main()
