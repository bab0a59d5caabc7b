"""The API: an app made from settings, and the server that runs it."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from importlib.metadata import version
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final
from urllib.parse import unquote

import anyio.to_thread
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.connections import Connections, check_settings
from api.dependencies import Keyring
from api.entity_schemas import FeedbackBody
from api.errors import install_problem_handlers
from api.middleware import BodyLimit, RequestContext
from api.query_schemas import FactsQuery, SubgraphQuery
from api.routes import entities, events, facts, nodes, operations, query, statements
from api.schemas import EntityCorrection, EventBatch, EventEnvelope, Problem
from api.services import Services
from api.warm_up import start_warming, warm_up
from api.watcher import Watch
from pipelines.local.python_process import collect_rarely
from pipelines.observe import logs
from pipelines.work.settings import Settings

GRACE_S = 35
"""For requests under way at a stop: the longest time limit a read may ask for, and its grace."""

_log = logs.get_logger(__name__)

_DESCRIPTION = """\
An agent's memory: events go into a ledger, a graph is folded from it, and every answer leads back
to the events it comes from.

Every error is a problem (RFC 9457, `application/problem+json`). Every answer carries
`X-Request-ID`, the caller's own when it sent a usable one. Reads take `min_position`, the
`global_position` of something written before, and then see at least that.
"""


def create_app(settings: Settings) -> FastAPI:
    """The ASGI application; connects when it starts.

    Raises:
        ConfigurationError: there is no API key and `insecure_dev` is not set.
    """
    check_settings(settings)
    connections = Connections(settings)
    watch = Watch(settings, connections, switched=lambda: start_warming(services))
    services = Services(settings, connections, watch)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(watch.start)
        services.accesses.start()
        try:
            yield
        finally:
            await anyio.to_thread.run_sync(services.close)
            await anyio.to_thread.run_sync(watch.stop)
            connections.close()

    app = FastAPI(
        title="Recollect",
        version=version("recollect"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        # Their pages load scripts from other hosts; /openapi.json opens in any tool.
        docs_url=None,
        redoc_url=None,
        # A redirect is an answer without the shape of all others.
        redirect_slashes=False,
    )
    app.state.settings = settings
    app.state.keyring = Keyring(settings.api_keys)
    app.state.services = services
    install_problem_handlers(app)
    for module in (events, nodes, query, facts, entities, statements, operations):
        app.include_router(module.router)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext)
    _document_models(app)
    if not settings.api_keys:
        _log.warning("serving without API keys: whoever reaches this port is admin")
    return app


_REFERRED_TO: Final[tuple[type[BaseModel], ...]] = (
    *(EventEnvelope, EventBatch, EntityCorrection, FeedbackBody),
    *(FactsQuery, SubgraphQuery, Problem),
)


def _document_models(app: FastAPI) -> None:
    """Add the models to OpenAPI that routes refer to by name only."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _, definitions = models_json_schema(
                [(model, "validation") for model in _REFERRED_TO],
                ref_template="#/components/schemas/{model}",
            )
            document = generate()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            for name, schema in definitions["$defs"].items():
                schemas.setdefault(name, schema)
        assert app.openapi_schema is not None
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]  # FastAPI's documented way to extend it


def serve(settings: Settings, *, ready: Callable[[str], None] | None = None) -> None:
    """Run the API until SIGTERM or SIGINT; requests under way are finished.

    Args:
        settings: `api_port` 0 takes a free port.
        ready: called with the URL once the port is open.

    Raises:
        ConfigurationError: there is no API key and `insecure_dev` is not set.
        OSError: the port is taken.
    """
    logs.configure_logging(settings)
    app = create_app(settings)
    collect_rarely()
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=GRACE_S,
    )
    family = socket.AF_INET6 if ":" in settings.api_host else socket.AF_INET
    with socket.create_server((settings.api_host, settings.api_port), family=family) as listener:
        host = f"[{settings.api_host}]" if family == socket.AF_INET6 else settings.api_host
        url = f"http://{host}:{listener.getsockname()[1]}"
        _log.info("listening", url=url)
        start_warming(app.state.services)
        if ready is not None:
            ready(url)
        if current_thread() is main_thread():
            # uvicorn raises the signal again when it has stopped, which would be exit code -15.
            signal.signal(signal.SIGTERM, _exit)
        uvicorn.Server(config).run(sockets=[listener])


def _exit(number: int, frame: FrameType | None) -> None:
    sys.exit(0)


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
