"""`clearhead serve`: the HTTP API and the page, on this machine."""

import socket
import sys
from pathlib import Path
from typing import Annotated

import typer

from clearhead.cli.options import Tag, Threads, use_threads
from clearhead.data.extras import require_package
from clearhead.errors import ServingError

app = typer.Typer(rich_markup_mode=None, add_completion=False)
LOCAL = ("127.0.0.1", "localhost", "::1")


@app.command()
def serve(
    folders: Annotated[
        list[Path], typer.Argument(metavar="DIR [DIR2]", help="Model folders; a second one to compare with.")
    ],
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0: any that is free.")] = 8000,
    host: Annotated[str, typer.Option("--host", help="Address to listen on; 0.0.0.0: the whole network.")] = LOCAL[0],
    tag: Tag = "",
    threads: Threads = 0,
) -> None:
    """Serve models over HTTP, with a page that shows every head of every layer. Nothing leaves this machine.

    Example: clearhead serve runs/de
    """
    for package in ("uvicorn", "fastapi"):
        require_package(package, "clearhead serve")
    import uvicorn

    from clearhead.api import load
    from clearhead.serving.app import make_app
    from clearhead.serving.traces import named

    use_threads(threads)
    is_local = host in LOCAL
    with _listen(host, port) as listener:
        models = named([load(folder, tag) for folder in folders])
        for model in models.values():
            model.need_tag()
        application = make_app(models, hosts=frozenset(LOCAL if is_local else ()))
        shown = f"[{host}]" if ":" in host else host
        print(f"open http://{shown}:{listener.getsockname()[1]} in a browser; Ctrl-C ends", file=sys.stderr)
        if not is_local:
            print(f"{host} can be reached by other machines, without a password", file=sys.stderr)
        config = uvicorn.Config(application, log_level="warning", access_log=False, server_header=False)
        uvicorn.Server(config).run(sockets=[listener])
    raise KeyboardInterrupt  # nothing else ends it, and the server takes the signal for itself


def _listen(host: str, port: int) -> socket.socket:
    """The socket, taken before models are loaded: a port in use is known at once."""
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = error.strerror or str(error)
        raise ServingError(f"cannot listen on {host}:{port}: {reason}; choose another --port") from None
