"""Reading of CoNLL files: equal sentences from all layouts, older tags become BIO, and faults with file and line."""

import gzip
from pathlib import Path

import pytest

from clearhead.data.readers.labelled import TaggedSentence, load_tagged, read_tagged, repair_tags
from clearhead.data.records import SkipReport
from clearhead.errors import DataError

EXPECTED = [
    TaggedSentence(("Anna", "Lee", "left", "Oslo"), ("B-PER", "I-PER", "O", "B-LOC"), 1),
    TaggedSentence(("#", "1"), ("O", "O"), 6),
]
ROWS = [[*zip(one.words, one.tags, strict=True)] for one in EXPECTED]


def written(folder: Path, text: str, name: str = "t.conll") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def joined(between: str) -> str:
    return "\n\n".join("\n".join(between.join(row) for row in rows) for rows in ROWS) + "\n"


@pytest.mark.parametrize("between", ["\t", " ", "   ", "\tNNP\tI-NP\t", " NNP I-NP "])
@pytest.mark.parametrize("end", ["", "\n\n\n"])
def test_all_layouts_give_the_same_sentences(between: str, end: str, tmp_path: Path) -> None:
    path = written(tmp_path, joined(between) + end)
    assert [(record.words, record.tags) for record in load_tagged([path]).records] == [
        (record.words, record.tags) for record in EXPECTED
    ]
    assert [record.line for record in load_tagged([path]).records] == [1, 6]


def test_windows_lines_byte_order_mark_and_gzip(tmp_path: Path) -> None:
    path = tmp_path / "t.conll.gz"
    path.write_bytes(gzip.compress(b"\xef\xbb\xbf" + joined("\t").replace("\n", "\r\n").encode()))
    assert load_tagged([path]).records[0] == EXPECTED[0]


def test_document_markers_and_comments_are_skipped(tmp_path: Path) -> None:
    text = "-DOCSTART- -X- -X- O\n\n# sent_id = 1\n# text = vitamin O\nAnna B-PER\n-DOCSTART- O\n# note\nOslo B-LOC\n"
    records = load_tagged([written(tmp_path, text)]).records
    assert [(record.words, record.tags, record.line) for record in records] == [
        (("Anna",), ("B-PER",), 5),
        (("Oslo",), ("B-LOC",), 8),
    ]


SOUND = [
    ("I-PER I-PER O I-LOC", "B-PER I-PER O B-LOC"),  # IOB, as in CoNLL-2003
    ("I-PER B-PER I-PER", "B-PER B-PER I-PER"),
    ("B-PER I-LOC I-LOC", "B-PER B-LOC I-LOC"),
    ("B-PER I-PER O", "B-PER I-PER O"),
    ("O I-a-b I-a I-a", "O B-a-b B-a I-a"),
]


@pytest.mark.parametrize(("tags", "expected"), SOUND)
def test_older_tags_become_bio(tags: str, expected: str, tmp_path: Path) -> None:
    assert repair_tags(tags.split()) == expected.split()
    path = written(tmp_path, "".join(f"w\t{tag}\n" for tag in tags.split()))
    assert load_tagged([path]).records[0].tags == tuple(expected.split())


BAD = [
    ("Anna B-PER\nLee\n", r"t.conll:2: expected a word and its tag, .* got 'Lee'"),
    ("Anna\tB-PER\n\tO\n", r"t.conll:2: expected a word and its tag"),
    ("Anna B-PER\nLee S-PER\n", r"t.conll:2: expected the tag O, or B- or I- .* got 'S-PER'; convert"),
    ("Anna B-\n", r"t.conll:1: expected the tag O"),
    ("Anna\tB-a place\n", r"t.conll:1: expected the tag O"),
    ("Anna NNP\n", r"t.conll:1: .* got 'NNP'"),
    ("The dog sleeps.\n", r"t.conll:1: .* got 'sleeps.'"),
    ("It is good.\tpositive\n", r"t.conll:1: .* got 'positive'"),
    ("Anna B-PER\n# note\n", r"t.conll:2: .* got 'note'"),
    ("", "the file is empty"),
    ("\n\n", "at least 1 usable tagged sentences are needed"),
]


@pytest.mark.parametrize(("text", "message"), BAD)
def test_faults_are_reported_with_file_and_line(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        load_tagged([written(tmp_path, text)])


def test_long_sentences_are_skipped_and_counted(tmp_path: Path) -> None:
    path, skips = written(tmp_path, joined(" ")), SkipReport()
    assert [record.line for record in read_tagged([path], skips, max_chars=17)] == [6]  # "Anna Lee left Oslo" has 18
    assert skips.summary() == [f"sentence longer than 17 characters: 1 ({path}:1)"]
    assert len(load_tagged([path], max_chars=18).records) == 2
