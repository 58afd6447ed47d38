"""Classification of images (S10): one label per image. Also the images of captioning: records, pixels, sizes.

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
from clearhead.tasks.label_prediction import Classification, label_ids, log_softmax, to_classifications
from clearhead.tasks.task import LoadedModel, Log

MIN_BATCH_IMAGES = 16  # per batch


@dataclass(frozen=True, eq=False, slots=True)
class AnnotatedImage:
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


def classify_images(model: LoadedModel, paths: Sequence[Path]) -> list[Classification]:
    """The label of each picture, with the probability of every label."""
    log_probs_NL = image_log_probs(model.image_engine, read_images(model.config.model, paths), model.config)
    return to_classifications(log_probs_NL, model.config.labels)


def image_log_probs(engine: ImageEngine, pixels_NCYX: Pixels, config: Config) -> NDArray[np.float64]:
    """Return the log-probabilities of the labels of each image, [N, L]."""
    size = max(MIN_BATCH_IMAGES, config.training.batch_tokens // num_patches(config.model))
    parts = [pixels_NCYX[start : start + size] for start in range(0, len(pixels_NCYX), size)]
    return log_softmax(np.concatenate([engine.image_logits(scale_pixels(part)) for part in parts]))


def scale_pixels(pixels_NCYX: Pixels) -> NDArray[np.float32]:
    """Return pixels from 0 to 255 as values from -1 to 1, in training as in inference."""
    return pixels_NCYX.astype(np.float32) / np.float32(127.5) - np.float32(1.0)


def num_patches(model: ModelConfig) -> int:
    """How many patches a picture has. Pictures count as so many for every body, so that all get the same batches."""
    return math.ceil(model.image_size / model.patch_size) ** 2


def stack_pixels(records: Sequence[AnnotatedImage], shape: tuple[int, ...]) -> Pixels:
    """pixels_NCYX of records that must all have this shape_CYX."""
    for record in records:
        if record.pixels_CYX.shape != shape:
            kinds = [f"{size}x{size} in {'grey' if colours == 1 else 'colour'}" for colours, _, size in
                     (shape, record.pixels_CYX.shape)]  # fmt: skip
            raise DataError(f"{record.path}: expected a picture of {kinds[0]}, got {kinds[1]}; convert it")
    return np.stack([record.pixels_CYX for record in records])


def image_shape(model: ModelConfig) -> tuple[int, int, int]:
    """shape_CYX of the pictures that a network takes."""
    return model.image_channels, model.image_size, model.image_size


def read_images(model: ModelConfig, paths: Sequence[Path]) -> Pixels:
    """pixels_NCYX of files that a trained model is asked about."""
    records = [AnnotatedImage(read_image(path), "", path, number) for number, path in enumerate(paths, 1)]
    return stack_pixels(records, image_shape(model))


def label_locations(records: Sequence[AnnotatedImage]) -> Iterator[tuple[str, str]]:
    """Each picture's label with the file that it stands in."""
    return ((str(record.path), record.text) for record in records)


def load_labelled_images(folders: Sequence[Path], minimum: int = 1) -> Corpus[AnnotatedImage]:
    """The pictures of whole folders, one after the other, each in the order of labels and names."""
    pictures = [picture for folder in folders for picture in load_image_folder(folder)]
    records = (AnnotatedImage(one.pixels_CYX, one.label, one.path, line) for line, one in enumerate(pictures, 1))
    return build_corpus(records, SkipReport(), folders, minimum, "pictures")


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Log) -> LabelReport:
    """Accuracy, F1 and confusion matrix."""
    records = load_labelled_images(paths).records
    truth_N = label_ids(label_locations(records), model.config.labels)
    log_probs_NL = image_log_probs(
        model.image_engine, stack_pixels(records, image_shape(model.config.model)), model.config
    )
    return score_labels(log_probs_NL.argmax(1).tolist(), truth_N.tolist(), model.config.labels)
