"""Limits of the server, and the middleware that enforces them: sizes, timeouts, host names, headers."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from clearhead.runtime.cancellation import Cancellation
from clearhead.serving.errors import RequestError, answer

# Nothing from anywhere else, nothing inline; pictures may be made in the page itself, for export.
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
    """What a server takes. A trace holds every attention of every layer: long texts cost memory by their square."""

    body_bytes: int = 4_000_000
    characters: int = 20_000
    """Of one text."""
    pieces: int = 512
    """Of the source of a trace."""
    texts: int = 64
    """Of one request to translate."""
    beam_size: int = 16
    kept_traces: int = 8
    wait_seconds: float = 60.0
    """How long a trace waits for the one before it."""
    body_seconds: int = 30
    """Time for the body of a request to arrive."""
    idle_seconds: int = 20
    """Time that a connection may wait for the header of a request, or for the client to read its answer."""
    shutdown_seconds: int = 8
    """Time for running requests after SIGTERM; `docker stop` kills after 10."""
    connections: int = 512
    """Connections that are open at the same time."""

    def check_text(self, text: str, param: str) -> None:
        """Refuses a text that is empty or too long, before anything is computed."""
        if not text.strip():
            raise RequestError(400, "empty_text", f"{param}: expected a sentence, got an empty text", param)
        if len(text) > self.characters:
            raise RequestError(
                413, "too_long", f"{param}: expected at most {self.characters:,} characters, got {len(text):,}", param
            )

    def check_beam(self, beam_size: int | None) -> None:
        """Raise RequestError for a beam size above the limit."""
        if beam_size is not None and not 1 <= beam_size <= self.beam_size:
            raise RequestError(
                400, "bad_setting", f"beam_size: expected 1 to {self.beam_size}, got {beam_size}", "beam_size"
            )


class TraceLock:
    """A gate that one request passes at a time; the others wait a while, and are then asked to come back."""

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self._lock = threading.Lock()

    @contextmanager
    def turn(self, cancellation: Cancellation) -> Iterator[None]:
        """The turn of one request; raises RequestCancelledError if it was cancelled while it waited."""
        if not self._lock.acquire(timeout=self.wait_seconds):
            raise RequestError(503, "busy", f"another trace has been running for {self.wait_seconds:g} s; try again")
        try:
            cancellation.raise_if_cancelled()
            yield
        finally:
            self._lock.release()


class SecurityMiddleware:
    """Stands before the app: refuses foreign host names and large bodies, and puts the headers on every answer.

    Each request gets a `Cancellation`, as scope["cancellation"], which is set when the client disconnects.
    """

    def __init__(self, app: ASGIApp, limits: Limits, hosts: frozenset[str]) -> None:
        self.app = app
        self.limits = limits
        self.hosts = hosts  # empty: any

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
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
            self._check(Headers(scope=scope))
            body = await self._read_body(receive)
        except RequestError as error:
            await answer(error.status, error.code, str(error), error.param)(scope, receive, send_with_headers)
            return
        if body is None:
            return
        whole: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
        cancellation = scope["cancellation"] = Cancellation()

        async def cancel_at_disconnect() -> Message:
            message = await receive()  # after the body nothing but a disconnect is received
            cancellation.cancel()
            return message

        disconnect = asyncio.create_task(cancel_at_disconnect())

        async def receive_whole() -> Message:
            return whole.pop() if whole else await asyncio.shield(disconnect)

        try:
            await self.app(scope, receive_whole, send_with_headers)
        finally:
            disconnect.cancel()

    def _check(self, headers: Headers) -> None:
        """Refuse foreign host names and announced lengths above the limit."""
        host = headers.get("host", "").rsplit(":", 1)[0].strip("[]").lower()
        if self.hosts and host not in self.hosts:
            # a page elsewhere whose name was made to point here would otherwise read the answers
            raise RequestError(421, "wrong_host", f"expected one of {', '.join(sorted(self.hosts))}, got {host!r}")
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.limits.body_bytes:
            raise self._too_large()

    def _too_large(self) -> RequestError:
        return RequestError(413, "too_large", f"expected a body of at most {self.limits.body_bytes:,} bytes")

    async def _read_body(self, receive: Receive) -> bytes | None:
        """Return the body, None if the client has left; refuse one that is too large (chunks announce no length)."""
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
            expected = f"expected the whole body within {self.limits.body_seconds} s, got {len(body):,} bytes of it"
            raise RequestError(408, "slow_body", f"{expected}; send it again") from None
