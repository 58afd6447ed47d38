"""Small Transformers for tests of decoding: with random weights, and trained for seconds on a noisy reversal."""

import random
from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.decoding.requests import Request
from clearhead.engines.torch_engine import TorchEngine
from clearhead.model.transformer import DecoderState, DecoderStep, Transformer

VOCAB, PAD, START, END = 53, 0, 2, 3


def random_model(max_positions: int = 64, vocab_size: int = VOCAB) -> Transformer:
    """Weights as they are before training: flat distributions, in which close decisions are common."""
    torch.manual_seed(11)
    config = ModelConfig(
        num_encoder_layers=2,
        num_decoder_layers=2,
        model_dim=24,
        feed_forward_dim=37,
        num_heads=3,
        dropout=0.1,
        max_positions=max_positions,
        vocab_size=vocab_size,
    )
    return Transformer(config).eval()


def trained_model(steps: int = 200, smoothing: float = 0.0, vocab_size: int = VOCAB) -> Transformer:
    """Taught to write sources backwards; every fifth target piece is noise, so that it stays in doubt."""
    model, draw = random_model(vocab_size=vocab_size).train(), random.Random(11)
    optimiser = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        src = torch.randint(END + 1, VOCAB, (32, draw.randint(2, 7)))
        noise = torch.randint(END + 1, VOCAB, src.shape)
        tgt = torch.where(torch.rand(src.shape) < 0.2, noise, src.flip(1))
        end, start = torch.full((32, 1), END), torch.full((32, 1), START)
        hidden = model(torch.cat((src, end), 1), torch.cat((start, tgt), 1))
        loss = F.cross_entropy(
            model.logits(hidden).flatten(0, 1), torch.cat((tgt, end), 1).flatten(), label_smoothing=smoothing
        )
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
    return model.eval()


def requests(count: int, longest: int = 9, n_best: int = 1) -> list[Request]:
    """Random sources of 1 to `longest` pieces."""
    draw = random.Random(5)
    return [
        Request((*(draw.randrange(END + 1, VOCAB) for _ in range(draw.randint(1, longest))), END), n_best)
        for _ in range(count)
    ]


def engine(model: Transformer, batch_tokens: int = 4096, threads: int = 1) -> TorchEngine:
    """The engine over a model."""
    return TorchEngine(model, END, PAD, VOCAB, model.config.max_positions, batch_tokens, threads)


def nudge_batches(
    monkeypatch: pytest.MonkeyPatch, model: Transformer, nudged: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Steps of several sentences give other logits from now on; of one sentence they do not."""
    step = model.step

    def moved(tokens_RT: torch.Tensor, state: DecoderState, want_attention: bool = False) -> DecoderStep:
        found = step(tokens_RT, state, want_attention)
        is_alone = len(state.memory.keys_values[0].k_HK) == 1
        return found if is_alone else replace(found, logits_RTV=nudged(found.logits_RTV))

    monkeypatch.setattr(model, "step", moved)
