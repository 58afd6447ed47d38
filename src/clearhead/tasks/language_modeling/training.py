"""Training of language models (S8): next-token prediction in windows over concatenated documents.

N windows or rows of a batch, T tokens
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial

import torch
from torch import Tensor

from clearhead import config as configs
from clearhead.config import Config, DecodingConfig
from clearhead.data.batching import Indices, PackedDocuments, batch_by_length, pad_rows, split_by_work
from clearhead.data.corpus.cached_corpus import CachedDocuments
from clearhead.data.corpus.encoding import EncodingSettings, encode_cached
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.requests import Request
from clearhead.engines.torch_forward import device_of, evaluating, on_device
from clearhead.errors import ConfigError
from clearhead.model.language_model import LanguageModel
from clearhead.model.loss import Loss, cross_entropy
from clearhead.tasks.engines import network_engine, prompt_context
from clearhead.tasks.language_modeling.inference import NextTokenBatch, score_documents
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import max_training_tokens
from clearhead.tasks.trainable.baseline import Baseline, count_ids, count_targets, frequency_loss
from clearhead.tasks.trainable.records import (
    DOCUMENTS,
    TaskRecords,
    TrainingFiles,
    load_and_split_text,
    tokenizer_texts,
)
from clearhead.tasks.trainable.task import Decode, PreparedTask, Validation

# Memory-mapped ids are released after this number of windows, each of which may map 64 KiB.
RELEASE_INTERVAL = 1024
PROMPT_TOKENS, CONTINUATION_TOKENS = 12, 24  # lengths of the example in the training display


@dataclass(frozen=True)
class LanguageModelingBatch:
    """Windows of packed text with their targets.

    `documents_NT` has the document of each token; None if attention is not limited to documents.
    """

    inputs_NT: Tensor
    targets_NT: Tensor
    documents_NT: Tensor | None


class LanguageModelingTask:
    """Language modelling over packed documents. Each epoch divides the text into different windows."""

    unit = "tok"

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer,
        train: PackedDocuments,
        valid: Sequence[Document],
        valid_ids: list[list[int]],
    ) -> None:
        self.config, self.tokenizer, self.train = config, tokenizer, train
        self.valid, self.valid_ids = valid, valid_ids
        self._unreleased = 0

    def num_examples(self) -> tuple[int, int]:
        """Return the number of training windows and of validation documents."""
        return len(self.train), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """Return the batches of one epoch: its windows, shuffled."""
        return self.train.plan(self.config.training.batch_tokens, self.config.training.seed, epoch)

    def batch(self, indices: Indices, epoch: int) -> LanguageModelingBatch:
        """Return the tensors of these windows."""
        self._unreleased += len(indices)
        if self._unreleased > RELEASE_INTERVAL:
            self.train.release_pages()
            self._unreleased = 0
        windows = self.train.windows(indices, self.tokenizer.pad_id)
        # Windows of a single document need no document mask and are faster without it.
        is_unmasked = self.config.data.attend_across_documents or windows.has_single_documents
        documents_NT = None if is_unmasked else torch.from_numpy(windows.documents_NT)
        inputs_NT, targets_NT = torch.from_numpy(windows.inputs_NT), torch.from_numpy(windows.targets_NT)
        return LanguageModelingBatch(inputs_NT, targets_NT, documents_NT)

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Return the batch divided into parts of equal work."""
        return split_by_work(indices, parts, self.train.lengths(indices))

    def tokens(self, indices: Indices) -> int:
        """Return the number of tokens of these windows, each of which has a target."""
        return int(self.train.lengths(indices).sum())

    def lines(self, indices: Indices) -> Sequence[int]:
        """Return the first line of the first document of each window."""
        return self.train.lines_of(indices)

    def loss(self, model: LanguageModel, batch: LanguageModelingBatch) -> Loss:
        """Return the cross-entropy of the next tokens, summed."""
        hidden_NTD = model(batch.inputs_NT, batch.documents_NT)
        smoothing = self.config.training.label_smoothing
        return cross_entropy(hidden_NTD, model.output.weight, batch.targets_NT, self.tokenizer.pad_id, smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Loss of token frequencies. The end of each document is a target, its start is not."""
        tokenizer, inputs = self.tokenizer, self.train.inputs
        train_V = count_ids(inputs.ids, tokenizer.vocab_size)
        train_V[tokenizer.eos_id] += train_V[tokenizer.bos_id]
        train_V[tokenizer.bos_id] = 0
        inputs.release_pages()
        valid_V = count_targets(IdArrays.build(self.valid_ids), tokenizer.vocab_size, tokenizer.eos_id)
        return Baseline(frequency_loss(train_V, valid_V))

    def validate(self, model: LanguageModel, decode: Decode = "always") -> Validation:
        """Return the mean log-probability per token, in windows without overlap: half the work of `evaluate`."""
        window, nll = max_training_tokens(self.config), partial(total_nll, model, self.config)
        report = score_documents(nll, self.config, self.tokenizer, self.valid, self.valid_ids, window)
        return Validation(report.nats, -report.nats, "log_prob", report.signature, self._example(model), self.baseline)

    def _example(self, model: LanguageModel) -> tuple[str, str, str]:
        """Return the beginning of a document, the model's greedy continuation, and the reference."""
        tokenizer, ids = self.tokenizer, self.valid_ids[len(self.valid_ids) // 2]
        cut = min(PROMPT_TOKENS, len(ids) // 2, max_training_tokens(self.config) - 1)
        request = Request((tokenizer.bos_id, *ids[:cut]), limit=CONTINUATION_TOKENS)
        engine = network_engine(model, prompt_context(self.config, tokenizer))
        [[best]] = engine.run([request], DecodingConfig(beam_size=1))
        reference = ids[cut : cut + CONTINUATION_TOKENS]
        return tokenizer.decode(ids[:cut]), tokenizer.decode(best.tokens), tokenizer.decode(reference)


def total_nll(network: LanguageModel, config: Config, rows: Sequence[NextTokenBatch]) -> float:
    """Return the negative log-likelihood summed over all targets except padding.

    Rows of similar length are computed in one batch.
    """
    total, pad_id = 0.0, config.model.pad_id
    with evaluating(network):
        for batch in batch_by_length([len(row.inputs) for row in rows], config.training.batch_tokens):
            sides = ([rows[index].inputs for index in batch], [rows[index].targets for index in batch])
            tensors = (on_device(torch.from_numpy(pad_rows(side, pad_id)), device_of(network)) for side in sides)
            inputs_NT, targets_NT = tensors
            total += float(cross_entropy(network(inputs_NT), network.output.weight, targets_NT, pad_id, 0.0).nll)
    return total


def pack_documents(records: TaskRecords[Document], tokenizer: Tokenizer, window: int, log: Log) -> PackedDocuments:
    """Return the concatenated training documents: in memory, or memory-mapped if they are cached on disk."""
    start, end = tokenizer.bos_id, tokenizer.eos_id
    if not isinstance(records.train, CachedDocuments):
        ids = tokenizer.encode_batch([document.text for document in records.train])
        return PackedDocuments.build(ids, [document.line for document in records.train], window, start, end)
    settings = EncodingSettings(max_tokens=sys.maxsize, prefixes=(start,))  # no document is too long
    arrays = encode_cached(records.train.pairs, tokenizer, settings, SkipReport(), records.work, record_name=DOCUMENTS)
    log(f"token ids cached in {records.train.arrays.folder.parent}")
    return PackedDocuments(arrays.source, arrays.lines, window, start, end)


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[Document]:
    """Read plain text or JSON lines; the end of the text is held out if there are only a few documents."""
    if config.model.family != "decoder":
        raise ConfigError(f"the task lm needs model.family=decoder, not {config.model.family}; leave it out")
    return load_and_split_text(files, config, log)


def prepare(config: Config, records: TaskRecords[Document], tokenizer: Tokenizer | None, log: Log) -> PreparedTask:
    """Train the tokenizer, pack the documents, and return the prepared task."""
    if tokenizer is None:
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, log), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    packed = pack_documents(records, tokenizer, max_training_tokens(config), log)
    valid_ids = tokenizer.encode_batch([document.text for document in records.valid])
    log(f"{packed.num_tokens:,} tokens in {len(packed):,} windows of {packed.window}")
    task = LanguageModelingTask(config, tokenizer, packed, records.valid, valid_ids)
    return PreparedTask(config, tokenizer, task)
