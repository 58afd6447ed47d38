"""What a request may ask for, and the guard at the door: sizes, host names, headers, and one trace at a time."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
    beam: int = 16
    kept_traces: int = 8
    wait_seconds: float = 60.0
    """How long a trace waits for the one before it."""

    def check_text(self, text: str, param: str) -> None:
        """Refuses a text that is empty or too long, before anything is computed."""
        if not text.strip():
            raise RequestError(400, "empty_text", f"{param}: expected a sentence, got an empty text", param)
        if len(text) > self.characters:
            raise RequestError(
                413, "too_long", f"{param}: expected at most {self.characters:,} characters, got {len(text):,}", param
            )

    def check_beam(self, beam: int | None) -> None:
        """Refuses a beam that would take too long."""
        if beam is not None and not 1 <= beam <= self.beam:
            raise RequestError(400, "bad_setting", f"beam: expected 1 to {self.beam}, got {beam}", "beam")


class OneAtATime:
    """A gate that one request passes at a time; the others wait a while, and are then asked to come back."""

    def __init__(self, wait_seconds: float) -> None:
        self.wait_seconds = wait_seconds
        self._lock = threading.Lock()

    @contextmanager
    def turn(self) -> Iterator[None]:
        """The turn of one request."""
        if not self._lock.acquire(timeout=self.wait_seconds):
            raise RequestError(503, "busy", f"another trace has been running for {self.wait_seconds:g} s; try again")
        try:
            yield
        finally:
            self._lock.release()


class Guard:
    """Stands before the app: refuses foreign host names and large bodies, and puts the headers on every answer."""

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

        refusal = self._refusal(Headers(scope=scope))
        if refusal is not None:
            await answer(refusal.status, refusal.code, str(refusal), refusal.param)(scope, receive, send_with_headers)
            return
        await self._pass_on(scope, receive, send_with_headers)

    def _refusal(self, headers: Headers) -> RequestError | None:
        host = headers.get("host", "").rsplit(":", 1)[0].strip("[]").lower()
        if self.hosts and host not in self.hosts:
            # a page elsewhere whose name was made to point here would otherwise read the answers
            return RequestError(421, "wrong_host", f"expected one of {', '.join(sorted(self.hosts))}, got {host!r}")
        length = headers.get("content-length", "0")
        return self._too_large() if not length.isdecimal() or int(length) > self.limits.body_bytes else None

    def _too_large(self) -> RequestError:
        return RequestError(413, "too_large", f"expected a body of at most {self.limits.body_bytes:,} bytes")

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Counts what comes in too: a body in chunks names no length."""
        body = b""
        while True:
            message = await receive()
            if message["type"] != "http.request":
                return
            body += message.get("body", b"")
            if len(body) > self.limits.body_bytes:
                refusal = self._too_large()
                await answer(refusal.status, refusal.code, str(refusal))(scope, receive, send)
                return
            if not message.get("more_body", False):
                break
        whole: Message = {"type": "http.request", "body": body, "more_body": False}
        waiting = [whole]

        async def receive_whole() -> Message:
            return waiting.pop() if waiting else await receive()

        await self.app(scope, receive_whole, send)
