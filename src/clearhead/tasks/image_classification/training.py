"""Training of image classification (S10) with a vision Transformer, a convolutional network or an MLP.

N images, C channels, Y height, X width, L labels
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from clearhead import config as configs
from clearhead.config import Config
from clearhead.config.model import IMAGE_FAMILIES
from clearhead.data.batching import Indices
from clearhead.data.readers.images import Pixels
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.errors import ConfigError, DataError
from clearhead.tasks.classification.inference import label_ids
from clearhead.tasks.image_classification.inference import (
    MIN_BATCH_IMAGES,
    AnnotatedImage,
    image_log_probs,
    image_shape,
    labels_with_locations,
    load_labelled_images,
    num_patches,
    scale_pixels,
    stack_pixels,
)
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.labels import LabelBatch, LabelTask, report_labels
from clearhead.tasks.trainable.records import TaskRecords, TrainingFiles, load_and_split
from clearhead.tasks.trainable.task import ExampleTable, PreparedTask

# Rule of thumb: an epoch of a small folder has at least this many updates, unless batches would become smaller than
# MIN_BATCH_IMAGES.
UPDATES_PER_EPOCH = 20


def images_per_batch(config: Config, num_images: int) -> int:
    """Return the batch size in images: the number that `batch_tokens` allows, less if an epoch had too few updates."""
    allowed = max(1, config.training.batch_tokens // num_patches(config.model))
    return min(allowed, max(MIN_BATCH_IMAGES, num_images // UPDATES_PER_EPOCH))


def random_shift(pixels_NCYX: Pixels, max_shift: int, seed: int, epoch: int, indices: Indices) -> Pixels:
    """Return each image shifted by up to `max_shift` pixels vertically and horizontally, with its border repeated.

    The shift is a pure function of seed, epoch and index, independent of the rest of the batch.
    """
    if not max_shift:
        return pixels_NCYX
    size = pixels_NCYX.shape[-1]
    padding = (max_shift, max_shift)
    padded_NCYX = np.pad(pixels_NCYX, ((0, 0), (0, 0), padding, padding), mode="edge")
    shifted_NCYX = np.empty_like(pixels_NCYX)
    for row, index in enumerate(indices):
        y, x = np.random.default_rng([seed, epoch, int(index)]).integers(0, 2 * max_shift + 1, 2)
        shifted_NCYX[row] = padded_NCYX[row, :, y : y + size, x : x + size]
    return shifted_NCYX


class ImageClassificationTask(LabelTask):
    """Classification of images over one training and one validation set."""

    unit = "images"

    def __init__(self, config: Config, train: Sequence[AnnotatedImage], valid: Sequence[AnnotatedImage]) -> None:
        ones_N = np.ones(len(train), dtype=np.int64)
        lines_N = np.array([record.line for record in train], dtype=np.int64)
        super().__init__(
            config,
            ExampleTable(ones_N, ones_N, ones_N, lines_N),
            label_ids(labels_with_locations(train), config.labels),
            label_ids(labels_with_locations(valid), config.labels),
            images_per_batch(config, len(train)),
        )
        shape = image_shape(config.model)
        self.pixels_NCYX, self.valid_NCYX = stack_pixels(train, shape), stack_pixels(valid, shape)
        self.valid = valid

    def batch(self, indices: Indices, epoch: int) -> LabelBatch:
        """Return the tensors of these images, each shifted at random."""
        shift, seed = self.config.data.random_shift, self.config.training.seed
        pixels_NCYX = random_shift(self.pixels_NCYX[indices], shift, seed, epoch, indices)
        return LabelBatch(torch.from_numpy(scale_pixels(pixels_NCYX)), torch.from_numpy(self.labels_N[indices]))

    def valid_log_probs(self, model: Any) -> NDArray[np.float64]:
        """Return the log-probabilities of the labels of each validation image, [N, L]."""
        return image_log_probs(TorchEncoderEngine(model), self.valid_NCYX, self.config)

    @property
    def valid_input(self) -> str:
        """The file of the first validation image."""
        return str(self.valid[0].path)


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[AnnotatedImage]:
    """Read folders of PNG files, one folder per label."""
    return load_and_split(load_labelled_images, files, config, log, get_task("image").record_name)


def prepare(
    config: Config, records: TaskRecords[AnnotatedImage], tokenizer: Tokenizer | None, log: Log
) -> PreparedTask:
    """Collect the labels, set the image size from the data, and return the prepared task, which has no tokenizer."""
    if config.model.family not in IMAGE_FAMILIES:
        raise ConfigError(f"model.family={config.model.family} reads no images; use {', '.join(IMAGE_FAMILIES)}.")
    counts = report_labels([record.text for record in records.corpus.records], "images", log)
    labels = list(config.labels) or sorted(counts)
    if len(labels) < 2:
        raise DataError(f"expected images of at least two labels, found {labels}; make one folder per label")
    channels, size, _ = records.train[0].pixels_CYX.shape
    data_settings: dict[str, Any] = {"image_size": size, "image_channels": channels, "num_labels": len(labels)}
    if config.model.family == "cnn" and config.model.pooling != "mean":
        log("model.pooling=mean, the only pooling of a convolutional network")
        data_settings["pooling"] = "mean"
    config = configs.override(config, {"model": data_settings, "labels": labels})
    log(f"batches of {images_per_batch(config, len(records.train))} images of {size}x{size}")
    task = ImageClassificationTask(config, records.train, records.valid)
    return PreparedTask(config, None, task, {"label_counts": counts})
