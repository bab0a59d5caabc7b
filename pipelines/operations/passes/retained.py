"""What forgetting reads of the graph, page by page; it writes nothing.

Events, entities and facts are read once a pass, in the order of an index, so that memory is bounded
by a page and what hangs on it.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple, cast

from consolidation.decay import Retrievals, decay_score
from consolidation.forgetting import RetainedEntity, RetainedFact
from consolidation.forgetting_payloads import FactKey
from consolidation.retention import RetainedEvent, Tier, tier_of
from consolidation.stage import ARCHIVED
from pipelines.graph.port import Reads, pages
from pipelines.graph.rows import End, FoundEdge, FoundNode
from pipelines.operations.passes.scopes import WHOLE, importance_of, position_of
from projections.identity import START, Position
from projections.operations import Key
from projections.schema import (
    CAUSED_BY,
    EDGES,
    ENTITY,
    EVENT,
    FORGOTTEN,
    RELATES_TO,
    SIMILAR_TO,
    SUMMARIZES,
)

EVENTS_AT_ONCE = 2_000
ENTITIES_AT_ONCE = 2_000
SIMILAR_AT_ONCE = 500
"""Events whose SIMILAR_TO, and those of their neighbours, are read at once."""

_AGED = ("occurred_at", "global_position", "last_accessed_at")
_IMPORTANCE = ("importance_score", "importance_hint", "importance_boost")
_JUDGED = (*_AGED, *_IMPORTANCE, "access_count", "consent_ref")
_ENDED = (
    *RELATES_TO.key,
    "confidence",
    "valid_to",
    "expired_at",
    "faded_at",
    "retrieval_count",
    "last_retrieved_at",
)
_EDGES_OF_ENTITIES = {
    row.type: End.EITHER
    if row.source == row.target
    else (End.SOURCE if row.source == ENTITY.label else End.TARGET)
    for row in EDGES.values()
    if ENTITY.label in (row.source, row.target)
}
"""At which end entities stand, by type."""


class Aged(NamedTuple):
    """What decides how old an event is; see `retention.age_ms`."""

    event_id: str
    occurred_at_ms: int
    arrived_ms: int
    last_access_ms: int | None


class Neighbour(NamedTuple):
    """An event that is alike, how much, and what it is like itself (scores by event id)."""

    aged: Aged
    score: float
    near: Mapping[str, float]


class Alike(NamedTuple):
    """An event and those it is like."""

    aged: Aged
    near: tuple[Neighbour, ...]


class ShownEntity(NamedTuple):
    """An entity, where its status was decided (None: nowhere), and its facts that ended."""

    entity: RetainedEntity
    decided_at: Position | None
    facts: tuple[RetainedFact, ...]


# -- events ----------------------------------------------------------------------------------------


def retained_events(
    graph: Reads, tenant: str, *, until_ms: int, protected: int, page: int = EVENTS_AT_ONCE
) -> Iterator[list[RetainedEvent]]:
    """Events that occurred until a moment, by session and time, page by page.

    Args:
        graph: that is read.
        tenant: whose.
        until_ms: inclusive.
        protected: `causes` are those that have at least so many edges from effects.
        page: so many at once.
    """
    for nodes in _old(graph, tenant, _JUDGED, until_ms, size=page):
        yield _retained(graph, nodes, protected)


def _old(
    graph: Reads, tenant: str, names: tuple[str, ...], until_ms: int, *, size: int
) -> Iterator[list[FoundNode]]:
    index, until = EVENT.indexes[0], {"occurred_at": until_ms}
    return pages(graph, EVENT.label, index, (tenant,), properties=names, size=size, most=until)


def _retained(graph: Reads, nodes: list[FoundNode], protected: int) -> list[RetainedEvent]:
    keys = [node.key for node in nodes]
    effects = graph.across(CAUSED_BY.type, keys, "event_id", by=End.TARGET, most=WHOLE)
    causes = graph.across(CAUSED_BY.type, keys, "event_id", most=WHOLE)
    summaries = graph.across(SUMMARIZES.type, keys, "summary_id", by=End.TARGET, most=WHOLE)
    # only a cause that may be protected waits for what becomes of its effects
    protectable = _protectable(graph, keys, causes, protected)
    return [
        RetainedEvent(
            **_aged(node)._asdict(),
            access_count=node.values["access_count"] or 0,
            importance=importance_of(node.values),
            boost=node.values["importance_boost"] or 0.0,
            causal_in_degree=len(effects.get(node.key, ())),
            causes=tuple(one for one in causes.get(node.key, ()) if one in protectable),
            summary_id=min(summaries.get(node.key, ()), default=None),
            consent_ref=node.values["consent_ref"],
        )
        for node in nodes
    ]


def _protectable(
    graph: Reads, keys: list[Key], causes: Mapping[Key, tuple[str, ...]], protected: int
) -> set[str]:
    cause_keys = {(key[0], event_id) for key in keys for event_id in causes.get(key, ())}
    degrees = graph.degrees(CAUSED_BY.type, cause_keys, by=End.TARGET)
    return {key[1] for key, degree in degrees.items() if degree >= protected}


def alike_events(graph: Reads, tenant: str, *, until_ms: int, least: int) -> Iterator[list[Alike]]:
    """Events with at least so many SIMILAR_TO that occurred until a moment, page by page."""
    linked = _linked(graph, tenant, until_ms, least)
    while nodes := list(islice(linked, SIMILAR_AT_ONCE)):
        yield _alike(graph, nodes)


def _linked(graph: Reads, tenant: str, until_ms: int, least: int) -> Iterator[FoundNode]:
    for nodes in _old(graph, tenant, _AGED, until_ms, size=EVENTS_AT_ONCE):
        keys = [node.key for node in nodes]
        degrees = graph.degrees(SIMILAR_TO.type, keys, by=End.EITHER)
        yield from (node for node in nodes if degrees.get(node.key, 0) >= least)


def _alike(graph: Reads, nodes: list[FoundNode]) -> list[Alike]:
    near = _scores(graph, (node.key for node in nodes))
    others = {(node.key[0], other) for node in nodes for other in near.get(node.key, ())}
    shown = graph.nodes(EVENT.label, others, _AGED)
    beyond = _scores(graph, others)
    neighbours = {
        key[1]: (_aged(node), beyond.get(key, {})) for key, node in shown.items() if node.visible
    }
    return [
        Alike(
            _aged(node),
            tuple(
                Neighbour(neighbours[other][0], score, neighbours[other][1])
                for other, score in near.get(node.key, {}).items()
                if other in neighbours
            ),
        )
        for node in nodes
    ]


def _scores(graph: Reads, keys: Iterable[Key]) -> dict[Key, dict[str, float]]:
    """What events are like, and how much, by key and id."""
    edges = graph.edges(SIMILAR_TO.type, keys, ("score",), by=End.EITHER)
    return {
        end: {
            (edge.target if edge.source == end else edge.source)[1]: edge.values["score"]
            for edge in some
        }
        for end, some in edges.items()
    }


def tombstones(graph: Reads, tenant: str, event_ids: Iterable[str]) -> dict[str, Position]:
    """Those of the events that were forgotten once, and where that was last decided of."""
    name = "recalled_decided_at"
    keys = [(tenant, event_id) for event_id in sorted(set(event_ids))]
    return {
        key[1]: position_of(node.values[name]) or START
        for key, node in graph.nodes(FORGOTTEN.label, keys, (name,)).items()
    }


def _aged(node: FoundNode) -> Aged:
    occurred_at_ms, position, last_access_ms = (node.values[name] for name in _AGED)
    return Aged(node.key[1], occurred_at_ms, Position.parse(position).ms, last_access_ms)


# -- entities --------------------------------------------------------------------------------------


def shown_entities(
    graph: Reads, tenant: str, *, now_ms: int, confidence: float
) -> Iterator[list[ShownEntity]]:
    """Entities by id, each with its facts that ended and have less confidence, page by page."""
    names = ("access_count", "status", "status_decided_at")
    for nodes in pages(
        graph, ENTITY.label, ENTITY.key, (tenant,), properties=names, size=ENTITIES_AT_ONCE
    ):
        visible = [node for node in nodes if node.visible]
        keys = [node.key for node in visible]
        degrees = [graph.degrees(type_, keys, by=by) for type_, by in _EDGES_OF_ENTITIES.items()]
        facts = graph.edges(RELATES_TO.type, keys, _ENDED)
        yield [
            ShownEntity(
                RetainedEntity(
                    node.key[1],
                    sum(some.get(node.key, 0) for some in degrees),
                    node.values["access_count"] or 0,
                    node.values["status"] == ARCHIVED,
                ),
                position_of(node.values["status_decided_at"]),
                tuple(
                    _fact(edge)
                    for edge in facts.get(node.key, ())
                    if _is_ended(edge, now_ms, confidence)
                ),
            )
            for node in visible
        ]


def _is_ended(edge: FoundEdge, now_ms: int, confidence: float) -> bool:
    values = edge.values
    return (
        values["valid_to"] is not None
        and values["valid_to"] <= now_ms
        and values["expired_at"] is None
        and values["faded_at"] is None
        and values["confidence"] is not None
        and values["confidence"] < confidence
    )


def _fact(edge: FoundEdge) -> RetainedFact:
    values = edge.values
    key = FactKey(
        source_id=edge.source[1],
        relation=values["relation"],
        edge_type=values["edge_type"],
        target_id=edge.target[1],
        valid_from_ms=values["valid_from"],
        event_id=values["event_id"],
    )
    weight = values["retrieval_count"]
    retrievals = None if weight is None else Retrievals(weight, values["last_retrieved_at"])
    return RetainedFact(key, values["confidence"], values["valid_to"], retrievals)


# -- ages ------------------------------------------------------------------------------------------


def ages(graph: Reads, now_ms: int, most: int) -> tuple[dict[str, int], list[float]]:
    """How many events there are of each tier, by age alone, and decay scores of some.

    Looks at every event: age depends on arrival too, and no index knows of both. Ask after a pass
    that has looked at everything, not more often.

    Args:
        graph: that is read.
        now_ms: the clock.
        most: scores; those of events drawn at random, each as likely as any other.
    """
    tiers = dict.fromkeys((tier.value for tier in Tier), 0)
    scores: list[float] = []
    stream = cast(Iterator[FoundNode], graph.stream(EVENT.label, (*_AGED, *_IMPORTANCE)))
    for number, node in enumerate(node for node in stream if node.visible):
        aged = _aged(node)
        tiers[tier_of(now_ms, aged.occurred_at_ms, aged.arrived_ms).value] += 1
        place = number if number < most else random.randrange(number + 1)
        if place < most:
            scores[place : place + 1] = [_score(now_ms, node)]
    return tiers, scores


def _score(now_ms: int, node: FoundNode) -> float:
    importance = importance_of(node.values) + (node.values["importance_boost"] or 0.0)
    return decay_score(now_ms, node.values["occurred_at"], importance=min(10.0, importance))
