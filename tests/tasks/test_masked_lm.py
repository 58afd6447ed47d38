"""Masked language models as a user has them: trained, filling gaps, scored, and the start of classifiers."""

import io
import json
import math
import random
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead import config as configs
from clearhead.bundle import load as load_bundle
from clearhead.cli.main import main
from clearhead.data.tokenizer.tokenizer import MASK_TOKEN
from clearhead.errors import ConfigError
from clearhead.tasks.masked_lm.training import MaskedLMTask
from clearhead.training.loop.callbacks import NullCallback
from clearhead.training.run import TrainRequest, prepare
from tests.tasks.artificial_text import ADJECTIVES, BEINGS, SMALL, artificial_text, sets, write_lines

MAX_TOKENS = 29


@dataclass(frozen=True)
class Masked:
    """A masked language model, and the text that it was trained on."""

    folder: Path
    text: Path


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Masked:
    """A model trained once by the command line; no test may write into its folder."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("masked")
    text = write_lines(folder / "text.txt", artificial_text(600))
    valid = write_lines(folder / "valid.txt", artificial_text(150, seed=1))
    arguments = ["train", "--task", "mlm", str(text), "--valid", str(valid), "--out", str(folder / "model")]
    more = ["--steps", "400", "--threads", "1", "--set", "training.validate_every=100", "--set", "training.seed=0"]
    assert main([*arguments, *more, *sets(SMALL)]) == 0
    return Masked(folder / "model", text)


def test_it_learns_predictable_words(masked: Masked) -> None:
    scores = scores_of(masked.folder)
    # Verb and object follow from each other; names, adjectives and locations are guesses.
    assert scores["accuracy"]["score"] > 60 and 1 < scores["perplexity"] < 3
    assert re.fullmatch(
        r"masked:\d+\|probability:0.15\|unit:tokens\|replacement:mask\|seed:0", scores["accuracy"]["signature"]
    )
    model = clearhead.load(masked.folder)
    assert model.config.task == "mlm" and model.config.model.family == "encoder"
    for text, word in (
        ("The old cow [MASK] the grass in the field.", "eats"),
        ("The red axe cuts the [MASK] in the house.", "wood"),
    ):
        best = model.fill(text, top=3)[0][0]
        # With training.seed from 0 to 7 the probabilities are at least 0.81.
        assert best.word == word and best.probability > 0.7 and best.text == text.replace("[MASK]", word)
    fillings = model.fill("The old [MASK] cuts the wood in the field.", top=10_000)[0]
    names = {verb: sum(each.probability for each in fillings if each.word in BEINGS[verb][0]) for verb in BEINGS}
    assert names["cuts"] > 0.5 > names["eats"]  # 0.69 and 0.26 at worst


def test_fill_prints_probability_word_and_text(masked: Masked, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fill", str(masked.folder), "The old cow <mask> the grass in the field.", "--top", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 2
    assert re.fullmatch(r"(0\.\d\d|1\.00)  eats  The old cow eats the grass in the field\.", lines[0])
    two = "The [MASK] cow [MASK] the grass in the field."
    assert main(["fill", str(masked.folder), two, "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [filling["mask"] for filling in results] == [1] * 5 + [2] * 5
    assert results[0]["word"] in ADJECTIVES and results[0]["text"] == two.replace("[MASK]", results[0]["word"], 1)
    assert results[5]["word"] == "eats" and results[5]["text"] == "The [MASK] cow eats the grass in the field."
    for mask_fillings in (results[:5], results[5:]):
        assert all(filling["probability"] >= other["probability"] for filling, other in pairwise(mask_fillings))
    assert main(["fill", str(masked.folder), two, "--top", "1"]) == 0
    assert [line.split("  ")[0] for line in capsys.readouterr().out.splitlines()] == ["1", "2"]


def test_fill_reads_lines(masked: Masked, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    given = "The old cow [MASK] the grass in the field.\nThe big saw cuts the [MASK] in the street.\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given.encode())))
    assert main(["fill", str(masked.folder), "--top", "1"]) == 0
    assert [line.split("  ")[1:2] for line in capsys.readouterr().out.splitlines()] == [["eats"], [], ["wood"]]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"The [MASK].\nno mask\nThe [MASK].\n")))
    assert main(["fill", str(masked.folder), "--top", "1"]) == 0
    captured = capsys.readouterr()
    assert [bool(line) for line in captured.out.splitlines()] == [True, False, False, True]
    assert captured.err.startswith("1 line has no mask; write [MASK]")


def test_all_probabilities_add_up(masked: Masked) -> None:
    model = clearhead.load(masked.folder)
    fillings = model.fill("The [MASK] eats the grass.", top=10_000)[0]
    assert len(fillings) == model.tokenizer.vocab_size - len(model.tokenizer.special_ids)
    assert 0.99 < sum(filling.probability for filling in fillings) <= 1 + 1e-9


def test_evaluate_scores_the_same_masks_each_time(
    masked: Masked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    test = write_lines(tmp_path / "test.txt", artificial_text(50, seed=9))
    outputs = []
    for _ in range(2):
        assert main(["evaluate", str(masked.folder), str(test), "--json"]) == 0
        outputs.append(capsys.readouterr().out)
    assert outputs[0] == outputs[1]
    report = json.loads(outputs[0])
    assert report["examples"] == 50 and 0.6 < report["accuracy"]["score"] <= 1
    assert report["pseudo_perplexity"]["score"] == pytest.approx(np.exp(report["loss"]))
    assert main(["evaluate", str(masked.folder), str(test)]) == 0
    signature = report["accuracy"]["signature"]
    assert f"accuracy {100 * report['accuracy']['score']:.2f} % {signature}" in capsys.readouterr().out
    words = sorted({word for line in artificial_text(50) for word in line.split()})
    noise = [" ".join(random.Random(seed).choices(words, k=9)) for seed in range(50)]
    other = clearhead.evaluate(masked.folder, write_lines(tmp_path / "noise.txt", noise)).to_json()
    assert other["pseudo_perplexity"]["score"] > 2 * report["pseudo_perplexity"]["score"]


BAD = [
    (["fill", "{model}", "The cow."], "the text has no mask; write [MASK] where a word is missing"),
    (["fill", "{model}", "The [MASK] " + "cow " * 300, "--long-lines", "stop"], "the model accepts 254; split"),
    (["fill", "{model}", "[MASK]", "--top", "0"], "--top"),
    (["translate", "{model}"], "Use clearhead fill"),
    (["classify", "{model}"], "Use clearhead fill"),
    (["train", "--task", "mlm", "{empty}", "--out", "{out}"], "the file is empty"),
    (["train", "--task", "mlm", "{blank}", "--out", "{out}"], "found only blank lines"),
    (["train", "--task", "mlm", "{text}", "--out", "{out}", "--set", "data.mask_probability=1.5"],
     "data.mask_probability=1.5"),
    (["train", "--task", "mlm", "{text}", "--out", "{out}", "--set", "data.document_unit=page"],
     "data.document_unit=page"),
    (["train", "--task", "mlm", "{text}", "--out", "{out}", "--set", "data.max_tokens=2"], "leaves no room"),
    (["train", "--task", "mlm", "{text}", "--out", "{out}", "--set", "model.family=lstm"], "has no head masked_lm"),
    (["train", "{pairs}", "--out", "{out}", "--from", "{model}"], "cannot start --task translate"),
    (["train", "--task", "classify", "{pairs}", "--out", "{out}", "--from", "{model}", "--set", "model.model_dim=64"],
     "the shape does not fit"),
    (["train", "--task", "classify", "{pairs}", "--out", "{out}", "--from", "{model}", "--set", "tokenizer.kind=bpe"],
     "tokenizer.kind=bpe does not fit"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), BAD, ids=[message for _, message in BAD])
def test_mistakes_are_one_line_and_exit_2(
    arguments: list[str], message: str, masked: Masked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {"model": masked.folder, "out": tmp_path / "out", "text": masked.text, "empty": tmp_path / "e.txt",
              "blank": tmp_path / "b.txt", "pairs": tmp_path / "p.tsv"}  # fmt: skip
    write_lines(names["empty"], [])
    write_lines(names["blank"], ["", "  "] * 20)
    write_lines(names["pairs"], [f"The dog {number}\t{'ab'[number % 2]}" for number in range(20)])
    assert main([word.format(**names) for word in arguments]) == 2
    error = capsys.readouterr().err.rstrip("\n")
    assert error.splitlines()[-1].startswith("clearhead") and message in error.splitlines()[-1]


def test_a_vocabulary_without_a_mask_is_refused(masked: Masked, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"needs <mask> among tokenizer\.special_tokens, found <sep>"):
        clearhead.train(masked.text, tmp_path / "m", task="mlm", steps=1,
                        settings={"tokenizer": {"special_tokens": ["<sep>"]}})  # fmt: skip


@pytest.mark.parametrize(("documents", "count"), [("paragraph", 4), ("file", 2)])
def test_larger_documents(documents: str, count: int, tmp_path: Path) -> None:
    text = "\n\n".join("\n".join(artificial_text(9, seed)) for seed in range(2))
    paths = [tmp_path / name for name in ("a.txt", "b.txt")]
    for number, path in enumerate(paths):
        path.write_text(text.replace("Look", f"Look{number}"), encoding="utf-8")
    settings = configs.merge(SMALL, {"data": {"document_unit": documents, "max_tokens": MAX_TOKENS}})
    prepared = prepare(TrainRequest(paths, tmp_path / "m", settings=settings, task="mlm"), NullCallback())
    assert prepared.data["records"] == count
    assert sum(prepared.task.num_examples()) > 4 and isinstance(prepared.task, MaskedLMTask)
    assert max(prepared.task.dataset.ids.lengths) <= MAX_TOKENS


def scores_of(folder: Path) -> dict[str, Any]:
    """Return the validation scores in the manifest of a training."""
    scores: dict[str, Any] = json.loads((folder / "manifest.json").read_text())["training"]["scores"]
    return scores


def labelled(path: Path, which: slice) -> Path:
    """Write names labelled with their kind, in a line that does not reveal it."""
    lines = [f"Look at the old {name} there!\t{verb}" for verb, (names, _) in BEINGS.items() for name in names[which]]
    return write_lines(path, lines * 5)


def fine_tune(folder: Path, start: Path | None) -> float:
    """Return the loss on names that are not labelled in the training data; without knowledge of them at least log 2."""
    train, valid = labelled(folder / "train.tsv", slice(0, 4)), labelled(folder / "valid.tsv", slice(4, 6))
    training = {"training": {**SMALL["training"], "learning_rate": 0.003, "seed": 3, "validate_every": 20}}
    settings = training if start else configs.merge(SMALL, training)
    model = clearhead.train(train, folder / f"from_{bool(start)}", task="classify", valid=valid, start=start, steps=20,
                            settings=settings, threads=1)  # fmt: skip
    return float(scores_of(model.folder)["loss"])


@pytest.mark.parametrize("task", ["classify", "tag", "mlm"])
def test_fine_tuning_starts_with_the_encoder_weights(task: str, masked: Masked, tmp_path: Path) -> None:
    tagged = [line for name in ("dog", "saw") * 9 for line in ("The O", f"{name} B-THING", "")]
    files = {"classify": labelled(tmp_path / "train.tsv", slice(0, 4)), "mlm": masked.text,
             "tag": write_lines(tmp_path / "train.conll", tagged)}  # fmt: skip
    prepared = prepare(TrainRequest([files[task]], tmp_path / "m", task=task, start=masked.folder), NullCallback())
    before, now = load_bundle(masked.folder).tensors(), prepared.model.state_dict()
    readers = {name for name in now if name.startswith("backbone.")}
    assert readers == {name for name in before if name.startswith("backbone.")} and len(readers) > 20
    for name in readers if task != "mlm" else now:
        assert torch.equal(now[name], before[name]), name
    if task != "mlm":
        assert set(now) - readers == {"output.weight", "output.bias"}
        assert now["output.bias"].shape != before["output.bias"].shape  # the vocabulary there
        assert prepared.config.model.head == {"classify": "classification", "tag": "token_classification"}[task]
    assert prepared.tokenizer and prepared.tokenizer.to_json() == load_bundle(masked.folder).tokenizer


def test_fine_tuning_knows_words_that_were_never_labelled(masked: Masked, tmp_path: Path) -> None:
    # With training.seed from 0 to 7 for the masked language model, the first loss is 0.30 to 0.66.
    assert fine_tune(tmp_path, masked.folder) < math.log(2) <= fine_tune(tmp_path, None)
    model = clearhead.load(tmp_path / "from_True")
    assert model.classify("Look at the old dog there!").label == "eats"
    assert model.tokenizer.config.special_tokens == (MASK_TOKEN,)
