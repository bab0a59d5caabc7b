"""Whose words a graph shows to whom: what must hold of it, whatever was folded and decided.

The rule is that of the decision "Who may see what"; here it is written down a second time, from the
events that were appended, and without any of the product's reads.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, cast

import orjson

from enrichment.names import canonical_name, entity_id
from enrichment.payloads import ENTITY_CORRECTED, AliasDeclared, EntityCorrected, parse_statement
from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.events import SYSTEM_EVENTS, Event
from projections.operations import Key
from projections.schema import (
    COMMUNITY,
    ENTITY,
    EVENT,
    LINKED_TO,
    REFERENCES,
    RELATES_TO,
    SUMMARIZES,
    SUMMARY,
    TRAIT,
)

_NAME = re.compile(r"\b(?:[A-Z]|x_)\w{2,}")
"""What tests write names with, and words that are somebody's alone."""
_TOLD = {
    SUMMARY.label: ("content", "gist"),
    COMMUNITY.label: ("name", "summary"),
    TRAIT.label: ("name",),
}
"""What is put into words of what was made from events."""
Whose = Collection[str] | None
"""Users, as a node has them: none of them is everybody's, None is nobody's to see."""


class Said:
    """Whose the events of a tenant are, and whose names.

    Args:
        events: all that were ever appended for it, forgotten ones too; decisions are left out.
    """

    def __init__(self, events: Iterable[Event]) -> None:
        self.users: dict[str, str | None] = {}
        self.corrected: set[str] = set()  # ids of entities that a correction told everybody of
        self._names: dict[str | None, set[str]] = {}
        self._foreign: dict[tuple[str, ...], tuple[set[str], set[str], list[str]]] = {}
        for event in events:
            system = SYSTEM_EVENTS.get(event.event_type)
            if system is not None and not system.public:
                continue
            self.users[event.event_id] = event.user_id
            # what a person corrected is everybody's to see
            user_id, payload = event.user_id, event.payload or {}
            if event.event_type == ENTITY_CORRECTED:
                user_id = None
                told = parse_statement(ENTITY_CORRECTED, payload)
                if isinstance(told, EntityCorrected):
                    self.corrected.add(told.entity_id)
                if isinstance(told, AliasDeclared):
                    name = canonical_name(told.name)
                    self.corrected.add(entity_id(event.tenant, name, told.type))
            names = _NAME.findall(orjson.dumps(payload).decode())
            self._names.setdefault(user_id, set()).update(names)

    def foreign(self, text: object, user_ids: Collection[str]) -> list[str]:
        """Names and event ids in a text that others said, and neither these users nor nobody.

        A name is foreign as others write it, and in any case if these users do not know it.
        """
        whose = tuple(user_ids)
        if whose not in self._foreign:
            self._foreign[whose] = self._foreign_to(whose)
        spelled, unknown, ids = self._foreign[whose]
        words = set(re.findall(r"\w+", str(text)))
        return [
            *sorted(words & spelled),
            *sorted(word for word in words if canonical_name(word) in unknown),
            *(one for one in ids if one in str(text)),
        ]

    def _foreign_to(self, user_ids: Collection[str]) -> tuple[set[str], set[str], list[str]]:
        own: set[str] = set()
        other: set[str] = set()
        for user_id, names in self._names.items():
            (own if user_id is None or user_id in user_ids else other).update(names)
        unknown = {*map(canonical_name, other)} - {*map(canonical_name, own)}
        ids = [one for one, user in self.users.items() if user not in (None, *user_ids)]
        return other - own, unknown, ids


def broken_rules(graph: Graph, tenant: str, events: Iterable[Event]) -> list[str]:
    """What a graph shows to somebody whose it is not; in words, empty when all is well.

    Args:
        graph: that was folded.
        tenant: that is looked at.
        events: of that tenant, as `Said` takes them.
    """
    said = Said(events)
    return [
        *_texts(graph, tenant, said),
        *_sources(graph, tenant, said),
        *_proofs(graph, tenant, said),
        *_links(graph, tenant, said),
        *_entities(graph, tenant, said),
        *_facts(graph, tenant, said),
    ]


def _nodes(graph: Graph, tenant: str, label: str, names: Sequence[str]) -> Iterator[FoundNode]:
    stream = cast(Iterator[FoundNode], graph.stream(label, names, tenants=[tenant]))
    return (node for node in stream if node.visible)


def _edges(graph: Graph, tenant: str, type_: str, *names: str) -> Iterator[FoundEdge]:
    return cast(Iterator[FoundEdge], graph.stream(type_, names, tenants=[tenant]))


def _whose(graph: Graph, tenant: str, label: str) -> dict[Key, Whose]:
    nodes = _nodes(graph, tenant, label, ("user_ids",))
    return {node.key: node.values["user_ids"] for node in nodes}


def _texts(graph: Graph, tenant: str, said: Said) -> Iterator[str]:
    """No summary, and no community, has another's word or id, or names what is another's."""
    nodes = _nodes(graph, tenant, ENTITY.label, ("canonical_name",))
    called = {node.key[1]: node.values["canonical_name"] for node in nodes}
    for label, names in _TOLD.items():
        for node in _nodes(graph, tenant, label, (*names, "user_ids")):
            user_ids = node.values["user_ids"]
            if user_ids is None:
                continue
            for name in names:
                if words := said.foreign(_read(name, node.values[name]), user_ids):
                    yield f"{label} {name} of {user_ids} says {words}: {node.values[name]}"
            if label == SUMMARY.label:
                for entity in orjson.loads(node.values["gist"])["entities"]:
                    own_id = entity["entity_id"]
                    if own_id not in said.corrected and said.foreign(
                        called.get(own_id, ""), user_ids
                    ):
                        yield f"{label} of {user_ids} names the entity {entity}"


def _sources(graph: Graph, tenant: str, said: Said) -> Iterator[str]:
    """A summary is its sources' users', and made from nothing of anybody else's."""
    whose = _whose(graph, tenant, SUMMARY.label)
    for edge in _edges(graph, tenant, SUMMARIZES.type):
        user_ids = whose.get(edge.source)
        if user_ids is None:
            continue
        if edge.label == EVENT.label:
            user_id = said.users[edge.target[1]]
            apart = user_id is not None and user_id not in user_ids
        else:
            apart = edge.target in whose and whose[edge.target] != user_ids
        if apart:
            yield f"Summary of {user_ids} is made from {edge.target} of another"
    names = ("user_ids", "level", "source_event_ids")
    for node in _nodes(graph, tenant, SUMMARY.label, names):
        user_ids, level, event_ids = (node.values[name] for name in names)
        if user_ids is not None and level == 1:
            users = {said.users[one] for one in event_ids} - {None}
            if users != {*user_ids}:
                yield f"Summary says {user_ids}, its events are of {users}"


def _proofs(graph: Graph, tenant: str, said: Said) -> Iterator[str]:
    """What is derived of a user is proved by events of theirs alone."""
    for node in _nodes(graph, tenant, TRAIT.label, ("user_id", "event_ids")):
        users = {said.users.get(one) for one in node.values["event_ids"]}
        if users != {node.values["user_id"]}:
            yield f"Trait of {node.values['user_id']} is proved by events of {users}"


def _links(graph: Graph, tenant: str, said: Said) -> Iterator[str]:
    whose = _whose(graph, tenant, SUMMARY.label)
    for edge in _edges(graph, tenant, LINKED_TO.type, "evidence", "resolution_event_id"):
        source, target = whose.get(edge.source), whose.get(edge.target)
        if source is None or target is None:
            continue
        words = said.foreign([*edge.values.values()], source)
        if words or not {*target} <= {*source}:
            yield f"LINKED_TO leads from {source} to {target}, saying {words}"


def _entities(graph: Graph, tenant: str, said: Said) -> Iterator[str]:
    """An entity is written as its first user writes it, and a mention as its event's does."""
    names = ("name", "first_user_id", "first_event_id", "display_name")
    for node in _nodes(graph, tenant, ENTITY.label, names):
        first = node.values["first_event_id"]
        if first is None:
            continue
        user_id = node.values["first_user_id"]
        words = said.foreign(node.values["name"], _users(user_id))
        if words or said.users[first] != user_id:
            yield f"Entity {node.values} says {words}"
    for edge in _edges(graph, tenant, REFERENCES.type, "name"):
        user_id = said.users[edge.source[1]]
        if words := said.foreign(edge.values["name"], _users(user_id)):
            yield f"REFERENCES of {user_id} says {words}"


def _facts(graph: Graph, tenant: str, said: Said) -> Iterator[str]:
    names = ("user_id", "fact", "event_id", "supporting_event_ids")
    for edge in _edges(graph, tenant, RELATES_TO.type, *names):
        user_id = edge.values["user_id"]
        if words := said.foreign([*edge.values.values()], _users(user_id)):
            yield f"RELATES_TO of {user_id} says {words}"


def _users(user_id: str | None) -> tuple[str, ...]:
    return () if user_id is None else (user_id,)


def _read(name: str, text: str) -> object:
    """The values of a text that is an object, without its names."""
    return [*_values(orjson.loads(text))] if name == "gist" else text


def _values(item: Any) -> Iterator[str]:
    if isinstance(item, dict):
        for one in item.values():
            yield from _values(one)
    elif isinstance(item, list):
        for one in item:
            yield from _values(one)
    elif isinstance(item, str):
        yield item
