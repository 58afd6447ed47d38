"""Parquet and Zstandard give the pairs of plain files; damaged files and missing packages are reported."""

import gzip
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from clearhead.data.readers.lines import read_lines
from clearhead.data.readers.pairs import Pair, load_pairs
from clearhead.errors import DataError, MissingPackageError

SIDES = [(f"a dog {number} ▁ \u2028", f"ein Hund {number}") for number in range(5003)]
TEXT = "".join(f"{source}\t{target}\n" for source, target in SIDES).encode()


def zstd() -> Any:
    return pytest.importorskip("zstandard")


def table(path: Path, **columns: list[Any]) -> Path:
    """Write a Parquet file with these columns, in several row groups."""
    pyarrow = pytest.importorskip("pyarrow")
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table(columns), path, row_group_size=1000)
    return path


@pytest.mark.parametrize("frames", [1, 3])
def test_zstandard_is_detected_by_its_first_bytes(frames: int, tmp_path: Path) -> None:
    library, path = zstd(), tmp_path / "pairs.tsv.zst"
    cuts = [len(TEXT) * number // frames for number in range(frames + 1)]
    frames_of_text = [TEXT[start:end] for start, end in pairwise(cuts)]
    path.write_bytes(b"".join(library.ZstdCompressor().compress(part) for part in frames_of_text))
    expected = [Pair(source, target, line) for line, (source, target) in enumerate(SIDES, start=1)]
    assert load_pairs([path]).records == expected
    assert load_pairs([path.rename(tmp_path / "pairs.tsv")]).records == expected
    jsonl = tmp_path / "pairs.jsonl.zst"
    jsonl.write_bytes(library.ZstdCompressor().compress(b'{"source": "a", "target": "b"}\n'))
    assert load_pairs([jsonl]).records == [Pair("a", "b", 1)]


def test_truncated_or_damaged_zstandard_is_refused(tmp_path: Path) -> None:
    packed = zstd().ZstdCompressor(write_checksum=True).compress(TEXT)
    path = tmp_path / "a.tsv.zst"
    for length in (len(packed) - 1, len(packed) // 2, 11):
        path.write_bytes(packed[:length])
        with pytest.raises(DataError, match=r"a\.tsv\.zst:\d+: the Zstandard data is damaged or truncated"):
            load_pairs([path])
    path.write_bytes(packed[:-2] + bytes([packed[-2] ^ 1]) + packed[-1:])
    with pytest.raises(DataError, match="damaged or truncated"):
        load_pairs([path])
    path.write_bytes(packed + b"rest")
    with pytest.raises(DataError, match="damaged or truncated"):
        load_pairs([path])


def test_parquet_gives_the_same_pairs(tmp_path: Path) -> None:
    sources, targets = map(list, zip(*SIDES, strict=True))
    path = table(tmp_path / "pairs.parquet", id=list(range(len(SIDES))), target=targets, source=sources)
    corpus = load_pairs([path])
    assert corpus.records == [Pair(source, target, line) for line, (source, target) in enumerate(SIDES, start=1)]
    tsv = tmp_path / "pairs.tsv"
    tsv.write_bytes(TEXT)
    assert corpus.fingerprint == load_pairs([tsv]).fingerprint
    assert len(load_pairs([path, tsv]).records) == 2 * len(SIDES)


def test_rows_without_a_value_are_skipped_and_counted(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", source=["a", None, "c", "d\ne"], target=["b", "x", None, "f"])
    corpus = load_pairs([path])
    assert corpus.records == [Pair("a", "b", 1), Pair("d\ne", "f", 4)]
    assert corpus.skips.counts == {"empty source": 1, "empty target": 1}


def test_labels_are_read_from_parquet(tmp_path: Path) -> None:
    from clearhead.data.readers.labelled import LabelledText, load_labelled

    path = table(tmp_path / "a.parquet", text=["a", "b"], label=["x", "y"])
    assert load_labelled([path]).records == [LabelledText("a", "x", 1), LabelledText("b", "y", 2)]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"source": ["a"]}, 'expected one column "target", found the columns source'),
        ({"source": ["a"], "target": [3]}, 'expected strings in the column "target", found int64'),
        ({"source": ["a"], "target": ["\0"]}, 'a.parquet:1: expected text, found a NUL character in "target"'),
        ({"source": [], "target": []}, "expected strings|the file is empty"),
    ],
)
def test_other_tables_are_refused(columns: dict[str, list[Any]], message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_pairs([table(tmp_path / "a.parquet", **columns)])


def test_other_files_than_parquet_are_refused(tmp_path: Path) -> None:
    path = table(tmp_path / "a.parquet", source=["a"] * 9, target=["b"] * 9)
    original = path.read_bytes()
    for content in (b"", b"source\ttarget\n", original[:-3], gzip.compress(original)):
        path.write_bytes(content)
        with pytest.raises(DataError, match=r"a\.parquet"):
            load_pairs([path])
    with pytest.raises(DataError, match="no such file"):
        load_pairs([tmp_path / "gone.parquet"])


def test_a_missing_package_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pyarrow", "zstandard"):
        monkeypatch.setitem(sys.modules, name, None)
    parquet, packed = tmp_path / "a.parquet", tmp_path / "a.tsv.zst"
    parquet.write_bytes(b"PAR1")
    packed.write_bytes(b"\x28\xb5\x2f\xfd rest")
    with pytest.raises(
        MissingPackageError, match=r"a\.parquet: Parquet needs the package pyarrow, .* 'clearhead\[parquet\]'"
    ):
        load_pairs([parquet])
    with pytest.raises(
        MissingPackageError, match=r"a\.tsv\.zst: Zstandard needs the package zstandard, .*clearhead\[zstd\]"
    ):
        list(read_lines(packed))
