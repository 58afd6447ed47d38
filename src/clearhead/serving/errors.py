"""What goes wrong over HTTP: always {"error": {"code", "message", "param"}} with a status that fits."""

from collections.abc import Callable

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse

from clearhead.errors import (
    ClearheadError,
    ConfigError,
    DataError,
    DecodingError,
    InspectionError,
    MissingPackageError,
    ServingError,
    TaskError,
    TokenizerError,
)

CODES: dict[type[ClearheadError], str] = {
    DataError: "bad_text",
    TokenizerError: "bad_text",
    ConfigError: "bad_setting",
    DecodingError: "bad_setting",
    TaskError: "wrong_task",
    InspectionError: "no_such_part",
}
ANSWER_HEADERS = {408: {"Connection": "close"}, 503: {"Retry-After": "5"}}


class ErrorInfo(BaseModel):
    """One error."""

    code: str
    """For programs: stays the same."""
    message: str
    """For people: what was expected, what came, what to do."""
    param: str | None = None
    """The field of the request that is to blame, where it is one."""


class ErrorBody(BaseModel):
    """What every answer that is no success holds."""

    error: ErrorInfo


class RequestError(ServingError):
    """A request that is refused, with the status and code of the answer."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


def answer(status: int, code: str, message: str, param: str | None = None) -> JSONResponse:
    """An error as an answer."""
    body = ErrorBody(error=ErrorInfo(code=code, message=message, param=param))
    return JSONResponse(body.model_dump(), status, ANSWER_HEADERS.get(status))


def add_handlers(app: FastAPI, hide_paths: Callable[[str], str]) -> None:
    """Every way in which a request can fail; `hide_paths` removes the server's paths from messages of the library."""

    @app.exception_handler(ClearheadError)
    async def refused(_: Request, error: ClearheadError) -> JSONResponse:
        if isinstance(error, RequestError):
            return answer(error.status, error.code, str(error), error.param)
        if isinstance(error, MissingPackageError):
            return answer(501, "not_installed", str(error))
        return answer(400, CODES.get(type(error), "refused"), hide_paths(str(error)))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        where = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
        param = ".".join(where) or None
        return answer(422, "invalid_request", f"{param or 'the body'}: {first['msg']}", param)

    @app.exception_handler(HTTPException)
    async def http(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
        path = request.url.path
        message = f"there is no {path} here; see /openapi.json" if code == "not_found" else f"{path}: {error.detail}"
        return answer(error.status_code, code, message)

    @app.exception_handler(Exception)
    async def bug(_: Request, error: Exception) -> JSONResponse:
        return answer(500, "internal", f"a bug of clearhead: {type(error).__name__}; see the server's output")
