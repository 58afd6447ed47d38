"""Settings: presets, overrides, and one sentence for each invalid setting."""

import re

import pytest

from clearhead import config as configs
from clearhead.config import DecodingConfig, build, parse_assignments
from clearhead.config import model as model_config
from clearhead.errors import ConfigError


@pytest.mark.parametrize(
    ("assignments", "message"),
    [
        (["model.num_heads=6", "model.model_dim=512"], "num_heads=6 does not divide model.model_dim=512; try 4 or 8."),
        (["training.warm_up=3"], "unknown key training.warm_up; did you mean training.warmup?"),
        (["decoding.beam=4"], "unknown key decoding.beam; did you mean decoding.beam_size?"),
        (["model.embeddings=shared"], "unknown key model.embeddings; did you mean model.tied_embeddings?"),
        (["data.tags=de"], "unknown key data.tags; did you mean data.source_tags?"),
        (["modell.dropout=3"], "unknown key modell; did you mean model?"),
        (["model.dropout=1.5"], "model.dropout=1.5: input should be less than 1."),
        (["model.dropout=much"], "model.dropout=much: input should be a valid number"),
        (["decoding.max_length=long"], "expected a number of tokens, input+N or F*input+N"),
        (["decoding.beam_size=0"], "decoding.beam_size=0: input should be greater than or equal to 1."),
        (["data.max_length_ratio=0.5"], "data.max_length_ratio: expected 0 (no limit) or more than 1, got 0.5; try 9"),
        (["dropout=0.1"], "expected section.field=value, such as model.dropout=0.3"),
        (["model.dropout"], "expected section.field=value"),
        (["tokenizer.joiner=@@"], "joiner='@@' has no meaning for kind=bpe"),
        (["model.max_positions=1000000", "model.model_dim=512"], "max_positions=1000000 is too large for a width"),
        (
            ["model.positions=relative", "model.max_positions=1000000", "model.num_heads=256", "model.model_dim=256"],
            "max_positions=1000000 is too large for 256 heads with model.positions=relative.",
        ),
    ],
)  # fmt: skip
def test_invalid_settings_give_one_sentence(assignments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        build(parse_assignments(assignments))
    assert "\n" not in str(caught.value)


def test_the_largest_t5_may_have_as_many_positions_as_any_model() -> None:
    largest = ["model.positions=relative", "model.max_positions=1000000", "model.num_heads=128", "model.model_dim=1024"]
    assert build(parse_assignments(largest)).model.num_heads == 128


def test_unknown_preset_is_named() -> None:
    with pytest.raises(ConfigError, match="unknown preset 'tinny'; did you mean tiny"):
        build(preset="tinny")


def test_later_layers_override_earlier_ones() -> None:
    config = build({"model": {"dropout": 0.2, "num_heads": 8}}, {"model": {"dropout": 0.25}}, preset="tiny")
    assert (config.model.dropout, config.model.num_heads, config.model.model_dim) == (0.25, 8, 128)
    assert config.preset == "tiny"


def test_config_is_loaded_unchanged_from_json() -> None:
    config = build({"tokenizer": {"kind": "char"}}, preset="paper-big")
    assert configs.parse(config.model_dump(mode="json")) == config


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(Exception, match="frozen"):
        build().model.dropout = 0.5  # type: ignore[misc]


def test_every_field_has_a_description() -> None:
    for section in ("model", "tokenizer", "data", "training", "decoding"):
        for name, field in type(getattr(build(), section)).model_fields.items():
            assert field.description, f"{section}.{name}"


@pytest.mark.parametrize(
    ("limit", "expected"),
    [("input+50", 57), ("input+0", 7), ("30", 30), ("1.5*input+10", 20), ("0.5*input+0", 3), ("2*input+1", 15)],
)
def test_maximum_output_length(limit: str, expected: int) -> None:
    assert DecodingConfig(max_length=limit).max_output_length(7) == expected


SPECIAL = [  # settings, field, valid token ids, invalid token ids
    ({}, "eos_id", (0, 22), (23, 7000)),
    ({}, "pad_id", (22,), (23,)),
    ({}, "decoder_start_id", (22,), (23,)),
    ({"source_vocab_size": 17, "tied_embeddings": "none"}, "pad_id", (16,), (17,)),
    ({"source_vocab_size": 17, "tied_embeddings": "none"}, "eos_id", (22,), (23,)),
    ({"family": "decoder"}, "eos_id", (22,), (23,)),
    ({"family": "decoder"}, "pad_id", (22, 23), ()),  # GPT-2 has no padding token; its pad_id is the vocabulary size
    ({"family": "encoder", "head": "masked_lm"}, "pad_id", (22,), (23,)),
    ({"family": "encoder", "head": "masked_lm"}, "eos_id", (22,), (23,)),
    ({"family": "lstm"}, "decoder_start_id", (22,), (23,)),
]


@pytest.mark.parametrize(("settings", "name", "tokens", "others"), SPECIAL)
def test_special_tokens_are_in_the_vocabulary(
    settings: dict[str, object], name: str, tokens: tuple[int, ...], others: tuple[int, ...]
) -> None:
    for value in tokens:
        build({"model": {"vocab_size": 23, **settings, name: value}})
    for value in others:
        size = 17 if (settings.get("source_vocab_size"), name) == (17, "pad_id") else 23
        with pytest.raises(
            ConfigError, match=rf"model\.{name}={value} is not a token id; the vocabulary has {size} tokens\."
        ):
            build({"model": {"vocab_size": 23, **settings, name: value}})
        build({"model": {**settings, name: value}})  # the vocabulary is not known yet


def test_unknown_family_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"^model\.family=resnet: expected one of transformer, rnn, .*mlp\.$"):
        build({"model": {"family": "resnet"}})


def test_registered_family_has_the_settings_and_heads_of_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_config, "FAMILIES", [*model_config.FAMILIES])
    for name in ("_FAMILIES_USING", "_FAMILIES_OF_HEAD"):
        monkeypatch.setattr(model_config, name, dict(getattr(model_config, name)))
    model_config.register_family("indrnn", like="rnn")
    build({"model": {"family": "indrnn", "head": "classification", "bidirectional": True}})
    with pytest.raises(ConfigError, match=r"model\.family=indrnn has no head masked_lm"):
        build({"model": {"family": "indrnn", "head": "masked_lm"}})
    with pytest.raises(ConfigError, match=r"model\.gated has no meaning for model\.family=indrnn"):
        build({"model": {"family": "indrnn", "gated": True}})
    for name, like in (("rnn", "gru"), ("new", "resnet")):
        with pytest.raises(ValueError, match="expected a new family"):
            model_config.register_family(name, like)
