"""Verify of Stage 2, event by event: properties, mentions, inferred causes, neighbours.

Events come in the chain's order, so the features of the last 200 are all that an event's inferred
causes need: memory is bounded by a chunk and that window. What differs is a candidate. It is
judged again with the lock of the enrichment's checkpoint held and up to where that stands: a late
event may have changed the causes of those behind it, and the stream is no snapshot.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from enrichment import NAME
from enrichment.causality import WINDOW
from enrichment.features import Features
from enrichment.similarity import CAP
from enrichment.stage import EntityKey, EventKey, HistoryKey
from pipelines.graph.audits import enrichment as reading
from pipelines.graph.audits.enrichment import EnrichmentAudit
from pipelines.graph.neo4j import Neo4jGraph, Neo4jTransaction
from pipelines.graph.port import Span
from pipelines.ledger.ledger import Entry
from pipelines.proof.comparison import Difference
from pipelines.proof.enriched_differences import (
    FoundEntity,
    FoundEvent,
    FoundHistory,
    contained_differences,
    event_differences,
    similar_differences,
    vector_differences,
)
from pipelines.proof.enriched_report import EnrichmentReport
from pipelines.proof.expected_enrichment import (
    Edge,
    ExpectedGraph,
    Made,
    Numbers,
    causes_of,
    event_numbers,
    made_by,
    naming,
)
from pipelines.proof.judge import dead_letter_seqs
from pipelines.proof.recompute import DEAD, Recomputed, Recomputer
from pipelines.work.runner import Runner
from projections.identity import START, Position, partition_of
from projections.operations import Checkpoint
from projections.schema import EVENT, SIMILAR_TO
from projections.structural import Link, SessionKey

CHUNK = 300
"""Events that are read from the ledger, and analysed, at once."""
JUDGED_AT_ONCE = 50
"""Events judged under one lock, each with the 200 before it."""
ROUNDS = 3
"""How often a difference must be found: an edge to an event of another partition may be just
being written while only this one's lock is held."""


class Differing(NamedTuple):
    """An event that differs.

    Attributes:
        made: what must follow from it.
    """

    entry: Entry
    key: EventKey
    made: Made
    differences: list[Difference]


class Shared(NamedTuple):
    """What events share, as the graph has it."""

    entities: Mapping[EntityKey, FoundEntity]
    histories: Mapping[HistoryKey, FoundHistory]


class EventChecker:
    """Compares events of one target.

    Args:
        recomputer: derives what the ledger holds.
        graph: of the target; takes the locks.
        audit: of the target.
        model: name and revision of the embedder that the graph depends on.
        partitions: of the ledger.
        checkpoints: of the enrichment, by partition, as they were when the run began.
        dead: entries that the enrichment passed without folding them.
        expected: what all events together must have made is added here; None: only part of the
            events is looked at, and each must be found in what is shared.
        report: takes in what is found.
    """

    def __init__(
        self,
        recomputer: Recomputer,
        graph: Neo4jGraph,
        audit: EnrichmentAudit,
        *,
        model: str,
        partitions: int,
        checkpoints: Mapping[int, Checkpoint],
        dead: DEAD,
        expected: ExpectedGraph | None,
        report: EnrichmentReport,
    ) -> None:
        self._recomputer = recomputer
        self._graph = graph
        self._audit = audit
        self._model = model
        self._partitions = partitions
        self._checkpoints = checkpoints
        self._dead = dead
        self._expected = expected
        self._report = report
        self._session: SessionKey | None = None
        self._window: deque[tuple[EventKey, Features | None]] = deque(maxlen=WINDOW)
        self._candidates: dict[int, list[EventKey]] = {}
        self._judged: dict[EventKey, Numbers] = {}
        # Whether these are among the causes of others depends on when those were enriched.
        self._untold: set[EventKey] = set()
        # So are the causes of events in sessions from which some were forgotten: it depends on
        # when that was whether the others still had them before their eyes.
        self._thinned = audit.thinned_sessions()
        self.passed_over: dict[tuple[int, int], EventKey] = {}
        """Events that a dead letter stands for, by partition and number."""
        self.differing: dict[int, list[Differing]] = {}
        """By partition what has survived judging."""

    # -- the streamed pass -------------------------------------------------------------------------

    def compare(self, events: Iterable[FoundEvent]) -> Iterator[int]:
        """Compare events that come in the order of their chains; yields how many are done."""
        stream = iter(events)
        done = 0
        while chunk := list(islice(stream, CHUNK)):
            self._compare(
                [found for found in chunk if is_passed(found, self._until(found.session))]
            )
            done += len(chunk)
            yield done

    def _compare(self, chunk: Sequence[FoundEvent]) -> None:
        known = self._recomputer.events([found.key for found in chunk], self._dead)
        mades = {key: made_by(one.derived) for key, one in known.items() if one.derived is not None}
        shared = self._read_shared(mades.values())
        for found in chunk:
            if found.session != self._session:
                self._session = found.session
                self._window.clear()
            one = known.get(found.key)
            if one is None:  # neither in the ledger nor readable there: Stage 1's verify says so
                self._window.append((found.key, None))
                continue
            made = mades.get(found.key)
            if made is None:
                self.passed_over[one.entry.partition, one.entry.seq] = found.key
                self._untold.add(found.key)
            else:
                self._compare_one(found, one, made, shared)
            self._window.append((found.key, one.features))

    def _compare_one(
        self, found: FoundEvent, one: Recomputed, made: Made, shared: Shared | None
    ) -> None:
        self._report.events += 1
        if one.plain is not None:
            made = matching(one, found) or made
        if self._expected is not None:
            self._expected.add(made)
        if not one.sure and any(True for _ in event_differences(made, None, found)):
            self._recomputer.unsure.add(found.key)
            self._report.unread += 1
            return
        if found.length is None and found.values[0] is not None:
            self._report.without_embedding += 1
        causes = self._causes(found, one, list(self._window))
        if any(True for _ in self._differences(found, made, causes, shared)):
            self._candidates.setdefault(one.entry.partition, []).append(found.key)
        else:
            self._report.count(found_numbers(found))

    def _causes(
        self,
        found: FoundEvent,
        one: Recomputed,
        before: Sequence[tuple[EventKey, Features | None]],
    ) -> dict[str, Edge] | None:
        unsure = self._recomputer.unsure
        if one.features is None or found.session in self._thinned:
            return None
        if any(k in self._untold or k in unsure for k, _ in before):
            return None
        return causes_of(found.key[0], [known for _, known in before], one.features)

    def _differences(
        self,
        found: FoundEvent,
        made: Made,
        causes: Mapping[str, Edge] | None,
        shared: Shared | None,
    ) -> Iterator[Difference]:
        yield from event_differences(made, causes, found)
        yield from vector_differences(found, self._model)
        for difference, _ in similar_differences(found):
            yield difference
        if shared is not None:
            yield from contained_differences(made, shared.entities, shared.histories)

    def _read_shared(self, mades: Iterable[Made]) -> Shared | None:
        """What the events must be found in; None: that is compared as a whole."""
        if self._expected is not None:
            return None
        entities, histories = _shared_keys(mades)
        return Shared(self._audit.read_entities(entities), self._audit.read_histories(histories))

    def _until(self, session: SessionKey) -> Position:
        if not all(isinstance(part, str) for part in session):
            return START
        return self._checkpoints[partition_of(*session, self._partitions)].position

    # -- judging -----------------------------------------------------------------------------------

    def judge(self) -> None:
        """Look again at what differed, under the lock; what survives is reported."""
        for partition, keys in sorted(self._candidates.items()):
            for first in range(0, len(keys), JUDGED_AT_ONCE):
                chunk = keys[first : first + JUDGED_AT_ONCE]
                self._report.judged += len(chunk)
                for _ in range(ROUNDS):
                    if chunk:
                        last = self._judge(partition, chunk)
                        chunk = [one.key for one in last]
                if chunk:
                    self.differing.setdefault(partition, []).extend(last)
        for numbers in self._judged.values():
            self._report.count(numbers)
        said = set()
        for survivors in self.differing.values():
            for one in survivors:
                for difference in one.differences:
                    name = difference[:4]  # an entity that several events miss is one difference
                    if name not in said:
                        self._report.add(difference)
                    said.add(name)

    def _judge(self, partition: int, keys: Sequence[EventKey]) -> list[Differing]:
        known = self._recomputer.events(keys, self._dead)  # models run before the lock is taken
        with self._graph.transaction() as transaction:
            current = transaction.lock(NAME, partition)
            if current is None:
                return []
            dead = dead_letter_seqs(transaction, NAME, partition)
            events = reading.locked_events(transaction, keys)
            present = [found for found in events.values() if is_passed(found, current.position)]
            before = self._windows(transaction, present, current.position)
            mades = {
                found.key: made
                for found in present
                if (one := known.get(found.key))
                and one.entry.seq not in dead
                and (made := matching(one, found))
            }
            shared = None
            if self._expected is None:
                entities, histories = _shared_keys(mades.values())
                shared = Shared(
                    reading.locked_entities(transaction, entities, bare=True),
                    reading.locked_histories(transaction, histories),
                )
        differing = []
        for found in present:
            made, one = mades.get(found.key), known.get(found.key)
            if made is None or one is None:
                continue
            causes = self._causes(found, one, before.get(found.key, []))
            different = list(self._differences(found, made, causes, shared))
            if different:
                differing.append(Differing(one.entry, found.key, made, different))
            self._judged[found.key] = found_numbers(found)
        return differing

    def _windows(
        self, transaction: Neo4jTransaction, events: Sequence[FoundEvent], until: Position
    ) -> dict[EventKey, list[tuple[EventKey, Features | None]]]:
        """Of each event those directly before it in its session, up to the checkpoint."""
        placed = [found for found in events if type(found.occurred_at_ms) is int]
        places = [Link(found.occurred_at_ms, found.key[1]) for found in placed]
        spans = [
            Span(found.session, link, link) for found, link in zip(placed, places, strict=True)
        ]
        stretches = transaction.stretch(
            EVENT.label, spans, before=WINDOW, within=0, having="importance_score"
        )
        before = {
            found.key: [(member.key[0], member.key[1]) for member in members]
            for found, members in zip(placed, stretches, strict=True)
        }
        known = self._recomputer.remembered.of(key for keys in before.values() for key in keys)
        return {key: [(other, known[other]) for other in keys] for key, keys in before.items()}

    # -- mending -----------------------------------------------------------------------------------

    def repair(self, runner: Runner) -> None:
        """Fold what differs once more, and set right what that cannot."""
        for partition, survivors in sorted(self.differing.items()):
            folded = [one for one in survivors if any(map(_is_folded, one.differences))]
            for first in range(0, len(folded), CHUNK):
                part = folded[first : first + CHUNK]
                runner.refold(partition, [one.entry for one in part])
                if self._expected is None:
                    self._rename(partition, part)
            alike = [one.key for one in survivors if not all(map(_is_folded, one.differences))]
            self._mend_similar(partition, alike)

    def _rename(self, partition: int, events: Sequence[Differing]) -> None:
        """What has the right earliest mention keeps its name when it is folded again."""
        rows: list[list[Any]] = sorted(
            [*key, *naming(values)]
            for one in events
            for key, values in one.made.entities.items()
            if values is not None
        )
        with self._graph.transaction() as transaction:
            transaction.lock(NAME, partition)
            reading.rename_entities(transaction, rows)

    def _mend_similar(self, partition: int, keys: Sequence[EventKey]) -> None:
        """A wrong score is set right, an edge that must not be is removed, the weakest first."""
        for key in keys:
            with self._graph.transaction() as transaction:
                transaction.lock(NAME, partition)
                for found in reading.locked_events(transaction, [key]).values():
                    removed, rescored = [], []
                    for difference, edge in similar_differences(found):
                        if edge is not None and difference.kind == "extra":
                            removed.append(edge[-1])
                        elif edge is not None:
                            rescored.append([edge[-1], round(edge[3], 6)])
                    reading.remove_edges(transaction, removed)
                    reading.rescore_similar(transaction, rescored)
                    edges = reading.similar_edges(transaction, key)
                    edges.sort(key=lambda one: (one[0] if type(one[0]) is float else 0.0, one[1]))
                    reading.remove_edges(transaction, [one[1] for one in edges[:-CAP]])


def matching(one: Recomputed, found: FoundEvent) -> Made | None:
    """What must follow from an event: of two that are right, the one that the graph shows."""
    if one.derived is None:
        return None
    made = made_by(one.derived)
    if one.plain is not None and any(True for _ in event_differences(made, None, found)):
        plain = made_by(one.plain)
        if not any(True for _ in event_differences(plain, None, found)):
            return plain
    return made


def is_passed(found: FoundEvent, until: Position) -> bool:
    """Whether the enrichment's checkpoint has passed the event."""
    try:
        return Position.parse(found.position) <= until
    except (TypeError, ValueError):
        return False  # Stage 1's verify says so


def found_numbers(found: FoundEvent) -> Numbers:
    """Digests of an event as the graph has it."""
    return event_numbers(found.key, found.values, found.references, found.causes)


def _shared_keys(mades: Iterable[Made]) -> tuple[list[EntityKey], list[HistoryKey]]:
    entities: set[EntityKey] = set()
    histories: set[HistoryKey] = set()
    for made in mades:
        entities |= made.entities.keys()
        histories |= made.entries.keys()
    return sorted(entities), sorted(histories)


def _is_folded(difference: Difference) -> bool:
    """Whether folding the event again mends it."""
    return difference.type != SIMILAR_TO.type and SIMILAR_TO.type not in difference.fields
