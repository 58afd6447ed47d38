"""The FastAPI application: routes of the HTTP API, and the static files of the page."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Request
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from clearhead.api import Model
from clearhead.extras import require_package
from clearhead.inspection.trace.head_ref import list_sublayers
from clearhead.runtime.cancellation import Cancellation
from clearhead.serving.errors import ErrorBody, RequestError, add_handlers
from clearhead.serving.middleware import Limits, SecurityMiddleware
from clearhead.serving.requests import AblationRequest, TraceRequest, TranslateRequest
from clearhead.serving.trace_store import TraceStore
from clearhead.tasks.registry import get_task

PAGE = Path(__file__).parent / "page"
ERROR_RESPONSES: dict[int | str, dict[str, Any]] = {
    status: {"model": ErrorBody} for status in (400, 404, 408, 413, 422, 501, 503)
}
EXAMPLES = {
    "lm": "The animal",
    "mlm": "The old [MASK] eats the grass.",
    "denoise": "The old <x0> eats the <x1> in the house.",
}
DEFAULT_EXAMPLE = "The animal did not cross the street because it was too tired."


async def _cancellation(request: Request) -> Cancellation:
    """Return the cancellation of a request, which `SecurityMiddleware` has created."""
    cancellation: Cancellation = request.scope["cancellation"]
    return cancellation


RequestCancellation = Annotated[Cancellation, Depends(_cancellation)]


def make_app(models: Mapping[str, Model], limits: Limits | None = None, hosts: frozenset[str] = frozenset()) -> FastAPI:
    """Return the application that serves these models; `hosts` are the accepted host names, or empty for all."""
    limits = limits or Limits()
    app = FastAPI(title="clearhead", docs_url=None, redoc_url=None, responses=ERROR_RESPONSES)
    store = app.state.trace_store = TraceStore(dict(models), limits)
    add_handlers(app, store.hide_paths)
    _add_model_routes(app, store)
    _add_trace_routes(app, store)
    _add_analysis_routes(app, store)
    app.add_middleware(SecurityMiddleware, limits=limits, hosts=hosts)
    # Not a mount at "/": that would match API paths with a wrong method, and answer them with 404 instead of 405.
    app.router.default = StaticFiles(directory=PAGE, html=True)
    return app


def model_info(name: str, model: Model) -> dict[str, Any]:
    """Return the description of a model, from which the page also selects the panels that apply."""
    config = model.config
    return {
        "name": name,
        "task": config.task,
        "command": get_task(config.task).verb,
        "description": config.model.describe(),
        "generates_text": config.model.head == "generation",
        "reads_images": config.model.reads_images,
        "num_parameters": model.weights.num_parameters,
        "example": "" if config.model.reads_images else EXAMPLES.get(config.task, DEFAULT_EXAMPLE),
        "labels": list(config.labels),
        "config": {**config.model.model_dump(mode="json"), "d_k": config.model.head_key_dim,
                   "d_v": config.model.head_value_dim},
        "decoding": config.decoding.model_dump(mode="json"),
        "sublayers": [asdict(sublayer) for sublayer in list_sublayers(config.model)],
    }  # fmt: skip


def _json_response(value: Any) -> Response:
    """Return a JSON response that FastAPI does not validate, because validation would visit every matrix element."""
    return Response(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), media_type="application/json")


def _json_views() -> Any:
    """Return the module `json_views`, which imports torch; raise MissingPackageError if torch is not installed."""
    require_package("torch", "a trace")
    from clearhead.serving import json_views

    return json_views


def _add_model_routes(app: FastAPI, store: TraceStore) -> None:
    @app.get("/livez")
    async def livez() -> dict[str, str]:
        """Report that the server is running."""
        return {"status": "alive"}

    @app.get("/readyz")
    async def readyz() -> dict[str, Any]:
        """List the loaded models; 503 if there are none."""
        if not store.models:
            raise RequestError(503, "not_ready", "no model is loaded")
        return {"status": "ready", "models": list(store.models)}

    @app.get("/v1/models")
    def models() -> Response:
        """List the models of the server."""
        return _json_response({"models": [model_info(name, model) for name, model in store.models.items()]})

    @app.post("/v1/translate")
    def translate(request: TranslateRequest, cancellation: RequestCancellation) -> Response:
        """Translate one text or a list of texts."""
        name, model = store.model(request.model)
        texts = [request.text] if isinstance(request.text, str) else request.text
        if not 1 <= len(texts) <= store.limits.texts:
            message = f"text: expected 1 to {store.limits.texts} texts, got {len(texts)}"
            raise RequestError(400, "bad_setting", message, "text")
        for text in texts:
            store.limits.check_text(text, "text")
        store.limits.check_beam(request.beam_size)
        settings = model.decoding(beam_size=request.beam_size, length_penalty=request.length_penalty)
        n_best_lists = model.translate_n_best(texts, request.n_best, settings, cancellation=cancellation)
        translations = [
            {"source": text, **n_best[0].to_json(), "n_best": [translation.to_json() for translation in n_best]}
            for text, n_best in zip(texts, n_best_lists, strict=True)
        ]
        return _json_response({"model": name, "translations": translations})


def _add_trace_routes(app: FastAPI, store: TraceStore) -> None:
    @app.post("/v1/trace")
    def trace(request: TraceRequest, cancellation: RequestCancellation) -> Response:
        """Trace a model on one input. The response has no tensors, but an `id` with which they can be requested."""
        return _json_response(_json_views().summary(store.get_or_create(request, cancellation)))

    @app.get("/v1/trace/{trace_id}")
    def complete_trace(trace_id: str) -> Response:
        """Return a trace with the attention of every head."""
        stored = store.get(trace_id)
        return _json_response({**_json_views().summary(stored), "attention": stored.trace.to_json()["attention"]})

    @app.get("/v1/trace/{trace_id}/thumbnails")
    def thumbnails(trace_id: str, hide_special: bool = False) -> Response:
        """Return a small grayscale image of every head."""
        return _json_response(_json_views().thumbnails(store.get(trace_id).trace, hide_special))

    @app.get("/v1/trace/{trace_id}/attention/{kind}/{layer}/{head}")
    def attention(trace_id: str, kind: str, layer: int, head: int, base64: bool = False) -> Response:
        """Return the weights and the mask of one head: as lists, or in base64 as float32 and bytes, row by row."""
        return _json_response(_json_views().head_attention(store.get(trace_id).trace, kind, layer, head, base64))

    @app.get("/v1/trace/{trace_id}/arithmetic/{kind}/{layer}/{head}/{row}")
    def arithmetic(trace_id: str, kind: str, layer: int, head: int, row: int) -> Response:
        """Return the numbers from which one row of a head is computed: query, keys, values, scale and bias."""
        return _json_response(_json_views().row_arithmetic(store.get(trace_id).trace, kind, layer, head, row))


def _add_analysis_routes(app: FastAPI, store: TraceStore) -> None:
    """Add the routes that run the model; a lock lets one of them run at a time."""

    @app.get("/v1/trace/{trace_id}/lens")
    def lens(trace_id: str, cancellation: RequestCancellation) -> Response:
        """Return the model's predictions after each layer."""
        with store.lock.hold(cancellation):
            return _json_response(_json_views().lens(store.get(trace_id)))

    @app.get("/v1/trace/{trace_id}/attribution")
    def attribution(trace_id: str, cancellation: RequestCancellation) -> Response:
        """Return the attribution of each output to the inputs, by gradients and by leaving out words or patches."""
        with store.lock.hold(cancellation):
            return _json_response(_json_views().attribution(store.get(trace_id)))

    @app.get("/v1/trace/{trace_id}/effects")
    def effects(trace_id: str, cancellation: RequestCancellation, outputs: bool = False) -> Response:
        """Return the change in the output's log-probability when each head is ablated; with `outputs`, the new ones."""
        with store.lock.hold(cancellation):
            return _json_response(_json_views().effects(store.get(trace_id), outputs))

    @app.post("/v1/ablation")
    def ablation(request: AblationRequest, cancellation: RequestCancellation) -> Response:
        """Return the output of the ablated model, and the change in the log-probability of the original output."""
        with store.lock.hold(cancellation):
            return _json_response(_json_views().ablation(store.get(request.trace), request.ablated))

    @app.get("/v1/trace/{trace_id}/positions")
    def positions(trace_id: str, cancellation: RequestCancellation) -> Response:
        """Return the position encodings, and the effect of word order with and without them."""
        with store.lock.hold(cancellation):
            return _json_response(_json_views().positions(store.get(trace_id)))
