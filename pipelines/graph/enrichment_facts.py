"""What Stage 2 wants to know of graph and ledger, gathered within its transaction."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from threading import Lock
from typing import Any

from enrichment.features import Features, features
from enrichment.ports import PayloadResolver
from enrichment.resolution import KnownEntity
from enrichment.similarity import THRESHOLD, Pair, cosine, pair, pairs_within
from enrichment.stage import (
    Derived,
    EntityKey,
    EventKey,
    Facts,
    HistoryKey,
    Member,
    newcomers,
    vector_of,
    wanted_groups,
    wanted_links,
)
from pipelines.graph import enrichment_cypher as cypher
from pipelines.graph.writer import GraphTransaction
from pipelines.ledger.ledger import Ledger
from projections.errors import UndecodableEntry, UpstreamDeadLetter
from projections.events import decode_event
from projections.identity import partition_of
from projections.schema import ENTITY, EVENT
from projections.structural import Link, SessionKey
from projections.system_events import is_system_event

REMEMBERED = 50_000
"""Features kept in memory, some 500 bytes each: they never change, so they are never stale."""

_NEWEST = 512
"""Events of this worker whose transactions may not be visible to one another yet."""


class RememberedFeatures:
    """Features of events by key: an exact function of the event, read from the ledger when new."""

    def __init__(
        self,
        ledger: Ledger,
        resolver: PayloadResolver | None = None,
        *,
        most: int = REMEMBERED,
    ) -> None:
        self._ledger = ledger
        self._resolver = resolver
        self._most = most
        self._known: OrderedDict[EventKey, Features | None] = OrderedDict()
        self._guard = Lock()

    def remember(self, batch: Iterable[Derived]) -> None:
        """Take in what was just derived."""
        with self._guard:
            for one in batch:
                if one.features is not None:
                    self._put(one.event.key, one.features)

    def of(self, keys: Iterable[EventKey]) -> dict[EventKey, Features | None]:
        """Features of each; None for an event that the ledger does not hold, or cannot decode."""
        wanted = list(dict.fromkeys(keys))
        with self._guard:
            found = {key: self._known[key] for key in wanted if key in self._known}
            for key in found:
                self._known.move_to_end(key)
        missing = [key for key in wanted if key not in found]
        if missing:
            read = self._read(missing)
            with self._guard:
                for key, value in read.items():
                    self._put(key, value)
            found |= read
        return found

    def _put(self, key: EventKey, value: Features | None) -> None:
        self._known[key] = value
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)

    def _read(self, keys: Sequence[EventKey]) -> dict[EventKey, Features | None]:
        read: dict[EventKey, Features | None] = dict.fromkeys(keys)
        for key, entry in self._ledger.find_many(keys).items():
            try:
                event = decode_event(entry.data)
            except UndecodableEntry:
                continue
            content = None
            if event.payload is None and event.payload_ref and self._resolver is not None:
                content = self._resolver.resolve(event.payload_ref)
            read[key] = features(event, content)
        return read


class EnrichmentFacts:
    """Gathers `enrichment.stage.Facts`; its call is the stage's `gather`.

    Args:
        remembered: features of the events around the batch.
        partitions: of the ledger.
        upstream: the stage whose dead letters explain an event that has no node.
        filtered: whether the vector index searches within a tenant.
    """

    def __init__(
        self,
        remembered: RememberedFeatures,
        *,
        partitions: int,
        upstream: str,
        filtered: bool,
    ) -> None:
        self._remembered = remembered
        self._partitions = partitions
        self._upstream = upstream
        self._filtered = filtered
        self._newest: OrderedDict[EventKey, bytes] = OrderedDict()
        self._guard = Lock()

    def __call__(self, transaction: GraphTransaction, batch: Sequence[Derived]) -> Facts:
        """Read what the batch wants; slow searches first, locks last.

        Raises:
            UpstreamDeadLetter: an event has no node because the projection could not fold it.
        """
        self._remembered.remember(batch)
        present = self._present(transaction, batch)
        events = [one for one in batch if one.event.key in present]
        # Who is alike depends on who was there first. An event that is folded once more (replay,
        # rebuild in place) keeps what was found then: a second search would find a little more.
        searched = [
            one for one in events if transaction.advanced or present[one.event.key] != one.model
        ]
        similar = self._similar(transaction, searched)
        entities, near = self._near_entities(transaction, events)
        stretches = self._stretches(transaction, events)
        histories = self._histories(transaction, batch)
        ends = {(found.tenant, end) for found in similar for end in (found.first, found.second)}
        edges, parted = self._similar_edges(transaction, ends)
        return Facts(
            present=present.keys(),
            stretches=stretches,
            histories=histories,
            similar=[found for found in similar if found[:3] not in parted],
            edges=edges,
            entities=entities,
            near=near,
        )

    def _present(
        self, transaction: GraphTransaction, batch: Sequence[Derived]
    ) -> dict[EventKey, str | None]:
        """The batch's events that have a node, and the model of the vector it has already."""
        keys = [list(one.event.key) for one in batch if not is_system_event(one.event.event_type)]
        rows = transaction.ask(cypher.PRESENT_EVENTS, {"keys": keys}) if keys else []
        present = {(row["tenant"], row["event_id"]): row["embedding_model"] for row in rows}
        missing = [key for key in map(tuple, keys) if key not in present]
        if missing and transaction.dead_letters:
            for partition in sorted({self._partition(one) for one in batch}):
                for letter in transaction.dead_letters_of(self._upstream, partition):
                    if (letter["tenant"], letter["event_id"]) in missing:
                        raise UpstreamDeadLetter(
                            reason="blocked",
                            stage=self._upstream,
                            event_id=str(letter["event_id"]),
                        )
        return present  # who else is missing was forgotten

    def _partition(self, one: Derived) -> int:
        return partition_of(one.event.tenant, one.event.session_id, self._partitions)

    # -- the chains around the batch ---------------------------------------------------------------

    def _stretches(
        self, transaction: GraphTransaction, events: Sequence[Derived]
    ) -> dict[SessionKey, list[list[Member]]]:
        batch = wanted_links(events)
        wanted = list(batch.items())
        rows: dict[SessionKey, list[list[_Row]]] = {}
        while wanted:
            windows = [_window(session, links, batch[session]) for session, links in wanted]
            found = _around(transaction, windows)
            again = []
            for (session, links), row in zip(wanted, found, strict=True):
                if len(links) > 1 and len(row) >= cypher.STRETCH:
                    # early and late events of a long session: what lies between is not needed
                    middle = len(links) // 2
                    again += [(session, links[:middle]), (session, links[middle:])]
                else:
                    rows.setdefault(session, []).append(row)
            wanted = again
        known = self._remembered.of(
            (session[0], row[1])
            for session, stretches in rows.items()
            for stretch in stretches
            for row in stretch
        )
        return {
            session: [
                sorted(
                    Member(Link(ms, event_id), known[session[0], event_id], enriched, gone)
                    for ms, event_id, enriched, gone in stretch
                )
                for stretch in stretches
            ]
            for session, stretches in rows.items()
        }

    # -- facts -------------------------------------------------------------------------------------

    def _histories(
        self, transaction: GraphTransaction, batch: Sequence[Derived]
    ) -> dict[HistoryKey, list[str]]:
        keys = sorted(wanted_groups(batch))
        if not keys:
            return {}
        rows = transaction.ask(cypher.LOCK_HISTORIES, {"keys": [list(key) for key in keys]})
        return {(row["tenant"], row["history_id"]): row["entries"] for row in rows}

    # -- neighbours --------------------------------------------------------------------------------

    def _similar(self, transaction: GraphTransaction, events: Sequence[Derived]) -> list[Pair]:
        """Pairs of the batch's events with earlier ones and with one another.

        The index shows what was committed when it is asked. Two transactions that run at the same
        moment do not see each other's events, so the newest ones of this worker are compared too.
        """
        vectors = {one.event.key: one.embedding for one in events if one.embedding is not None}
        if not vectors:
            return []
        found = [
            pair(tenant, event_id, row[0], cosine(row[1]))
            for tenant, event_id, near in self._nearest(transaction, EVENT, vectors)
            for row in near
        ]
        with self._guard:
            newest = dict(self._newest)
            self._newest.update(vectors)
            while len(self._newest) > _NEWEST:
                self._newest.popitem(last=False)
        found += [
            one
            for one in pairs_within(newest | vectors)
            if (one.tenant, one.first) in vectors or (one.tenant, one.second) in vectors
        ]
        return [one for one in found if one.cosine > THRESHOLD]

    def _near_entities(
        self, transaction: GraphTransaction, events: Sequence[Derived]
    ) -> tuple[set[EntityKey], dict[EntityKey, list[tuple[KnownEntity, float]]]]:
        """Which entities of the batch are known, and what each of the others is near to."""
        mentioned = newcomers(events, frozenset())
        if not mentioned:
            return set(), {}
        rows = transaction.ask(
            cypher.KNOWN_ENTITIES, {"keys": [list(key) for key in sorted(mentioned)]}
        )
        known = {(row["tenant"], row["entity_id"]) for row in rows}
        new = {key: one for key, one in mentioned.items() if key not in known}
        near: dict[EntityKey, list[tuple[KnownEntity, float]]] = {}
        names = [[*key, one.entity.canonical_name] for key, one in sorted(new.items())]
        for row in transaction.ask(cypher.NAMESAKES, {"rows": names}) if names else ():
            namesake = _known(row["entity_id"], row["name"], row["entity_type"], row["subtype"])
            near.setdefault((row["tenant"], row["id"]), []).append((namesake, 1.0))
        vectors = {key: one.vector for key, one in new.items() if one.vector is not None}
        for tenant, own_id, found in self._nearest(transaction, ENTITY, vectors):
            near.setdefault((tenant, own_id), []).extend(
                (_known(other, canonical, entity_type, subtype), cosine(score))
                for other, score, canonical, entity_type, subtype in found
            )
        return known, near

    def _nearest(
        self, transaction: GraphTransaction, row: Any, vectors: Mapping[tuple[str, str], bytes]
    ) -> Iterable[tuple[str, str, list[list[Any]]]]:
        if not vectors:
            return
        text = cypher.nearest_text(row, filtered=self._filtered)
        rows = [[*key, vector_of(vector)] for key, vector in sorted(vectors.items())]
        asked = iter(rows)
        while chunk := list(islice(asked, 100)):
            version = 25 if self._filtered else None
            for found in transaction.ask(text, {"rows": chunk}, version=version):
                yield found["tenant"], found["id"], found["near"]

    def _similar_edges(
        self, transaction: GraphTransaction, keys: Iterable[EventKey]
    ) -> tuple[dict[EventKey, dict[str, float]], set[tuple[str, str, str]]]:
        """The edges that events have, and the pairs of theirs that were dropped for good."""
        ordered = [list(key) for key in sorted(keys)]
        if not ordered:
            return {}, set()
        rows = transaction.ask(cypher.LOCK_SIMILAR, {"keys": ordered})
        return (
            {(row["tenant"], row["event_id"]): dict(row["edges"]) for row in rows},
            {(row["tenant"], row["event_id"], other) for row in rows for other in row["parted"]},
        )


def _known(own_id: str, name: str, entity_type: Any, subtype: str | None) -> KnownEntity:
    return KnownEntity(own_id, name, entity_type, subtype, exact=any(map(str.isdigit, name)))


_Row = tuple[int, str, bool, bool]
"""Of a chain: when it occurred (ms), event id, enriched before, forgotten."""


def _around(transaction: GraphTransaction, windows: Sequence[Sequence[Any]]) -> list[list[_Row]]:
    """What stands around each window, in no order; what was forgotten keeps its place."""
    found: list[dict[str, _Row]] = [
        {event_id: (ms, event_id, enriched, False) for ms, event_id, enriched in row["events"]}
        for row in transaction.ask(cypher.STRETCHES, {"windows": windows})
    ]
    if transaction.has_tombstones:
        rows = transaction.ask(cypher.FORGOTTEN_STRETCHES, {"windows": windows})
        for around, row in zip(found, rows, strict=True):
            for ms, event_id, _ in row["events"]:
                around.setdefault(event_id, (ms, event_id, False, True))
    return [list(around.values()) for around in found]


def _window(session: SessionKey, links: Sequence[Link], batch: Sequence[Link]) -> list[Any]:
    return [*session, *links[0], *links[-1], [link.event_id for link in batch]]
