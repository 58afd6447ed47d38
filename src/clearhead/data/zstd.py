"""The content of a Zstandard file as a stream: one frame after the other, and one that is cut off is an error."""

import io
from typing import Any, BinaryIO

from clearhead.data.extras import require_package

MAGIC = b"\x28\xb5\x2f\xfd"
BLOCK = 1 << 17


class DamagedError(EOFError):
    """What was read is no whole Zstandard file."""


def decompressed(stream: BinaryIO, name: str) -> BinaryIO:
    """A stream of what is in a stream of compressed bytes; reading damaged ones raises `DamagedError`."""
    return io.BufferedReader(_Frames(stream, require_package("zstandard", f"{name}: Zstandard")), BLOCK)


class _Frames(io.RawIOBase):
    """The reader of the library itself takes the end of a cut-off file for the end of its text."""

    def __init__(self, stream: BinaryIO, library: Any) -> None:
        self._stream, self._library = stream, library
        self._frame: Any = None
        self._waiting = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._waiting:
            block = self._stream.read(BLOCK)
            if not block and self._frame is None:
                return 0
            if not block:
                raise DamagedError("it ends before the end of a frame")
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
            raise DamagedError(str(error)) from error
        return b"".join(parts)
