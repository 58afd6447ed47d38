"""Labels of images: the whole path by the command line on real digits, batches, and refused input."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image as PillowImage

import clearhead
from clearhead.bundle import NO_TOKENIZER
from clearhead.cli.main import main
from clearhead.config import build
from clearhead.data.readers.images import load_image_folder
from clearhead.tasks.image_classification.inference import load_labelled_images, scale_pixels
from clearhead.tasks.image_classification.training import ImageClassificationTask, images_per_batch, random_shift
from clearhead.tasks.registry import get_task
from tests.trained_model import Trained, applicable_settings

SETTINGS = [
    "model.num_encoder_layers=1", "model.model_dim=32", "model.feed_forward_dim=64", "model.num_heads=2",
    "model.dropout=0.1",
    "model.patch_size=2", "training.batch_tokens=1024", "training.learning_rate=0.005", "training.warmup=100",
    "training.validate_every=100",
]  # fmt: skip

KNOWN = {"model": {"image_size": 8, "patch_size": 2, "num_labels": 10}, "labels": [*"0123456789"]}


def train(folder: Path, out: Path, *more: str, family: str = "vit", steps: int = 120) -> int:
    """Train by the command line; return the exit code."""
    settings = [*applicable_settings("image", SETTINGS, family), f"model.family={family}"]
    sets = [word for setting in settings for word in ("--set", setting)]
    command = ["train", "--task", "image", str(folder), "--out", str(out), "--steps", str(steps), "--threads", "1"]
    return main([*command, *sets, *more])


@pytest.fixture(scope="session")
def digits(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Handwritten digits, 36 of each to train on and 8 others to test on."""
    folder = tmp_path_factory.mktemp("digits")
    assert main(["data", "digits", "--out", str(folder / "all")]) == 0
    for digit in range(10):
        paths = sorted((folder / "all" / str(digit)).iterdir())
        for part, chosen in (("train", paths[:36]), ("test", paths[36:44])):
            (folder / part / str(digit)).mkdir(parents=True)
            for path in chosen:
                shutil.copy(path, folder / part / str(digit))
    return folder / "train", folder / "test"


@pytest.fixture(scope="session")
def reader(digits: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a trained vision Transformer; no test may write into its folder."""
    torch.set_num_threads(1)
    out = tmp_path_factory.mktemp("image") / "model"
    assert train(digits[0], out, "--set", "model.patch_size=4", steps=300) == 0
    return out


def test_pixels_are_scaled_to_minus_one_to_one() -> None:
    pixels = np.array([[[[0, 255], [51, 204]]]], dtype=np.uint8)
    assert scale_pixels(pixels).flatten().tolist() == pytest.approx([-1.0, 1.0, -0.6, 0.6])


def test_a_shift_depends_on_seed_epoch_and_image_alone() -> None:
    pixels = np.arange(5 * 2 * 7 * 7).reshape(5, 2, 7, 7).astype(np.uint8)
    all_five = random_shift(pixels, 1, seed=3, epoch=11, indices=np.arange(5))
    assert np.array_equal(random_shift(pixels[[4, 2]], 1, 3, 11, np.array([4, 2])), all_five[[4, 2]])
    assert not np.array_equal(random_shift(pixels, 1, 3, 12, np.arange(5)), all_five)
    assert not np.array_equal(random_shift(pixels, 1, 4, 11, np.arange(5)), all_five)


def test_a_shift_moves_an_image_by_at_most_its_limit() -> None:
    pixels = np.zeros((1, 1, 7, 7), dtype=np.uint8)
    pixels[0, 0, 3, 3] = 200
    positions = set()
    for epoch in range(200):
        moved = random_shift(pixels, 1, 0, epoch, np.array([0]))
        assert moved.sum() == 200
        positions.add(tuple(int(axis[0]) for axis in np.nonzero(moved[0, 0])))
    assert positions == {(y, x) for y in (2, 3, 4) for x in (2, 3, 4)}
    assert random_shift(pixels, 0, 0, 0, np.array([0])) is pixels


def test_batches_contain_every_image_once_and_fill_the_budget(digits: tuple[Path, Path]) -> None:
    records = load_labelled_images([digits[1]]).records
    config = build(KNOWN, {"training": {"batch_tokens": 16 * 13}}, base=get_task("image").base)
    plan = ImageClassificationTask(config, records, records[:5]).plan(0)
    assert sorted(np.concatenate(plan).tolist()) == list(range(80))
    assert {len(batch) for batch in plan[:-1]} <= {13, 80 % 13} and max(map(len, plan)) == 13
    large = build(KNOWN, {"training": {"batch_tokens": 4096}}, base=get_task("image").base)
    assert [images_per_batch(large, count) for count in (80, 2000, 100_000)] == [16, 100, 256]


def test_only_training_images_are_shifted(digits: tuple[Path, Path]) -> None:
    records = load_labelled_images([digits[1]]).records
    still, moving = (
        ImageClassificationTask(
            build(KNOWN, {"data": {"random_shift": most}}, base=get_task("image").base), records, records
        )
        for most in (0, 1)
    )
    assert torch.equal(still.batch(np.arange(80), 0).labels_N, moving.batch(np.arange(80), 0).labels_N)
    assert not torch.equal(still.batch(np.arange(80), 0).inputs, moving.batch(np.arange(80), 0).inputs)
    assert np.array_equal(still.valid_NCYX, moving.valid_NCYX)


def test_digits_are_classified(reader: Path, digits: tuple[Path, Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(reader), str(digits[1]), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["examples"] == 80
    assert report["accuracy"]["score"] > 0.6  # chance is 0.1
    assert (reader / "tokenizer.json").read_text().strip() == NO_TOKENIZER
    config = json.loads((reader / "config.json").read_text())
    assert config["labels"] == [*"0123456789"]
    assert (config["model"]["image_size"], config["model"]["image_channels"], config["model"]["num_labels"]) == (
        8,
        1,
        10,
    )


@pytest.mark.parametrize("family", ["cnn", "mlp"])
def test_other_families_learn_too(family: str, digits: tuple[Path, Path], tmp_path: Path) -> None:
    assert train(digits[0], tmp_path / "m", "--valid", str(digits[1]), family=family) == 0
    model = clearhead.load(tmp_path / "m")
    assert model.manifest.data["valid_examples"] == 80 and model.manifest.data["train_examples"] == 360
    assert model.evaluate_files([digits[1]]).to_json()["accuracy"]["score"] > 0.6


def test_classify_names_files_and_agrees_with_evaluate(
    reader: Path, digits: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    paths = sorted(digits[1].glob("*/*.png"))
    assert main(["classify", str(reader), *map(str, paths)]) == 0
    rows = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [row[0] for row in rows] == [str(path) for path in paths]
    right = sum(label == path.parent.name for (_, label), path in zip(rows, paths, strict=True))
    model = clearhead.load(reader)
    assert right / 80 == pytest.approx(model.evaluate_files([digits[1]]).to_json()["accuracy"]["score"])
    assert main(["classify", str(reader), str(paths[0]), "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert record["image"] == str(paths[0]) and record["label"] == rows[0][1]
    assert sum(record["probabilities"].values()) == pytest.approx(1)
    assert max(record["probabilities"], key=record["probabilities"].__getitem__) == record["label"]
    alone = model.classify_images(paths[0])[0]
    assert alone.probabilities == pytest.approx(record["probabilities"], abs=1e-5)


def test_held_out_images_are_not_trained_on(digits: tuple[Path, Path]) -> None:
    from clearhead.tasks.trainable.records import TrainingFiles

    messages: list[str] = []
    records = get_task("image").load_records(
        TrainingFiles([digits[0]]), build(base=get_task("image").base), messages.append
    )
    train_parts, valid_parts = ({record.fields[0] for record in part} for part in (records.train, records.valid))
    assert not train_parts & valid_parts
    assert len(records.train) + len(records.valid) == 360 and 15 < len(records.valid) < 60
    assert records.corpus.fingerprint != load_labelled_images([digits[1]]).fingerprint
    assert messages == [f"{len(records.train)} images to train on, {len(records.valid)} to validate"]


def test_attention_over_patches_can_be_requested(reader: Path, digits: tuple[Path, Path]) -> None:
    model = clearhead.load(reader)
    images = torch.from_numpy(scale_pixels(load_image_folder(digits[1]).pixels_NCYX[:3]))
    with torch.inference_mode():
        (weights_BHSS,) = model.network.backbone(images, want_attention=True).attention
    assert weights_BHSS.shape == (3, 2, 5, 5)
    assert torch.allclose(weights_BHSS.sum(-1), torch.ones(3, 2, 5))


MISTAKES = [
    (["classify", "{model}"], "reads images, not text: expected image files"),
    (["classify", "{text}", "{png}"], "cannot classify"),
    (["translate", "{text}", "{png}"], "reads text, not image files"),
    (["translate", "{model}", "{png}"], "was trained for the task image: it cannot translate. Use clearhead classify"),
    (["classify", "{model}", "{none}.png"], "no such file"),
    (["classify", "{model}", "{large}"], "large.png: expected an image of 8x8 in grey, got 9x9 in colour"),
    (["evaluate", "{model}", "{other}"], "0.png: expected a label of the training data"),
    (["train", "--task", "image", "{none}", "--out", "{out}"], "no such folder"),
    (["train", "--task", "image", "{other}", "--out", "{out}"], "at least two labels"),
    (["train", "--task", "image", "{digits}", "--out", "{out}", "--set", "model.family=encoder"], "reads no images"),
    (["train", "--task", "image", "{digits}", "--out", "{out}", "--set", "model.patch_size=3"], "does not divide"),
    (["train", "--task", "image", "{digits}", "--valid", "{other}", "--out", "{out}"], "found 'ten'"),
    (["data", "digits", "--out", "{digits}"], "expected a new or empty folder"),
    (["data", "digits", "--out", "{out}", "--captions", "x.csv"], "ends in .tsv"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_mistakes_are_one_line(
    arguments: list[str], message: str, reader: Path, digits: tuple[Path, Path], trained: Trained, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    png = next(digits[1].glob("*/*.png"))
    (tmp_path / "other" / "ten").mkdir(parents=True)
    for number in range(12):
        pixels = np.full((8, 8), 9 * number, dtype=np.uint8)
        PillowImage.fromarray(pixels).save(tmp_path / "other" / "ten" / f"{number}.png")
    PillowImage.fromarray(np.zeros((9, 9, 3), dtype=np.uint8)).save(tmp_path / "large.png")
    names = {"model": reader, "text": trained.folder, "png": png, "none": tmp_path / "none", "out": tmp_path / "out",
              "large": tmp_path / "large.png", "other": tmp_path / "other", "digits": digits[0]}  # fmt: skip
    assert main([word.format(**names) for word in arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err.splitlines()[-1], captured.err
    assert captured.err.splitlines()[-1].startswith("clearhead")
