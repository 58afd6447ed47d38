"""Training time of clearhead's recurrent translator against the bare kernels: `python -m benchmarks.recurrent`.

Both train on the same padded batches with the same embedding table, tied as output layer, loss over full logits and
Adam, without dropout. The bare one is `torch.nn.LSTM` twice, the decoder started from the encoder's last state (of
the forward direction), and neither attention nor any care for padding. They take turns, batch by batch; a round's
figure is the ratio of its times.

N sentences, S source length, T target length, D model width, V vocabulary
"""

import argparse
import statistics
import time
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.core import require_core
from clearhead.config import ModelConfig
from clearhead.model.recurrent.translator import RecurrentTranslator

ATTENTIONS = ("none", "dot", "scaled_dot", "general", "additive", "cosine")


class BareTranslator(nn.Module):
    """Two LSTMs."""

    def __init__(self, vocab_size: int, model_dim: int, num_layers: int, bidirectional: bool) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab_size, model_dim)
        self.encoder = nn.LSTM(model_dim, model_dim, num_layers, batch_first=True, bidirectional=bidirectional)
        self.decoder = nn.LSTM(model_dim, model_dim, num_layers, batch_first=True)

    def forward(self, src_NS: Tensor, tgt_NT: Tensor) -> Tensor:
        """logits_NTV."""
        _, last = self.encoder(self.tokens(src_NS))
        directions = 2 if self.encoder.bidirectional else 1
        hidden_NTD, _ = self.decoder(self.tokens(tgt_NT), tuple(each[::directions].contiguous() for each in last))
        return F.linear(hidden_NTD, self.tokens.weight)


def make_batch(size: int, length: int, vocab_size: int) -> tuple[Tensor, Tensor]:
    """Sources and targets of half to full length, padded behind."""
    ids = torch.randint(4, vocab_size, (2, size, length))
    lengths = torch.randint(length // 2, length + 1, (2, size, 1))
    lengths[:, 0] = length
    return tuple((ids * (torch.arange(length) < lengths)).unbind())  # type: ignore[return-value]


def train_step(
    logits: Callable[[Tensor, Tensor], Tensor], optimiser: torch.optim.Optimizer, pair: tuple[Tensor, Tensor]
) -> float:
    """Seconds of one step: forward, backward and Adam."""
    began = time.perf_counter()
    src_NS, tgt_NT = pair
    loss = F.cross_entropy(logits(src_NS, tgt_NT[:, :-1]).flatten(0, 1), tgt_NT[:, 1:].flatten(), ignore_index=0)
    optimiser.zero_grad()
    loss.backward()  # type: ignore[no-untyped-call]
    optimiser.step()
    return time.perf_counter() - began


def measure(options: argparse.Namespace, attention: str) -> list[float]:
    """The ratio of each round, after one that does not count."""
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
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--attention", choices=("all", *ATTENTIONS), default="additive", help="which similarity")
    parser.add_argument("--rounds", type=int, default=9, help="how many ratios are taken")
    parser.add_argument("--batches", type=int, default=3, help="batches a round")
    parser.add_argument("--bidirectional", action="store_true", help="both encoders read in both directions")
    parser.add_argument("--layers", type=int, default=2, help="of the encoder, and of the decoder")
    parser.add_argument("--width", type=int, default=256, help="of a state")
    parser.add_argument("--vocabulary", type=int, default=6000, help="number of pieces")
    parser.add_argument("--batch", type=int, default=64, help="sentences a batch")
    parser.add_argument("--length", type=int, default=20, help="longest sentence")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads(), help="threads of torch")
    return parser.parse_args()


def main() -> None:
    """Measure and print."""
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
