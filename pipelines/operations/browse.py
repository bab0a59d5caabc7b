"""What `recollect graph` looks at: entities, what is known about one, communities, counts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from enrichment.entities import canonical_name
from enrichment.resolution import components
from pipelines.graph.fulltext import words_of
from pipelines.graph.reader import GraphRead
from pipelines.graph.reads.entities import EntityReads
from pipelines.graph.reads.facts import EntityName, FactFilter, FactReads, FactRow
from pipelines.work.services import Services
from projections.errors import OperationFailed
from projections.events import timestamp_text

T = TypeVar("T")

TIMEOUT_MS = 30_000
MAX_CANDIDATES = 20


def _read(services: Services, work: Callable[[GraphRead], T]) -> T:
    return services.reader(services.active()).read(work, timeout_ms=TIMEOUT_MS)


def entities(
    services: Services, tenant: str, *, query: str | None, entity_type: str | None, limit: int
) -> list[dict[str, Any]]:
    """Entities with a name that has the words or begins so; without a query all, by name."""

    def ask(graph: GraphRead) -> list[dict[str, Any]]:
        reads = EntityReads(graph, tenant)
        if query is None:
            names = [one for _, one in reads.listed(("", ""), entity_type, limit)]
        else:
            names = _matches(graph, tenant, query, 10 * limit)
            names = [one for one in names if entity_type in (None, one.entity_type)][:limit]
        nodes = reads.entities([one.entity_id for one in names])
        return [
            {
                "entity_id": f"entity:{one.entity_id}",
                "name": one.name,
                "type": one.entity_type,
                "subtype": one.subtype,
                "mentions": nodes[one.entity_id].mentions,
                "last_seen": _moment(nodes[one.entity_id].node.properties.get("last_seen")),
            }
            for one in names
            if one.entity_id in nodes
        ]

    return _read(services, ask)


def _matches(graph: GraphRead, tenant: str, query: str, limit: int) -> list[EntityName]:
    """By exact name, by how the name begins, by words: in this order."""
    reads, name = FactReads(graph, tenant), canonical_name(query)
    matches = [
        *reads.found_by_name([name], limit),
        *EntityReads(graph, tenant).prefixed(name),
        *reads.found_by_text(words_of(query), limit),
    ]
    return list({one.entity_id: one for one in matches}.values())[:limit]


def edges(
    services: Services, tenant: str, entity: str, *, at_ms: int, limit: int
) -> dict[str, Any]:
    """The facts about one entity, under all of its names, and what it was found to be.

    Args:
        services: of the ledger.
        tenant: whose graph.
        entity: `entity:<hash>`, the hash, or a name; of several by one name the one mentioned most.
        at_ms: facts that hold then.
        limit: of facts.

    Raises:
        OperationFailed: there is none.
    """

    def ask(graph: GraphRead) -> dict[str, Any]:
        reads, facts = EntityReads(graph, tenant), FactReads(graph, tenant)
        wanted = entity.removeprefix("entity:")
        named = facts.found_by_id([wanted]) or _matches(graph, tenant, wanted, MAX_CANDIDATES)
        if not named:
            raise OperationFailed(reason=f"no entity of tenant {tenant} is called {entity}")
        exact = [one for one in named if canonical_name(wanted) in map(canonical_name, one.names)]
        nodes = reads.entities([one.entity_id for one in exact or named[:1]])
        own_id = max(nodes, key=lambda one: (nodes[one].mentions, one))
        pairs = facts.same_as([own_id])
        ids = sorted({own_id, *(one for pair in pairs for one in pair)})
        members = reads.entities(ids)
        holding = FactFilter(at_ms, per_entity=limit, everyone=True)
        rows = facts.facts_of(ids, holding)[:limit]
        canonical = components(pairs).get(own_id, own_id)
        shown = members.get(canonical) or members[own_id]
        return {
            "entity_id": f"entity:{canonical}",
            "name": _name(shown.node.properties),
            "type": shown.node.properties.get("entity_type"),
            "names": sorted({_name(one.node.properties) for one in members.values()}),
            "mentions": sum(one.mentions for one in members.values()),
            "community": next(
                (
                    one.community.properties.get("name")
                    for one in members.values()
                    if one.community is not None
                ),
                None,
            ),
            "edges": _sorted_edges(rows),
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


def communities(services: Services, tenant: str, limit: int) -> list[dict[str, Any]]:
    """The communities of a tenant, the largest first."""
    nodes = _read(services, lambda graph: EntityReads(graph, tenant).communities("", 10 * limit))
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
    return sorted(listed, key=lambda one: (-(one["members"] or 0), one["community_id"]))[:limit]


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


def _name(properties: Any) -> str:
    for key in ("display_name", "name", "canonical_name"):
        if properties.get(key):
            return str(properties[key])
    return ""


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else timestamp_text(time_ms)
