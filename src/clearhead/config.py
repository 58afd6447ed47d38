"""Every setting of a run: typed, frozen, checked when built, and unknown keys are errors.

One class a stage. A new knob is a field with a one-line description, which is also its help text; the CLI sets any
of them with `--set model.dropout=0.3`. Presets are plain dictionaries laid under what the user gives.
"""

import difflib
import re
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from clearhead.errors import ConfigError

SPECIALS = ("<pad>", "<unk>", "<s>", "</s>")
"""The first four entries of every vocabulary: ids 0 to 3."""
SPECIAL_FORM = re.compile(r"<[^\s<>▁]+>")
BYTE_FORM = re.compile(r"<0x[0-9A-F]{2}>")


class Section(BaseModel):
    """Base of all settings: frozen, and a typing mistake in a key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", validate_default=True)


class ModelConfig(Section):
    """The network's shape."""

    family: Literal["transformer"] = Field("transformer", description="which network")
    num_encoder_layers: int = Field(4, ge=1, description="layers of the encoder")
    num_decoder_layers: int = Field(4, ge=1, description="layers of the decoder")
    model_dim: int = Field(128, ge=2, description="width of the residual stream, d_model")
    inner_dim: int = Field(256, ge=1, description="width inside the feed-forward network, d_ff")
    num_heads: int = Field(4, ge=1, description="attention heads a layer, h")
    dropout: float = Field(0.1, ge=0, lt=1, description="dropout on sub-layers, embeddings and positions")
    norm_placement: Literal["pre", "post"] = Field("pre", description="layer norm before or after each sub-layer")
    activation: Literal["relu", "gelu"] = Field("relu", description="non-linearity of the feed-forward network")
    positions: Literal["sinusoidal", "learned"] = Field("sinusoidal", description="how places are marked")
    max_positions: int = Field(1024, ge=2, description="longest sequence, in pieces")
    embeddings: Literal["shared", "output", "separate"] = Field(
        "shared",
        description="shared: one table for source, target and output; output: target and output; separate: three",
    )
    vocab_size: int = Field(0, ge=0, description="number of pieces; taken from the tokenizer")
    pad_id: int = Field(0, ge=0, description="the piece that fills a batch up")
    start_id: int = Field(2, ge=0, description="the piece that the decoder starts from")
    end_id: int = Field(3, ge=0, description="the piece that ends a sentence")

    @model_validator(mode="after")
    def _check_heads(self) -> Self:
        if self.model_dim % self.num_heads:
            fitting = [h for h in (1, 2, 4, 8, 16, 32) if self.model_dim % h == 0]
            near = sorted(sorted(fitting, key=lambda h: abs(h - self.num_heads))[:2])
            raise ValueError(
                f"model.num_heads={self.num_heads} does not divide model.model_dim={self.model_dim}; "
                f"try {' or '.join(map(str, near))}."
            )
        return self


class TokenizerConfig(Section):
    """How text is cut into pieces."""

    kind: Literal["bpe", "unigram", "wordpiece", "word", "char", "pretokenised"] = Field(
        default="bpe",
        description="bpe, unigram (both know every text), wordpiece, word, char, or pretokenised (already split)",
    )
    vocab_size: int = Field(default=6000, gt=len(SPECIALS), description="upper bound on the number of pieces")
    normalisation: Literal["nfc", "nfkc", "none"] = Field(
        default="nfc",
        description="Unicode form of the text; nfc and nfkc also make any run of white space one space, none keeps all",
    )
    lowercase: bool = Field(default=False, description="lower-case the text; what is decoded is then lower case too")
    joiner: str = Field(
        default="", description="pretokenised only: the mark of a token joined to the next when decoding, such as @@"
    )
    min_frequency: int | None = Field(
        default=None,
        ge=1,
        description="how often a character, merge or word must occur to be learned (default 2, and 1 for char)",
    )
    specials: tuple[str, ...] = Field(
        default=(), description="special tokens besides <pad>, <unk>, <s> and </s>, such as <mask>; ids from 4"
    )

    @field_validator("specials")
    @classmethod
    def _specials_have_their_form(cls, specials: tuple[str, ...]) -> tuple[str, ...]:
        for index, special in enumerate(specials):
            if not SPECIAL_FORM.fullmatch(special) or BYTE_FORM.fullmatch(special):
                raise ValueError(f"a special token is a name in angle brackets such as <mask>, got {special!r}")
            if special in SPECIALS or special in specials[:index]:
                raise ValueError(f"the special token {special} is there already; leave it out")
        return specials

    @model_validator(mode="after")
    def _joiner_is_used(self) -> Self:
        if self.joiner and self.kind != "pretokenised":
            raise ValueError(f"joiner={self.joiner!r} has no meaning for kind={self.kind}; set kind=pretokenised")
        if self.joiner != "".join(self.joiner.split()):
            raise ValueError(f"joiner={self.joiner!r} must not hold white space; try @@")
        return self

    @property
    def all_specials(self) -> tuple[str, ...]:
        return SPECIALS + self.specials

    @property
    def threshold(self) -> int:
        """The minimum frequency in force."""
        return self.min_frequency or (1 if self.kind == "char" else 2)

    @property
    def has_bytes(self) -> bool:
        """Whether characters without a piece are spelled in bytes, so that nothing is unknown."""
        return self.kind in ("bpe", "unigram")


class TrainingConfig(Section):
    """How the weights are found."""

    seed: int = Field(1, ge=0, description="everything random follows from it")
    steps: int = Field(0, ge=0, description="number of updates; 0: from epochs or minutes")
    epochs: float = Field(0, ge=0, description="passes over the data; 0: from steps or minutes")
    minutes: float = Field(0, ge=0, description="time to train; 0: from steps or epochs")
    batch_tokens: int = Field(
        4096, ge=1, description="largest number of tokens a batch, source or target, with padding"
    )
    accumulate: int = Field(1, ge=1, description="batches an update")
    learning_rate: float = Field(0.0, ge=0, description="highest learning rate; 0: the paper's, by width and warmup")
    warmup: int = Field(4000, ge=0, description="updates until the learning rate is highest")
    cooldown: float = Field(0.0, ge=0, le=1, description="last share of the updates, in which the rate falls to zero")
    label_smoothing: float = Field(0.1, ge=0, lt=1, description="probability given to all pieces alike")
    beta1: float = Field(0.9, ge=0, lt=1, description="Adam's first decay")
    beta2: float = Field(0.98, ge=0, lt=1, description="Adam's second decay")
    epsilon: float = Field(1e-9, gt=0, description="Adam's small constant")
    weight_decay: float = Field(0.0, ge=0, description="decoupled weight decay")
    clip_norm: float = Field(1.0, ge=0, description="largest norm of the gradient; 0: no clipping")
    validate_every: int = Field(0, ge=0, description="updates between validations; 0: chosen from the run's length")
    save_every: int = Field(0, ge=0, description="updates between checkpoints; 0: at every validation")
    validate_lines: int = Field(500, ge=1, description="validation sentences that are translated for the score")
    patience: int = Field(0, ge=0, description="validations without gain before stopping early; 0: never")
    average: int = Field(5, ge=1, description="last checkpoints that are averaged at the end")
    max_bad_steps: int = Field(20, ge=1, description="updates in a row with infinite loss or gradient before giving up")


class DataConfig(Section):
    """Which text is used."""

    valid_share: float = Field(0.02, gt=0, lt=0.5, description="share held out where no validation file is given")
    valid_max: int = Field(2000, ge=1, description="largest number of pairs held out")
    max_chars: int = Field(2000, ge=1, description="longer lines are skipped and counted")
    max_pieces: int = Field(256, ge=2, description="longer sentences are skipped and counted, in pieces")


class DecodingConfig(Section):
    """How text is searched for."""

    beam: int = Field(4, ge=1, description="hypotheses kept; 1 is greedy")
    alpha: float = Field(0.6, ge=0, description="exponent of the length normalisation")
    length_norm: Literal["paper", "length", "none"] = Field(
        "length", description="divisor of a score: paper ((5+n)/6)^alpha, length n^alpha, or none"
    )
    stop: Literal["beam_finished", "cannot_improve"] = Field(
        "beam_finished", description="stop when `beam` hypotheses are finished, or when none can get better"
    )
    max_length: str = Field("input+50", description="longest output in pieces: a number, or input+N")

    @field_validator("max_length", mode="before")
    @classmethod
    def _check_max_length(cls, value: object) -> str:
        if not re.fullmatch(r"(input\+)?[0-9]+", str(value)) or str(value) == "0":
            raise ValueError(f"expected a number of pieces or input+N, such as 100 or input+50, not {value!r}")
        return str(value)

    def longest(self, input_length: int) -> int:
        """The limit for one input of that many pieces."""
        if self.max_length.startswith("input+"):
            return input_length + int(self.max_length.removeprefix("input+"))
        return int(self.max_length)


class Config(Section):
    """A whole run; `config.json` of a bundle."""

    task: Literal["translate"] = Field("translate", description="what the model is for")
    preset: str = Field("", description="the preset that the settings started from")
    model: ModelConfig = Field(default_factory=ModelConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    data: DataConfig = Field(default_factory=DataConfig)
    training: TrainingConfig = Field(default_factory=TrainingConfig)
    decoding: DecodingConfig = Field(default_factory=DecodingConfig)


def _shape(layers: int, model_dim: int, inner_dim: int, num_heads: int, dropout: float, norm: str) -> dict[str, Any]:
    """The model section of a preset."""
    return {
        "num_encoder_layers": layers,
        "num_decoder_layers": layers,
        "model_dim": model_dim,
        "inner_dim": inner_dim,
        "num_heads": num_heads,
        "dropout": dropout,
        "norm_placement": norm,
    }


# Rules of thumb, not tuned: the small ones are pre-norm, which tolerates a short warmup and a high rate.
_SMALL_TRAINING = {"learning_rate": 0.003, "warmup": 1000, "cooldown": 0.3}
_PAPER: dict[str, dict[str, Any]] = {
    "tokenizer": {"vocab_size": 37000},
    "training": {"batch_tokens": 25000, "warmup": 4000, "clip_norm": 0.0},
    "decoding": {"length_norm": "paper"},
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "tiny": {"model": _shape(4, 128, 256, 4, 0.3, "pre"), "training": _SMALL_TRAINING},
    "small": {"model": _shape(3, 256, 1024, 4, 0.1, "pre"), "training": {**_SMALL_TRAINING, "learning_rate": 0.001}},
    "paper-base": {**_PAPER, "model": _shape(6, 512, 2048, 8, 0.1, "post")},
    "paper-big": {
        **_PAPER,
        "model": _shape(6, 1024, 4096, 16, 0.3, "post"),
        "training": {**_PAPER["training"], "average": 20},
    },
}


def build(*layers: Mapping[str, Any], preset: str = "") -> Config:
    """The config from a preset and then each layer (a recipe, the user's settings) on top of it."""
    if preset and preset not in PRESETS:
        raise ConfigError(f"unknown preset {preset!r}; {_suggest(preset, PRESETS)}")
    merged: dict[str, Any] = {"preset": preset}
    for layer in ((PRESETS[preset] if preset else {}), *layers):
        merged = merge(merged, layer)
    return parse(merged)


def parse(settings: Mapping[str, Any]) -> Config:
    """A config from plain settings; every fault is one sentence."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        raise ConfigError(_explain(error)) from None


def merge(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Two nested settings, the second on top."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged


def parse_assignments(assignments: list[str]) -> dict[str, Any]:
    """`["model.dropout=0.3"]` as nested settings; types are the fields' own."""
    settings: dict[str, Any] = {}
    for text in assignments:
        path, equals, value = text.partition("=")
        section, dot, field = path.strip().partition(".")
        if not equals or not dot or not field:
            raise ConfigError(f"expected section.field=value, such as model.dropout=0.3, not {text!r}")
        settings = merge(settings, {section: {field: value.strip()}})
    return settings


def override(config: Config, settings: Mapping[str, Any]) -> Config:
    """The config with some settings replaced, checked again."""
    return parse(merge(config.model_dump(), settings))


def _suggest(wrong: str, known: Mapping[str, Any]) -> str:
    close = difflib.get_close_matches(wrong.replace("_", ""), [*known], n=1, cutoff=0.5)
    close = close or difflib.get_close_matches(wrong, [*known], n=1, cutoff=0.5)
    return f"did you mean {close[0]}?" if close else f"there are {', '.join(known)}."


def _fields_at(path: tuple[str | int, ...]) -> dict[str, Any]:
    """The fields of the section that a path leads into."""
    section: type[BaseModel] = Config
    for key in path:
        section = section.model_fields[str(key)].annotation  # type: ignore[assignment]
    return section.model_fields


def _explain(error: ValidationError) -> str:
    """The first fault of a validation, in our words."""
    fault = error.errors(include_url=False)[0]
    path = fault["loc"]
    name = ".".join(map(str, path))
    if fault["type"] == "extra_forbidden":
        parent = ".".join(map(str, path[:-1]))
        suggestion = _suggest(str(path[-1]), _fields_at(path[:-1]))
        if parent and suggestion.startswith("did"):
            suggestion = suggestion.replace("did you mean ", f"did you mean {parent}.")
        return f"unknown key {name}; {suggestion}"
    if fault["type"] == "value_error":
        message = str(fault["ctx"]["error"])
        return message if message.startswith("model.") else f"{name}: {message}"
    return f"{name}={fault['input']}: {fault['msg'][0].lower()}{fault['msg'][1:]}."
