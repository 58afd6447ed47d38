"""Settings of the network: its family, its shape, and the choices that the notes and the papers name."""

from typing import Any, Literal, Self

from pydantic import Field, model_validator

from clearhead.config.section import Section

Family = Literal["transformer", "rnn", "gru", "lstm", "encoder", "decoder", "patches", "convolutional", "mlp"]
Head = Literal["text", "label", "tags", "masked", "vector"]
RECURRENT = ("rnn", "gru", "lstm")
PICTURES = ("patches", "convolutional", "mlp")

_STACKS = ("transformer", "encoder", "decoder", "patches")
_TEXT = ("transformer", *RECURRENT, "encoder", "decoder")
_LOOKING_BACK = ("transformer", *RECURRENT, "decoder")

# Fields that only some families, heads or settings use: set for another one, they would be ignored without a word.
_ONLY: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("source_vocab_size", "output_bias"), ("transformer",)),
    **dict.fromkeys(("last_norm", "sinusoids"), _STACKS),
    "pooler_activation": ("encoder",),
    "input": ("transformer",),
    "num_encoder_layers": ("transformer", *RECURRENT, "encoder", "patches", "mlp"),
    "num_decoder_layers": _LOOKING_BACK,
    "model_dim": (*_TEXT, "patches", "convolutional"),
    "inner_dim": (*_STACKS, "mlp"),
    "activation": (*_STACKS, "convolutional", "mlp"),
    "bias": (*_TEXT, "patches", "mlp"),
    **dict.fromkeys(("num_heads", "key_dim", "value_dim", "scale_attention", "attention_dropout"), _STACKS),
    **dict.fromkeys(("norm", "norm_placement", "skip"), _STACKS),
    **dict.fromkeys(("gated", "positions", "relative_buckets", "relative_distance"), _STACKS),
    "scale_embeddings": ("transformer", "encoder", "decoder"),  # of a picture only the patches are embedded
    "embedding_norm": _STACKS,
    **dict.fromkeys(("norm_groups", "norm_epsilon"), (*_STACKS, "convolutional")),
    "max_positions": (*_TEXT, "patches"),
    "embeddings": _LOOKING_BACK,
    "scale_output": ("transformer",),
    "num_segments": ("encoder",),
    "pooling": ("encoder", *RECURRENT, "patches"),
    "pooler": ("encoder",),
    **dict.fromkeys(("attention", "bidirectional"), RECURRENT),
    "patch_size": ("transformer", *PICTURES),  # without patches it sets how many pictures go together
    "start_id": ("transformer", *RECURRENT),
    **dict.fromkeys(("pad_id", "end_id"), _TEXT),
}
_ONLY_FOR_HEAD: dict[str, str] = {
    **dict.fromkeys(("num_decoder_layers", "embeddings", "attention", "start_id"), "text"),
    **dict.fromkeys(("pooling", "pooler"), "label"),
}
_ONLY_WITH: dict[str, tuple[str, str, tuple[str, ...]]] = {  # another field, the value that it needs, in which families
    "norm_groups": ("norm", "group", _STACKS),
    "relative_buckets": ("positions", "relative", _STACKS),
    "relative_distance": ("positions", "relative", _STACKS),
    "max_positions": ("positions", "rotary", ("patches",)),  # a picture has as many places as patches
    "patch_size": ("input", "image", ("transformer",)),
}
# No preset sets these for a family that has no use for them, so wherever they come from they are a mistake.
_NEVER_IDLE = (
    "attention", "bidirectional", "num_segments", "pooler", "scale_output", "input", "key_dim", "value_dim",
    "scale_attention", "gated", "embedding_norm", "norm", "norm_epsilon", "source_vocab_size", "output_bias",
    "skip", "attention_dropout",
)  # fmt: skip
_OF_A_NORM = ("norm_epsilon", "norm_placement", "last_norm", "embedding_norm")
_DESCRIBED_BY_HEAD: dict[str, tuple[str, ...]] = {
    "text": ("transformer", *RECURRENT, "decoder"),
    "label": ("encoder", *RECURRENT, *PICTURES),
    "tags": ("encoder", *RECURRENT),
    "masked": ("encoder",),
    "vector": ("encoder",),
}


class ModelConfig(Section):
    """The network's shape."""

    family: Family = Field(
        "transformer",
        description="transformer, rnn, gru or lstm (text to text); encoder (reads); decoder (writes); patches, "
        "convolutional or mlp (pictures)",
    )
    head: Head = Field(
        "text", description="what comes out: text, a label, tags, masked words or a vector; set by the task"
    )
    input: Literal["tokens", "image"] = Field("tokens", description="what a transformer reads: pieces or a picture")
    num_encoder_layers: int = Field(4, ge=1, description="layers of the encoder")
    num_decoder_layers: int = Field(4, ge=1, description="layers of the decoder")
    model_dim: int = Field(128, ge=2, description="width of the residual stream, d_model; of a recurrent state")
    inner_dim: int = Field(256, ge=1, description="width inside the feed-forward network, d_ff")
    num_heads: int = Field(4, ge=1, description="attention heads a layer, h")
    key_dim: int = Field(0, ge=0, description="width of a head's queries and keys, d_k; 0: model_dim / num_heads")
    value_dim: int = Field(0, ge=0, description="width of a head's values, d_v; 0: model_dim / num_heads")
    scale_attention: bool = Field(True, description="divide by sqrt(d_k) before the softmax")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on sub-layers, embeddings and positions")
    attention_dropout: float = Field(
        0.0, ge=0, lt=1, description="dropout on attention weights, as in BERT and GPT-2: against learning by heart"
    )
    norm: Literal["layer", "rms", "batch", "group", "sample", "none"] = Field("layer", description="which norm")
    norm_groups: int = Field(4, ge=1, description="group norm: number of groups of channels")
    norm_epsilon: float = Field(1e-5, gt=0, description="small constant of the normalisation")
    norm_placement: Literal["pre", "post"] = Field("pre", description="norm before or after each sub-layer")
    last_norm: bool | None = Field(
        None, description="a norm on top of each stack; none given: where norms come before the sub-layers"
    )
    skip: bool = Field(True, description="add what enters a sub-layer to what it gives: the residual connection")
    activation: Literal["relu", "gelu", "gelu_tanh", "silu"] = Field(
        "relu", description="non-linearity of the feed-forward network; gelu_tanh is GPT-2's approximation"
    )
    gated: bool = Field(False, description="feed-forward with a gate: activation(x W1) * (x W3), then W2")
    bias: bool = Field(True, description="bias terms in attention and feed-forward, and in layer norm")
    positions: Literal["sinusoidal", "learned", "relative", "rotary", "none"] = Field(
        "sinusoidal", description="how places are marked"
    )
    sinusoids: Literal["paper", "halves", "fairseq"] = Field(
        "paper",
        description="order of sines and cosines: in turn (paper), sines first (halves, as in Marian), or sines first, "
        "from place 2 and with frequencies of its own (fairseq)",
    )
    max_positions: int = Field(1024, ge=2, description="longest sequence, in pieces")
    relative_buckets: int = Field(32, ge=2, description="relative positions: number of distances told apart")
    relative_distance: int = Field(128, ge=2, description="relative positions: from here on all are one")
    embeddings: Literal["shared", "output", "input", "separate"] = Field(
        "shared",
        description="which have one table: source, target and output (shared), target and output (output), source and "
        "target (input), or none (separate)",
    )
    scale_embeddings: bool = Field(True, description="multiply embeddings by sqrt(model_dim)")
    embedding_norm: bool = Field(False, description="a norm on the sum of embeddings, as in BERT")
    scale_output: bool = Field(False, description="multiply the last states by 1/sqrt(model_dim), as in T5")
    output_bias: bool = Field(False, description="a bias on the logits, as in Marian")
    num_segments: int = Field(0, ge=0, description="segments told apart by an embedding, as in BERT; 0: none")
    pooling: Literal["first", "mean", "last"] = Field(
        "mean", description="what stands for a whole sequence: its first place, the mean of all, or the last"
    )
    pooler: bool = Field(False, description="one more layer on the pooled state, as in BERT")
    pooler_activation: Literal["tanh", "relu"] = Field(
        "tanh", description="non-linearity of the pooler; DistilBERT has relu"
    )
    attention: Literal["none", "dot", "scaled_dot", "general", "additive", "cosine"] = Field(
        "additive", description="recurrent decoders: how a state is compared with the source; none: no attention"
    )
    bidirectional: bool = Field(False, description="recurrent encoders: read in both directions")
    image_size: int = Field(0, ge=0, description="height and width of a picture; taken from the data")
    patch_size: int = Field(4, ge=1, description="height and width of a patch")
    channels: int = Field(1, ge=1, description="colours of a picture: 1 or 3; taken from the data")
    num_labels: int = Field(0, ge=0, description="number of labels; taken from the data")
    vocab_size: int = Field(0, ge=0, description="number of pieces; taken from the tokenizer")
    source_vocab_size: int = Field(
        0, ge=0, description="number of pieces of the source, where it has a vocabulary of its own; 0: the same"
    )
    pad_id: int = Field(0, ge=0, description="the piece that fills a batch up")
    start_id: int = Field(2, ge=0, description="the piece that the decoder starts from")
    end_id: int = Field(3, ge=0, description="the piece that ends a sentence")

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        has_heads = self.family not in (*RECURRENT, "convolutional", "mlp")
        if has_heads and self.model_dim % self.num_heads and not (self.key_dim and self.value_dim):
            fitting = [h for h in (1, 2, 4, 8, 16, 32) if self.model_dim % h == 0]
            near = sorted(sorted(fitting, key=lambda h: abs(h - self.num_heads))[:2])
            raise ValueError(
                f"model.num_heads={self.num_heads} does not divide model.model_dim={self.model_dim}; "
                f"try {' or '.join(map(str, near))}."
            )
        if self.norm == "group" and self.model_dim % self.norm_groups:
            raise ValueError(f"model.norm_groups={self.norm_groups} does not divide model.model_dim={self.model_dim}.")
        if has_heads and self.positions == "rotary" and self.head_key_dim % 2:
            raise ValueError(f"model.positions=rotary turns pairs: d_k={self.head_key_dim} must be even.")
        return self

    @model_validator(mode="after")
    def _check_family(self) -> Self:
        if self.family not in _DESCRIBED_BY_HEAD[self.head]:
            fitting = ", ".join(_DESCRIBED_BY_HEAD[self.head])
            raise ValueError(f"model.family={self.family} does not give {self.head}; families that do: {fitting}.")
        if self.family in RECURRENT and self.positions not in ("sinusoidal", "none"):
            raise ValueError(f"model.positions={self.positions} has no meaning for model.family={self.family}.")
        if self.source_vocab_size and self.embeddings in ("shared", "input"):
            raise ValueError("model.source_vocab_size means two tables; set model.embeddings=output or separate.")
        for name in _NEVER_IDLE:
            if self.family not in _ONLY[name] and getattr(self, name) != default_of(name):
                raise ValueError(f"model.{name} {self.why_idle(name)}.")
        return self

    def why_idle(self, name: str) -> str:
        """Why a field changes nothing in this network, to go on from its name; empty if it does change something."""
        families = _ONLY.get(name, (self.family,))
        if self.family not in families:
            return f"has no meaning for model.family={self.family}, only for {', '.join(families)}"
        if self.head != _ONLY_FOR_HEAD.get(name, self.head):
            return (
                f"has no meaning for a network that gives {self.head}, only for one that gives {_ONLY_FOR_HEAD[name]}"
            )
        if self.norm == "none" and self.family in _STACKS and name in _OF_A_NORM:
            return "has no meaning with model.norm=none"
        other, value, concerned = _ONLY_WITH.get(name, ("", "", ()))
        if self.family in concerned and getattr(self, other) != value:
            return f"has no meaning with model.{other}={getattr(self, other)}, only with model.{other}={value}"
        return ""

    def describe(self) -> str:
        """The network's family and shape in a few words."""
        layers = {"decoder": f"{self.num_decoder_layers} layers", "convolutional": "3 layers"}.get(
            self.family, f"{self.num_encoder_layers} layers"
        )
        if self.head == "text" and self.family != "decoder":
            layers = f"{self.num_encoder_layers}+{self.num_decoder_layers} layers"
        parts = [layers, f"width {self.inner_dim if self.family == 'mlp' else self.model_dim}"]
        if self.family in RECURRENT:
            parts += [f"{self.attention} attention"] * (self.head == "text") + ["both directions"] * self.bidirectional
        elif self.family not in ("convolutional", "mlp"):
            parts.append(f"{self.num_heads} heads")
        parts += [f"pictures of {self.image_size}x{self.image_size}"] * bool(self.image_size)
        parts += [f"{self.vocab_size:,} pieces"] * bool(self.vocab_size)
        parts += [f"{self.num_labels} labels"] * bool(self.num_labels)
        return f"{self.family} with {', '.join(parts)}"

    @property
    def reads_pictures(self) -> bool:
        """Whether it takes pixels and not pieces."""
        return self.family in PICTURES or self.input == "image"

    @property
    def has_text(self) -> bool:
        """Whether it reads or writes text, and so needs a tokenizer."""
        return self.family not in PICTURES

    @property
    def has_last_norm(self) -> bool:
        """Whether a norm stands on top of each stack."""
        return self.norm_placement == "pre" if self.last_norm is None else self.last_norm

    @property
    def read_vocab_size(self) -> int:
        """Number of pieces that are read: of the source, where it has a vocabulary of its own."""
        return self.source_vocab_size or self.vocab_size

    @property
    def head_key_dim(self) -> int:
        """d_k of one head."""
        return self.key_dim or self.model_dim // self.num_heads

    @property
    def head_value_dim(self) -> int:
        """d_v of one head."""
        return self.value_dim or self.model_dim // self.num_heads


def default_of(name: str) -> Any:
    """What a field of the model section is when nobody sets it."""
    return ModelConfig.model_fields[name].default
