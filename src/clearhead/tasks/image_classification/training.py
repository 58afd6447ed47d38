"""Pictures (S10): a picture in, one label out. Any body that reads pictures will do: patches, convolutional or mlp.

What every task over pictures has in common stands here too: records, pixels as numbers, and the size of a batch.

N pictures, C colours, Y height, X width, L labels
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config
from clearhead.config.model import IMAGE_FAMILIES
from clearhead.data.batching import Indices, divide, plan_batches
from clearhead.data.readers.images import Pixels
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.errors import ConfigError, DataError
from clearhead.model.loss import Loss
from clearhead.model.output_heads import SequenceClassifier
from clearhead.tasks.image_classification.inference import (
    MIN_BATCH_IMAGES,
    AnnotatedImage,
    image_log_probs,
    image_shape,
    label_locations,
    load_labelled_images,
    num_patches,
    scale_pixels,
    stack_pixels,
)
from clearhead.tasks.label_prediction import label_ids
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import Baseline, label_baseline
from clearhead.tasks.trainable.label_training import label_loss, label_validation, report_labels
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation, load_and_split


@dataclass(frozen=True)
class ImageBatch:
    """Pictures as the network reads them, and the number of each one's label."""

    pictures_NCYX: Tensor
    labels_N: Tensor


# Rules of thumb: an epoch of a small folder has about this many updates, if its batches do not become smaller than
# FEWEST_PICTURES.
UPDATES_PER_EPOCH = 20


def images_per_batch(config: Config, num_pictures: int) -> int:
    """How many pictures go together: what `batch_tokens` allows, but fewer where an epoch would have few updates."""
    allowed = max(1, config.training.batch_tokens // num_patches(config.model))
    return min(allowed, max(MIN_BATCH_IMAGES, num_pictures // UPDATES_PER_EPOCH))


def random_shift(pixels_NCYX: Pixels, most: int, seed: int, epoch: int, indices: Indices) -> Pixels:
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

    def __init__(self, config: Config, train: Sequence[AnnotatedImage], valid: Sequence[AnnotatedImage]) -> None:
        self.config, self.valid = config, valid
        shape = image_shape(config.model)
        self.pixels_NCYX, self.valid_NCYX = stack_pixels(train, shape), stack_pixels(valid, shape)
        self.labels_N, self.valid_labels_N = (
            label_ids(label_locations(records), config.labels) for records in (train, valid)
        )
        self._lines = np.array([record.line for record in train], dtype=np.int64)

    def sizes(self) -> tuple[int, int]:
        """Pictures to train on and to validate."""
        return len(self.pixels_NCYX), len(self.valid_NCYX)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        ones_N = np.ones(len(self.pixels_NCYX), dtype=np.int64)
        size = images_per_batch(self.config, len(ones_N))
        return plan_batches(ones_N, ones_N, size, self.config.training.seed, epoch)

    def batch(self, indices: Indices, epoch: int) -> ImageBatch:
        """The tensors of these pictures."""
        shift, seed = self.config.data.random_shift, self.config.training.seed
        pixels_NCYX = random_shift(self.pixels_NCYX[indices], shift, seed, epoch, indices)
        return ImageBatch(torch.from_numpy(scale_pixels(pixels_NCYX)), torch.from_numpy(self.labels_N[indices]))

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """All pictures are equally much work."""
        return divide(indices, parts, np.ones(len(indices), dtype=np.int64))

    def tokens(self, indices: Indices) -> int:
        """A picture is one prediction."""
        return len(indices)

    def lines(self, indices: Indices) -> Sequence[int]:
        """The numbers of these pictures, in the order of labels and names."""
        return [int(line) for line in self._lines[indices]]

    def loss(self, model: SequenceClassifier, batch: ImageBatch) -> Loss:
        """Smoothed cross-entropy over the labels, summed over the pictures."""
        return label_loss(
            model.logits(model(batch.pictures_NCYX)), batch.labels_N, self.config.training.label_smoothing
        )

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the labels, and the accuracy of the most frequent one."""
        return label_baseline(self.labels_N, self.valid_labels_N, len(self.config.labels), "the most frequent label")

    def validate(self, model: SequenceClassifier, decode: Decode = "always") -> Validation:
        """Return accuracy and log-loss; nothing is decoded."""
        log_probs_NL = image_log_probs(TorchEncoderEngine(model), self.valid_NCYX, self.config)
        return label_validation(
            log_probs_NL, self.valid_labels_N, self.config.labels, str(self.valid[0].path), self.baseline
        )


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[AnnotatedImage]:
    """Folders of PNGs, one folder a label."""
    return load_and_split(load_labelled_images, files, config, tell, get_task("image").record_name)


def make(config: Config, records: TaskRecords[AnnotatedImage], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
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
    tell(f"batches of {images_per_batch(config, len(records.train))} pictures of {size}x{size}")
    return PreparedTask(config, None, ImageTask(config, records.train, records.valid), {"label_counts": counts})
