"""`clearhead serve` as a process: slow and idle clients, many connections, signals and the listening socket."""

import json
import re
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import httpx2
import pytest
from starlette.testclient import TestClient

from clearhead.serving.app import make_app
from clearhead.serving.middleware import Limits
from clearhead.serving.server import RESERVED_DESCRIPTORS, Server
from tests.inspection.small_models import small_model
from tests.serving.browser import PATIENCE
from tests.serving.conftest import running_here
from tests.trained_model import Trained

T = TypeVar("T")
LONG = 600  # seconds: a timeout that must not end a test
HEADER = b"POST /v1/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n"
HALF_BODY = HEADER + b"\r\n" + b'{"text": '
KEEP_ALIVE = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n"


@dataclass(frozen=True)
class Running:
    """A server process, its port and the file with its stderr."""

    process: "subprocess.Popen[bytes]"
    port: int
    stderr: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE)

    def stop(self, sent: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(sent)
        return self.process.wait(PATIENCE)


@contextmanager
def start(folder: Path, log: Path, *options: object, descriptors: int | None = None) -> Iterator[Running]:
    """Run `clearhead serve` until it listens."""

    def limit_descriptors() -> None:
        if descriptors is not None:
            resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors, descriptors))

    command = [sys.executable, "-m", "clearhead", "serve", str(folder), "--port", "0", "--threads", "1"]
    with log.open("wb") as stderr:
        process = subprocess.Popen([*command, *map(str, options)], stderr=stderr, preexec_fn=limit_descriptors)
    try:
        match = until(lambda: re.search(rb"Serving on http://127\.0\.0\.1:(\d+) ", log.read_bytes()), process)
        yield Running(process, int(match[1]), log)
    finally:
        process.kill()
        process.wait()


def until(condition: Callable[[], T | None], process: "subprocess.Popen[bytes] | None" = None) -> T:
    """Return the first true value of a condition."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if value := condition():
            return value
        assert process is None or process.poll() is None, "the server has ended"
        time.sleep(0.02)
    raise AssertionError(f"nothing happened in {PATIENCE:g} s")


def read_all(connection: socket.socket) -> bytes:
    """Read until the server closes the connection."""
    received = b""
    while chunk := connection.recv(1 << 16):
        received += chunk
    return received


def ask_keep_alive(connection: socket.socket) -> None:
    connection.sendall(KEEP_ALIVE)
    received = b""
    while b"alive" not in received:
        chunk = connection.recv(1 << 16)
        assert chunk, "the server has closed the connection"
        received += chunk


def send_header(connection: socket.socket, length: int) -> None:
    """Announce a body of this length and wait until the server waits for it."""
    connection.sendall(HEADER.replace(b"100", str(length).encode()) + b"Expect: 100-continue\r\n\r\n")
    assert connection.recv(1 << 16).startswith(b"HTTP/1.1 100 ")


@pytest.fixture(scope="module")
def impatient(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a server with short timeouts; `--idle-seconds` is the shorter one and must not apply to the body."""
    log = tmp_path_factory.mktemp("serve") / "stderr"
    with start(trained.folder, log, "--idle-seconds", 2, "--body-seconds", 3) as running:
        yield running
        assert running.stop() == 0 and len(log.read_text().splitlines()) == 1


def test_slow_body_gets_408(impatient: Running) -> None:
    with impatient.connect() as connection:
        connection.sendall(HALF_BODY)
        header, _, body = read_all(connection).partition(b"\r\n\r\n")
    assert header.startswith(b"HTTP/1.1 408 ") and b"connection: close" in header.lower()
    error = json.loads(body)["error"]
    assert error["code"] == "slow_body" and "9 bytes" in error["message"]


def test_connections_without_a_request_are_closed(impatient: Running) -> None:
    """New and kept-alive connections are closed, whether they sent nothing, half a request line or half a header."""
    with ExitStack() as connections:
        clients = [connections.enter_context(impatient.connect()) for _ in range(6)]
        for client in clients[:3]:
            ask_keep_alive(client)
        for client, sent in zip(clients, (b"", b"GET /livez HT", HEADER) * 2, strict=True):
            client.sendall(sent)
        assert [read_all(client) for client in clients] == [b""] * 6


def test_trickled_header_is_closed(impatient: Running) -> None:
    with impatient.connect() as connection:
        connection.settimeout(0.1)

        def is_closed() -> bool:
            try:
                connection.send(b"x")
                return connection.recv(1) == b""
            except TimeoutError:
                return False
            except OSError:
                return True

        assert until(is_closed)


def test_pipelined_requests_are_answered(impatient: Running) -> None:
    with impatient.connect() as connection:
        connection.sendall(KEEP_ALIVE * 3)
        assert read_all(connection).count(b"HTTP/1.1 200 OK") == 3


def test_client_that_does_not_read_is_closed() -> None:
    server = Server(make_app({"one": small_model("transformer")}), Limits(idle_seconds=1))
    with running_here(server) as url, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
        connection.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n" * 400)
        until(
            lambda: any(
                client_connection.transport.get_write_buffer_size()
                for client_connection in list(server.server_state.connections)
            )
        )
        until(lambda: not server.server_state.connections)


def test_sigterm_ends_with_0_at_the_deadline(trained: Trained, tmp_path: Path) -> None:
    """Connections with half a body, half a header, no data or an answered request do not delay the exit."""
    options = ("--shutdown-seconds", 1, "--body-seconds", LONG, "--idle-seconds", LONG)
    with start(trained.folder, tmp_path / "stderr", *options) as running, ExitStack() as connections:
        half_body, half_header, _, idle = (connections.enter_context(running.connect()) for _ in range(4))
        ask_keep_alive(idle)
        half_header.sendall(HEADER)
        send_header(half_body, 100)
        half_body.sendall(b'{"text": ')
        assert running.stop() == 0
        assert read_all(half_body) == b""
    output = (tmp_path / "stderr").read_text()
    assert "stopped before 1 request was answered" in output and len(output.splitlines()) == 2


def test_accepted_requests_are_answered_after_sigterm(trained: Trained, tmp_path: Path) -> None:
    body = b'{"text": "The old dog eats."}'
    with start(trained.folder, tmp_path / "stderr", "--shutdown-seconds", LONG) as running:
        with running.connect() as connection:
            send_header(connection, len(body))
            running.process.send_signal(signal.SIGTERM)
            until(lambda: is_refused(running.port))
            connection.sendall(body)
            assert b"HTTP/1.1 200 OK" in read_all(connection)
        assert running.process.wait(PATIENCE) == 0
    assert len((tmp_path / "stderr").read_text().splitlines()) == 1


def is_refused(port: int) -> bool:
    """Return whether the server has stopped listening."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) != 0


@pytest.mark.parametrize(("sent", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_second_signal_stops_at_once(trained: Trained, tmp_path: Path, sent: signal.Signals, code: int) -> None:
    """The server also stops during a computation that would take half a minute."""
    text = "the old dog eats the small cat " * 20
    body = json.dumps({"text": [text] * 64, "beam_size": 16}).encode()
    options = ("--shutdown-seconds", LONG)
    with start(trained.folder, tmp_path / "stderr", *options) as running, running.connect() as connection:
        send_header(connection, len(body))
        connection.sendall(body)
        running.process.send_signal(sent)
        until(lambda: is_refused(running.port))
        assert running.stop(sent) == code
    assert "stopped before 1 request was answered" in (tmp_path / "stderr").read_text()


def test_sigterm_while_the_model_loads_ends_with_0(trained: Trained, tmp_path: Path) -> None:
    command = [sys.executable, "-X", "importtime", "-m", "clearhead", "serve", str(trained.folder), "--port", "0"]
    log = tmp_path / "stderr"
    with log.open("wb") as stderr:
        process = subprocess.Popen(command, stderr=stderr)
    until(lambda: b" clearhead.serving.errors" in log.read_bytes(), process)  # imported before torch
    process.send_signal(signal.SIGTERM)
    assert process.wait(PATIENCE) == 0
    assert b"Serving on" not in log.read_bytes()


def test_more_clients_than_descriptors(trained: Trained, tmp_path: Path) -> None:
    """Clients above the limit get 503, stderr stays short, and the server works when clients have left."""
    with start(trained.folder, tmp_path / "stderr", "--idle-seconds", LONG, descriptors=128) as running:
        with ExitStack() as connections:
            clients = [connections.enter_context(running.connect()) for _ in range(150)]
            refused = read_all(clients[-1])
            assert refused.startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
            header, _, body = refused.partition(b"\r\n\r\n")
            assert b"retry-after: 5" in header and b"connection: close" in header.lower()
            limit = int(re.search(r"limit of (\d+) connections", json.loads(body)["error"]["message"])[1])  # type: ignore[index]
            assert 20 <= limit <= (128 - RESERVED_DESCRIPTORS) // 2
            response = httpx2.get(f"{running.url}/livez", timeout=PATIENCE)
            assert response.status_code == 503 and response.json()["error"]["code"] == "too_many_connections"
            ask_keep_alive(clients[0])  # accepted clients are served all the while
        assert until(lambda: httpx2.get(f"{running.url}/livez", timeout=PATIENCE).status_code == 200)
        assert running.stop() == 0
    assert len((tmp_path / "stderr").read_text().splitlines()) == 1


def test_shortage_of_descriptors_is_reported_once(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("clearhead.serving.server.ACCEPT_RETRY_SECONDS", 0.05)
    server = Server(make_app({"one": small_model("transformer")}), Limits())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with running_here(server) as url, socket.socket() as connection:
        until(lambda: server.started)
        with Path("/dev/null").open("rb") as first_free:
            resource.setrlimit(resource.RLIMIT_NOFILE, (first_free.fileno(), hard))
        try:
            connection.connect(("127.0.0.1", int(url.rpartition(":")[2])))
            until(lambda: server.failed_accepts > 3)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        connection.settimeout(PATIENCE)
        ask_keep_alive(connection)
    assert capfd.readouterr().err == "cannot accept connections: Too many open files; retrying every second\n"


def test_answers_are_sent_without_delay() -> None:
    server = Server(make_app({"one": small_model("transformer")}), Limits())
    with running_here(server) as url, httpx2.Client() as client:
        assert client.get(f"{url}/livez").status_code == 200
        (connection,) = server.server_state.connections
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0


@pytest.mark.parametrize("name", ["encoder for labels", "patches"])
def test_no_answer_contains_the_models_folder(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The folder is hidden even if its path is relative and its name occurs in other words."""
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path / "models", Path("e")):
        client = TestClient(make_app({"one": replace(small_model(name), folder=folder)}))
        response = client.post("/v1/translate", json={"text": "A dog."})
        assert response.status_code == 400 and response.json()["error"]["code"] == "wrong_task"
        assert response.json()["error"]["message"].startswith("one was trained for the task")
        assert str(tmp_path) not in response.text and "models" not in response.text
