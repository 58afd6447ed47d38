"""Errors of the HTTP API: a status code with the body {"error": {"code", "message", "param"}}."""

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
    InspectionError: "bad_inspection",
}
HEADERS_BY_STATUS = {408: {"Connection": "close"}, 503: {"Retry-After": "5"}}


class ErrorInfo(BaseModel):
    """Code, message and field of one error."""

    code: str
    """Identifier of the error's type, which does not change between versions."""
    message: str
    """Sentence for users that states what was expected, what was received and what to do."""
    param: str | None = None
    """The invalid field of the request; None if the error does not concern a single field."""


class ErrorBody(BaseModel):
    """Body of every response with an error status."""

    error: ErrorInfo


class RequestError(ServingError):
    """Rejection of a request, with the status and the error code of the response."""

    def __init__(self, status: int, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param


def error_response(status: int, code: str, message: str, param: str | None = None) -> JSONResponse:
    """Return the HTTP response for an error."""
    body = ErrorBody(error=ErrorInfo(code=code, message=message, param=param))
    return JSONResponse(body.model_dump(), status, HEADERS_BY_STATUS.get(status))


def add_handlers(app: FastAPI, hide_paths: Callable[[str], str]) -> None:
    """Add handlers for all exceptions; `hide_paths` replaces the server's paths in a message."""

    @app.exception_handler(ClearheadError)
    async def handle_clearhead_error(_: Request, error: ClearheadError) -> JSONResponse:
        if isinstance(error, RequestError):
            return error_response(error.status, error.code, str(error), error.param)
        if isinstance(error, MissingPackageError):
            return error_response(501, "not_installed", str(error))
        return error_response(400, CODES.get(type(error), "refused"), hide_paths(str(error)))

    @app.exception_handler(RequestValidationError)
    async def handle_validation_error(_: Request, error: RequestValidationError) -> JSONResponse:
        first = error.errors()[0]
        location = [str(name) for name in first["loc"] if name not in ("body", "query", "path")]
        param = ".".join(location) or None
        return error_response(422, "invalid_request", f"{param or 'the body'}: {first['msg']}", param)

    @app.exception_handler(HTTPException)
    async def handle_http_exception(request: Request, error: HTTPException) -> JSONResponse:
        code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
        path = request.url.path
        message = f"{path}: {error.detail}"
        if code == "not_found":
            message = f"{path} does not exist; the paths are listed in /openapi.json"
        return error_response(error.status_code, code, message)

    @app.exception_handler(Exception)
    async def handle_internal_error(_: Request, error: Exception) -> JSONResponse:
        return error_response(
            500, "internal", f"internal error of clearhead: {type(error).__name__}; see the server's output"
        )
