"""Around every request: its id, its log line, its time, and the limit of its body. Pure ASGI."""

from __future__ import annotations

import re
import time
from uuid import uuid4

import structlog
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from api.errors import REQUEST_ID_HEADER, ApiProblem
from pipelines.observe import logs, metrics

_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
UNMATCHED = "(unmatched)"

_log = logs.get_logger("api.requests")


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

        async def send_with_id(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[REQUEST_ID_HEADER] = request_id
            await send(message)

        try:
            await self._app(scope, receive, send_with_id)
        finally:
            _observe(scope, status, time.perf_counter() - began_s)


def _request_id(offered: str | None) -> str:
    if offered is not None and _REQUEST_ID.fullmatch(offered):
        return offered
    return uuid4().hex


def _observe(scope: Scope, status: int, seconds: float) -> None:
    route = getattr(scope.get("route"), "path_format", UNMATCHED)
    method = scope["method"] if scope["method"] in _METHODS else "other"
    metrics.API_DURATION.labels(route, method, metrics.status_class(status)).observe(seconds)
    log = _log.debug if route.startswith(("/health", "/metrics")) and status < 400 else _log.info
    log("request", route=route, method=method, status=status, ms=round(seconds * 1000, 1))


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
        declared = Headers(scope=scope).get("content-length", "")
        too_large = declared.isdigit() and int(declared) > self._max_bytes
        received = 0

        async def counted() -> Message:
            nonlocal received
            if too_large:
                raise self._refusal()
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise self._refusal()
            return message

        await self._app(scope, counted, send)

    def _refusal(self) -> ApiProblem:
        return ApiProblem(
            "body-too-large",
            f"At most {self._max_bytes:,} bytes.",
            # The rest of the body is not read, so the connection cannot be used again.
            headers={"Connection": "close"},
        )
