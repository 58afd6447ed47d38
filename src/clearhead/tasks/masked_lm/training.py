"""Training of masked language models (S7): the masked tokens of a text are the targets, as in BERT.

The training needs no labels. The trained encoder can initialize classifiers and taggers (`train --from`).

N texts, S length, M target positions of all texts, V vocabulary
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
from clearhead.data.batching import Indices, pad_rows
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.tokenizer import MASK_TOKEN
from clearhead.engines.engine import EncoderEngine
from clearhead.engines.torch_forward import TorchEncoderEngine
from clearhead.model.loss import Loss
from clearhead.model.output_heads import MaskedLanguageModel
from clearhead.tasks.masked_lm.inference import (
    DocumentRows,
    apply_fixed_masks,
    build_maskable_rows,
    masking_vocabulary,
    max_row_tokens,
    require_mask,
    score_masks,
    split_documents,
)
from clearhead.tasks.masked_lm.masking import MaskableRows, MaskedRow
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, label_baseline
from clearhead.tasks.trainable.labels import label_loss
from clearhead.tasks.trainable.records import (
    SequenceDataset,
    TaskRecords,
    TrainingFiles,
    load_and_split_text,
    tokenizer_texts,
)
from clearhead.tasks.trainable.task import Decode, ExampleTask, PreparedTask, Validation


@dataclass(frozen=True)
class MaskedBatch:
    """Ids of texts with masked tokens, the positions of the targets, and the targets in the order of the rows."""

    ids_NS: Tensor
    is_target_NS: Tensor
    targets_M: Tensor


class MaskedLMTask(ExampleTask[MaskedBatch]):
    """Masked language modelling over one training and one validation text.

    Each target is one prediction. The number of targets of a row is the same in every epoch.
    """

    unit = "masks"

    def __init__(self, config: Config, tokenizer: Tokenizer, train: DocumentRows, valid: DocumentRows) -> None:
        self.dataset = SequenceDataset.build(train.rows, train.lines)
        self.train = build_maskable_rows(train.rows, tokenizer, config)
        self.valid = build_maskable_rows(valid.rows, tokenizer, config)
        super().__init__(config, self.dataset.examples(self.train.counts_N), len(self.valid.ids))
        self.tokenizer, self.vocabulary = tokenizer, masking_vocabulary(tokenizer)

    def batch(self, indices: Indices, epoch: int) -> MaskedBatch:
        """Return the tensors of these texts. The masks of a text depend on seed, epoch and the index of the text."""
        seed = self.config.training.seed
        rngs = [np.random.default_rng([seed, epoch, int(index)]) for index in indices]
        masked = [
            self.train.mask(int(index), rng, self.vocabulary, only_masks=False)
            for index, rng in zip(indices, rngs, strict=True)
        ]
        return collate(self.train, indices.tolist(), masked, self.tokenizer.pad_id)

    def loss(self, model: MaskedLanguageModel, batch: MaskedBatch) -> Loss:
        """Return the cross-entropy at the target positions, summed."""
        logits_MV = model.logits(model(batch.ids_NS, batch.is_target_NS))
        return label_loss(logits_MV, batch.targets_M, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Loss of the frequencies of maskable tokens, and accuracy of the most frequent one."""
        ids = self.dataset.ids.ids
        text_ids = ids[~np.isin(ids, self.tokenizer.special_ids)].astype(np.int64)
        indices = range(len(self.valid.ids))
        masked = apply_fixed_masks(self.valid, indices, self.tokenizer)
        targets = [self.valid.ids[index][row.positions_M] for index, row in zip(indices, masked, strict=True)]
        size, trivial = self.tokenizer.vocab_size, "the most frequent token"
        return replace(label_baseline(text_ids, np.concatenate(targets), size, trivial), frequencies=TOKENS)

    def validate(self, model: MaskedLanguageModel, decode: Decode = "always") -> Validation:
        """Return accuracy and loss with fixed masks; `decode` has no effect."""
        engine = TorchEncoderEngine(model, self.config.training.batch_tokens)
        report = score_masks(engine, self.valid, self.tokenizer, self.config)
        score, example = 100 * report.accuracy, self._example(engine)
        return Validation(report.loss, score, "accuracy", report.signature, example, self.baseline)

    def _example(self, engine: EncoderEngine) -> tuple[str, str, str]:
        """Return the first validation text with masks, the predicted tokens, and the gold tokens."""
        [masked] = apply_fixed_masks(self.valid, [0], self.tokenizer)
        ids, positions = masked.ids_S.tolist(), masked.positions_M.tolist()
        [log_probs_MV] = engine.masked_lm([ids], [positions])
        token, mask_id = self.tokenizer.token, self.vocabulary.mask_id
        text = "".join(f" {MASK_TOKEN}" if index == mask_id else token(index) for index in ids[1:-1])
        predicted, gold = (" ".join(map(token, ids_M.tolist()))
                           for ids_M in (log_probs_MV.argmax(-1), self.valid.ids[0][positions]))  # fmt: skip
        return text.replace("▁", " ").strip(), predicted.replace("▁", ""), gold.replace("▁", "")


def collate(texts: MaskableRows, indices: Sequence[int], masked: Sequence[MaskedRow], pad_id: int) -> MaskedBatch:
    """Return the tensors of masked rows, padded at the end."""
    ids_NS = torch.from_numpy(pad_rows([row.ids_S.tolist() for row in masked], pad_id))
    is_target_NS = torch.zeros(ids_NS.shape, dtype=torch.bool)
    for number, row in enumerate(masked):
        is_target_NS[number, row.positions_M] = True
    targets = [texts.ids[index][row.positions_M] for index, row in zip(indices, masked, strict=True)]
    return MaskedBatch(ids_NS, is_target_NS, torch.from_numpy(np.concatenate(targets).astype(np.int64)))


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[Document]:
    """Read plain text, or JSON lines with "text"."""
    require_mask(config.tokenizer.special_tokens)
    return load_and_split_text(files, config, log)


def prepare(config: Config, records: TaskRecords[Document], tokenizer: Tokenizer | None, log: Log) -> PreparedTask:
    """Train the tokenizer, split documents that are too long, and return the prepared task."""
    if tokenizer is None:
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, log), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    skips, limit = SkipReport(), max_row_tokens(config)
    train, valid = (
        split_documents(part, tokenizer, limit, skips, Path(name))
        for part, name in ((records.train, "training data"), (records.valid, "validation data"))
    )
    if num_split := train.num_split + valid.num_split:
        log(
            f"{num_split:,} documents have more than {limit} tokens and are split "
            f"({len(train.rows) + len(valid.rows):,} examples in all); all text is used"
        )
    records.report_skips(skips, log)
    return PreparedTask(config, tokenizer, MaskedLMTask(config, tokenizer, train, valid))
