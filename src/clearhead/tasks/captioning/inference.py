"""Image captioning (S11): captions generated from image patches, captioning records and evaluation.

N images, C channels, Y height, X width
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from clearhead.config import DecodingConfig, ModelConfig
from clearhead.data.readers.images import Pixels, read_image
from clearhead.data.readers.tables import ColumnNames, TableOptions, read_table
from clearhead.data.records import Corpus, SkipReport, build_corpus
from clearhead.decoding.requests import Constraints, Hypothesis, Image, Request
from clearhead.engines import constrained_decoding
from clearhead.errors import DataError
from clearhead.evaluation.perplexity import perplexity
from clearhead.tasks.image_classification.inference import (
    AnnotatedImage,
    image_shape,
    num_patches,
    scale_pixels,
    stack_pixels,
)
from clearhead.tasks.lexical_constraints import resolve_constraints
from clearhead.tasks.task import LoadedModel, Log, usable_records
from clearhead.tasks.text_codec import TextCodec, check_length
from clearhead.tasks.translation.inference import reference_text, scoring_tokenizer

if TYPE_CHECKING:
    from clearhead.evaluation.metrics import TranslationReport

CODEC = TextCodec()
COLUMNS = ColumnNames("image", "text")


def generate_captions(
    model: LoadedModel, pixels_NCYX: Pixels, settings: DecodingConfig, n_best: int = 1
) -> list[list[Hypothesis]]:
    """Return the `n_best` captions of each image, best first.

    In `decoding.max_length`, the input length is the number of patches.
    """
    constraints = resolve_constraints(settings, model.tokenizer)
    requests = caption_requests(model.config.model, pixels_NCYX, n_best, constraints)
    return constrained_decoding.decode(model.generating_engine, requests, settings)


def caption_requests(
    config: ModelConfig, pixels_NCYX: Pixels, n_best: int = 1, constraints: Constraints | None = None
) -> list[Request]:
    """Return a request for each image."""
    patches = num_patches(config)
    images = (Image(pixels_CYX, patches) for pixels_CYX in scale_pixels(pixels_NCYX))
    return [Request((), n_best, constraints, image) for image in images]


def load_captions(
    paths: Sequence[Path], max_chars: int, minimum: int = 1, table: TableOptions | None = None
) -> Corpus[AnnotatedImage]:
    """Return the images and captions of tables; the path of an image is relative to the folder of its table."""
    skips = SkipReport()
    return build_corpus(_read_tables(paths, skips, max_chars, table), skips, paths, minimum, "captions")


def _read_tables(
    paths: Sequence[Path], skips: SkipReport, max_chars: int, table: TableOptions | None
) -> Iterator[AnnotatedImage]:
    for path in paths:
        for row in read_table(path, COLUMNS, table, skips.add_note):
            name, text = row.first.strip(), row.second.strip()
            reason = _skip_reason(name, text, max_chars)
            if reason:
                skips.add(reason, path, row.line)
                continue
            try:
                pixels_CYX = read_image(path.parent / name)
            except DataError as error:
                raise DataError.at(path, row.line, str(error)) from error
            yield AnnotatedImage(pixels_CYX, text, path.parent / name, row.line)


def _skip_reason(name: str, text: str, max_chars: int) -> str:
    """Return the reason for skipping a line, or an empty string if it is usable."""
    if not name:
        return "empty image" if text else "empty line"
    if not text:
        return "empty text"
    return f"text longer than {max_chars} characters" if len(text) > max_chars else ""


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, log: Log) -> "TranslationReport":
    """Return BLEU, chrF, exact match and perplexity."""
    # Imported here because sacrebleu and torch are not needed to generate captions.
    from clearhead.evaluation.metrics import evaluate_texts
    from clearhead.tasks.captioning.training import mean_caption_nll

    records = usable_records(load_captions(paths, sys.maxsize, table=TableOptions.from_config(model.config.data)), log)
    pixels_NCYX = stack_pixels(records, image_shape(model.config.model))
    rows = model.tokenizer.encode_batch([record.text for record in records])
    for record, row in zip(records, rows, strict=True):
        check_length(record.line, len(row), model.config.model.max_positions - 1)
    captions = generate_captions(model, pixels_NCYX, decoding)
    network: Any = model.network
    return evaluate_texts(
        model.tokenizer.decode_batch(best[0].tokens for best in captions),
        [reference_text(model.tokenizer, record.text) for record in records],
        tokenize=scoring_tokenizer(model.config),
        perplexity=perplexity(mean_caption_nll(network, pixels_NCYX, rows)),
    )
