"""Shortlists: learned from pairs, saved, loaded, used in translation, and refused for another model."""

import io
import json
import sys
from pathlib import Path

import pytest

import clearhead
from clearhead.cli.main import main
from clearhead.data.readers.pairs import load_pairs
from clearhead.tasks.registry import get_task
from tests.tasks.all_tasks import Models
from tests.trained_model import Trained


@pytest.fixture(scope="module")
def path(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("shortlist") / "list"
    assert main(["shortlist", str(trained.folder), str(trained.train), "--out", str(out), "--best", "20"]) == 0
    return out


def test_translations_contain_only_listed_tokens(
    trained: Trained, path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    model = clearhead.load(trained.folder)
    lines = [pair.source for pair in load_pairs([trained.test]).records]
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("".join(f"{one}\n" for one in lines).encode())))
    assert main(["translate", str(trained.folder), "--shortlist", str(path), "--json", "--beam", "2"]) == 0
    records = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = model.load_shortlist(path)
    assert {5, 600} <= {*found.allowed_targets([5, 600])} and 2 not in found.allowed_targets([2]), (
        "text may be copied, special tokens may not"
    )
    assert [one["text"] for one in records] == [
        one.text for one in model.translate_many(lines, beam_size=2, shortlist=found)
    ]
    encoded = get_task("translate").codec.encode(model.tokenizer, lines)
    for source, record in zip(encoded, records, strict=True):
        listed = {model.tokenizer.token(index) for index in found.allowed_targets(source)}
        assert {*record["tokens"]} <= listed and len(listed) < model.tokenizer.vocab_size / 2
    targets = get_task("translate").codec.encode(
        model.tokenizer, [pair.target for pair in load_pairs([trained.test]).records]
    )
    needed = [
        piece in found.allowed_targets(source)
        for source, target in zip(encoded, targets, strict=True)
        for piece in target
    ]
    assert sum(needed) > 0.9 * len(needed), "what a sentence needs is mostly on its list"
    plain = [one.text for one in model.translate_many(lines, beam_size=2)]
    assert 5 < sum(text == record["text"] for text, record in zip(plain, records, strict=True)) < len(lines)
    alone = [model.translate_many([line], beam_size=2, shortlist=found)[0].tokens for line in lines[:5]]
    assert alone == [tuple(record["tokens"]) for record in records[:5]]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--alternatives-at", "1", "--shortlist", "{path}"], "--shortlist needs text input, without --stream"),
        (["--stream", "--shortlist", "{path}"], "--shortlist needs text input"),
        (["--shortlist", "{path}.none"], "create one with clearhead shortlist"),
        (["--shortlist", "{train}"], "create one with clearhead shortlist"),
    ],
)
def test_incompatible_options_are_one_line(
    options: list[str], message: str, trained: Trained, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    arguments = [option.format(path=path, train=trained.train) for option in options]
    assert main(["translate", str(trained.folder), *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err and len(captured.err.splitlines()) == 1


def test_a_shortlist_of_another_model_is_refused(
    models: Models, path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = models["translate"]
    capsys.readouterr()
    assert main(["translate", str(folder), "--shortlist", str(path)]) == 2
    assert "was made for another tokenizer" in capsys.readouterr().err
    assert main(["shortlist", str(models["lm"]), str(path), "--out", str(path) + "2"]) == 2
    assert "cannot translate. Use clearhead generate" in capsys.readouterr().err
