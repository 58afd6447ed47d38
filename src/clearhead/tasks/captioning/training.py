"""Training of image captioning (S11): a Transformer whose encoder reads the patches of an image.

N images, C channels, Y height, X width, T target length
"""

from collections import Counter
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.images import Pixels
from clearhead.data.readers.tables import TableOptions
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import ConfigError
from clearhead.evaluation.metrics import count_outputs, exact_match
from clearhead.tasks.captioning.inference import caption_requests, load_captions
from clearhead.tasks.image_classification.inference import (
    AnnotatedImage,
    image_shape,
    num_patches,
    scale_pixels,
    stack_pixels,
)
from clearhead.tasks.image_classification.training import images_per_batch, random_shift
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import check_length, max_training_tokens
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, count_targets, frequency_loss
from clearhead.tasks.trainable.records import TaskRecords, TrainingFiles, drop_long, load_and_split
from clearhead.tasks.trainable.seq2seq import (
    EXTRA_TOKENS,
    DecodingScore,
    Seq2SeqBatch,
    Seq2SeqTask,
    collate_targets,
    decode_requests,
    mean_nll,
)
from clearhead.tasks.trainable.task import ExampleTable, PreparedTask
from clearhead.tasks.translation.inference import reference_text

IMAGES_PER_CALL = 256


class CaptioningTask(Seq2SeqTask):
    """Captioning over one training and one validation set."""

    score_name = "exact_match"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, train: Sequence[AnnotatedImage], rows: Sequence[Sequence[int]],
        valid: Sequence[AnnotatedImage],
    ) -> None:  # fmt: skip
        self.texts = IdArrays.build(rows)
        patches, target_lengths_N = num_patches(config.model), self.texts.lengths + 1
        longest = max(patches, int(target_lengths_N.max()))
        batch_tokens = min(config.training.batch_tokens, longest * images_per_batch(config, len(train)))
        lines_N = np.array([record.line for record in train], dtype=np.int64)
        patches_N = np.full(len(train), patches, dtype=np.int64)
        examples = ExampleTable(patches_N, target_lengths_N, target_lengths_N, lines_N)
        super().__init__(config, tokenizer, examples, len(valid), batch_tokens)
        self.valid, shape = valid, image_shape(config.model)
        self.pixels_NCYX, self.valid_NCYX = stack_pixels(train, shape), stack_pixels(valid, shape)
        self.valid_rows = tokenizer.encode_batch([record.text for record in valid])

    def batch(self, indices: Indices, epoch: int) -> Seq2SeqBatch:
        """Return the tensors of these images, each shifted at random, and of their captions."""
        shift, seed = self.config.data.random_shift, self.config.training.seed
        pixels_NCYX = random_shift(self.pixels_NCYX[indices], shift, seed, epoch, indices)
        targets = [self.texts[index].tolist() for index in indices]
        return collate_targets(torch.from_numpy(scale_pixels(pixels_NCYX)), targets, self.config.model)

    @cached_property
    def baseline(self) -> Baseline:
        """Loss of target token frequencies, and exact match of the most frequent training caption."""
        size, eos_id = self.tokenizer.vocab_size, self.tokenizer.eos_id
        train_V = count_targets(self.texts, size, eos_id)
        valid_V = count_targets(IdArrays.build(self.valid_rows), size, eos_id)
        rows = Counter(tuple(self.texts[index].tolist()) for index in range(len(self.texts)))
        [(most_frequent, _)] = rows.most_common(1)
        score = 100 * sum(tuple(row) == most_frequent for row in self.valid_rows) / len(self.valid_rows)
        return Baseline(frequency_loss(train_V, valid_V), TOKENS, score, "the most frequent caption")

    def valid_nll(self, model: Any) -> float:
        """Return the mean negative log-likelihood per token of the validation captions."""
        return mean_caption_nll(model, self.valid_NCYX, self.valid_rows)

    def score_outputs(self, model: Any, count: int) -> DecodingScore:
        """Return the share of greedy captions of the first `count` validation images that equal their reference."""
        records = self.valid[:count]
        # Images have no source length, so the limit follows from the longest training caption.
        longest = int(self.texts.lengths.max()) + EXTRA_TOKENS
        requests = caption_requests(self.config.model, self.valid_NCYX[:count])
        outputs = decode_requests(requests, model, DecodingConfig(beam_size=1, max_length=str(longest)))
        texts = self.tokenizer.decode_batch(outputs)
        references = [reference_text(self.tokenizer, record.text) for record in records]
        example = (str(records[0].path), texts[0], records[0].text)
        score = 100 * exact_match(texts, references)
        return DecodingScore(score, f"examples:{count}", example, count_outputs(texts, references))


def mean_caption_nll(network: Any, pixels_NCYX: Pixels, rows: Sequence[Sequence[int]]) -> float:
    """Return the mean negative log-likelihood per token of the captions, end tokens included."""
    parts = (slice(start, start + IMAGES_PER_CALL) for start in range(0, len(rows), IMAGES_PER_CALL))
    batches = (
        collate_targets(torch.from_numpy(scale_pixels(pixels_NCYX[part])), rows[part], network.config) for part in parts
    )
    return mean_nll(network, batches, network.config.pad_id)


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[AnnotatedImage]:
    """Read tables of image and text."""

    def load(paths: Sequence[Path], minimum: int) -> Corpus[AnnotatedImage]:
        return load_captions(paths, config.data.max_chars, minimum, TableOptions.from_config(config.data))

    return load_and_split(load, files, config, log, get_task("caption").record_name)


def prepare(
    config: Config, records: TaskRecords[AnnotatedImage], tokenizer: Tokenizer | None, log: Log
) -> PreparedTask:
    """Train the tokenizer on the captions, set the image size from the data, and return the prepared task."""
    if config.model.input != "image":
        raise ConfigError(f"captions need a network that reads images: model.input=image, not {config.model.input}.")
    if tokenizer is None:
        tokenizer = Tokenizer.train((record.text for record in records.train), config.tokenizer)
    channels, size, _ = records.train[0].pixels_CYX.shape
    data_settings = {"vocab_size": tokenizer.vocab_size, "image_size": size, "image_channels": channels}
    config = configs.override(config, {"model": data_settings})
    limit = max_training_tokens(config) - 1  # the end token needs a position too
    rows = tokenizer.encode_batch([record.text for record in records.train])
    skips = SkipReport()
    train, rows = drop_long(records.train, rows, limit, skips, Path("captions"))
    records.report_skips(skips, log)
    valid_rows = tokenizer.encode_batch([record.text for record in records.valid])
    for record, row in zip(records.valid, valid_rows, strict=True):
        check_length(record.line, len(row), config.model.max_positions - 1, "the validation caption on line")
    return PreparedTask(config, tokenizer, CaptioningTask(config, tokenizer, train, rows, records.valid))
