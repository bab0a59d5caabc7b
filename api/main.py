"""The API: an app made from settings, its first questions, and the server that runs it.

Before the first question to a graph, plans are made and pages are read while nobody waits: Neo4j
plans each of the dozen questions of a query when it sees it first, which takes a second in all, and
more on a busy machine. Two queries of ours do that once, whoever's memory they are about: one in
words, one that begins at the entities that are mentioned most, so that what most questions lead to
is in memory, and at nodes of every kind, so that nothing is left to be planned. A process
that serves is not ready for reads before that is done.
"""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from importlib.metadata import version
from math import ceil
from threading import current_thread, main_thread
from types import FrameType
from typing import Any, Final
from urllib.parse import unquote

import anyio.to_thread
import uvicorn
from fastapi import FastAPI
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from api.browse_schemas import DeadLettersRetried
from api.changes import LONGEST_BELL_MS, Changes
from api.connection_limits import server_config
from api.connections import Connections, OpenGraph
from api.dependencies import Keyring
from api.errors import (
    BodyLimit,
    RequestContext,
    install_problem_handlers,
)
from api.preflight import ALONE, Share, check_settings, listening
from api.read_schemas import FactsQuery, FeedbackBody, SubgraphQuery
from api.retrieval.answer import Retrieval
from api.retrieval.channels import Notes
from api.retrieval.facts import FactWalk
from api.routes import (
    changes,
    context,
    entities,
    events,
    explorer,
    health,
    mcp,
    neighbours,
    operations,
    otlp,
    query,
    sessions,
    statements,
    summaries,
    users,
    why,
)
from api.schemas import (
    Bound,
    EntityCorrection,
    EventBatch,
    EventEnvelope,
    Problem,
    UserCorrection,
)
from api.services import Deadline, ReadContext, Services, clock_ms
from api.watcher import Watch
from api.why_schemas import WhyQuery
from pipelines.columns.client import ColumnsClient
from pipelines.columns.in_process import local_columns
from pipelines.graph.answers.reader import PortReader
from pipelines.graph.client import Neo4jReader, connect_neo4j
from pipelines.graph.memory_graphs import is_in_memory
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.entities import EntityReads
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.scope import operator_scope
from pipelines.graph.remote import memory_graph
from pipelines.graph.rows import RETRIEVED, wire_id
from pipelines.ledger.registry import Target
from pipelines.local.python_process import collect_rarely
from pipelines.observe import logs
from pipelines.work.settings import ALL_TENANTS, Settings
from projections.errors import QueryTimeout, RecollectError
from projections.events import DEFAULT_TENANT
from projections.schema import ENTITY, EVENT

WARM_UP_TIMEOUT_MS: Final = 10_000
"""Of one query; who stops meanwhile waits for it."""
EMBEDDER_MS: Final = 20_000
"""For the model of queries to be loaded."""
MAX_TENANTS: Final = 20
"""Whose pages are read; plans are the same for all."""
WARM_UP_ROUNDS: Final = 4
"""Of a query; what takes longer to plan than a channel has is planned by the next one."""
MOST_MENTIONED: Final = 20
"""Entities of a tenant that are begun at."""

_QUERY: Final = "What happened before, and why?"
_NOBODY: Final = uuid.UUID(int=0)

_log = logs.get_logger(__name__)


def start_warming(services: Services, *, cold: bool) -> threading.Thread:
    """Ask in the background, once ledger and graph have answered.

    Args:
        services: of the process.
        cold: it is not ready for reads before.
    """
    services.is_cold |= cold
    thread = threading.Thread(target=_warm_later, args=(services,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _warm_later(services: Services) -> None:
    services.embedder.warm_up()
    # What says whether the API is ready has a second for each look at the graph, which on a busy
    # machine is little beside a dozen questions that are being planned: it comes first.
    while not _is_reached(services):
        if services.closed.wait(0.1):
            return
    warm_up(services)
    services.is_cold = False
    with _failing_quietly(), services.connections.graph.opened() as graph:
        _browse_once(graph)


def _is_reached(services: Services) -> bool:
    """Whether ledger, graph and columns answered at the last look."""
    sample = services.seen.sample
    has_target = services.connections.graph.target is not None
    errors = (sample.graph_error, sample.columns_error, sample.ledger_error)
    return has_target and not any(errors)


@contextmanager
def _failing_quietly() -> Iterator[None]:
    """Nobody needs what is asked so: a server is away, or (RuntimeError) the API has stopped."""
    try:
        yield
    except (RecollectError, RuntimeError) as error:
        _log.info("not warmed up", reason=str(error))


def warm_up(services: Services) -> bool:
    """Ask the graph that is read from now; nothing is counted, kept or said about what is found.

    Returns:
        Whether every question was answered; without graph or ledger none is.
    """
    warm = False
    with _failing_quietly(), services.connections.graph.opened() as graph:
        warm = _warmed_up(services, graph)
    return warm


def _warmed_up(services: Services, graph: OpenGraph) -> bool:
    services.embedder.warm_up()
    tenants = {key.tenant for key in services.settings.api_keys} - {ALL_TENANTS}
    begun_s = time.monotonic()
    warm = True
    for tenant in sorted(tenants)[:MAX_TENANTS] or [DEFAULT_TENANT]:
        warm &= _asked(services, graph, tenant, None)
        services.embedder.embed(_QUERY, timeout_ms=EMBEDDER_MS)
        warm &= _asked(services, graph, tenant, _places(graph, tenant))
    _log.info("warmed up", seconds=round(time.monotonic() - begun_s, 3), complete=warm)
    return warm


def _asked(services: Services, graph: OpenGraph, tenant: str, places: Sequence[str] | None) -> bool:
    """Ask until nothing is left out for want of time; whether that came to be."""
    question = SubgraphQuery(
        query=_QUERY,
        session_id="warm-up",
        agent_id="warm-up",
        timeout_ms=WARM_UP_TIMEOUT_MS,
        seed_nodes=None if places is None else list(places),
    )
    for _ in range(WARM_UP_ROUNDS):
        deadline = Deadline(WARM_UP_TIMEOUT_MS)
        scope = operator_scope(tenant, clock_ms(as_of=None))
        context = ReadContext(services, scope, question, deadline=deadline)
        try:
            answer = Retrieval(context, graph).answer()
        except QueryTimeout:  # what was planned until then is planned
            continue
        if not _was_late(answer.notes):
            return True
    return False


def _was_late(notes: Notes) -> bool:
    return Bound.TIME in notes.cut_by or any(
        outcome.status == "timeout" for outcome in notes.outcomes.values()
    )


def _places(graph: OpenGraph, tenant: str) -> list[str]:
    """Where to begin: one node of each kind, that nobody has, and what is mentioned most.

    The facts around the latter are read, too.
    """
    mentioned: list[str] = []
    scope = operator_scope(tenant, clock_ms(as_of=None))
    with suppress(QueryTimeout):
        mentioned = graph.reader.read(
            lambda reads: EntityReads(reads, scope).most_mentioned(MOST_MENTIONED),
            timeout_ms=WARM_UP_TIMEOUT_MS,
        )
        walk = FactWalk(wanted=FactFilter(scope.now_ms), max_depth=1)
        graph.reader.read(
            lambda reads: walk.walk(FactReads(reads, scope), [*mentioned, _NOBODY.hex]),
            timeout_ms=WARM_UP_TIMEOUT_MS,
        )
    nobody = (
        wire_id(row.label, str(_NOBODY) if row is EVENT else _NOBODY.hex) for row in RETRIEVED
    )
    return [*nobody, *(wire_id(ENTITY.label, own_id) for own_id in mentioned)]


def _browse_once(graph: OpenGraph) -> None:
    """Ask what the page of an entity does, which is looked at less than asked for in words."""
    scope, ids = operator_scope(DEFAULT_TENANT, clock_ms(as_of=None)), [_NOBODY.hex]

    def browse(reads: GraphRead) -> None:
        EntityReads(reads, scope).entities(ids, {})
        FactReads(reads, scope).withheld(ids)

    graph.reader.read(browse, timeout_ms=WARM_UP_TIMEOUT_MS)


def _warm_coming(services: Services, graph: OpenGraph) -> None:
    """Ask a graph before it is read from, while another one goes on answering."""
    with _failing_quietly():
        _warmed_up(services, graph)
        _browse_once(graph)


_DESCRIPTION = """\
An agent's memory: events go into a ledger, a graph is folded from it, and every answer leads back
to the events it comes from.

Every error is a problem (RFC 9457, `application/problem+json`). Every answer carries
`X-Request-ID`, the caller's own when it sent a usable one. Reads take `min_position`, the
`global_position` of something written before, and then see at least that.
"""


def open_graph(target: Target, settings: Settings) -> OpenGraph:
    """The graph of a target: in the memory of a process, or in a Neo4j."""
    if is_in_memory(target.uri):
        graph = memory_graph(target.uri, settings)
        columns = local_columns(target.uri, graph, settings)
        return OpenGraph(PortReader(graph), columns, columns.close)
    driver = connect_neo4j(target.uri, settings)
    client = ColumnsClient(target.uri, target.database, settings)

    def close() -> None:
        driver.close()
        client.close()

    return OpenGraph(Neo4jReader(driver, target.database), client, close)


def create_app(settings: Settings, share: Share = ALONE) -> FastAPI:
    """The ASGI application; connects when it starts.

    Args:
        settings: of the deployment.
        share: its process' place among those that serve.

    Raises:
        ConfigurationError: there is no API key and `insecure_dev` is not set.
    """
    check_settings(settings)
    connections = Connections(settings, open_graph)
    watch = Watch(
        settings,
        connections,
        fresh=lambda cold: start_warming(services, cold=cold),
        warm=lambda graph: _warm_coming(services, graph),
    )
    services = Services(settings, connections, watch.seen, share)
    bell_ms = min(LONGEST_BELL_MS, ceil(settings.redis_timeout_s * 500))
    news = Changes(services.ledger, bell_ms=bell_ms)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        await anyio.to_thread.run_sync(watch.start)
        services.accesses.start()
        if share.waits:
            await anyio.to_thread.run_sync(services.wait_until_warm)
        try:
            async with app.state.mcp.opened():
                yield
        finally:
            news.stop()
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
    app.state.changes = news
    app.state.mcp = mcp.Door(app, settings.max_body_bytes)
    install_problem_handlers(app)
    routes = (
        events,
        changes,
        otlp,
        query,
        why,
        entities,
        sessions,
        summaries,
        context,
        neighbours,
        statements,
        users,
        operations,
        health,
        mcp,
        explorer,
    )
    for module in routes:
        app.include_router(module.router)
    app.add_middleware(BodyLimit, max_bytes=settings.max_body_bytes)
    app.add_middleware(RequestContext)
    _document_models(app)
    if not settings.api_keys:
        _log.warning("serving without API keys: whoever reaches this port is admin")
    return app


_REFERRED_TO: Final[tuple[type[BaseModel], ...]] = (
    *(EventEnvelope, EventBatch, EntityCorrection, UserCorrection, FeedbackBody),
    *(FactsQuery, SubgraphQuery, WhyQuery, DeadLettersRetried, Problem),
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
    """Run the API in this process until SIGTERM or SIGINT; requests under way are finished.

    Args:
        settings: `api_port` 0 takes a free port.
        ready: called with the URL once the port is open.

    Raises:
        ConfigurationError: there is no API key and `insecure_dev` is not set.
        OSError: the port is taken.
    """
    check_settings(settings)
    logs.configure_logging(settings)
    with listening(settings) as (listener, url):
        _log.info("listening", url=url)
        if ready is not None:
            ready(url)
        serve_on(listener, settings)


def serve_on(
    listener: socket.socket,
    settings: Settings,
    share: Share = ALONE,
    begins: Callable[[uvicorn.Server], None] = lambda _: None,
) -> None:
    """Take connections of a port until SIGTERM or SIGINT; requests under way are finished.

    Args:
        listener: listens; other processes may take connections from it, too.
        settings: of the deployment.
        share: this process' place among those that do.
        begins: called with the server before it runs.

    Raises:
        ConfigurationError: as `create_app`.
    """
    logs.configure_logging(settings)
    app = create_app(settings, share)
    collect_rarely()
    server = uvicorn.Server(server_config(app, settings, share))
    start_warming(app.state.services, cold=True)
    begins(server)
    if current_thread() is main_thread():
        # uvicorn raises the signal again when it has stopped, which would be exit code -15.
        signal.signal(signal.SIGTERM, _exit)
    server.run(sockets=[listener])


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
