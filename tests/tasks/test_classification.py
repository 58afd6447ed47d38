"""Classification: the whole path trained for seconds on a made-up set, and scores against scikit-learn."""

import io
import json
import random
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import clearhead
from clearhead.cli.main import main
from clearhead.errors import TaskError
from clearhead.evaluation.labels import score_labels
from clearhead.tasks.trainable.labels import label_loss
from tests.trained_model import applicable_settings

WORDS = {
    "good": ["great", "lovely", "fine", "superb"],
    "bad": ["awful", "dull", "poor", "boring"],
    "mixed": ["uneven", "half-baked", "so-so"],
}
FILLERS = ["the", "film", "was", "a", "bit", "long", "and", "we", "saw", "it", "on", "friday", "with", "friends"]
SETTINGS = [
    "model.num_encoder_layers=1", "model.model_dim=32", "model.feed_forward_dim=48", "model.num_heads=2",
    "model.dropout=0.0",
    "tokenizer.vocab_size=400", "training.batch_tokens=700", "training.learning_rate=0.01", "training.warmup=10",
    "training.validate_every=60", "model.max_positions=61",
]  # fmt: skip
SETS = [word for setting in SETTINGS for word in ("--set", setting)]
HELD_OUT = ["--set", "data.validation_share=0.1"]
TEXTS = ["the film was lovely", "we saw it and it was dull", "a bit half-baked"]


def write(path: Path, count: int, seed: int) -> Path:
    """Write texts of fillers and one word that determines the label."""
    rng, lines = random.Random(seed), []
    for _ in range(count):
        label = rng.choice([*WORDS])
        words = rng.choices(FILLERS, k=rng.randrange(3, 9))
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS[label]))
        lines.append(f"{' '.join(words)}\t{label}\n")
    path.write_text("".join(lines), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Classifier:
    folder: Path
    train: Path
    test: Path


def train_classifier(folder: Path, *more: str, family: str = "encoder", steps: int = 60) -> Classifier:
    train, test = write(folder / "train.tsv", 400, 1), write(folder / "test.tsv", 59, 2)
    sets = [word for setting in applicable_settings("classify", SETTINGS, family) for word in ("--set", setting)]
    arguments = ["train", str(train), "--task", "classify", "--out", str(folder / "m"), "--threads", "1", *sets, *more]
    arguments += ["--set", f"model.family={family}"]
    assert main([*arguments, "--steps", str(steps)]) == 0
    return Classifier(folder / "m", train, test)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Classifier:
    torch.set_num_threads(1)
    return train_classifier(tmp_path_factory.mktemp("classifier"), *HELD_OUT)


def test_a_trained_classifier_is_scored_as_by_scikit_learn(
    classifier: Classifier, capsys: pytest.CaptureFixture[str]
) -> None:
    from sklearn.metrics import (  # type: ignore[import-untyped]
        accuracy_score,
        confusion_matrix,
        f1_score,
    )

    assert main(["evaluate", str(classifier.folder), str(classifier.test), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    rows = [line.split("\t") for line in classifier.test.read_text(encoding="utf-8").splitlines()]
    model = clearhead.load(classifier.folder)
    gold, predicted = (
        [label for _, label in rows],
        [one.label for one in model.classify_many([text for text, _ in rows])],
    )
    assert report["accuracy"]["score"] == pytest.approx(accuracy_score(gold, predicted)) and report["examples"] == 59
    assert report["accuracy"]["score"] > 0.9
    assert report["macro_f1"]["score"] == pytest.approx(f1_score(gold, predicted, average="macro"))
    labels = report["confusion"]["labels"]
    assert labels == list(model.config.labels) == ["bad", "good", "mixed"]
    assert report["confusion"]["rows_are_gold"] == confusion_matrix(gold, predicted, labels=labels).tolist()
    assert main(["evaluate", str(classifier.folder), str(classifier.test)]) == 0
    shown = capsys.readouterr().out
    assert f"accuracy {100 * report['accuracy']['score']:.2f} % examples:59|labels:3" in shown


def test_classify_prints_a_label_per_line(
    classifier: Classifier, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "\n".join(TEXTS) + "\n"
    for more in ([], ["--json"]):
        monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
        assert main(["classify", str(classifier.folder), *more]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["good", "bad", "mixed"]
    for given_text, line, label in zip(TEXTS, lines[3:], lines[:3], strict=True):
        row = json.loads(line)
        assert row["text"] == given_text and row["label"] == label
        assert set(row["probabilities"]) == set(WORDS) and sum(row["probabilities"].values()) == pytest.approx(1)
        assert max(row["probabilities"], key=row["probabilities"].__getitem__) == label


def test_results_do_not_depend_on_the_batch(classifier: Classifier) -> None:
    model = clearhead.load(classifier.folder)
    texts = [*TEXTS, "dull " * 17]
    for text, predicted in zip(texts, model.classify_many(texts), strict=True):
        assert predicted.probabilities == pytest.approx(model.classify(text).probabilities, abs=1e-5)


def test_a_recurrent_classifier_learns_too(tmp_path: Path) -> None:
    valid = write(tmp_path / "valid.tsv", 31, 5)
    lstm = train_classifier(tmp_path, "--valid", str(valid), family="lstm")
    model = clearhead.load(lstm.folder)
    assert model.config.model.family == "lstm" and model.manifest.data["valid_examples"] == 31
    assert model.evaluate_files([lstm.test]).to_json()["accuracy"]["score"] > 0.9


BAD = [
    ("translate", "{model}", "", "was trained for the task classify: it cannot translate. Use clearhead classify"),
    (
        "evaluate",
        "{model}",
        "x\tgood\ny\tugly\n",
        r"t.tsv:2: expected a label of the training data \(bad, .*, found 'ugly'",
    ),
    ("evaluate", "{model}", "no label\n", "t.tsv:1: expected text TAB label"),
    ("evaluate", "{model}", "so-so " * 70 + "\tgood\n", "line 1 has .* tokens, the model accepts 61; split it"),
    ("train", "{train}", "x\tugly\n", "data:1: expected a label of the training data"),
    (
        "train",
        "{file}",
        "".join(f"w{n} is\tgood\n" for n in range(13)),
        "expected at least two different labels, found",
    ),
    ("train", "{file}", "x\tgood\ny\tbad\n", "at least 10 usable labelled texts are needed"),
]


@pytest.mark.parametrize(("verb", "first", "text", "message"), BAD)
def test_mistakes_are_one_line_and_exit_2(
    verb: str, first: str, text: str, message: str, classifier: Classifier, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "t.tsv"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    arguments = [verb, first.format(model=classifier.folder, train=classifier.train, file=path)]
    if verb == "train":
        arguments += ["--task", "classify", "--out", str(tmp_path / "m"), "--steps", "1", *SETS]
        arguments += ["--valid", str(path)] if "train" in first else []
    arguments += [str(path)] if verb == "evaluate" else []
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert re.search(message, captured.err.splitlines()[-1]), captured.err


def test_python_refuses_the_wrong_verb(classifier: Classifier) -> None:
    model = clearhead.load(classifier.folder)
    with pytest.raises(TaskError, match="cannot translate"):
        model.translate("x")
    assert model.classify_many([]) == []


def test_the_loss_is_that_of_torch() -> None:
    logits_NL, labels_N = torch.randn(7, 3), torch.tensor([0, 2, 1, 1, 0, 2, 2])
    loss = label_loss(logits_NL, labels_N, 0.2)
    smoothed = F.cross_entropy(logits_NL, labels_N, label_smoothing=0.2)
    assert torch.allclose(loss.smoothed / 7, smoothed) and loss.tokens == 7
    assert torch.allclose(loss.nll, -logits_NL.log_softmax(-1)[range(7), labels_N].sum())


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=31))
def test_scores_are_those_of_scikit_learn(pairs: list[tuple[int, int]]) -> None:
    from sklearn.metrics import accuracy_score, f1_score

    gold, predicted = [a for a, _ in pairs], [b for _, b in pairs]
    report = score_labels(predicted, gold, list("abcde"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of labels that neither occur nor are given
        each = f1_score(gold, predicted, average=None, labels=range(5))
        macro = f1_score(gold, predicted, average="macro")  # over the labels that occur or were given
    assert report.accuracy == pytest.approx(accuracy_score(gold, predicted))
    assert report.f1 == pytest.approx(list(each)) and report.macro_f1 == pytest.approx(macro)
