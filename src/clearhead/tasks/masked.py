"""Masked language modelling (S7): text with pieces hidden in, the hidden pieces out, as BERT learns.

Nothing has to be labelled, and what the encoder learns is a start for classifiers and taggers: `train --from`.

N texts, S length, M hidden places of all of them, V vocabulary
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices, divide, length_batches, pad
from clearhead.data.corpus import Skips
from clearhead.data.plain import Document, load_documents
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import MASK
from clearhead.engines.engine import EncoderEngine
from clearhead.engines.torch_encoder_engine import TorchEncoderEngine
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.masks import FIXED_SEED, MaskedReport
from clearhead.model.heads import MaskedNetwork
from clearhead.model.loss import Loss
from clearhead.tasks.baseline import TOKENS, Baseline, label_baseline
from clearhead.tasks.documents import NOUN, encoded, hold_out_text, texts_to_learn
from clearhead.tasks.examples import Examples, framed
from clearhead.tasks.labels import label_loss
from clearhead.tasks.masking import Hidden, Maskable, Vocabulary, units_of
from clearhead.tasks.task import Decode, Files, Made, Ready, Records, Tell, Validation
from clearhead.tasks.texts import FramedText


@dataclass(frozen=True)
class MaskedBatch:
    """Texts as ids with pieces hidden, where those are, and what they were, row by row."""

    ids_NS: Tensor
    places_NS: Tensor
    targets_M: Tensor


@dataclass(frozen=True)
class Cut:
    """Documents as rows that the network can read, and the line that each began on."""

    rows: list[list[int]]
    lines: list[int]
    num_long: int  # documents that were cut into several rows


class MaskedTask:
    """The task over one training and one validation text."""

    unit = "masks"

    def __init__(self, config: Config, tokenizer: Tokenizer, train: Cut, valid: Cut) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.examples = Examples.build(train.rows, train.lines)
        self.train = maskable(train.rows, tokenizer, config)
        self.valid = maskable(valid.rows, tokenizer, config)
        self.vocabulary = vocabulary_of(tokenizer)

    def sizes(self) -> tuple[int, int]:
        """Rows to train on and to validate."""
        return len(self.examples), len(self.valid.ids)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        return self.examples.plan(self.config.training, epoch)

    def batch(self, indices: Indices, epoch: int) -> MaskedBatch:
        """The tensors of these texts. What is hidden in one follows from seed, epoch and its own number."""
        seed = self.config.training.seed
        rngs = [np.random.default_rng([seed, epoch, int(index)]) for index in indices]
        hidden = [
            self.train.hide(int(index), rng, self.vocabulary, only_masks=False)
            for index, rng in zip(indices, rngs, strict=True)
        ]
        return collate(self.train, indices.tolist(), hidden, self.tokenizer.pad_id)

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Neighbours in length stay together."""
        return divide(indices, parts, self.examples.ids.lengths[indices])

    def tokens(self, indices: Indices) -> int:
        """A hidden piece is one prediction; how many there are does not change from epoch to epoch."""
        return int(self.train.counts_N[indices].sum())

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines of the training file on which the documents begin."""
        return self.examples.lines_of(indices)

    def loss(self, model: MaskedNetwork, batch: MaskedBatch) -> Loss:
        """Cross-entropy at the hidden places only, summed over them."""
        logits_MV = model.logits(model(batch.ids_NS, batch.places_NS))
        return label_loss(logits_MV, batch.targets_M, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of the tokens that can be masked, and the accuracy of the most frequent one."""
        ids = self.examples.ids.ids
        text_ids = ids[~np.isin(ids, self.tokenizer.special_ids)].astype(np.int64)
        indices = range(len(self.valid.ids))
        hidden = fixed_masks(self.valid, indices, self.tokenizer)
        targets = [self.valid.ids[index][one.places_M] for index, one in zip(indices, hidden, strict=True)]
        size, trivial = self.tokenizer.vocab_size, "the most frequent token"
        return replace(label_baseline(text_ids, np.concatenate(targets), size, trivial), frequencies=TOKENS)

    def validate(self, model: MaskedNetwork, decode: Decode = "always") -> Validation:
        """Return accuracy and loss at fixed masks; nothing is decoded."""
        engine = TorchEncoderEngine(model, self.config.training.batch_tokens)
        report = score_masks(engine, self.valid, self.tokenizer, self.config)
        score, example = 100 * report.accuracy, self._example(engine)
        return Validation(
            report.loss, report.pseudo_perplexity, score, "accuracy", report.signature, example, self.baseline
        )

    def _example(self, engine: EncoderEngine) -> tuple[str, str, str]:
        """Return the first validation text with masks, the tokens that the model predicts there, and the true ones."""
        [hidden] = fixed_masks(self.valid, [0], self.tokenizer)
        ids, positions = hidden.ids_S.tolist(), hidden.places_M.tolist()
        [log_probs_MV] = engine.masked_lm([ids], [positions])
        shown = "".join(f" {MASK}" if i == self.vocabulary.mask_id else self.tokenizer.piece(i)
                        for i in ids[1:-1])  # fmt: skip
        given, right = (" ".join(map(self.tokenizer.piece, ids_M.tolist()))
                        for ids_M in (log_probs_MV.argmax(-1), self.valid.ids[0][positions]))  # fmt: skip
        return shown.replace("▁", " ").strip(), given.replace("▁", ""), right.replace("▁", "")


def vocabulary_of(tokenizer: Tokenizer) -> Vocabulary:
    """What hiding needs to know of this tokenizer."""
    require_mask(tokenizer.config.special_tokens)
    assert tokenizer.mask_id is not None
    text_ids = np.setdiff1d(np.arange(tokenizer.vocab_size), tokenizer.special_ids)
    return Vocabulary(tokenizer.mask_id, text_ids)


def require_mask(specials: Sequence[str]) -> None:
    """Refuses a vocabulary that has no sign for a hidden piece."""
    if MASK not in specials:
        found = ", ".join(specials) or "none"
        raise ConfigError(
            f"the task mlm needs {MASK} among tokenizer.special_tokens, found {found}; add it, or start from a "
            "model with it"
        )


def maskable(rows: Sequence[Sequence[int]], tokenizer: Tokenizer, config: Config) -> Maskable:
    """The rows with what may be hidden in them."""
    specials = tokenizer.special_ids
    units = [units_of(row, tokenizer.words(row) if config.data.whole_word_masking else None, specials) for row in rows]
    return Maskable.build(rows, units, config.data.mask_probability)


def collate(texts: Maskable, indices: Sequence[int], hidden: Sequence[Hidden], pad_id: int) -> MaskedBatch:
    """The tensors of rows with pieces hidden, padded behind."""
    ids_NS = torch.from_numpy(pad([one.ids_S.tolist() for one in hidden], pad_id))
    places_NS = torch.zeros(ids_NS.shape, dtype=torch.bool)
    for row, one in enumerate(hidden):
        places_NS[row, one.places_M] = True
    targets = [texts.ids[index][one.places_M] for index, one in zip(indices, hidden, strict=True)]
    return MaskedBatch(ids_NS, places_NS, torch.from_numpy(np.concatenate(targets).astype(np.int64)))


def cut_documents(documents: Sequence[Document], tokenizer: Tokenizer, limit: int, skips: Skips, path: Path) -> Cut:
    """Every document as rows of at most `limit` pieces with their frame: a long one gives several of equal length."""
    rows, lines, num_long = [], [], 0
    for document, ids in encoded(documents, tokenizer):
        windows = np.array_split(np.asarray(ids, dtype=np.int64), max(1, math.ceil(len(ids) / (limit - 2))))
        num_long += len(windows) > 1
        for window in windows:
            if not np.isin(window, tokenizer.special_ids).all():
                rows.append(framed(tokenizer, window.tolist()))
                lines.append(document.line)
            else:
                skips.add("no known piece", path, document.line)
    if not rows:
        raise DataError(f"{path}: nothing is left; the tokenizer knows no piece of the text")
    return Cut(rows, lines, num_long)


def fixed_masks(texts: Maskable, indices: Sequence[int], tokenizer: Tokenizer) -> list[Hidden]:
    """Return these rows with the masks that scores are computed at."""
    vocabulary = vocabulary_of(tokenizer)
    rngs = [np.random.default_rng([FIXED_SEED, index]) for index in indices]
    return [texts.hide(index, rng, vocabulary, only_masks=True) for index, rng in zip(indices, rngs, strict=True)]


def score_masks(engine: EncoderEngine, texts: Maskable, tokenizer: Tokenizer, config: Config) -> MaskedReport:
    """Return loss and accuracy over all texts at the fixed masks."""
    total, right = 0.0, 0
    for indices in length_batches(texts.ids.lengths.tolist(), config.training.batch_tokens):
        hidden = fixed_masks(texts, indices, tokenizer)
        found = engine.masked_lm([one.ids_S.tolist() for one in hidden], [one.places_M.tolist() for one in hidden])
        for index, one, log_probs_MV in zip(indices, hidden, found, strict=True):
            targets_M = texts.ids[index][one.places_M]
            total -= float(log_probs_MV[np.arange(len(targets_M)), targets_M].sum(dtype=np.float64))
            right += int((log_probs_MV.argmax(-1) == targets_M).sum())
    pieces = int(texts.counts_N.sum())
    data = config.data
    return MaskedReport(total / pieces, right, pieces, len(texts.ids), data.mask_probability, data.whole_word_masking)


class MaskedLanguage(FramedText):
    """What `--task mlm` does."""

    name = "mlm"
    verb = "fill"
    noun = NOUN
    data_fields: tuple[str, ...] = ("document_unit", "max_tokens", "mask_probability", "whole_word_masking")
    # Positions are learned only as far as rows reach: a longer text would stand on places never trained.
    base: Mapping[str, Any] = {
        "task": "mlm",
        "model": {
            "family": "encoder", "head": "masked_lm", "positions": "learned", "max_positions": 256,
            "activation": "gelu",
        },
        "tokenizer": {"special_tokens": [MASK]},
        "data": {"document_unit": "line", "max_tokens": 256},
        "training": {"label_smoothing": 0.0},
    }  # fmt: skip

    def read(self, files: Files, config: Config, tell: Tell) -> Records[Document]:
        """Plain text, or JSONL with "text"."""
        require_mask(config.tokenizer.special_tokens)
        return hold_out_text(files, config, tell)

    def pieces(self, tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
        """Gaps are marked by [MASK]."""
        from clearhead.tasks.filling import encode_gaps  # which needs what stands above

        return [encode_gaps(tokenizer, text) for text in texts]

    def make(self, config: Config, records: Records[Document], tokenizer: Tokenizer | None, tell: Tell) -> Made:
        """Learns the tokenizer, and cuts what is too long for the network."""
        if tokenizer is None:
            tokenizer = Tokenizer.train(texts_to_learn(records.train, tell), config.tokenizer)
        config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
        skips, limit = Skips(), row_limit(config)
        train, valid = (
            cut_documents(part, tokenizer, limit, skips, Path(name))
            for part, name in ((records.train, "training data"), (records.valid, "validation data"))
        )
        if train.num_long + valid.num_long:
            tell(
                f"{train.num_long + valid.num_long:,} documents are longer than {limit} pieces and are read in parts "
                f"({len(train.rows) + len(valid.rows):,} examples in all); all text is used"
            )
        records.account(skips, tell)
        return Made(config, tokenizer, MaskedTask(config, tokenizer, train, valid))

    def evaluate(self, model: Ready, paths: Sequence[Path], decoding: DecodingConfig, tell: Tell) -> MaskedReport:
        """Accuracy and pseudo-perplexity at the fixed masks."""
        config = model.config
        documents = load_documents(paths, config.data.document_unit).records
        skips = Skips()
        cut = cut_documents(documents, model.tokenizer, row_limit(config), skips, paths[0])
        report = score_masks(
            TorchEncoderEngine(model.network), maskable(cut.rows, model.tokenizer, config), model.tokenizer, config
        )
        return replace(report, skipped=skips.total)


def row_limit(config: Config) -> int:
    """The most pieces of a row, with its frame."""
    limit = min(config.data.max_tokens, config.model.max_positions)
    if limit < 3:
        raise ConfigError(f"data.max_tokens={limit} leaves no room between <s> and </s>; try 256")
    return limit
