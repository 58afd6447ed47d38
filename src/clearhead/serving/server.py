"""The HTTP server process on top of uvicorn: listening socket, connection limit, client timeouts and shutdown."""

import asyncio
import logging
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path
from types import FrameType

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from clearhead.errors import ServingError
from clearhead.serving.errors import error_response
from clearhead.serving.middleware import HEADERS, Limits

RESERVED_DESCRIPTORS = 32  # for model files, images and other files that the process opens
BACKLOG = 2048  # connections that the kernel keeps until they are accepted; uvicorn's default
ACCEPT_RETRY_SECONDS = 1.0
CANCEL_SECONDS = 1.0  # for cancelled computations to end; with the default of 8 before it, `docker stop` waits for it


def listen(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket.

    Its protocol number is set, which `socket.create_server` leaves at 0: asyncio sets TCP_NODELAY only on connections
    whose protocol is TCP. Without it, a keep-alive answer waits about 40 ms for the client's delayed acknowledgement.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServingError(f"cannot listen on {host}:{port}: {reason}; choose another --port") from None
    return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())


def connection_limit(requested: int | None) -> int:
    """Return the number of connections to accept: as requested, by default at most 512.

    Each connection may need two file descriptors, its socket and a file that is sent to it. Raises ServingError if
    the limit of the process (`ulimit -n`) does not allow as many as requested.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open("rb") as first_free:
        in_use = first_free.fileno()
    possible = sys.maxsize if descriptors == resource.RLIM_INFINITY else descriptors - in_use - RESERVED_DESCRIPTORS
    if 2 * (requested or 1) > possible:
        needed = 2 * (requested or 1) + in_use + RESERVED_DESCRIPTORS
        raise ServingError(
            f"{requested or 1} connections need {needed} file descriptors, but the limit of the process is "
            f"{descriptors}; raise it with ulimit -n {needed}, or lower --max-connections"
        )
    return requested or min(Limits.connections, possible // 2)


class Connection(H11Protocol):
    """An HTTP/1.1 connection with a timer for every wait for the client.

    uvicorn's keep-alive timer starts after the first answer and stops at the first byte of the next request: a client
    that sends nothing, or half a header, would keep its connection forever. Here the timer runs until the header of a
    request is complete, and while the client does not read its answer. The body has a separate limit, in
    `SecurityMiddleware`.
    """

    _unsent_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer: the header of the first request is expected."""
        super().connection_made(transport)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Process bytes of the client; the first byte of a header restarts the timer, the others do not."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._unset_keepalive_if_required()
        self.conn.receive_data(data)
        self.handle_events()
        self._update_timer()

    def on_response_complete(self) -> None:
        """Start the timer for the next request, or for the client to read the last answer."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._update_timer()

    def pause_writing(self) -> None:
        """Start the timer: the client reads its answer too slowly."""
        super().pause_writing()
        self._update_timer()

    def resume_writing(self) -> None:
        """Stop the timer if the answer is not complete."""
        super().resume_writing()
        self._update_timer()

    def _update_timer(self) -> None:
        """Run the timer unless a response is being sent to a client that reads it."""
        is_answering = self.cycle is not None and not self.cycle.response_complete
        if is_answering and not self.flow.write_paused:
            self._unset_keepalive_if_required()
        elif self.timeout_keep_alive_task is None:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless the client has read part of its answer in the meantime."""
        self.timeout_keep_alive_task = None
        if 0 < self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._update_timer()
        else:
            self.transport.abort()  # close() would wait for a client that does not read


class Server(uvicorn.Server):
    """A uvicorn server that accepts a limited number of connections and stops at a deadline.

    The first SIGTERM or SIGINT stops accepting and lets running requests finish until `limits.shutdown_seconds` have
    passed; the second one stops at once. Requests that are not finished then are cancelled. `stop_signal` is the first
    signal, `unfinished` counts cancelled requests, `is_computing` says whether some of them did not end.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        super().__init__(
            uvicorn.Config(app, http=Connection, ws="none", log_level="error", access_log=False, server_header=False,
                           timeout_keep_alive=limits.idle_seconds)
        )  # fmt: skip
        self.limits = limits
        self.stop_signal: int | None = None
        self.unfinished = 0
        self.is_computing = False
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acceptors: list[asyncio.Task[None]] = []
        self.failed_accepts = 0  # since the last accepted connection

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on the listening sockets.

        asyncio's own server accepts as many connections as there are, and logs a traceback for each attempt without a
        free file descriptor: 118 MB in 35 s with 1,200 idle clients and 1,024 descriptors.
        """
        await super().startup([])
        self._loop = asyncio.get_running_loop()
        for listener in sockets or []:
            listener.setblocking(False)
            self._acceptors.append(asyncio.create_task(self._accept(listener)))
            self._acceptors[-1].add_done_callback(self._stop_after_failure)

    async def _accept(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, _ = await loop.sock_accept(listener)
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._report(error)
                await asyncio.sleep(ACCEPT_RETRY_SECONDS)
                continue
            self.failed_accepts = 0
            if len(self.server_state.connections) >= self.limits.connections:
                self._refuse(accepted)
                await asyncio.sleep(0)  # accepting again may not suspend this task
                continue
            try:
                await loop.connect_accepted_socket(self._make_connection, accepted)
            except OSError:  # the client has disconnected already
                accepted.close()

    def _make_connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state)

    def _report(self, error: OSError) -> None:
        """Print one line per shortage, however often accepting fails."""
        if self.failed_accepts == 0:
            print(f"cannot accept connections: {error.strerror}; retrying every second", file=sys.stderr, flush=True)
        self.failed_accepts += 1

    def _refuse(self, accepted: socket.socket) -> None:
        """Answer 503 and close the connection."""
        limit = self.limits.connections
        message = f"the server has reached its limit of {limit} connections; close some, or try again later"
        refusal = error_response(503, "too_many_connections", message)
        refusal.headers.update({**HEADERS, "Connection": "close"})
        header = b"".join(b"%s: %s\r\n" % field for field in refusal.raw_headers)
        with accepted, suppress(OSError):
            accepted.send(b"HTTP/1.1 503 Service Unavailable\r\n" + header + b"\r\n" + bytes(refusal.body))
            accepted.shutdown(socket.SHUT_WR)
            accepted.recv(1 << 16)  # closing with unread bytes would reset the connection before the client reads

    def _stop_after_failure(self, acceptor: asyncio.Task[None]) -> None:
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting, and wait for running requests until the deadline."""
        for acceptor in self._acceptors:
            acceptor.cancel()
            with suppress(asyncio.CancelledError):
                await acceptor
        deadline = asyncio.get_running_loop().call_later(self.limits.shutdown_seconds, self._abandon)
        await super().shutdown(sockets)
        deadline.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at the first signal, and at once at the second."""
        if self.should_exit and self._loop is not None:
            self._loop.call_soon_threadsafe(self._abandon)
        self.should_exit = True
        self.stop_signal = self.stop_signal or sig

    def _abandon(self) -> None:
        """Close all connections, which cancels their requests, and end the process shortly after."""
        self.unfinished = max(self.unfinished, len(self.server_state.tasks))
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, self._stop_waiting)

    def _stop_waiting(self) -> None:
        """Let the server end while requests are computed that cannot be cancelled."""
        self.is_computing = bool(self.server_state.tasks)
        self.force_exit = True
        logging.getLogger("uvicorn.error").disabled = True  # it would log each cancelled request as an error

    def exit_code(self) -> int:
        """Return 130 after SIGINT and 0 after SIGTERM."""
        return 128 + signal.SIGINT if self.stop_signal == signal.SIGINT else 0
