"""Bytes to lines: UTF-8 with or without a byte order mark, plain or compressed with gzip or Zstandard.

The compression is detected from the first bytes, not from the file name. Lines end with LF or CRLF only. Anything that
is not text raises `DataError` with file and line.
"""

import gzip
import io
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from clearhead.errors import DataError
from clearhead.extras import require_package

BYTE_ORDER_MARK = b"\xef\xbb\xbf"
GZIP_MAGIC = b"\x1f\x8b"
ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
BLOCK_BYTES = 1 << 17
MAX_LINE_BYTES = 1 << 24  # a longer "line" is not text; limits the memory used for any input
STANDARD_INPUT = "standard input"  # its name in messages


class DamagedZstdError(EOFError):
    """Zstandard data that is damaged or truncated."""


def decompress_zstd(stream: BinaryIO, name: str) -> BinaryIO:
    """Return a stream of the decompressed bytes; reading it raises `DamagedZstdError` if the data is damaged."""
    return io.BufferedReader(_ZstdReader(stream, require_package("zstandard", f"{name}: Zstandard")), BLOCK_BYTES)


class _ZstdReader(io.RawIOBase):
    """Reader of consecutive Zstandard frames. The library's own reader does not notice a truncated last frame."""

    def __init__(self, stream: BinaryIO, library: Any) -> None:
        self._stream, self._library = stream, library
        self._frame: Any = None
        self._decompressed = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._decompressed:
            block = self._stream.read(BLOCK_BYTES)
            if not block and self._frame is None:
                return 0
            if not block:
                raise DamagedZstdError("it ends before the end of a frame")
            self._decompressed = self._decompress(block)
        count = min(len(buffer), len(self._decompressed))
        buffer[:count], self._decompressed = self._decompressed[:count], self._decompressed[count:]
        return count

    def _decompress(self, block: bytes) -> bytes:
        content = []
        try:
            while block:
                if self._frame is None:
                    self._frame = self._library.ZstdDecompressor().decompressobj()
                content.append(self._frame.decompress(block))
                block = b""
                if self._frame.eof:
                    block, self._frame = self._frame.unused_data, None
        except self._library.ZstdError as error:
            raise DamagedZstdError(str(error)) from error
        return b"".join(content)


def read_lines(source: Path | str | BinaryIO, name: str = "<stdin>") -> Iterator[str]:
    """Iterate over the lines, without line ends, of a text file or an open binary stream, called `name` in messages."""
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
    """Raise DataError if a file has no lines."""
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
        problem = f"the {kind} data is damaged or truncated ({error}); download or compress the file again"
        raise DataError.at(name, number + 1, problem) from error


def _decompress(stream: BinaryIO, name: str) -> BinaryIO:
    if not isinstance(stream, io.BufferedReader) or stream.isatty():  # at a terminal, peeking would swallow Ctrl-D
        return stream
    first = stream.peek(4)
    if first.startswith(GZIP_MAGIC):
        return cast(BinaryIO, gzip.GzipFile(fileobj=stream))
    return decompress_zstd(stream, name) if first.startswith(ZSTD_MAGIC) else stream


def _raw_lines(stream: BinaryIO) -> Iterator[bytes]:
    """Iterate over the lines as bytes; only LF ends a line, so U+2028 and other separators stay in the text."""
    while raw := stream.readline(MAX_LINE_BYTES):
        yield raw


def _decode(raw: bytes, name: str, number: int) -> str:
    if len(raw) == MAX_LINE_BYTES and not raw.endswith(b"\n"):
        problem = (
            f"expected lines of text, found a line of more than {MAX_LINE_BYTES} bytes; put one record on each line"
        )
        raise DataError.at(name, number, problem)
    raw = raw.removesuffix(b"\n").removesuffix(b"\r")
    if number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        problem = f"expected UTF-8, got UTF-16; {_conversion_advice(name, 'UTF-16')}"
        raise DataError.at(name, number, problem)
    if b"\0" in raw:
        problem = f"expected text, found a NUL byte at byte {raw.index(0) + 1} of the line; "
        raise DataError.at(name, number, problem + "the file is binary, UTF-16 or damaged")
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        column = len(raw[: error.start].decode("utf-8")) + 1
        problem = f"expected UTF-8, found the byte 0x{raw[error.start]:02X} in column {column}; "
        problem += f"if the text is Latin-1, {_conversion_advice(name, 'ISO-8859-1')}"
        raise DataError.at(name, number, problem) from error


def _conversion_advice(name: str, encoding: str) -> str:
    """Return the command that converts a file to UTF-8, as advice for an error message."""
    command = f"iconv -f {encoding} -t UTF-8"
    name = "FILE" if name == STANDARD_INPUT else name
    is_compressed = name.endswith((".gz", ".zst"))
    return f"decompress it and convert it with: {command}" if is_compressed else f"convert it with: {command} {name}"


def excerpt(text: str) -> str:
    """Return a text for an error message, quoted and shortened to 40 characters."""
    return repr(text if len(text) <= 40 else text[:37] + "...")
