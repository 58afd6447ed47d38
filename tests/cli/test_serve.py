"""`clearhead serve`: errors at the start, answers, and shutdown."""

import inspect
import resource
import signal
import socket
import subprocess
import sys

import httpx2
import pytest

from clearhead.cli.main import main
from clearhead.cli.serve import serve
from clearhead.errors import ServingError
from clearhead.serving.middleware import Limits
from clearhead.serving.server import connection_limit
from tests.serving.browser import free_port, wait_for
from tests.trained_model import Trained


def test_a_port_in_use_is_named(trained: Trained, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert main(["serve", str(trained.folder), "--port", str(port)]) == 2
    assert f"cannot listen on 127.0.0.1:{port}" in capsys.readouterr().err


def test_a_folder_without_a_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "nowhere", "--port", "0"]) == 2
    assert "nowhere" in capsys.readouterr().err


def test_it_serves_until_a_signal(trained: Trained) -> None:
    port = free_port()
    command = [sys.executable, "-m", "clearhead", "serve", str(trained.folder), "--port", str(port), "--threads", "1"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE)
    try:
        wait_for(f"http://127.0.0.1:{port}/readyz", process)
        page = httpx2.get(f"http://127.0.0.1:{port}/")
        assert "clearhead" in page.text and page.headers["content-type"].startswith("text/html")
        body = {"text": "The old dog eats."}
        assert httpx2.post(f"http://127.0.0.1:{port}/v1/translate", json=body).json()["translations"][0]["text"]
        assert httpx2.get(f"http://127.0.0.1:{port}/livez", headers={"Host": "evil.example"}).status_code == 421
    finally:
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert f"http://127.0.0.1:{port}".encode() in stderr and b"Traceback" not in stderr


def test_options_have_the_defaults_of_the_limits() -> None:
    defaults = {name: option.default for name, option in inspect.signature(serve).parameters.items()}
    for name in ("idle_seconds", "body_seconds", "shutdown_seconds"):
        assert defaults[name] == getattr(Limits(), name)


def test_limit_above_the_descriptors_is_refused() -> None:
    assert connection_limit(7) == 7
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    try:
        with pytest.raises(ServingError, match=r"4000 connections need 8\d\d\d file descriptors.*ulimit -n 8"):
            connection_limit(4000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
