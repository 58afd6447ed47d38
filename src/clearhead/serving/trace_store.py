"""The models that are served, and the traces that were made of them: made once, kept for a while, asked for by id."""

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
    from clearhead.inspection.trace.run_trace import TraceInput
    from clearhead.inspection.trace.trace_types import Trace


@dataclass(frozen=True, eq=False)
class StoredTrace:
    """A trace, and the model as it was when it was made: with parts off or without positions, if that was asked."""

    id: str
    request: TraceRequest
    name: str
    model: Model
    placed: Model
    """The same with its positions."""
    settings: DecodingConfig
    trace: "Trace"


def named(models: Sequence[Model]) -> dict[str, Model]:
    """The models by the names of their folders, each a name of its own."""
    found: dict[str, Model] = {}
    for model in models:
        name, number = model.folder.resolve().name, 2
        while name in found:
            name, number = f"{model.folder.resolve().name}-{number}", number + 1
        found[name] = model
    return found


class TraceStore:
    """Makes traces, one at a time, and keeps the last ones."""

    def __init__(self, models: dict[str, Model], limits: Limits) -> None:
        # absolute, so that error messages can be searched for them
        self.models = {name: replace(model, folder=model.folder.resolve()) for name, model in models.items()}
        self.limits = limits
        self.gate = TraceLock(limits.wait_seconds)
        self._pictures = Path(tempfile.mkdtemp(prefix="clearhead-"))
        self.close = weakref.finalize(self, shutil.rmtree, self._pictures, ignore_errors=True)
        self._held: OrderedDict[str, StoredTrace] = OrderedDict()
        self._lock = threading.Lock()

    def hide_paths(self, message: str) -> str:
        """Return the message with model names instead of model folders: clients must not learn the server's paths."""
        names = {str(model.folder): name for name, model in self.models.items()}
        for folder in sorted(names, key=len, reverse=True):  # a folder may be inside another
            message = message.replace(folder, names[folder])
        return message

    def model(self, name: str | None) -> tuple[str, Model]:
        """A model by its name; the first if none is given."""
        if name is None:
            return next(iter(self.models.items()))
        if name not in self.models:
            raise RequestError(
                404, "no_such_model", f"expected one of the models {', '.join(self.models)}, got {name!r}", "model"
            )
        return name, self.models[name]

    def get(self, number: str) -> StoredTrace:
        """A trace that was made before."""
        with self._lock:
            if number in self._held:
                self._held.move_to_end(number)
                return self._held[number]
        raise RequestError(
            404, "no_such_trace", f"there is no trace {number!r} any more; ask for it again at /v1/trace", "id"
        )

    def make(self, request: TraceRequest, cancellation: Cancellation) -> StoredTrace:
        """The trace of a request; the same request again gives the same one. Cancelled, its search ends."""
        name, model = self.model(request.model)
        known = request.model_copy(update={"model": name})
        number = hashlib.sha256(json.dumps(known.model_dump(), sort_keys=True).encode()).hexdigest()[:20]
        with self.gate.turn(cancellation):
            try:
                return self.get(number)
            except RequestError:
                held = self._trace(number, known, name, model, cancellation)
            with self._lock:
                self._held[number] = held
                while len(self._held) > self.limits.kept_traces:
                    self._held.popitem(last=False)
        return held

    def _trace(
        self, number: str, request: TraceRequest, name: str, model: Model, cancellation: Cancellation
    ) -> StoredTrace:
        require_package("torch", "a trace")
        from clearhead.inspection.analyses.continue_from_prefix import continue_from_prefix
        from clearhead.inspection.analyses.position_ablation import without_positions
        from clearhead.inspection.trace import run_trace

        self.limits.check_beam(request.beam_size)
        if sum(each is not None for each in (request.target, request.tokens, request.prefix)) > 1:
            raise RequestError(400, "bad_setting", "expected one of target, tokens and prefix, got several", "target")
        given = self._given(request, model)
        placed = model.with_ablated(request.off) if request.off else model
        changed = placed if request.positions else placed.with_network(without_positions(placed.network))
        settings = model.inspection_settings(beam_size=request.beam_size, length_penalty=request.length_penalty)
        if request.hypothesis >= settings.beam_size:
            raise RequestError(
                400, "bad_setting", f"hypothesis: expected 0 to {settings.beam_size - 1}, got {request.hypothesis}",
                "hypothesis"
            )  # fmt: skip
        tokens = request.tokens
        if request.prefix is not None:
            tokens = continue_from_prefix(changed, given, request.prefix, settings, cancellation)
        seen = run_trace.trace(
            changed, given, request.target, settings, tokens=tokens, hypothesis=request.hypothesis, arithmetic=True,
            cancellation=cancellation
        )  # fmt: skip
        return StoredTrace(number, request, name, changed, placed, settings, seen)

    def _given(self, request: TraceRequest, model: Model) -> "TraceInput":
        from clearhead.inspection.trace import run_trace

        if model.config.model.reads_images:
            if request.picture is None:
                raise RequestError(400, "wrong_input", "this model reads pictures: expected a PNG in base64", "picture")
            path = self._keep_picture(request.picture, model.config.model.image_channels)
            try:
                return run_trace.image_input(model, path)
            except DataError as error:  # where it is kept is nobody's business
                raise RequestError(400, "bad_picture", str(error).replace(str(path), "picture"), "picture") from None
        if request.picture is not None:
            raise RequestError(400, "wrong_input", "this model reads text: expected a text, got a picture", "picture")
        self.limits.check_text(request.text, "text")
        if request.target is not None:
            self.limits.check_text(request.target, "target")
        given = run_trace.text_input(model, request.text)
        if len(given.places) > self.limits.pieces:
            raise RequestError(
                413, "too_long", f"text: expected at most {self.limits.pieces:,} pieces, got {len(given.places):,}; "
                "shorten it", "text"
            )  # fmt: skip
        return given

    def _keep_picture(self, encoded: str, channels: int) -> Path:
        """A picture as a file, for the model's own reader; other views of its trace read it again."""
        try:
            content = base64.b64decode(encoded, validate=True)
        except (binascii.Error, ValueError):
            raise RequestError(400, "bad_picture", "picture: expected a PNG in base64", "picture") from None
        path = self._pictures / f"{hashlib.sha256(content).hexdigest()[:20]}-{channels}.png"
        if not path.exists():
            path.write_bytes(_as_grey(content) if channels == 1 else content)
        return path


def _as_grey(content: bytes) -> bytes:
    """A PNG whose colours are all greys as a grey one: browsers write every picture in colour. Any other as it is."""
    pillow = require_package("PIL.Image", "a trace of an image")
    try:
        with pillow.open(io.BytesIO(content), formats=["PNG"]) as picture:
            if max(picture.size) > MAX_SIDE or picture.mode not in ("RGB", "RGBA"):
                return content
            red, green, blue = picture.convert("RGB").split()
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, KeyError, struct.error):
        return content  # damaged: the model's own reader says how
    if not red.tobytes() == green.tobytes() == blue.tobytes():
        return content
    grey = io.BytesIO()
    red.save(grey, "PNG")
    return grey.getvalue()
