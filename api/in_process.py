"""The API without a port: for a command that asks one question on the machine of the services."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping
from contextlib import AsyncExitStack
from typing import Any, Final
from urllib.parse import unquote

from api.main import create_app
from api.warm_up import warm_up
from pipelines.work.settings import Settings

_STOPPED_S: Final = 10.0


class InProcess:
    """One app, started, on an event loop of its own.

    Args:
        settings: with the key that its one caller sends.
    """

    def __init__(self, settings: Settings) -> None:
        self._app = create_app(settings)
        self._is_warm = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._lifespan = AsyncExitStack()
        self._run(self._lifespan.enter_async_context(self._app.router.lifespan_context(self._app)))

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def request(
        self, method: str, path: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Status and body of the answer; `path` with the query, percent-encoded.

        Whoever asks a single question waits once, rather than get half an answer: for the model of
        queries, and for the database to plan what it has never been asked.
        """
        if body and not self._is_warm:
            self._is_warm = True
            warm_up(self._app.state.services)
        status, data = self._run(self._call(method, path, body, headers))
        return int(status), bytes(data)

    async def _call(
        self, method: str, target: str, body: bytes, headers: Mapping[str, str]
    ) -> tuple[int, bytes]:
        path, _, query = target.partition("?")
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": unquote(path),
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
            "client": ("127.0.0.1", 0),
            "server": ("127.0.0.1", 0),
        }
        sent = [{"type": "http.request", "body": body, "more_body": False}]
        status, parts = 500, []

        async def receive() -> dict[str, Any]:
            return sent.pop() if sent else {"type": "http.disconnect"}

        async def send(message: Any) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        await self._app(scope, receive, send)
        return status, b"".join(parts)

    def close(self) -> None:
        """Stop the app and its threads."""
        self._run(self._lifespan.aclose())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_STOPPED_S)
        self._loop.close()
