"""Limits of the server, the lock for traces, and the middleware that checks requests and adds security headers."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.runtime.cancellation import Cancellation
from clearhead.serving.errors import RequestError, error_response

# The page may load resources of this server only, and no inline scripts. It creates data: and blob: images for export.
POLICY = (
    "default-src 'self'; img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


@dataclass(frozen=True)
class Limits:
    """Limits of the server.

    Traces have a separate limit of tokens, because the memory of their attention grows with the square of the length.
    """

    body_bytes: int = 4_000_000
    """Bytes of the body of a request."""
    characters: int = 20_000
    """Characters of one text."""
    source_tokens: int = 512
    """Source tokens of a trace."""
    texts: int = 64
    """Texts of one translation request."""
    beam_size: int = 16
    """Maximum beam size of a request."""
    stored_traces: int = 8
    """Traces that are stored for further requests; the least recently used one is dropped."""
    wait_seconds: float = 60.0
    """Time that a request waits for another trace or analysis to finish."""
    body_seconds: int = 30
    """Time for the body of a request to arrive."""
    idle_seconds: int = 20
    """Time that a connection may wait for the header of a request, or for the client to read its response."""
    shutdown_seconds: int = 8
    """Time for running requests after SIGTERM; `docker stop` kills the process after 10 seconds."""
    connections: int = 512
    """Open connections."""

    def check_text(self, text: str, param: str) -> None:
        """Raise RequestError for a text that is empty or has too many characters."""
        if not text.strip():
            raise RequestError(400, "empty_text", f"{param}: expected a sentence, got an empty text", param)
        if len(text) > self.characters:
            raise RequestError(
                413, "too_long", f"{param}: expected at most {self.characters:,} characters, got {len(text):,}", param
            )

    def check_beam(self, beam_size: int | None) -> None:
        """Raise RequestError for a beam size below 1 or above the limit."""
        if beam_size is not None and not 1 <= beam_size <= self.beam_size:
            raise RequestError(
                400, "bad_setting", f"beam_size: expected 1 to {self.beam_size}, got {beam_size}", "beam_size"
            )


class TraceLock:
    """Lock for one request at a time; the others wait up to `wait_seconds` and are then rejected with status 503."""

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self._lock = threading.Lock()

    @contextmanager
    def hold(self, cancellation: Cancellation) -> Iterator[None]:
        """Hold the lock for one request.

        Raises RequestError if the lock is not free in time, and RequestCancelledError if the request was cancelled
        while it waited.
        """
        if not self._lock.acquire(timeout=self.wait_seconds):
            message = f"waited {self.wait_seconds:g} s for another trace to finish; try again later"
            raise RequestError(503, "busy", message)
        try:
            cancellation.raise_if_cancelled()
            yield
        finally:
            self._lock.release()


class SecurityMiddleware:
    """Middleware that rejects foreign host names and large bodies, and adds security headers to every response.

    It also adds a `Cancellation` to each request, as scope["cancellation"], and cancels it when the client disconnects.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: frozenset[str]) -> None:
        self.app = app
        self.limits = limits
        self.hosts = hosts  # if empty, all host names are accepted

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check one request and pass it to the application with its complete body."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        try:
            self._check_headers(Headers(scope=scope))
            body = await self._read_body(receive)
        except RequestError as error:
            await error_response(error.status, error.code, str(error), error.param)(scope, receive, send_with_headers)
            return
        if body is None:
            return
        messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        cancellation = scope["cancellation"] = Cancellation()

        async def cancel_at_disconnect() -> Message:
            message = await receive()  # after the complete body, the only possible message is a disconnect
            cancellation.cancel()
            return message

        disconnect = asyncio.create_task(cancel_at_disconnect())

        async def receive_body() -> Message:
            return messages.pop() if messages else await asyncio.shield(disconnect)

        try:
            await self.app(scope, receive_body, send_with_headers)
        finally:
            disconnect.cancel()

    def _check_headers(self, headers: Headers) -> None:
        """Raise RequestError for a foreign host name or a Content-Length above the limit."""
        host = headers.get("host", "").rsplit(":", 1)[0].strip("[]").lower()
        if self.hosts and host not in self.hosts:
            # Against DNS rebinding: a foreign page whose name resolves to this server could read its responses.
            raise RequestError(
                421, "wrong_host", f"expected the host name {' or '.join(sorted(self.hosts))}, got {host!r}"
            )
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> RequestError:
        return RequestError(413, "too_large", f"expected a body of at most {self.limits.body_bytes:,} bytes; send less")

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Return the body, or None if the client has disconnected; raise RequestError if it is too large or too slow.

        The size is checked again, because chunked bodies have no Content-Length.
        """
        body = bytearray()
        try:
            async with asyncio.timeout(self.limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        return None
                    body += message.get("body", b"")
                    if len(body) > self.limits.body_bytes:
                        raise self._too_large()
                    if not message.get("more_body", False):
                        return bytes(body)
        except TimeoutError:
            reason = f"expected the complete body within {self.limits.body_seconds} s, got {len(body):,} bytes"
            raise RequestError(408, "slow_body", f"{reason}; send the request again") from None
