"""Training time of clearhead's recurrent translator relative to bare LSTM kernels: `python -m benchmarks.recurrent`.

Both train on the same padded batches with the same tied embedding table, loss over full logits and Adam, without
dropout. The bare translator consists of two `torch.nn.LSTM`, the decoder initialised with the encoder's last forward
state, without attention or masking of padding. They alternate batch by batch; a round gives the ratio of their times.

N sentences, S source length, T target length, D model width, V vocabulary
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.harness.record import require_core
from clearhead.config import ModelConfig
from clearhead.model.recurrent.translator import RecurrentTranslator

ATTENTIONS = ("none", "dot", "scaled_dot", "general", "additive", "cosine")


class BareTranslator(nn.Module):
    """Translator of two `torch.nn.LSTM` without attention."""

    def __init__(self, vocab_size: int, model_dim: int, num_layers: int, bidirectional: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, model_dim)
        self.encoder = nn.LSTM(model_dim, model_dim, num_layers, batch_first=True, bidirectional=bidirectional)
        self.decoder = nn.LSTM(model_dim, model_dim, num_layers, batch_first=True)

    def forward(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """Return the logits [N, T, V]."""
        _, last = self.encoder(self.tokens(src_NS))
        directions = 2 if self.encoder.bidirectional else 1
        hidden_NTD, _ = self.decoder(self.tokens(tgt_NT), tuple(each[::directions].contiguous() for each in last))
        return F.linear(hidden_NTD, self.tokens.weight)


def make_batch(size: int, length: int, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Return sources and targets of half to full length, padded at the end."""
    ids = torch.randint(4, vocab_size, (2, size, length))
    lengths = torch.randint(length // 2, length + 1, (2, size, 1))
    lengths[:, 0] = length
    return tuple((ids * (torch.arange(length) < lengths)).unbind())  # type: ignore[return-value]


def train_step(
    logits: Callable[[Tensor, Tensor], Tensor], optimiser: torch.optim.Optimizer, pair: tuple[Tensor, Tensor]
) -> float:
    """Return the seconds of one update: forward, backward and Adam."""
    began = time.perf_counter()
    src_NS, tgt_NT = pair
    loss = F.cross_entropy(logits(src_NS, tgt_NT[:, :-1]).flatten(0, 1), tgt_NT[:, 1:].flatten(), ignore_index=0)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return time.perf_counter() - began


def measure(options: argparse.Namespace, attention: str) -> list[float]:
    """Return the ratio of each round, after a warm-up round."""
    torch.manual_seed(1)
    config = ModelConfig.model_validate(
        {"family": "lstm", "attention": attention, "bidirectional": options.bidirectional, "dropout": 0.0,
         "num_encoder_layers": options.layers, "num_decoder_layers": options.layers, "model_dim": options.width,
         "num_heads": 1, "vocab_size": options.vocabulary}
    )  # fmt: skip
    ours = RecurrentTranslator(config)
    bare = BareTranslator(options.vocabulary, options.width, options.layers, options.bidirectional)
    optimisers = [torch.optim.Adam(each.parameters(), fused=True) for each in (ours, bare)]
    batches = [make_batch(options.batch, options.length, options.vocabulary) for _ in range(options.batches)]
    ratios = []
    for _ in range(options.rounds + 1):
        our_time = bare_time = 0.0
        for pair in batches:
            our_time += train_step(lambda src, tgt: ours.logits(ours(src, tgt)), optimisers[0], pair)
            bare_time += train_step(bare, optimisers[1], pair)
        ratios.append(our_time / bare_time)
    return ratios[1:]


def parse() -> argparse.Namespace:
    """Return the options of the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--attention", choices=("all", *ATTENTIONS), default="additive", help="attention of clearhead's model"
    )
    parser.add_argument("--rounds", type=int, default=9, help="number of measured ratios")
    parser.add_argument("--batches", type=int, default=3, help="batches per round")
    parser.add_argument("--bidirectional", action="store_true", help="bidirectional encoders")
    parser.add_argument("--layers", type=int, default=2, help="layers of the encoder, and of the decoder")
    parser.add_argument("--width", type=int, default=256, help="size of a state")
    parser.add_argument("--vocabulary", type=int, default=6000, help="size of the vocabulary")
    parser.add_argument("--batch", type=int, default=64, help="sentences per batch")
    parser.add_argument("--length", type=int, default=20, help="length of the longest sentence")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    return parser.parse_args()


def main() -> None:
    """Measure and print the ratios."""
    options = parse()
    require_core()
    torch.set_num_threads(options.threads)
    for attention in ATTENTIONS if options.attention == "all" else (options.attention,):
        ratios = measure(options, attention)
        print(
            f"attention {attention}: {statistics.median(ratios):.2f} times the time of the bare kernels "
            f"(median of {len(ratios)} rounds, {min(ratios):.2f} to {max(ratios):.2f})"
        )


if __name__ == "__main__":
    main()
