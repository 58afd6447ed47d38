"""Captions of images (S11): text generated from the patches of an image.

N images, C channels, Y height, X width
"""

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.data.readers.images import Pixels
from clearhead.decoding.requests import Constraints, Hypothesis, Image, Request
from clearhead.engines import constrained_decoding
from clearhead.tasks.image_classification.inference import num_patches, scaled
from clearhead.tasks.task import LoadedModel


def write_captions(
    model: LoadedModel,
    pixels_NCYX: Pixels,
    settings: DecodingConfig,
    n_best: int = 1,
    constraints: Constraints | None = None,
) -> list[list[Hypothesis]]:
    """Return the best captions of each image. In `decoding.max_length` the input is the number of patches."""
    requests = caption_requests(model.config.model, pixels_NCYX, n_best, constraints)
    return constrained_decoding.decode(model.generating_engine, requests, settings)


def caption_requests(
    config: ModelConfig, pixels_NCYX: Pixels, n_best: int = 1, constraints: Constraints | None = None
) -> list[Request]:
    """Return a request for each image."""

    patches = num_patches(config)
    images = (Image(pixels_CYX, patches) for pixels_CYX in scaled(pixels_NCYX))
    return [Request((), n_best, constraints, image) for image in images]
