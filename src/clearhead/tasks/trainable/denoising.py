"""Denoising (S9): a text with holes in, what was in the holes out (T5, section 3.1.4 and appendix D).

    Thank you <x0> me to your party <x1> week.    ->    <x0> for inviting <x1> last <x2>

How holes are made and marked stands in `holes`. N texts
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices, divide, plan_batches, work_of_pairs
from clearhead.data.corpus import Skips
from clearhead.data.plain import Document, load_documents
from clearhead.data.store import IdStore, PairStore
from clearhead.data.tokenizer import Tokenizer
from clearhead.errors import DataError
from clearhead.model.loss import Loss
from clearhead.tasks.lexical_constraints import constraints_of
from clearhead.tasks.span_corruption import Corruption, decode_marked, sentinels_of, spans_of
from clearhead.tasks.task import LoadedModel, Tell
from clearhead.tasks.trainable.base import Decode, Files, PreparedTask, Records, Validation
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, count_targets, frequency_loss
from clearhead.tasks.trainable.documents import encoded, hold_out_text, texts_to_learn
from clearhead.tasks.trainable.examples import Examples
from clearhead.tasks.trainable.targets import TranslationBatch, collate, mean_nll, pair_batches, writing_loss
from clearhead.tasks.trainable.translation import need_text_to_text
from clearhead.tasks.trainable.validation_decoding import LENGTH_FACTOR, lines_to_decode, validation_decoding, write

NUM_SENTINELS = 32
BASELINE_TEXTS = 10_000  # training texts from which token frequencies are counted


class DenoisingTask:
    """Denoising over one training and one validation corpus."""

    unit = "tok"

    def __init__(self, config: Config, tokenizer: Tokenizer, train: Examples, valid: Examples) -> None:
        self.config, self.tokenizer, self.train = config, tokenizer, train
        self.corruption = Corruption(sentinels_of(tokenizer), config.data.mask_probability)
        texts = [valid.ids[index].tolist() for index in range(len(valid))]
        self.valid = self.corruption.fixed(texts, [int(line) for line in valid.lines])
        counts_N2 = np.array([self.corruption.counts(int(length)) for length in train.ids.lengths], dtype=np.int64)
        hidden_N, spans_N = counts_N2.T
        self._source_lengths = train.ids.lengths - hidden_N + spans_N + 1
        self._target_lengths = hidden_N + spans_N + 2

    def sizes(self) -> tuple[int, int]:
        """Texts to train on and to validate."""
        return len(self.train), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        training = self.config.training
        return plan_batches(self._source_lengths, self._target_lengths, training.batch_tokens, training.seed, epoch)

    def batch(self, indices: Indices, epoch: int) -> TranslationBatch:
        """The tensors of these texts, with other holes in every epoch."""
        seed = self.config.training.seed
        made = [
            self.corruption.apply(self.train.ids[index].tolist(), np.random.default_rng([seed, epoch, int(index)]))
            for index in indices
        ]
        return collate([one.source for one in made], [one.target for one in made], self.config.model)

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Neighbours in length stay together."""
        return divide(indices, parts, work_of_pairs(self._source_lengths[indices], self._target_lengths[indices]))

    def tokens(self, indices: Indices) -> int:
        """Hidden pieces, sentinels and the ends."""
        return int(self._target_lengths[indices].sum())

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines of the training file."""
        return self.train.lines_of(indices)

    def loss(self, model: Any, batch: TranslationBatch) -> Loss:
        """Smoothed cross-entropy, summed over the target tokens."""
        return writing_loss(model, batch, self.tokenizer.pad_id, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the target tokens of the first training texts, as the first epoch hides them."""
        seed, size, end = self.config.training.seed, self.tokenizer.vocab_size, self.tokenizer.eos_id
        made = (
            self.corruption.apply(self.train.ids[index].tolist(), np.random.default_rng([seed, 0, index])).target
            for index in range(min(len(self.train), BASELINE_TEXTS))
        )
        train_V = count_targets(IdStore.build(made), size, end)
        return Baseline(frequency_loss(train_V, count_targets(self.valid.target, size, end)), TOKENS, 0.0, "no output")

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return the loss over all validation texts, and the share of spans of the first ones that are restored."""
        batches = pair_batches(self.valid, self.config.model, self.config.training.batch_tokens)
        loss = mean_nll(model, batches, self.tokenizer.pad_id)
        count = min(len(self.valid), self.config.training.validate_lines)
        count = lines_to_decode(decode, loss, self.baseline, count)
        perplexity = math.exp(min(loss, 50.0))
        if not count:
            return Validation(loss, perplexity, None, "span_match", "", ("", "", ""), self.baseline)
        hidden = self.config.data.mask_probability
        decoding = validation_decoding(max(LENGTH_FACTOR, hidden / (1 - hidden)))
        report = score_holes(model, self.valid, count, self.tokenizer, decoding)
        shown_as = (decode_marked(self.tokenizer, ids) for ids in report.example)
        example = (next(shown_as), next(shown_as), next(shown_as))
        score, signature = 100 * report.share, report.signature
        return Validation(loss, perplexity, score, "span_match", signature, example, self.baseline)


@dataclass(frozen=True)
class Holes:
    """How many holes were filled right, and one example: source, what was written, what was expected."""

    right: int
    spans: int
    texts: int
    example: tuple[Sequence[int], Sequence[int], Sequence[int]]

    @property
    def share(self) -> float:
        """Of the holes, from 0 to 1."""
        return self.right / self.spans

    @property
    def signature(self) -> str:
        """What was counted over."""
        return f"texts:{self.texts}|spans:{self.spans}"


def score_holes(network: Any, store: PairStore, count: int, tokenizer: Tokenizer, decoding: DecodingConfig) -> Holes:
    """The first `count` texts, filled by search. A hole is right when every piece of it is."""
    sources = [store.source[index].tolist() for index in range(count)]
    targets = [store.target[index].tolist() for index in range(count)]
    written = write(network, sources, tokenizer.eos_id, decoding, constraints_of(decoding, tokenizer))
    sentinels = sentinels_of(tokenizer)
    right = spans = 0
    for given, target in zip(written, targets, strict=True):
        expected, found = spans_of(target, sentinels), spans_of(given, sentinels)
        del expected[target[-1]]  # the last sentinel only ends the last span
        right += sum(found.get(sentinel) == span for sentinel, span in expected.items())
        spans += len(expected)
    shown = count // 2
    return Holes(right, spans, count, (sources[shown], written[shown], targets[shown]))


@dataclass(frozen=True)
class DenoisingReport:
    """Scores on a test set."""

    holes: Holes
    perplexity: float

    def to_json(self) -> dict[str, Any]:
        """For programs."""
        return {
            "span_match": {"score": self.holes.share, "signature": self.holes.signature},
            "perplexity": self.perplexity,
            "examples": self.holes.texts,
        }

    def __str__(self) -> str:
        return (
            f"span match {100 * self.holes.share:.2f} % {self.holes.signature}\n"
            f"perplexity {self.perplexity:.3f}\nexamples {self.holes.texts}"
        )


def tokenise(documents: Sequence[Document], tokenizer: Tokenizer, limit: int, skips: Skips, path: Path) -> Examples:
    """The documents as ids; longer ones are cut into equal parts of at most `limit` pieces."""
    parts: list[list[int]] = []
    lines: list[int] = []
    for document, ids in encoded(documents, tokenizer):
        if len(ids) < 2:
            skips.add("fewer than 2 pieces", path, document.line)
            continue
        for part in np.array_split(ids, math.ceil(len(ids) / limit)):
            parts.append(part.tolist())
            lines.append(document.line)
    if not parts:
        raise DataError(f"{path}: expected texts of at least 2 pieces, found none; set data.document_unit or add text")
    return Examples.build(parts, lines)


def longest_text(config: Config) -> int:
    """So many pieces a text may have: one place is the end's, and there may be a sentinel more than what it hides."""
    return max(2, min(config.data.max_tokens, config.model.max_positions) - 2)


def read(files: Files, config: Config, tell: Tell) -> Records[Document]:
    """Plain text."""
    return hold_out_text(files, config, tell)


def make(config: Config, records: Records[Document], tokenizer: Tokenizer | None, tell: Tell) -> PreparedTask:
    """Learns a tokenizer with sentinels."""
    need_text_to_text(config)
    if tokenizer is None:
        tokenizer = Tokenizer.train(texts_to_learn(records.train, tell), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    limit, skips = longest_text(config), Skips()
    train = tokenise(records.train, tokenizer, limit, skips, Path("training data"))
    valid = tokenise(records.valid, tokenizer, limit, skips, Path("validation data"))
    records.account(skips, tell)
    return PreparedTask(config, tokenizer, DenoisingTask(config, tokenizer, train, valid))


def evaluate(model: LoadedModel, paths: Sequence[Path], decoding: DecodingConfig, tell: Tell) -> DenoisingReport:
    """How many holes of fixed places are filled right, and the perplexity of what was in them."""
    tokenizer, config = model.tokenizer, model.config
    documents = load_documents(paths, config.data.document_unit).records
    skips = Skips()
    examples = tokenise(documents, tokenizer, longest_text(config), skips, paths[0])
    for line in skips.lines():
        tell(f"skipped {line}")
    texts = [examples.ids[index].tolist() for index in range(len(examples))]
    corruption = Corruption(sentinels_of(tokenizer), config.data.mask_probability)
    store = corruption.fixed(texts, [int(line) for line in examples.lines])
    nll = mean_nll(model.network, pair_batches(store, config.model, 4096), tokenizer.pad_id)
    return DenoisingReport(score_holes(model.network, store, len(store), tokenizer, decoding), math.exp(nll))
