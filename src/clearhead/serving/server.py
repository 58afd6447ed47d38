"""The HTTP server, based on uvicorn: listening socket, limit of connections, client timeouts and shutdown."""

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

RESERVED_DESCRIPTORS = 32  # file descriptors for model files, images and other files that the process opens
BACKLOG = 2048  # connections that the kernel queues until they are accepted; uvicorn's default
ACCEPT_RETRY_SECONDS = 1.0
# Time for cancelled computations to end. After `shutdown_seconds` (8), it ends before `docker stop` kills at 10 s.
CANCEL_SECONDS = 1.0


def listen(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; raise ServingError if the address is not available.

    `socket.create_server` leaves the protocol number at 0, but asyncio sets TCP_NODELAY only on sockets whose protocol
    is TCP. Without TCP_NODELAY, a keep-alive response waits about 40 ms for the client's delayed acknowledgement.
    """
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServingError(f"cannot listen on {host}:{port}: {reason}; choose another --port") from None
    return socket.socket(bound.family, bound.type, socket.IPPROTO_TCP, bound.detach())


def connection_limit(requested: int | None) -> int:
    """Return the number of connections to accept: `requested`, or by default up to 512.

    Each connection may need two file descriptors: its socket, and a file that is sent. Raises ServingError if the
    limit of the process (`ulimit -n`) is too low for the requested number.
    """
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    with Path(os.devnull).open("rb") as probe:  # gets the lowest free descriptor
        in_use = probe.fileno()
    available = sys.maxsize if descriptors == resource.RLIM_INFINITY else descriptors - in_use - RESERVED_DESCRIPTORS
    if 2 * (requested or 1) > available:
        needed = 2 * (requested or 1) + in_use + RESERVED_DESCRIPTORS
        raise ServingError(
            f"{requested or 1} connections need {needed} file descriptors, but the limit of the process is "
            f"{descriptors}; raise it with ulimit -n {needed}, or lower --max-connections"
        )
    return requested or min(Limits.connections, available // 2)


class Connection(H11Protocol):
    """HTTP/1.1 connection with a timer that runs whenever the server waits for the client.

    uvicorn's keep-alive timer starts after the first response and stops at the first byte of the next request, so a
    client that sends nothing, or half a header, would keep its connection forever. Here the timer runs until the header
    of a request is complete, and while the client does not read its response. `SecurityMiddleware` limits the time of
    the body.
    """

    _unsent_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the header of the first request."""
        super().connection_made(transport)
        self._update_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        super().connection_lost(exc)
        self._unset_keepalive_if_required()

    def data_received(self, data: bytes) -> None:
        """Process bytes from the client; the first byte of a header restarts the timer, later bytes do not."""
        if self.conn.their_state is h11.IDLE and not self.conn.trailing_data[0]:
            self._unset_keepalive_if_required()
        self.conn.receive_data(data)
        self.handle_events()
        self._update_timer()

    def on_response_complete(self) -> None:
        """Start the timer for the next request, or for the client to read the response."""
        super().on_response_complete()
        self._unset_keepalive_if_required()
        self._update_timer()

    def pause_writing(self) -> None:
        """Start the timer, because the write buffer is full: the client does not read fast enough."""
        super().pause_writing()
        self._update_timer()

    def resume_writing(self) -> None:
        """Stop the timer if the response is still being sent."""
        super().resume_writing()
        self._update_timer()

    def _update_timer(self) -> None:
        """Start the timer if the server waits for the client; stop it if the client waits for the server."""
        is_responding = self.cycle is not None and not self.cycle.response_complete
        if is_responding and not self.flow.write_paused:
            self._unset_keepalive_if_required()
        elif self.timeout_keep_alive_task is None:
            self._unsent_bytes = self.transport.get_write_buffer_size()
            self.timeout_keep_alive_task = self.loop.call_later(
                self.timeout_keep_alive, self.timeout_keep_alive_handler
            )

    def timeout_keep_alive_handler(self) -> None:
        """Close the connection, unless the client has read part of the response since the timer started."""
        self.timeout_keep_alive_task = None
        if 0 < self.transport.get_write_buffer_size() < self._unsent_bytes:
            self._update_timer()
        else:
            self.transport.abort()  # close() would wait until the client has read the response


class Server(uvicorn.Server):
    """uvicorn server that accepts a limited number of connections and shuts down by a deadline.

    After the first SIGTERM or SIGINT, the server accepts no more connections, and running requests have
    `limits.shutdown_seconds` to finish. At the deadline, or at a second signal, the remaining requests are cancelled.
    """

    def __init__(self, app: ASGIApp, limits: Limits) -> None:
        super().__init__(
            uvicorn.Config(app, http=Connection, ws="none", log_level="error", access_log=False, server_header=False,
                           timeout_keep_alive=limits.idle_seconds)
        )  # fmt: skip
        self.limits = limits
        self.stop_signal: int | None = None  # the first signal
        self.unfinished = 0  # number of cancelled requests
        self.is_computing = False  # whether a cancelled request was still computing at the end
        self._loop: asyncio.AbstractEventLoop | None = None
        self._acceptors: list[asyncio.Task[None]] = []
        self.failed_accepts = 0  # since the last accepted connection

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept connections on the listening sockets.

        asyncio's own server has no limit of connections, and logs a traceback for each attempt without a free file
        descriptor: 118 MB in 35 s with 1,200 idle clients and 1,024 descriptors.
        """
        await super().startup([])
        self._loop = asyncio.get_running_loop()
        for listener in sockets or []:
            listener.setblocking(False)
            self._acceptors.append(asyncio.create_task(self._accept(listener)))
            self._acceptors[-1].add_done_callback(self._stop_after_failure)

    async def _accept(self, listener: socket.socket) -> None:
        """Accept connections until the task is cancelled; answer 503 to those above the limit."""
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
                await asyncio.sleep(0)  # lets other tasks run: `sock_accept` does not suspend if a client is waiting
                continue
            try:
                await loop.connect_accepted_socket(self._make_connection, accepted)
            except OSError:  # the client has already disconnected
                accepted.close()

    def _make_connection(self) -> Connection:
        return Connection(self.config, self.server_state, self.lifespan.state)

    def _report(self, error: OSError) -> None:
        """Print that accepting failed, once until the next accepted connection."""
        if self.failed_accepts == 0:
            print(f"cannot accept connections: {error.strerror}; retrying every second", file=sys.stderr, flush=True)
        self.failed_accepts += 1

    def _refuse(self, accepted: socket.socket) -> None:
        """Answer 503 and close the connection."""
        limit = self.limits.connections
        message = f"the server has reached its limit of {limit} connections; close connections, or try again later"
        refusal = error_response(503, "too_many_connections", message)
        refusal.headers.update({**HEADERS, "Connection": "close"})
        header = b"".join(b"%s: %s\r\n" % field for field in refusal.raw_headers)
        with accepted, suppress(OSError):
            accepted.send(b"HTTP/1.1 503 Service Unavailable\r\n" + header + b"\r\n" + bytes(refusal.body))
            accepted.shutdown(socket.SHUT_WR)
            accepted.recv(1 << 16)  # closing with unread bytes would reset the connection and discard the response

    def _stop_after_failure(self, acceptor: asyncio.Task[None]) -> None:
        """Stop the server if the accepting task has ended."""
        self.should_exit = True

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop accepting connections, and wait for running requests until the deadline."""
        for acceptor in self._acceptors:
            acceptor.cancel()
            with suppress(asyncio.CancelledError):
                await acceptor
        deadline = asyncio.get_running_loop().call_later(self.limits.shutdown_seconds, self._cancel_requests)
        await super().shutdown(sockets)
        deadline.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown at the first signal; cancel the running requests at the second."""
        if self.should_exit and self._loop is not None:
            self._loop.call_soon_threadsafe(self._cancel_requests)
        self.should_exit = True
        self.stop_signal = self.stop_signal or sig

    def _cancel_requests(self) -> None:
        """Close all connections, which cancels their requests, and exit CANCEL_SECONDS later at the latest."""
        self.unfinished = max(self.unfinished, len(self.server_state.tasks))
        for connection in list(self.server_state.connections):
            connection.transport.abort()
        asyncio.get_running_loop().call_later(CANCEL_SECONDS, self._force_exit)

    def _force_exit(self) -> None:
        """Exit although requests that cannot be cancelled are still computing."""
        self.is_computing = bool(self.server_state.tasks)
        self.force_exit = True
        logging.getLogger("uvicorn.error").disabled = True  # it logs each cancelled request as an error

    def exit_code(self) -> int:
        """Return the exit code of the process: 130 after SIGINT, otherwise 0."""
        return 128 + signal.SIGINT if self.stop_signal == signal.SIGINT else 0
