"""Store of the served models and their traces: traces are computed on request and can be requested again by id."""

import base64
import binascii
import hashlib
import io
import json
import shutil
import struct
import tempfile
import threading
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from clearhead.api import Model
from clearhead.config import DecodingConfig
from clearhead.data.readers.images import MAX_SIDE
from clearhead.errors import DataError
from clearhead.extras import require_package
from clearhead.runtime.cancellation import Cancellation
from clearhead.serving.errors import RequestError
from clearhead.serving.middleware import Limits, TraceLock
from clearhead.serving.requests import TraceRequest

if TYPE_CHECKING:
    from clearhead.inspection.trace.trace_input import TraceInput
    from clearhead.inspection.trace.trace_types import Trace


@dataclass(frozen=True, eq=False)
class StoredTrace:
    """A trace with its id, its request and the traced model."""

    id: str
    request: TraceRequest
    model_name: str
    model: Model
    """The traced model, with the requested ablations of heads, sub-layers and position encodings."""
    model_with_positions: Model
    """The same model without the ablation of its position encodings."""
    settings: DecodingConfig
    trace: "Trace"


def named_models(models: Sequence[Model]) -> dict[str, Model]:
    """Return the models by the names of their folders; the second model of the same name gets the suffix -2."""
    by_name: dict[str, Model] = {}
    for model in models:
        name, number = model.folder.resolve().name, 2
        while name in by_name:
            name, number = f"{model.folder.resolve().name}-{number}", number + 1
        by_name[name] = model
    return by_name


class TraceStore:
    """Models and the most recently used traces; traces are computed one at a time."""

    def __init__(self, models: dict[str, Model], limits: Limits) -> None:
        # Folders are absolute, so that `hide_paths` can replace them in error messages.
        self.models = {name: replace(model, folder=model.folder.resolve()) for name, model in models.items()}
        self.limits = limits
        self.lock = TraceLock(limits.wait_seconds)
        self._images = Path(tempfile.mkdtemp(prefix="clearhead-"))
        self.close = weakref.finalize(self, shutil.rmtree, self._images, ignore_errors=True)
        self._traces: OrderedDict[str, StoredTrace] = OrderedDict()
        self._traces_lock = threading.Lock()

    def hide_paths(self, message: str) -> str:
        """Return the message with model names instead of model folders, because clients must not see paths."""
        names = {str(model.folder): name for name, model in self.models.items()}
        for folder in sorted(names, key=len, reverse=True):  # longest first: a folder may be inside another one
            message = message.replace(folder, names[folder])
        return message

    def model(self, name: str | None) -> tuple[str, Model]:
        """Return the name and the model, the first one if `name` is None; raise RequestError if there is none."""
        if name is None:
            return next(iter(self.models.items()))
        if name not in self.models:
            raise RequestError(
                404, "no_such_model", f"expected one of the models {', '.join(self.models)}, got {name!r}", "model"
            )
        return name, self.models[name]

    def get(self, trace_id: str) -> StoredTrace:
        """Return a stored trace; raise RequestError if it was never stored or has been dropped."""
        with self._traces_lock:
            if trace_id in self._traces:
                self._traces.move_to_end(trace_id)
                return self._traces[trace_id]
        raise RequestError(
            404, "no_such_trace", f"trace {trace_id!r} is not stored; request the trace again at /v1/trace", "id"
        )

    def get_or_create(self, request: TraceRequest, cancellation: Cancellation) -> StoredTrace:
        """Return the trace of a request: the stored one of an equal request, or a new one, which is stored.

        Raises RequestError for invalid requests, and RequestCancelledError if `cancellation` is set before the search
        has ended.
        """
        name, model = self.model(request.model)
        named_request = request.model_copy(update={"model": name})
        trace_id = hashlib.sha256(json.dumps(named_request.model_dump(), sort_keys=True).encode()).hexdigest()[:20]
        with self.lock.hold(cancellation):
            try:
                return self.get(trace_id)
            except RequestError:
                stored = self._trace(trace_id, named_request, name, model, cancellation)
            with self._traces_lock:
                self._traces[trace_id] = stored
                while len(self._traces) > self.limits.stored_traces:
                    self._traces.popitem(last=False)
        return stored

    def _trace(
        self, trace_id: str, request: TraceRequest, name: str, model: Model, cancellation: Cancellation
    ) -> StoredTrace:
        """Return a new trace with the ablations and the forced output of the request."""
        require_package("torch", "a trace")
        from clearhead.inspection.analyses.position_ablation import ablate_positions
        from clearhead.inspection.trace.run_trace import run_trace
        from clearhead.inspection.trace.trace_search import continue_from_prefix

        self.limits.check_beam(request.beam_size)
        if sum(output is not None for output in (request.target, request.tokens, request.prefix)) > 1:
            raise RequestError(400, "bad_setting", "expected one of target, tokens and prefix, got several", "target")
        trace_input = self._read_input(request, model)
        with_positions = model.with_ablated(request.ablated) if request.ablated else model
        traced = with_positions
        if not request.positions:
            traced = with_positions.with_network(ablate_positions(with_positions.network))
        settings = model.inspection_settings(beam_size=request.beam_size, length_penalty=request.length_penalty)
        if request.hypothesis >= settings.beam_size:
            raise RequestError(
                400, "bad_setting", f"hypothesis: expected 0 to {settings.beam_size - 1}, got {request.hypothesis}",
                "hypothesis"
            )  # fmt: skip
        tokens = request.tokens
        if request.prefix is not None:
            tokens = continue_from_prefix(traced, trace_input, request.prefix, settings, cancellation)
        trace = run_trace(
            traced, trace_input, request.target, settings, tokens=tokens, hypothesis=request.hypothesis,
            arithmetic=True, cancellation=cancellation
        )  # fmt: skip
        return StoredTrace(trace_id, request, name, traced, with_positions, settings, trace)

    def _read_input(self, request: TraceRequest, model: Model) -> "TraceInput":
        if model.config.model.reads_images:
            return self._read_image(request, model)
        if request.image is not None:
            raise RequestError(400, "wrong_input", "this model reads text: expected a text, got an image", "image")
        return self._read_text(request, model)

    def _read_text(self, request: TraceRequest, model: Model) -> "TraceInput":
        from clearhead.inspection.trace.trace_input import text_input

        self.limits.check_text(request.text, "text")
        if request.target is not None:
            self.limits.check_text(request.target, "target")
        trace_input = text_input(model, request.text)
        num_tokens, limit = len(trace_input.positions), self.limits.source_tokens
        if num_tokens > limit:
            message = f"text: expected at most {limit:,} tokens, got {num_tokens:,}; shorten it"
            raise RequestError(413, "too_long", message, "text")
        return trace_input

    def _read_image(self, request: TraceRequest, model: Model) -> "TraceInput":
        from clearhead.inspection.trace.trace_input import image_input

        if request.image is None:
            raise RequestError(400, "wrong_input", "this model reads images: expected a PNG in base64", "image")
        path = self._save_image(request.image, model.config.model.image_channels)
        try:
            return image_input(model, path)
        except DataError as error:  # clients must not see the path of the temporary file
            raise RequestError(400, "bad_image", str(error).replace(str(path), "image"), "image") from None

    def _save_image(self, encoded: str, channels: int) -> Path:
        """Return the path of a file with the decoded image, which the trace and its analyses read."""
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise RequestError(400, "bad_image", "image: expected a PNG in base64", "image") from None
        path = self._images / f"{hashlib.sha256(content).hexdigest()[:20]}-{channels}.png"
        if not path.exists():
            path.write_bytes(_to_grayscale(content) if channels == 1 else content)
        return path


def _to_grayscale(content: bytes) -> bytes:
    """Return a PNG with equal color channels as a grayscale PNG, and any other content unchanged.

    It is needed because browsers save every canvas as a color PNG.
    """
    pillow = require_package("PIL.Image", "a trace of an image")
    try:
        with pillow.open(io.BytesIO(content), formats=["PNG"]) as image:
            if max(image.size) > MAX_SIDE or image.mode not in ("RGB", "RGBA"):
                return content
            red, green, blue = image.convert("RGB").split()
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error):
        return content  # damaged: the image reader reports the error
    if not red.tobytes() == green.tobytes() == blue.tobytes():
        return content
    grayscale = io.BytesIO()
    red.save(grayscale, "PNG")
    return grayscale.getvalue()
