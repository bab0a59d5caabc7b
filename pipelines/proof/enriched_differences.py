"""Where an enriched graph says something else than what Stage 2 must have made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from enrichment.similarity import CAP, THRESHOLD
from enrichment.stage import EntityKey, EventKey, HistoryKey
from pipelines.proof.comparison import Difference, field_differences
from pipelines.proof.expected_enrichment import (
    CAUSE_PROPERTIES,
    DECIDED_NAMES,
    ENTITY_NAMES,
    EVENT_NAMES,
    FACT_PROPERTIES,
    SAME_PROPERTIES,
    Edge,
    ExpectedGraph,
    Made,
    Values,
    not_taken_in,
)
from projections.schema import (
    CAUSED_BY,
    DECIDED_AT,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    EdgeRow,
    Property,
)
from projections.structural import SessionKey

TOLERANCE = 1e-3
"""Of a cosine or a length: embeddings are 32-bit numbers, computed on different processors."""


class FoundEvent(NamedTuple):
    """An Event node as it is, with what Stage 2 wrote to it.

    Attributes:
        occurred_at_ms: a text when it is no time in milliseconds.
        position: where the ledger keeps it, as text.
        values: folded ones in the schema's order.
        model: of the embedding.
        length: of the embedding; None: there is none, negative: it is no vector of ours.
        references, causes: (tenant, id, value…), as many as there are.
        similar: (tenant, id, score, cosine or None, element id) of those that start here.
        similar_count: of those that start or end here.
    """

    key: EventKey
    session: SessionKey
    occurred_at_ms: Any
    position: Any
    values: Values
    model: Any
    length: float | None
    references: tuple[Edge, ...]
    causes: tuple[Edge, ...]
    similar: tuple[Edge, ...]
    similar_count: int


class FoundEntity(NamedTuple):
    """An Entity node as it is, with the facts and the sameness that start at it.

    Attributes:
        visible: somebody has mentioned it.
        decided: value and position of each decided property.
        facts, same: (tenant, id, value…, element id).
    """

    key: EntityKey
    element_id: str
    visible: bool
    values: Values
    decided: Values
    facts: tuple[Edge, ...]
    same: tuple[Edge, ...]


class FoundHistory(NamedTuple):
    """A FactHistory as it is."""

    key: HistoryKey
    element_id: str
    entries: Any


def event_differences(
    made: Made, causes: Mapping[str, Edge] | None, found: FoundEvent
) -> Iterator[Difference]:
    """What differs of one event; `causes` None: they cannot be told."""
    fields = field_differences(EVENT_NAMES, made.values, found.values)
    if fields:
        yield Difference("different", "node", EVENT.label, found.key, fields)
    expected = {(found.key[0], *one) for one in made.references}
    yield from _plain_edges(REFERENCES, found.key, expected, found.references)
    if causes is not None:
        should = {edge[:2]: edge for edge in causes.values()}
        yield from edge_differences(
            CAUSED_BY, found.key, should, found.causes, CAUSE_PROPERTIES, keyed=0
        )


def vector_differences(found: FoundEvent, model: str) -> Iterator[Difference]:
    """What an embedding must be, whatever it says; one may be missing (the model failed)."""
    if found.length is None:
        if found.model is not None:
            nameless = {"embedding_model": (None, found.model)}
            yield Difference("different", "node", EVENT.label, found.key, nameless)
        return
    fields: dict[str, tuple[Any, Any]] = {}
    if abs(found.length - 1.0) > TOLERANCE:
        fields["embedding"] = ("384 numbers of length 1", f"length {found.length:.4f}")
    if found.model != model:
        fields["embedding_model"] = (model, found.model)
    if fields:
        yield Difference("different", "node", EVENT.label, found.key, fields)


def similar_differences(found: FoundEvent) -> Iterator[tuple[Difference, Edge | None]]:
    """SIMILAR_TO that break a rule, each with its edge; none: the event has too many."""
    seen: set[tuple[Any, Any]] = set()
    for edge in found.similar:
        tenant, other, score, cosine = edge[:4]
        key = (*found.key, *((other,) if tenant == found.key[0] else (tenant, other)))
        once = (tenant, other) not in seen
        seen.add((tenant, other))
        ordered = tenant == found.key[0] and isinstance(other, str) and found.key[1] < other
        if not ordered or not once or cosine is None or cosine <= THRESHOLD - TOLERANCE:
            yield Difference("extra", "edge", SIMILAR_TO.type, key), edge
        elif type(score) is not float or not abs(score - cosine) <= TOLERANCE:
            fields = {"score": (round(cosine, 6), score)}
            yield Difference("different", "edge", SIMILAR_TO.type, key, fields), edge
    if found.similar_count > CAP:
        fields = {SIMILAR_TO.type: (CAP, found.similar_count)}
        yield Difference("different", "node", EVENT.label, found.key, fields), None


def entity_differences(
    key: EntityKey, expected: ExpectedGraph, found: FoundEntity | None
) -> Iterator[Difference]:
    """What differs of one entity, its facts and its sameness."""
    node = expected.entities.get(key)
    if found is None:
        if node is not None:
            yield Difference("missing", "node", ENTITY.label, key)
    elif node is None:
        yield Difference("extra", "node", ENTITY.label, key)
    else:
        fields = {}
        if found.visible != (node.values is not None):
            fields["visible"] = (not found.visible, found.visible)
        should = node.values or (None,) * len(ENTITY_NAMES)
        fields |= field_differences(ENTITY_NAMES, should, found.values)
        names = [part for name in DECIDED_NAMES for part in (name, f"{name}{DECIDED_AT}")]
        fields |= field_differences(names, node.decided(), found.decided)
        if fields:
            yield Difference("different", "node", ENTITY.label, key, fields)
    keyed = len(RELATES_TO.key)
    facts = {edge[: 2 + keyed]: edge for edge in expected.facts(key)}
    have = [edge[:-1] for edge in found.facts] if found else []
    yield from edge_differences(RELATES_TO, key, facts, have, FACT_PROPERTIES, keyed=keyed)
    pairs = {edge[:2]: edge for edge in expected.same(key)}
    have = [edge[:-1] for edge in found.same] if found else []
    yield from edge_differences(SAME_AS, key, pairs, have, SAME_PROPERTIES, keyed=0)


def history_differences(
    key: HistoryKey, expected: ExpectedGraph, found: FoundHistory | None
) -> Iterator[Difference]:
    """What differs of one history; one without entries is as good as none."""
    should = expected.history(key)
    if found is None or found.entries is None or found.entries == []:
        if should:
            yield Difference("missing", "node", FACT_HISTORY.label, key)
    elif should is None:
        yield Difference("extra", "node", FACT_HISTORY.label, key)
    elif should != found.entries:
        yield Difference(
            "different", "node", FACT_HISTORY.label, key, {"entries": (should, found.entries)}
        )


def contained_differences(
    made: Made,
    entities: Mapping[EntityKey, FoundEntity],
    histories: Mapping[HistoryKey, FoundHistory],
) -> Iterator[Difference]:
    """What the graph has not taken in of what one event says of entities and facts."""
    for key, values in sorted(made.entities.items()):
        entity = entities.get(key)
        if entity is None:
            yield Difference("missing", "node", ENTITY.label, key)
        elif values is not None:
            fields = {} if entity.visible else {"visible": (True, False)}
            wrong = not_taken_in(values, entity.values)
            different = field_differences(ENTITY_NAMES, values, entity.values)
            fields |= {name: both for name, both in different.items() if name in wrong}
            if fields:
                yield Difference("different", "node", ENTITY.label, key, fields)
    for key, entries in sorted(made.entries.items()):
        history = histories.get(key)
        have = history.entries if history is not None and history.entries else []
        lacking = [entry for entry in entries if entry not in have]
        if lacking and not have:
            yield Difference("missing", "node", FACT_HISTORY.label, key)
        elif lacking:
            entries_of = {"entries": (lacking, have)}
            yield Difference("different", "node", FACT_HISTORY.label, key, entries_of)


def edge_differences(
    row: EdgeRow,
    source: Sequence[Any],
    expected: Mapping[tuple[Any, ...], Edge],
    found: Iterable[Edge],
    properties: Sequence[Property],
    *,
    keyed: int,
) -> Iterator[Difference]:
    """What differs of the edges of a type that start at one node.

    Args:
        row: the type.
        source: key of the node.
        expected: by target and key.
        found: (tenant, id, value…), as many as there are.
        properties: of the values, in their order.
        keyed: how many values belong to the key.
    """
    names = [p.name for p in properties]
    have: dict[tuple[Any, ...], list[Edge]] = {}
    for edge in found:
        have.setdefault(edge[: 2 + keyed], []).append(edge)
    for place in sorted(expected.keys() | have.keys(), key=repr):
        key = edge_key(source, place)
        should, copies = expected.get(place), have.get(place, [])
        if should is None:
            yield Difference("extra", "edge", row.type, key)
        elif not copies:
            yield Difference("missing", "edge", row.type, key)
        elif len(copies) > 1:
            yield Difference("extra", "edge", row.type, key, {"copies": (1, len(copies))})
        elif fields := field_differences(names, should[2:], copies[0][2:]):
            yield Difference("different", "edge", row.type, key, fields)


def _plain_edges(
    row: EdgeRow, source: Sequence[Any], expected: set[Edge], found: Iterable[Edge]
) -> Iterator[Difference]:
    """What differs of edges whose values all belong to their key."""
    have = Counter(found)
    for place in sorted(expected | have.keys(), key=repr):
        key = edge_key(source, place)
        if place not in have:
            yield Difference("missing", "edge", row.type, key)
        elif place not in expected:
            yield Difference("extra", "edge", row.type, key)
        elif have[place] > 1:
            yield Difference("extra", "edge", row.type, key, {"copies": (1, have[place])})


def edge_key(source: Sequence[Any], place: Sequence[Any]) -> tuple[Any, ...]:
    """Tenant, both ids and the edge's own key; both tenants where they are not the same."""
    return (*source, *(place[1:] if source[0] == place[0] else place))
