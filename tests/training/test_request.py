"""Settings of users are used or refused; none is ignored."""

import re
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.main import main
from clearhead.config import (
    DataConfig,
    DecodingConfig,
    ModelConfig,
    Section,
    TokenizerConfig,
    TrainingConfig,
    build,
    parse_assignments,
)
from clearhead.data.readers.tables import TABLE_FIELDS
from clearhead.errors import ConfigError
from clearhead.tasks.registry import get_task
from clearhead.training.setup.request import FROM_THE_DATA, check_held_out, check_settings
from tests.tasks.all_tasks import TRAINABLE_TASKS

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("translate", {"model": {"vocab_size": 7}}, "model.vocab_size is taken from the data"),
    ("image", {"model": {"image_size": 7}}, "model.image_size is taken from the data"),
    ("image", {"tokenizer": {"kind": "char"}}, "the task image has no tokenizer"),
    (
        "translate",
        {"data": {"whole_word_masking": True}},
        "data.whole_word_masking has no meaning for the task translate",
    ),
    ("classify", {"data": {"deduplicate": True}}, "data.deduplicate has no meaning for the task classify"),
    ("lm", {"data": {"max_chars": 7}}, "data.max_chars has no meaning for the task lm"),
    ("tag", {"training": {"steps": 3, "epochs": 2}}, "set twice, by steps and epochs"),
    ("classify", {"labels": ["a", "b"]}, "labels are taken from the data; leave them out"),
    ("classify", {"model": {"family": "vit"}}, "model.family=vit reads images, but the task classify reads text"),
    (
        "translate",
        {"model": {"family": "lstm", "num_heads": 4}},
        "model.num_heads has no meaning for model.family=lstm",
    ),
    ("classify", {"model": {"num_decoder_layers": 4}}, "model.num_decoder_layers has no meaning for model.family=enc"),
    (
        "classify",
        {"model": {"family": "gru", "attention": "dot"}},
        "with model.head=classification, only with model.head=generation; leave",
    ),
    ("mlm", {"model": {"pooling": "first"}}, "model.pooling has no meaning with model.head=masked_lm, only with"),
    ("translate", {"model": {"norm_groups": 8}}, "with model.norm=layer, only with model.norm=group; leave it out"),
    ("image", {"model": {"family": "cnn", "pooling": "mean"}}, "model.pooling has no meaning"),
    ("image", {"model": {"pad_id": 3}}, "model.pad_id has no meaning for model.family=vit"),
    ("lm", {"data": {"max_tokens": 2000}}, "data.max_tokens=2000 exceeds the positions of the model"),
    ("tag", {"training": {"validate_lines": 7}}, "training.validate_lines has no meaning for the task tag"),
    (
        "classify",
        {"decoding": {"beam_size": 4}},
        "decoding.beam_size has no meaning for the task classify, which does not search",
    ),
    ("lm", {"decoding": {"beam_size": 4}}, "decoding.beam_size has no meaning with decoding.method=sample"),
    ("lm", {"decoding": {"max_length": "9"}}, "decoding.max_length has no meaning for the task lm, which uses beam"),
    ("lm", {"decoding": {"method": "search", "sampling": {"seed": 1}}}, "decoding.sampling.seed has no meaning for"),
    ("translate", {"decoding": {"sampling": {"seed": 1}}}, "decoding.sampling has no meaning for the task translate"),
    (
        "translate",
        {"decoding": {"beam_groups": "1", "diversity_penalty": "2"}},
        "decoding.diversity_penalty has no meaning without",
    ),
    (
        "translate",
        {"decoding": {"method": "sample", "beam_size": 4}},
        "decoding.beam_size has no meaning with decoding.method",
    ),
    ("translate", {"decoding": {"method": "sample", "sampling": {"stop": "x"}}}, "decoding.sampling.stop is for"),
    (
        "lm",
        {"decoding": {"sampling": {"temperature": 0, "seed": 1}}},
        "decoding.sampling.seed has no meaning with temp",
    ),
    (
        "translate",
        {"decoding": {"length_penalty_form": "none", "length_penalty": 1}},
        "decoding.length_penalty has no meaning with decoding.len",
    ),
]


@pytest.mark.parametrize(("task", "given", "message"), REFUSED)
def test_settings_without_effect_are_refused(task: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_settings(get_task(task), given, build(given, base=get_task(task).base))


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("translate", {"family": "lstm", "positions": "rotary"}, "model.positions=rotary has no meaning"),
        ("translate", {"family": "lstm", "norm": "rms"}, "model.norm has no meaning for model.family=lstm"),
        ("translate", {"family": "lstm", "gated": True}, "model.gated has no meaning for model.family=lstm"),
        ("translate", {"attention": "dot"}, "model.attention has no meaning for model.family=transformer"),
        ("translate", {"family": "encoder"}, "model.family=encoder has no head generation"),
        ("classify", {"family": "decoder"}, "model.family=decoder has no head classification"),
        (
            "classify",
            {"head": "token_classification"},
            "model.head=token_classification does not fit the task, whose head is classification",
        ),
        ("image", {"family": "cnn", "norm": "rms"}, "model.norm has no meaning"),
    ],
)
def test_families_refuse_settings_that_they_do_not_use(task: str, model: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build({"model": model}, base=get_task(task).base)


SECTIONS: dict[str, type[Section]] = {
    "model": ModelConfig, "tokenizer": TokenizerConfig, "data": DataConfig, "training": TrainingConfig,
    "decoding": DecodingConfig,
}  # fmt: skip


def takes(task: str, section: str, field: str) -> bool:
    """Return whether a task accepts a field that is set to its default."""
    value = build(base=get_task(task).base).model_dump()[section][field]
    given = {section: {field: value}}
    try:
        check_settings(get_task(task), given, build(given, base=get_task(task).base))
    except ConfigError as error:
        assert f"{section}.{field}" in str(error) or section == "tokenizer", f"{task}: {error}"
        return False
    return True


# Fields of each section that a task refuses; it accepts all others.
IDLE: dict[str, dict[str, set[str]]] = {
    "tokenizer": {"image": set(TokenizerConfig.model_fields)},
    "training": {task: {"validate_lines"} for task in ("classify", "tag", "mlm", "lm", "image")},
    "decoding": {
        **{task: {"sampling", "diversity_penalty"} for task in ("translate", "denoise", "caption")},
        **{task: set(DecodingConfig.model_fields) for task in ("classify", "tag", "mlm", "image")},
        "lm": {"max_length", "coverage_penalty", "prefix", "diversity_penalty", "beam_size", "stopping_rule"},
    },
    "data": {
        task: set(DataConfig.model_fields) - {"validation_share", "validation_max", "replay_share", *used}
        for task, used in {
            "translate": {*TABLE_FIELDS, "max_chars", "max_tokens", "max_length_ratio", "deduplicate", "file_weights",
                          "source_tags", "sampling_temperature", "validation_tags", "bpe_dropout", "languages",
                          "split"},
            "classify": {*TABLE_FIELDS, "max_chars", "max_tokens"},
            "tag": {"max_chars", "max_tokens"},
            "mlm": {"document_unit", "max_tokens", "mask_probability", "whole_word_masking"},
            "lm": {"document_unit", "max_tokens", "attend_across_documents"},
            "denoise": {"document_unit", "max_tokens", "mask_probability"},
            "image": {"random_shift"}, "caption": {*TABLE_FIELDS, "max_chars", "max_tokens", "random_shift"},
        }.items()
    },
}  # fmt: skip


@pytest.mark.parametrize("section", IDLE)
@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_each_field_of_each_section_is_used_or_refused(task: str, section: str) -> None:
    fields = SECTIONS[section].model_fields
    refused = {field for field in fields if not takes(task, section, field)}
    assert refused == IDLE[section].get(task, set())


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_a_task_refuses_the_fields_that_its_network_does_not_use(task: str) -> None:
    model = build(base=get_task(task).base).model
    for field in ModelConfig.model_fields:
        is_idle = bool(model.unused_reason(field)) or field in FROM_THE_DATA
        assert takes(task, "model", field) != is_idle, field


def test_nothing_is_held_out_with_a_validation_file() -> None:
    given = {"data": {"validation_share": 0.1}}
    check_held_out(given, [])
    check_held_out({}, [Path("valid.tsv")])
    with pytest.raises(ConfigError, match=r"data\.validation_share has no meaning with --valid"):
        check_held_out(given, [Path("valid.tsv")])


def test_recurrent_networks_need_no_heads() -> None:
    assert build({"model": {"family": "lstm", "model_dim": 50}}, base=get_task("translate").base).model.model_dim == 50


@pytest.mark.parametrize("task", TRAINABLE_TASKS)
def test_every_task_has_valid_base_settings(task: str) -> None:
    chosen = get_task(task)
    assert build(base=chosen.base).task == task
    check_settings(chosen, {}, build(base=chosen.base))
    fields = type(build().data).model_fields
    assert set(chosen.data_fields) <= set(fields)


@pytest.mark.parametrize("preset", ["bert-base", "bert-large"])
def test_the_task_overrides_the_head_of_a_preset(preset: str) -> None:
    assert build(preset=preset, base=get_task("tag").base).model.head == "token_classification"
    assert build(preset=preset, base=get_task("mlm").base).model.head == "masked_lm"


def test_two_different_tasks_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.toml").write_text('task = "classify"\n', encoding="utf-8")
    arguments = [
        "train",
        "x.conll",
        "--task",
        "tag",
        "--recipe",
        str(tmp_path / "r.toml"),
        "--out",
        str(tmp_path / "m"),
    ]
    assert main(arguments) == 2
    assert "--task tag contradicts the recipe, which is for the task classify" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["training.clip_norm", "training.minutes", "data.max_length_ratio", "data.sampling_temperature"]
)
@pytest.mark.parametrize("value", ["inf", "nan", "-inf"])
def test_numbers_are_finite(name: str, value: str) -> None:
    with pytest.raises(ConfigError, match=name.replace(".", r"\.")):
        build(parse_assignments([f"{name}={value}"]))
