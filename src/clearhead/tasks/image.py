"""Pictures (S10): a picture in, one label out. Any body that reads pictures will do: patches, convolutional or mlp.

What every task over pictures has in common stands here too: records, pixels as numbers, and the size of a batch.

N pictures, C colours, Y height, X width, L labels
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig, ModelConfig
from clearhead.config.model import IMAGE_FAMILIES
from clearhead.data.batching import Indices, divide, plan_batches
from clearhead.data.corpus import Corpus, Skips, gather
from clearhead.data.pictures import Pixels, load_pictures, read_picture
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_encoder_engine import TorchEncoderEngine
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.labels import LabelReport, score_labels
from clearhead.model.heads import LabelNetwork
from clearhead.model.loss import Loss
from clearhead.tasks.baseline import Baseline, label_baseline
from clearhead.tasks.labels import (
    Classified,
    answers,
    label_loss,
    label_numbers,
    label_validation,
    log_softmax,
    report_labels,
)
from clearhead.tasks.task import Decode, Files, Made, Ready, Records, Tell, Validation, hold_out
from clearhead.tasks.texts import FramedText

# Rules of thumb, not fitted to measurements: an epoch of a small folder has about so many updates, if its batches
# do not become smaller than so many pictures.
UPDATES_AN_EPOCH = 20
FEWEST_PICTURES = 16


@dataclass(frozen=True, eq=False, slots=True)
class Described:
    """A picture and the text that belongs to it: its label or its caption."""

    pixels_CYX: Pixels
    text: str
    path: Path
    line: int

    @property
    def parts(self) -> tuple[str, str]:
        """A hash of the pixels, by which equal pictures stay on one side when a part is held out, and the text."""
        shape = repr(self.pixels_CYX.shape).encode()
        return blake2b(shape + self.pixels_CYX.tobytes(), digest_size=16).hexdigest(), self.text


@dataclass(frozen=True)
class PictureBatch:
    """Pictures as the network reads them, and the number of each one's label."""

    pictures_NCYX: Tensor
    labels_N: Tensor


def scaled(pixels_NCYX: Pixels) -> NDArray[np.float32]:
    """Return pixels from 0 to 255 as values from -1 to 1, in training as in inference."""
    return pixels_NCYX.astype(np.float32) / np.float32(127.5) - np.float32(1.0)


def num_patches(model: ModelConfig) -> int:
    """How many patches a picture has. Pictures count as so many for every body, so that all get the same batches."""
    return math.ceil(model.image_size / model.patch_size) ** 2


def pictures_a_batch(config: Config, num_pictures: int) -> int:
    """How many pictures go together: what `batch_tokens` allows, but fewer where an epoch would have few updates."""
    allowed = max(1, config.training.batch_tokens // num_patches(config.model))
    return min(allowed, max(FEWEST_PICTURES, num_pictures // UPDATES_AN_EPOCH))


def stack(records: Sequence[Described], shape: tuple[int, ...]) -> Pixels:
    """pixels_NCYX of records that must all have this shape_CYX."""
    for record in records:
        if record.pixels_CYX.shape != shape:
            kinds = [f"{size}x{size} in {'grey' if colours == 1 else 'colour'}" for colours, _, size in
                     (shape, record.pixels_CYX.shape)]  # fmt: skip
            raise DataError(f"{record.path}: expected a picture of {kinds[0]}, got {kinds[1]}; convert it")
    return np.stack([record.pixels_CYX for record in records])


def shape_of(model: ModelConfig) -> tuple[int, int, int]:
    """shape_CYX of the pictures that a network takes."""
    return model.image_channels, model.image_size, model.image_size


def read_pictures(model: ModelConfig, paths: Sequence[Path]) -> Pixels:
    """pixels_NCYX of files that a trained model is asked about."""
    records = [Described(read_picture(path), "", path, number) for number, path in enumerate(paths, 1)]
    return stack(records, shape_of(model))


def shifted(pixels_NCYX: Pixels, most: int, seed: int, epoch: int, indices: Indices) -> Pixels:
    """Each picture moved by up to `most` pixels down or up and right or left; its border fills what is left free.

    A pure function of seed, epoch and index, whatever else is in the batch.
    """
    if not most:
        return pixels_NCYX
    size = pixels_NCYX.shape[-1]
    wide_NCYX = np.pad(pixels_NCYX, ((0, 0), (0, 0), (most, most), (most, most)), mode="edge")
    moved_NCYX = np.empty_like(pixels_NCYX)
    for row, index in enumerate(indices):
        y, x = np.random.default_rng([seed, epoch, int(index)]).integers(0, 2 * most + 1, 2)
        moved_NCYX[row] = wide_NCYX[row, :, y : y + size, x : x + size]
    return moved_NCYX


class ImageTask:
    """The classification of pictures over one training and one validation set."""

    unit = "pictures"

    def __init__(self, config: Config, train: Sequence[Described], valid: Sequence[Described]) -> None:
        self.config, self.valid = config, valid
        shape = shape_of(config.model)
        self.pixels_NCYX, self.valid_NCYX = stack(train, shape), stack(valid, shape)
        self.labels_N, self.valid_labels_N = (
            label_numbers(places(records), config.labels) for records in (train, valid)
        )
        self._lines = np.array([record.line for record in train], dtype=np.int64)

    def sizes(self) -> tuple[int, int]:
        """Pictures to train on and to validate."""
        return len(self.pixels_NCYX), len(self.valid_NCYX)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        ones_N = np.ones(len(self.pixels_NCYX), dtype=np.int64)
        size = pictures_a_batch(self.config, len(ones_N))
        return plan_batches(ones_N, ones_N, size, self.config.training.seed, epoch)

    def batch(self, indices: Indices, epoch: int) -> PictureBatch:
        """The tensors of these pictures."""
        shift, seed = self.config.data.random_shift, self.config.training.seed
        pixels_NCYX = shifted(self.pixels_NCYX[indices], shift, seed, epoch, indices)
        return PictureBatch(torch.from_numpy(scaled(pixels_NCYX)), torch.from_numpy(self.labels_N[indices]))

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """All pictures are equally much work."""
        return divide(indices, parts, np.ones(len(indices), dtype=np.int64))

    def tokens(self, indices: Indices) -> int:
        """A picture is one prediction."""
        return len(indices)

    def lines(self, indices: Indices) -> Sequence[int]:
        """The numbers of these pictures, in the order of labels and names."""
        return [int(line) for line in self._lines[indices]]

    def loss(self, model: LabelNetwork, batch: PictureBatch) -> Loss:
        """Smoothed cross-entropy over the labels, summed over the pictures."""
        return label_loss(model(batch.pictures_NCYX), batch.labels_N, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the labels, and the accuracy of the most frequent one."""
        return label_baseline(self.labels_N, self.valid_labels_N, len(self.config.labels), "the most frequent label")

    def validate(self, model: LabelNetwork, decode: Decode = "always") -> Validation:
        """Return accuracy and log-loss; nothing is decoded."""
        log_probs_NL = picture_log_probs(TorchEncoderEngine(model), self.valid_NCYX, self.config)
        return label_validation(
            log_probs_NL, self.valid_labels_N, self.config.labels, str(self.valid[0].path), self.baseline
        )


def places(records: Sequence[Described]) -> Iterator[tuple[str, str]]:
    """Each picture's label with the file that it stands in."""
    return ((str(record.path), record.text) for record in records)


def picture_log_probs(engine: TorchEncoderEngine, pixels_NCYX: Pixels, config: Config) -> NDArray[np.float64]:
    """Return the log-probabilities of the labels of each image, [N, L]."""
    size = max(FEWEST_PICTURES, config.training.batch_tokens // num_patches(config.model))
    parts = [pixels_NCYX[start : start + size] for start in range(0, len(pixels_NCYX), size)]
    return log_softmax(np.concatenate([engine.image_logits(scaled(part)) for part in parts]))


def classify_pictures(model: Ready, paths: Sequence[Path]) -> list[Classified]:
    """The label of each picture, with the probability of every label."""
    log_probs_NL = picture_log_probs(
        TorchEncoderEngine(model.network), read_pictures(model.config.model, paths), model.config
    )
    return answers(log_probs_NL, model.config.labels)


def load_labelled_pictures(folders: Sequence[Path], minimum: int = 1) -> Corpus[Described]:
    """The pictures of whole folders, one after the other, each in the order of labels and names."""
    pictures = [picture for folder in folders for picture in load_pictures(folder)]
    records = (Described(one.pixels_CYX, one.label, one.path, line) for line, one in enumerate(pictures, 1))
    return gather(records, Skips(), folders, minimum, "pictures")


class Image(FramedText):
    """What `--task image` does."""

    name = "image"
    verb = "classify"
    noun = "pictures"
    data_fields: tuple[str, ...] = ("random_shift",)
    base: Mapping[str, Any] = {
        "task": "image",
        "model": {"family": "vit", "head": "classification", "positions": "learned", "pooling": "first"},
        "data": {"validation_share": 0.1},
        "training": {"label_smoothing": 0.0},
    }

    def read(self, files: Files, config: Config, tell: Tell) -> Records[Described]:
        """Folders of PNGs, one folder a label."""
        return hold_out(load_labelled_pictures, files, config, tell, self.noun)

    def make(self, config: Config, records: Records[Described], tokenizer: Tokenizer | None, tell: Tell) -> Made:
        """Takes the labels and the size of the pictures from the data; there is no tokenizer."""
        if config.model.family not in IMAGE_FAMILIES:
            raise ConfigError(f"model.family={config.model.family} reads no pictures; use {', '.join(IMAGE_FAMILIES)}.")
        counts = report_labels([record.text for record in records.corpus.records], "images", tell)
        labels = list(config.labels) or sorted(counts)
        if len(labels) < 2:
            raise DataError(f"expected pictures of at least two labels, found {labels}; make one folder a label")
        channels, size, _ = records.train[0].pixels_CYX.shape
        known: dict[str, Any] = {"image_size": size, "image_channels": channels, "num_labels": len(labels)}
        if config.model.family == "cnn" and config.model.pooling != "mean":
            tell("model.pooling=mean: a convolutional network knows no other")
            known["pooling"] = "mean"
        config = configs.override(config, {"model": known, "labels": labels})
        tell(f"batches of {pictures_a_batch(config, len(records.train))} pictures of {size}x{size}")
        return Made(config, None, ImageTask(config, records.train, records.valid), {"label_counts": counts})

    def evaluate(self, model: Ready, paths: Sequence[Path], decoding: DecodingConfig, tell: Tell) -> LabelReport:
        """Accuracy, F1 and confusion matrix."""
        records = load_labelled_pictures(paths).records
        truth_N = label_numbers(places(records), model.config.labels)
        log_probs_NL = picture_log_probs(
            TorchEncoderEngine(model.network), stack(records, shape_of(model.config.model)), model.config
        )
        return score_labels(log_probs_NL.argmax(1).tolist(), truth_N.tolist(), model.config.labels)
