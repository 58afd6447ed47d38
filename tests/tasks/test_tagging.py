"""Tagging: the whole path trained for seconds on made-up names, windows over long lines, words and their offsets."""

import io
import json
import random
import re
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

import clearhead
from clearhead.cli.main import main
from clearhead.config import TokenizerConfig
from clearhead.data.readers.labelled import load_tagged
from clearhead.data.tokenizer import Tokenizer
from clearhead.tasks.tagging.inference import find_words, mark_spans
from clearhead.tasks.tagging.overlapping_windows import WordWindow, best_windows, cover_words, tokenize_words
from clearhead.tasks.tagging.training import IGNORED, tag_loss
from tests.trained_model import applicable_settings

FIRST = ["Anna", "Ben", "Clara", "David", "Emma", "Felix", "Zoë"]
LAST = ["Lee", "Moreau", "Nakamura", "Okafor", "Petrov"]
LOCATIONS = ["Oslo", "Nairobi", "New York", "Lima", "Rio Grande"]
FRAMES = ["{p} lives in {l} .", "In {l} , {p} met {q} .", "The train to {l} was late .", "{p} , who saw {l} , sleeps .",
          "Why did {p} leave {l} ?"]  # fmt: skip
SETTINGS = [
    "model.num_encoder_layers=1", "model.model_dim=32", "model.feed_forward_dim=48", "model.num_heads=2",
    "model.dropout=0.0",
    "tokenizer.vocab_size=400", "training.batch_tokens=700", "training.learning_rate=0.01", "training.warmup=10",
    "training.validate_every=60", "data.max_tokens=43",
]  # fmt: skip


def entity(words: str, kind: str) -> list[tuple[str, str]]:
    return [(word, f"{'I' if number else 'B'}-{kind}") for number, word in enumerate(words.split())]


def sentence(rng: random.Random) -> list[tuple[str, str]]:
    """Return the words of a sentence with names, each with its tag."""
    names = {
        "p": entity(rng.choice(FIRST) + rng.choice(["", " " + rng.choice(LAST)]), "PER"),
        "q": entity(f"{rng.choice(FIRST)} {rng.choice(LAST)}", "PER"),
        "l": entity(rng.choice(LOCATIONS), "LOC"),
    }
    rows: list[tuple[str, str]] = []
    for word in rng.choice(FRAMES).split():
        rows += names[word[1]] if word[0] == "{" else [(word, "O")]
    return rows


def write(path: Path, count: int, seed: int) -> Path:
    rng = random.Random(seed)
    blocks = ["".join(f"{word}\t{tag}\n" for word, tag in sentence(rng)) for _ in range(count)]
    path.write_text("\n".join(blocks), encoding="utf-8")
    return path


@dataclass(frozen=True)
class Tagger:
    folder: Path
    train: Path
    test: Path


def train_tagger(folder: Path, *more: str, family: str = "encoder", steps: int = 60) -> Tagger:
    train, test = write(folder / "train.conll", 300, 1), write(folder / "test.conll", 29, 2)
    settings = [*applicable_settings("tag", SETTINGS, family), f"model.family={family}"]
    sets = [word for setting in settings for word in ("--set", setting)]
    arguments = ["train", str(train), "--task", "tag", "--out", str(folder / "m"), "--threads", "1", *sets, *more]
    assert main([*arguments, "--steps", str(steps)]) == 0
    return Tagger(folder / "m", train, test)


@pytest.fixture(scope="module")
def tagger(tmp_path_factory: pytest.TempPathFactory) -> Tagger:
    torch.set_num_threads(1)
    return train_tagger(tmp_path_factory.mktemp("tagger"), "--set", "data.validation_share=0.1")


def tag_lines(folder: Path, text: str, *more: str, monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    return main(["tag", str(folder), *more])


def test_a_trained_tagger_finds_spans_and_is_scored_as_by_seqeval(
    tagger: Tagger, capsys: pytest.CaptureFixture[str]
) -> None:
    from seqeval.metrics import f1_score  # type: ignore[import-untyped]

    assert main(["evaluate", str(tagger.folder), str(tagger.test), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    records = load_tagged([tagger.test]).records
    model = clearhead.load(tagger.folder)
    predicted = [
        [word.tag for word in tagged.words] for tagged in model.tag_many([record.fields[0] for record in records])
    ]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wanted = f1_score([list(record.tags) for record in records], predicted)
    assert report["f1"]["score"] == pytest.approx(wanted) and wanted > 0.9
    assert report["sentences"] == 29 and set(report["types"]) == {"LOC", "PER"}
    assert model.config.labels == ("O", "B-LOC", "I-LOC", "B-PER", "I-PER")
    assert "scheme:BIO|mode:conlleval|average:micro|" in (tagger.folder / "manifest.json").read_text(encoding="utf-8")


def test_tag_marks_spans_in_lines(
    tagger: Tagger, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "Anna Lee lives in New York.\n\nWhy did  Ben leave Oslo?\n  \n"
    assert tag_lines(tagger.folder, text, monkeypatch=monkeypatch) == 0
    plain = capsys.readouterr().out
    assert plain == "[Anna Lee PER] lives in [New York LOC].\n\nWhy did  [Ben PER] leave [Oslo LOC]?\n  \n"
    assert tag_lines(tagger.folder, text, "--json", monkeypatch=monkeypatch) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["text"] for row in rows] == text.split("\n")[:-1]
    assert rows[1]["entities"] == rows[1]["words"] == rows[3]["entities"] == []
    for row in rows:
        for span in row["entities"]:
            assert row["text"][span["start"] : span["end"]] == span["text"] and 0 < span["score"] <= 1
        for word in row["words"]:
            assert row["text"][word["start"] : word["end"]] == word["word"]
    assert [(one["type"], one["start"], one["text"]) for one in rows[2]["entities"]] == [
        ("PER", 9, "Ben"),
        ("LOC", 19, "Oslo"),
    ]
    assert [word["tag"] for word in rows[0]["words"]] == ["B-PER", "I-PER", "O", "O", "B-LOC", "I-LOC", "O"]


def test_a_line_longer_than_the_model_is_tagged_in_windows(tagger: Tagger) -> None:
    rng, model = random.Random(3), clearhead.load(tagger.folder)
    rows = [row for _ in range(23) for row in sentence(rng)]
    tagged = model.tag(" ".join(word for word, _ in rows))
    assert len(model.tokenizer.encode(tagged.text).ids) > 5 * model.config.data.max_tokens
    assert [word.word for word in tagged.words] == [word for word, _ in rows]
    right = np.mean([word.tag == tag for word, (_, tag) in zip(tagged.words, rows, strict=True)])
    assert right > 0.9


def test_results_do_not_depend_on_the_batch(tagger: Tagger) -> None:
    model = clearhead.load(tagger.folder)
    texts = ["Zoë met Ben in Lima.", "", "In New York, Clara Okafor met Anna " + "and Ben Lee " * 17, "Oslo"]
    for text, tagged in zip(texts, model.tag_many(texts), strict=True):
        alone = model.tag(text)
        assert tagged.words == alone.words
        assert [span.score for span in tagged.entities] == pytest.approx(
            [span.score for span in alone.entities], abs=1e-5
        )


def test_a_recurrent_tagger_and_a_validation_file(tmp_path: Path) -> None:
    valid = write(tmp_path / "valid.conll", 23, 5)
    tagger = train_tagger(tmp_path, "--valid", str(valid), "--set", "model.bidirectional=true", family="lstm")
    model = clearhead.load(tagger.folder)
    assert model.manifest.data["valid_examples"] == 23
    assert model.evaluate_files([tagger.test]).to_json()["f1"]["score"] > 0.9
    assert str(model.tag("Emma Petrov lives in Oslo .")) == "[Emma Petrov PER] lives in [Oslo LOC] ."


def test_long_sentences_are_skipped_and_reported_in_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write(tmp_path / "train.conll", 40, 1)
    with path.open("a", encoding="utf-8") as file:
        file.write("\n" + "the\tO\n" * 60)
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    assert main(["train", str(path), "--task", "tag", "--out", str(tmp_path / "m"), "--steps", "1", *sets]) == 0
    assert "skipped longer than 41 tokens: 1 (training data:" in capsys.readouterr().err
    assert clearhead.load(tmp_path / "m").manifest.data["skipped"] == {"longer than 41 tokens": 1}


def test_a_word_longer_than_a_window_gets_one_tag(tagger: Tagger) -> None:
    model, text = clearhead.load(tagger.folder), "x " + "ab1" * 60 + " Ben lives in Paris"
    tagged = model.tag(text)
    assert [word.word for word in tagged.words] == text.split()
    assert str(tagged).replace("[", "").replace(" PER]", "").replace(" LOC]", "") == text


BAD = [
    ("translate", "{model}", "", "was trained for the task tag: it cannot translate. Use clearhead tag"),
    ("classify", "{model}", "", "it cannot classify"),
    (
        "evaluate",
        "{model}",
        "Ben\tB-PER\nIBM\tB-ORG\n",
        r"t.conll:2: expected a type of the training data \(LOC, PER\), found 'ORG'",
    ),
    ("evaluate", "{model}", "The dog sleeps.\n", "t.conll:1: expected the tag O"),
    ("evaluate", "{model}", "Ben\tB-PER\nLee\tE-PER\n", "t.conll:2: expected the tag O, .* got 'E-PER'"),
    (
        "train",
        "{train}",
        "Ben\tB-PER\nIBM\tB-ORG\n",
        r"validation data:2: expected a type of the training data .*, found 'ORG'",
    ),
    ("train", "{file}", "".join(f"w{n}\tO\nis\tO\n\n" for n in range(13)), "expected tags such as B-PER, found only O"),
    ("train", "{file}", "It\tO\nBen\tB-PER\n\n" * 3, "at least 10 usable tagged sentences are needed"),
]


@pytest.mark.parametrize(("verb", "first", "text", "message"), BAD)
def test_mistakes_are_one_line_and_exit_2(
    verb: str, first: str, text: str, message: str, tagger: Tagger, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    path = tmp_path / "t.conll"
    path.write_text(text, encoding="utf-8")
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    arguments = [verb, first.format(model=tagger.folder, train=tagger.train, file=path)]
    if verb == "train":
        arguments += ["--task", "tag", "--out", str(tmp_path / "m"), "--steps", "1"]
        arguments += ["--valid", str(path)] if "train" in first else []
    arguments += [str(path)] if verb == "evaluate" else []
    assert main(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and re.search(message, captured.err.splitlines()[-1])


def test_help_has_an_example(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tag", "--help"]) == 0
    assert "Example: clearhead tag" in capsys.readouterr().out


def test_the_loss_counts_only_first_tokens() -> None:
    logits_NSL = torch.randn(3, 7, 5, requires_grad=True)
    tags_NS = torch.full((3, 7), IGNORED)
    tags_NS[0, 1], tags_NS[0, 4], tags_NS[2, 2] = 3, 0, 4
    for smoothing in (0.0, 0.2):
        loss = tag_loss(logits_NSL, tags_NS, smoothing)
        wanted = F.cross_entropy(
            logits_NSL.flatten(0, 1), tags_NS.flatten(), label_smoothing=smoothing, reduction="sum"
        )
        assert loss.tokens == 3 and torch.allclose(loss.smoothed, wanted)
    (grad_NSL,) = torch.autograd.grad(loss.smoothed, logits_NSL)
    assert torch.equal(grad_NSL.abs().sum(-1) > 0, tags_NS != IGNORED)


@pytest.fixture(scope="module", params=["bpe", "unigram", "wordpiece", "char", "word"])
def tokenizer(request: pytest.FixtureRequest) -> Tokenizer:
    rng = random.Random(4)
    texts = [" ".join(word for word, _ in sentence(rng)) for _ in range(60)]
    return Tokenizer.train(texts, TokenizerConfig(kind=request.param, vocab_size=400, min_frequency=1))


def test_the_tokens_of_a_word_decode_to_it(tokenizer: Tokenizer) -> None:
    words = ["Zoë", ",", "Ben-Lee", "New", "1984", "...", "don't", "(U.N.)", "Nakamura", "東京", "😀", "?"]
    sentence = tokenize_words(tokenizer, words)
    bounds = sentence.bounds
    for number, word in enumerate(words):
        ids = sentence.ids[bounds[number] : bounds[number + 1]]
        assert bounds[number] <= sentence.firsts[number] < bounds[number + 1]
        assert tokenizer.token(sentence.ids[sentence.firsts[number]]) != "▁"  # a space alone does not identify the word
        if tokenizer.unk_id not in ids:
            assert tokenizer.decode(ids).strip() == word
    known = [word for word in words if tokenizer.unk_id not in tokenize_words(tokenizer, [word]).ids]
    assert {"Zoë", "New", "Nakamura"} <= set(known)


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=61)


@settings(max_examples=150, deadline=None)
@given(SIZES, st.integers(5, 47))
def test_windows_cover_all_words_with_context(sizes: list[int], max_tokens: int) -> None:
    bounds = [0, *np.cumsum(sizes).tolist()]
    windows = cover_words(bounds, max_tokens)
    assert all(0 < bounds[end] - bounds[start] <= max_tokens for start, end in windows)
    chosen = best_windows(bounds, windows)
    assert len(chosen) == len(sizes)
    for word, number in enumerate(chosen):
        start, end = windows[number]
        assert start <= word < end
        # neighbours share a half, so a word has a quarter on either side, minus the words cut off at the edges
        least = max_tokens / 4 - 2 * max(sizes)
        assert start == 0 or bounds[word] - bounds[start] >= least
        assert end == len(sizes) or bounds[end] - bounds[word + 1] >= least


def test_windows_by_hand() -> None:
    bounds = list(range(11))  # ten words of one token
    assert cover_words(bounds, 10) == [WordWindow(0, 10)]
    assert cover_words(bounds, 6) == [WordWindow(0, 6), WordWindow(3, 9), WordWindow(4, 10)]  # the last begins earlier
    assert best_windows(bounds, cover_words(bounds, 6)) == [0, 0, 0, 0, 0, 1, 1, 2, 2, 2]
    assert cover_words([0], 6) == []


WORDS = [
    ("Don't stop, Mr. O’Neil!", ["Don't", "stop", ",", "Mr", ".", "O’Neil", "!"]),
    ("'tis 'x' A1_b", ["'", "tis", "'", "x", "'", "A1_b"]),
    ("Zoe\u0308 हिन्दी می\u200cخواهم", ["Zoe\u0308", "हिन्दी", "می\u200cخواهم"]),
    ("❤\ufe0fyou...", ["❤\ufe0f", "you", ".", ".", "."]),
    (" \t\u00a0", []),
]


@pytest.mark.parametrize(("text", "words"), WORDS)
def test_words_of_a_line(text: str, words: list[str]) -> None:
    assert [text[start:end] for start, end in find_words(text)] == words


def parse_marks(line: str) -> tuple[str, list[tuple[str, int, int]]]:
    """Return the text and the spans of a marked line, read character by character."""
    text, spans, begin = "", [], 0
    for token in re.findall(r"\\.|.", line, re.DOTALL):
        if token == "[":
            begin = len(text)
        elif token == "]":
            text, _, kind = text.rpartition(" ")
            spans.append((kind, begin, len(text)))
        else:
            text += token[-1]
    return text, spans


@settings(max_examples=200, deadline=None)
@given(st.text("ab[]\\ '.é\u0301", max_size=23), st.randoms(use_true_random=False))
def test_marks_can_be_parsed(text: str, rng: random.Random) -> None:
    words = find_words(text)
    assert "".join(text[start:end] for start, end in words) == "".join(text.split())
    tags = [rng.choice(["O", "B-[x]", "I-[x]", "B-Y"]) for _ in words]
    tagged = mark_spans(text, words, tags, np.ones(len(tags)))
    assert parse_marks(str(tagged)) == (
        text,
        [(span.type, span.start, span.end) for span in tagged.entities],
    )
