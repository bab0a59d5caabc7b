"""What Stage 2 must have made: of one event, and of all that events and statements said together.

What one event says goes through the stage's own fold, alone. What becomes of several (the earliest
names an entity, histories are unions, of two decisions the later stays) is said here once more, so
that a mistake in how batches are merged, or in the Cypher that merges with the graph, is found.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from enrichment import NAME
from enrichment.features import Features
from enrichment.histories import Group, intervals
from enrichment.histories import merge as merged_entries
from enrichment.stage import (
    Derived,
    EntityKey,
    EventKey,
    Facts,
    HistoryKey,
    enrich,
    fact_edge,
    inferred_operations,
    wanted_groups,
)
from pipelines.graph.audits.enrichment_cypher import decided, folded
from projections.digest import MODULUS, element_digest
from projections.operations import MergeEdge
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    Certainty,
    Property,
)
from projections.structural import stage_values

Values = tuple[Any, ...]
Edge = tuple[Any, ...]
"""[target key…, value…] of an edge, as a tuple."""

EVENT_NAMES = [p.name for p in folded(EVENT)]
ENTITY_NAMES = [p.name for p in folded(ENTITY)]
DECIDED_NAMES = [p.name for p in decided(ENTITY)]
FACT_PROPERTIES = RELATES_TO.carried(NAME)
SAME_PROPERTIES = SAME_AS.carried(NAME)
CAUSE_PROPERTIES = CAUSED_BY.carried(NAME)[1:]

_FIRST, _FIRST_ID = ENTITY_NAMES.index("first_seen"), ENTITY_NAMES.index("first_event_id")
_NAME, _SUBTYPE = ENTITY_NAMES.index("name"), ENTITY_NAMES.index("subtype")
_LAST = ENTITY_NAMES.index("last_seen")
_DECIDED_AT = [p.name for p in SAME_PROPERTIES].index(SAME_AS.decided_by or "")


def frozen(value: Any) -> Any:
    """Lists as tuples, so that values can be hashed and compared."""
    return tuple(map(frozen, value)) if isinstance(value, list | tuple) else value


class Made(NamedTuple):
    """What one event, or one statement, makes.

    Attributes:
        values: of the Event node, in the schema's order; empty for a statement.
        references: (entity id, role), all of the event's tenant.
        entities: key → values; None: only made sure of.
        entries: of each history it adds to.
        same: SAME_AS edges, (source, target) → values.
        decisions: (entity, property) → (position, value).
    """

    values: Values
    references: frozenset[tuple[str, str]]
    entities: Mapping[EntityKey, Values | None]
    groups: Mapping[HistoryKey, Group]
    entries: Mapping[HistoryKey, Sequence[str]]
    same: Mapping[tuple[EntityKey, EntityKey], Values]
    decisions: Mapping[tuple[EntityKey, str], tuple[tuple[int, int], Any]]


def made_by(one: Derived) -> Made:
    """What the stage makes of one event alone, inferred causes aside."""
    operations = enrich([one], Facts(present=frozenset([one.event.key])))
    values: Values = ()
    for node in operations.set_nodes.values():
        values = frozen([node.values[name] for name in EVENT_NAMES])
    entities: dict[EntityKey, Values | None] = {
        (key[0], key[1]): None for label, key in operations.ensure_nodes if label == ENTITY.label
    }
    entries: dict[HistoryKey, Sequence[str]] = {}
    for (label, key), merged in operations.merge_nodes.items():
        if label == ENTITY.label:
            entities[key[0], key[1]] = frozen([merged.values[name] for name in ENTITY_NAMES])
        elif label == FACT_HISTORY.label:
            entries[key[0], key[1]] = list(merged.values["entries"])
    edges = list(operations.merge_edges.values())
    return Made(
        values,
        frozenset((e.target[1], e.values["role"]) for e in edges if e.type == REFERENCES.type),
        entities,
        {key: group for key, group in wanted_groups([one]).items() if key in entries},
        entries,
        {
            ((e.source[0], e.source[1]), (e.target[0], e.target[1])): frozen(stage_values(e))
            for e in edges
            if e.type == SAME_AS.type
        },
        {
            ((d.key[0], d.key[1]), d.name): ((d.position.ms, d.position.seq), d.value)
            for d in operations.decide_nodes.values()
        },
    )


def causes_of(tenant: str, before: Sequence[Features | None], effect: Features) -> dict[str, Edge]:
    """Inferred causes: id of the cause → the edge."""
    known = [one for one in before if one is not None]
    return {
        operation.target[1]: (
            *operation.target,
            *(operation.values[p.name] for p in CAUSE_PROPERTIES),
        )
        for operation in inferred_operations(tenant, known, effect)
        if isinstance(operation, MergeEdge)
    }


@dataclass(slots=True)
class Node:
    """An entity as events made it so far; `values` is None while nobody has mentioned it."""

    values: Values | None = None
    decisions: dict[str, tuple[tuple[int, int], Any]] = field(default_factory=dict)

    def meet(self, values: Values) -> None:
        """Take a mention in: the earliest names the entity, the latest dates it."""
        if self.values is None:
            self.values = values
            return
        earlier = values[_FIRST : _FIRST_ID + 1] < self.values[_FIRST : _FIRST_ID + 1]
        kept = list(values if earlier else self.values)
        kept[_LAST] = max(values[_LAST], self.values[_LAST])
        self.values = tuple(kept)

    def decided(self) -> Values:
        """Of each decided property the value and its position, as the graph keeps them."""
        found: list[Any] = []
        for name in DECIDED_NAMES:
            position, value = self.decisions.get(name, (None, None))
            found += [value, position]
        return tuple(found)


class ExpectedGraph:
    """Entities, facts and sameness that follow from all that was added.

    Memory grows with entities and facts: some hundred bytes for each entity and each entry.
    """

    def __init__(self) -> None:
        self.entities: dict[EntityKey, Node] = {}
        self.groups: dict[HistoryKey, Group] = {}
        self.entries: dict[HistoryKey, list[str]] = {}
        self._by_source: dict[EntityKey, set[HistoryKey]] = {}
        self._same: dict[EntityKey, dict[EntityKey, Values]] = {}

    def add(self, made: Made) -> None:
        """Take in what one event or statement makes; twice is as good as once."""
        for key, values in made.entities.items():
            node = self.entities.setdefault(key, Node())
            if values is not None:
                node.meet(values)
        for (key, name), (position, value) in made.decisions.items():
            decisions = self.entities.setdefault(key, Node()).decisions
            if name not in decisions or decisions[name][0] < position:
                decisions[name] = (position, value)
        for history, entries in made.entries.items():
            group = self.groups.setdefault(history, made.groups[history])
            self.entries.setdefault(history, []).extend(entries)
            self._by_source.setdefault((group.tenant, group.source_id), set()).add(history)
        for (source, target), values in made.same.items():
            pairs = self._same.setdefault(source, {})
            if target not in pairs or pairs[target][_DECIDED_AT] < values[_DECIDED_AT]:
                pairs[target] = values

    def history(self, key: HistoryKey) -> list[str] | None:
        """The entries of a history, in their order."""
        entries = self.entries.get(key)
        return None if entries is None else merged_entries(entries)

    def facts(self, source: EntityKey) -> list[Edge]:
        """RELATES_TO edges that start at an entity."""
        found: list[Edge] = []
        for history in sorted(self._by_source.get(source, ())):
            group = self.groups[history]
            found += (
                (*edge.target, *frozen(stage_values(edge)))
                for fact in intervals(group, self.entries[history])
                for edge in [fact_edge(group.tenant, fact)]
            )
        return found

    def same(self, source: EntityKey) -> list[Edge]:
        """SAME_AS edges that start at an entity."""
        return [(*target, *values) for target, values in sorted(self._same.get(source, {}).items())]


def not_taken_in(values: Values, found: Values) -> set[str]:
    """Properties by which an entity shows that it has not taken a mention in.

    It may know earlier mentions, which name it, and later ones, which date it.
    """
    first = slice(_FIRST, _FIRST_ID + 1)
    wrong = {ENTITY_NAMES[n] for n in (0, 1) if values[n] != found[n]}
    try:
        if found[first] == values[first]:
            wrong |= {ENTITY_NAMES[n] for n in (_NAME, _SUBTYPE) if values[n] != found[n]}
        elif found[first] > values[first]:
            wrong |= {"first_seen", "first_event_id"}
        if found[_LAST] < values[_LAST]:
            wrong.add("last_seen")
    except TypeError:  # a time that is none
        wrong |= {"first_seen", "first_event_id", "last_seen"}
    return wrong


def joined(values: Values, found: Values) -> Values:
    """What is expected of an entity, with what the graph may rightly know beside it."""
    node = Node(values)
    try:
        node.meet((*values[:2], *found[2:]))
    except TypeError:  # a time that is none
        return values
    return node.values or values


def naming(values: Values) -> list[Any]:
    """[event id, name, subtype] of the mention that names an entity."""
    return [values[_FIRST_ID], values[_NAME], values[_SUBTYPE]]


# -- digests ---------------------------------------------------------------------------------------

KINDS = ("events", "references", "causes", "entities", "facts", "same_as")
"""What a digest is reported of; the digest is their sum."""
Numbers = dict[str, int]


def canonical(properties: Iterable[Property], values: Iterable[Any]) -> list[Any]:
    """The values that a digest covers: no positions, real numbers as integers times 10⁴."""
    return [
        round(value * 10_000) if type(value) is float and value == value else value
        for p, value in zip(properties, values, strict=True)
        if p.certainty in (Certainty.FOLDED, Certainty.RECORDED)
    ]


def event_numbers(
    key: EventKey,
    values: Values,
    references: Iterable[Sequence[Any]],
    causes: Iterable[Edge],
) -> Numbers:
    """Digests of an event; `references` are [tenant, entity id, role]."""
    return {
        "events": element_digest(EVENT.label, *key, *values),
        "references": sum(element_digest(REFERENCES.type, *key, *one) for one in references),
        "causes": sum(
            element_digest(CAUSED_BY.type, *key, *edge[:2], *canonical(CAUSE_PROPERTIES, edge[2:]))
            for edge in causes
        ),
    }


def entity_numbers(
    key: EntityKey,
    values: Values | None,
    decided_values: Values,
    facts: Iterable[Edge],
    same: Iterable[Edge],
) -> Numbers:
    """Digests of an entity and of what starts at it."""
    return {
        "entities": element_digest(ENTITY.label, *key, *(values or ()), *decided_values[::2]),
        "facts": sum(
            element_digest(RELATES_TO.type, *key, *edge[:2], *canonical(FACT_PROPERTIES, edge[2:]))
            for edge in facts
        ),
        "same_as": sum(
            element_digest(SAME_AS.type, *key, *edge[:2], *canonical(SAME_PROPERTIES, edge[2:]))
            for edge in same
        ),
    }


def add_numbers(total: Numbers, numbers: Numbers, sign: int = 1) -> None:
    """Add to, or take away from, the digests by kind."""
    for kind, number in numbers.items():
        total[kind] = (total.get(kind, 0) + sign * number) % MODULUS
