"""Files to records: reads parallel text and checks it; knows nothing of tokens.

Three formats, each plain or gzipped (told by its first bytes, not by its name):

    pairs.tsv            source TAB target, exactly two columns; also .txt and any unknown suffix
    pairs.jsonl          one object a line with the strings "source" and "target"; other keys are allowed
    train.en train.de    two files, line n of one belonging to line n of the other

Text is UTF-8, with or without a byte order mark; lines end with LF or CRLF and nothing else ends a line. A fault of
the file's structure is a `DataError` naming the place. A line that is sound but useless (an empty side, one that is
too long) is skipped and counted. Every line is therefore either a pair or in the tally.
"""

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, cast

from clearhead.errors import DataError

MAX_CHARS = 2000
MAX_LINE_BYTES = 1 << 24  # a longer "line" is no text; the bound keeps memory bounded on any input
PLACES_SHOWN = 3
TABLE_SUFFIXES = {".tsv", ".jsonl", ".ndjson", ".json"}
JSON_SUFFIXES = TABLE_SUFFIXES - {".tsv"}
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Pair:
    """A sentence and its translation, and where they came from."""

    source: str
    target: str
    line: int
    """The line in the file or files, counted from 1."""


@dataclass
class Skips:
    """A tally of the lines left out, by reason, with the first few places of each."""

    counts: dict[str, int] = field(default_factory=dict)
    places: dict[str, list[str]] = field(default_factory=dict)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def add(self, reason: str, path: Path | str, line: int) -> None:
        self.counts[reason] = self.counts.get(reason, 0) + 1
        places = self.places.setdefault(reason, [])
        if len(places) < PLACES_SHOWN:
            places.append(f"{path}:{line}")

    def lines(self) -> list[str]:
        """One line of text a reason, most frequent first: `empty target: 12 (train.tsv:17, ...)`."""
        by_count = sorted(self.counts.items(), key=lambda item: (-item[1], item[0]))
        return [f"{reason}: {count} ({self._shown(reason)})" for reason, count in by_count]

    def _shown(self, reason: str) -> str:
        places = self.places[reason]
        return ", ".join(places + ["..."] * (self.counts[reason] > len(places)))


@dataclass(frozen=True)
class Corpus:
    """The usable pairs of a corpus and the account of the rest."""

    pairs: list[Pair]
    skips: Skips
    total_lines: int

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the text of the pairs in their order: equal for equal data in any format or compression."""
        digest = blake2b(digest_size=16)
        for pair in self.pairs:
            for text in (pair.source, pair.target):
                encoded = text.encode()
                digest.update(len(encoded).to_bytes(8, "little"))  # so that ("ab", "c") differs from ("a", "bc")
                digest.update(encoded)
        return digest.hexdigest()


def load_pairs(paths: Sequence[Path | str], max_chars: int = MAX_CHARS, min_pairs: int = 1) -> Corpus:
    """Read a whole corpus, refusing one of which too little is usable."""
    skips = Skips()
    pairs = list(read_pairs(paths, skips, max_chars))
    corpus = Corpus(pairs, skips, len(pairs) + skips.total)
    names = " and ".join(str(path) for path in paths)
    if len(pairs) < min_pairs:
        raise DataError(_too_little(names, corpus, f"at least {min_pairs} usable pairs are needed"))
    if skips.total > len(pairs):
        raise DataError(_too_little(names, corpus, "more than half of the lines had to be skipped"))
    return corpus


def read_pairs(paths: Sequence[Path | str], skips: Skips | None = None, max_chars: int = MAX_CHARS) -> Iterator[Pair]:
    """Stream the usable pairs of a corpus, telling `skips` of every line that is left out.

    One path or several TSV and JSONL files are read one after the other; two other files are read side by side.
    """
    skips = Skips() if skips is None else skips
    files = [Path(path) for path in paths]
    records: Iterator[tuple[Path, Pair]]
    if len(files) == 1 or (files and all(_suffix(path) in TABLE_SUFFIXES for path in files)):
        records = (record for path in files for record in _read_table(path))
    elif len(files) == 2:
        records = _read_side_by_side(files[0], files[1])
    else:
        raise DataError(
            f"expected one file of pairs (.tsv, .jsonl) or two line files, got {len(files)}: "
            f"{', '.join(map(str, files)) or 'none'}; join the files of one language first"
        )
    for path, pair in records:
        reason = _fault(pair, max_chars)
        if reason:
            skips.add(reason, path, pair.line)
        else:
            yield pair


def read_lines(source: Path | str | BinaryIO, name: str = "<stdin>") -> Iterator[str]:
    """Stream the lines of a text file, or of an open binary stream that `name` stands for, without their ends."""
    if isinstance(source, Path | str):
        path = Path(source)
        if not path.exists():
            raise DataError(f"{path}: no such file; check the path")
        if path.is_dir():
            raise DataError(f"{path}: expected a file, this is a folder; name the file in it")
        try:
            stream = path.open("rb")
        except OSError as error:
            raise DataError(f"{path}: cannot be read ({error.strerror}); check its permissions") from error
        with stream:
            yield from _decode_lines(stream, str(path))
    else:
        yield from _decode_lines(source, name)


def _fault(pair: Pair, max_chars: int) -> str:
    """Why a pair is of no use, or nothing."""
    for side, text in (("source", pair.source), ("target", pair.target)):
        if not text or text.isspace():
            return f"empty {side}" if pair.source.strip() or pair.target.strip() else "empty line"
        if len(text) > max_chars:
            return f"{side} longer than {max_chars} characters"
    return ""


def _too_little(names: str, corpus: Corpus, expected: str) -> str:
    found = f"{names}: {expected}, but of {corpus.total_lines} lines only {len(corpus.pairs)} are usable"
    if not corpus.skips.total:
        return f"{found}; add data"
    return f"{found}; skipped: {'; '.join(corpus.skips.lines())}; repair these lines or raise the limit"


def _suffix(path: Path) -> str:
    """The lower-cased suffix that tells the format, `.gz` set aside."""
    return (path.with_suffix("") if path.suffix.lower() == ".gz" else path).suffix.lower()


def _read_table(path: Path) -> Iterator[tuple[Path, Pair]]:
    parse = _parse_json if _suffix(path) in JSON_SUFFIXES else _parse_columns
    number = 0
    for number, line in enumerate(read_lines(path), start=1):
        source, target = parse(path, number, line) if line.strip() else ("", "")
        yield path, Pair(source, target, number)
    _refuse_empty(path, number)


def _parse_columns(path: Path, number: int, line: str) -> tuple[str, str]:
    columns = line.split("\t")
    if len(columns) == 1:
        problem = f"expected source TAB target, found no TAB in {_excerpt(line)}; separate the two sides by one TAB, "
        raise DataError.at(path, number, problem + "or give two line files")
    if len(columns) > 2:
        problem = f"expected 2 columns, found {len(columns)}; keep the two wanted, for example with: cut -f1,2"
        raise DataError.at(path, number, problem)
    return columns[0], columns[1]


def _parse_json(path: Path, number: int, line: str) -> tuple[str, str]:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        problem = f"expected one JSON object a line, got {_excerpt(line)} ({error}); write one object to each line"
        raise DataError.at(path, number, problem) from error
    if not isinstance(record, dict):
        problem = f'expected an object with "source" and "target", got {_excerpt(line)}; name the two sides'
        raise DataError.at(path, number, problem)
    return _string(path, number, record, "source"), _string(path, number, record, "target")


def _string(path: Path, number: int, record: dict[str, object], key: str) -> str:
    if key not in record:
        found = ", ".join(record) or "none"
        raise DataError.at(path, number, f'expected the key "{key}", found the keys {found}; rename or add it')
    text = record[key]
    if not isinstance(text, str):
        problem = f'expected a string as "{key}", got {_excerpt(json.dumps(text))}; put it in quotation marks'
        raise DataError.at(path, number, problem)
    if any("\ud800" <= char <= "\udfff" for char in text):
        problem = f'"{key}" holds half of a surrogate pair, which is no character; escape both halves or write UTF-8'
        raise DataError.at(path, number, problem)
    return text


def _read_side_by_side(sources: Path, targets: Path) -> Iterator[tuple[Path, Pair]]:
    number = 0
    lines: Iterable[tuple[str | None, str | None]] = zip_longest(read_lines(sources), read_lines(targets))
    iterator = iter(lines)
    for number, (source, target) in enumerate(iterator, start=1):
        if source is None or target is None:
            longer, shorter = (targets, sources) if source is None else (sources, targets)
            count = number + sum(1 for _ in iterator)
            problem = f"expected as many lines as in {longer}, which has {count}, found {number - 1}; "
            raise DataError.at(
                shorter, number, problem + "line n of one must be the translation of line n of the other"
            )
        yield sources, Pair(source, target, number)
    _refuse_empty(sources, number)


def _refuse_empty(path: Path, lines: int) -> None:
    if not lines:
        raise DataError(f"{path}: expected text, the file is empty; check how it was made")


def _decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    number = 0
    try:
        for number, raw in enumerate(_raw_lines(_unzipped(stream)), start=1):
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)
            yield _decode(raw, name, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        problem = f"the gzip data is damaged or cut off ({error}); fetch or compress the file again"
        raise DataError.at(name, number + 1, problem) from error


def _unzipped(stream: BinaryIO) -> BinaryIO:
    buffered = stream if isinstance(stream, io.BufferedReader) else None
    if buffered is not None and buffered.peek(2).startswith(GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=buffered))
    return stream


def _raw_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Lines as bytes: only LF ends one, so that U+2028 and other separators stay inside the text."""
    while raw := stream.readline(MAX_LINE_BYTES):
        yield raw


def _decode(raw: bytes, name: str, number: int) -> str:
    if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
        problem = f"expected lines of text, this one has more than {MAX_LINE_BYTES} bytes; put one record on each line"
        raise DataError.at(name, number, problem)
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        problem = f"expected UTF-8, got UTF-16; convert it with: iconv -f UTF-16 -t UTF-8 {name}"
        raise DataError.at(name, number, problem)
    if b"\0" in raw:
        problem = f"expected text, found a NUL byte at byte {raw.index(0) + 1} of the line; "
        raise DataError.at(name, number, problem + "this is a binary file, UTF-16 or a damaged one")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode("utf-8")) + 1
        problem = f"expected UTF-8, found the byte 0x{raw[error.start]:02X} in column {column}; "
        problem += f"if the text is Latin-1, convert it with: iconv -f ISO-8859-1 -t UTF-8 {name}"
        raise DataError.at(name, number, problem) from error


def _excerpt(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
