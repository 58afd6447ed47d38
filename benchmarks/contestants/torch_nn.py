"""`torch.nn.Transformer`, with embeddings and loss, which it does not include."""

import math
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.contestants.torch_peer import LogitsLoss, LossModule, TrainingOnlyPeer
from benchmarks.harness.protocol import Task, serve


class Translator(nn.Module):
    """Embedding, sinusoidal positions, encoder and decoder, and the tied output projection."""

    positions: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        width = task.model_dim
        self.embedding = nn.Embedding(task.vocab_size, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", sinusoids(task.max_positions, width), persistent=False)
        self.dropout = nn.Dropout(task.dropout)
        with warnings.catch_warnings():  # about a fast path that pre-norm excludes
            warnings.simplefilter("ignore")
            self.stacks = nn.Transformer(
                width, task.num_heads, task.num_layers, task.num_layers, task.inner_dim, task.dropout,
                batch_first=True, norm_first=task.norm == "pre",
            )  # fmt: skip
        for module in self.stacks.modules():  # dropout only on sub-layer outputs, as in all contestants
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        embedded: Tensor = self.dropout(scaled + self.positions[: ids.shape[1]])
        return embedded

    def forward(self, src: Tensor, tgt_in: Tensor, pad_id: int) -> Tensor:
        """Return the logits; padding follows the target, so causal attention needs no mask for it."""
        padding = src == pad_id
        future = nn.Transformer.generate_square_subsequent_mask(tgt_in.shape[1])
        hidden = self.stacks(
            self.embed(src), self.embed(tgt_in), tgt_mask=future, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)


def sinusoids(length: int, width: int) -> Tensor:
    """Return the sinusoidal positional encoding (section 3.5)."""
    positions = torch.arange(length)[:, None]
    angles = positions * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


class TorchLoss(LogitsLoss):
    """Logits and loss of torch."""

    def logits(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        logits: Tensor = self.model(src, tgt_in, self.task.pad_id)
        return logits


class TorchTransformer(TrainingOnlyPeer):
    name = "torch.nn.Transformer"
    notes = "dropout on attention weights and inside the feed-forward network set to 0"

    @staticmethod
    def version() -> str:
        return str(torch.__version__)

    def build(self) -> LossModule:
        return TorchLoss(Translator(self.task), self.task)


if __name__ == "__main__":
    serve(TorchTransformer)
