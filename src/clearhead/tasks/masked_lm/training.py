"""Masked language modelling (S7): text with pieces hidden in, the hidden pieces out, as BERT learns.

Nothing has to be labelled, and what the encoder learns is a start for classifiers and taggers: `train --from`.

N texts, S length, M hidden places of all of them, V vocabulary
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices, divide, pad
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import MASK
from clearhead.engines.engine import EncoderEngine
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.model.loss import Loss
from clearhead.model.output_heads import MaskedLanguageModel
from clearhead.tasks.masked_lm.evaluation import (
    DocumentRows,
    build_maskable_rows,
    fixed_masks,
    masking_vocabulary,
    max_row_tokens,
    score_masks,
    split_documents,
)
from clearhead.tasks.masked_lm.mask_tokens import require_mask
from clearhead.tasks.masked_lm.masking import MaskableRows, MaskedRow
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, label_baseline
from clearhead.tasks.trainable.batches import SequenceDataset
from clearhead.tasks.trainable.label_training import label_loss
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation
from clearhead.tasks.trainable.text_data import load_and_split_text, tokenizer_texts


@dataclass(frozen=True)
class MaskedBatch:
    """Texts as ids with pieces hidden, where those are, and what they were, row by row."""

    ids_NS: Tensor
    places_NS: Tensor
    targets_M: Tensor


class MaskedLMTask:
    """The task over one training and one validation text."""

    unit = "masks"

    def __init__(self, config: Config, tokenizer: Tokenizer, train: DocumentRows, valid: DocumentRows) -> None:
        self.config, self.tokenizer = config, tokenizer
        self.examples = SequenceDataset.build(train.rows, train.lines)
        self.train = build_maskable_rows(train.rows, tokenizer, config)
        self.valid = build_maskable_rows(valid.rows, tokenizer, config)
        self.vocabulary = masking_vocabulary(tokenizer)

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

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch) -> Loss:
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

    def validate(self, model: MaskedLanguageModel, decode: Decode = "always") -> Validation:
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


def collate(texts: MaskableRows, indices: Sequence[int], hidden: Sequence[MaskedRow], pad_id: int) -> MaskedBatch:
    """The tensors of rows with pieces hidden, padded behind."""
    ids_NS = torch.from_numpy(pad([one.ids_S.tolist() for one in hidden], pad_id))
    places_NS = torch.zeros(ids_NS.shape, dtype=torch.bool)
    for row, one in enumerate(hidden):
        places_NS[row, one.places_M] = True
    targets = [texts.ids[index][one.places_M] for index, one in zip(indices, hidden, strict=True)]
    return MaskedBatch(ids_NS, places_NS, torch.from_numpy(np.concatenate(targets).astype(np.int64)))


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[Document]:
    """Plain text, or JSONL with "text"."""
    require_mask(config.tokenizer.special_tokens)
    return load_and_split_text(files, config, tell)


def make(config: Config, records: TaskRecords[Document], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
    """Learns the tokenizer, and cuts what is too long for the network."""
    if tokenizer is None:
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, tell), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    skips, limit = SkipReport(), max_row_tokens(config)
    train, valid = (
        split_documents(part, tokenizer, limit, skips, Path(name))
        for part, name in ((records.train, "training data"), (records.valid, "validation data"))
    )
    if train.num_long + valid.num_long:
        tell(
            f"{train.num_long + valid.num_long:,} documents are longer than {limit} pieces and are read in parts "
            f"({len(train.rows) + len(valid.rows):,} examples in all); all text is used"
        )
    records.account(skips, tell)
    return PreparedTask(config, tokenizer, MaskedLMTask(config, tokenizer, train, valid))
