"""Communities of the entity graph: who is in them, which id they keep, what has changed.

A community is a group that label propagation found, of at least MIN_ENTITIES things: two that are
linked are told by their one fact, and one alone tells nothing. Names of one and the same entity
count as one thing.

A community that was recorded lives on in the group that holds most of it: recorded and found ones
are paired by the number of shared members, largest first, each at most once, and only if more than
half of the smaller of the two is shared. So members may come and go, the larger part of a split and
the larger part of a merger keep the id, and the other becomes new or goes. A new community is named
after the most central member it is born with; that member may leave it later.

Communities are made of the facts of one user, or of those without a user: what one user said is
never told in another's community. The owner of an entity is the user whose facts alone name it; one
that facts of several users, or facts without a user, name is shared. Only facts between entities of
one owner join them. So the communities of all users are found in one graph, and an entity is in one
community at most.

No model says what a community is about. Its name lists the most central members. Its summary says
what they are and tells the strongest facts among members, first those that bring in a member who
was not told of yet, so that one hub does not take all the room. Whole facts only: one that does not
fit is left out.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from itertools import count
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from consolidation.label_propagation import (
    LINK_ID_BYTES,
    WHOLE_WEIGHT,
    EntityGraph,
    EntityLink,
    Labelling,
    link_id,
)
from consolidation.payloads import (
    CHUNK_MEMBERS,
    MAX_SUMMARY_CHARACTERS,
    CommunityChunk,
    CommunityText,
)
from consolidation.sources import SHARED, Described, InnerFact, LinkingFact, NamedEntity
from enrichment.names import ID_DIGEST_BYTES, components
from projections.events import CONTROL
from projections.identity import SEPARATOR
from projections.schema import RELATES_TO, SAME_AS, VECTOR_DIMENSIONS

MIN_ENTITIES = 3
_NOWHERE = np.empty(0, dtype=np.intp)


class Member(NamedTuple):
    """An entity of a community.

    Attributes:
        entity_id: its hash.
        canonical_id: the smallest entity id of what is the same; often its own.
        centrality: the sum of the weights of its links within the community, those of all that are
            the same together.
    """

    entity_id: str
    canonical_id: str
    centrality: float


class Community(NamedTuple):
    """A group of entities.

    Attributes:
        members: most central first, those that are the same side by side.
        fingerprint: of its members and of the links among them.
    """

    members: tuple[Member, ...]
    fingerprint: str


class Changes(NamedTuple):
    """What a pass has to decide; ids, sorted. What is unchanged costs nothing more."""

    new: tuple[str, ...]
    changed: tuple[str, ...]
    gone: tuple[str, ...]


def communities(
    graph: EntityGraph, labelling: Labelling, *, min_entities: int = MIN_ENTITIES
) -> list[Community]:
    """The groups that are worth a node, largest first.

    Args:
        graph: that was labelled.
        labelling: of that graph.
        min_entities: how many different things a group has at least.
    """
    labels = labelling.labels
    things = np.bincount(labels[np.unique(graph.canonical)], minlength=len(labels))
    members = _by_label(labels, things >= min_entities)
    within = labels[graph.sources] == labels[graph.targets]
    places = np.nonzero(within)[0]
    links = _by_label(labels[graph.sources[places]], things >= min_entities)
    centrality = _centrality(graph, labels)
    worthwhile = []
    for label, entities in members.items():
        among = graph.link_ids[places[links.get(label, _NOWHERE)]]
        entity_ids = [graph.entity_ids[place] for place in entities.tolist()]
        worthwhile.append(
            Community(
                _members(graph, entities, centrality), fingerprint(entity_ids, _hexadecimal(among))
            )
        )
    return sorted(worthwhile, key=lambda community: (-len(community.members), community.members))


def fingerprint(entity_ids: Iterable[str], link_ids: Iterable[str]) -> str:
    """BLAKE3 over sorted member and edge ids (S2), 64 hexadecimal digits.

    It changes when members or links do, not when what is said of them does. Ids hold no control
    characters.
    """
    parts = ("\n".join(sorted(set(ids))) for ids in (entity_ids, link_ids))
    return blake3(SEPARATOR.join(parts).encode()).hexdigest()


def community_id(
    tenant: str, entity_id: str, attempt: int = 0, *, user_id: str | None = None
) -> str:
    """BLAKE2b-128 of (tenant, user, member it is named after, attempt), 32 hexadecimal digits.

    Args:
        tenant: of the community.
        entity_id: of the most central member when the community came to be.
        attempt: more than 0 when a community that was named after that member has the id.
        user_id: whose facts made it; None: facts without a user.
    """
    user = "-" if user_id is None else f"+{user_id}"  # no id can pass for absence
    text = SEPARATOR.join(("community", tenant, str(attempt), entity_id, user))
    return blake2b(text.encode(), digest_size=ID_DIGEST_BYTES).hexdigest()


def with_ids(
    groups: Iterable[Community],
    recorded: Mapping[str, Collection[str]],
    *,
    tenant: str,
    user_id: str | None = None,
) -> dict[str, Community]:
    """Communities by their ids.

    Args:
        groups: none shares a member with another.
        recorded: the members of those that the graph shows, by id.
        tenant: of all of them.
        user_id: whose facts made them.
    """
    ordered = sorted(groups, key=lambda group: group.members)
    recorded_ids = _kept_ids(ordered, recorded)
    named = {own_id: ordered[number] for number, own_id in recorded_ids.items()}
    for number, community in enumerate(ordered):
        if number in recorded_ids:
            continue
        first = community.members[0].canonical_id
        own_id = next(
            free
            for free in (community_id(tenant, first, n, user_id=user_id) for n in count())
            if free not in recorded and free not in named
        )
        named[own_id] = community
    return named


def community_changes(before: Mapping[str, str], after: Mapping[str, Community]) -> Changes:
    """What differs.

    Args:
        before: fingerprints of the recorded communities, by id.
        after: those that were found, by id.
    """
    both = sorted(before.keys() & after.keys())
    return Changes(
        new=tuple(sorted(after.keys() - before.keys())),
        changed=tuple(own_id for own_id in both if before[own_id] != after[own_id].fingerprint),
        gone=tuple(sorted(before.keys() - after.keys())),
    )


def _by_label(labels: np.ndarray, wanted: np.ndarray) -> dict[int, np.ndarray]:
    """Places of each label that is wanted, ascending."""
    order = np.argsort(labels, kind="stable")
    order = order[wanted[labels[order]]]
    first = np.unique(labels[order], return_index=True)
    parts = np.split(order, first[1][1:])
    return dict(zip(first[0].tolist(), parts, strict=False))


def _hexadecimal(link_ids: np.ndarray) -> list[str]:
    text = link_ids.tobytes().hex()
    width = 2 * LINK_ID_BYTES
    return [text[start : start + width] for start in range(0, len(text), width)]


def _centrality(graph: EntityGraph, labels: np.ndarray) -> np.ndarray:
    """[entities] what links each canonical entity to others of its label, in whole weights."""
    begins = np.repeat(np.arange(len(labels)), np.diff(graph.offsets))
    within = labels[begins] == labels[graph.neighbours]
    sums = np.zeros(len(labels), dtype=np.int64)
    np.add.at(sums, begins[within], graph.weights[within])
    return sums


def _members(
    graph: EntityGraph, entities: np.ndarray, centrality: np.ndarray
) -> tuple[Member, ...]:
    canonical = graph.canonical[entities]
    order = np.lexsort((entities, canonical, -centrality[canonical]))
    return tuple(
        Member(
            graph.entity_ids[place],
            graph.entity_ids[first],
            float(centrality[first]) / WHOLE_WEIGHT,
        )
        for place, first in zip(entities[order].tolist(), canonical[order].tolist(), strict=True)
    )


def _kept_ids(groups: list[Community], recorded: Mapping[str, Collection[str]]) -> dict[int, str]:
    """The recorded id of each found community that one lives on in, by its place."""
    lived_in = {entity_id: own_id for own_id, members in recorded.items() for entity_id in members}
    shared = Counter(
        (lived_in[member.entity_id], number)
        for number, community in enumerate(groups)
        for member in community.members
        if member.entity_id in lived_in
    )
    ids: dict[int, str] = {}
    given: set[str] = set()
    for (own_id, number), common in sorted(shared.items(), key=lambda pair: (-pair[1], pair[0])):
        smaller = min(len(recorded[own_id]), len(groups[number].members))
        if number not in ids and own_id not in given and 2 * common > smaller:
            ids[number] = own_id
            given.add(own_id)
    return ids


# -- decided ---------------------------------------------------------------------------------------


def community_chunks(
    community_id: str,
    community: Community,
    text: CommunityText,
    centroid: bytes | None,
    *,
    run_id: str,
    user_id: str | None = None,
) -> list[CommunityChunk]:
    """A community in chunks; the members by id, so that equal communities have equal chunks."""
    entity_ids = sorted(member.entity_id for member in community.members)
    starts = range(0, len(entity_ids), CHUNK_MEMBERS)
    return [
        CommunityChunk(
            community_id=community_id,
            run_id=run_id,
            chunk=chunk,
            chunks=len(starts),
            fingerprint=community.fingerprint,
            member_count=len(entity_ids),
            entity_ids=tuple(entity_ids[start : start + CHUNK_MEMBERS]),
            name=text.name if chunk == 0 else None,
            summary=text.summary if chunk == 0 else None,
            centroid=centroid if chunk == 0 else None,
            user_id=user_id if chunk == 0 else None,
            worded_by=text.worded_by if chunk == 0 else None,
        )
        for chunk, start in enumerate(starts)
    ]


# -- whose facts an entity is known by -------------------------------------------------------------


def owners_of(entities: Iterable[NamedEntity]) -> dict[str, str]:
    """The owner of each entity that a fact names; of those that are the same it is one.

    Args:
        entities: of one tenant, in any order.
    """
    users: dict[str, frozenset[str]] = {}
    edges: list[tuple[str, str]] = []
    for entity in entities:
        if entity.users:
            users[entity.entity_id] = frozenset(entity.users)
        edges.extend((entity.entity_id, other) for other in entity.same)
    canonical = components(edges)
    together: dict[str, frozenset[str]] = {}
    for entity_id, named in users.items():
        first = canonical.get(entity_id, entity_id)
        together[first] = together.get(first, frozenset()) | named
    owners = {
        first: next(iter(named)) if len(named) == 1 else SHARED for first, named in together.items()
    }
    return {
        entity_id: owners[first]
        for entity_id in (*users, *canonical)
        if (first := canonical.get(entity_id, entity_id)) in owners
    }


def fact_links(facts: Iterable[LinkingFact], owners: Mapping[str, str]) -> Iterator[EntityLink]:
    """The links of facts: between entities of the fact's user, or of one to itself."""
    for fact in facts:
        ends = [
            end
            for end in (fact.source_id, fact.target_id)
            if owners.get(end) == fact.user and not (fact.literal and end == fact.target_id)
        ]
        if ends:
            own_id = link_id(RELATES_TO.type, fact.source_id, fact.target_id, *fact.key)
            yield EntityLink(ends[0], ends[-1], fact.confidence, own_id)


def same_links(entity: NamedEntity) -> Iterator[EntityLink]:
    """The links of an entity to those that are the same."""
    for other in entity.same:
        own_id = link_id(SAME_AS.type, entity.entity_id, other)
        yield EntityLink(entity.entity_id, other, 0.0, own_id, same=True)


NAMED_MEMBERS = 3
DESCRIBED_MEMBERS = 12
"""How many of the most central members are worth reading for a text."""

_NO_LENGTH = 1e-6
_ANYTHING = "concept"
_SHOWN_NAME_CHARACTERS = 36
_SHOWN_KIND_CHARACTERS = 24
_SHOWN_FACT_CHARACTERS = 200


def community_text(
    community: Community, described: Mapping[str, Described], facts: Iterable[InnerFact]
) -> CommunityText:
    """Name and summary of a community.

    Args:
        community: whose they are.
        described: its most central members at least, by entity id; of what is the same the
            canonical one's name is shown. Those that are not described are counted.
        facts: the strongest among its members at least, in any order.
    """
    things = _things(community.members)
    shown = [
        described[thing] for thing in things if thing in described and _short(described[thing].name)
    ]
    shown = shown[:NAMED_MEMBERS]
    name = begin = f"{len(things):,} entities"
    if shown:
        name = _listed([_short(thing.name) for thing in shown])
        begin = _listed([f"{_short(thing.name)}{_kind(thing)}" for thing in shown])
        others = len(things) - len(shown)
        begin += f", with {others:,} more" if others else ""
    return CommunityText(name, _told(begin, community.members, facts))


def centroid(vectors: Iterable[bytes]) -> bytes | None:
    """The normalised mean of vectors.

    Args:
        vectors: of the members that have one, VECTOR_DIMENSIONS little-endian float32 each.

    Returns:
        A unit vector of the same form; None without vectors, or when they cancel out.

    Raises:
        ValueError: a vector has another length.
    """
    total = np.zeros(VECTOR_DIMENSIONS, dtype=np.float64)
    for vector in vectors:
        row = np.frombuffer(vector, dtype="<f4")
        if len(row) != VECTOR_DIMENSIONS:
            raise ValueError(f"vector of {len(row)} numbers, not {VECTOR_DIMENSIONS}")
        total += row
    length = float(np.linalg.norm(total))
    # what is left of vectors that cancel out is rounding, and points nowhere
    return (total / length).astype("<f4").tobytes() if length > _NO_LENGTH else None


def _things(members: Sequence[Member]) -> list[str]:
    """Canonical ids, most central first, each once."""
    return list(dict.fromkeys(member.canonical_id for member in members))


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _kind(entity: Described) -> str:
    """` (person)`; nothing for a concept, which could be anything."""
    kind = _short((entity.subtype or entity.entity_type).replace("_", " "), _SHOWN_KIND_CHARACTERS)
    return "" if kind == _ANYTHING else f" ({kind})"


def _short(text: str, longest: int = _SHOWN_NAME_CHARACTERS) -> str:
    """On one line, cut between words if that leaves enough."""
    line = " ".join(CONTROL.sub(" ", text).split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    head = cut.rsplit(" ", 1)[0]
    return f"{(head if 2 * len(head) > longest else cut).rstrip(' ,;:.')}…"


def _told(begin: str, members: Sequence[Member], facts: Iterable[InnerFact]) -> str:
    """The beginning, then facts as far as there is room."""
    text = begin
    for fact in _in_order(members, facts):
        joint = ": " if text == begin else "; "
        if len(text) + len(joint) + len(fact) + 1 <= MAX_SUMMARY_CHARACTERS:
            text = f"{text}{joint}{fact}"
    return f"{text}."


def _in_order(members: Sequence[Member], facts: Iterable[InnerFact]) -> list[str]:
    """Facts in words, each once: those that bring in another member, then the others."""
    canonical = {member.entity_id: member.canonical_id for member in members}
    place = {own_id: number for number, own_id in enumerate(_things(members))}
    ranked: list[tuple[tuple[float, bool, int, int, str], set[str], str]] = []
    for fact in facts:
        named = [end for end in (fact.source_id, fact.target_id) if end is not None]
        ends = {canonical[end] for end in named if end in canonical}
        words = _short(fact.fact, _SHOWN_FACT_CHARACTERS).rstrip(" .;")
        if len(ends) == len(named) and words:
            central = sum(place[end] for end in ends)
            literal = fact.target_id is None
            rank = (-fact.confidence, literal, -fact.support_count, central, words)
            ranked.append((rank, ends, words))
    told: set[str] = set()
    first: list[str] = []
    later: list[str] = []
    for _, ends, words in sorted(ranked, key=lambda fact: fact[0]):
        (later if ends <= told else first).append(words)
        told |= ends
    by_words = {words.casefold(): words for words in reversed(first + later)}
    return list(dict.fromkeys(by_words[words.casefold()] for words in first + later))
