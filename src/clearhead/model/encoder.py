"""The encoder: N layers of self-attention and feed-forward (section 3.1), and what it shares with decoders.

B batch, S source length, T positions of any stack, D model width, H heads; 1 = broadcast
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from clearhead.config import ModelConfig
from clearhead.model.attention import KeysValues, MultiHeadAttention
from clearhead.model.dropout import replaying
from clearhead.model.feed_forward import FeedForward
from clearhead.model.masks import additive_mask, both, causal_mask
from clearhead.model.normalisation import build_norm
from clearhead.model.packed import Packed
from clearhead.model.positions import RelativeBias, RotaryPositions, Turn
from clearhead.model.residual import Residual


class Scope(NamedTuple):
    """What the self-attention of all layers of a stack shares: who sees whom, and how places turn queries and keys."""

    mask: Tensor | None  # boolean, or additive where positions are a bias
    is_causal: bool
    turn: Turn | None
    packed: Packed | None = None  # where the stream has one row for each place that is no padding


class SelfLayer(nn.Module):
    """What encoder and decoder layers have in common. They list their own parts, in the order in which they run."""

    self_attention: MultiHeadAttention
    self_attention_residual: Residual
    feed_forward: FeedForward
    feed_forward_residual: Residual

    def attend_to_self(
        self, x_BTD: Tensor, scope: Scope, past: KeysValues | None, want_weights: bool
    ) -> tuple[Tensor, KeysValues, Tensor | None]:
        """The stream after self-attention, the past with these tokens added, and the weights if asked for."""
        q, now = self.self_attention.project(self.self_attention_residual.enter(x_BTD), scope.turn, scope.packed)
        past = now if past is None else past.extended(now)
        y_BTD, weights = self.self_attention(q, past, scope.mask, scope.is_causal, want_weights, scope.packed)
        return self.self_attention_residual(x_BTD, y_BTD), past, weights

    def think(self, x_BTD: Tensor) -> Tensor:
        """The stream after the feed-forward network."""
        y_BTD = self.feed_forward(self.feed_forward_residual.enter(x_BTD))
        stream_BTD: Tensor = self.feed_forward_residual(x_BTD, y_BTD)
        return stream_BTD


class EncoderLayer(SelfLayer):
    """Self-attention, then feed-forward, each inside a residual connection."""

    def __init__(self, config: ModelConfig) -> None:
        super().__init__()
        self.self_attention = MultiHeadAttention.build(config)
        self.self_attention_residual = Residual(config)
        self.feed_forward = FeedForward(config)
        self.feed_forward_residual = Residual(config)

    def forward(
        self, x_BTD: Tensor, scope: Scope, past: KeysValues | None = None, want_weights: bool = False
    ) -> tuple[Tensor, KeysValues, Tensor | None]:
        """The stream after this layer, the past with these tokens added, and the attention weights if asked for."""
        x_BTD, past, weights_BHTT = self.attend_to_self(x_BTD, scope, past, want_weights)
        return self.think(x_BTD), past, weights_BHTT


class Stack(nn.Module):
    """Layers, mostly a last norm where they are pre-norm, and the positions that speak inside attention."""

    recomputes = False
    """Whether training computes each layer again on the way back, instead of keeping all that was inside it."""

    def __init__(self, config: ModelConfig, layers: Iterable[SelfLayer], is_causal: bool) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self.norm = build_norm(config) if config.has_final_norm else nn.Identity()
        self.is_causal = is_causal
        kind = config.positions
        self.relative_bias = RelativeBias(config, is_bidirectional=not is_causal) if kind == "relative" else None
        self.rotary = RotaryPositions(config.max_positions, config.head_key_dim) if kind == "rotary" else None

    def through(self, layer: nn.Module, *given: Any) -> Any:
        """What a layer makes of what it is given; computed again, it drops the same values."""
        if self.recomputes and self.training and torch.is_grad_enabled():
            return checkpoint(layer, *given, use_reentrant=False, preserve_rng_state=False, context_fn=replaying)
        return layer(*given)

    def scope(
        self,
        x_BTD: Tensor,
        past: KeysValues | None,
        allowed: Tensor | None,
        places_BT: Tensor | None = None,
        packed: Packed | None = None,
    ) -> Scope:
        """Of tokens that stand behind those of the past, or at the places given, with a mask over all of them."""
        start, length = 0 if past is None else past.k_BHSK.shape[2], x_BTD.shape[1]
        if packed is not None:
            length = packed.length
        turn = None
        if self.rotary is not None:
            turn = self.rotary(start, length) if places_BT is None else self.rotary.at(places_BT)
        fills_up = packed is not None and packed.num_keys > length
        if self.relative_bias is None and allowed is None and not fills_up:
            return Scope(None, self.is_causal, turn, packed)  # attention itself knows how to be causal, the fastest way
        if self.is_causal and length > 1:
            allowed = both(allowed, causal_mask(length, start + length, x_BTD.device))
        if self.relative_bias is None:
            return Scope(allowed if packed is None else packed.mask(allowed), False, turn, packed)
        return Scope(additive_mask(self.relative_bias(start, length), allowed), False, turn, packed)


class Encoder(Stack):
    """The stack that sees all of its input at once."""

    def __init__(self, config: ModelConfig) -> None:
        layers = (EncoderLayer(config) for _ in range(config.num_encoder_layers))
        super().__init__(config, layers, is_causal=False)

    def forward(
        self,
        x_BSD: Tensor,
        allowed_B11S: Tensor | None,
        want_weights: bool = False,
        packed: Packed | None = None,
    ) -> tuple[Tensor, list[Tensor | None]]:
        """The last layer's states, and each layer's attention weights if asked for."""
        scope = self.scope(x_BSD, None, allowed_B11S, packed=packed)
        weights: list[Tensor | None] = []
        for layer in self.layers:
            x_BSD, _, layer_weights = self.through(layer, x_BSD, scope, None, want_weights)
            weights.append(layer_weights)
        return self.norm(x_BSD), weights
