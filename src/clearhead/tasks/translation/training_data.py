"""The pairs that a translator is trained on: what is said of their files, their vocabulary, and their ids."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from clearhead import config as configs
from clearhead.config import Config, DataConfig
from clearhead.data.corpus.cached_corpus import CachedPairs, PairFilters, load_pairs_cached
from clearhead.data.corpus.encoding import EncodingSettings, encode_cached, encode_pairs, too_long
from clearhead.data.corpus.id_arrays import PairIds
from clearhead.data.readers.pairs import Pair, are_tables
from clearhead.data.readers.tables import TableOptions
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.segmentation import choose_split, is_language
from clearhead.data.tokenizer import Tokenizer, tag_piece
from clearhead.errors import ConfigError
from clearhead.tasks.task import Log
from clearhead.tasks.trainable.task import TaskRecords, TrainingFiles

SPLIT_SAMPLE = 10_000  # are enough to estimate the share of sources with several sentences
TOKENIZER_PAIRS = 500_000  # so many, from all over a larger corpus, are enough to learn a vocabulary from


def check_files(files: TrainingFiles, data: DataConfig) -> None:
    """What is said of each file is said as often as there are files."""
    _check_count("file_weights", data.file_weights, "numbers", files.train)
    _check_count("source_tags", data.source_tags, "tags", files.train)
    _check_count("validation_tags", data.validation_tags, "tags", files.valid)
    for paths in (files.train, files.valid):
        if paths and not are_tables(paths) and TableOptions.of(data) != TableOptions():
            names = " and ".join(map(str, paths))
            raise ConfigError(f"{names} are two line files, which have no columns; leave out --columns and data.header")
    if files.valid and data.source_tags and not data.validation_tags:
        raise ConfigError("the training files have tags; name one for each validation file too, as in v.tsv@de")


def _check_count(name: str, given: Sequence[object], what: str, paths: Sequence[Path]) -> None:
    count = len(paths) if are_tables(paths) else min(1, len(paths))  # two line files are one of pairs
    if given and len(given) != count:
        raise ConfigError(f"data.{name} has {len(given)} {what} for {count} files of pairs; give one a file")


def load_training_pairs(files: TrainingFiles, data: DataConfig, paths: Sequence[Path], minimum: int) -> Corpus[Pair]:
    """Load the pairs of some of the files."""
    filters = PairFilters(data.max_chars, data.max_length_ratio, data.deduplicate, TableOptions.of(data))
    return load_pairs_cached(paths, filters, minimum, work=files.work)


def add_tag_tokens(config: Config) -> Config:
    """The config whose tokenizer has a piece for each tag."""
    pieces = dict.fromkeys((*config.tokenizer.special_tokens, *map(tag_piece, config.data.source_tags)))
    return configs.override(config, {"tokenizer": {"special_tokens": tuple(pieces)}})


def resolve_languages(config: Config, records: TaskRecords[Pair], tell: Log) -> Config:
    """Return the config with the languages of the files and the split mode that fits the sources."""
    data = config.data
    languages = data.languages or languages_from_names(records.names)
    split = data.split
    if split == "auto":
        step = max(1, len(records.train) // SPLIT_SAMPLE)
        sample = [records.train[index].source for index in range(0, len(records.train), step)]
        choice = choose_split(sample, languages[0] if languages else "")
        split = choice.mode
        effect = {"sentences": "sentence by sentence", "lines": "line by line", "none": "as a whole"}[split]
        share = f"{100 * choice.multi_sentence_share:.1f} % of the sources have several sentences"
        tell(f"{share}: texts will be translated {effect}")
    return configs.override(config, {"data": {"languages": languages, "split": split}})


def languages_from_names(names: Sequence[str]) -> tuple[str, ...]:
    """Return the language codes in the suffixes of two line files, such as train.en and train.de.gz; else nothing."""
    if len(names) != 2 or are_tables([Path(name) for name in names]):
        return ()
    suffixes = tuple(re.sub(r"\.(?:gz|zst)$", "", name).rpartition(".")[2] for name in names)
    return suffixes if all(map(is_language, suffixes)) and suffixes[0] != suffixes[1] else ()


def tokenizer_texts(pairs: Sequence[Pair], tell: Log) -> Iterator[str]:
    """Both sides of the pairs that a vocabulary is learned from."""
    if isinstance(pairs, CachedPairs) and len(pairs) > TOKENIZER_PAIRS:
        tell(f"the vocabulary is learned from {TOKENIZER_PAIRS:,} of them")
        pairs = pairs.spread(TOKENIZER_PAIRS)
    return (text for pair in pairs for text in pair.parts)


def encode_records(
    records: TaskRecords[Pair], tokenizer: Tokenizer, config: Config, tell: Log
) -> tuple[PairIds, PairIds, list[Pair]]:
    """The ids to train on, and those to validate on with their pairs; says what was too long."""
    limit, skips, data = min(config.data.max_tokens, config.model.max_positions), SkipReport(), config.data

    def how(tags: Sequence[str]) -> EncodingSettings:
        return EncodingSettings(limit, tuple(tokenizer.tag_id(tag) for tag in tags))

    if isinstance(records.train, CachedPairs):
        train = encode_cached(records.train, tokenizer, how(data.source_tags), skips, records.work)
        tell(f"their ids are kept in {records.train.columns.folder.parent}")
    else:
        train, _ = _encode(records.train, tokenizer, how(data.source_tags), skips)
    valid, valid_pairs = _encode(records.valid, tokenizer, how(data.validation_tags or data.source_tags), skips)
    records.account(skips, tell)
    return train, valid, valid_pairs


def _encode(
    pairs: Sequence[Pair], tokenizer: Tokenizer, how: EncodingSettings, skips: SkipReport
) -> tuple[PairIds, list[Pair]]:
    """The pairs as ids, and the pairs that were kept; those that are too long are told to `skips`."""
    block, kept = encode_pairs(pairs, tokenizer, how)
    for line in block.long_lines:
        skips.add(too_long(how), "pairs", line)
    return block.store, kept
