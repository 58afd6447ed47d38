"""Image classification (S10): one label per image. The functions for images are used for captioning too.

N images, C channels, Y height, X width, L labels
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from clearhead.config import Config, DecodingConfig, ModelConfig
from clearhead.data.readers.images import Pixels, load_image_folder, read_image
from clearhead.data.records import Corpus, SkipReport, build_corpus
from clearhead.engines.engine import ImageEngine
from clearhead.errors import DataError
from clearhead.evaluation.labels import LabelReport, score_labels
from clearhead.tasks.classification.inference import Classification, label_ids, log_softmax, to_classifications
from clearhead.tasks.task import LoadedModel, Log
from clearhead.tasks.text_codec import EncoderCodec

CODEC = EncoderCodec()
MIN_BATCH_IMAGES = 16


@dataclass(frozen=True, eq=False, slots=True)
class AnnotatedImage:
    """An image with its label or caption."""

    pixels_CYX: Pixels
    text: str
    path: Path
    line: int

    @property
    def fields(self) -> tuple[str, str]:
        """Hash of the pixels, and text. By the hash, equal images are either all training or all validation data."""
        shape = repr(self.pixels_CYX.shape).encode()
        return blake2b(shape + self.pixels_CYX.tobytes(), digest_size=16).hexdigest(), self.text


def classify_images(model: LoadedModel, paths: Sequence[Path]) -> list[Classification]:
    """Return the label of each image, with the probability of every label."""
    log_probs_NL = image_log_probs(model.image_engine, read_images(model.config.model, paths), model.config)
    return to_classifications(log_probs_NL, model.config.labels)


def image_log_probs(engine: ImageEngine, pixels_NCYX: Pixels, config: Config) -> NDArray[np.float64]:
    """Return the log-probabilities of the labels of each image, [N, L]."""
    size = max(MIN_BATCH_IMAGES, config.training.batch_tokens // num_patches(config.model))
    parts = [pixels_NCYX[start : start + size] for start in range(0, len(pixels_NCYX), size)]
    return log_softmax(np.concatenate([engine.image_logits(scale_pixels(part)) for part in parts]))


def scale_pixels(pixels_NCYX: Pixels) -> NDArray[np.float32]:
    """Return pixels from 0 to 255 scaled to values from -1 to 1."""
    return pixels_NCYX.astype(np.float32) / np.float32(127.5) - np.float32(1.0)


def num_patches(model: ModelConfig) -> int:
    """Return the number of patches of an image.

    Batch sizes depend on it for networks without patches too, so that all networks are trained with the same batches.
    """
    return math.ceil(model.image_size / model.patch_size) ** 2


def stack_pixels(records: Sequence[AnnotatedImage], shape: tuple[int, ...]) -> Pixels:
    """Return pixels_NCYX of the records; raise DataError for an image whose shape_CYX is not `shape`."""
    for record in records:
        if record.pixels_CYX.shape != shape:
            expected, actual = (f"{size}x{size} in {'grey' if channels == 1 else 'colour'}" for channels, _, size in
                                (shape, record.pixels_CYX.shape))  # fmt: skip
            raise DataError(f"{record.path}: expected an image of {expected}, got {actual}; convert it")
    return np.stack([record.pixels_CYX for record in records])


def image_shape(model: ModelConfig) -> tuple[int, int, int]:
    """Return the shape_CYX that a network accepts."""
    return model.image_channels, model.image_size, model.image_size


def read_images(model: ModelConfig, paths: Sequence[Path]) -> Pixels:
    """Return pixels_NCYX of image files as input of a trained model."""
    records = [AnnotatedImage(read_image(path), "", path, number) for number, path in enumerate(paths, 1)]
    return stack_pixels(records, image_shape(model))


def labels_with_locations(records: Sequence[AnnotatedImage]) -> Iterator[tuple[str, str]]:
    """Yield the file and the label of each image."""
    return ((str(record.path), record.text) for record in records)


def load_labelled_images(folders: Sequence[Path], minimum: int = 1) -> Corpus[AnnotatedImage]:
    """Return the images of folders, in the order of the folders and sorted by label and file name within each."""
    images = [image for folder in folders for image in load_image_folder(folder)]
    records = (
        AnnotatedImage(image.pixels_CYX, image.label, image.path, number) for number, image in enumerate(images, 1)
    )
    return build_corpus(records, SkipReport(), folders, minimum, "images")


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> LabelReport:
    """Return accuracy, F1 and confusion matrix."""
    records, labels = load_labelled_images(paths).records, model.config.labels
    gold_N = label_ids(labels_with_locations(records), labels)
    pixels_NCYX = stack_pixels(records, image_shape(model.config.model))
    log_probs_NL = image_log_probs(model.image_engine, pixels_NCYX, model.config)
    return score_labels(log_probs_NL.argmax(1).tolist(), gold_N.tolist(), labels)
