"""`clearhead serve`: HTTP API and inspection page."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from clearhead.cli.options import ComputeType, EngineName, Tag, Threads, use_threads
from clearhead.extras import require_package

if TYPE_CHECKING:
    from clearhead.api import Model
    from clearhead.serving.middleware import Limits

app = typer.Typer(rich_markup_mode=None, add_completion=False)
LOCAL_HOSTS = ("127.0.0.1", "localhost", "::1")


@app.command()
def serve(
    folders: Annotated[list[Path], typer.Argument(metavar="DIR", help="Model folders; the page can compare two.")],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: any free port.")] = 8000,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: all interfaces.")] = LOCAL_HOSTS[
        0
    ],
    tag: Tag = "",
    engine: EngineName = None,
    compute_type: ComputeType = "float32",
    threads: Threads = 0,
    idle_seconds: Annotated[
        int, typer.Option(min=1, help="Close a connection that has sent no request for this time.")
    ] = 20,
    body_seconds: Annotated[int, typer.Option(min=1, help="Maximum time for receiving the body of a request.")] = 30,
    shutdown_seconds: Annotated[
        int, typer.Option(min=0, help="Maximum time for running requests to finish after SIGTERM or Ctrl-C.")
    ] = 8,
    max_connections: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Maximum number of connections; further ones receive status 503. "
            "[default: 512, fewer if ulimit -n requires it]",
        ),
    ] = None,
) -> None:
    """Serve models over HTTP, with an inspection page. The server and the page do not connect to other hosts.

    After SIGTERM or Ctrl-C, running requests may finish; a second signal stops the server at once.

    Example: clearhead serve runs/de
    """
    with _exit_on_sigterm():
        for package in ("uvicorn", "h11", "fastapi"):
            require_package(package, "clearhead serve")
        from clearhead.serving.middleware import Limits
        from clearhead.serving.server import connection_limit

        use_threads(threads)
        limits = Limits(
            body_seconds=body_seconds, idle_seconds=idle_seconds, shutdown_seconds=shutdown_seconds,
            connections=connection_limit(max_connections),
        )  # fmt: skip

        def load_all() -> "list[Model]":
            from clearhead.api import load

            return [load(folder, tag, engine=engine, compute_type=compute_type) for folder in folders]

        raise typer.Exit(_run(load_all, host, port, limits))


def _run(load_all: "Callable[[], list[Model]]", host: str, port: int, limits: "Limits") -> int:
    """Serve until a signal ends it and return the exit code."""
    from clearhead.serving.app import make_app
    from clearhead.serving.server import Server, listen
    from clearhead.serving.trace_store import named_models

    with listen(host, port) as listener:  # before loading: a port in use is reported at once
        models = named_models(load_all())
        for model in models.values():
            model.require_tag()
            model.require_engine()
        application = make_app(models, limits, frozenset(LOCAL_HOSTS if host in LOCAL_HOSTS else ()))
        _print_address(host, listener.getsockname()[1])
        server = Server(application, limits)
        server.run(sockets=[listener])
    if server.unfinished:
        count = "1 request was" if server.unfinished == 1 else f"{server.unfinished} requests were"
        print(f"stopped before {count} answered", file=sys.stderr, flush=True)
    if server.is_computing:
        application.state.traces.close()
        os._exit(server.exit_code())  # a normal exit would wait for the threads that compute these answers
    return server.exit_code()


def _print_address(host: str, port: int) -> None:
    shown = f"[{host}]" if ":" in host else host
    print(f"Serving on http://{shown}:{port} (Ctrl-C stops the server)", file=sys.stderr)
    if host not in LOCAL_HOSTS:
        print(f"warning: other machines can reach {host} without authentication", file=sys.stderr)


@contextmanager
def _exit_on_sigterm() -> Iterator[None]:
    """End with exit code 0 on SIGTERM, also while models are loaded; the running server has its own handler."""
    previous = signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)
