"""Training of translation (S1 to S4): cross-entropy under teacher forcing, and BLEU of greedy output."""

import re
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from clearhead import config as configs
from clearhead.config import Config, DataConfig
from clearhead.data.batching import Indices
from clearhead.data.corpus.cached_corpus import CachedPairs, PairFilters, load_pairs_cached
from clearhead.data.corpus.encoding import EncodingSettings, encode_cached, encode_pairs, skip_reason
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.data.corpus.sampling_weights import Repeats, describe_epoch_repeats, epoch_repeats
from clearhead.data.readers.pairs import Pair, are_tables
from clearhead.data.readers.tables import TableOptions
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.segmentation import choose_split, is_language_code
from clearhead.data.tokenizer import Tokenizer, tag_token
from clearhead.data.tokenizer.bpe_dropout import BpeDropout
from clearhead.errors import ConfigError, DataError
from clearhead.evaluation.metrics import Score, bleu, chrf, count_outputs
from clearhead.tasks.registry import get_task
from clearhead.tasks.task import Log
from clearhead.tasks.text_codec import max_input_tokens, max_training_tokens
from clearhead.tasks.trainable.baseline import TOKENS, Baseline, count_targets, frequency_loss
from clearhead.tasks.trainable.records import TaskRecords, TrainingFiles, load_and_split
from clearhead.tasks.trainable.seq2seq import (
    DecodingScore,
    Seq2SeqBatch,
    Seq2SeqTask,
    collate,
    collate_pairs,
    decode_examples,
    mean_nll,
    pair_batches,
    require_text_to_text,
    validation_decoding,
)
from clearhead.tasks.trainable.task import ExampleTable, PreparedTask
from clearhead.tasks.translation.inference import reference_text, scoring_tokenizer

# Memory-mapped ids are released after this number of pairs, each of which may map 128 KiB.
RELEASE_INTERVAL = 1024
SPLIT_SAMPLE = 10_000  # number of sources from which the share with several sentences is estimated
TOKENIZER_PAIRS = 500_000  # a tokenizer is trained on at most this number, evenly spaced over a larger corpus
SPLIT_UNITS = {"sentences": "sentence by sentence", "lines": "line by line", "none": "as a whole"}


class TranslationTask(Seq2SeqTask):
    """Translation over one training and one validation corpus."""

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
        """`names` are the names of the training files, for messages."""
        target_lengths_N = train.target.lengths + 1
        examples = ExampleTable(train.source.lengths + 1, target_lengths_N, target_lengths_N, train.lines)
        super().__init__(config, tokenizer, examples, len(valid), repeats_N=repeats_N)
        self.names = names
        self.train = train
        self.valid = valid
        self.valid_pairs = valid_pairs[: config.training.validate_lines]
        self._dropout = BpeDropout(tokenizer, config.data.bpe_dropout) if config.data.bpe_dropout else None
        self._unreleased = 0
        train.release_pages()
        if not len(train) or not len(valid):
            raise DataError("no pair is left to train or validate on; raise data.max_tokens or add data")

    def batch(self, indices: Indices, epoch: int) -> Seq2SeqBatch:
        """Return the tensors of these pairs. BPE dropout is a pure function of seed, epoch and pair."""
        self._unreleased += len(indices)
        if self._unreleased > RELEASE_INTERVAL:
            self.train.release_pages()
            self._unreleased = 0
        if self._dropout is None:
            return collate_pairs(self.train, indices, self.config.model)
        num_tags = 1 if self.config.data.source_tags else 0
        sources = [self._resegment(self.train.source[index].tolist(), num_tags, epoch, index, 0) for index in
                   indices.tolist()]  # fmt: skip
        targets = [self._resegment(self.train.target[index].tolist(), 0, epoch, index, 1) for index in
                   indices.tolist()]  # fmt: skip
        return collate(sources, targets, self.config.model)

    def _resegment(self, ids: list[int], num_tags: int, epoch: int, index: int, side: int) -> list[int]:
        """Return the ids with BPE dropout after the tags; unchanged if they would exceed the network's limit."""
        assert self._dropout is not None
        dropped = self._dropout.sample_tokens(ids[num_tags:], self.config.training.seed, epoch, index, side)
        return ids[:num_tags] + dropped if num_tags + len(dropped) < max_input_tokens(self.config) else ids

    def lines(self, indices: Indices) -> Sequence[int | str]:
        """Return the lines of these pairs in the training files, with the names of the files if there are several."""
        lines, corpus_N = super().lines(indices), self.train.file_index_N
        if corpus_N is None or not corpus_N.any():
            return lines
        return [f"{self.names[file]}:{line}" for file, line in zip(corpus_N[indices].tolist(), lines, strict=True)]

    @cached_property
    def baseline(self) -> Baseline:
        """Loss of target token frequencies, and the score of copying the source."""
        size, eos_id = self.tokenizer.target.vocab_size, self.tokenizer.eos_id
        train_V, valid_V = (count_targets(pairs.target, size, eos_id) for pairs in (self.train, self.valid))
        copied = self._score([pair.source for pair in self.valid_pairs])
        return Baseline(frequency_loss(train_V, valid_V), TOKENS, copied.value, "copying the source")

    @cached_property
    def _references(self) -> list[str]:
        return [reference_text(self.tokenizer, pair.target) for pair in self.valid_pairs]

    @cached_property
    def score_name(self) -> str:
        """bleu; chrf if no reference has four words, because BLEU counts 4-grams and would always be 0."""
        return "chrf" if all(len(reference.split()) < 4 for reference in self._references) else "bleu"

    def _score(self, texts: Sequence[str]) -> Score:
        """Return the score of translations of the first validation sources."""
        references = self._references[: len(texts)]
        if self.score_name == "chrf":
            return chrf(texts, references)
        return bleu(texts, references, scoring_tokenizer(self.config))

    def valid_nll(self, model: Any) -> float:
        """Return the mean negative log-likelihood per token of the validation targets."""
        batches = pair_batches(self.valid, self.config.model, self.config.training.batch_tokens)
        return mean_nll(model, batches, self.tokenizer.pad_id)

    def score_outputs(self, model: Any, count: int) -> DecodingScore:
        """Return the score of greedy translations of the first `count` validation sources."""
        sources, pairs = [self.valid.source[index].tolist() for index in range(count)], self.valid_pairs[:count]
        outputs = decode_examples(model, sources, self.tokenizer.eos_id, validation_decoding())
        texts = self.tokenizer.target.decode_batch(outputs)
        score = self._score(texts)
        degenerate = count_outputs(texts, self._references[:count], [pair.source for pair in pairs])
        example = (pairs[count // 2].source, texts[count // 2], pairs[count // 2].target)
        return DecodingScore(score.value, score.signature, example, degenerate)


def load_records(files: TrainingFiles, config: Config, log: Log) -> TaskRecords[Pair]:
    """Read tables of source and target, or two line files."""
    check_files(files, config.data)
    load = partial(load_training_pairs, files, config.data)
    return load_and_split(load, files, config, log, get_task("translate").record_name)


def check_files(files: TrainingFiles, data: DataConfig) -> None:
    """Raise ConfigError unless per-file settings have one value per file and only tables have table settings."""
    _check_count("file_weights", data.file_weights, "numbers", files.train)
    _check_count("source_tags", data.source_tags, "tags", files.train)
    _check_count("validation_tags", data.validation_tags, "tags", files.valid)
    for paths in (files.train, files.valid):
        if paths and not are_tables(paths) and TableOptions.from_config(data) != TableOptions():
            names = " and ".join(map(str, paths))
            raise ConfigError(f"{names} are two line files, which have no columns; leave out --columns and data.header")
    if files.valid and data.source_tags and not data.validation_tags:
        raise ConfigError("the training files have tags; name one for each validation file too, as in v.tsv@de")


def _check_count(name: str, values: Sequence[object], kind: str, paths: Sequence[Path]) -> None:
    count = len(paths) if are_tables(paths) else min(1, len(paths))  # two line files are one file of pairs
    if values and len(values) != count:
        raise ConfigError(f"data.{name} has {len(values)} {kind} for {count} files of pairs; give one per file")


def load_training_pairs(files: TrainingFiles, data: DataConfig, paths: Sequence[Path], minimum: int) -> Corpus[Pair]:
    """Return the pairs in `paths`, which are the training or validation files of `files`."""
    filters = PairFilters(data.max_chars, data.max_length_ratio, data.deduplicate, TableOptions.from_config(data))
    return load_pairs_cached(paths, filters, minimum, progress=files.work)


def prepare(config: Config, records: TaskRecords[Pair], tokenizer: Tokenizer | None, log: Log) -> PreparedTask:
    """Train one tokenizer for both sides, encode the pairs, and return the prepared task."""
    require_text_to_text(config)
    config = resolve_languages(config, records, log)
    if tokenizer is None:
        config = add_tag_tokens(config)
        tokenizer = Tokenizer.train(tokenizer_texts(records.train, log), config.tokenizer)
    config = configs.override(config, {"model": {"vocab_size": tokenizer.target.vocab_size}})
    train, valid, valid_pairs = encode_records(records, tokenizer, config, log)
    assert train.file_index_N is not None
    repeats_N = epoch_repeats(train.file_index_N, config.data.file_weights, config.data.sampling_temperature)
    for line in describe_epoch_repeats(train.file_index_N, repeats_N) if repeats_N is not None else ():
        log(line)
    task = TranslationTask(config, tokenizer, train, valid, valid_pairs, repeats_N, records.names)
    return PreparedTask(config, tokenizer, task)


def resolve_languages(config: Config, records: TaskRecords[Pair], log: Log) -> Config:
    """Return the config with the languages of the files and the split mode that suits the sources."""
    data = config.data
    languages = data.languages or languages_from_names(records.names)
    split = data.split
    if split == "auto":
        step = max(1, len(records.train) // SPLIT_SAMPLE)
        sample = [records.train[index].source for index in range(0, len(records.train), step)]
        choice = choose_split(sample, languages[0] if languages else "")
        split = choice.mode
        share = f"{100 * choice.multi_sentence_share:.1f} % of the sources have several sentences"
        log(f"{share}: texts will be translated {SPLIT_UNITS[split]}")
    return configs.override(config, {"data": {"languages": languages, "split": split}})


def languages_from_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the language codes in the suffixes of two line files, such as train.en and train.de.gz; else none."""
    if len(names) != 2 or are_tables([Path(name) for name in names]):
        return ()
    suffixes = tuple(re.sub(r"\.(?:gz|zst)$", "", name).rpartition(".")[2] for name in names)
    return suffixes if all(map(is_language_code, suffixes)) and suffixes[0] != suffixes[1] else ()


def add_tag_tokens(config: Config) -> Config:
    """Return the config with a special token for each tag."""
    tokens = dict.fromkeys((*config.tokenizer.special_tokens, *map(tag_token, config.data.source_tags)))
    return configs.override(config, {"tokenizer": {"special_tokens": tuple(tokens)}})


def tokenizer_texts(pairs: Sequence[Pair], log: Log) -> Iterator[str]:
    """Return both sides of the pairs on which a tokenizer is trained."""
    if isinstance(pairs, CachedPairs) and len(pairs) > TOKENIZER_PAIRS:
        log(f"the tokenizer is trained on {TOKENIZER_PAIRS:,} of them")
        pairs = pairs.sample_evenly(TOKENIZER_PAIRS)
    return (text for pair in pairs for text in pair.fields)


def encode_records(
    records: TaskRecords[Pair], tokenizer: Tokenizer, config: Config, log: Log
) -> tuple[PairIds, PairIds, list[Pair]]:
    """Return the ids of the training pairs, the ids of the validation pairs, and the validation pairs.

    Pairs that are too long are excluded and logged.
    """
    data, skips = config.data, SkipReport()

    def settings(tags: Sequence[str]) -> EncodingSettings:
        return EncodingSettings(max_training_tokens(config), tuple(tokenizer.tag_id(tag) for tag in tags))

    if isinstance(records.train, CachedPairs):
        train = encode_cached(records.train, tokenizer, settings(data.source_tags), skips, records.work)
        log(f"token ids cached in {records.train.arrays.folder.parent}")
    else:
        train, _ = _encode(records.train, tokenizer, settings(data.source_tags), skips)
    valid, valid_pairs = _encode(records.valid, tokenizer, settings(data.validation_tags or data.source_tags), skips)
    records.report_skips(skips, log)
    return train, valid, valid_pairs


def _encode(
    pairs: Sequence[Pair], tokenizer: Tokenizer, settings: EncodingSettings, skips: SkipReport
) -> tuple[PairIds, list[Pair]]:
    """Return the ids of the pairs that are short enough, and these pairs; add the others to `skips`."""
    block, short = encode_pairs(pairs, tokenizer, settings)
    for line in block.too_long_lines:
        skips.add(skip_reason(settings), "pairs", line)
    return block.pair_ids, short
