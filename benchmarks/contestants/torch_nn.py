"""`torch.nn.Transformer`: torch's own layers, with the embeddings and the loss that they leave to their users."""

import math
import warnings

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from benchmarks.protocol import Task, serve
from benchmarks.torch_peer import LogitsLoss, LossModule, TrainingPeer


class Translator(nn.Module):
    """Embedding, sinusoidal positions, the stacks, and the table of the embedding again."""

    positions: Tensor

    def __init__(self, task: Task) -> None:
        super().__init__()
        width = task.model_dim
        self.embedding = nn.Embedding(task.vocab_size, width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.register_buffer("positions", sinusoids(task.max_positions, width), persistent=False)
        self.dropout = nn.Dropout(task.dropout)
        with warnings.catch_warnings():  # of a faster way to run it that pre-norm rules out
            warnings.simplefilter("ignore")
            self.stacks = nn.Transformer(
                width, task.num_heads, task.num_layers, task.num_layers, task.inner_dim, task.dropout,
                batch_first=True, norm_first=task.norm == "pre",
            )  # fmt: skip
        for module in self.stacks.modules():  # dropout on what sub-layers add and nowhere else, as everybody has it
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = 0.0
            elif isinstance(module, nn.TransformerEncoderLayer | nn.TransformerDecoderLayer):
                module.dropout.p = 0.0

    def embed(self, ids: Tensor) -> Tensor:
        scaled = self.embedding(ids) * math.sqrt(self.embedding.embedding_dim)
        embedded: Tensor = self.dropout(scaled + self.positions[: ids.shape[1]])
        return embedded

    def forward(self, src: Tensor, tgt_in: Tensor, pad_id: int) -> Tensor:
        """Logits. Padding stands behind the target, where causal attention never sees it: no mask for it."""
        padding = src == pad_id
        future = nn.Transformer.generate_square_subsequent_mask(tgt_in.shape[1])
        hidden = self.stacks(
            self.embed(src), self.embed(tgt_in), tgt_mask=future, tgt_is_causal=True,
            src_key_padding_mask=padding, memory_key_padding_mask=padding,
        )  # fmt: skip
        return F.linear(hidden, self.embedding.weight)


def sinusoids(length: int, width: int) -> Tensor:
    """Section 3.5 of the paper."""
    places = torch.arange(length)[:, None]
    angles = places * torch.exp(torch.arange(0, width, 2) * (-math.log(10000.0) / width))
    return torch.stack((angles.sin(), angles.cos()), -1).flatten(1)


class TorchLoss(LogitsLoss):
    """All of it from torch."""

    def logits(self, src: Tensor, tgt_in: Tensor) -> Tensor:
        logits: Tensor = self.model(src, tgt_in, self.task.pad_id)
        return logits


class TorchTransformer(TrainingPeer):
    name = "torch.nn.Transformer"
    notes = "its dropout on attention weights and inside the feed-forward network is set to 0"

    @staticmethod
    def version() -> str:
        return str(torch.__version__)

    def build(self) -> LossModule:
        return TorchLoss(Translator(self.task), self.task)


if __name__ == "__main__":
    serve(TorchTransformer)
