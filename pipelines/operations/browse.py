"""What `recollect graph` does: entities, what is known about one, communities, counts, clearing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final, TypeVar
from uuid import uuid4

from enrichment.names import canonical_name
from pipelines.graph.fulltext import words_of
from pipelines.graph.reads.entities import (
    EntityReads,
    community_of,
    group_of,
    shown_name,
    shown_type,
)
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import ENTITY_PREFIX, EntityName, FactRow
from pipelines.ledger.ledger import Appended
from pipelines.operations.api import TIMEOUT_MS
from pipelines.work.services import Services
from projections.errors import OperationFailed
from projections.events import DEFAULT_TENANT, PARTITION_KEY, Event, timestamp_text
from projections.operations import Checkpoint

if TYPE_CHECKING:
    from pipelines.graph.reader import GraphRead

T = TypeVar("T")

MAX_NAMED = 20


def _read(services: Services, work: Callable[[GraphRead], T]) -> T:
    return services.reader(services.active()).read(work, timeout_ms=TIMEOUT_MS)


def entities(
    services: Services, scope: Scope, query: str | None, entity_type: str | None, limit: int
) -> list[dict[str, Any]]:
    """Entities with a name that has the words or begins so; without a query all, by name."""

    def ask(graph: GraphRead) -> list[dict[str, Any]]:
        reads = EntityReads(graph, scope)
        if query is None:
            names = [name for _, name in reads.listed(("", ""), entity_type, limit)]
        else:
            named = _named(graph, scope, query, 10 * limit)
            names = [name for name in named if entity_type in (None, name.entity_type)][:limit]
        ids = [name.entity_id for name in names]
        facts = FactReads(graph, scope)
        nodes = reads.entities(ids, facts.newest_mentions(ids, 1))
        mentions = facts.mentioned(ids)
        return [
            {
                "entity_id": ENTITY_PREFIX + name.entity_id,
                "name": name.name,
                "type": name.entity_type,
                "subtype": name.subtype,
                "mentions": mentions.get(name.entity_id, 0),
                "last_seen": _moment(nodes[name.entity_id].node.properties.get("last_seen")),
            }
            for name in names
            if name.entity_id in nodes
        ]

    return _read(services, ask)


def _named(graph: GraphRead, scope: Scope, query: str, limit: int) -> list[EntityName]:
    """By exact name, by how the name begins, by words: in this order."""
    reads, name = FactReads(graph, scope), canonical_name(query)
    entities = [
        *reads.found_by_name([name], limit),
        *EntityReads(graph, scope).prefixed(name),
        *reads.found_by_text(words_of(query), limit),
    ]
    return list({entity.entity_id: entity for entity in entities}.values())[:limit]


def edges(services: Services, scope: Scope, entity: str, limit: int) -> dict[str, Any]:
    """The facts about one entity, under all of its names, and what it was found to be.

    Args:
        services: of the ledger.
        scope: who looks, and when facts shall hold.
        entity: `entity:<hash>`, the hash, or a name; of several by one name the one mentioned most.
        limit: of facts.

    Raises:
        OperationFailed: there is none.
    """

    def ask(graph: GraphRead) -> dict[str, Any]:
        reads, facts = EntityReads(graph, scope), FactReads(graph, scope)
        wanted = entity.removeprefix(ENTITY_PREFIX)
        named = facts.found_by_id([wanted]) or _named(graph, scope, wanted, MAX_NAMED)
        name = canonical_name(wanted)
        exact = [candidate for candidate in named if name in map(canonical_name, candidate.names)]
        group = group_of(facts, [candidate.entity_id for candidate in exact or named[:1]])
        members = {} if group is None else reads.entities(group.ids, {})
        if group is None or group.canonical not in members:
            raise OperationFailed(reason=f"no entity of tenant {scope.tenant} is called {entity}")
        shown = members[group.canonical].node.properties
        community = community_of(members)
        facts_wanted = FactFilter(scope.now_ms, per_entity=limit)
        return {
            "entity_id": ENTITY_PREFIX + group.canonical,
            "name": shown_name(shown),
            "type": shown_type(shown),
            "names": sorted({shown_name(member.node.properties) for member in members.values()}),
            "mentions": group.mention_count,
            "community": None if community is None else community.properties.get("name"),
            "edges": _sorted_edges(facts.facts_of(group.ids, facts_wanted)[:limit]),
        }

    return _read(services, ask)


def _sorted_edges(rows: Sequence[FactRow]) -> list[dict[str, Any]]:
    ordered = sorted(
        rows, key=lambda row: (row.properties["relation"], -row.properties["valid_from"], row.key)
    )
    return [
        {
            "source": row.source.name,
            "relation": row.properties["relation"],
            "target": row.target.name,
            "edge_type": row.properties["edge_type"],
            "confidence": row.properties["confidence"],
            "valid_from": _moment(row.properties["valid_from"]),
            "valid_to": _moment(row.properties.get("valid_to")),
            "user_id": row.properties.get("user_id"),
            "event_id": row.properties["event_id"],
        }
        for row in ordered
    ]


def communities(services: Services, scope: Scope, limit: int) -> list[dict[str, Any]]:
    """The communities that may be seen, the largest first."""
    nodes = _read(services, lambda graph: EntityReads(graph, scope).communities("", 10 * limit))
    listed: list[dict[str, Any]] = [
        {
            "community_id": f"community:{node.node_id}",
            "name": node.properties.get("name"),
            "members": node.properties.get("member_count"),
            "summary": node.properties.get("summary"),
            "updated_at": _moment(node.properties.get("updated_at")),
        }
        for node in nodes
    ]
    return sorted(
        listed, key=lambda community: (-(community["members"] or 0), community["community_id"])
    )[:limit]


def stats(services: Services) -> dict[str, Any]:
    """How much there is of each kind in the active target, over all tenants."""
    target = services.active()
    counts = services.reader(target).counts()
    return {
        "target": target.name,
        "nodes": dict(counts.nodes),
        "edges": dict(counts.edges),
        "placeholders": counts.placeholders,
    }


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else timestamp_text(time_ms)


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
