"""Captions of images: the whole path by the command line on real digits, each with its names in two languages."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage

import clearhead
from clearhead.cli.main import main
from clearhead.data.readers.images import DIGIT_NAMES
from clearhead.tasks.captioning.inference import generate_captions, load_captions
from clearhead.tasks.image_classification.inference import scale_pixels
from tests.trained_model import Trained

SETTINGS = [
    "model.num_encoder_layers=1", "model.num_decoder_layers=1", "model.model_dim=32", "model.feed_forward_dim=64",
    "model.num_heads=2", "model.dropout=0.0", "tokenizer.kind=word", "training.batch_tokens=128",
    "training.learning_rate=0.005", "training.warmup=40", "training.validate_every=75", "data.validation_share=0.05",
]  # fmt: skip
TEST = 60


@pytest.fixture(scope="session")
def tables(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Captions of 320 digits to train on and of 60 others to test on."""
    folder = tmp_path_factory.mktemp("captions")
    assert main(["data", "digits", "--out", str(folder / "d" / "all"), "--captions", str(folder / "all.tsv")]) == 0
    lines = (folder / "all.tsv").read_text(encoding="utf-8").splitlines(keepends=True)
    assert len(lines) == 1797
    shuffled = [lines[index] for index in np.random.default_rng(0).permutation(len(lines))]
    (folder / "train.tsv").write_text("".join(shuffled[:320]), encoding="utf-8")
    (folder / "test.tsv").write_text("".join(shuffled[320 : 320 + TEST]), encoding="utf-8")
    return folder / "train.tsv", folder / "test.tsv"


@pytest.fixture(scope="session")
def captioner(tables: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trained model; no test may write into its folder."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("caption") / "model"
    sets = [word for setting in SETTINGS for word in ("--set", setting)]
    command = ["train", "--task", "caption", str(tables[0]), "--out", str(out), "--steps", "150", "--threads", "1"]
    assert main([*command, *sets]) == 0
    return out


def rows_of(table: Path) -> list[tuple[Path, str]]:
    """Return the image files and texts of a table."""
    rows = [line.split("\t") for line in table.read_text(encoding="utf-8").splitlines()]
    return [(table.parent / name, text) for name, text in rows]


def test_the_table_names_every_digit_in_two_languages(tables: tuple[Path, Path]) -> None:
    for path, text in rows_of(tables[0]):
        digit = int(path.parent.name)
        assert path.is_file()
        assert text == f"{DIGIT_NAMES['en'][digit]} {DIGIT_NAMES['de'][digit]}"
    assert "seven sieben" in {text for _, text in rows_of(tables[0])}


def test_captions_are_correct_far_more_often_than_by_chance(
    captioner: Path, tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(captioner), str(tables[1]), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == TEST
    assert report["exact_match"] > 0.5  # chance is about 0.1
    assert 1 < report["perplexity"] < 10 and report["chrf"]["score"] > 50
    facts = json.loads((captioner / "manifest.json").read_text())
    assert facts["training"]["scores"]["exact_match"]["score"] > 50


def test_translate_prints_a_line_per_image(
    captioner: Path, tables: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    paths, truth = zip(*rows_of(tables[1]), strict=True)
    assert main(["translate", str(captioner), *map(str, paths)]) == 0
    texts = capsys.readouterr().out.splitlines()
    assert len(texts) == TEST
    model = clearhead.load(captioner)
    report = model.evaluate_files([tables[1]])
    right = sum(text == expected for text, expected in zip(texts, truth, strict=True))
    assert right / TEST == pytest.approx(report.to_json()["exact_match"])
    assert main(["translate", str(captioner), str(paths[0]), "--n-best", "3", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["source"] == str(paths[0]) and record["text"] == texts[0]
    scores = [one["score"] for one in record["n_best"]]
    assert len(scores) == 3 and scores == sorted(scores, reverse=True)


def test_captions_do_not_depend_on_the_batch(captioner: Path, tables: tuple[Path, Path]) -> None:
    model = clearhead.load(captioner)
    paths = [path for path, _ in rows_of(tables[1])][:11]
    together = model.caption_images(paths)
    for path, captions in zip(paths, together, strict=True):
        alone = model.caption_images(path)[0][0]
        assert alone.tokens == captions[0].tokens
        assert alone.log_prob == pytest.approx(captions[0].log_prob, abs=1e-4)


def test_the_score_is_that_of_the_network_itself(captioner: Path, tables: tuple[Path, Path]) -> None:
    """Greedy search against the argmax of teacher-forced logits, step by step."""
    model = clearhead.load(captioner)
    corpus = load_captions([tables[1]], 100)
    pixels_NCYX = np.stack([record.pixels_CYX for record in corpus.records[:7]])
    captions = generate_captions(model, pixels_NCYX, model.decoding(beam_size=1))
    for image_CYX, (best,) in zip(pixels_NCYX, captions, strict=True):
        tgt = torch.tensor([[model.tokenizer.bos_id, *best.tokens]])
        with torch.inference_mode():
            logits_TV = model.network.logits(model.network(torch.from_numpy(scale_pixels(image_CYX[None])), tgt))[0]
        assert logits_TV.argmax(-1).tolist() == [*best.tokens, model.tokenizer.eos_id]
        expected = logits_TV.log_softmax(-1).max(-1).values.sum()
        assert best.log_prob == pytest.approx(float(expected), abs=1e-4)


def test_unusable_lines_are_counted(tmp_path: Path, tables: tuple[Path, Path]) -> None:
    image, _ = rows_of(tables[0])[0]
    lines = [f"{image}\tone eins", "", f"{image}\t ", f"{image}\t{'x' * 50}", f"{image}\ttwo zwei"]
    lines += [f"{image}\tthree drei"] * 3
    (tmp_path / "t.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    corpus = load_captions([tmp_path / "t.tsv"], 20)
    assert [record.line for record in corpus.records] == [1, 5, 6, 7, 8]
    assert corpus.skips.counts == {"empty line": 1, "empty text": 1, "text longer than 20 characters": 1}


MISTAKES = [
    (["translate", "{model}"], "reads images, not text: expected image files, as in clearhead translate"),
    (["classify", "{model}", "{png}"], "was trained for the task caption: it cannot classify"),
    (["translate", "{model}", "{large}"], "expected an image of 8x8 in grey, got 9x9 in grey"),
    (["translate", "{model}", "{png}", "--n-best", "9"], "needs a beam size of at least 9"),
    (["train", "--task", "caption", "{bad}", "--out", "{out}"], "bad.tsv:2: "),
    (["train", "--task", "caption", "{bad}", "--out", "{out}"], "gone.png: no such file"),
    (["train", "--task", "caption", "{mixed}", "--out", "{out}"], "large.png: expected an image of 8x8 in grey"),
    (["train", "--task", "caption", "{mixed}", "--out", "{out}", "--from", "{text}"], "one reads text, the other"),
    (["train", "--task", "caption", "{mixed}", "--out", "{out}", "--set", "model.input=tokens"], "not tokens"),
    (["train", "{pairs}", "--out", "{out}", "--set", "model.input=image"], "reads an image; use --task caption"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes_are_one_line(
    arguments: list[str], message: str, captioner: Path, tables: tuple[Path, Path], trained: Trained, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    png = rows_of(tables[0])[0][0]
    PillowImage.fromarray(np.zeros((9, 9), dtype=np.uint8)).save(tmp_path / "large.png")
    (tmp_path / "bad.tsv").write_text(f"{png}\tone\ngone.png\ttwo\n", encoding="utf-8")
    rows = [f"{path}\tone\n" for path, _ in rows_of(tables[0])[:12]] + ["large.png\tnine\n"]
    (tmp_path / "mixed.tsv").write_text("".join(rows), encoding="utf-8")
    names = {"model": captioner, "png": png, "large": tmp_path / "large.png", "bad": tmp_path / "bad.tsv",
              "mixed": tmp_path / "mixed.tsv", "out": tmp_path / "out", "text": trained.folder,
              "pairs": trained.train}  # fmt: skip
    assert main([word.format(**names) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err.splitlines()[-1], captured.err
