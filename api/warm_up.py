"""Before the first question to a graph: plans are made and pages are read while nobody waits.

Neo4j plans each of the dozen questions of a query when it sees it first, which takes a second in
all, and more on a busy machine. Two queries of ours do that once, whoever's memory they are about:
one in words, one that begins at the entities that are mentioned most, so that what most questions
lead to is in memory, and at nodes of every kind, so that nothing is left to be planned.
"""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from api.query_schemas import SubgraphQuery
from api.retrieval.answer import Retrieval
from api.retrieval.facts import FactWalk
from api.retrieval.gather import Notes
from api.schemas import Bound
from api.services import Deadline, ReadContext, Services, clock_ms
from pipelines.graph.reads.entities import EntityReads
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.rows import RETRIEVED, wire_id
from pipelines.observe import logs
from pipelines.work.settings import ALL_TENANTS
from projections.errors import QueryTimeout, RecollectError
from projections.events import DEFAULT_TENANT
from projections.schema import ENTITY, EVENT

TIMEOUT_MS: Final = 10_000
"""Of one query; who stops meanwhile waits for it."""
EMBEDDER_MS: Final = 20_000
"""For the model of queries to be loaded."""
PATIENCE_S: Final = 60.0
"""For ledger and graph to answer."""
MAX_TENANTS: Final = 20
"""Whose pages are read; plans are the same for all."""
MAX_ROUNDS: Final = 4
"""Of a query; what takes longer to plan than a channel has is planned by the next one."""
MOST_MENTIONED: Final = 20
"""Entities of a tenant that are begun at."""

_QUERY: Final = "What happened before, and why?"
_NOBODY: Final = uuid.UUID(int=0)

_log = logs.get_logger(__name__)


def start_warming(services: Services) -> threading.Thread:
    """Ask in the background, once ledger and graph have answered."""
    thread = threading.Thread(target=_warm_later, args=(services,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _warm_later(services: Services) -> None:
    services.embedder.warm_up()
    patience_s = time.monotonic() + PATIENCE_S
    # What says whether the API is ready has a second for each look at the graph, which on a busy
    # machine is little beside a dozen questions that are being planned: it comes first.
    while not _is_reached(services) and time.monotonic() < patience_s:
        time.sleep(0.1)
    warm_up(services)


def _is_reached(services: Services) -> bool:
    """Whether ledger and graph answered at the last look."""
    sample = services.watch.sample
    has_target = services.connections.graph.target is not None
    return has_target and sample.graph_error is None and sample.ledger_error is None


def warm_up(services: Services) -> bool:
    """Ask now; nothing is counted, kept or said about what is found.

    Returns:
        Whether every question was answered; without graph or ledger none is.
    """
    services.embedder.warm_up()
    tenants = {key.tenant for key in services.settings.api_keys} - {ALL_TENANTS}
    begun_s = time.monotonic()
    warm = True
    try:
        for tenant in sorted(tenants)[:MAX_TENANTS] or [DEFAULT_TENANT]:
            warm &= _asked(services, tenant, None)
            services.embedder.embed(_QUERY, timeout_ms=EMBEDDER_MS)
            warm &= _asked(services, tenant, _places(services, tenant))
    except (RecollectError, RuntimeError) as error:  # RuntimeError: the API has stopped
        _log.info("not warmed up", reason=str(error))
        return False
    _log.info("warmed up", seconds=round(time.monotonic() - begun_s, 3), complete=warm)
    return warm


def _asked(services: Services, tenant: str, places: Sequence[str] | None) -> bool:
    """Ask until nothing is left out for want of time; whether that came to be."""
    question = SubgraphQuery(
        query=_QUERY,
        session_id="warm-up",
        agent_id="warm-up",
        timeout_ms=TIMEOUT_MS,
        seed_nodes=None if places is None else list(places),
    )
    for _ in range(MAX_ROUNDS):
        deadline = Deadline(TIMEOUT_MS)
        context = ReadContext(
            services, tenant, question, deadline=deadline, now_ms=clock_ms(as_of=None)
        )
        try:
            with services.connections.graph.reader() as reader:
                answer = Retrieval(context, reader).answer()
        except QueryTimeout:  # what was planned until then is planned
            continue
        if not _was_late(answer.notes):
            return True
    return False


def _was_late(notes: Notes) -> bool:
    return Bound.TIME in notes.cut_by or any(
        outcome.status == "timeout" for outcome in notes.outcomes.values()
    )


def _places(services: Services, tenant: str) -> list[str]:
    """Where to begin: one node of each kind, that nobody has, and what is mentioned most.

    The facts around the latter are read, too.
    """
    mentioned: list[str] = []
    with services.connections.graph.reader() as reader, suppress(QueryTimeout):
        mentioned = reader.read(
            lambda graph: EntityReads(graph, tenant).most_mentioned(MOST_MENTIONED),
            timeout_ms=TIMEOUT_MS,
        )
        walk = FactWalk(wanted=FactFilter(clock_ms(as_of=None)), max_depth=1)
        reader.read(
            lambda graph: walk.walk(FactReads(graph, tenant), [*mentioned, _NOBODY.hex]),
            timeout_ms=TIMEOUT_MS,
        )
    nobody = (
        wire_id(row.label, str(_NOBODY) if row is EVENT else _NOBODY.hex) for row in RETRIEVED
    )
    return [*nobody, *(wire_id(ENTITY.label, own_id) for own_id in mentioned)]
