"""Fixtures of the page's tests, which share two models, one server and one browser."""

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from urllib.parse import urlencode

import pytest
from fastapi import FastAPI

from clearhead.api import Model
from clearhead.inspection.trace.trace_types import Trace
from clearhead.serving.middleware import Limits
from clearhead.serving.server import Server, listen
from tests.serving.browser import Browser, browsing, need_browser, serving
from tests.serving.pronoun_model import SENTENCE, train_pronouns

DONE = "document.getElementById('panel').dataset.drawn && !document.body.hasAttribute('aria-busy')"


@dataclass(frozen=True)
class Stage:
    """A model and its trace, a second model with less training, a server and a browser."""

    model: Model
    second: Model
    trace: Trace
    url: str
    browser: Browser

    def open(self, **state: str) -> Browser:
        """Open the page with this state in its address and wait until it is drawn."""
        self.browser.open(f"{self.url}/?{urlencode({'text': SENTENCE, **state})}")
        self.browser.until(DONE)
        return self.browser


@pytest.fixture(scope="session")
def session_stage(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    need_browser()
    run = tmp_path_factory.getbasetemp()
    shared = run.parent if "PYTEST_XDIST_WORKER" in os.environ else run  # the folder of all processes of this run
    model = train_pronouns(shared / "page", steps=250)
    second = train_pronouns(shared / "other", steps=40)
    with serving(model.folder, second.folder) as url, browsing(tmp_path_factory.mktemp("profile")) as browser:
        yield Stage(model, second, model.trace(SENTENCE), url, browser)


@contextmanager
def running_here(server: Server) -> Iterator[str]:
    """Run a server in a thread of this process and return its URL."""
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            server.should_exit = True
            thread.join(20)


@contextmanager
def serving_here(app: FastAPI) -> Iterator[str]:
    """Serve an app in a thread of this process, for models without a folder."""
    with running_here(Server(app, Limits())) as url:
        yield url


@pytest.fixture
def stage(session_stage: Stage) -> Iterator[Stage]:
    """Return the stage; afterwards check that the console is empty and no other host was contacted."""
    session_stage.browser.size(1280, 800)
    yield session_stage
    assert session_stage.browser.console() == []
    assert all(host.startswith("127.0.0.1:") for host in session_stage.browser.hosts())
