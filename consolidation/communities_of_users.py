"""Whose facts an entity is known by: the one user's, or everybody's.

Communities are made of the facts of one user, or of those without a user: what one user said is
never told in another's community. An entity is at home with the user whose facts alone name it; one
that facts of several users, or facts without a user, name is at home with everybody. Only facts
between entities of one home join them. So the communities of all users are found in one graph, and
an entity is in one community at most.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from consolidation.label_propagation import EntityLink, link_id
from enrichment.resolution import components
from projections.schema import RELATES_TO, SAME_AS

EVERYBODY = ""
"""Home of what facts without a user, or of several users, name. No user id is empty."""
LITERAL = "value"
"""Subtype of what is no entity of its own."""


class NamedEntity(NamedTuple):
    """An entity, and whose facts name it.

    Attributes:
        entity_id: its hash.
        users: of facts that name it, EVERYBODY for those without a user; two are enough.
        same: entities that are the same.
    """

    entity_id: str
    users: Collection[str]
    same: Collection[str] = ()


class LinkingFact(NamedTuple):
    """A fact that holds, as far as it joins entities.

    Attributes:
        source_id: of the entity it is about.
        target_id: of the other.
        literal: whether that is no entity of its own.
        user: whose fact it is, or EVERYBODY.
        confidence: 0 to 1.
        key: what tells it from others of the same two entities.
    """

    source_id: str
    target_id: str
    literal: bool
    user: str
    confidence: float
    key: tuple[str, ...]


def homes(entities: Iterable[NamedEntity]) -> dict[str, str]:
    """The home of each entity that a fact names; of those that are the same it is one.

    Args:
        entities: of one tenant, in any order.
    """
    users: dict[str, frozenset[str]] = {}
    edges: list[tuple[str, str]] = []
    for one in entities:
        if one.users:
            users[one.entity_id] = frozenset(one.users)
        edges.extend((one.entity_id, other) for other in one.same)
    canonical = components(edges)
    together: dict[str, frozenset[str]] = {}
    for entity_id, named in users.items():
        first = canonical.get(entity_id, entity_id)
        together[first] = together.get(first, frozenset()) | named
    found = {
        first: next(iter(named)) if len(named) == 1 else EVERYBODY
        for first, named in together.items()
    }
    return {
        entity_id: found[first]
        for entity_id in (*users, *canonical)
        if (first := canonical.get(entity_id, entity_id)) in found
    }


def fact_links(facts: Iterable[LinkingFact], at_home: Mapping[str, str]) -> Iterator[EntityLink]:
    """The links of facts: between entities of the fact's home, or of one to itself."""
    for one in facts:
        ends = [
            end
            for end in (one.source_id, one.target_id)
            if at_home.get(end) == one.user and not (one.literal and end == one.target_id)
        ]
        if ends:
            own_id = link_id(RELATES_TO.type, one.source_id, one.target_id, *one.key)
            yield EntityLink(ends[0], ends[-1], one.confidence, own_id)


def same_links(entity: NamedEntity) -> Iterator[EntityLink]:
    """The links of an entity to those that are the same."""
    for other in entity.same:
        own_id = link_id(SAME_AS.type, entity.entity_id, other)
        yield EntityLink(entity.entity_id, other, 0.0, own_id, same=True)
