"""TSV and CSV tables: quoting, delimiters, headers, columns, and errors at the right line."""

import csv
import gzip
import io
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearhead.config import build
from clearhead.data.readers import table_formats
from clearhead.data.readers.labelled import load_labelled
from clearhead.data.readers.pairs import load_pairs
from clearhead.data.readers.tables import ColumnNames, TableOptions, read_table
from clearhead.data.records import SkipReport
from clearhead.errors import ConfigError, DataError

LABELLED = ColumnNames("text", "label")
BOM = b"\xef\xbb\xbf"
FIELD = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0\r"), max_size=12)


def write(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def rows(path: Path, **options: Any) -> list[tuple[int, str, str]]:
    return [(row.line, row.first, row.second) for row in read_table(path, LABELLED, TableOptions(**options))]


def notes(path: Path, **options: Any) -> list[str]:
    collected: list[str] = []
    list(read_table(path, LABELLED, TableOptions(**options), collected.append))
    return collected


@settings(max_examples=60, deadline=None)
@given(records=st.lists(st.tuples(FIELD, FIELD, FIELD), min_size=1, max_size=7))
@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("delimiter", [",", ";"])
def test_written_csv_is_read_unchanged(
    records: list[tuple[str, str, str]], delimiter: str, end: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    stream = io.StringIO()
    writer = csv.writer(stream, delimiter=delimiter, lineterminator=end)
    writer.writerow(["label", "id", "text"])
    writer.writerows(records)
    path = write(tmp_path_factory.mktemp("csv") / "a.csv", BOM + stream.getvalue().encode())
    actual, lines = rows(path), [1]
    for record in records:
        lines.append(lines[-1] + 1 + sum(field.count("\n") for field in record))
    expected = [("", "") if not "".join(record).strip() else (record[2], record[0]) for record in records]
    assert [(line - 1, first, second) for line, first, second in actual] == [
        (line, first, second) for line, (first, second) in zip(lines, expected, strict=False)
    ]


@pytest.mark.parametrize("suffix", ["csv", "csv.gz", "csv.zst", "CSV"])
def test_compressed_csv_is_read(suffix: str, tmp_path: Path) -> None:
    content = b'text,label\n"a, b",x\nc,y\n'
    if suffix.endswith("gz"):
        content = gzip.compress(content)
    if suffix.endswith("zst"):
        content = pytest.importorskip("zstandard").ZstdCompressor().compress(content)
    assert rows(write(tmp_path / f"a.{suffix}", content)) == [(2, "a, b", "x"), (3, "c", "y")]


@pytest.mark.parametrize(
    ("content", "delimiter"),
    [
        ('text,label\n"a; b",x\n', "comma"),
        ('text;label\n"a, b";x\n', "semicolon"),
        ("Oh, no;x\nWell;y\nYes, no, yes;x\n", "semicolon"),
        ("Oh; no,x\nWell,y\n", "comma"),
        ('"one;two\nthree, four",x\n"b",y\n', "comma"),
        ("3,5;x\n2,5;y\n", "semicolon"),
    ],
)
def test_the_delimiter_is_detected_and_reported(content: str, delimiter: str, tmp_path: Path) -> None:
    (note,) = notes(write(tmp_path / "a.csv", content))
    assert f"separated by {delimiter}" in note


def test_a_delimiter_can_be_set(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "3,5;x\n2,5;y\n")
    assert rows(path, delimiter="comma") == [(1, "3", "5;x"), (2, "2", "5;y")]
    tabs = write(tmp_path / "tabs.csv", 'a b\t"x"\n')
    assert rows(tabs, delimiter="tab") == [(1, "a b", "x")]


def test_quotation_marks_in_tsv_are_text_unless_quoting_is_requested(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", '"a ""b"""\t"x"\n"c"\ty\n')
    assert rows(path) == [(1, '"a ""b"""', '"x"'), (2, '"c"', "y")]
    assert rows(path, quoting=True) == [(1, 'a "b"', "x"), (2, "c", "y")]
    lone = write(tmp_path / "b.tsv", '5" nails\tx\n"open\ty\n')
    assert rows(lone) == [(1, '5" nails', "x"), (2, '"open', "y")]


FAULTS = [
    ("a.csv", 'text,label\n"a, b",x\nc,y\n"open,x\n' + "d,y\n" * 9, r"a\.csv:4: the quoted field .*is not closed"),
    ("a.csv", 'text,label\nc,y\n"one\ntwo","open\n' + "d,y\n" * 9, r"a\.csv:4: the quoted field .*is not closed"),
    ("a.csv", 'text,label\n"open,x\n"next",y\n', r"a\.csv:2: the quoted field .*is closed on line 3 before 'next\""),
    ("a.csv", 'text,label\n"a "b" c",y\n', r"a\.csv:2: the quoted field .*is closed on line 2 before 'b\""),
    (
        "a.csv",
        'text,label\n"a\nb",x\nOh, no,y\n',
        r"a\.csv:4: expected 2 columns as in the first record, found 3; quote",
    ),
    ("a.csv", "text,label\na,x\nb\n", r"a\.csv:3: expected text , label, found no , in 'b'"),
    ("a.csv", "a\tx\nb\ty\n", r"a\.csv:1: expected fields separated by , or ;.*name the file \.tsv"),
    ("a.csv", "a,x\rb,y\r", r"a\.csv:1: expected a CSV record.*LF or CRLF"),
    ("a.csv", "a,b,c\n", r"a\.csv:1: expected 2 columns, found 3 \(a, b, c\); .*--columns text=1,label=2"),
    ("a.csv", "", r"a\.csv: expected text, the file is empty"),
    ("a.tsv", "a\tx\nb\tx\ty\n", r"a\.tsv:2: expected 2 columns as in the first record, found 3; remove"),
]


@pytest.mark.parametrize(("name", "content", "message"), FAULTS)
def test_faults_name_file_and_line(name: str, content: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=message):
        rows(write(tmp_path / name, content))


def test_an_unclosed_quotation_mark_takes_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.csv", 'text,label\n"open,x\n' + "long text,y\n" * 3000 + 'end",z\n')
    monkeypatch.setattr(table_formats, "MAX_FIELD_CHARS", 5000)
    limit = csv.field_size_limit(5000)
    try:
        with pytest.raises(DataError, match=r"a\.csv:2: .*is not closed within 5,000 characters"):
            rows(path)
    finally:
        csv.field_size_limit(limit)


def test_a_field_longer_than_the_csv_modules_default_is_read(tmp_path: Path) -> None:
    text = "word " * 40_000
    assert rows(write(tmp_path / "a.csv", f'"{text}",x\n')) == [(1, text, "x")]


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("a.tsv", "text\tlabel\na\tx\n", [(2, "a", "x")]),
        ("a.tsv", "Label\tSentence\nx\ta\n", [(2, "a", "x")]),
        ("a.csv", ",review,stars\n0,a,x\n", [(2, "a", "x")]),
        ("a.csv", '"id";"Text";"title";"target"\n7;a;t;x\n', [(2, "a", "x")]),
        ("a.tsv", '"text"\t"label"\na\tx\n', [(2, "a", "x")]),
        ("a.tsv", "\ntext\tlabel\na\tx\n", [(1, "", ""), (3, "a", "x")]),
        ("a.tsv", "text\tother\na\tx\n", [(1, "text", "other"), (2, "a", "x")]),
    ],
)
def test_a_header_with_usual_names_selects_the_columns(
    name: str, content: str, expected: list[tuple[int, str, str]], tmp_path: Path
) -> None:
    path = write(tmp_path / name, content)
    assert rows(path) == expected
    assert any("is the header" in note for note in notes(path)) == (expected[0][1] != "text")


def test_a_header_can_be_asserted_or_denied(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "text\tlabel\na\tx\n")
    assert rows(path, header="no") == [(1, "text", "label"), (2, "a", "x")]
    other = write(tmp_path / "b.tsv", "Satz\tKlasse\na\tx\n")
    assert rows(other, header="yes") == [(2, "a", "x")]
    with pytest.raises(ConfigError, match="columns by name require a header"):
        build({"data": {"columns": "text=Satz,label=Klasse", "header": "no"}})


@pytest.mark.parametrize("columns", [{"text": "3", "label": "2"}, {"text": "Frage", "label": "2"},
                                     {"text": "frage", "label": "Klasse"}])  # fmt: skip
def test_columns_are_selected_by_number_or_name(columns: dict[str, str], tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,Klasse,Frage,Klasse2\n1,x,a,q\n")
    result = rows(path, columns=columns)
    assert result[-1] == (2, "a", "x")
    has_name = any(not column.isdecimal() for column in columns.values())
    assert len(result) == (1 if has_name else 2)  # by number, a header with unknown names is a record
    assert "text in column 3" in notes(path, columns=columns)[0]


def test_columns_by_number_skip_a_header_with_usual_names(tmp_path: Path) -> None:
    path = write(tmp_path / "a.tsv", "id\ttext\tcategory\tlabel\n1\ta\tx\tq\n")
    assert rows(path, columns={"text": "2", "label": "3"}) == [(2, "a", "x")]


def test_missing_columns_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "a.csv", "id,text,text\n1,a,x\n")
    for columns, message in (
        ({"text": "2", "label": "4"}, r"a\.csv:1: expected a column 4, found 3 columns \(id, text, text\)"),
        ({"text": "id", "label": "stars"}, r"a\.csv:1: expected a header with one column 'stars', found no column"),
        ({"text": "text", "label": "id"}, r"a\.csv:1: .*'text', found several columns"),
    ):
        with pytest.raises(DataError, match=message):
            rows(path, columns=columns)
    with pytest.raises(ConfigError, match="expected text and label, got source, target"):
        rows(path, columns={"source": "1", "target": "2"})


def test_columns_name_the_keys_of_jsonl_and_the_columns_of_parquet(tmp_path: Path) -> None:
    columns = {"text": "review", "label": "stars"}
    path = write(tmp_path / "a.jsonl", json.dumps({"review": "a", "stars": "5", "text": "no"}) + "\n")
    assert rows(path, columns=columns) == [(1, "a", "5")]
    with pytest.raises(DataError, match=r'expected the key "label", found the keys review, stars, text; .*--columns'):
        rows(path)
    pyarrow = pytest.importorskip("pyarrow")
    table = tmp_path / "a.parquet"
    pytest.importorskip("pyarrow.parquet").write_table(pyarrow.table({"review": ["a"], "stars": ["5"]}), table)
    assert rows(table, columns=columns) == [(1, "a", "5")]


@pytest.mark.parametrize("wrong", ["text", "text=", "=2", "text=2,text=3", "text=2,label=2", "text=0,label=1"])
def test_malformed_columns_are_refused(wrong: str) -> None:
    with pytest.raises(ConfigError, match=r"data\.columns: expected columns by number or header name, such as text=2"):
        build({"data": {"columns": wrong}})


def test_columns_are_stored_in_one_form() -> None:
    for given_columns in (" text = 2, label=stars", {"text": 2, "label": "stars"}):
        data = build({"data": {"columns": given_columns}}).data
        assert data.columns == "text=2,label=stars" and data.column_map == {"text": "2", "label": "stars"}


def test_pairs_are_read_from_csv(tmp_path: Path) -> None:
    first = write(tmp_path / "a.csv", 'tgt;src\n"ein; Hund";"a ""dog"""\n')
    second = write(tmp_path / "b.csv", "1,a cat,eine Katze\n")
    corpus = load_pairs([first])
    assert [pair.fields for pair in corpus.records] == [('a "dog"', "ein; Hund")]
    assert corpus.skips.messages() == [
        f"{first}: separated by semicolon, line 1 is the header (tgt, src), source in column 2, target in column 1"
    ]
    options = TableOptions({"source": "2", "target": "3"})
    assert [pair.fields for pair in load_pairs([second], table=options).records] == [("a cat", "eine Katze")]


def labelled(path: Path, records: list[tuple[str, str]]) -> Path:
    return write(path, "".join(f"{text}\t{label}\n" for text, label in records))


RECORDS = [(f"text number {number}", "good" if number % 3 else "bad") for number in range(20)]


@pytest.mark.parametrize(
    ("head", "records", "is_header"),
    [
        (("Satz", "Klasse"), RECORDS, True),
        (("Satz", "Wert"), [(text, f"{number / 7:.4f}") for number, (text, _) in enumerate(RECORDS)], True),
        (("Satz", "good"), RECORDS, False),
        (("Ein Satz", "Klasse"), RECORDS, False),
        (("Satz", "7"), RECORDS, False),
        (("Anna", "Klasse"), [(text.replace(" ", "_"), label) for text, label in RECORDS], False),
        (("Satz", "Klasse"), RECORDS[:5], False),
        (("Satz", "Klasse"), [(text, f"label{number}") for number, (text, _) in enumerate(RECORDS)], False),
    ],
)
def test_a_header_with_other_names_is_recognised_by_statistics(
    head: tuple[str, str], records: list[tuple[str, str]], is_header: bool, tmp_path: Path
) -> None:
    path = labelled(tmp_path / "a.tsv", [head, *records])
    corpus = load_labelled([path])
    assert len(corpus.records) == len(records) + (not is_header)
    assert any("read as a header" in note for note in corpus.skips.notes) == is_header
    assert len(load_labelled([path], table=TableOptions(header="no")).records) == len(records) + 1


def test_only_one_line_is_a_header(tmp_path: Path) -> None:
    path = labelled(tmp_path / "a.tsv", [("text", "label"), ("Superb", "best"), *RECORDS])
    assert load_labelled([path]).records[0].label == "best"
    jsonl = write(tmp_path / "a.jsonl", "".join(json.dumps({"text": text, "label": label}) + "\n"
                                                for text, label in [("Satz", "Klasse"), *RECORDS]))  # fmt: skip
    assert load_labelled([jsonl]).records[0].label == "Klasse"


def test_swapped_columns_are_refused_with_the_option_to_use(tmp_path: Path) -> None:
    path = labelled(tmp_path / "a.tsv", [(label, text) for text, label in RECORDS])
    message = r"a\.tsv: .*found 2 different values as text \(such as 'bad', 'good'\) and 20 longer ones as label, in 20"
    with pytest.raises(DataError, match=message + ".*use --columns text=2,label=1"):
        load_labelled([path])
    swapped = load_labelled([path], table=TableOptions({"text": "2", "label": "1"}))
    assert [record.fields for record in swapped.records] == RECORDS
    records = load_labelled([path], table=TableOptions({"text": "1", "label": "2"}))
    assert {record.text for record in records.records} == {"good", "bad"}


def test_reports_are_merged_with_their_notes() -> None:
    skips, others = SkipReport(), SkipReport()
    others.add_note("read")
    others.add("empty line", "a.tsv", 3)
    skips.merge(others)
    assert skips.messages() == ["read", "skipped empty line: 1 (a.tsv:3)"]
