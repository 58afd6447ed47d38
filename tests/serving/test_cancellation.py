"""Cancellation by disconnecting clients and by shutdown, of computations that would take many minutes."""

import json
import socket
from contextlib import suppress
from typing import Any

import httpx2
import pytest
import torch

from clearhead import runtime
from clearhead.api import Model, load
from clearhead.bundle.writer import save
from clearhead.config import build
from clearhead.errors import RequestCancelledError
from clearhead.inspection.trace.run_trace import run_trace
from clearhead.inspection.trace.trace_input import text_input
from clearhead.inspection.trace.trace_search import continue_from_prefix
from clearhead.model.parameters import snapshot
from clearhead.model.registry import build_model, with_tied_names
from clearhead.runtime import Cancellation
from clearhead.serving.app import make_app
from clearhead.serving.middleware import Limits
from clearhead.serving.server import Server
from clearhead.tasks.registry import get_task
from tests.inspection.small_models import SHAPE, TEXT, small_model, tokenizer
from tests.serving.browser import PATIENCE
from tests.serving.conftest import running_here
from tests.serving.test_server import until

needs_core = pytest.mark.skipif(not runtime.is_available(), reason=runtime.why_unavailable())
TEXTS = 10_007  # each has an output of 1,999 tokens, with a beam of 4
LIMITS = Limits(texts=TEXTS)
SHORT = {"text": "A dog.", "beam_size": 1}


@pytest.fixture(scope="module")
def endless(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """Return a model with random weights whose outputs have the maximum length."""
    words, folder = tokenizer("translate"), tmp_path_factory.mktemp("endless") / "model"
    config = build({"model": {**SHAPE, "max_positions": 2003, "vocab_size": words.vocab_size},
                    "decoding": {"max_length": "1999", "min_length": 1999, "beam_size": 4}},
                   base=get_task("translate").base)  # fmt: skip
    torch.manual_seed(5)
    weights = with_tied_names(config.model, snapshot(build_model(config.model)))
    save(folder, weights=weights, config=config.model_dump(), tokenizer=words.to_json(),
         weights_kind="last", data={}, training={})  # fmt: skip
    return load(folder)


def send(url: str, path: str, body: dict[str, Any]) -> socket.socket:
    """Send a POST request and return its connection."""
    content = json.dumps(body).encode()
    connection = socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=PATIENCE)
    header = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    connection.sendall(f"{header}Content-Length: {len(content)}\r\n\r\n".encode() + content)
    return connection


def translate(url: str) -> Any:
    response = httpx2.post(f"{url}/v1/translate", json=SHORT, timeout=PATIENCE)
    assert response.status_code == 200, response.text
    return response.json()


def start_endless(url: str) -> socket.socket:
    """Send a request that takes many minutes; return its connection when the native search is running."""
    from clearhead.runtime._core import allocated_bytes

    before = allocated_bytes()
    connection = send(url, "/v1/translate", {"text": [TEXT] * TEXTS})
    until(lambda: allocated_bytes() > before)  # its KV cache
    return connection


@needs_core
def test_the_search_ends_when_its_client_disconnects(endless: Model) -> None:
    server = Server(make_app({"one": endless}, LIMITS), LIMITS)
    with running_here(server) as url:
        expected = translate(url)
        with start_endless(url):
            assert len(server.server_state.tasks) == 1
            assert translate(url) == expected, "a concurrent request"
        until(lambda: not server.server_state.tasks)
        assert translate(url) == expected


@needs_core
def test_shutdown_cancels_at_the_deadline(endless: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("clearhead.serving.server.CANCEL_SECONDS", PATIENCE)
    server = Server(make_app({"one": endless}, LIMITS), Limits(texts=TEXTS, shutdown_seconds=0))
    with running_here(server) as url:
        translate(url)
        with start_endless(url) as connection:
            server.should_exit = True
            until(lambda: not server.server_state.tasks)
            with suppress(ConnectionResetError):
                assert connection.recv(1) == b""
    assert server.unfinished == 1 and not server.is_computing


def test_no_trace_is_computed_for_a_client_that_disconnects_while_waiting() -> None:
    app = make_app({"one": small_model("transformer")})
    server, store = Server(app, Limits()), app.state.trace_store
    with running_here(server) as url:
        with store.lock.hold(Cancellation()):
            with send(url, "/v1/trace", {"text": TEXT}):
                until(lambda: server.server_state.tasks)
            until(lambda: not server.server_state.connections)
            assert httpx2.get(f"{url}/livez", timeout=PATIENCE).status_code == 200  # the disconnect was processed
        until(lambda: not server.server_state.tasks)
        assert not store._traces
        assert httpx2.post(f"{url}/v1/trace", json={"text": TEXT}, timeout=PATIENCE).status_code == 200
        assert len(store._traces) == 1


def test_cancelled_requests_raise() -> None:
    model, cancellation = small_model("transformer"), Cancellation()
    trace_input, settings = text_input(model, TEXT), model.inspection_settings(beam_size=2)
    [[best]] = model.translate_n_best([TEXT], 1, settings, cancellation=cancellation)
    assert best == model.translate(TEXT, beam_size=2)
    cancellation.cancel()
    with pytest.raises(RequestCancelledError):
        model.translate_n_best([TEXT], 1, settings, cancellation=cancellation)
    with pytest.raises(RequestCancelledError):
        run_trace(model, trace_input, None, settings, cancellation=cancellation)
    with pytest.raises(RequestCancelledError):
        continue_from_prefix(model, trace_input, [5], settings, cancellation)
