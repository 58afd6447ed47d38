"""Labels of the user's own files: counts and warnings before training, and the same columns when a model is scored."""

import csv
import json
import random
from pathlib import Path

import pytest
import torch

import clearhead
from clearhead.bundle import read_manifest
from clearhead.cli.main import main
from clearhead.config import build
from clearhead.data.corpus.cached_corpus import CachedPairs, PairFilters, load_pairs_cached
from clearhead.data.corpus.held_out import find_overlap
from clearhead.data.readers.pairs import Pair
from clearhead.data.records import Corpus, SkipReport
from clearhead.errors import DataError
from clearhead.tasks.classification.inference import label_ids
from clearhead.tasks.trainable.labels import label_warnings, report_labels
from clearhead.tasks.trainable.records import TrainingFiles, load_and_split
from tests.tasks.test_classification import SETS, WORDS, write

TRAIN = ["--task", "classify", "--threads", "1", "--steps", "40", *SETS]


def reviews(path: Path, count: int, seed: int) -> Path:
    """Write a CSV file as German Excel does: with byte order mark, semicolons, CRLF and line breaks in fields."""
    rng = random.Random(seed)
    with path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file, delimiter=";")
        writer.writerow(["Nr", "Urteil", "Text", "Wer"])
        for number in range(count):
            label = rng.choice([*WORDS])
            writer.writerow([number, label, f'the "film"; was\n{rng.choice(WORDS[label])}, we saw {number}', "me"])
    return path


def test_a_classifier_is_trained_and_scored_on_a_spreadsheet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.set_num_threads(1)
    train, test, folder = reviews(tmp_path / "train.csv", 300, 1), reviews(tmp_path / "test.csv", 31, 2), tmp_path / "m"
    assert main(["train", str(train), "--out", str(folder), *TRAIN, "--columns", "text=Text,label=Urteil"]) == 0
    shown = capsys.readouterr().err
    assert "train.csv: separated by semicolon, line 1 is the header (Nr, Urteil, Text, Wer), text in column 3" in shown
    assert "3 labels of 300 texts:" in shown and "warning" not in shown
    counts = read_manifest(folder).data["label_counts"]
    assert isinstance(counts, dict) and sum(map(int, map(str, counts.values()))) == 300
    assert f"- label_counts.bad: {counts['bad']}" in (folder / "README.md").read_text(encoding="utf-8")

    assert main(["evaluate", str(folder), str(test), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == 31 and report["accuracy"]["score"] > 0.9
    plain = tmp_path / "plain.tsv"
    model = clearhead.load(folder)
    with test.open(encoding="utf-8-sig", newline="") as file:
        rows = [(row["Urteil"], " ".join(row["Text"].split())) for row in csv.DictReader(file, delimiter=";")]
    plain.write_text("".join(f"{label}\t{text}\n" for label, text in rows), encoding="utf-8")
    assert main(["evaluate", str(folder), str(plain)]) == 2
    assert "plain.tsv:1: expected a header with one column 'Text'" in capsys.readouterr().err
    for more in (["--columns", "text=2,label=1"], ["--set", "data.columns=text=2,label=1"]):
        assert main(["evaluate", str(folder), str(plain), *more, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["examples"] == 31
    report = model.with_table({"columns": "text=2,label=1"}).evaluate_files([plain])
    assert report.to_json()["examples"] == 31
    assert main(["evaluate", str(folder), str(plain), "--set", "data.max_chars=7"]) == 2
    assert "data.max_chars has no effect on a trained model" in capsys.readouterr().err


def test_a_header_in_a_small_test_file_is_explained() -> None:
    message = (
        r"t.tsv:1: expected a label of the training data .*, found 'Klasse'; if line 1 is a header, set data.header"
    )
    with pytest.raises(DataError, match=message):
        label_ids([("t.tsv:1", "Klasse")], ["a", "b"])


def test_labels_are_shown_with_their_counts() -> None:
    shown: list[str] = []
    labels = ["rare"] * 2 + ["usual"] * 1100 + [f"label{number}" for number in range(25) for _ in range(5)]
    counts = report_labels(labels, "texts", shown.append)
    assert [*counts.items()][:2] == [("usual", 1100), ("label0", 5)] and counts["rare"] == 2
    assert shown[0] == "27 labels of 1,227 texts:"
    assert shown[1] == "  usual    1,100   89.6%"
    assert len(shown) == 22 and shown[-1] == "  ... and 7 more"


@pytest.mark.parametrize(
    ("counts", "warnings"),
    [
        ({"a": 9, "b": 7}, []),
        ({"1": 9, "-2": 7}, []),
        ({"a": 9, "b": 1, "c": 1}, ["2 labels occur ('b', 'c') only once"]),
        (
            {f"one{n}": 1 for n in range(19)} | {"a": 2},
            ["20 different labels of 21 texts: nearly each has a different label"],
        ),
        (
            {"0.0": 9, "1.0": 7},
            ["2 labels occur ('0.0', '1.0') in decimal form: each different number is a separate class"],
        ),
        ({"3.7": 2, "1e3": 2, "nan": 2}, ["3 labels occur ('3.7', '1e3', 'nan') in decimal form"]),
        ({'"a"': 9, '"b"': 7}, ["2 labels occur ('\"a\"', '\"b\"') with quotation marks"]),
        ({"Good": 9, "good": 3, "bad": 7}, ["the labels 'Good', 'good' differ only in form"]),
        (
            {"1": 9, "1.0": 3, "2": 2},
            ["the label '1.0' occurs in decimal form", "the labels '1', '1.0' differ only"],
        ),
    ],
)
def test_suspicious_labels_are_named(counts: dict[str, int], warnings: list[str]) -> None:
    actual = label_warnings(counts, "texts")
    assert len(actual) == len(warnings)
    for warning, expected in zip(actual, warnings, strict=True):
        assert warning.startswith(expected)


def test_training_texts_in_the_validation_file_are_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    train, valid = write(tmp_path / "train.tsv", 60, 1), write(tmp_path / "valid.tsv", 9, 2)
    known = train.read_text(encoding="utf-8").splitlines(keepends=True)[7:10]
    new = valid.read_text(encoding="utf-8").splitlines(keepends=True)
    valid.write_text("".join([*new, *known]), encoding="utf-8")
    command = ["train", str(train), "--valid", str(valid), "--out", str(tmp_path / "m"), *TRAIN, "--dry-run"]
    assert main(command) == 0
    shown = capsys.readouterr().err
    assert "warning: 3 of 12 validation inputs are also in the training data, such as" in shown
    assert f"valid.tsv:10 ({known[0].split(chr(9))[0][:30]!r}"[:-1] in shown.replace("\n", "")
    valid.write_text("".join(new), encoding="utf-8")
    assert main(command) == 0 and "also in the training data" not in capsys.readouterr().err


def test_the_same_inputs_are_found_in_a_corpus_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.data.corpus.cached_corpus.LARGE_BYTES", 1)
    monkeypatch.setattr("clearhead.data.corpus.held_out.BLOCK", 7)
    path = tmp_path / "pairs.tsv"
    path.write_text("".join(f"source {number}\ttarget {number}\n" for number in range(50)), encoding="utf-8")
    train = load_pairs_cached([path], PairFilters(60), folder=tmp_path / "kept").records
    assert isinstance(train, CachedPairs)
    valid = [Pair("source 41", "another target", 1), Pair("new", "target 3", 2), Pair("source 0", "x", 3)]
    assert find_overlap(train, valid) == find_overlap([*train], valid) == [valid[0], valid[2]]


def test_a_held_out_part_gives_no_warning() -> None:
    pairs = [Pair(f"source {number % 30}", f"target {number}", number) for number in range(60)]
    messages: list[str] = []
    load_and_split(
        lambda paths, minimum: Corpus(pairs, SkipReport(), 60),
        TrainingFiles([Path("a")]),
        build(),
        messages.append,
        "pairs",
    )
    assert len(messages) == 1 and messages[0].endswith("to validate")
