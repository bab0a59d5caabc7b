"""What Stage 2 wants to know of graph and ledger, gathered within its transaction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from threading import Lock
from typing import Final

from enrichment.causality import WINDOW
from enrichment.derived import Derived
from enrichment.features import Features, features
from enrichment.outcomes import Changes
from enrichment.persons import Bond
from enrichment.ports import PayloadResolver
from enrichment.resolution import KnownEntity
from enrichment.stage import (
    EntityKey,
    EventKey,
    Facts,
    HistoryKey,
    Member,
    Undecided,
    newcomers,
    wanted_bonds,
    wanted_groups,
    wanted_links,
    written,
)
from enrichment.vectors import vector_of
from enrichment.writes import UNDECLARED, Tools
from pipelines.graph.port import Transaction
from pipelines.graph.rows import End, FoundNode, Span
from pipelines.ledger.ledger import Ledger
from pipelines.work.gather.likeness import Likeness, hold_alike
from projections.errors import UndecodableEntry, UpstreamDeadLetter
from projections.events import is_system_event
from projections.identity import Key, Link, SessionKey, partition_of
from projections.schema import ENTITY, EVENT, FACT_HISTORY, FORGOTTEN, SAME_AS

REMEMBERED = 50_000
"""Features kept in memory, some 500 bytes each: they never change, so they are never stale."""
STRETCH: Final = 2_000
"""Events between the first and the last of a batch in a session that are read at once."""
NEIGHBOURS: Final = 24
"""Entities with the nearest names that one is compared with."""
# Stage 1 is ahead, and a dead letter of this stage is in the chain too: only what is enriched, or
# is now, counts, so that the graph depends on the enriched events and on nothing else.
_ENRICHED: Final = "importance_score"
_MODEL: Final = ("embedding_model",)
_CALLED: Final = ("canonical_name", "entity_type", "subtype")


class RememberedFeatures:
    """Features of events by key: an exact function of the event, read from the ledger when new.

    Args:
        ledger: that is read.
        resolver: of payloads behind a reference.
        tools: that are declared to write, or not to.
        most: events that are remembered.
        withdrawals: of the vault: another number once the key of an event may have gone.
    """

    def __init__(
        self,
        ledger: Ledger,
        resolver: PayloadResolver | None = None,
        *,
        tools: Tools = UNDECLARED,
        most: int = REMEMBERED,
        withdrawals: Callable[[], int] = lambda: 0,
    ) -> None:
        self._ledger = ledger
        self._withdrawals = withdrawals
        self._withdrawn = withdrawals()
        self._resolver = resolver
        self._tools = tools
        self._most = most
        self._known: OrderedDict[EventKey, Features | None] = OrderedDict()
        self._guard = Lock()

    def renew(self) -> bool:
        """Forget everything if keys were withdrawn since; whether it did."""
        withdrawn = self._withdrawals()
        with self._guard:
            if withdrawn == self._withdrawn:
                return False
            self._withdrawn = withdrawn
            self._known.clear()
            return True

    def remember(self, batch: Iterable[Derived]) -> None:
        """Take in what was just derived."""
        with self._guard:
            for derived in batch:
                if derived.features is not None:
                    self._put(derived.event.key, derived.features)

    def of(self, keys: Iterable[EventKey]) -> dict[EventKey, Features | None]:
        """Features of each; None for an event that the ledger does not hold, or cannot decode."""
        wanted = list(dict.fromkeys(keys))
        with self._guard:
            known_features = {key: self._known[key] for key in wanted if key in self._known}
            for key in known_features:
                self._known.move_to_end(key)
        missing = [key for key in wanted if key not in known_features]
        if missing:
            read = self._read(missing)
            with self._guard:
                for key, value in read.items():
                    self._put(key, value)
            known_features |= read
        return known_features

    def _put(self, key: EventKey, value: Features | None) -> None:
        self._known[key] = value
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def _read(self, keys: Sequence[EventKey]) -> dict[EventKey, Features | None]:
        read: dict[EventKey, Features | None] = dict.fromkeys(keys)
        for key, entry in self._ledger.find_many(keys).items():
            try:
                event = entry.event()
            except UndecodableEntry:
                continue
            content = None
            if event.payload is None and event.payload_ref and self._resolver is not None:
                content = self._resolver.resolve(event.payload_ref)
            at_ms = entry.position.ms
            read[key] = features(event, content, position_ms=at_ms, tools=self._tools)
        return read


class EnrichmentFacts:
    """Gathers `enrichment.stage.Facts`: the stage's `gather`, and its `gather_to_decide`.

    Args:
        remembered: features of the events around the batch.
        partitions: of the ledger.
        upstream: the stage whose dead letters explain an event that has no node.
    """

    def __init__(self, remembered: RememberedFeatures, *, partitions: int, upstream: str) -> None:
        self._remembered = remembered
        self._partitions = partitions
        self._upstream = upstream
        self._likeness = Likeness()

    def to_apply(self, transaction: Transaction, batch: Sequence[Derived]) -> Facts:
        """Read what the batch wants, and nothing that only decisions are made of.

        Raises:
            UpstreamDeadLetter: an event has no node because the projection could not fold it.
        """
        return self._facts(transaction, batch, decides=False)

    def to_decide(self, transaction: Transaction, batch: Sequence[Derived]) -> Facts:
        """Read all that the batch wants. Raises as `to_apply` does."""
        return self._facts(transaction, batch, decides=True)

    def _facts(self, transaction: Transaction, batch: Sequence[Derived], *, decides: bool) -> Facts:
        """Slow searches first, locks last."""
        self._remembered.renew()
        self._remembered.remember(batch)
        if not transaction.advanced:  # nodes of the batch are locked at once
            hold_alike(transaction, {one.event.tenant for one in batch})
        present = self._present(transaction, batch)
        forgotten, blank = _tombstones(transaction, batch, present.keys())
        events = [one for one in batch if one.event.key in present]
        placed = [one for one in batch if one.event.key in present or one.event.key in forgotten]
        near_entities = _near_entities(transaction, events) if decides else None
        stretches = self._stretches(transaction, placed, forgotten)
        writes = written(placed, stretches)
        undecided = None
        if near_entities is not None:
            names = {wanted_bond.name for wanted_bond in wanted_bonds(events, writes)}
            undecided = Undecided(*near_entities, _bonds(transaction, names))
        near, edges = self._likeness.neighbours(transaction, placed)
        histories = _histories(transaction, batch, writes)
        return Facts(
            present=present.keys(),
            forgotten=forgotten,
            blank=blank,
            stretches=stretches,
            histories=histories,
            near=near,
            edges=edges,
            undecided=undecided,
        )

    def _present(
        self, transaction: Transaction, batch: Sequence[Derived]
    ) -> dict[EventKey, str | None]:
        """The batch's events that have a node, and the model of the vector it has already."""
        keys = _ordinary(batch)
        # One that is folded again may be on its way out: whoever takes it away waits for the lock.
        read = transaction.nodes if transaction.advanced else transaction.lock_nodes
        present = _visible(read(EVENT.label, sorted(keys), _MODEL)) if keys else {}
        missing = {key for key in keys if key not in present}
        if missing:
            # It may come back from a dead letter just now; until its commit is over, nobody knows.
            concerned = (one for one in batch if one.event.key in missing)
            partitions = sorted(set(map(self._partition, concerned)))
            for partition in partitions:
                transaction.lock(self._upstream, partition)
            present |= _visible(read(EVENT.label, sorted(missing), _MODEL))
            self._require_folded(transaction, partitions, missing - present.keys())
        return present  # who else is missing was forgotten

    def _require_folded(
        self, transaction: Transaction, partitions: Iterable[int], missing: Set[EventKey]
    ) -> None:
        if not missing or not transaction.dead_letters:
            return
        for partition in partitions:
            for letter in transaction.dead_letters_of(self._upstream, partition):
                if (letter["tenant"], letter["event_id"]) in missing:
                    raise UpstreamDeadLetter(
                        reason="blocked",
                        stage=self._upstream,
                        event_id=str(letter["event_id"]),
                    )

    def _partition(self, derived: Derived) -> int:
        return partition_of(derived.event.tenant, derived.event.session_id, self._partitions)

    # -- the chains around the batch ---------------------------------------------------------------

    def _stretches(
        self, transaction: Transaction, events: Sequence[Derived], forgotten: Set[EventKey]
    ) -> dict[SessionKey, list[list[Member]]]:
        batch = wanted_links(events)
        batch_ids = {
            session: frozenset(link.event_id for link in links) for session, links in batch.items()
        }
        wanted: list[tuple[SessionKey, Sequence[Link]]] = list(batch.items())
        places: dict[SessionKey, list[list[_Place]]] = {}
        while wanted:
            spans = [
                Span(session, links[0], links[-1], batch_ids[session]) for session, links in wanted
            ]
            again: list[tuple[SessionKey, Sequence[Link]]] = []
            for (session, links), around in zip(wanted, _around(transaction, spans), strict=True):
                if len(links) > 1 and len(around) >= STRETCH:
                    # early and late events of a long session: what lies between is not needed
                    middle = len(links) // 2
                    again += [(session, links[:middle]), (session, links[middle:])]
                else:
                    absent = [(link, True) for link in links if (session[0], link[1]) in forgotten]
                    places.setdefault(session, []).append(sorted({*around, *absent}))
            wanted = again
        features_of = self._remembered.of(
            (session[0], link.event_id)
            for session, stretches in places.items()
            for stretch in stretches
            for link, _ in stretch
        )
        return {
            session: [
                [
                    Member(
                        link,
                        features_of[session[0], link.event_id],
                        folded=not gone and link.event_id not in batch_ids[session],
                        gone=gone,
                    )
                    for link, gone in stretch
                ]
                for stretch in stretches
            ]
            for session, stretches in places.items()
        }


_Place = tuple[Link, bool]
"""Of a chain: a member, and whether it was forgotten."""


def _around(transaction: Transaction, spans: Sequence[Span]) -> list[list[_Place]]:
    """What stands around each span, sorted; what was forgotten after it was enriched has a place.

    All of it counts only where it is enriched, or is now.
    """

    def enriched(label: str) -> list[list[FoundNode]]:
        return transaction.stretch(
            label, spans, before=WINDOW, within=STRETCH, after=WINDOW, having=_ENRICHED
        )

    around: list[dict[str, _Place]] = [
        {member.key[1]: (_link(member), False) for member in members}
        for members in enriched(EVENT.label)
    ]
    if transaction.has_tombstones:
        for places, members in zip(around, enriched(FORGOTTEN.label), strict=True):
            for member in members:
                places.setdefault(member.key[1], (_link(member), True))
    return [sorted(places.values()) for places in around]


def _link(member: FoundNode) -> Link:
    return Link(member.values["occurred_at"], member.key[1])


def _visible(nodes: Mapping[Key, FoundNode]) -> dict[EventKey, str | None]:
    """The model of the vector of each event that has a node."""
    return {
        (key[0], key[1]): node.values["embedding_model"]
        for key, node in nodes.items()
        if node.visible
    }


def _ordinary(batch: Sequence[Derived]) -> list[EventKey]:
    return [one.event.key for one in batch if not is_system_event(one.event.event_type)]


def _tombstones(
    transaction: Transaction, batch: Sequence[Derived], present: Set[EventKey]
) -> tuple[set[EventKey], set[EventKey]]:
    """The batch's events that left, or are about to come back, and the tombstones to complete.

    An event that is folded for the first time and is there was never forgotten.
    """
    keys = [k for k in _ordinary(batch) if not (transaction.advanced and k in present)]
    if not keys or not transaction.has_tombstones:
        return set(), set()
    shown = ("session_id", _ENRICHED, "vector")
    nodes = transaction.nodes(FORGOTTEN.label, keys, shown)
    forgotten = {key for key in keys if key in nodes and key not in present}
    speaking = {one.event.key for one in batch if one.embedding is not None}
    blank = {
        key
        for key in keys
        if key in nodes
        for session_id, importance, vector in [nodes[key].values.values()]
        if session_id is None or importance is None or (vector is None and key in speaking)
    }
    return forgotten, blank


def _histories(
    transaction: Transaction, batch: Sequence[Derived], writes: Changes
) -> dict[HistoryKey, Sequence[str]]:
    """What was said of the batch's facts; whoever adds to a history holds its lock."""
    keys = sorted(wanted_groups(batch, writes))
    if not keys:
        return {}
    nodes = transaction.lock_nodes(FACT_HISTORY.label, keys, ("entries",), make=True)
    return {(key[0], key[1]): node.values["entries"] or () for key, node in nodes.items()}


def _bonds(transaction: Transaction, names: Iterable[EntityKey]) -> dict[EntityKey, list[Bond]]:
    """The users that each name was joined with, or parted from."""
    wanted = sorted(names)
    if not wanted:
        return {}
    told = ("retracted", "justification")
    around = transaction.edges(SAME_AS.type, wanted, told, by=End.EITHER)
    others = {
        key: [(edge.target if edge.source == key else edge.source, edge) for edge in edges]
        for key, edges in around.items()
    }
    ends = sorted({other for edges in others.values() for other, _ in edges})
    nodes = transaction.nodes(ENTITY.label, ends, ("entity_type",)) if ends else {}
    return {
        (key[0], key[1]): [
            Bond(
                (other[0], other[1]),
                not edge.values["retracted"],
                edge.values["justification"] or "",
            )
            for other, edge in edges
            if other in nodes and nodes[other].values["entity_type"] == "user"
        ]
        for key, edges in others.items()
    }


def _near_entities(
    transaction: Transaction, events: Sequence[Derived]
) -> tuple[set[EntityKey], dict[EntityKey, list[tuple[KnownEntity, float]]]]:
    """Which entities of the batch are known, and what each of the others is near to."""
    mentioned = newcomers(events, frozenset())
    if not mentioned:
        return set(), {}
    nodes = transaction.nodes(ENTITY.label, sorted(mentioned))
    present = {(key[0], key[1]) for key, node in nodes.items() if node.visible}
    new = {key: newcomer for key, newcomer in sorted(mentioned.items()) if key not in present}
    near: dict[EntityKey, list[tuple[KnownEntity, float]]] = {}
    namesakes = transaction.find(
        ENTITY.label,
        ("tenant", "canonical_name"),
        ((tenant, newcomer.entity.canonical_name) for (tenant, _), newcomer in new.items()),
        _CALLED,
    )
    for key, newcomer in new.items():
        for node in namesakes.get((key[0], newcomer.entity.canonical_name), ()):
            if node.key != key:
                near.setdefault(key, []).append((_known(node), 1.0))
    vectors = {key: newcomer.vector for key, newcomer in new.items() if newcomer.vector is not None}
    for key, alike in _nearest(transaction, ENTITY.label, vectors, _CALLED).items():
        near.setdefault(key, []).extend((_known(node), cosine) for node, cosine in alike)
    return present, near


def _nearest(
    transaction: Transaction,
    label: str,
    vectors: Mapping[tuple[str, str], bytes],
    properties: Sequence[str] = (),
) -> dict[tuple[str, str], list[tuple[FoundNode, float]]]:
    numbers_of: dict[tuple[str, str], list[float]] = {
        key: numbers.tolist()
        for key, one in vectors.items()
        if (numbers := vector_of(one)) is not None
    }
    answer = transaction.nearest(label, numbers_of, NEIGHBOURS, properties) if numbers_of else {}
    return {(key[0], key[1]): near for key, near in answer.items()}


def _known(node: FoundNode) -> KnownEntity:
    name = node.values["canonical_name"]
    return KnownEntity(
        entity_id=node.key[1],
        canonical_name=name,
        entity_type=node.values["entity_type"],
        subtype=node.values["subtype"],
        exact=any(map(str.isdigit, name)),
    )
