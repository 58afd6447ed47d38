"""Language modelling (S8): plain text in, the next token predicted everywhere, text that goes on from a prompt out.

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
from clearhead.data.batching import Indices, PackedDocuments, divide, length_batches, pad
from clearhead.data.corpus.cached_corpus import CachedDocuments
from clearhead.data.corpus.encoding import EncodingSettings, encode_cached
from clearhead.data.corpus.id_arrays import IdArrays
from clearhead.data.readers.documents import Document
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer
from clearhead.decoding.requests import Request
from clearhead.engines.torch_forward import device_of, on_device
from clearhead.errors import ConfigError
from clearhead.model.language_model import LanguageModel
from clearhead.model.loss import Loss, cross_entropy
from clearhead.tasks.language_modeling.evaluation import NextTokenBatch, score_documents
from clearhead.tasks.language_modeling.inference import context_length
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.baseline import Baseline, count_ids, count_targets, frequency_loss
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation
from clearhead.tasks.trainable.text_data import RECORD_NAME, load_and_split_text, tokenizer_texts
from clearhead.tasks.trainable.validation_decoding import prompted_engine

RELEASE_INTERVAL = 1024  # windows, each of which may bring 64 KiB of mapped ids into memory, until they go again
SHOWN_PROMPT, SHOWN_TOKENS = 12, 24  # pieces of the example that a validation shows


@dataclass(frozen=True)
class LanguageModelingBatch:
    """Windows of packed text, what follows each token, and which document each belongs to if that matters."""

    inputs_NT: Tensor
    targets_NT: Tensor
    documents_NT: Tensor | None


class LanguageModelingTask:
    """The language modelling task over packed documents."""

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
        self._read = 0

    def sizes(self) -> tuple[int, int]:
        """Windows to train on, and documents to validate."""
        return len(self.train), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch: windows that are cut elsewhere than in other epochs, shuffled."""
        return self.train.plan(self.config.training.batch_tokens, self.config.training.seed, epoch)

    def batch(self, indices: Indices, epoch: int) -> LanguageModelingBatch:
        """The tensors of these windows."""
        self._read += len(indices)
        if self._read > RELEASE_INTERVAL:
            self.train.give_back()
            self._read = 0
        found = self.train.windows(indices, self.tokenizer.pad_id)
        # Without a mask of their own, windows of one document each give the same, and go through the faster kernel.
        is_open = self.config.data.attend_across_documents or found.is_one_each
        documents_NT = None if is_open else torch.from_numpy(found.documents_NT)
        return LanguageModelingBatch(
            torch.from_numpy(found.inputs_NT), torch.from_numpy(found.targets_NT), documents_NT
        )

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Windows are all alike."""
        return divide(indices, parts, self.train.lengths(indices))

    def tokens(self, indices: Indices) -> int:
        """Every token of a window has a target."""
        return int(self.train.lengths(indices).sum())

    def lines(self, indices: Indices) -> Sequence[int]:
        """The lines on which the documents begin that these windows begin in."""
        return self.train.lines_of(indices)

    def loss(self, model: LanguageModel, batch: LanguageModelingBatch) -> Loss:
        """Cross-entropy of the next token, summed."""
        hidden_NTD = model(batch.inputs_NT, batch.documents_NT)
        smoothing = self.config.training.label_smoothing
        return cross_entropy(hidden_NTD, model.output.weight, batch.targets_NT, self.tokenizer.pad_id, smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of tokens. Every start that is read belongs to an end that is predicted."""
        tokenizer, inputs = self.tokenizer, self.train.inputs
        train_V = count_ids(inputs.ids, tokenizer.vocab_size)
        train_V[tokenizer.eos_id] += train_V[tokenizer.bos_id]
        train_V[tokenizer.bos_id] = 0
        inputs.give_back()
        valid_V = count_targets(IdArrays.build(self.valid_ids), tokenizer.vocab_size, tokenizer.eos_id)
        return Baseline(frequency_loss(train_V, valid_V))

    def validate(self, model: LanguageModel, decode: Decode = "always") -> Validation:
        """Return the mean log-probability per token, in windows that do not overlap: half the work of `evaluate`."""
        window = context_length(self.config)
        nll = partial(total_nll, model, self.config)
        report = score_documents(nll, self.config, self.tokenizer, self.valid, self.valid_ids, window)
        example = self._example(model)
        nats, signature = report.nats, report.signature
        return Validation(nats, report.perplexity, -nats, "log_prob", signature, example, self.baseline)

    def _example(self, model: LanguageModel) -> tuple[str, str, str]:
        """How the model goes on from the beginning of a document, token by token the likeliest."""
        tokenizer, ids = self.tokenizer, self.valid_ids[len(self.valid_ids) // 2]
        cut = min(SHOWN_PROMPT, len(ids) // 2, context_length(self.config) - 1)
        request = Request((tokenizer.bos_id, *ids[:cut]), limit=SHOWN_TOKENS)
        [[found]] = prompted_engine(model, self.config, tokenizer).run([request], DecodingConfig(beam_size=1))
        written = tokenizer.decode(found.tokens)
        return tokenizer.decode(ids[:cut]), written, tokenizer.decode(ids[cut : cut + SHOWN_TOKENS])


@torch.inference_mode()
def total_nll(network: LanguageModel, config: Config, rows: Sequence[NextTokenBatch]) -> float:
    """Negative log-likelihood of all targets that are no padding, rows of like length together."""
    was_training, pad_id = network.training, config.model.pad_id
    network.eval()
    total = 0.0
    for batch in length_batches([len(row.inputs) for row in rows], config.training.batch_tokens):
        both = ([rows[index].inputs for index in batch], [rows[index].targets for index in batch])
        inputs_NT, targets_NT = (on_device(torch.from_numpy(pad(each, pad_id)), device_of(network)) for each in both)
        total += float(cross_entropy(network(inputs_NT), network.output.weight, targets_NT, pad_id, 0.0).nll)
    network.train(was_training)
    return total


def pack_documents(records: TaskRecords[Document], tokenizer: Tokenizer, window: int, tell: Log) -> PackedDocuments:
    """The documents to train on laid end to end: in memory, or mapped where they lie on disk."""
    start, end = tokenizer.bos_id, tokenizer.eos_id
    if not isinstance(records.train, CachedDocuments):
        ids = tokenizer.encode_batch([document.text for document in records.train])
        return PackedDocuments.build(ids, [document.line for document in records.train], window, start, end)
    whole = EncodingSettings(max_tokens=sys.maxsize, prefixes=(start,))  # no document is too long
    store = encode_cached(records.train.pairs, tokenizer, whole, SkipReport(), records.work, noun=RECORD_NAME)
    tell(f"their ids are kept in {records.train.columns.folder.parent}")
    return PackedDocuments(store.source, store.lines, window, start, end)


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[Document]:
    """Plain text or JSONL; where there are few documents, the end of the text is held out."""
    if config.model.family != "decoder":
        raise ConfigError(f"the task lm needs model.family=decoder, not {config.model.family}; leave it out")
    return load_and_split_text(files, config, tell)


def make(config: Config, records: TaskRecords[Document], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
    """Learns the tokenizer and packs the documents."""
    if tokenizer is None:
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, tell), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.vocab_size}})
    packed = pack_documents(records, tokenizer, context_length(config), tell)
    valid_ids = tokenizer.encode_batch([document.text for document in records.valid])
    tell(f"{packed.num_tokens:,} tokens in {len(packed):,} windows of {packed.window}")
    return PreparedTask(config, tokenizer, LanguageModelingTask(config, tokenizer, packed, records.valid, valid_ids))
