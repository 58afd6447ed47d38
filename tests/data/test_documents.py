"""Plain text to documents: units, white space, and refused files."""

import gzip
from pathlib import Path

import pytest

from clearhead.data.readers.documents import DocumentUnit, load_documents
from clearhead.errors import DataError

TEXT = "\n  One.\nTwo  words.  \n\n \nThree.\n\n"
CUTS: list[tuple[DocumentUnit, list[tuple[str, int]]]] = [
    ("line", [("One.", 2), ("Two  words.", 3), ("Three.", 6)]),
    ("paragraph", [("One.\nTwo  words.", 2), ("Three.", 6)]),
    ("file", [("One.\nTwo  words.  \n\n \nThree.", 2)]),
]


def found(path: Path, cut: DocumentUnit) -> list[tuple[str, int]]:
    return [(document.text, document.line) for document in load_documents([path], cut).records]


@pytest.mark.parametrize(("cut", "expected"), CUTS)
@pytest.mark.parametrize("form", ["plain", "windows", "gzip"])
def test_documents_are_lines_paragraphs_or_files(
    cut: DocumentUnit, expected: list[tuple[str, int]], form: str, tmp_path: Path
) -> None:
    raw = TEXT.encode()
    path = tmp_path / "text.txt"
    path.write_bytes({"plain": raw, "windows": raw.replace(b"\n", b"\r\n"), "gzip": gzip.compress(raw)}[form])
    assert found(path, cut) == expected


def test_a_file_without_a_last_line_end_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "text.txt"
    path.write_text("One.\n\nTwo.", encoding="utf-8")
    assert found(path, "paragraph") == [("One.", 1), ("Two.", 3)]


def test_documents_end_with_their_file(tmp_path: Path) -> None:
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    for path in paths:
        path.write_text(f"{path.name}\nmore", encoding="utf-8")
    for cut, count in (("line", 4), ("paragraph", 2), ("file", 2)):
        assert len(load_documents(paths, cut).records) == count  # type: ignore[arg-type]


@pytest.mark.parametrize("cut", ["line", "paragraph", "file"])
def test_a_json_object_is_a_document(cut: DocumentUnit, tmp_path: Path) -> None:
    path = tmp_path / "text.jsonl"
    path.write_text('{"text": " One.\\n\\nTwo. ", "id": 7}\n\n{"text": "  "}\n{"text": "Three."}\n', encoding="utf-8")
    assert found(path, cut) == [("One.\n\nTwo.", 1), ("Three.", 4)]


def test_the_fingerprint_depends_on_the_text(tmp_path: Path) -> None:
    baseline, objects = tmp_path / "t.txt", tmp_path / "t.jsonl"
    baseline.write_text("One.\nTwo.\n", encoding="utf-8")
    objects.write_text('{"text": "One."}\n{"text": "Two."}\n', encoding="utf-8")
    assert load_documents([baseline], "line").fingerprint == load_documents([objects], "line").fingerprint


BAD = [
    ("t.txt", "", "the file is empty"),
    ("t.txt", "\n \n\t\n", "found only blank lines"),
    ("t.jsonl", "\n\n", "found only blank lines"),
    ("t.jsonl", '{"text": "One."}\n{"words": 1}\n', ':2: expected the key "text", found the keys words'),
    ("t.jsonl", '["One."]\n', ":1: expected an object with"),
    ("t.jsonl", "One.\n", ":1: expected one JSON object per line"),
    ("t.jsonl", '{"text": 7}\n', ":1: expected a string as \"text\", got '7'"),
]


@pytest.mark.parametrize(("name", "text", "message"), BAD)
def test_faulty_files_are_reported(name: str, text: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError) as caught:
        load_documents([path], "line")
    assert str(caught.value).startswith(str(path)) and message in str(caught.value)


def test_too_few_documents_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.txt"
    path.write_text("One.\nTwo.\n", encoding="utf-8")
    with pytest.raises(DataError, match="at least 3 usable documents"):
        load_documents([path], "line", minimum=3)
