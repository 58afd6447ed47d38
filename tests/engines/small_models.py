"""Small Transformers for tests of decoding: with random weights, and trained for seconds on a noisy reversal."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from clearhead.config import ModelConfig
from clearhead.decoding.requests import Request
from clearhead.engines.torch_engine import TorchEngine
from clearhead.model.registry import build_model
from clearhead.model.transformer import DecoderState, DecoderStep, Transformer

VOCAB, PAD, START, END = 53, 0, 2, 3


def random_model(max_positions: int = 64, vocab_size: int = VOCAB, **options: Any) -> Any:
    """Return an untrained model, a Transformer by default: flat distributions, in which close decisions are common."""
    torch.manual_seed(11)
    sizes = {
        "num_encoder_layers": 2, "num_decoder_layers": 2, "model_dim": 24, "feed_forward_dim": 37, "num_heads": 3,
        "dropout": 0.1, "max_positions": max_positions, "vocab_size": vocab_size,
    }  # fmt: skip
    return build_model(ModelConfig.model_validate({**sizes, **options})).eval()


def trained_model(steps: int = 200, smoothing: float = 0.0, vocab_size: int = VOCAB) -> Transformer:
    """Return a model trained to reverse sources; every fifth target token is noise, so that it stays uncertain."""
    model: Transformer = random_model(vocab_size=vocab_size).train()
    draw = random.Random(11)
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(steps):
        src = torch.randint(END + 1, VOCAB, (32, draw.randint(2, 7)))
        noise = torch.randint(END + 1, VOCAB, src.shape)
        tgt = torch.where(torch.rand(src.shape) < 0.2, noise, src.flip(1))
        end, start = torch.full((32, 1), END), torch.full((32, 1), START)
        hidden = model(torch.cat((src, end), 1), torch.cat((start, tgt), 1))
        loss = F.cross_entropy(
            model.logits(hidden).flatten(0, 1), torch.cat((tgt, end), 1).flatten(), label_smoothing=smoothing
        )
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
    return model.eval()


def random_requests(count: int, longest: int = 9, n_best: int = 1) -> list[Request]:
    """Return random sources of 1 to `longest` tokens."""
    draw = random.Random(5)
    return [
        Request((*(draw.randrange(END + 1, VOCAB) for _ in range(draw.randint(1, longest))), END), n_best)
        for _ in range(count)
    ]


def engine(model: Any, batch_tokens: int = 4096, threads: int = 1) -> TorchEngine:
    """Return the engine of a model."""
    return TorchEngine(model, END, PAD, VOCAB, model.config.max_positions, batch_tokens, threads)


def nudge_batches(
    monkeypatch: pytest.MonkeyPatch, model: Transformer, nudged: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    """Change the logits of steps with several sentences, but not with one."""
    step = model.step

    def moved(tokens_RT: torch.Tensor, state: DecoderState, want_attention: bool = False) -> DecoderStep:
        result = step(tokens_RT, state, want_attention)
        is_alone = len(state.memory.keys_values[0].k_HK) == 1
        return result if is_alone else replace(result, logits_RTV=nudged(result.logits_RTV))

    monkeypatch.setattr(model, "step", moved)
