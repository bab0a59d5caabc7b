"""One problem shape (RFC 9457) for every answer that is not what was asked for.

`PROBLEMS` is the whole list of them. What the ledger, the graph or the framework raises is mapped
here and nowhere else; details of the inside (hosts, stack traces, values) go to the log only.

The middleware around every request is here too: its id, log line, time, and limit of its body.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol, runtime_checkable
from urllib.parse import quote
from uuid import uuid4

import orjson
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.schemas import FieldError, Problem
from pipelines.observe import logs, metrics
from pipelines.observe.logs import get_logger
from projections.errors import (
    EventConflict,
    GraphAhead,
    GraphUnavailable,
    InvalidInput,
    KeysUnavailable,
    LedgerError,
    QueryTimeout,
    RecollectError,
    SubjectErased,
    UndecodableEntry,
)

PROBLEM_MEDIA_TYPE: Final = "application/problem+json"
EVENT_STREAM: Final = "text/event-stream"
REQUEST_ID_HEADER: Final = "X-Request-ID"

_log = get_logger(__name__)


class Kind(NamedTuple):
    """A kind of problem: status and title; `retry` asks for the header Retry-After."""

    status: int
    title: str
    retry: bool = False


PROBLEMS: Final[dict[str, Kind]] = {
    "malformed-json": Kind(400, "The body is not JSON"),
    "malformed-otlp": Kind(400, "The body is no OTLP request"),
    "bad-request": Kind(400, "The request is malformed"),
    "unauthenticated": Kind(401, "A valid API key is required"),
    "forbidden": Kind(403, "The API key does not allow this"),
    "not-found": Kind(404, "Not found"),
    "method-not-allowed": Kind(405, "Method not allowed"),
    "request-timeout": Kind(408, "The request came too slowly"),
    "event-conflict": Kind(409, "The event id is taken by other content"),
    "body-too-large": Kind(413, "The body is too large"),
    "unsupported-media-type": Kind(415, "Only application/json is accepted"),
    "unsupported-encoding": Kind(415, "OTLP comes as protobuf or JSON, plain or by gzip"),
    "invalid-input": Kind(422, "The input breaks a rule"),
    "erased": Kind(422, "Whoever this is about was erased"),
    "rate-limited": Kind(429, "More than this key or tenant may send", retry=True),
    "overloaded": Kind(429, "Overloaded, send more slowly", retry=True),
    "head-too-large": Kind(431, "The headers are too large"),
    "client-closed": Kind(499, "The client hung up"),
    "internal": Kind(500, "An error of ours"),
    "ledger-unavailable": Kind(503, "The ledger is away", retry=True),
    "keys-unavailable": Kind(503, "Sealed, and the keys are away", retry=True),
    "graph-unavailable": Kind(503, "The graph is away", retry=True),
    "partition-halted": Kind(503, "The partition is halted", retry=True),
    "too-many-connections": Kind(503, "All connections are taken", retry=True),
    "not-ready": Kind(503, "Not ready", retry=True),
    "time-limit": Kind(504, "The time limit was reached"),
}
READ_PROBLEMS: Final = (
    "unauthenticated",
    "forbidden",
    "invalid-input",
    "rate-limited",
    "graph-unavailable",
    "ledger-unavailable",
    "time-limit",
    "internal",
)
"""What a route may answer that reads the graph."""
BODY_PROBLEMS: Final = ("malformed-json", "body-too-large", "unsupported-media-type")
"""What a route may answer that takes a body."""
_BY_STATUS = {
    401: "unauthenticated",
    403: "forbidden",
    404: "not-found",
    405: "method-not-allowed",
    413: "body-too-large",
    415: "unsupported-media-type",
    422: "invalid-input",
}


class ApiProblem(HTTPException):
    """A problem found by the API itself, raised anywhere while a request is handled.

    Args:
        kind: a key of `PROBLEMS`.
        detail: what happened this time, for people; never a secret.
        errors: pairs of (field, rule).
        headers: to send along.
        extra: members of the body beyond the shape.
    """

    def __init__(
        self,
        kind: str,
        detail: str,
        *,
        errors: Iterable[tuple[str, str]] = (),
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(PROBLEMS[kind].status, detail, dict(headers or {}))
        self.kind = kind
        self.errors = tuple(errors)
        self.extra = dict(extra or {})


def problem(
    kind: str,
    detail: str,
    *,
    errors: Iterable[tuple[str, str]] = (),
    instance: str | None = None,
    request_id: str | None = None,
) -> Problem:
    """The body of a problem."""
    row = PROBLEMS[kind]
    return Problem(
        type=f"urn:recollect:problem:{kind}",
        title=row.title,
        status=row.status,
        detail=detail,
        instance=instance,
        errors=[FieldError(field=field, rule=rule) for field, rule in errors],
        request_id=request_id,
    )


def describe(error: RecollectError) -> tuple[str, str, tuple[tuple[str, str], ...]]:
    """(kind, detail, errors) of one of our errors; what clients must not see is left out."""
    match error:
        case SubjectErased():
            detail = "It is about somebody who was erased; nothing more is taken."
            return "erased", detail, error.errors
        case InvalidInput():
            return "invalid-input", _counted(error.errors), error.errors
        case EventConflict():
            rule = ("event_id", "same id, same content")
            return (
                "event-conflict",
                f"Event {error.event_id} was sent before, with other content.",
                (rule,),
            )
        case KeysUnavailable():
            return "keys-unavailable", "What is sealed can be read when the keys are back.", ()
        case GraphAhead():
            detail = (
                f"Partition {error.partition} accepts no events until the operator has run "
                "`recollect recover`; others do."
            )
            return "partition-halted", detail, ()
        case UndecodableEntry():
            pass
        case LedgerError():
            detail = "Send the same request again: what was accepted is recognised by its id."
            return "ledger-unavailable", detail, ()
        case GraphUnavailable():
            return "graph-unavailable", "Reads of the graph work again when it is back.", ()
        case QueryTimeout():
            detail = "Nothing could be answered in time: ask for less, or allow more (timeout_ms)."
            return "time-limit", detail, ()
    return "internal", "The log has it under this request id.", ()


def _counted(errors: tuple[tuple[str, str], ...]) -> str:
    fields = ", ".join(dict.fromkeys(field for field, _ in errors))
    return f"{len(errors)} rule{'s' if len(errors) > 1 else ''} broken: {fields}"


def current_request_id() -> str:
    """Id of the request that this thread works for; empty outside of one."""
    return str(structlog.contextvars.get_contextvars().get("request_id", ""))


def request_id_of(request: Request) -> str | None:
    """The id of the request, once the middleware has given it one."""
    value = request.scope.get("state", {}).get("request_id")
    return value if isinstance(value, str) else None


@runtime_checkable
class SpeaksOtherwise(Protocol):
    """A route whose clients expect their problems in another form."""

    def write_problem(self, request: Request, body: Problem) -> tuple[bytes, str]:
        """The body of an answer, and its media type."""


def problem_response(
    request: Request,
    kind: str,
    detail: str,
    *,
    errors: Iterable[tuple[str, str]] = (),
    headers: Mapping[str, str] | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Response:
    """A problem as an HTTP answer."""
    request_id = request_id_of(request)
    body = problem(
        kind,
        detail,
        errors=errors,
        instance=quote(request.url.path, safe="/:@!$&'()*+,;=~-._"),
        request_id=request_id,
    )
    sent = dict(headers or {})
    if PROBLEMS[kind].retry:
        sent.setdefault("Retry-After", str(request.app.state.settings.retry_after_s))
    if request_id is not None:
        sent[REQUEST_ID_HEADER] = request_id
    route = request.scope.get("route")
    if isinstance(route, SpeaksOtherwise):
        data, media_type = route.write_problem(request, body)
    else:
        data, media_type = orjson.dumps({**body.model_dump(), **(extra or {})}), PROBLEM_MEDIA_TYPE
    return Response(data, PROBLEMS[kind].status, sent, media_type)


async def _api_problem(request: Request, error: Exception) -> Response:
    assert isinstance(error, ApiProblem)
    return problem_response(
        request,
        error.kind,
        error.detail,
        errors=error.errors,
        headers=error.headers,
        extra=error.extra,
    )


async def _http_error(request: Request, error: Exception) -> Response:
    """What the framework raises: unknown path, wrong method, broken body."""
    assert isinstance(error, HTTPException)
    fallback = "bad-request" if error.status_code < 500 else "internal"
    kind = _BY_STATUS.get(error.status_code, fallback)
    return problem_response(request, kind, str(error.detail), headers=error.headers)


async def _validation_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    errors = tuple(_field_error(item) for item in error.errors())
    return problem_response(request, "invalid-input", _counted(errors), errors=errors)


def _field_error(item: Mapping[str, Any]) -> tuple[str, str]:
    """(field, rule) of one error of pydantic; never the value."""
    where, *names = (str(part) for part in item["loc"])
    field = ".".join(names) or where
    if item["type"] == "extra_forbidden":
        return field, f"unknown {where} parameter"
    return field, rule_of(item)


def rule_of(item: Mapping[str, Any]) -> str:
    """What one error of pydantic says that a value should be, in our words alone."""
    return str(item["msg"]).removeprefix("Value error, ")


async def _recollect_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, RecollectError)
    kind, detail, errors = describe(error)
    if kind == "internal":
        _log.error("request failed", error=type(error).__name__, exc_info=error)
    elif PROBLEMS[kind].status >= 500:
        _log.warning("request not answered", problem=kind, reason=str(error))
    return problem_response(request, kind, detail, errors=errors)


async def _hung_up(request: Request, error: Exception) -> Response:
    """The client went away before its request was whole: nobody reads this, metrics count it."""
    return problem_response(request, "client-closed", "The request was not whole.")


async def _unexpected(request: Request, error: Exception) -> Response:
    """A defect; the server logs the traceback when the framework raises it again."""
    return problem_response(request, "internal", "The log has it under this request id.")


def install_problem_handlers(app: FastAPI) -> None:
    """Make every error of the app a problem."""
    app.add_exception_handler(ApiProblem, _api_problem)
    app.add_exception_handler(HTTPException, _http_error)
    app.add_exception_handler(RequestValidationError, _validation_error)
    app.add_exception_handler(RecollectError, _recollect_error)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    app.add_exception_handler(Exception, _unexpected)


def problem_responses(*kinds: str) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route for OpenAPI."""
    responses: dict[int | str, dict[str, Any]] = {}
    for kind in kinds:
        row = PROBLEMS[kind]
        entry = responses.setdefault(
            row.status,
            {
                "description": row.title,
                "content": {
                    PROBLEM_MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}
                },
            },
        )
        if row.title not in entry["description"]:
            entry["description"] += f"; or: {row.title}"
        if row.retry:
            entry["headers"] = {
                "Retry-After": {"description": "seconds", "schema": {"type": "integer"}}
            }
    return responses


_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "(unmatched)"

_requests_log = logs.get_logger("api.requests")


class RequestContext:
    """Gives a request its id, logs it once and measures it, by route template and never by path.

    A path can hold what does not belong in a log, and would be a label without bound.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        request_id = _request_id(Headers(scope=scope).get(REQUEST_ID_HEADER))
        scope.setdefault("state", {})["request_id"] = request_id
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=request_id)
        status = 500
        began_s = time.perf_counter()
        answered_s: float | None = None

        async def send_with_id(message: Message) -> None:
            nonlocal status, answered_s
            if message["type"] == "http.response.start":
                status = int(message["status"])  # some send a member of an enum
                headers = MutableHeaders(scope=message)
                headers[REQUEST_ID_HEADER] = request_id
                if headers.get("content-type", "").startswith(EVENT_STREAM):
                    # It lasts as long as its client likes, which says nothing about the API.
                    answered_s = time.perf_counter() - began_s
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            _observe(scope, status, answered_s or time.perf_counter() - began_s)


def _request_id(offered: str | None) -> str:
    if offered is not None and _REQUEST_ID.fullmatch(offered):
        return offered
    return uuid4().hex


def _observe(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path_format", UNMATCHED)
    method = scope["method"] if scope["method"] in _METHODS else "other"
    metrics.API_DURATION.labels(route, method, metrics.status_class(status)).observe(seconds)
    # Whoever waits asks again and again, and what is waited for is told by whoever retries.
    is_probe = route.startswith(("/health", "/metrics"))
    log = _requests_log.debug if is_probe else _requests_log.info
    log("request", route=route, method=method, status=status, ms=round(seconds * 1000, 1))


_READ_AND_REFUSED: Final = 4
"""Times the largest body: so much is read of one that is too large, before it is refused."""


class BodyLimit:
    """Refuses bodies beyond a size, by what they declare and by what arrives.

    Args:
        app: what is inside.
        max_bytes: the largest body; a chunked one is cut off when it grows beyond.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        declared = headers.get("content-length", "")
        size = int(declared) if declared.isdigit() else 0
        # Who asks whether to send it, or sends without measure, is answered at once.
        is_sent = "expect" not in headers and size <= _READ_AND_REFUSED * self._max_bytes
        received = 0

        async def counted() -> Message:
            nonlocal received
            if size > self._max_bytes and not is_sent:
                raise self._refusal()
            message = await receive()
            received += len(message.get("body", b""))
            if max(size, received) > self._max_bytes:
                await self._drop_rest(message, receive)
                raise self._refusal()
            return message

        await self._app(scope, counted, send)

    async def _drop_rest(self, message: Message, receive: Receive) -> None:
        """Read on: many clients read no answer, but see a reset, before they have sent all."""
        dropped = 0
        while message.get("more_body", False) and dropped < _READ_AND_REFUSED * self._max_bytes:
            message = await receive()
            dropped += len(message.get("body", b""))

    def _refusal(self) -> ApiProblem:
        return ApiProblem(
            "body-too-large",
            f"At most {self._max_bytes:,} bytes.",
            # The rest of the body is not read, so the connection cannot be used again.
            headers={"Connection": "close"},
        )
