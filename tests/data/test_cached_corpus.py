"""Cached corpora equal corpora in memory: the same pairs, skipped lines, fingerprint and split."""

import errno
import gzip
import os
import random
import subprocess
import sys
import tracemalloc
from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.corpus import cached_corpus
from clearhead.data.corpus.cached_corpus import CachedPairs, PairFilters, load_pairs_cached
from clearhead.data.corpus.encoding import EncodingSettings, encode_cached, encode_pairs
from clearhead.data.corpus.held_out import split_held_out
from clearhead.data.corpus.id_arrays import ArrayWriter, MappedArrays, PairIds, cached_arrays, release_pages
from clearhead.data.readers import pairs as seen_module
from clearhead.data.readers.pairs import HashSet, Pair, load_pairs
from clearhead.data.records import Corpus, SkipReport
from clearhead.data.tokenizer import Tokenizer, TokenizerConfig
from clearhead.errors import DataError

FILTERS = PairFilters(max_chars=60, max_length_ratio=5, deduplicate=True)
WORDS = ["dog", "Hund", "läuft", "日本語", "through", "\u2028", "the", "a", "Öl", "…"]


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(cached_corpus, "LARGE_BYTES", 0)
    monkeypatch.setattr(cached_corpus, "MAX_BLOCK_PAIRS", 13)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def sentence(rng: random.Random) -> str:
    return " ".join(rng.choices(WORDS, k=rng.randint(1, 8)))


def write_corpus(folder: Path, count: int = 300) -> list[Path]:
    """Write two files with pairs of many lengths, some of them empty, too long or duplicates."""
    rng, lines = random.Random(3), []
    for _ in range(count):
        lines.append(f"{sentence(rng)}\t{sentence(rng)}")
    lines[5], lines[60], lines[100] = "\tempty", lines[7], "a\t" + "long " * 30
    first, second = folder / "a.tsv", folder / "b.tsv.gz"
    first.write_text("".join(f"{line}\n" for line in lines[: count // 2]), encoding="utf-8")
    second.write_bytes(gzip.compress("".join(f"{line}\n" for line in lines[count // 2 :]).encode()))
    return [first, second]


def in_memory(paths: list[Path]) -> Corpus[Pair]:
    return load_pairs(
        paths, FILTERS.max_chars, max_length_ratio=FILTERS.max_length_ratio, deduplicate=FILTERS.deduplicate
    )


def pairs_of(corpus: Corpus[Pair]) -> CachedPairs:
    assert isinstance(corpus.records, CachedPairs)
    return corpus.records


def test_a_cached_corpus_equals_the_one_in_memory(tmp_path: Path) -> None:
    paths = write_corpus(tmp_path)
    corpus_in_memory = in_memory(paths)
    for _ in range(2):  # written, then read from the cache
        corpus = load_pairs_cached(paths, FILTERS)
        records = pairs_of(corpus)
        assert list(records) == corpus_in_memory.records and len(records) == len(corpus_in_memory.records)
        assert records[3] == corpus_in_memory.records[3] and records[-2:] == corpus_in_memory.records[-2:]
        assert corpus.skips == corpus_in_memory.skips and corpus.total_lines == corpus_in_memory.total_lines == 300
        assert corpus.fingerprint == corpus_in_memory.fingerprint
        for share, limit in ((0.1, 2000), (0.3, 20)):
            split, expected_split = (
                split_held_out(records, share, limit),
                split_held_out(corpus_in_memory.records, share, limit),
            )
            assert (list(split.train), list(split.valid)) == (expected_split.train, expected_split.valid)
            assert len(split.train) == len(expected_split.train)
    assert corpus_in_memory.skips.counts.keys() == {
        "empty source", "empty target", "duplicate", "target longer than 60 characters",
        "one side 5 times as long as the other or longer",
    }  # fmt: skip


def test_samples_are_spread_evenly(tmp_path: Path) -> None:
    records = pairs_of(load_pairs_cached(write_corpus(tmp_path), FILTERS))
    wanted_N = np.arange(len(records)) % 3 > 0
    part = records.select(wanted_N)
    assert list(part) == [pair for pair, is_selected in zip(records, wanted_N, strict=True) if is_selected]
    few = part.sample_evenly(10)
    assert list(few) == [part[number * len(part) // 10] for number in range(10)]
    assert part.sample_evenly(len(part)) is part


def test_a_corpus_is_read_once_and_identified_by_its_content(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = write_corpus(tmp_path)
    first = load_pairs_cached(paths, FILTERS)
    monkeypatch.setattr(cached_corpus, "read_pairs", lambda *_: pytest.fail("read again"))
    moved = [path.rename(path.with_name(f"moved-{path.name}")) for path in paths]
    assert load_pairs_cached(moved, FILTERS).fingerprint == first.fingerprint
    for other in (moved[::-1], moved[:1]):
        with pytest.raises(pytest.fail.Exception):
            load_pairs_cached(other, FILTERS)
    with pytest.raises(pytest.fail.Exception):
        load_pairs_cached(moved, PairFilters(61, 5, True))
    moved[0].write_bytes(moved[0].read_bytes().replace(b"dog", b"god"))
    with pytest.raises(pytest.fail.Exception):
        load_pairs_cached(moved, FILTERS)


def test_damaged_caches_are_rebuilt(tmp_path: Path) -> None:
    paths = write_corpus(tmp_path)
    folder = pairs_of(load_pairs_cached(paths, FILTERS)).arrays.folder
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    for name in before:
        (folder / name).write_bytes(before[name][:-1])
        load_pairs_cached(paths, FILTERS)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
        (folder / name).unlink()
        load_pairs_cached(paths, FILTERS)
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert [path.name for path in folder.parent.iterdir() if not path.name.endswith(".lock")] == [folder.name]


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"a\tb\nc\n", r":2: expected source TAB target"), (b"\n\n\n", "at least 1 usable"), (b"", "the file is empty")],
)
def test_an_error_leaves_no_files(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "a.tsv"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        load_pairs_cached([path], FILTERS)
    leftovers = [path for path in (tmp_path / "cache").rglob("*.bin") if path.stat().st_size]
    assert not leftovers
    with pytest.raises(DataError, match="no such file"):
        load_pairs_cached([tmp_path / "gone.tsv"], FILTERS)


def test_a_full_disk_is_reported_and_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(ArrayWriter, "append", full)
    with pytest.raises(
        DataError, match=r"cannot write the cache of a large corpus to .*: No space left .* XDG_CACHE_HOME"
    ):
        load_pairs_cached(write_corpus(tmp_path), FILTERS)
    assert not list((tmp_path / "cache").rglob("*.bin"))


def test_leftovers_of_a_killed_process_are_removed(tmp_path: Path) -> None:
    def fill(writer: ArrayWriter) -> None:
        writer.append("x", np.arange(5, dtype=np.uint16))

    old = tmp_path / f".cached.{os.getpid()}-0badcafe"
    old.mkdir()
    (old / "x.bin").write_bytes(b"half")
    columns = cached_arrays(tmp_path / "cached", "key", {"x": "<u2"}, fill)
    assert columns.map("x").tolist() == columns.read("x", 0, 5).tolist() == [0, 1, 2, 3, 4]
    assert not old.exists()
    assert MappedArrays.open(tmp_path / "cached", "other key") is None
    release_pages(columns.map("x"))
    release_pages(np.arange(3))


def test_a_flipped_bit_is_detected_and_the_folder_rebuilt(tmp_path: Path) -> None:
    writes = []

    def fill(writer: ArrayWriter) -> None:
        writes.append(1)
        writer.append("x", np.arange(500, dtype=np.uint16))
        writer.append_bytes("text", b"a small dog")

    def load_cached() -> MappedArrays:
        return cached_arrays(tmp_path / "cached", "key", {"x": "<u2", "text": "<u1"}, fill)

    assert load_cached().is_intact() and load_cached().is_intact() and len(writes) == 1
    for name, offset in (("x", 700), ("text", 3)):
        path = tmp_path / "cached" / f"{name}.bin"
        content = bytearray(path.read_bytes())
        content[offset] ^= 4
        path.write_bytes(content)
        damaged = MappedArrays.open(tmp_path / "cached", "key")
        assert damaged is not None and not damaged.is_intact()
        rebuilt = load_cached()
        assert rebuilt.is_intact() and rebuilt.map("x").tolist() == [*range(500)]
    assert len(writes) == 3


def test_a_folder_rebuilt_by_another_process_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writes = []

    def fill(writer: ArrayWriter) -> None:
        writes.append(1)
        writer.append("x", np.arange(len(writes), dtype=np.uint16))

    def load_cached(name: str) -> MappedArrays:
        return cached_arrays(tmp_path / name, "key", {"x": "<u2"}, fill)

    load_cached("cached")

    def rebuild_elsewhere(self: MappedArrays) -> bool:
        """Another process detects the same damage and rebuilds the folder meanwhile."""
        monkeypatch.undo()
        (tmp_path / "cached").rename(tmp_path / "old")
        load_cached("new").folder.rename(tmp_path / "cached")
        return False

    monkeypatch.setattr(MappedArrays, "is_intact", rebuild_elsewhere)
    assert load_cached("cached").map("x").tolist() == [0, 1] and len(writes) == 2


def test_memory_stays_bounded_while_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_corpus, "MAX_BLOCK_PAIRS", 500)
    path = tmp_path / "big.tsv"
    path.write_text("".join(f"a small dog {number}\tein kleiner Hund {number}\n" for number in range(40_000)))
    load_pairs_cached([path], FILTERS)  # imports and caches
    path.write_text(path.read_text().replace("small", "large"))
    tracemalloc.start()
    records = pairs_of(load_pairs_cached([path], FILTERS))
    assert sum(1 for _ in records) == 40_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2_500_000  # as Python objects they would take 8 MB; the hash table alone takes 1.5 MB


@settings(max_examples=40, deadline=None)
@given(st.lists(st.integers(0, 2**64 - 1) | st.integers(0, 40), max_size=300))
def test_hash_set_behaves_like_a_set(numbers: list[int]) -> None:
    hash_set, expected = HashSet(), set[int]()
    for number in numbers:
        number = number or 1
        assert hash_set.add(number) == (number not in expected)
        expected.add(number)
    assert len(hash_set) == len(expected)


def test_hash_set_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seen_module, "INITIAL_SIZE", 2)
    hash_set, rng = HashSet(), random.Random(1)
    numbers = [rng.getrandbits(64) | 1 for _ in range(5000)]
    assert all(hash_set.add(number) for number in numbers)
    assert not any(hash_set.add(number) for number in numbers)
    assert isinstance(hash_set._table, array) and len(hash_set._table) == 8192


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    rng = random.Random(3)
    return Tokenizer.train(
        [sentence(rng) for _ in range(300)], TokenizerConfig(vocab_size=320, special_tokens=("<de>", "<x>"))
    )


def contents(store: PairIds) -> list[object]:
    assert store.file_index_N is not None
    sides = [[side[index].tolist() for index in range(len(side))] for side in (store.source, store.target)]
    return [*sides, store.lines.tolist(), store.file_index_N.tolist()]


@pytest.mark.parametrize(("workers", "block"), [(1, 1000), (2, 7), (3, 50)])
def test_ids_do_not_depend_on_the_number_of_processes(
    workers: int, block: int, tokenizer: Tokenizer, tmp_path: Path
) -> None:
    paths = write_corpus(tmp_path)
    train_in_memory = split_held_out(in_memory(paths).records, 0.1).train
    settings = EncodingSettings(max_tokens=7, prefixes=(4, 5))
    expected, short_pairs = encode_pairs(train_in_memory, tokenizer, settings)
    train = split_held_out(load_pairs_cached(paths, FILTERS).records, 0.1).train
    assert isinstance(train, CachedPairs)
    progress: list[tuple[int, int]] = []
    skips = SkipReport()
    for _ in range(2):  # written, then read from the cache
        skips = SkipReport()
        ids = encode_cached(
            train,
            tokenizer,
            settings,
            skips,
            lambda _, done, total: progress.append((done, total)),
            workers=workers,
            block=block,
        )
        assert contents(ids) == contents(expected.pair_ids)
    assert ids.source.ids.dtype == np.uint16 and len(ids) == len(short_pairs) < len(train_in_memory)
    assert skips.counts == {"longer than 7 tokens": len(expected.too_long_lines)}
    assert skips.locations == {"longer than 7 tokens": [f"pairs:{line}" for line in expected.too_long_lines[:3]]}
    total = train.total
    assert progress == [(min(done, total), total) for done in range(block, total + block, block)]
    assert ids.source[0][0] == 4 and ids.source[len(ids) - 1][0] == 5


def test_ids_depend_on_vocabulary_and_maximum_length(tokenizer: Tokenizer, tmp_path: Path) -> None:
    records = pairs_of(load_pairs_cached(write_corpus(tmp_path), FILTERS))
    other = Tokenizer.train(["dog Hund"] * 3, TokenizerConfig(vocab_size=300, special_tokens=("<de>", "<x>")))
    encodings = [encode_cached(part, vocabulary, settings, SkipReport(), workers=1) for part, vocabulary, settings in (
        (records, tokenizer, EncodingSettings(12)), (records, other, EncodingSettings(12)),
        (records, tokenizer, EncodingSettings(6)), (records, tokenizer, EncodingSettings(12, (4, 5))),
        (records.sample_evenly(50), tokenizer, EncodingSettings(12)))]  # fmt: skip
    assert len({str(contents(encoding)) for encoding in encodings}) == 5
    assert contents(encode_cached(records, tokenizer, EncodingSettings(12), SkipReport(), workers=1)) == contents(
        encodings[0]
    )


def test_large_vocabularies_take_four_bytes() -> None:
    from clearhead.data.corpus.id_arrays import PairIdsWriter

    assert PairIdsWriter.types(65_536)["source_ids"] == "<u2" and PairIdsWriter.types(65_537)["source_ids"] == "<i4"


def test_a_script_without_a_guard_runs_once(tokenizer: Tokenizer, tmp_path: Path) -> None:
    write_corpus(tmp_path)
    (tmp_path / "tokenizer.json").write_text(tokenizer.to_json())
    script = tmp_path / "script.py"
    script.write_text(
        "from pathlib import Path\n"
        "from clearhead.data.corpus import cached_corpus\n"
        "from clearhead.data.records import SkipReport\n"
        "from clearhead.data.corpus.encoding import EncodingSettings, encode_cached\n"
        "from clearhead.data.tokenizer import Tokenizer\n"
        "print('once', flush=True)\n"
        "cached_corpus.LARGE_BYTES = 0\n"
        "pairs = cached_corpus.load_pairs_cached([Path('a.tsv')], cached_corpus.PairFilters(60)).records\n"
        "tokenizer = Tokenizer.from_json(Path('tokenizer.json').read_text())\n"
        "print(len(encode_cached(pairs, tokenizer, EncodingSettings(99), SkipReport(), workers=2, block=20)))\n"
    )
    done = subprocess.run([sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, timeout=60,
                          env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}, check=True)  # fmt: skip
    assert done.stdout == "once\n145\n" and not done.stderr


def test_a_killed_process_is_reported(tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from clearhead.data.corpus import encoding

    records = pairs_of(load_pairs_cached(write_corpus(tmp_path), FILTERS))
    start = encoding._EncodingWorker.__init__

    def start_and_kill(self: encoding._EncodingWorker, *arguments: object) -> None:
        start(self, *arguments)  # type: ignore[arg-type]
        self.process.kill()

    monkeypatch.setattr(encoding._EncodingWorker, "__init__", start_and_kill)
    with pytest.raises(DataError, match="was killed by SIGKILL, possibly for lack of memory"):
        encode_cached(records, tokenizer, EncodingSettings(12), SkipReport(), workers=2, block=20)
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: (_ for _ in ()).throw(PermissionError()))
    monkeypatch.setattr(encoding._EncodingWorker, "__init__", start)
    assert len(encode_cached(records, tokenizer, EncodingSettings(99), SkipReport(), workers=2, block=20)) == len(
        records
    )
