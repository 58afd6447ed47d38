"""Chromium, controlled by the WebDriver protocol, and servers in separate processes."""

import base64
import json
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

import httpx2
import pytest

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
PATIENCE = 180.0  # seconds; test machines may be under load
TRANSIENT_ERRORS = ("stale element reference", "element click intercepted", "element not interactable")
WATCH_SECONDS = 3.0  # maximum duration of one script that polls a condition
WATCH = """const done = arguments[arguments.length - 1], began = performance.now();
    const check = () => {
        let value, problem;
        try { value = (%s); } catch (error) { problem = String(error); }
        if (value) done({value});
        else if (performance.now() - began > %d) done({problem});
        else setTimeout(check, 10);
    };
    check();"""
FLAGS = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-background-networking",
         "--disable-dev-shm-usage", "--disable-component-update", "--disable-sync", "--no-first-run",
         "--hide-scrollbars"]  # fmt: skip


def miss(sentence: str, is_failure: bool) -> NoReturn:
    """Skip a test because a tool is missing; with `is_failure`, fail in CI."""
    if is_failure and os.environ.get("CI"):
        pytest.fail(sentence)
    pytest.skip(sentence)


def need_browser() -> tuple[str, str]:
    """Return the paths of Chromium and its driver; if they are missing, skip the test, or fail it in CI."""
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if chromium is None or driver is None:
        miss("the page needs Chromium and its driver: apt-get install chromium chromium-driver", is_failure=True)
    return chromium, driver


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait_for(url: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        assert process.poll() is None, f"the process behind {url} ended with {process.returncode}"
        try:
            if httpx2.get(url, timeout=5).status_code == 200:
                return
        except httpx2.TransportError:
            time.sleep(0.2)
    raise AssertionError(f"{url} did not answer in {PATIENCE:g} s")


@contextmanager
def running(command: list[str], url: str) -> Iterator[None]:
    """Run a process that answers at a URL."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        wait_for(url, process)
        yield
    finally:
        process.terminate()
        process.wait(20)


@contextmanager
def serving(*folders: Path) -> Iterator[str]:
    """Run `clearhead serve` as users do and return its URL."""
    port = free_port()
    command = [sys.executable, "-m", "clearhead", "serve", *map(str, folders), "--port", str(port), "--threads", "1"]
    with running(command, f"http://127.0.0.1:{port}/readyz"):
        yield f"http://127.0.0.1:{port}"


class Browser:
    """A browser session, with the operations that tests perform on a page."""

    def __init__(self, client: httpx2.Client, session: str) -> None:
        self.client = client
        self.session = session

    def answer(self, method: str, path: str, body: dict[str, Any] | None = None) -> httpx2.Response:
        url = f"/session/{self.session}{path}"
        return self.client.request(method, url, json=body if method == "POST" else None)

    def ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        response = self.answer(method, path, body)
        value = response.json()["value"]
        assert response.status_code == 200, value
        return value

    def open(self, url: str) -> None:
        self.ask("POST", "/url", {"url": url})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def run_async(self, script: str, *arguments: Any) -> Any:
        return self.ask("POST", "/execute/async", {"script": script, "args": list(arguments)})

    def until(self, script: str, *arguments: Any) -> Any:
        """Return the first true value of a script, which the page itself polls every 10 ms."""
        deadline, problem = time.monotonic() + PATIENCE, None
        while time.monotonic() < deadline:
            answered = self.answer(
                "POST", "/execute/async", {"script": WATCH % (script, 1000 * WATCH_SECONDS), "args": list(arguments)}
            )
            value = answered.json()["value"]
            if answered.status_code == 200 and "value" in value:
                return value["value"]
            problem = value.get("problem") if answered.status_code == 200 else value["message"]  # the page unloaded
        error_text = self.run("return document.getElementById('problem')?.textContent")
        raise AssertionError(
            f"never true: {script} ({problem}); the page says {error_text!r}; console: {self.console()}"
        )

    def find(self, selector: str) -> dict[str, str]:
        """Return an element as soon as it exists."""
        element: dict[str, str] = self.until("document.querySelector(arguments[0])", selector)
        return element

    def act(self, selector: str, *actions: tuple[str, dict[str, Any]]) -> None:
        """Send actions to an element; repeat them if the page has replaced the element in the meantime."""
        deadline = time.monotonic() + PATIENCE
        while True:
            element = self.find(selector)
            responses = [self.answer("POST", f"/element/{element[ELEMENT]}/{action}", body) for action, body in actions]
            problems = [response.json()["value"] for response in responses if response.status_code != 200]
            if not problems:
                return
            assert problems[0]["error"] in TRANSIENT_ERRORS and time.monotonic() < deadline, problems[0]

    def click(self, selector: str) -> None:
        """Scroll an element into view and click it with the mouse."""
        self.find(selector)
        self.run("document.querySelector(arguments[0])?.scrollIntoView({block: 'center', inline: 'center'})", selector)
        self.act(selector, ("click", {}))

    def type(self, selector: str, text: str) -> None:
        """Clear a field and type a text."""
        self.act(selector, ("clear", {}), ("value", {"text": text}))

    def choose(self, selector: str, value: str) -> None:
        """Set the value of a select or a slider."""
        self.find(selector)
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "for (const name of ['input', 'change']) field.dispatchEvent(new Event(name, {bubbles: true}))",
            selector, value,
        )  # fmt: skip

    def keys(self, selector: str, text: str) -> None:
        """Type keys into a focusable element."""
        self.act(selector, ("value", {"text": text}))

    def text(self, selector: str) -> str:
        self.find(selector)
        content: str = self.run("return document.querySelector(arguments[0]).textContent", selector)
        return content

    def texts(self, selector: str) -> list[str]:
        """Return the text of all matching elements."""
        values: list[str] = self.run(
            "return [...document.querySelectorAll(arguments[0])].map(node => node.textContent)", selector
        )
        return values

    def data(self, selector: str, name: str) -> list[str]:
        """Return a data attribute of all matching elements."""
        script = "return [...document.querySelectorAll(arguments[0])].map(node => node.dataset[arguments[1]])"
        values: list[str] = self.run(script, selector, name)
        return values

    def size(self, width: int, height: int) -> None:
        """Set the size of the viewport."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setDeviceMetricsOverride", "params": metrics})

    def screenshot(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(base64.b64decode(self.ask("GET", "/screenshot")))

    def console(self) -> list[str]:
        """Return the errors and warnings on the console since the last call."""
        entries = self.ask("POST", "/se/log", {"type": "browser"})
        return [entry["message"] for entry in entries if entry["level"] in ("SEVERE", "WARNING")]

    def hosts(self) -> set[str]:
        """Return every host in the browser's network log since the last call."""
        hosts = set()
        for entry in self.ask("POST", "/se/log", {"type": "performance"}):
            message = json.loads(entry["message"])["message"]
            if message["method"] == "Network.requestWillBeSent":
                url = httpx2.URL(message["params"]["request"]["url"])
                if url.scheme in ("http", "https", "ws", "wss"):
                    hosts.add(f"{url.host}:{url.port}")
        return hosts


def start_session(client: httpx2.Client, chromium: str, profile: Path) -> str:
    """Start Chromium and return the id of its session; try up to three times, because the driver may time out."""
    for attempt in range(3):
        options = {"binary": chromium, "args": [*FLAGS, f"--user-data-dir={profile / str(attempt)}"],
                   "perfLoggingPrefs": {"enableNetwork": True, "enablePage": False}}  # fmt: skip
        capabilities = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        started = client.post("/session", json={"capabilities": {"alwaysMatch": capabilities}})
        if started.status_code == 200:
            session: str = started.json()["value"]["sessionId"]
            return session
    raise AssertionError(started.text)


@contextmanager
def browsing(profile: Path) -> Iterator[Browser]:
    """Run a Chromium with an empty profile."""
    chromium, driver = need_browser()
    port = free_port()
    driven = f"http://127.0.0.1:{port}"
    with (
        running([driver, f"--port={port}"], f"{driven}/status"),
        httpx2.Client(base_url=driven, timeout=PATIENCE, trust_env=False) as client,
    ):
        session = start_session(client, chromium, profile)
        browser = Browser(client, session)
        try:
            browser.ask("POST", "/timeouts", {"script": int(1000 * PATIENCE)})
            browser.size(1280, 800)
            yield browser
        finally:
            client.delete(f"/session/{session}")
