"""Architecture of the network."""

from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from clearhead.config.base import Section

Head = Literal["generation", "classification", "token_classification", "masked_lm", "embedding"]
RECURRENT = ("rnn", "gru", "lstm")
IMAGE_FAMILIES = ("vit", "cnn", "mlp")

FAMILIES = ["transformer", "rnn", "gru", "lstm", "encoder", "decoder", "vit", "cnn", "mlp"]
_TRANSFORMERS = ("transformer", "encoder", "decoder", "vit")
_TEXT_FAMILIES = ("transformer", *RECURRENT, "encoder", "decoder")
_GENERATORS = ("transformer", *RECURRENT, "decoder")

# Families that use a field, for fields that not all families use.
_FAMILIES_USING: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("source_vocab_size", "output_bias"), ("transformer",)),
    **dict.fromkeys(("final_norm", "sinusoidal_layout"), _TRANSFORMERS),
    "pooler_activation": ("encoder",),
    "input": ("transformer",),
    "num_encoder_layers": ("transformer", *RECURRENT, "encoder", "vit", "mlp"),
    "num_decoder_layers": _GENERATORS,
    "model_dim": (*_TEXT_FAMILIES, "vit", "cnn"),
    "feed_forward_dim": (*_TRANSFORMERS, "mlp"),
    "activation": (*_TRANSFORMERS, "cnn", "mlp"),
    "bias": (*_TEXT_FAMILIES, "vit", "mlp"),
    **dict.fromkeys(("num_heads", "key_dim", "value_dim", "scale_attention", "attention_dropout"), _TRANSFORMERS),
    **dict.fromkeys(("norm", "norm_placement", "residual"), _TRANSFORMERS),
    **dict.fromkeys(("gated", "positions", "relative_buckets", "relative_max_distance"), _TRANSFORMERS),
    "scale_embeddings": ("transformer", "encoder", "decoder"),  # image patches are projected, not embedded
    "embedding_norm": _TRANSFORMERS,
    **dict.fromkeys(("norm_groups", "norm_epsilon"), (*_TRANSFORMERS, "cnn")),
    "max_positions": (*_TEXT_FAMILIES, "vit"),
    "tied_embeddings": _GENERATORS,
    "scale_output": ("transformer",),
    "num_segments": ("encoder",),
    "pooling": ("encoder", *RECURRENT, "vit"),
    "pooler": ("encoder",),
    **dict.fromkeys(("attention", "bidirectional"), RECURRENT),
    "patch_size": ("transformer", *IMAGE_FAMILIES),  # cnn and mlp: determines the number of images per batch
    "decoder_start_id": ("transformer", *RECURRENT),
    **dict.fromkeys(("pad_id", "eos_id"), _TEXT_FAMILIES),
}
_HEAD_USING: dict[str, str] = {
    **dict.fromkeys(("num_decoder_layers", "tied_embeddings", "attention", "decoder_start_id"), "generation"),
    **dict.fromkeys(("pooling", "pooler"), "classification"),
}
# Fields that have an effect only if another field has a certain value: (other field, its value, families concerned).
_REQUIRED_VALUE: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "norm_groups": ("norm", "group", _TRANSFORMERS),
    "relative_buckets": ("positions", "relative", _TRANSFORMERS),
    "relative_max_distance": ("positions", "relative", _TRANSFORMERS),
    "max_positions": ("positions", "rotary", ("vit",)),  # other positions: the number of patches
    "patch_size": ("input", "image", ("transformer",)),
}
# No preset sets these fields for a family that does not use them, so any value except the default is an error.
_REJECTED_IF_UNUSED = (
    "attention", "bidirectional", "num_segments", "pooler", "scale_output", "input", "key_dim", "value_dim",
    "scale_attention", "gated", "embedding_norm", "norm", "norm_epsilon", "source_vocab_size", "output_bias",
    "residual", "attention_dropout",
)  # fmt: skip
_NORM_FIELDS = ("norm_epsilon", "norm_placement", "final_norm", "embedding_norm")
_MAX_TABLE = 1 << 28  # maximum number of float32 values in a table of positions: 1 GiB
_FAMILIES_OF_HEAD: dict[str, tuple[str, ...]] = {
    "generation": _GENERATORS,
    "classification": ("encoder", *RECURRENT, *IMAGE_FAMILIES),
    "token_classification": ("encoder", *RECURRENT),
    "masked_lm": ("encoder",),
    "embedding": ("encoder",),
}


def register_family(name: str, like: str) -> None:
    """Add a family with the settings and heads of an existing one.

    The network is registered separately: `clearhead.model.registry` imports torch, settings do not.
    """
    if name in FAMILIES or like not in FAMILIES:
        raise ValueError(f"expected a new family like one of {', '.join(FAMILIES)}, got {name} like {like}")
    FAMILIES.append(name)
    for table in (_FAMILIES_USING, _FAMILIES_OF_HEAD):
        for key, families in table.items():
            if like in families:
                table[key] = (*families, name)


class ModelConfig(Section):
    """Architecture and size of the network."""

    family: str = Field(
        "transformer",
        description="transformer, rnn, gru or lstm (encoder-decoder); encoder (BERT); decoder (GPT); vit, cnn or mlp "
        "(images)",
    )
    head: Head = Field(
        "generation",
        description="output of the network: generation, classification, token_classification, masked_lm or embedding; "
        "set by the task",
    )
    input: Literal["tokens", "image"] = Field("tokens", description="input of a transformer encoder: tokens or image")
    num_encoder_layers: int = Field(4, ge=1, description="number of encoder layers")
    num_decoder_layers: int = Field(4, ge=1, description="number of decoder layers")
    model_dim: int = Field(128, ge=2, description="width of the residual stream, d_model; width of a recurrent state")
    feed_forward_dim: int = Field(256, ge=1, description="hidden width of the feed-forward network, d_ff")
    num_heads: int = Field(4, ge=1, description="attention heads per layer, h")
    key_dim: int = Field(0, ge=0, description="width of queries and keys per head, d_k; 0: model_dim / num_heads")
    value_dim: int = Field(0, ge=0, description="width of values per head, d_v; 0: model_dim / num_heads")
    scale_attention: bool = Field(True, description="divide attention scores by sqrt(d_k) before the softmax")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on sub-layer outputs, embeddings and positions")
    attention_dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout on attention weights, as in BERT and GPT-2; reduces overfitting"
    )
    norm: Literal["layer", "rms", "batch", "group", "sample", "none"] = Field("layer", description="normalization")
    norm_groups: int = Field(4, ge=1, description="group norm: number of channel groups")
    norm_epsilon: float = Field(1e-5, gt=0, description="epsilon in the denominator of the normalization")
    norm_placement: Literal["pre", "post"] = Field("pre", description="norm before or after each sub-layer")
    final_norm: bool | None = Field(
        None, description="norm after the last layer of encoder and decoder; unset: with norm_placement=pre only"
    )
    residual: bool = Field(True, description="residual connection around each sub-layer")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = Field(
        "relu", description="activation of the feed-forward network; gelu_tanh is GPT-2's approximation"
    )
    gated: bool = Field(False, description="gated feed-forward network: activation(x W1) * (x W3), then W2")
    bias: bool = Field(True, description="bias terms in attention, feed-forward network and layer norm")
    positions: Literal["sinusoidal", "learned", "relative", "rotary", "none"] = Field(
        "sinusoidal", description="position encoding"
    )
    sinusoidal_layout: Literal["interleaved", "concatenated", "fairseq"] = Field(
        "interleaved",
        description="order of sines and cosines: interleaved (the paper), concatenated (all sines first, as in "
        "Marian), or fairseq (concatenated, positions from 2, slightly different frequencies)",
    )
    max_positions: int = Field(1024, ge=2, le=1_000_000, description="maximum sequence length in tokens")
    relative_buckets: int = Field(32, ge=2, description="relative positions: number of distance buckets")
    relative_max_distance: int = Field(
        128, ge=2, description="relative positions: distances from here on share one bucket"
    )
    tied_embeddings: Literal["all", "target", "input", "none"] = Field(
        "all",
        description="shared weights: source, target and output (all), target and output (target), source and "
        "target (input), or none",
    )
    scale_embeddings: bool = Field(True, description="multiply embeddings by sqrt(model_dim)")
    embedding_norm: bool = Field(False, description="norm on the sum of the embeddings, as in BERT")
    scale_output: bool = Field(
        False, description="multiply decoder states by 1/sqrt(model_dim) before the output projection, as in T5"
    )
    output_bias: bool = Field(False, description="bias of the output projection, as in Marian")
    num_segments: int = Field(0, ge=0, description="number of segment embeddings, as in BERT; 0: none")
    pooling: Literal["first", "mean", "last"] = Field(
        "mean", description="representation of a sequence: the first position, the mean of all, or the last"
    )
    pooler: bool = Field(False, description="dense layer on the pooled state, as in BERT")
    pooler_activation: Literal["tanh", "relu"] = Field(
        "tanh", description="activation of the pooler; DistilBERT has relu"
    )
    attention: Literal["none", "dot", "scaled_dot", "general", "additive", "cosine"] = Field(
        "additive", description="recurrent decoders: attention score function; none: no attention"
    )
    bidirectional: bool = Field(False, description="recurrent encoders: forward and backward layers")
    image_size: int = Field(0, ge=0, description="height and width of an image in pixels; taken from the data")
    patch_size: int = Field(4, ge=1, description="height and width of an image patch in pixels")
    image_channels: int = Field(1, ge=1, description="color channels of an image: 1 or 3; taken from the data")
    num_labels: int = Field(0, ge=0, description="number of classes; taken from the data")
    vocab_size: int = Field(0, ge=0, description="vocabulary size; taken from the tokenizer")
    source_vocab_size: int = Field(
        0, ge=0, description="size of a separate source vocabulary; 0: source and target have the same vocabulary"
    )
    pad_id: int = Field(0, ge=0, description="id of the padding token")
    decoder_start_id: int = Field(2, ge=0, description="id of the first decoder input token")
    eos_id: int = Field(3, ge=0, description="id of the end-of-sentence token")

    @field_validator("family")
    @classmethod
    def _check_family_name(cls, family: str) -> str:
        if family not in FAMILIES:
            raise ValueError(f"model.family={family}: expected one of {', '.join(FAMILIES)}.")
        return family

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        has_heads = self.family in _TRANSFORMERS
        if has_heads and self.model_dim % self.num_heads and not (self.key_dim and self.value_dim):
            divisors = [h for h in (1, 2, 4, 8, 16, 32) if self.model_dim % h == 0]
            nearest = sorted(sorted(divisors, key=lambda h: abs(h - self.num_heads))[:2])
            raise ValueError(
                f"model.num_heads={self.num_heads} does not divide model.model_dim={self.model_dim}; "
                f"try {' or '.join(map(str, nearest))}."
            )
        if self.norm == "group" and self.model_dim % self.norm_groups:
            raise ValueError(f"model.norm_groups={self.norm_groups} does not divide model.model_dim={self.model_dim}.")
        if has_heads and self.positions == "rotary" and self.head_key_dim % 2:
            raise ValueError(f"model.positions=rotary rotates pairs: d_k={self.head_key_dim} must be even.")
        width = max(self.model_dim, self.head_key_dim)
        if self.positions in ("sinusoidal", "rotary") and self.max_positions * width > _MAX_TABLE:
            raise ValueError(f"model.max_positions={self.max_positions} is too large for a width of {width}.")
        # The runtime computes a table with the bias of each head at every distance, in both directions.
        if self.positions == "relative" and 2 * self.max_positions * self.num_heads > _MAX_TABLE:
            raise ValueError(
                f"model.max_positions={self.max_positions} is too large for {self.num_heads} heads with "
                "model.positions=relative."
            )
        return self

    @model_validator(mode="after")
    def _check_family(self) -> Self:
        families = _FAMILIES_OF_HEAD[self.head]
        if self.family not in families:
            raise ValueError(f"model.family={self.family} has no head {self.head}; use {', '.join(families)}.")
        if self.family in RECURRENT and self.positions not in ("sinusoidal", "none"):
            raise ValueError(f"model.positions={self.positions} has no meaning for model.family={self.family}.")
        if self.source_vocab_size and self.tied_embeddings in ("all", "input"):
            raise ValueError(
                "model.source_vocab_size needs separate source embeddings; set model.tied_embeddings=target or none."
            )
        for name in _REJECTED_IF_UNUSED:
            if self.family not in _FAMILIES_USING[name] and getattr(self, name) != field_default(name):
                raise ValueError(f"model.{name} {self.unused_reason(name)}.")
        return self

    @model_validator(mode="after")
    def _check_ids(self) -> Self:
        """Check special tokens once the vocabulary is known. A decoder-only model may have no padding token."""
        if not self.vocab_size or not self.has_text:
            return self
        sizes = {"eos_id": self.input_vocab_size, "pad_id": self.input_vocab_size}
        if self.head == "generation":
            sizes = {"eos_id": self.vocab_size, "pad_id": min(self.vocab_size, self.input_vocab_size)}
        if self.family == "decoder":
            del sizes["pad_id"]
        elif self.head == "generation":
            sizes["decoder_start_id"] = self.vocab_size
        for name, size in sizes.items():
            if getattr(self, name) >= size:
                raise ValueError(
                    f"model.{name}={getattr(self, name)} is not a token id; the vocabulary has {size:,} tokens."
                )
        return self

    def unused_reason(self, name: str) -> str:
        """Return why a field has no effect on this network, as a phrase that follows its name; empty if it has one."""
        families = _FAMILIES_USING.get(name, (self.family,))
        if self.family not in families:
            return f"has no meaning for model.family={self.family}, only for {', '.join(families)}"
        if self.head != _HEAD_USING.get(name, self.head):
            return f"has no meaning with model.head={self.head}, only with model.head={_HEAD_USING[name]}"
        if self.norm == "none" and self.family in _TRANSFORMERS and name in _NORM_FIELDS:
            return "has no meaning with model.norm=none"
        other, value, concerned = _REQUIRED_VALUE.get(name, ("", "", ()))
        if self.family in concerned and getattr(self, other) != value:
            return f"has no meaning with model.{other}={getattr(self, other)}, only with model.{other}={value}"
        return ""

    def describe(self) -> str:
        """Return family and size in a few words."""
        layers = {"decoder": f"{self.num_decoder_layers} layers", "cnn": "3 layers"}.get(
            self.family, f"{self.num_encoder_layers} layers"
        )
        if self.head == "generation" and self.family != "decoder":
            layers = f"{self.num_encoder_layers}+{self.num_decoder_layers} layers"
        parts = [layers, f"width {self.feed_forward_dim if self.family == 'mlp' else self.model_dim}"]
        if self.family in RECURRENT:
            parts += [f"{self.attention} attention"] * (self.head == "generation")
            parts += ["bidirectional"] * self.bidirectional
        elif self.family in _TRANSFORMERS:
            parts.append(f"{self.num_heads} heads")
        parts += [f"images of {self.image_size}x{self.image_size}"] * bool(self.image_size)
        parts += [f"{self.vocab_size:,} tokens"] * bool(self.vocab_size)
        parts += [f"{self.num_labels} labels"] * bool(self.num_labels)
        return f"{self.family} with {', '.join(parts)}"

    @property
    def reads_images(self) -> bool:
        """Whether the input is an image."""
        return self.family in IMAGE_FAMILIES or self.input == "image"

    @property
    def has_text(self) -> bool:
        """Whether input or output is text, which requires a tokenizer."""
        return self.family not in IMAGE_FAMILIES

    @property
    def has_final_norm(self) -> bool:
        """Whether encoder and decoder end with a norm."""
        return self.norm_placement == "pre" if self.final_norm is None else self.final_norm

    @property
    def ties_input(self) -> bool:
        """Whether source and target embeddings are one matrix."""
        return self.tied_embeddings in ("all", "input")

    @property
    def ties_output(self) -> bool:
        """Whether the target embedding is also the output projection."""
        return self.tied_embeddings in ("all", "target")

    @property
    def can_drop_padding(self) -> bool:
        """Whether training may drop padding: batch norm includes it in its statistics, and images have none."""
        return self.norm != "batch" and not self.reads_images

    @property
    def input_vocab_size(self) -> int:
        """Size of the input vocabulary: the source vocabulary if it is separate."""
        return self.source_vocab_size or self.vocab_size

    @property
    def head_key_dim(self) -> int:
        """d_k of one head."""
        return self.key_dim or self.model_dim // self.num_heads

    @property
    def head_value_dim(self) -> int:
        """d_v of one head."""
        return self.value_dim or self.model_dim // self.num_heads


def field_default(name: str) -> Any:
    """Return the default of a field of the model section."""
    return ModelConfig.model_fields[name].default
