"""Prepared corpora are listed with what they were made from, and go when nobody needs them."""

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.data.corpus import cached_corpus
from clearhead.data.corpus.cached_corpus import CachedPairs, PairFilters, load_documents_cached, load_pairs_cached
from clearhead.data.corpus.corpus_cache import DAY, find_cached
from clearhead.data.corpus.encoding import EncodingSettings, encode_cached
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer, TokenizerConfig
from clearhead.errors import DataError


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(cached_corpus, "LARGE_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "clearhead" / "corpora"


def keep(folder: Path, count: int) -> Path:
    """A corpus of that many pairs, and its ids."""
    path = folder / f"{count}.tsv"
    path.write_text("".join(f"word {number}\twort {number}\n" for number in range(count)))
    pairs = load_pairs_cached([path], PairFilters(60)).records
    assert isinstance(pairs, CachedPairs)
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair.parts), TokenizerConfig(kind="char"))
    encode_cached(pairs, tokenizer, EncodingSettings(50), SkipReport(), workers=1)
    return path


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def age(folder: Path, days: float) -> None:
    for path in folder.parent.glob(f"{folder.name}*/columns.json"):
        os.utime(path, (time.time() - days * DAY,) * 2)


def test_corpora_are_listed_with_their_ids(tmp_path: Path, place: Path) -> None:
    assert find_cached() == []
    first, second = keep(tmp_path, 11), keep(tmp_path, 7)
    found = {kept.files[0]: kept for kept in find_cached()}
    assert set(found) == {str(first), str(second)}
    assert [found[str(path)].records for path in (first, second)] == [11, 7]
    assert sum(kept.num_bytes for kept in found.values()) == size_of(place)


def test_opening_one_counts_as_use(tmp_path: Path) -> None:
    path = keep(tmp_path, 7)
    [kept] = find_cached()
    age(kept.folder, 9)
    assert find_cached()[0].days == pytest.approx(9, abs=0.1)
    load_pairs_cached([path], PairFilters(60))
    assert find_cached()[0].days < 0.1


def test_the_command_removes_what_is_old(tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = keep(tmp_path, 11), keep(tmp_path, 7)
    [folder] = [kept.folder for kept in find_cached() if kept.files == (str(old),)]
    age(folder, 9)
    assert main(["data", "cached", "--days", "8", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert listed["files"] == [str(old)] and listed["records"] == 11 and listed["bytes"] > 0
    assert main(["data", "cached", "--days", "8", "--remove"]) == 0
    assert str(folder) in capsys.readouterr().out
    assert [kept.files for kept in find_cached()] == [(str(new),)]
    assert main(["data", "cached", "--remove"]) == 0
    assert list(place.iterdir()) == []
    assert len(load_pairs_cached([new], PairFilters(60)).records) == 7  # it is made again


def test_one_that_is_being_made_stays(tmp_path: Path, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    keep(tmp_path, 7)
    [kept] = find_cached()
    with (place / f".{kept.key}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="is just being made"):
            kept.remove()
        assert main(["data", "cached", "--remove"]) == 2
    assert kept.folder.is_dir() and find_cached() == [kept]


def test_what_is_damaged_or_cut_off_goes_too(tmp_path: Path, place: Path) -> None:
    keep(tmp_path, 7)
    [kept] = find_cached()
    (kept.folder / "text.bin").write_bytes(b"")
    (place / f".{kept.key}.4-ab").mkdir()
    [damaged] = find_cached()
    assert (damaged.key, damaged.files, damaged.records) == (kept.key, (), 0)
    damaged.remove()
    assert list(place.iterdir()) == []


def test_text_is_kept_alike(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one\n\ntwo\nthree\n\nfour\n")
    assert [document.text for document in load_documents_cached([path], "paragraph").records] == [
        "one",
        "two\nthree",
        "four",
    ]
    assert [(kept.files, kept.records) for kept in find_cached()] == [((str(path),), 3)]
