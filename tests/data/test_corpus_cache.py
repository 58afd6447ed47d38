"""The list of cached corpora with their files, and their removal."""

import fcntl
import json
import os
import time
from pathlib import Path

import pytest

from clearhead.cli.main import main
from clearhead.data.corpus import cached_corpus
from clearhead.data.corpus.cached_corpus import CachedPairs, PairFilters, load_documents_cached, load_pairs_cached
from clearhead.data.corpus.corpus_cache import SECONDS_PER_DAY, list_cached_corpora
from clearhead.data.corpus.encoding import EncodingSettings, encode_cached
from clearhead.data.records import SkipReport
from clearhead.data.tokenizer import Tokenizer, TokenizerConfig
from clearhead.errors import DataError


@pytest.fixture(autouse=True)
def cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setattr(cached_corpus, "LARGE_BYTES", 0)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "clearhead" / "corpora"


def cache_corpus(folder: Path, count: int) -> Path:
    """Cache a corpus of `count` pairs and its token ids."""
    path = folder / f"{count}.tsv"
    path.write_text("".join(f"word {number}\twort {number}\n" for number in range(count)))
    pairs = load_pairs_cached([path], PairFilters(60)).records
    assert isinstance(pairs, CachedPairs)
    tokenizer = Tokenizer.train((text for pair in pairs for text in pair.fields), TokenizerConfig(kind="char"))
    encode_cached(pairs, tokenizer, EncodingSettings(50), SkipReport(), workers=1)
    return path


def size_of(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def age(folder: Path, days: float) -> None:
    for path in folder.parent.glob(f"{folder.name}*/columns.json"):
        os.utime(path, (time.time() - days * SECONDS_PER_DAY,) * 2)


def test_corpora_are_listed_with_their_ids(tmp_path: Path, cache_folder: Path) -> None:
    assert list_cached_corpora() == []
    first, second = cache_corpus(tmp_path, 11), cache_corpus(tmp_path, 7)
    corpora = {corpus.files[0]: corpus for corpus in list_cached_corpora()}
    assert set(corpora) == {str(first), str(second)}
    assert [corpora[str(path)].records for path in (first, second)] == [11, 7]
    assert sum(corpus.num_bytes for corpus in corpora.values()) == size_of(cache_folder)


def test_opening_a_corpus_updates_its_last_use(tmp_path: Path) -> None:
    path = cache_corpus(tmp_path, 7)
    [corpus] = list_cached_corpora()
    age(corpus.folder, 9)
    assert list_cached_corpora()[0].days_unused == pytest.approx(9, abs=0.1)
    load_pairs_cached([path], PairFilters(60))
    assert list_cached_corpora()[0].days_unused < 0.1


def test_the_command_removes_old_corpora(
    tmp_path: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new = cache_corpus(tmp_path, 11), cache_corpus(tmp_path, 7)
    [folder] = [corpus.folder for corpus in list_cached_corpora() if corpus.files == (str(old),)]
    age(folder, 9)
    assert main(["data", "cached", "--days", "8", "--json"]) == 0
    [listed] = json.loads(capsys.readouterr().out)
    assert listed["files"] == [str(old)] and listed["records"] == 11 and listed["bytes"] > 0
    assert main(["data", "cached", "--days", "8", "--remove"]) == 0
    assert str(folder) in capsys.readouterr().out
    assert [corpus.files for corpus in list_cached_corpora()] == [(str(new),)]
    assert main(["data", "cached", "--remove"]) == 0
    assert list(cache_folder.iterdir()) == []
    assert len(load_pairs_cached([new], PairFilters(60)).records) == 7  # it is written again


def test_a_corpus_that_is_being_written_is_not_removed(
    tmp_path: Path, cache_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache_corpus(tmp_path, 7)
    [corpus] = list_cached_corpora()
    with (cache_folder / f".{corpus.key}.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="is being written"):
            corpus.remove()
        assert main(["data", "cached", "--remove"]) == 2
    assert corpus.folder.is_dir() and list_cached_corpora() == [corpus]


def test_damaged_and_incomplete_corpora_are_removed(tmp_path: Path, cache_folder: Path) -> None:
    cache_corpus(tmp_path, 7)
    [corpus] = list_cached_corpora()
    (corpus.folder / "text.bin").write_bytes(b"")
    (cache_folder / f".{corpus.key}.4-ab").mkdir()
    [damaged] = list_cached_corpora()
    assert (damaged.key, damaged.files, damaged.records) == (corpus.key, (), 0)
    damaged.remove()
    assert list(cache_folder.iterdir()) == []


def test_documents_are_cached_like_pairs(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("one\n\ntwo\nthree\n\nfour\n")
    assert [document.text for document in load_documents_cached([path], "paragraph").records] == [
        "one",
        "two\nthree",
        "four",
    ]
    assert [(corpus.files, corpus.records) for corpus in list_cached_corpora()] == [((str(path),), 3)]
