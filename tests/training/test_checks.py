"""What a user set is used, or refused: nothing is ignored."""

import re
from pathlib import Path
from typing import Any

import pytest

from clearhead.cli.main import main
from clearhead.config import build
from clearhead.errors import ConfigError
from clearhead.tasks.purposes import PURPOSES, purpose
from clearhead.training.checks import check_settings

REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("translate", {"model": {"vocab_size": 7}}, "model.vocab_size is taken from the data"),
    ("image", {"model": {"image_size": 7}}, "model.image_size is taken from the data"),
    ("image", {"tokenizer": {"kind": "char"}}, "the task image has no tokenizer"),
    ("translate", {"data": {"whole_words": True}}, "data.whole_words has no meaning for the task translate"),
    ("lm", {"data": {"max_chars": 7}}, "data.max_chars has no meaning for the task lm"),
    ("tag", {"training": {"steps": 3, "epochs": 2}}, "given twice, by steps and epochs"),
]


@pytest.mark.parametrize(("task", "given", "message"), REFUSED)
def test_what_would_be_ignored_is_refused(task: str, given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        check_settings(purpose(task), given, build(given, base=purpose(task).base))


@pytest.mark.parametrize(
    ("task", "model", "message"),
    [
        ("translate", {"family": "lstm", "positions": "rotary"}, "model.positions=rotary has no meaning"),
        ("translate", {"family": "lstm", "norm": "rms"}, "model.norm has no meaning for model.family=lstm"),
        ("translate", {"family": "lstm", "gated": True}, "model.gated has no meaning for model.family=lstm"),
        ("translate", {"attention": "dot"}, "model.attention has no meaning for model.family=transformer"),
        ("translate", {"family": "encoder"}, "model.family=encoder does not give text"),
        ("classify", {"family": "decoder"}, "model.family=decoder does not give label"),
        ("classify", {"head": "tags"}, "model.head=tags does not fit the task, whose head is label"),
        ("image", {"family": "convolutional", "norm": "rms"}, "model.norm has no meaning"),
    ],
)
def test_families_refuse_what_they_do_not_use(task: str, model: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(message)):
        build({"model": model}, base=purpose(task).base)


def test_recurrent_networks_need_no_heads() -> None:
    assert build({"model": {"family": "lstm", "model_dim": 50}}, base=purpose("translate").base).model.model_dim == 50


@pytest.mark.parametrize("task", PURPOSES)
def test_every_task_has_a_sound_base(task: str) -> None:
    chosen = purpose(task)
    assert build(base=chosen.base).task == task
    check_settings(chosen, {}, build(base=chosen.base))
    fields = type(build().data).model_fields
    assert set(chosen.data_fields) <= set(fields)


@pytest.mark.parametrize("preset", ["bert-base", "bert-large"])
def test_a_presets_head_gives_way_to_the_task(preset: str) -> None:
    assert build(preset=preset, base=purpose("tag").base).model.head == "tags"
    assert build(preset=preset, base=purpose("mlm").base).model.head == "masked"


def test_two_tasks_are_one_too_many(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
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
