"""Span corruption and denoising: the whole path by the command line, fine-tuning, and two tasks in one model."""

import io
import itertools
import json
import re
import string
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import clearhead
from clearhead.cli.main import main
from clearhead.config import TokenizerConfig, build
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError
from clearhead.tasks.denoising.inference import (
    CorruptedText,
    SpanCorruption,
    decode_with_sentinels,
    encode_with_sentinels,
    find_sentinels,
    spans_by_sentinel,
    split_documents,
)
from clearhead.tasks.denoising.training import DenoisingTask
from clearhead.tasks.registry import get_task
from clearhead.tasks.trainable.records import SequenceDataset
from tests.trained_model import Trained

SETTINGS = [
    "model.num_encoder_layers=1", "model.num_decoder_layers=1", "model.model_dim=32", "model.feed_forward_dim=64",
    "model.num_heads=2", "model.dropout=0.0", "training.batch_tokens=1024", "training.learning_rate=0.01",
    "training.warmup=50", "training.label_smoothing=0", "training.validate_every=70",
]  # fmt: skip
SETS = [word for setting in SETTINGS for word in ("--set", setting)]
CORRUPTION = SpanCorruption(sentinels=(4, 5, 6, 7, 8), share=0.15)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def restore(corrupted: CorruptedText, sentinels: tuple[int, ...]) -> list[int]:
    """Return the original text of a corrupted one."""
    spans: dict[int, list[int]] = {}
    for token in corrupted.target:
        if token in sentinels:
            spans[token] = current = []
        else:
            current.append(token)
    return [part for token in corrupted.source for part in (spans[token] if token in sentinels else [token])]


@pytest.mark.parametrize("share", [0.01, 0.15, 0.5, 0.99])
def test_targets_contain_the_missing_spans(share: float) -> None:
    corruption = SpanCorruption(CORRUPTION.sentinels, share)
    for length in range(2, 131):
        ids = list(range(100, 100 + length))
        corrupted = corruption.apply(ids, rng(length))
        hidden, spans = corruption.counts(length)
        assert restore(corrupted, corruption.sentinels) == ids
        assert [token for token in corrupted.source if token < 100] == [*corruption.sentinels[:spans]]
        assert [token for token in corrupted.target if token < 100] == [*corruption.sentinels[: spans + 1]]
        assert corrupted.target[0] == 4 and corrupted.target[-1] == corruption.sentinels[spans]
        assert len(corrupted.target) == hidden + spans + 1 and len(corrupted.source) == length - hidden + spans
        assert 1 <= hidden < length and (hidden == 1 or abs(hidden - share * length) <= 1)
        assert not any(first < 100 and second < 100 for first, second in itertools.pairwise(corrupted.source))


def test_spans_have_mean_length_three_and_every_token_may_be_corrupted() -> None:
    corruption = SpanCorruption(tuple(range(32)), 0.15)
    assert [corruption.counts(length) for length in (2, 7, 20, 100, 200)] == [(1, 1), (1, 1), (3, 1), (15, 5), (30, 10)]
    hidden = np.zeros(40)
    for seed in range(2000):
        corrupted = corruption.apply(range(100, 140), rng(seed))
        for token in corrupted.target:
            if token >= 100:
                hidden[token - 100] += 1
    assert hidden.sum() == 6 * 2000
    assert hidden.min() > 60  # also the first and the last position; a uniform distribution would give 300


def test_the_example_of_the_paper_is_encoded_and_decoded() -> None:
    text = "Thank you for inviting me to your party last week."
    config = TokenizerConfig(kind="word", min_frequency=1, special_tokens=("<x0>", "<x1>", "<x2>"))
    tokenizer = Tokenizer.train([text], config)
    whole = tokenizer.encode(text).ids
    source = encode_with_sentinels(tokenizer, "Thank you <x0> me to your party <x1> week.")
    assert source == [*whole[:2], 4, *whole[4:8], 5, *whole[9:]]
    assert decode_with_sentinels(tokenizer, source) == "Thank you <x0> me to your party <x1> week."
    target = [4, *whole[2:4], 5, whole[8], 6]
    assert decode_with_sentinels(tokenizer, target) == "<x0> for inviting <x1> last <x2>"
    assert encode_with_sentinels(tokenizer, "<x0> for inviting <x1> last <x2>") == target
    assert spans_by_sentinel(target, find_sentinels(tokenizer)) == {4: tuple(whole[2:4]), 5: (whole[8],), 6: ()}


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "word", "char"])
@pytest.mark.parametrize("normalisation", ["nfc", "none"])
@pytest.mark.parametrize("hidden", [" cats", " see", " 12", ".", " dogs."])
def test_sentinels_do_not_change_the_tokens_around_them(kind: Any, normalisation: Any, hidden: str) -> None:
    """Whole words and punctuation are missing, so the other tokens are those of the whole text."""
    text = "Two cats see 12 dogs."
    texts = [text, "A dog and 3 cats see it.", "Dogs see 21 cats."] * 3
    config = TokenizerConfig(
        kind=kind, vocab_size=400, min_frequency=1, normalization=normalisation, special_tokens=("<x0>", "<x1>")
    )
    tokenizer = Tokenizer.train(texts, config)
    encoding = tokenizer.encode(text)
    start = text.index(hidden)
    first, last = start + hidden.startswith(" "), start + len(hidden)
    inside = [index for index, (begin, end) in enumerate(encoding.offsets) if begin >= first and end <= last]
    low, high = inside[0], inside[-1] + 1
    space = " " if hidden.startswith(" ") and kind != "char" else ""  # only there a space is a separate token
    marked = f"{text[:start]}{space}<x0>{text[last:]}"
    assert encode_with_sentinels(tokenizer, marked) == [*encoding.ids[:low], 4, *encoding.ids[high:]]


def test_a_tokenizer_without_sentinels_is_refused() -> None:
    tokenizer = Tokenizer.train(["some text"], TokenizerConfig(kind="char"))
    with pytest.raises(ConfigError, match="two or more sentinels"):
        find_sentinels(tokenizer)


def task_of(texts: list[str]) -> DenoisingTask:
    """Return a task with these texts for training and validation."""
    config = build({"tokenizer": {"kind": "char", "vocab_size": 100}}, base=get_task("denoise").base)
    tokenizer = Tokenizer.train(texts, config.tokenizer)
    rows = tokenizer.encode_batch(texts)
    dataset = SequenceDataset.build(rows, list(range(1, len(rows) + 1)))
    return DenoisingTask(config, tokenizer, dataset, dataset)


def test_batches_depend_on_seed_and_epoch_alone_and_are_counted() -> None:
    task = task_of([string.ascii_lowercase[start : start + 17] for start in range(9)] + ["ab", "hello world"])
    indices = np.array([3, 1, 8])
    batch = task.batch(indices, 5)
    alone = task.batch(np.array([8]), 5)
    assert torch.equal(alone.tgt_out_NT[0], batch.tgt_out_NT[2]) and torch.equal(alone.src[0], batch.src[2])
    assert torch.equal(task.batch(indices, 5).src, batch.src)
    assert any(not torch.equal(task.batch(indices, epoch).src, batch.src) for epoch in (6, 7, 8))
    everything = np.arange(11)
    assert task.tokens(everything) == int((task.batch(everything, 2).tgt_out_NT != 0).sum())
    assert sorted(np.concatenate(task.plan(1)).tolist()) == everything.tolist()


def test_long_documents_are_split_without_loss() -> None:
    text = "".join(string.ascii_lowercase[number % 26] for number in range(97))
    tokenizer = Tokenizer.train([text], TokenizerConfig(kind="char"))
    skips = SkipReport()
    texts, lines = split_documents([Document(text, 3), Document("a", 9)], tokenizer, 20, skips, Path("x"))
    assert [*map(len, texts)] == [20, 20, 19, 19, 19]
    assert tokenizer.decode([token for one in texts for token in one]) == text
    assert lines == [3] * 5 and skips.counts == {"fewer than 2 tokens": 1}


@pytest.fixture(scope="session")
def denoiser(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model trained on parts of the alphabet, in which every missing span has one solution."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("denoise")
    draw = rng(1)
    lines = []
    for _ in range(500):
        start, length = int(draw.integers(0, 15)), int(draw.integers(8, 12))
        lines.append(" ".join(string.ascii_lowercase[start : start + length]) + "\n")
    (folder / "text.txt").write_text("".join(lines), encoding="utf-8")
    (folder / "valid.txt").write_text("".join(sorted(set(lines))), encoding="utf-8")
    command = ["train", "--task", "denoise", folder / "text.txt", "--valid", folder / "valid.txt", "--out",
               folder / "model", "--steps", "200", "--threads", "1", "--set", "tokenizer.kind=word"]  # fmt: skip
    assert main([*map(str, command), *SETS]) == 0
    return folder / "model"


def test_missing_spans_are_restored(
    denoiser: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["evaluate", str(denoiser), str(denoiser.parent / "valid.txt"), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["span_match"]["score"] > 0.5  # guessing letters gives less than 1 in 20
    assert report["perplexity"] < 3
    assert main(["evaluate", str(denoiser), str(denoiser.parent / "valid.txt"), "--json", "--engine", "torch"]) == 0
    by_torch = json.loads(capsys.readouterr().out)
    assert by_torch["span_match"] == report["span_match"]
    assert by_torch["perplexity"] == pytest.approx(report["perplexity"], rel=1e-5)
    given = b"c d <x0> g h i j k\na b c d e f <x0>\n\n"
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(given)))
    assert main(["translate", str(denoiser), "--threads", "1"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 3 and lines[2] == ""
    assert all(re.fullmatch(r"<x0>( [a-z])+ <x1>", line) for line in lines[:2]), lines
    assert clearhead.load(denoiser).translate("c d <x0> g h i j k").tokens[0] == "<x0>"


def test_a_trained_denoiser_becomes_a_translator(
    denoiser: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters = string.ascii_lowercase
    rows = [f"{' '.join(letters[n : n + 3])}\t{' '.join(letters[n + 3 : n + 6])}\n" for n in range(20)]
    (tmp_path / "pairs.tsv").write_text("".join(rows), encoding="utf-8")
    command = [
        "train",
        str(tmp_path / "pairs.tsv"),
        "--from",
        str(denoiser),
        "--out",
        str(tmp_path / "m"),
        "--steps",
        "9",
    ]
    assert main(command) == 0
    assert "newly initialized: none" in capsys.readouterr().err
    model = clearhead.load(tmp_path / "m")
    assert model.config.task == "translate" and model.config.model.positions == "relative"
    assert "<x31>" in model.tokenizer.config.special_tokens
    assert model.tokenizer.to_json() == clearhead.load(denoiser).tokenizer.to_json()
    assert isinstance(model.translate("a b c").text, str)


def test_one_model_learns_two_tasks_by_prefix(tmp_path: Path) -> None:
    words = ["".join(word) for word in itertools.product("abcdef", repeat=3)]
    held_out = words[5::9]
    seen = [word for word in words if word not in held_out]
    tasks = {"reverse": lambda word: word[::-1], "upper": str.upper}
    for name, act in tasks.items():
        rows = [f"{name}: {word}\t{act(word)}\n" for word in seen * 2]
        (tmp_path / f"{name}.tsv").write_text("".join(rows), encoding="utf-8")
    files = [str(tmp_path / f"{name}.tsv") for name in tasks]
    command = ["train", *files, "--out", str(tmp_path / "m"), "--steps", "210", "--threads", "1", *SETS]
    assert main([*command, "--set", "tokenizer.kind=char"]) == 0
    model = clearhead.load(tmp_path / "m")
    for name, act in tasks.items():
        translations = model.translate_many([f"{name}: {word}" for word in held_out], beam_size=1)
        num_correct = sum(
            translation.text == act(word) for translation, word in zip(translations, held_out, strict=True)
        )
        assert num_correct / len(held_out) > 0.5, (name, num_correct)  # chance is 1 in 216


MISTAKES = [
    (["train", "--task", "denoise", "{text}", "--out", "{out}", "--from", "{model}"], "two or more sentinels"),
    (["train", "--task", "denoise", "{text}", "--out", "{out}", "--set", "model.family=decoder"], "use --task lm"),
    (["train", "--task", "denoise", "{short}", "--out", "{out}"], "expected at least 100 characters of text"),
    (["translate", "{denoiser}", "image.png"], "reads text, not image files"),
    (["classify", "{denoiser}"], "was trained for the task denoise: it cannot classify. Use clearhead translate"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message[:30] for _, message in MISTAKES])
def test_mistakes_are_one_line(
    arguments: list[str], message: str, denoiser: Path, trained: Trained, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "short.txt").write_text("one line\n", encoding="utf-8")
    names = {"text": denoiser.parent / "text.txt", "out": tmp_path / "out", "model": trained.folder,
              "denoiser": denoiser, "short": tmp_path / "short.txt"}  # fmt: skip
    assert main([word.format(**names) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err.splitlines()[-1], captured.err
