"""Which requests are worth a line of the log."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest
import structlog
from starlette.types import Message, Receive, Scope, Send

from api.errors import RequestContext


@pytest.mark.parametrize(
    ("route", "status", "level"),
    [
        ("/v1/events", 202, "info"),
        ("/v1/events", 503, "info"),
        ("/health/ready", 200, "debug"),
        ("/health/ready", 503, "debug"),
    ],
)
def test_whoever_waits_for_a_start_does_not_fill_the_log_that_tells_why(
    monkeypatch: pytest.MonkeyPatch, route: str, status: int, level: str
) -> None:
    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        scope["route"] = SimpleNamespace(path_format=route)
        await send({"type": "http.response.start", "status": status, "headers": []})

    async def received() -> Message:
        return {}

    async def sent(_: Message) -> None:
        return None

    monkeypatch.setattr("api.errors._requests_log", structlog.get_logger())
    scope: Scope = {"type": "http", "method": "GET", "headers": []}
    with structlog.testing.capture_logs() as lines:
        asyncio.run(RequestContext(app)(scope, received, sent))
    assert [(line["route"], line["status"], line["log_level"]) for line in lines] == [
        (route, status, level)
    ]
