"""The API: an app made from settings, and the server that runs it."""

from __future__ import annotations

import signal
import socket
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from threading import current_thread, main_thread
from types import FrameType
from typing import Any

import anyio.to_thread
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.connections import Connections, check_settings
from api.dependencies import Keyring, Services
from api.entity_schemas import FeedbackBody
from api.errors import install_problem_handlers
from api.event_schemas import EventBatch, EventEnvelope
from api.fact_schemas import FactsQuery
from api.middleware import BodyLimit, RequestContext
from api.query_schemas import SubgraphQuery
from api.routes import (
    admin,
    context,
    entities,
    events,
    facts,
    feedback,
    lineage,
    operations,
    query,
    summaries,
)
from api.schemas import Problem
from api.statement_schemas import EntityCorrection
from api.warm_up import start_warming
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
    for module in (
        events,
        context,
        lineage,
        query,
        facts,
        entities,
        summaries,
        feedback,
        admin,
        operations,
    ):
        app.include_router(module.router)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext)
    _document_models(
        app,
        EventEnvelope,
        EventBatch,
        EntityCorrection,
        FactsQuery,
        FeedbackBody,
        Problem,
        SubgraphQuery,
    )
    if not settings.api_keys:
        _log.warning("serving without API keys: whoever reaches this port is admin")
    return app


def _document_models(app: FastAPI, *models: type[BaseModel]) -> None:
    """Add models to OpenAPI that routes refer to by name only."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            _, definitions = models_json_schema(
                [(model, "validation") for model in models],
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
