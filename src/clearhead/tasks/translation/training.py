"""Translation: pairs of sentences in, cross-entropy of the target under teacher forcing, BLEU of greedy output."""

import math
from collections.abc import Sequence
from functools import cached_property, partial
from typing import Any

from clearhead import config as configs
from clearhead.config import Config
from clearhead.data.batching import Indices, divide, plan_batches, work_of_pairs
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.data.corpus.sampling_weights import Repeats, describe_epoch_repeats, epoch_repeats
from clearhead.data.readers.pairs import Pair
from clearhead.data.tokenizer import Tokenizer
from clearhead.data.tokenizer.bpe_dropout import BpeDropout
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.metrics import Score, bleu, chrf, count_outputs
from clearhead.model.loss import Loss
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import max_input_tokens
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, count_targets, frequency_loss
from clearhead.tasks.trainable.batches import Seq2SeqBatch, collate, collate_pairs, mean_nll, pair_batches, seq2seq_loss
from clearhead.tasks.trainable.task import Decode, PreparedTask, TaskRecords, TrainingFiles, Validation, load_and_split
from clearhead.tasks.trainable.validation_decoding import decode_examples, lines_to_decode, validation_decoding
from clearhead.tasks.translation.evaluation import reference_text, scoring_tokenizer
from clearhead.tasks.translation.training_data import (
    add_tag_tokens,
    check_files,
    encode_records,
    load_training_pairs,
    resolve_languages,
    tokenizer_texts,
)

RELEASE_INTERVAL = 1024  # pairs, each of which may bring 64 KiB a side of mapped ids into memory, until they go again


def require_text_to_text(config: Config) -> None:
    """Refuses a network that does not read text and write text."""
    model = config.model
    if model.family == "decoder" or model.input == "image":
        found = "a picture" if model.input == "image" else "no source"
        task = "caption" if model.input == "image" else "lm"
        raise ConfigError(f"the task {config.task} reads text, this network reads {found}; use --task {task}.")


class TranslationTask:
    """The translation task over one training and one validation corpus."""

    unit = "tok"

    def __init__(
        self,
        config: Config,
        tokenizer: Tokenizer,
        train: PairIds,
        valid: PairIds,
        valid_pairs: Sequence[Pair],
        repeats_N: Repeats | None = None,
        names: Sequence[str] = (),
    ) -> None:
        """`names`: of the files that the pairs stand in."""
        self.config = config
        self.names = names
        self.repeats_N = repeats_N
        self.tokenizer = tokenizer
        self.train = train
        self.valid = valid
        self.valid_pairs = valid_pairs[: config.training.validate_lines]
        self._dropout = BpeDropout(tokenizer, config.data.bpe_dropout) if config.data.bpe_dropout else None
        self._read = 0
        self._source_lengths = train.source.lengths + 1
        self._target_lengths = train.target.lengths + 1
        train.give_back()
        if not len(train) or not len(valid):
            raise DataError("no pair is left to train or validate on; raise data.max_tokens or add data")

    def sizes(self) -> tuple[int, int]:
        """Pairs to train on and to validate."""
        return len(self.train), len(self.valid)

    def plan(self, epoch: int) -> list[Indices]:
        """The batches of one epoch."""
        training, lengths = self.config.training, (self._source_lengths, self._target_lengths)
        return plan_batches(*lengths, training.batch_tokens, training.seed, epoch, self.repeats_N)

    def batch(self, indices: Indices, epoch: int) -> Seq2SeqBatch:
        """The tensors of these pairs; with BPE dropout each is cut anew, as seed, epoch and pair say."""
        self._read += len(indices)
        if self._read > RELEASE_INTERVAL:
            self.train.give_back()
            self._read = 0
        if self._dropout is None:
            return collate_pairs(self.train, indices, self.config.model)
        tagged = bool(self.config.data.source_tags)
        sources = [self._cut(self.train.source[index].tolist(), tagged, epoch, index, 0) for index in indices.tolist()]
        targets = [self._cut(self.train.target[index].tolist(), False, epoch, index, 1) for index in indices.tolist()]
        return collate(sources, targets, self.config.model)

    def _cut(self, ids: list[int], tagged: bool, epoch: int, index: int, side: int) -> list[int]:
        """The text of these ids in other pieces; in the same ones where it would not fit into the network."""
        assert self._dropout is not None
        cut = ids[:tagged] + self._dropout.cut(ids[tagged:], self.config.training.seed, epoch, index, side)
        return cut if len(cut) < max_input_tokens(self.config) else ids

    def split(self, indices: Indices, parts: int) -> list[Indices]:
        """Neighbours in length stay together, so each part has less padding than the whole."""
        return divide(indices, parts, work_of_pairs(self._source_lengths[indices], self._target_lengths[indices]))

    def tokens(self, indices: Indices) -> int:
        """Target tokens with the end of each sentence; with BPE dropout those of the plain pieces, in every epoch."""
        return int(self._target_lengths[indices].sum())

    def lines(self, indices: Indices) -> Sequence[int | str]:
        """The lines of the training files that these pairs stand on, with their names where there are several."""
        lines, corpus_N = [int(line) for line in self.train.lines[indices]], self.train.corpus_N
        if corpus_N is None or not corpus_N.any():
            return lines
        return [f"{self.names[file]}:{line}" for file, line in zip(corpus_N[indices].tolist(), lines, strict=True)]

    def loss(self, model: Any, batch: Seq2SeqBatch) -> Loss:
        """Smoothed cross-entropy, summed over the target tokens."""
        return seq2seq_loss(model, batch, self.tokenizer.pad_id, self.config.training.label_smoothing)

    @cached_property
    def baseline(self) -> Baseline:
        """Frequencies of target tokens, and the score of copying the source."""
        size, end = self.tokenizer.target.vocab_size, self.tokenizer.eos_id
        train_V, valid_V = (count_targets(store.target, size, end) for store in (self.train, self.valid))
        copied = self._score([pair.source for pair in self.valid_pairs])
        return Baseline(frequency_loss(train_V, valid_V), TOKENS, copied.value, "copying the source")

    @cached_property
    def _references(self) -> list[str]:
        return [reference_text(self.tokenizer, pair.target) for pair in self.valid_pairs]

    def validate(self, model: Any, decode: Decode = "always") -> Validation:
        """Return the loss over all validation pairs, and the score of greedy translations of the first of them."""
        batches = pair_batches(self.valid, self.config.model, self.config.training.batch_tokens)
        loss = mean_nll(model, batches, self.tokenizer.pad_id)
        count = lines_to_decode(decode, loss, self.baseline, len(self.valid_pairs))
        perplexity = math.exp(min(loss, 50.0))
        if not count:
            name = "chrf" if self._is_short else "bleu"
            return Validation(loss, perplexity, None, name, "", ("", "", ""), self.baseline)
        texts, pairs = self._translate(model, count), self.valid_pairs[:count]
        score = self._score(texts)
        outputs = count_outputs(texts, self._references[:count], [pair.source for pair in pairs])
        example = (pairs[count // 2].source, texts[count // 2], pairs[count // 2].target)
        return Validation(
            loss, perplexity, score.value, score.name.lower(), score.signature, example, self.baseline, outputs
        )

    @cached_property
    def _is_short(self) -> bool:
        """Whether no reference has four words: BLEU, which needs four in a row, is 0 then whatever is written."""
        return all(len(reference.split()) < 4 for reference in self._references)

    def _score(self, texts: Sequence[str]) -> Score:
        """Return BLEU, or chrF if references are short, of translations of the first validation sources."""
        references = self._references[: len(texts)]
        return chrf(texts, references) if self._is_short else bleu(texts, references, scoring_tokenizer(self.config))

    def _translate(self, model: Any, count: int) -> list[str]:
        """Return greedy translations of the first `count` validation sources."""
        sources = [self.valid.source[index].tolist() for index in range(count)]
        return self.tokenizer.target.decode_batch(
            decode_examples(model, sources, self.tokenizer.eos_id, validation_decoding())
        )


def read(files: TrainingFiles, config: Config, tell: Log) -> TaskRecords[Pair]:
    """Read tables of source and target, or two line files."""
    check_files(files, config.data)
    return load_and_split(
        partial(load_training_pairs, files, config.data), files, config, tell, get_task("translate").record_name
    )


def make(config: Config, records: TaskRecords[Pair], tokenizer: Tokenizer | None, tell: Log) -> PreparedTask:
    """Learns one tokenizer for both sides."""
    require_text_to_text(config)
    config = resolve_languages(config, records, tell)
    if tokenizer is None:
        config = add_tag_tokens(config)
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, tell), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.target.vocab_size}})
    train, valid, valid_pairs = encode_records(records, tokenizer, config, tell)
    assert train.corpus_N is not None
    repeats_N = epoch_repeats(train.corpus_N, config.data.file_weights, config.data.sampling_temperature)
    for line in describe_epoch_repeats(train.corpus_N, repeats_N) if repeats_N is not None else ():
        tell(line)
    task = TranslationTask(config, tokenizer, train, valid, valid_pairs, repeats_N, records.names)
    return PreparedTask(config, tokenizer, task)
