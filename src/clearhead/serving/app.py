"""The HTTP server: its routes, each a few lines over `traces` and `views`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from clearhead.api import Model
from clearhead.extras import require_package
from clearhead.runtime.cancellation import Cancellation
from clearhead.serving.errors import ErrorBody, RequestError, add_handlers
from clearhead.serving.middleware import Limits, SecurityMiddleware
from clearhead.serving.model_card import model_card
from clearhead.serving.requests import AblationRequest, TraceRequest, TranslateRequest
from clearhead.serving.trace_store import TraceStore

PAGE = Path(__file__).parent / "page"
REFUSALS: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 404, 408, 413, 422, 501, 503)
}


async def _cancellation(request: Request) -> Cancellation:
    """Return the cancellation of a request, made by `SecurityMiddleware`."""
    cancellation: Cancellation = request.scope["cancellation"]
    return cancellation


Cancel = Annotated[Cancellation, Depends(_cancellation)]


def make_app(models: Mapping[str, Model], limits: Limits | None = None, hosts: frozenset[str] = frozenset()) -> FastAPI:
    """The server of these models; `hosts` are the names under which it may be called, any if there are none."""
    limits = limits or Limits()
    app = FastAPI(title="clearhead", docs_url=None, redoc_url=None, responses=REFUSALS)
    traces = app.state.traces = TraceStore(dict(models), limits)
    add_handlers(app, traces.hide_paths)
    _add_models(app, traces)
    _add_traces(app, traces)
    _add_questions(app, traces)
    app.add_middleware(SecurityMiddleware, limits=limits, hosts=hosts)
    app.router.default = StaticFiles(directory=PAGE, html=True)  # a mount would hide what other methods a route has
    return app


def _json(value: Any) -> Response:
    """Straight to bytes: FastAPI's own way walks through every number of a matrix."""
    return Response(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), media_type="application/json")


def _views() -> Any:
    """Return the module that reads traces, which imports torch; raise MissingPackageError if that is not installed."""
    require_package("torch", "a trace")
    from clearhead.serving import json_views

    return json_views


def _add_models(app: FastAPI, traces: TraceStore) -> None:
    @app.get("/livez")
    async def livez() -> dict[str, str]:
        """Whether the server answers at all."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> dict[str, Any]:
        """Whether there are models to ask."""
        if not traces.models:
            raise RequestError(503, "not_ready", "no model is loaded")
        return {"status": "ready", "models": list(traces.models)}

    @app.get("/v1/models")
    def models() -> Response:
        """The models that are served."""
        return _json({"models": [model_card(name, model) for name, model in traces.models.items()]})

    @app.post("/v1/translate")
    def translate(request: TranslateRequest, cancellation: Cancel) -> Response:
        """The best translations of a text, or of several."""
        name, model = traces.model(request.model)
        texts = [request.text] if isinstance(request.text, str) else request.text
        if not 1 <= len(texts) <= traces.limits.texts:
            expected = f"text: expected 1 to {traces.limits.texts} texts, got {len(texts)}"
            raise RequestError(400, "bad_setting", expected, "text")
        for text in texts:
            traces.limits.check_text(text, "text")
        traces.limits.check_beam(request.beam_size)
        settings = model.decoding(beam_size=request.beam_size, length_penalty=request.length_penalty)
        found = model.translate_n_best(texts, request.n_best, settings, cancellation=cancellation)
        translations = [
            {"source": text, **best[0].to_json(), "n_best": [one.to_json() for one in best]}
            for text, best in zip(texts, found, strict=True)
        ]
        return _json({"model": name, "translations": translations})


def _add_traces(app: FastAPI, traces: TraceStore) -> None:
    @app.post("/v1/trace")
    def trace(request: TraceRequest, cancellation: Cancel) -> Response:
        """Looks into a model; the answer names a trace, whose tensors are asked for by layer and head."""
        return _json(_views().summary(traces.make(request, cancellation)))

    @app.get("/v1/trace/{number}")
    def whole(number: str) -> Response:
        """All of a trace, with every attention of every head."""
        held = traces.get(number)
        record = _views().summary(held)
        return _json({**record, "attention": held.trace.to_json()["attention"]})

    @app.get("/v1/trace/{number}/thumbnails")
    def thumbnails(number: str, hide_special: bool = False) -> Response:
        """Every head, small, for an overview."""
        return _json(_views().thumbnails(traces.get(number).trace, hide_special))

    @app.get("/v1/trace/{number}/attention/{kind}/{layer}/{head}")
    def attention(number: str, kind: str, layer: int, head: int, packed: bool = False) -> Response:
        """The weights of one head; packed, they are float32 and the mask bytes, row by row, in base64."""
        return _json(_views().one_head(traces.get(number).trace, kind, layer, head, packed))

    @app.get("/v1/trace/{number}/arithmetic/{kind}/{layer}/{head}/{row}")
    def arithmetic(number: str, kind: str, layer: int, head: int, row: int) -> Response:
        """What the weights of one row of a head were made of."""
        return _json(_views().one_row(traces.get(number).trace, kind, layer, head, row))


def _add_questions(app: FastAPI, traces: TraceStore) -> None:
    """What takes more runs of the model: one at a time too."""

    @app.get("/v1/trace/{number}/lens")
    def lens(number: str, cancellation: Cancel) -> Response:
        """What the model would have answered after each layer."""
        with traces.gate.turn(cancellation):
            return _json(_views().lens(traces.get(number)))

    @app.get("/v1/trace/{number}/attribution")
    def attribution(number: str, cancellation: Cancel) -> Response:
        """What each output hangs on."""
        with traces.gate.turn(cancellation):
            return _json(_views().attribution(traces.get(number)))

    @app.get("/v1/trace/{number}/effects")
    def effects(number: str, cancellation: Cancel, outputs: bool = False) -> Response:
        """How the log-probability of the output changes when each head is off; and what is written then."""
        with traces.gate.turn(cancellation):
            return _json(_views().effects(traces.get(number), outputs))

    @app.post("/v1/ablation")
    def ablation(request: AblationRequest, cancellation: Cancel) -> Response:
        """What the model writes with parts off, and how probable it still finds what it wrote before."""
        with traces.gate.turn(cancellation):
            return _json(_views().ablation(traces.get(request.trace), request.off))

    @app.get("/v1/trace/{number}/positions")
    def positions(number: str, cancellation: Cancel) -> Response:
        """How places are marked, and what the order of the source is to the model with and without the marks."""
        with traces.gate.turn(cancellation):
            return _json(_views().positions(traces.get(number)))
