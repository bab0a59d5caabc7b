"""What columns hold, item by item and by names instead of rows, so that two can be compared."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final, NamedTuple

import orjson

from pipelines.columns.entities import PROPERTIES, Entity, Fact
from pipelines.columns.records import Differing, Finding
from pipelines.columns.tables import NOBODY, Edge, Edges
from pipelines.columns.tenant import Made, Tenant
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    ENTITY,
    EVENT,
    LINKED_TO,
    MEMBER_OF,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
)

LISTED: Final = 20
"""Items of a kind that are named where columns differ; all are counted."""
_MOST_FIELDS: Final = 20
_MOST_CHARACTERS: Final = 200
"""Of a value that is told."""
_NAMED: Final = frozenset({"user", "session", "author", "agent", "tool", "status", "kind", "type"})
_STEPS: Final = frozenset({"previous", "following"})

Item = dict[str, Any]
"""By field what JSON can say; empty: nothing is held."""


class Kind(NamedTuple):
    """A kind of things that columns hold.

    Attributes:
        name: label, edge type, or a word.
        keys: of the items that a tenant may hold.
        item: what is held under a key.
    """

    name: str
    keys: Callable[[Tenant], Iterable[str]]
    item: Callable[[Tenant, str], Item]


def whole(tenant: Tenant) -> dict[str, dict[str, Item]]:
    """Everything that columns hold, by kind and key; much larger than they are."""
    held = {
        kind.name: {key: item for key in kind.keys(tenant) if (item := kind.item(tenant, key))}
        for kind in KINDS
    }
    return {name: items for name, items in held.items() if items}


def compared(expected: Mapping[str, Tenant], held: Mapping[str, Tenant]) -> Finding:
    """Compare columns with such as were just read, by the names of their tenants.

    Nobody may change either meanwhile; questions may be asked.
    """
    counts: dict[str, dict[str, int]] = {}
    first: dict[str, list[Differing]] = {}
    for name in sorted({*expected, *held}):
        wanted, present = expected.get(name) or Tenant(), held.get(name) or Tenant()
        for item in _differing(name, wanted, present):
            kinds = counts.setdefault(name, {})
            kinds[item.kind] = kinds.get(item.kind, 0) + 1
            listed = first.setdefault(item.kind, [])
            if len(listed) < LISTED:
                listed.append(item)
    events = sum(tenant.events.count() for tenant in expected.values())
    return Finding(events, counts, list(chain.from_iterable(first.values())))


def _differing(tenant: str, expected: Tenant, held: Tenant) -> Iterator[Differing]:
    for kind in KINDS:
        for key in dict.fromkeys(chain(kind.keys(expected), kind.keys(held))):
            wanted, present = kind.item(expected, key), kind.item(held, key)
            if wanted != present:
                both = wanted | present
                fields = [name for name in both if wanted.get(name) != present.get(name)]
                told = {
                    name: (_cut(wanted.get(name)), _cut(present.get(name)))
                    for name in fields[:_MOST_FIELDS]
                }
                yield Differing(
                    tenant=tenant,
                    kind=kind.name,
                    key=key,
                    fields=told,
                    is_held=bool(present),
                    is_expected=bool(wanted),
                )


def _cut(value: Any) -> Any:
    text = orjson.dumps(value).decode()
    return value if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]}…"


# -- events ----------------------------------------------------------------------------------------


def _event_ids(tenant: Tenant) -> Iterable[str]:
    return tenant.events.ids


def _event(tenant: Tenant, key: str) -> Item:
    """An event that stands, with every column."""
    events = tenant.events
    row, table = events.rows.get(key, NOBODY), events.table
    if row == NOBODY or not table["stands"][row]:
        return {}
    held: dict[str, Any] = {"said": events.texts.said(row), "vector": events.vectors.shown(row)}
    for name in table.columns:
        value = table[name][row].item()
        if name in _NAMED:
            value = events.names.text(value)
        elif name in _STEPS:
            value = None if value == NOBODY else events.ids[value]
        held[name] = value
    return held


def _sessions(tenant: Tenant) -> Iterable[str]:
    return [tenant.events.names.text(number) or "" for number in tenant.events.sessions]


def _session(tenant: Tenant, key: str) -> Item:
    """The order of a session's events."""
    events = tenant.events
    order = events.sessions.get(events.names.find(key or None))
    return {"order": [events.ids[row] for row in order]} if order else {}


def _stems(tenant: Tenant) -> Iterable[str]:
    return tenant.events.texts.stems()


def _holders(tenant: Tenant, key: str) -> Item:
    """How often each event says a stem."""
    ids = tenant.events.ids
    return {ids[row]: count for row, count in tenant.events.texts.held(key)}


def _all_texts(tenant: Tenant) -> Iterable[str]:
    return [""]


def _totals(tenant: Tenant, key: str) -> Item:
    texts, words = tenant.events.texts.totals()
    return {"texts": texts, "words": words} if texts or words else {}


# -- edges between events --------------------------------------------------------------------------


def _causes(tenant: Tenant, key: str) -> Item:
    return _around(tenant, tenant.causes, key)


def _similar(tenant: Tenant, key: str) -> Item:
    return _around(tenant, tenant.similar, key)


def _around(tenant: Tenant, edges: Edges, key: str) -> Item:
    """Edges from an event, and to it."""
    ids, row = tenant.events.ids, tenant.events.rows.get(key, NOBODY)
    if row == NOBODY:
        return {}
    out = [(ids[edge.target], *_values(edge)) for edge in edges.out(row)]
    into = [(ids[edge.source], *_values(edge)) for edge in edges.into(row)]
    return _filled({"out": _sorted(out), "in": _sorted(into)})


def _values(edge: Edge) -> tuple[float | None, bool]:
    return None if math.isnan(edge.score) else edge.score, edge.mark


# -- entities --------------------------------------------------------------------------------------


def _entity_ids(tenant: Tenant) -> Iterable[str]:
    return tenant.entities.rows


def _found_entity(tenant: Tenant, key: str) -> Entity | None:
    row = tenant.entities.rows.get(key)
    return None if row is None else tenant.entities.all[row]


def _entity(tenant: Tenant, key: str) -> Item:
    """An entity, if it stands, and who mentions it."""
    entity = _found_entity(tenant, key)
    if entity is None:
        return {}
    row, ids = tenant.entities.rows[key], tenant.events.ids
    held: dict[str, Any] = {}
    if entity.stands:
        held = {name: getattr(entity, name) for name in PROPERTIES if name != "embedding"}
        held["vector"] = tenant.entities.vectors.shown(row)
    into = [(ids[edge.source], edge.mark, edge.score) for edge in tenant.mentions.into(row)]
    stands = tenant.events.table["stands"]
    # Of an event that does not stand nobody knows the time.
    mentions = [ids[event] for event in entity.mentions if stands[event]]
    unseen = sorted(ids[event] for event in entity.mentions if not stands[event])
    return held | _filled({"mentions": mentions, "unseen": unseen, "edges": _sorted(into)})


def _mentions(tenant: Tenant, key: str) -> Item:
    """The entities that an event mentions."""
    entities, row = tenant.entities.all, tenant.events.rows.get(key, NOBODY)
    if row == NOBODY:
        return {}
    mentions = tenant.mentions.out(row)
    out = [(entities[edge.target].entity_id, edge.mark, edge.score) for edge in mentions]
    return _filled({"out": _sorted(out)})


def _facts(tenant: Tenant, key: str) -> Item:
    entity, entities = _found_entity(tenant, key), tenant.entities.all
    if entity is None:
        return {}

    def told(fact: Fact) -> tuple[Any, ...]:
        return entities[fact.source].entity_id, entities[fact.target].entity_id, *fact[2:]

    return _filled({"facts": _sorted(map(told, entity.facts))})


def _same(tenant: Tenant, key: str) -> Item:
    entity, entities = _found_entity(tenant, key), tenant.entities.all
    if entity is None:
        return {}
    return {entities[row].entity_id: {"confidence": sure} for row, sure in entity.same.items()}


def _memberships(tenant: Tenant, key: str) -> Item:
    entity = _found_entity(tenant, key)
    return {} if entity is None else _filled({"communities": sorted(entity.communities)})


def _names(tenant: Tenant) -> Iterable[str]:
    return tenant.entities.by_name


def _name(tenant: Tenant, key: str) -> Item:
    return _filled({"entities": _ids(tenant, tenant.entities.by_name.get(key, ()))})


def _name_words(tenant: Tenant) -> Iterable[str]:
    words: Iterable[str] = tenant.entities.by_word
    return words


def _name_word(tenant: Tenant, key: str) -> Item:
    return _filled({"entities": _ids(tenant, tenant.entities.by_word.get(key, ()))})


def _ids(tenant: Tenant, rows: Iterable[int]) -> list[str]:
    return sorted(tenant.entities.all[row].entity_id for row in rows)


# -- what consolidation made -----------------------------------------------------------------------


def _summary_ids(tenant: Tenant) -> Iterable[str]:
    return tenant.summaries


def _summary(tenant: Tenant, key: str) -> Item:
    return _made(tenant.summaries.get(key))


def _community_ids(tenant: Tenant) -> Iterable[str]:
    return chain(tenant.communities, tenant.members)


def _community(tenant: Tenant, key: str) -> Item:
    members = _ids(tenant, tenant.members.get(key, ()))
    return _made(tenant.communities.get(key)) | _filled({"members": members})


def _made(derived: Made | None) -> Item:
    if derived is None or not derived.stands:
        return {}
    return {
        "user_ids": derived.user_ids,
        "decided_at": derived.decided_at,
        "level": derived.level,
    }


def _part_names(tenant: Tenant) -> Iterable[str]:
    """Label and id of what is part of a summary, or is one."""
    summaries = dict.fromkeys(chain(tenant.below, (k for k in tenant.above if isinstance(k, str))))
    yield from (f"{SUMMARY.label} {own_id}" for own_id in summaries)
    rows = (row for row in tenant.above if isinstance(row, int))
    yield from (f"{EVENT.label} {tenant.events.ids[row]}" for row in rows)


def _parts(tenant: Tenant, key: str) -> Item:
    label, _, own_id = key.partition(" ")
    if label == EVENT.label:
        above = tenant.above.get(tenant.events.rows.get(own_id, NOBODY), set())
        return _filled({"in": sorted(above)})
    ids = tenant.events.ids
    parts = [
        f"{EVENT.label} {ids[part]}" if isinstance(part, int) else f"{SUMMARY.label} {part}"
        for part in tenant.below.get(own_id, ())
    ]
    return _filled({"out": sorted(parts), "in": sorted(tenant.above.get(own_id, ()))})


def _linked_ids(tenant: Tenant) -> Iterable[str]:
    return tenant.links


def _links(tenant: Tenant, key: str) -> Item:
    return _filled({"out": _sorted(map(tuple, tenant.links.get(key, ())))})


def _sorted(items: Iterable[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """In an order of their own: some of their values may be None."""
    return sorted(items, key=repr)


def _filled(item: dict[str, Any]) -> Item:
    return {name: value for name, value in item.items() if value}


KINDS: Final = (
    Kind(EVENT.label, _event_ids, _event),
    Kind("session", _sessions, _session),
    Kind("word", _stems, _holders),
    Kind("texts", _all_texts, _totals),
    Kind(CAUSED_BY.type, _event_ids, _causes),
    Kind(SIMILAR_TO.type, _event_ids, _similar),
    Kind(ENTITY.label, _entity_ids, _entity),
    Kind(REFERENCES.type, _event_ids, _mentions),
    Kind(RELATES_TO.type, _entity_ids, _facts),
    Kind(SAME_AS.type, _entity_ids, _same),
    Kind(MEMBER_OF.type, _entity_ids, _memberships),
    Kind("name", _names, _name),
    Kind("word of a name", _name_words, _name_word),
    Kind(SUMMARY.label, _summary_ids, _summary),
    Kind(COMMUNITY.label, _community_ids, _community),
    Kind(SUMMARIZES.type, _part_names, _parts),
    Kind(LINKED_TO.type, _linked_ids, _links),
)
