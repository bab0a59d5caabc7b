"""Clear a graph: everything in it goes, the ledger stays, and every stage starts at its beginning.

The graph is a fold of the ledger, so nothing is lost: workers that run fold it again at once,
exactly as it was, decisions included; without any it stays empty until one runs. That it was
cleared is an event of the ledger, written first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final
from uuid import uuid4

from pipelines.ledger.ledger import Appended
from pipelines.work.services import Services
from projections.errors import OperationFailed
from projections.events import DEFAULT_TENANT, PARTITION_KEY, Event
from projections.operations import Checkpoint

GRAPH_CLEARED: Final = "memory.graph_cleared"
TIMEOUT_S: Final = 3_600.0
"""For holding the checkpoints while the graph is emptied: a million nodes take minutes."""


@dataclass(frozen=True, slots=True)
class Cleared:
    """What was in the graph, and the event that says so."""

    target: str
    nodes: Mapping[str, int]
    edges: Mapping[str, int]
    event_id: str
    position: str

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {"ok": True, **asdict(self)}


def clear_graph(services: Services) -> Cleared:
    """Empty the active target's graph.

    The checkpoints are locked meanwhile: no worker writes into a graph that is half gone. Ended
    half-way, it is run again.

    Raises:
        OperationFailed: the ledger did not take the event, and nothing was touched.
        GraphUnavailable: Neo4j is away.
    """
    target = services.active()
    graph = services.graph(target, timeout_s=TIMEOUT_S)
    counts = graph.counts()
    nodes = {name: number for name, number in counts.nodes.items() if number}
    edges = {name: number for name, number in counts.edges.items() if number}
    event_id, position = _recorded(
        services, {"target": target.name, "nodes": nodes, "edges": edges}
    )
    with graph.transaction() as transaction:
        checkpoints = [
            locked
            for checkpoint in graph.checkpoints()
            if (locked := transaction.lock(checkpoint.stage, checkpoint.partition)) is not None
        ]
        graph.clear(keep_checkpoints=True)
        for held in checkpoints:
            transaction.reset(
                Checkpoint(
                    held.stage, held.partition, fold_version=held.fold_version, models=held.models
                )
            )
    return Cleared(
        target=target.name, nodes=nodes, edges=edges, event_id=event_id, position=position
    )


def _recorded(services: Services, payload: dict[str, Any]) -> tuple[str, str]:
    now_ms = services.ledger.now_ms()
    event = Event(
        tenant=DEFAULT_TENANT,
        event_id=str(uuid4()),
        event_type=GRAPH_CLEARED,
        occurred_at_ms=now_ms,
        session_id=PARTITION_KEY,
        agent_id="recollect",
        trace_id=f"clear-{now_ms}",
        payload=payload,
    )
    (outcome,) = services.ledger.append([event])
    if isinstance(outcome, Appended):
        return event.event_id, str(outcome.position)
    raise OperationFailed(reason=f"that the graph is cleared could not be recorded: {outcome}")
