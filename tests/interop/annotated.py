"""Modules of the Annotated Transformer with its names and arithmetic: the reference for its layout."""

import copy
import math
from typing import Any

import torch
from torch import Tensor, nn

from clearhead.model.positions import sinusoids


def clones(module: nn.Module, count: int) -> nn.ModuleList:
    return nn.ModuleList([copy.deepcopy(module) for _ in range(count)])


class LayerNorm(nn.Module):
    def __init__(self, features: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.a_2, self.b_2, self.eps = nn.Parameter(torch.ones(features)), nn.Parameter(torch.zeros(features)), eps

    def forward(self, x: Tensor) -> Tensor:
        return self.a_2 * (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps) + self.b_2


class Sublayer(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.norm = LayerNorm(size)

    def forward(self, x: Tensor, sublayer: Any) -> Tensor:
        return x + sublayer(self.norm(x))  # type: ignore[no-any-return]


class Attention(nn.Module):
    def __init__(self, h: int, d_model: int) -> None:
        super().__init__()
        self.h, self.linears = h, clones(nn.Linear(d_model, d_model), 4)

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor) -> Tensor:
        batch, width = len(query), query.shape[-1]
        q, k, v = (
            linear(x).view(batch, -1, self.h, width // self.h).transpose(1, 2)
            for linear, x in zip(self.linears, (query, key, value), strict=False)
        )
        scores = (q @ k.transpose(-2, -1) / math.sqrt(width // self.h)).masked_fill(~mask, -1e9)
        x = (scores.softmax(-1) @ v).transpose(1, 2).reshape(batch, -1, width)
        return self.linears[-1](x)  # type: ignore[no-any-return]


class FeedForward(nn.Module):
    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.w_1, self.w_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)

    def forward(self, x: Tensor) -> Tensor:
        return self.w_2(self.w_1(x).relu())  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    def __init__(self, h: int, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.self_attn, self.feed_forward = Attention(h, d_model), FeedForward(d_model, d_ff)
        self.sublayer = clones(Sublayer(d_model), 2)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, mask))
        return self.sublayer[1](x, self.feed_forward)  # type: ignore[no-any-return]


class DecoderLayer(nn.Module):
    def __init__(self, h: int, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.self_attn, self.src_attn = Attention(h, d_model), Attention(h, d_model)
        self.feed_forward, self.sublayer = FeedForward(d_model, d_ff), clones(Sublayer(d_model), 3)

    def forward(self, x: Tensor, memory: Tensor, src_mask: Tensor, tgt_mask: Tensor) -> Tensor:
        x = self.sublayer[0](x, lambda x: self.self_attn(x, x, x, tgt_mask))
        x = self.sublayer[1](x, lambda x: self.src_attn(x, memory, memory, src_mask))
        return self.sublayer[2](x, self.feed_forward)  # type: ignore[no-any-return]


class Stack(nn.Module):
    def __init__(self, layer: nn.Module, count: int, size: int) -> None:
        super().__init__()
        self.layers, self.norm = clones(layer, count), LayerNorm(size)

    def forward(self, x: Tensor, *masks: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, *masks)
        return self.norm(x)  # type: ignore[no-any-return]


class Embeddings(nn.Module):
    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.lut, self.d_model = nn.Embedding(vocab, d_model), d_model

    def forward(self, x: Tensor) -> Tensor:
        return self.lut(x) * math.sqrt(self.d_model)  # type: ignore[no-any-return]


class Positions(nn.Module):
    pe: Tensor

    def __init__(self, d_model: int, longest: int) -> None:
        super().__init__()
        self.register_buffer("pe", sinusoids(longest, d_model)[None])

    def forward(self, x: Tensor) -> Tensor:
        return x + self.pe[:, : x.shape[1]]


class Generator(nn.Module):
    def __init__(self, d_model: int, vocab: int) -> None:
        super().__init__()
        self.proj = nn.Linear(d_model, vocab)


class EncoderDecoder(nn.Module):
    def __init__(self, source: int, target: int, h: int, d_model: int, d_ff: int, layers: int) -> None:
        super().__init__()
        self.encoder = Stack(EncoderLayer(h, d_model, d_ff), layers, d_model)
        self.decoder = Stack(DecoderLayer(h, d_model, d_ff), layers, d_model)
        self.src_embed = nn.Sequential(Embeddings(d_model, source), Positions(d_model, 30))
        self.tgt_embed = nn.Sequential(Embeddings(d_model, target), Positions(d_model, 30))
        self.generator = Generator(d_model, target)

    def forward(self, src: Tensor, tgt: Tensor, pad: int) -> Tensor:
        src_mask = (src != pad)[:, None, None]
        causal = torch.ones(tgt.shape[1], tgt.shape[1], dtype=torch.bool).tril()
        memory = self.encoder(self.src_embed(src), src_mask)
        return self.generator.proj(self.decoder(self.tgt_embed(tgt), memory, src_mask, causal))  # type: ignore[no-any-return]
