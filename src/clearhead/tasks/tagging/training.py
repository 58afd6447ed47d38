"""Training of tagging (S6): the target at the first token of each word is its tag; other tokens have no target.

N sentences, S length in tokens, W words, L tags
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices, pad_rows
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.labelled import BEGIN, INSIDE, OUTSIDE, TaggedSentence, load_tagged, repair_tags, span_type
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.errors import DataError
from clearhead.evaluation.labels import score_spans
from clearhead.model.loss import Loss
from clearhead.model.output_heads import TokenClassifier
from clearhead.tasks.registry import get_task
from clearhead.tasks.tagging.inference import CODEC, check_tags, max_window_tokens, tag_log_probs, tag_split_words
from clearhead.tasks.tagging.overlapping_windows import WordTokens, tokenize_words
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import NUM_SPECIAL_TOKENS
from clearhead.tasks.trainable.baseline import Baseline, count_ids, frequency_loss
from clearhead.tasks.trainable.labels import label_loss
from clearhead.tasks.trainable.records import SequenceDataset, TaskRecords, TrainingFiles, load_and_split
from clearhead.tasks.trainable.task import Decode, ExampleTask, PreparedTask, Validation

IGNORED = -100  # target of tokens without a tag


@dataclass(frozen=True)
class TagBatch:
    """Sentences as ids, and the id of the tag at the first token of each word."""

    ids_NS: Tensor
    tags_NS: Tensor


class TaggingTask(ExampleTask[TagBatch]):
    """Tagging over one training and one validation corpus."""

    unit = "words"

    def __init__(
        self, config: Config, tokenizer: Tokenizer, dataset: SequenceDataset, tags: IdArrays,
        valid: Sequence[TaggedSentence], valid_words: Sequence[WordTokens],
    ) -> None:  # fmt: skip
        words_N = np.array([int((tags[index] != IGNORED).sum()) for index in range(len(tags))])
        super().__init__(config, dataset.examples(words_N), len(valid))
        self.tokenizer, self.dataset, self.tags = tokenizer, dataset, tags
        self.valid, self.valid_words = valid, valid_words

    def batch(self, indices: Indices, epoch: int) -> TagBatch:
        """Return the tensors of these sentences."""
        tags_NS = torch.from_numpy(pad_rows([self.tags[index] for index in indices], IGNORED))
        return TagBatch(self.dataset.rows(indices, self.tokenizer.pad_id), tags_NS)

    def loss(self, model: TokenClassifier, batch: TagBatch) -> Loss:
        """Return the smoothed cross-entropy over the tags, summed over the words."""
        return tag_loss(model.logits(model(batch.ids_NS)), batch.tags_NS, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Loss of tag frequencies, and F1 of a predictor that tags no word, which is 0."""
        size = len(self.config.labels)
        train_V = count_ids(self.tags.ids[self.tags.ids != IGNORED], size)
        valid_V = count_ids((tag for tags in self._valid_tags for tag in tags), size)
        return Baseline(frequency_loss(train_V, valid_V), "tag frequencies", 0.0, "no tags")

    @cached_property
    def _valid_tags(self) -> list[list[int]]:
        id_of = {tag: index for index, tag in enumerate(self.config.labels)}
        return [[id_of[tag] for tag in sentence.tags] for sentence in self.valid]

    def validate(self, model: TokenClassifier, decode: Decode = "always") -> Validation:
        """Return F1 over spans and log-loss per word; `decode` has no effect."""
        engine = TorchEncoderEngine(model, self.config.training.batch_tokens)
        scores = tag_log_probs(engine, self.valid_words, self.tokenizer, self.config)
        predicted = [repair_tags(self.config.labels[tag] for tag in log_probs_WL.argmax(1)) for log_probs_WL in scores]
        gold = self._valid_tags
        nll_N = [-log_probs_WL[range(len(tags)), tags].sum() for log_probs_WL, tags in zip(scores, gold, strict=True)]
        loss = float(sum(nll_N)) / sum(map(len, gold))
        report = score_spans(predicted, [sentence.tags for sentence in self.valid])
        first = self.valid[0]
        output, reference = (str(tag_split_words(first.words, tags)) for tags in (predicted[0], first.tags))
        example = (first.fields[0], output, reference)
        return Validation(loss, 100 * report.total.f1, "f1", report.signature, example, self.baseline)


def tag_loss(logits_NSL: Tensor, tags_NS: Tensor, smoothing: float) -> Loss:
    """Return the loss of logits against the gold tags, summed over the positions that have one."""
    has_tag_NS = tags_NS != IGNORED
    return label_loss(logits_NSL[has_tag_NS], tags_NS[has_tag_NS], smoothing)


def collect_tags(records: Sequence[TaggedSentence]) -> list[str]:
    """Return O, and the B- and I- tag of each type in these sentences, even if only one of the two occurs."""
    types = sorted({span_type(tag) for record in records for tag in record.tags} - {""})
    return [OUTSIDE, *(prefix + name for name in types for prefix in (BEGIN, INSIDE))]


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[TaggedSentence]:
    """Read CoNLL files: a word and its tag per line."""

    def load(paths: Sequence[Path], minimum: int) -> Corpus[TaggedSentence]:
        return load_tagged(paths, config.data.max_chars, minimum)

    return load_and_split(load, files, config, log, get_task("tag").record_name)


def prepare(
    config: Config, records: TaskRecords[TaggedSentence], tokenizer: Tokenizer | None, log: Log
) -> PreparedTask:
    """Train the tokenizer, collect the tags of training and held-out data, and return the prepared task."""
    labels = list(config.labels) or collect_tags(records.corpus.records)
    if len(labels) == 1:
        raise DataError("expected tags such as B-PER, found only O; is the tag the last column?")
    check_tags(records.valid, labels, "validation data")
    if tokenizer is None:
        tokenizer = Tokenizer.train((record.fields[0] for record in records.train), config.tokenizer)
    data_settings = {"vocab_size": tokenizer.vocab_size, "num_labels": len(labels)}
    config = configs.override(config, {"model": data_settings, "labels": labels})
    skips, limit = SkipReport(), max_window_tokens(config)
    train, words = _drop_long(records.train, tokenizer, limit, skips, "training data")
    valid, valid_words = _drop_long(records.valid, tokenizer, limit, skips, "validation data")
    records.report_skips(skips, log)
    dataset = SequenceDataset.build(
        [CODEC.add_special_tokens(tokenizer, sentence.ids) for sentence in words], [record.line for record in train]
    )
    tags = IdArrays.build(_targets(record, sentence, labels) for record, sentence in zip(train, words, strict=True))
    return PreparedTask(config, tokenizer, TaggingTask(config, tokenizer, dataset, tags, valid, valid_words))


def _drop_long(
    records: Sequence[TaggedSentence], tokenizer: Tokenizer, limit: int, skips: SkipReport, path: str
) -> tuple[list[TaggedSentence], list[WordTokens]]:
    """Return the sentences of at most `limit` tokens, and their tokens; add the others to `skips`."""
    short: list[TaggedSentence] = []
    words: list[WordTokens] = []
    for record in records:
        sentence = tokenize_words(tokenizer, record.words)
        if len(sentence.ids) > limit:
            skips.add(f"longer than {limit} tokens", path, record.line)
        else:
            short.append(record)
            words.append(sentence)
    if not short:
        raise DataError(f"{path}: all sentences have more than {limit} tokens; raise data.max_tokens or shorten them")
    return short, words


def _targets(record: TaggedSentence, sentence: WordTokens, labels: Sequence[str]) -> list[int]:
    """Return the id of each word's tag at the position of its first token in the row, and IGNORED elsewhere."""
    row = [IGNORED] * (len(sentence.ids) + NUM_SPECIAL_TOKENS)
    for first, tag in zip(sentence.firsts, record.tags, strict=True):
        row[first + 1] = labels.index(tag)
    return row
