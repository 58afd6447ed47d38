"""Bytes to lines: UTF-8, with or without a byte order mark, plain, gzipped or Zstandard (told by its
first bytes, not its name).

Lines end with LF or CRLF and nothing else ends a line. What is no text is a `DataError` naming the place.

The content of a Zstandard file as a stream: one frame after the other, and one that is cut off is an error.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from clearhead.errors import DataError
from clearhead.extras import require_package

ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BLOCK_BYTES = 1 << 17


class DamagedZstdError(EOFError):
    """What was read is no whole Zstandard file."""


def decompress_zstd(stream: BinaryIO, name: str) -> BinaryIO:
    """A stream of what is in a stream of compressed bytes; reading damaged ones raises `DamagedZstdError`."""
    return io.BufferedReader(_ZstdReader(stream, require_package("zstandard", f"{name}: Zstandard")), BLOCK_BYTES)


class _ZstdReader(io.RawIOBase):
    """The reader of the library itself takes the end of a cut-off file for the end of its text."""

    def __init__(self, stream: BinaryIO, library: Any) -> None:
        self._stream, self._library = stream, library
        self._frame: Any = None
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting:
            block = self._stream.read(BLOCK_BYTES)
            if not block and self._frame is None:
                return 0
            if not block:
                raise DamagedZstdError("it ends before the end of a frame")
            self._waiting = self._decompress(block)
        count = min(len(buffer), len(self._waiting))
        buffer[:count], self._waiting = self._waiting[:count], self._waiting[count:]
        return count

    def _decompress(self, block: bytes) -> bytes:
        parts = []
        try:
            while block:
                if self._frame is None:
                    self._frame = self._library.ZstdDecompressor().decompressobj()
                parts.append(self._frame.decompress(block))
                block = b""
                if self._frame.eof:
                    block, self._frame = self._frame.unused_data, None
        except self._library.ZstdError as error:
            raise DamagedZstdError(str(error)) from error
        return b"".join(parts)


MAX_LINE_BYTES = 1 << 24  # a longer "line" is no text; the bound keeps memory bounded on any input
BYTE_ORDER_MARK = b"\xef\xbb\xbf"
STANDARD_INPUT = "standard input"  # its name in messages
GZIP_MAGIC = b"\x1f\x8b"


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


def require_lines(path: Path, lines: int) -> None:
    """A file without a line is a mistake."""
    if not lines:
        raise DataError(f"{path}: expected text, the file is empty; check how it was made")


def _decode_lines(stream: BinaryIO, name: str) -> Iterator[str]:
    number = 0
    try:
        for number, raw in enumerate(_raw_lines(_decompress(stream, name)), start=1):
            if number == 1:
                raw = raw.removeprefix(BYTE_ORDER_MARK)
            yield _decode(raw, name, number)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        kind = "Zstandard" if isinstance(error, DamagedZstdError) else "gzip"
        problem = f"the {kind} data is damaged or cut off ({error}); fetch or compress the file again"
        raise DataError.at(name, number + 1, problem) from error


def _decompress(stream: BinaryIO, name: str) -> BinaryIO:
    if not isinstance(stream, io.BufferedReader) or stream.isatty():  # at a terminal, peeking would swallow Ctrl-D
        return stream
    first = stream.peek(4)
    if first.startswith(GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    return decompress_zstd(stream, name) if first.startswith(ZSTD_MAGIC) else stream


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
        problem = f"expected UTF-8, got UTF-16; {_conversion_advice(name, 'UTF-16')}"
        raise DataError.at(name, number, problem)
    if b"\0" in raw:
        problem = f"expected text, found a NUL byte at byte {raw.index(0) + 1} of the line; "
        raise DataError.at(name, number, problem + "this is a binary file, UTF-16 or a damaged one")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode("utf-8")) + 1
        problem = f"expected UTF-8, found the byte 0x{raw[error.start]:02X} in column {column}; "
        problem += f"if the text is Latin-1, {_conversion_advice(name, 'ISO-8859-1')}"
        raise DataError.at(name, number, problem) from error


def _conversion_advice(name: str, encoding: str) -> str:
    """What to do with a file; packed, what comes out of it."""
    command = f"iconv -f {encoding} -t UTF-8"
    name = "FILE" if name == STANDARD_INPUT else name
    is_packed = name.endswith((".gz", ".zst"))
    return f"unpack it and convert that with: {command}" if is_packed else f"convert it with: {command} {name}"


def excerpt(text: str) -> str:
    """A text for an error message: quoted and short."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
