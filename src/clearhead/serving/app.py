"""The HTTP server: its routes, each a few lines over `traces` and `views`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from starlette.responses import Response
from starlette.staticfiles import StaticFiles

from clearhead.api import Model
from clearhead.inspection import tracing
from clearhead.inspection.ablation import effect
from clearhead.inspection.places_off import marks, order_difference, without_positions
from clearhead.serving import views
from clearhead.serving.errors import ErrorBody, RequestError, add_handlers
from clearhead.serving.limits import Guard, Limits
from clearhead.serving.requests import AblationRequest, TraceRequest, TranslateRequest
from clearhead.serving.traces import Traces

PAGE = Path(__file__).parent / "page"
PLACES = 96  # of the table of positions that is shown
REFUSALS: dict[int | str, dict[str, Any]] = {status: {"model": ErrorBody} for status in (400, 404, 408, 413, 422, 503)}


def make_app(models: Mapping[str, Model], limits: Limits | None = None, hosts: frozenset[str] = frozenset()) -> FastAPI:
    """The server of these models; `hosts` are the names under which it may be called, any if there are none."""
    limits = limits or Limits()
    app = FastAPI(title="clearhead", docs_url=None, redoc_url=None, responses=REFUSALS)
    traces = app.state.traces = Traces(dict(models), limits)
    add_handlers(app, traces.hide_paths)
    _add_models(app, traces)
    _add_traces(app, traces)
    _add_questions(app, traces)
    app.add_middleware(Guard, limits=limits, hosts=hosts)
    app.router.default = StaticFiles(directory=PAGE, html=True)  # a mount would hide what other methods a route has
    return app


def _json(value: Any) -> Response:
    """Straight to bytes: FastAPI's own way walks through every number of a matrix."""
    return Response(json.dumps(value, ensure_ascii=False, allow_nan=False).encode(), media_type="application/json")


def _add_models(app: FastAPI, traces: Traces) -> None:
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
        return _json({"models": [views.model_card(name, model) for name, model in traces.models.items()]})

    @app.post("/v1/translate")
    def translate(request: TranslateRequest) -> Response:
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
        found = model.translate_n_best(texts, request.n_best, settings)
        translations = [
            {"source": text, **best[0].to_json(), "n_best": [one.to_json() for one in best]}
            for text, best in zip(texts, found, strict=True)
        ]
        return _json({"model": name, "translations": translations})


def _add_traces(app: FastAPI, traces: Traces) -> None:
    @app.post("/v1/trace")
    def trace(request: TraceRequest) -> Response:
        """Looks into a model; the answer names a trace, whose tensors are asked for by layer and head."""
        return _json(views.summary(traces.make(request)))

    @app.get("/v1/trace/{number}")
    def whole(number: str) -> Response:
        """All of a trace, with every attention of every head."""
        held = traces.get(number)
        record = views.summary(held)
        return _json({**record, "attention": held.trace.to_json()["attention"]})

    @app.get("/v1/trace/{number}/thumbnails")
    def thumbnails(number: str, hide_special: bool = False) -> Response:
        """Every head, small, for an overview."""
        return _json(views.thumbnails(traces.get(number).trace, hide_special))

    @app.get("/v1/trace/{number}/attention/{kind}/{layer}/{head}")
    def attention(number: str, kind: str, layer: int, head: int, packed: bool = False) -> Response:
        """The weights of one head; packed, they are float32 and the mask bytes, row by row, in base64."""
        return _json(views.one_head(traces.get(number).trace, kind, layer, head, packed))

    @app.get("/v1/trace/{number}/arithmetic/{kind}/{layer}/{head}/{row}")
    def arithmetic(number: str, kind: str, layer: int, head: int, row: int) -> Response:
        """What the weights of one row of a head were made of."""
        return _json(views.one_row(traces.get(number).trace, kind, layer, head, row))


def _add_questions(app: FastAPI, traces: Traces) -> None:
    """What takes more runs of the model: one at a time too."""

    @app.get("/v1/trace/{number}/lens")
    def lens(number: str) -> Response:
        """What the model would have answered after each layer."""
        with traces.gate.turn():
            return _json(views.lens(traces.get(number)))

    @app.get("/v1/trace/{number}/attribution")
    def attribution(number: str) -> Response:
        """What each output hangs on."""
        with traces.gate.turn():
            return _json(views.attribution(traces.get(number)))

    @app.get("/v1/trace/{number}/effects")
    def effects(number: str, outputs: bool = False) -> Response:
        """How the log-probability of the output changes when each head is off; and what is written then."""
        with traces.gate.turn():
            return _json(views.effects(traces.get(number), outputs))

    @app.post("/v1/ablation")
    def ablation(request: AblationRequest) -> Response:
        """What the model writes with parts off, and how probable it still finds what it wrote before."""
        held = traces.get(request.trace)
        with traces.gate.turn():
            off = held.model.with_heads_off(request.off)
            found = effect(held.model, off, held.trace, held.settings)
        after = found.after
        return _json({**found.to_json(), "pieces_before": [one.text for one in held.trace.outputs],
                      "pieces_after": [one.text for one in after.outputs], "log_prob_before": held.trace.log_prob,
                      "log_prob_after": after.log_prob, "output_ids_after": list(after.output_ids)})  # fmt: skip

    @app.get("/v1/trace/{number}/positions")
    def positions(number: str) -> Response:
        """How places are marked, and what the order of the source is to the model with and without the marks."""
        held = traces.get(number)
        with traces.gate.turn():
            return _json(
                _positions(held.placed, held.trace.source_text, min(PLACES, held.model.config.model.max_positions))
            )


def _positions(model: Model, text: str, length: int) -> dict[str, Any]:
    found = marks(model.network, model.config.model.positions, length)
    blind = model.with_network(without_positions(model.network))
    record: dict[str, Any] = {
        "kind": found.kind,
        "table": None if found.table_LD is None else found.table_LD.astype(float).tolist(),
        "bias": None if found.bias_HO is None else found.bias_HO.astype(float).tolist(),
        "order": None,
    }
    if found.kind == "none" or model.config.model.reads_images:
        return record
    words = text.split()
    given, swapped = (tracing.given_text(model, each) for each in (text, " ".join(reversed(words))))
    settings = model.config.decoding
    record["order"] = {"text": given.text, "reversed": swapped.text} | {
        name: {"difference": order_difference(each.network, given.src),
               "output": tracing.trace(each, given, None, settings).target_text,
               "reversed_output": tracing.trace(each, swapped, None, settings).target_text}
        for name, each in (("with", model), ("without", blind))
    }  # fmt: skip
    return record
