"""Before the first question to a graph: plans are made and pages are read while nobody waits.

Neo4j plans each of the dozen questions of a query when it sees it first, which takes a second in
all, and more on a busy machine. One query of ours, whoever's memory it is about, does that once.
"""

from __future__ import annotations

import threading
import time
from typing import Final

from api.dependencies import Deadline, Services
from api.retrieval.answer import Retrieval
from api.schemas import SubgraphQuery
from pipelines import logs
from pipelines.settings import ALL_TENANTS
from projections.errors import RecollectError
from projections.events import DEFAULT_TENANT

TIMEOUT_MS: Final = 10_000
"""Of one query; who stops meanwhile waits for it."""
PATIENCE_S: Final = 60.0
"""For the registry to say which graph is read."""
MAX_TENANTS: Final = 20
"""Whose pages are read; plans are the same for all."""
_QUESTION: Final = SubgraphQuery(
    query="What happened before, and why?",
    session_id="warm-up",
    agent_id="warm-up",
    timeout_ms=TIMEOUT_MS,
)

_log = logs.get_logger(__name__)


def start_warming(services: Services) -> threading.Thread:
    """Ask in the background; nothing is counted, kept or said about what is found."""
    thread = threading.Thread(target=_warm, args=(services,), name="warm-up", daemon=True)
    thread.start()
    return thread


def _warm(services: Services) -> None:
    services.embedder.warm_up()
    patience_s = time.monotonic() + PATIENCE_S
    while services.connections.graph.target is None and time.monotonic() < patience_s:
        time.sleep(0.1)
    tenants = {key.tenant for key in services.settings.api_keys} - {ALL_TENANTS}
    begun_s = time.monotonic()
    for tenant in sorted(tenants)[:MAX_TENANTS] or [DEFAULT_TENANT]:
        now_ms = time.time_ns() // 1_000_000
        try:
            Retrieval(services, tenant, _QUESTION, Deadline(TIMEOUT_MS), now_ms).answer()
        except (RecollectError, RuntimeError) as error:  # RuntimeError: the API has stopped
            _log.info("not warmed up", reason=str(error))
            return
    _log.info("warmed up", seconds=round(time.monotonic() - begun_s, 3))
