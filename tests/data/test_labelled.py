"""Reading of labelled texts: equal records from all formats, counted lines, and faults with file and line."""

import gzip
import json
from pathlib import Path

import pytest

from clearhead.data.readers.labelled import LabelledText, load_labelled, read_labelled
from clearhead.data.records import SkipReport
from clearhead.errors import DataError

EXPECTED = [
    LabelledText("A good film.", "pos", 1),
    LabelledText("Zoë said: „bad“", "neg", 2),
    LabelledText("So so", "neg", 3),
]
TSV = "".join(f"{one.text}\t{one.label}\n" for one in EXPECTED).encode()
JSONL = "".join(json.dumps({"id": 7, "label": one.label, "text": one.text}) + "\n" for one in EXPECTED).encode()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("t.tsv", TSV),
        ("t.txt", TSV),
        ("t.tsv", b"\xef\xbb\xbf" + TSV.replace(b"\n", b"\r\n")),
        ("t.tsv", TSV.replace(b"\tneg", b"\t neg ")),
        ("t.tsv.gz", gzip.compress(TSV, mtime=0)),
        ("t.jsonl", JSONL),
        ("t.jsonl.gz", gzip.compress(JSONL, mtime=0)),
    ],
)
def test_all_formats_give_the_same_records(name: str, content: bytes, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    corpus = load_labelled([path])
    assert corpus.records == EXPECTED and corpus.total_lines == 3 and corpus.skips.total == 0


def test_several_files_are_read_in_order_with_their_line_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.tsv").write_bytes(TSV)
    (tmp_path / "b.jsonl").write_bytes(JSONL)
    corpus = load_labelled([tmp_path / "a.tsv", tmp_path / "b.jsonl"])
    assert corpus.records == EXPECTED * 2
    assert corpus.fingerprint != load_labelled([tmp_path / "a.tsv"]).fingerprint
    assert load_labelled([tmp_path / "a.tsv"]).fingerprint == load_labelled([tmp_path / "b.jsonl"]).fingerprint


def test_useless_lines_are_counted_by_reason(tmp_path: Path) -> None:
    path, skips = tmp_path / "t.tsv", SkipReport()
    path.write_text(f"fine\tpos\n\n \tpos\nno label\t \n{'x' * 12}\tneg\n{'x' * 11}\tneg\n", encoding="utf-8")
    assert [record.line for record in read_labelled([path], skips, max_chars=11)] == [1, 6]
    assert skips.counts == {"empty line": 1, "empty text": 1, "empty label": 1, "text longer than 11 characters": 1}
    assert skips.locations["empty label"] == [f"{path}:4"]


BAD = [
    ("t.tsv", "fine\tpos\nno tab here\n", r"t.tsv:2: expected text TAB label, found no TAB in 'no tab here'"),
    ("t.tsv", "a\tb\tc\n", "t.tsv:1: expected 2 columns, found 3"),
    ("t.jsonl", '{"text": "x"}\n', 't.jsonl:1: expected the key "label", found the keys text'),
    ("t.jsonl", '{"text": "x", "label": 3}\n', 't.jsonl:1: expected a string as "label", got'),
    ("t.jsonl", "[1]\n", "t.jsonl:1: expected an object"),
    ("t.jsonl", "{\n", "t.jsonl:1: expected one JSON object per line"),
    ("t.tsv", "", "the file is empty"),
    ("t.tsv", "a\t\nb\t\nc\tpos\n", "more than half of the lines had to be skipped.*empty label: 2"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
def test_faults_are_reported_with_file_and_line(name: str, text: str, message: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_labelled([tmp_path / name])
