"""Reading of pairs: every format gives the same pairs, faults have a location, and the split is stable."""

import gzip
import io
import json
import tracemalloc
from collections.abc import Callable, Sequence
from hashlib import blake2b
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.data.corpus.held_out import split_held_out
from clearhead.data.readers import lines as lines_module
from clearhead.data.readers.lines import read_lines
from clearhead.data.readers.pairs import Pair, load_pairs, read_pairs
from clearhead.data.records import SkipReport
from clearhead.errors import ConfigError, DataError

BOM = b"\xef\xbb\xbf"
TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\t\n\r"), min_size=1, max_size=20)
SENTENCE = TEXT.filter(lambda text: bool(text.strip()) and not text.startswith("\ufeff"))
Sides = list[tuple[str, str]]


def write(folder: Path, name: str, content: bytes) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def as_tsv(sides: Sides, folder: Path, pack: Callable[[bytes], bytes], end: str) -> list[Path]:
    return [write(folder, "pairs.tsv", pack("".join(f"{a}\t{b}{end}" for a, b in sides).encode()))]


def as_jsonl(sides: Sides, folder: Path, pack: Callable[[bytes], bytes], end: str) -> list[Path]:
    rows = [json.dumps({"source": a, "target": b, "id": 7}, ensure_ascii=len(a) % 2 == 0) for a, b in sides]
    return [write(folder, "pairs.jsonl", pack("".join(row + end for row in rows).encode()))]


def as_line_files(sides: Sides, folder: Path, pack: Callable[[bytes], bytes], end: str) -> list[Path]:
    texts = ["".join(pair[side] + end for pair in sides).encode() for side in (0, 1)]
    return [write(folder, name, pack(text)) for name, text in zip(("a.en", "a.de"), texts, strict=True)]


@settings(max_examples=25, deadline=None)
@given(sides=st.lists(st.tuples(SENTENCE, SENTENCE), min_size=1, max_size=7))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, BOM.__add__], ids=["plain", "gzip", "mark"])
@pytest.mark.parametrize("save", [as_tsv, as_jsonl, as_line_files])
def test_every_format_gives_the_same_pairs(
    tmp_path_factory: pytest.TempPathFactory,
    sides: Sides,
    save: Callable[..., list[Path]],
    pack: Callable[[bytes], bytes],
    end: str,
) -> None:
    corpus = load_pairs(save(sides, tmp_path_factory.mktemp("corpus"), pack, end))
    assert corpus.records == [Pair(a, b, line) for line, (a, b) in enumerate(sides, start=1)]
    assert (corpus.total_lines, corpus.skips.total) == (len(sides), 0)
    baseline = load_pairs(as_tsv(sides, tmp_path_factory.mktemp("plain"), bytes, "\n"))
    assert corpus.fingerprint == baseline.fingerprint


def test_only_line_feeds_end_lines(tmp_path: Path) -> None:
    inside = "a\u2028b\x0bc\x0cd\x85e\x1cf\rg"
    path = write(tmp_path, "pairs.tsv", f"{inside}\tx\ny\tz".encode())
    assert load_pairs([path]).records == [Pair(inside, "x", 1), Pair("y", "z", 2)]


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.txt", "pairs", "pairs.TSV.gz", "pairs.v2"])
def test_a_single_file_is_tsv_whatever_its_name(tmp_path: Path, name: str) -> None:
    assert load_pairs([str(write(tmp_path, name, b"a\tb\n"))]).records == [Pair("a", "b", 1)]


def test_several_tables_are_read_in_order(tmp_path: Path) -> None:
    first = write(tmp_path, "one.tsv", b"a\tb\n")
    second = write(tmp_path, "two.jsonl", b'{"source": "c", "target": "d"}\n\n')
    corpus = load_pairs([first, second])
    assert [pair.source for pair in corpus.records] == ["a", "c"]
    assert corpus.skips.summary() == [f"empty line: 1 ({second}:2)"]


def test_useless_lines_are_counted_with_their_locations(tmp_path: Path) -> None:
    rows = ["a\tb", "\tb", "a\t \u3000", "", "x" * 6 + "\ty", "a\t" + "y" * 6, "a\ta", "a\ta", "12345\t12345"]
    path = write(tmp_path, "train.tsv", "\n".join(rows + ["good\tgood"] * 2 + ["z\t"] * 4).encode())
    skips = SkipReport()
    pairs = list(read_pairs([path], skips, max_chars=5))
    assert [pair.line for pair in pairs] == [1, 7, 8, 9, 10, 11]
    assert skips.counts == {
        "empty source": 1,
        "empty target": 5,
        "empty line": 1,
        "source longer than 5 characters": 1,
        "target longer than 5 characters": 1,
    }
    assert skips.summary()[0] == f"empty target: 5 ({path}:3, {path}:12, {path}:13, ...)"
    assert f"empty source: 1 ({path}:2)" in skips.summary()


def test_the_limit_itself_is_allowed(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", ("ä" * 5 + "\tb\n").encode())
    assert len(load_pairs([path], max_chars=5).records) == 1


FAULTS: list[tuple[str, dict[str, bytes], str]] = [
    ("Latin-1", {"a.tsv": "good\tgut\nfür\tb\n".encode("latin-1")}, r"a\.tsv:2: .*0xFC in column 2;.*iconv"),
    ("cut character", {"a.tsv": "ab\t日".encode()[:-1]}, r"a\.tsv:1: .*0xE6 in column 4"),
    ("after others", {"a.tsv": "日本\tb".encode() + b"\xff"}, r"a\.tsv:1: .*0xFF in column 5"),
    ("UTF-16", {"a.tsv": "a\tb\n".encode("utf-16")}, r"a\.tsv:1: .*UTF-16"),
    ("NUL", {"a.tsv": b"a\tb\nc\td\0e\n"}, r"a\.tsv:2: .*NUL byte at byte 4"),
    ("no tab", {"a.tsv": b"a\tb\nno tab here\n"}, r"a\.tsv:2: .*no TAB in 'no tab here'"),
    (
        "three columns",
        {"a.tsv": b"a\tb\tc\n"},
        r"a\.tsv:1: expected 2 columns, found 3 \(a, b, c\); .*--columns source=1,target=2",
    ),
    ("no JSON", {"a.jsonl": b'{"source": "a", "target": "b"}\n{oops\n'}, r"a\.jsonl:2: .*JSON object.*oops"),
    ("a list", {"a.jsonl": b'["a", "b"]\n'}, r"a\.jsonl:1: expected an object"),
    ("no key", {"a.jsonl": b'{"source": "a", "tgt": "b"}\n'}, r'a\.jsonl:1: .*"target", found the keys source, tgt'),
    ("a number", {"a.jsonl": b'{"source": 5, "target": "b"}\n'}, r'a\.jsonl:1: .*string as "source", got \'5\''),
    ("surrogate", {"a.jsonl": b'{"source": "\\ud800", "target": "b"}\n'}, r"a\.jsonl:1: .*surrogate"),
    ("deep", {"a.jsonl": b"[" * 200_000 + b"\n"}, r"a\.jsonl:1: expected one JSON object"),
    ("left longer", {"a.en": b"a\nb\nc\nd\n", "a.de": b"x\ny\n"}, r"a\.de:3: .*a\.en, which has 4, found 2"),
    ("right longer", {"a.en": b"a\n", "a.de": b"x\ny\nz"}, r"a\.en:2: .*a\.de, which has 3, found 1"),
    ("empty", {"a.tsv": b""}, r"a\.tsv: .*empty"),
    ("empty gzip", {"a.tsv.gz": gzip.compress(b"")}, r"a\.tsv\.gz: .*empty"),
    ("both empty", {"a.en": b"", "a.de": b""}, r"a\.en: .*empty"),
    ("cut gzip", {"a.tsv.gz": gzip.compress(b"a\tb\n" * 999)[:-9]}, r"a\.tsv\.gz:\d+: .*gzip.*damaged or truncated"),
    ("gzip noise", {"a.tsv": gzip.compress(b"a\tb\n" * 9)[:12] + b"\xff" * 30}, r"a\.tsv:1: .*gzip.*damaged"),
    ("three files", {"a.en": b"a\n", "a.de": b"b\n", "a.fr": b"c\n"}, "one file of pairs.*or two line files, got 3"),
]


@pytest.mark.parametrize(("files", "message"), [fault[1:] for fault in FAULTS], ids=[fault[0] for fault in FAULTS])
def test_a_structural_fault_is_reported_with_its_location(
    tmp_path: Path, files: dict[str, bytes], message: str
) -> None:
    paths = [write(tmp_path, name, content) for name, content in files.items()]
    with pytest.raises(DataError, match=message):
        load_pairs(paths)


def test_missing_files_and_folders_are_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.tsv: no such file"):
        load_pairs([tmp_path / "gone.tsv"])
    with pytest.raises(DataError, match="this is a folder"):
        load_pairs([tmp_path])
    with pytest.raises(DataError, match="got 0: none"):
        load_pairs([])


@settings(max_examples=150, deadline=None)
@given(
    content=st.binary(max_size=60) | st.text('ab\t\n\r{}":,', max_size=40).map(str.encode),
    name=st.sampled_from(["a.tsv", "a.jsonl"]),
)
def test_any_bytes_give_pairs_or_a_data_error(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, name: str
) -> None:
    path = write(tmp_path_factory.mktemp("any"), name, content)
    skips = SkipReport()
    try:
        pairs = list(read_pairs([path], skips))
    except DataError as error:
        assert str(path) in str(error)
    else:
        assert len(pairs) + skips.total == content.count(b"\n") + (not content.endswith(b"\n"))


def test_too_few_usable_lines_are_refused_with_counts(tmp_path: Path) -> None:
    path = write(tmp_path, "a.tsv", b"a\tb\nc\t\nd\t\n")
    with pytest.raises(
        DataError, match=r"more than half.*of 3 lines only 1.*empty target: 2 \(.*a\.tsv:2, .*a\.tsv:3\)"
    ):
        load_pairs([path])
    half = write(tmp_path, "half.tsv", b"a\tb\nc\t\n")
    assert len(load_pairs([half]).records) == 1
    with pytest.raises(DataError, match=r"at least 2 usable pairs.*of 2 lines only 1"):
        load_pairs([half], min_pairs=2)
    with pytest.raises(DataError, match=r"at least 1 usable pairs.*empty line: 3"):
        load_pairs([write(tmp_path, "blank.tsv", b"\n\n\n")])


def test_the_fingerprint_depends_on_text_and_order(tmp_path: Path) -> None:
    def of(content: bytes) -> str:
        return load_pairs([write(tmp_path, "a.tsv", content)]).fingerprint

    base = of(b"a\tb\nc\td\n")
    assert base == of(b"\xef\xbb\xbfa\tb\r\n\r\nc\td")
    assert len({base, of(b"c\td\na\tb\n"), of(b"a\tb\n"), of(b"ab\tc\nd\te\n"), of(b"a\tbc\nd\te\n")}) == 5


def test_pairs_are_streamed(tmp_path: Path) -> None:
    path = write(tmp_path, "big.tsv.gz", gzip.compress(b"a small dog\tein kleiner Hund\n" * 60_000, 1))
    tracemalloc.start()
    assert sum(1 for _ in read_pairs([path])) == 60_000
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 500_000


def test_a_line_without_end_is_refused_before_it_fills_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines_module, "MAX_LINE_BYTES", 11)
    assert list(read_lines(write(tmp_path, "fits.txt", b"0123456789\n01234"))) == ["0123456789", "01234"]
    with pytest.raises(DataError, match=r":2: .*more than 11 bytes"):
        list(read_lines(write(tmp_path, "long.txt", b"a\n" + b"0" * 30)))


def test_streams_are_checked_like_files() -> None:
    content = b"\xef\xbb\xbfone\r\n\n two \xe2\x80\xa8\n"
    for packed in (content, gzip.compress(content)):
        stream = io.BufferedReader(io.BytesIO(packed))  # type: ignore[arg-type,unused-ignore]
        assert list(read_lines(stream)) == ["one", "", " two \u2028"]
    with pytest.raises(DataError, match="<stdin>:1: expected UTF-8"):
        list(read_lines(io.BytesIO(b"\xff")))


def _first_digit(pair: Pair) -> str:
    return blake2b(pair.source.encode(), digest_size=7).hexdigest()[0]


def numbered(count: int) -> list[Pair]:
    return [Pair(f"source {number}", f"target {number}", number) for number in range(1, count + 1)]


@settings(max_examples=100, deadline=None)
@given(
    sources=st.lists(SENTENCE, min_size=2, max_size=60).filter(lambda texts: len(set(texts)) > 1),
    share=st.floats(0.001, 0.999),
    cap=st.integers(1, 50),
)
def test_a_split_keeps_all_records_and_shares_no_source(sources: Sequence[str], share: float, cap: int) -> None:
    pairs = [Pair(text, f"t{line}", line) for line, text in enumerate(sources, start=1)]
    train, valid = split_held_out(pairs, share, cap)
    assert sorted([*train, *valid], key=lambda pair: pair.line) == pairs
    assert train
    assert valid
    assert not {pair.source for pair in train} & {pair.source for pair in valid}


def test_the_split_has_about_its_share_and_never_moves_when_lines_are_added() -> None:
    before, after = split_held_out(numbered(5000), 0.1), split_held_out(numbered(9001), 0.1)
    assert 400 < len(before.valid) < 600
    assert [pair for pair in after.valid if pair.line <= 5000] == before.valid
    assert set(split_held_out(numbered(5000)[::-1], 0.1).valid) == set(before.valid)


def test_under_a_cap_a_trained_pair_never_becomes_a_validation_pair() -> None:
    seen = set(numbered(2003))
    before = set(split_held_out(numbered(2003), 0.5, max_valid=300).valid)
    after = set(split_held_out(numbered(20_011), 0.5, max_valid=300).valid)
    assert before == {pair for pair in seen if _first_digit(pair) in "01"}  # below 1/8: halved twice, to about 250
    assert 100 < len(after) <= 300
    assert after & seen < before


def test_the_split_is_the_same_in_every_version() -> None:
    valid = split_held_out(numbered(500), share=1 / 16).valid
    assert valid == [pair for pair in numbered(500) if _first_digit(pair) == "0"]
    assert len(valid) > 10


def test_an_impossible_split_is_refused() -> None:
    with pytest.raises(DataError, match="found 3 examples with the same input"):
        split_held_out([Pair("a", text, 1) for text in "xyz"])
    with pytest.raises(DataError, match="found none"):
        split_held_out([])
    for share in (0.0, 1.0, -1.0, float("nan")):
        with pytest.raises(ConfigError, match="between 0 and 1"):
            split_held_out(numbered(3), share)
    with pytest.raises(ConfigError, match="at least 1"):
        split_held_out(numbered(3), 0.5, max_valid=0)


def test_filtered_pairs_are_counted(tmp_path: Path) -> None:
    lines = ["aaa\tb", "aa\tb", "c\tddd", "aa\tb", "aa\tc", "\td", "aa\tb"]
    path = write(tmp_path, "a.tsv", "".join(f"{line}\n" for line in lines).encode())
    assert [pair.line for pair in load_pairs([path]).records] == [1, 2, 3, 4, 5, 7]
    corpus = load_pairs([path], max_length_ratio=3, deduplicate=True)
    assert [pair.line for pair in corpus.records] == [2, 5]  # more than half is filtered, as requested
    assert corpus.skips.counts == {"one side 3 times as long as the other or longer": 2, "duplicate": 2,
                                   "empty source": 1}  # fmt: skip
    assert f"duplicate: 2 ({path}:4, {path}:7)" in corpus.skips.summary()
    assert corpus.total_lines == len(lines)
    assert [pair.line for pair in load_pairs([path], deduplicate=True).records] == [1, 2, 3, 5]


def test_duplicates_across_files_are_removed(tmp_path: Path) -> None:
    first, second = write(tmp_path, "a.tsv", b"a\tb\nc\td\n"), write(tmp_path, "b.tsv", b"c\td\na\tbb\n")
    assert [(pair.source, pair.target) for pair in load_pairs([first, second], deduplicate=True).records] == [
        ("a", "b"), ("c", "d"), ("a", "bb"),
    ]  # fmt: skip
