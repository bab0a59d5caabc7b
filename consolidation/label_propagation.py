"""Groups of entities that have more to do with each other than with the rest: label propagation.

Own sweeps rather than igraph, whose label propagation takes no bound (its fast variant is reported
not to end, igraph issue 2608), draws from process-wide randomness and is GPL in a 15 MB package.

Every entity begins as a label of its own, or with that of the community it was in; one after the
other, in an order that a hash of seed and id gives, each takes the label with the largest weight
among its neighbours (Raghavan, Albert and Kumara 2007). It keeps its label when none is larger, so
each change raises the integer weight that lies within labels: the sweeps end by themselves, and
MAX_SWEEPS bounds the tail. Entities that are the same are one node, so they are never apart.
Labels whose entities hang together no more are split in the end. All is a function of the *set* of
links, of the labels to begin with and of the seed: neither order nor chunks matter.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from projections.identity import SEPARATOR

MAX_SWEEPS = 20
DEFAULT_CHUNK_SIZE = 10_000
"""Edges that are read at once (S2)."""
LINK_ID_BYTES = 16
MAX_LINK_WEIGHT = 1_000
"""So that no sum of weights leaves 64 bits."""
WHOLE_WEIGHT = 10_000
"""Weights are summed as integers: sums of floats would depend on their order."""


Numbers = NDArray[np.int32]
Weights = NDArray[np.int64]


class EntityLink(NamedTuple):
    """An edge between two entities, read as undirected.

    A fact whose target is a literal (subtype `value`) is a link of its source to itself. It tells
    of its source, and joins nothing: as entities of their own, `economy` and `no` held 410 of 594
    entities of airline bookings together.

    Attributes:
        source_id, target_id: hashes of the entities.
        weight: 0 to MAX_LINK_WEIGHT, kept to four decimals; of a fact its confidence. 0: the link
            is known, and joins nothing. Of no matter when `same`.
        link_id: as `link_id` makes it; a second link with that id is the same link.
        same: the two are one and the same entity.
    """

    source_id: str
    target_id: str
    weight: float
    link_id: str
    same: bool = False


class EntityGraph(NamedTuple):
    """Links in arrays: about 32 bytes each, and 24 for each pair of neighbours.

    Attributes:
        entity_ids: sorted; all other arrays name an entity by its place in here.
        canonical: [entities] of each the first one that is the same.
        offsets: [entities + 1] where in `neighbours` those of an entity begin; those that are the
            same have theirs at the canonical one.
        neighbours, weights: [2 · pairs] canonical entities, and what links to them weigh together,
            in units of 1 / WHOLE_WEIGHT. No entity is its own neighbour.
        sources, targets, link_ids: [links] as they came, sorted by id, each once.
    """

    entity_ids: list[str]
    canonical: Numbers
    offsets: NDArray[np.int64]
    neighbours: Numbers
    weights: Weights
    sources: Numbers
    targets: Numbers
    link_ids: NDArray[np.bytes_]


class Labelling(NamedTuple):
    """Which entities belong together.

    Attributes:
        labels: [entities] equal for those of one group: the place of the group's first entity.
        sweeps: how often the entities were gone through, 1 to MAX_SWEEPS; 0 for none.
        visits: how many neighbours were looked at, in all.
        settled: whether no entity wanted another label in the end.
    """

    labels: Numbers
    sweeps: int
    visits: int
    settled: bool


def chunk_size(wanted: int) -> int:
    """How many edges to read at once: as asked, or the default when that is no number of edges.

    Whoever calls it warns when the two differ (S2).
    """
    return wanted if wanted > 0 else DEFAULT_CHUNK_SIZE


def link_id(edge_type: str, source_id: str, target_id: str, *key: str) -> str:
    """BLAKE2b-128 of an edge's type, ends and key, 32 hexadecimal digits."""
    text = SEPARATOR.join((edge_type, source_id, target_id, *key))
    return blake2b(text.encode(), digest_size=LINK_ID_BYTES).hexdigest()


def entity_graph(chunks: Iterable[Sequence[EntityLink]], alone: Iterable[str] = ()) -> EntityGraph:
    """The graph of all chunks, which are let go one by one.

    Args:
        chunks: links, in any order and any distribution, some perhaps twice.
        alone: entities that perhaps no link names.

    Raises:
        ValueError: a weight is out of range, or a link id is not 32 hexadecimal digits.
    """
    numbers: dict[str, int] = {}
    sources, targets, weights = array("i"), array("i"), array("q")
    link_ids = bytearray()
    for chunk in chunks:
        for link in chunk:
            sources.append(numbers.setdefault(link.source_id, len(numbers)))
            targets.append(numbers.setdefault(link.target_id, len(numbers)))
            weights.append(_SAME if link.same else _whole(link.weight))
            link_ids += _id_bytes(link.link_id)
    for entity_id in alone:
        numbers.setdefault(entity_id, len(numbers))
    entity_ids = sorted(numbers)
    places = np.empty(len(numbers), dtype=np.int32)
    places[[numbers[entity_id] for entity_id in entity_ids]] = np.arange(len(numbers))
    ids = np.frombuffer(bytes(link_ids), dtype=f"S{LINK_ID_BYTES}")
    whole = np.frombuffer(weights, dtype=np.int64)
    ends = [places[np.frombuffer(side, dtype=np.int32)] for side in (sources, targets)]
    once = _each_once(ids, whole)
    sources_once, targets_once = ends[0][once], ends[1][once]
    return _compact(entity_ids, sources_once, targets_once, weights=whole[once], link_ids=ids[once])


def propagate(
    graph: EntityGraph, *, seed: str = "", before: Mapping[str, str] | None = None
) -> Labelling:
    """Group the entities of a graph.

    Args:
        graph: of all links.
        seed: another one gives another order, and perhaps other groups.
        before: the community that an entity was in; groups then change only where the graph did.
    """
    labels = _first_labels(graph, before or {})
    sweeps, visits, settled = _sweep(graph, labels, _draws(graph, seed))
    pieces, looked_at = _pieces(graph, labels)
    return Labelling(pieces[graph.canonical], sweeps, visits + looked_at, settled)


_SAME = -1


def _whole(weight: float) -> int:
    # a NaN is not between anything
    if not 0 <= weight <= MAX_LINK_WEIGHT:
        raise ValueError(f"weight of a link: 0 to {MAX_LINK_WEIGHT:,}, not {weight}")
    return round(weight * WHOLE_WEIGHT)


def _id_bytes(text: str) -> bytes:
    raw = bytes.fromhex(text)
    if len(raw) != LINK_ID_BYTES:
        raise ValueError(f"id of a link: {2 * LINK_ID_BYTES} hexadecimal digits, not {text!r}")
    return raw


def _each_once(ids: NDArray[np.bytes_], weights: Weights) -> NDArray[np.intp]:
    """Places of the links by id; of several with one id the one with the largest weight."""
    order = np.lexsort((weights, ids))
    last = np.ones(len(order), dtype=np.bool_)
    if len(order) > 1:
        last[:-1] = ids[order[1:]] != ids[order[:-1]]
    return order[last]


def _compact(
    entity_ids: list[str],
    sources: Numbers,
    targets: Numbers,
    *,
    weights: Weights,
    link_ids: NDArray[np.bytes_],
) -> EntityGraph:
    count = len(entity_ids)
    same = weights == _SAME
    canonical = _canonical(count, sources[same], targets[same])
    link, other = canonical[sources].astype(np.int64), canonical[targets].astype(np.int64)
    joins = (weights > 0) & (link != other)
    pairs = np.minimum(link, other)[joins] * count + np.maximum(link, other)[joins]
    pairs, place = np.unique(pairs, return_inverse=True)
    sums = np.zeros(len(pairs), dtype=np.int64)
    np.add.at(sums, place, weights[joins])
    smaller, larger = pairs // max(count, 1), pairs % max(count, 1)
    begin, end = np.concatenate((smaller, larger)), np.concatenate((larger, smaller))
    order = np.lexsort((end, begin))
    offsets = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(begin, minlength=count), out=offsets[1:])
    return EntityGraph(
        entity_ids=entity_ids,
        canonical=canonical,
        offsets=offsets,
        neighbours=end[order].astype(np.int32),
        weights=np.concatenate((sums, sums))[order],
        sources=sources,
        targets=targets,
        link_ids=link_ids,
    )


def _canonical(count: int, ones: Numbers, others: Numbers) -> Numbers:
    """The first entity of each component of sameness (union-find with path halving)."""
    parents = list(range(count))

    def root(place: int) -> int:
        while parents[place] != place:
            parents[place] = parents[parents[place]]
            place = parents[place]
        return place

    for link, other in zip(ones.tolist(), others.tolist(), strict=True):
        first, second = sorted((root(link), root(other)))
        parents[second] = first
    return np.array([root(place) for place in range(count)], dtype=np.int32)


def _draws(graph: EntityGraph, seed: str) -> list[int]:
    """A number of 64 bits for each entity that has neighbours, from seed and id; 0 for others."""
    draws = [0] * len(graph.entity_ids)
    for place in np.nonzero(np.diff(graph.offsets))[0].tolist():
        text = f"{seed}{SEPARATOR}{graph.entity_ids[place]}"
        draws[place] = int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")
    return draws


def _first_labels(graph: EntityGraph, before: Mapping[str, str]) -> list[int]:
    """A label of its own for each canonical entity, or the first entity's of its community."""
    labels = list(range(len(graph.entity_ids)))
    labels_before: dict[int, str] = {}
    first: dict[str, int] = {}
    for place, canonical in enumerate(graph.canonical.tolist()):
        community = before.get(graph.entity_ids[place])
        if community is not None and canonical not in labels_before:
            labels_before[canonical] = community
            first.setdefault(community, canonical)
    for canonical, community in labels_before.items():
        labels[canonical] = first[community]
    return labels


def _sweep(graph: EntityGraph, labels: list[int], draws: list[int]) -> tuple[int, int, bool]:
    """Relabel in place; returns sweeps, visits, and whether it settled.

    Only entities are gone to whose neighbours changed since they were last gone to.
    """
    linked = np.nonzero(np.diff(graph.offsets))[0].tolist()
    order = sorted(linked, key=lambda place: (draws[place], place))
    waiting = bytearray(len(labels))
    for place in order:
        waiting[place] = 1
    visits = sweeps = 0
    while any(waiting) and sweeps < MAX_SWEEPS:
        sweeps += 1
        for place in order:
            if not waiting[place]:
                continue
            waiting[place] = 0
            neighbours, weights = _around(graph, place)
            visits += len(neighbours)
            label = _heaviest(place, labels, draws, around=(neighbours, weights))
            if label != labels[place]:
                labels[place] = label
                visits += len(neighbours)
                for neighbour in neighbours:
                    if labels[neighbour] != label:
                        waiting[neighbour] = 1
    return sweeps, visits, not any(waiting)


def _around(graph: EntityGraph, place: int) -> tuple[list[int], list[int]]:
    part = slice(int(graph.offsets[place]), int(graph.offsets[place + 1]))
    return graph.neighbours[part].tolist(), graph.weights[part].tolist()


def _heaviest(
    place: int, labels: list[int], draws: list[int], *, around: tuple[list[int], list[int]]
) -> int:
    """The label of the largest weight around: the present one if it is among those."""
    votes: dict[int, int] = {}
    for neighbour, weight in zip(*around, strict=True):
        label = labels[neighbour]
        votes[label] = votes.get(label, 0) + weight
    most = max(votes.values())
    if votes.get(labels[place]) == most:
        return labels[place]
    heaviest = [label for label, weight in votes.items() if weight == most]
    # each entity prefers another one: a label that all prefer would swallow the rest
    return min(heaviest, key=lambda label: (_mixed(draws[place], draws[label]), label))


def _mixed(draw: int, other: int) -> int:
    """64 bits that look drawn from both numbers (a multiplication, and its upper half folded)."""
    product = (draw ^ 0x9E3779B97F4A7C15) * (other | 1)
    return (product ^ product >> 64) & 0xFFFFFFFFFFFFFFFF


def _pieces(graph: EntityGraph, labels: list[int]) -> tuple[Numbers, int]:
    """Labels again, one for each piece that hangs together, and how many neighbours were read."""
    pieces = np.full(len(labels), -1, dtype=np.int32)
    visits = 0
    for first in range(len(labels)):
        if pieces[first] >= 0:
            continue
        pieces[first] = first
        open_places = [first]
        while open_places:
            neighbours, _ = _around(graph, open_places.pop())
            visits += len(neighbours)
            for neighbour in neighbours:
                if pieces[neighbour] < 0 and labels[neighbour] == labels[first]:
                    pieces[neighbour] = first
                    open_places.append(neighbour)
    return pieces, visits
