"""Damage to columns that hold a drawn world, each with what verify must name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from pipelines.columns.tables import Edge
from pipelines.columns.tenant import Tenant
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    ENTITY,
    EVENT,
    LINKED_TO,
    MEMBER_OF,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
)

Named = set[tuple[str, ...]]
"""Kind, key, and the fields that differ."""


def _first(tenant: Tenant) -> tuple[int, str]:
    """Row and id of an event with everything."""
    table, vectors = tenant.events.table, tenant.events.vectors
    rows = (row for row in range(table.size) if table["stands"][row] and vectors.shown(row))
    row = next(row for row in rows if table["user"][row] >= 0 and table["words"][row] > 1)
    return row, tenant.events.ids[row]


def _vector(tenant: Tenant) -> Named:
    row, own_id = _first(tenant)
    held: Any = tenant.events.vectors
    held._table["levels"][row][5] ^= 1
    return {(EVENT.label, own_id, "vector")}


def _number(name: str, value: int) -> Callable[[Tenant], Named]:
    def damage(tenant: Tenant) -> Named:
        row, own_id = _first(tenant)
        tenant.events.table[name][row] += value
        return {(EVENT.label, own_id, name)}

    return damage


def _user(tenant: Tenant) -> Named:
    row, own_id = _first(tenant)
    tenant.events.table["user"][row] = tenant.events.names.number("mallory")
    return {(EVENT.label, own_id, "user")}


def _word(tenant: Tenant) -> Named:
    """One text says one word once more than it does."""
    texts: Any = tenant.events.texts
    row, own_id = _first(tenant)
    stem = next(one for one in texts.stems() if row in dict(texts.held(one)))
    postings = texts._postings[stem]
    owners = texts._texts["row"][postings["text"]].tolist()
    postings["count"][owners.index(row)] += 1
    return {("word", stem, own_id)}


def _text(tenant: Tenant) -> Named:
    """One text is not found any more."""
    row, own_id = _first(tenant)
    texts = tenant.events.texts
    said = {stem for stem in texts.stems() if row in dict(texts.held(stem))}
    texts.drop(row)
    words = {("word", stem, own_id) for stem in said}
    return {*words, (EVENT.label, own_id, "said"), ("texts", "", "texts", "words")}


def _order(tenant: Tenant) -> Named:
    session, order = next((s, rows) for s, rows in tenant.events.sessions.items() if len(rows) > 2)
    order[0], order[1] = order[1], order[0]
    return {("session", str(tenant.events.names.text(session)), "order")}


def _edge_more(tenant: Tenant) -> Named:
    """An edge from an event to itself."""
    row, own_id = _first(tenant)
    tenant.causes.add(Edge(row, row, 0.5, False))
    return {(CAUSED_BY.type, own_id, "out", "in")}


def _edge_less(tenant: Tenant) -> Named:
    ids = tenant.events.ids
    source = next(row for row in range(len(ids)) if len([*tenant.similar.out(row)]) == 1)
    (edge,) = tenant.similar.out(source)
    tenant.similar.drop(source)
    return {
        (SIMILAR_TO.type, ids[source], "out"),
        (SIMILAR_TO.type, ids[edge.target], "in"),
    }


def _edge_value(tenant: Tenant) -> Named:
    edges: Any = tenant.similar
    source = int(edges._edges["source"][0])
    target = int(edges._edges["target"][0])
    edges._edges["score"][0] += 0.01
    ids = tenant.events.ids
    return {(SIMILAR_TO.type, ids[source], "out"), (SIMILAR_TO.type, ids[target], "in")}


def _entity(tenant: Tenant) -> Named:
    entity = next(one for one in tenant.entities.all if one.stands)
    entity.display_name = "Mallory"
    return {(ENTITY.label, entity.entity_id, "display_name")}


def _name(tenant: Tenant) -> Named:
    name, rows = next((name, rows) for name, rows in tenant.entities.by_name.items() if rows)
    rows.clear()
    return {("name", name, "entities")}


def _name_word(tenant: Tenant) -> Named:
    word, rows = next(iter(tenant.entities.by_word.items()))
    rows.clear()
    return {("word of a name", word, "entities")}


def _mention(tenant: Tenant) -> Named:
    stands = tenant.events.table["stands"]
    entity = next(one for one in tenant.entities.all if any(stands[e] for e in one.mentions))
    entity.mentions.remove(next(e for e in entity.mentions if stands[e]))
    return {(ENTITY.label, entity.entity_id, "mentions")}


def _fact(tenant: Tenant) -> Named:
    entity = next(one for one in tenant.entities.all if one.facts)
    entity.facts[0] = entity.facts[0]._replace(confidence=2.0)
    return {(RELATES_TO.type, entity.entity_id, "facts")}


def _same(tenant: Tenant) -> Named:
    entities = tenant.entities.all
    entity = next(one for one in entities if one.same)
    other = next(iter(entity.same))
    del entity.same[other]
    return {(SAME_AS.type, entity.entity_id, entities[other].entity_id)}


def _member(tenant: Tenant) -> Named:
    entity = next(one for one in tenant.entities.all if one.communities)
    entity.communities.clear()
    return {(MEMBER_OF.type, entity.entity_id, "communities")}


def _community(tenant: Tenant) -> Named:
    own_id, rows = next((own_id, rows) for own_id, rows in tenant.members.items() if rows)
    rows.clear()
    return {(COMMUNITY.label, own_id, "members")}


def _summary(tenant: Tenant) -> Named:
    own_id, derived = next((i, one) for i, one in tenant.summaries.items() if one.stands)
    derived.user_ids = ("mallory",)
    return {(SUMMARY.label, own_id, "user_ids")}


def _part(tenant: Tenant) -> Named:
    own_id, parts = next((i, parts) for i, parts in tenant.below.items() if parts)
    parts.pop()
    return {(SUMMARIZES.type, f"{SUMMARY.label} {own_id}", "out")}


def _link(tenant: Tenant) -> Named:
    own_id, links = next((i, links) for i, links in tenant.links.items() if links)
    links.clear()
    return {(LINKED_TO.type, own_id, "out")}


DAMAGES: Final[dict[str, Callable[[Tenant], Named]]] = {
    "a vector": _vector,
    "a user": _user,
    "a time": _number("occurred_ms", 1),
    "an importance": _number("importance", 1),
    "a word": _word,
    "a text": _text,
    "an order": _order,
    "an edge too many": _edge_more,
    "an edge too few": _edge_less,
    "an edge's value": _edge_value,
    "an entity": _entity,
    "a name": _name,
    "a word of a name": _name_word,
    "a mention": _mention,
    "a fact": _fact,
    "a sameness": _same,
    "a membership": _member,
    "a community": _community,
    "a summary": _summary,
    "a part": _part,
    "a link": _link,
}
