"""Verify of Stage 2 as a whole: entities, facts and their histories, sameness.

They follow from all events and statements together, so what these must have made is kept in memory
(it grows with entities and facts), and the graph is streamed against it. Live workers are ahead of
the run's horizon; so what differs is a candidate, and is judged again after the events that were
enriched meanwhile were added: first without, then with every enrichment checkpoint locked.

Where an event's payload cannot be read any more, or events were forgotten, nobody can say what
they made of entities and facts: then the graph may hold more than is expected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from enrichment import NAME
from enrichment.histories import merge as merged_entries
from enrichment.stage import EntityKey, EventKey, HistoryKey
from pipelines.graph.audits import enrichment as reading
from pipelines.graph.audits.enrichment import EnrichmentAudit
from pipelines.graph.neo4j import Neo4jGraph, Neo4jTransaction
from pipelines.ledger.ledger import Entry, Ledger
from pipelines.proof.comparison import Difference
from pipelines.proof.enriched_differences import (
    FoundEntity,
    FoundHistory,
    entity_differences,
    history_differences,
)
from pipelines.proof.enriched_report import EnrichmentReport
from pipelines.proof.expected_enrichment import (
    ENTITY_NAMES,
    Edge,
    ExpectedGraph,
    Numbers,
    entity_numbers,
    joined,
    made_by,
    not_taken_in,
)
from pipelines.proof.judge import dead_letter_seqs
from pipelines.proof.recompute import DEAD, Recomputer
from projections.errors import InvalidEvent
from projections.events import is_system_event
from projections.identity import START
from projections.operations import Checkpoint, EnsureNode, MergeEdge, MergeNode, Operations
from projections.schema import DEAD_LETTER, ENTITY, FACT_HISTORY, RELATES_TO, SAME_AS

JUDGED_AT_ONCE = 100
"""Entities, or histories, judged while every worker waits."""
ROUNDS = 3
"""How often what was enriched meanwhile is added before the workers are made to wait."""
_SYSTEM = b'"memory.'
"""Every system event's type begins so; most entries need not be decoded to be passed."""


class Candidates(NamedTuple):
    """What differs; `odd` are ids of nodes without a key of ours."""

    entities: set[EntityKey]
    histories: set[HistoryKey]
    odd: list[str]


class EntityChecker:
    """Compares what events share, on one target.

    Args:
        ledger: what should be.
        recomputer: derives it.
        graph: of the target; takes the locks.
        audit: of the target.
        expected: what the events up to the checkpoints must have made; statements are added here.
        checkpoints: of the enrichment, by partition, as they were when the run began.
        dead: entries that the enrichment passed without folding them.
        tombstones: keys of forgotten events.
        report: takes in what is found.
    """

    def __init__(
        self,
        ledger: Ledger,
        recomputer: Recomputer,
        graph: Neo4jGraph,
        audit: EnrichmentAudit,
        *,
        expected: ExpectedGraph,
        checkpoints: Mapping[int, Checkpoint],
        dead: DEAD,
        tombstones: set[EventKey],
        report: EnrichmentReport,
    ) -> None:
        self._ledger = ledger
        self._recomputer = recomputer
        self._graph = graph
        self._audit = audit
        self._expected = expected
        self._dead = dead
        self._tombstones = tombstones
        self._report = report
        self._reached = {partition: c.position for partition, c in checkpoints.items()}
        self.passed_over: dict[tuple[int, int], EventKey] = {}
        """What dead letters stand for, by partition and number."""
        self._unread: list[Entry] = []
        self.differing = Candidates(set(), set(), [])
        """What has survived judging."""

    # -- what should be ----------------------------------------------------------------------------

    def add_statements(self) -> None:
        """Take in every statement of the ledger up to the horizon."""
        for partition, position in self._reached.items():
            if position == START:
                continue
            for entries in self._ledger.scan(partition, until=position):
                self._report.statements += self._add(entries, self._dead, statements_only=True)

    def catch_up(self, checkpoints: Iterable[Checkpoint], dead: DEAD) -> None:
        """Take in what was enriched since the horizon, and dead letters that were retried."""
        for one in checkpoints:
            after = self._reached.get(one.partition, START)
            if one.position > after:
                for entries in self._ledger.scan(one.partition, after, one.position):
                    self._add(entries, dead)
                self._reached[one.partition] = one.position
        revived = [place for place in self.passed_over if place[1] not in dead.get(place[0], ())]
        keys = [self.passed_over.pop(place) for place in revived]
        if keys:
            self._add(list(self._ledger.find_many(keys).values()), dead)

    def _add(self, entries: Sequence[Entry], dead: DEAD, *, statements_only: bool = False) -> int:
        """Take entries in; returns how many. Statements one by one: one may be invalid."""
        stated = [entry for entry in entries if _SYSTEM in entry.data]
        parts = [[entry] for entry in stated]
        if not statements_only:
            parts.append([entry for entry in entries if _SYSTEM not in entry.data])
        added = 0
        for part in parts:
            try:
                found = self._recomputer.entries(part, dead)
            except InvalidEvent:
                self._unread += part
                continue
            for event, one in found:
                if statements_only and not is_system_event(event.event_type):
                    continue
                if one.derived is None and one.entry.seq in dead.get(one.entry.partition, ()):
                    self.passed_over[one.entry.partition, one.entry.seq] = event.key
                elif one.derived is not None and event.key not in self._tombstones:
                    self._expected.add(made_by(one.derived))
                    added += 1
                    if not one.sure or (one.plain or one.derived) != one.derived:
                        self._recomputer.unsure.add(event.key)
        return added

    # -- the streamed pass -------------------------------------------------------------------------

    def compare(self) -> Candidates:
        """Compare everything; what differs is a candidate, the rest is counted."""
        found_wrong = Candidates(set(), set(), [])
        missing_entities = set(self._expected.entities)
        for entity in self._audit.stream_entities():
            missing_entities.discard(entity.key)
            if not all(isinstance(part, str) for part in entity.key):
                found_wrong.odd.append(entity.element_id)
                self._report.add(Difference("extra", "node", ENTITY.label, entity.key))
            elif self._entity(entity.key, entity):
                found_wrong.entities.add(entity.key)
            else:
                self._count(entity)
        missing_histories = set(self._expected.entries)
        for history in self._audit.stream_histories():
            missing_histories.discard(history.key)
            if not all(isinstance(part, str) for part in history.key):
                found_wrong.odd.append(history.element_id)
                self._report.add(Difference("extra", "node", FACT_HISTORY.label, history.key))
            elif self._history(history.key, history):
                found_wrong.histories.add(history.key)
        found_wrong.entities.update(missing_entities)
        found_wrong.histories.update(missing_histories)
        return found_wrong

    def _entity(self, key: EntityKey, found: FoundEntity | None) -> list[Difference]:
        differences = list(entity_differences(key, self._expected, found))
        if not differences or not self._is_lenient:
            return differences
        return [one for known in differences for one in self._counted(known, found)]

    def _counted(self, one: Difference, found: FoundEntity | None) -> Iterator[Difference]:
        """What counts where it is not known what some events said: that something is missing."""
        if one.type == SAME_AS.type or (one.kind == "missing" and one.type != RELATES_TO.type):
            yield one
        elif one.kind == "different" and one.type == ENTITY.label and found is not None:
            node = self._expected.entities[found.key]
            folded = set(ENTITY_NAMES) | {"visible"}
            if node.values is not None:
                folded -= not_taken_in(node.values, found.values) | {"visible"}
            fields = {name: both for name, both in one.fields.items() if name not in folded}
            if fields:
                yield one._replace(fields=fields)

    def _history(self, key: HistoryKey, found: FoundHistory | None) -> list[Difference]:
        if self._is_lenient and found is not None:
            should = self._expected.history(key) or ()
            if not set(should) - set(found.entries or ()):
                return []
        return list(history_differences(key, self._expected, found))

    @property
    def _is_lenient(self) -> bool:
        return bool(self._tombstones or self._recomputer.unsure)

    def _count(self, found: FoundEntity) -> None:
        self._report.entities += found.visible
        self._report.facts += len(found.facts)
        self._report.count(found_numbers(found))

    # -- judging -----------------------------------------------------------------------------------

    def judge(self, candidates: Candidates) -> None:
        """Look again at candidates; what survives is reported and kept for `repair`."""
        self.differing = Candidates(set(), set(), candidates.odd)
        entities, histories = candidates.entities, candidates.histories
        self._report.judged += len(entities) + len(histories)
        for _ in range(ROUNDS):
            if not entities and not histories:
                break
            self.catch_up(self._graph.checkpoints(NAME), self._dead_letters())
            entities = self._look_again(entities)
            histories = {
                key
                for part in _chunks(histories)
                for found in [self._audit.read_histories(part)]
                for key in part
                if self._history(key, found.get(key))
            }
        for part in _chunks(entities):
            self._judge_entities(part)
        for part in _chunks(histories):
            self._judge_histories(part)
        self._report_unread()

    def _look_again(self, keys: set[EntityKey]) -> set[EntityKey]:
        still = set()
        for part in _chunks(keys):
            with self._graph.transaction() as transaction:
                found = reading.locked_entities(transaction, part)
            for key in part:
                if self._entity(key, found.get(key)):
                    still.add(key)
                elif key in found:
                    self._count(found[key])
        return still

    def _judge_entities(self, keys: Sequence[EntityKey]) -> None:
        with self._graph.transaction() as transaction:
            self._lock_all(transaction)
            found = reading.locked_entities(transaction, keys)
        for key in keys:
            differences = self._entity(key, found.get(key))
            for difference in differences:
                self._report.add(difference)
            if differences:
                self.differing.entities.add(key)
            if key in found:
                self._count(found[key])

    def _judge_histories(self, keys: Sequence[HistoryKey]) -> None:
        with self._graph.transaction() as transaction:
            self._lock_all(transaction)
            found = reading.locked_histories(transaction, keys)
        for key in keys:
            differences = self._history(key, found.get(key))
            for difference in differences:
                self._report.add(difference)
            if differences:
                self.differing.histories.add(key)

    def _lock_all(self, transaction: Neo4jTransaction) -> None:
        """From here on nobody enriches, and what is expected is as far as the graph."""
        ends, dead = [], {}
        for partition in range(self._ledger.partitions):
            current = transaction.lock(NAME, partition)
            if current is not None:
                ends.append(current)
                dead[partition] = dead_letter_seqs(transaction, NAME, partition)
        self.catch_up(ends, dead)

    def _dead_letters(self) -> dict[int, set[int]]:
        dead: dict[int, set[int]] = {}
        for letter in self._graph.dead_letters(NAME):
            dead.setdefault(letter["partition"], set()).add(letter["seq"])
        return dead

    def _report_unread(self) -> None:
        """Statements that break the rules must have become dead letters."""
        if not self._unread:
            return
        dead = self._dead_letters()
        for entry in self._unread:
            if entry.seq not in dead.get(entry.partition, ()):
                key = (NAME, entry.partition, entry.seq)
                self._report.add(Difference("missing", "node", DEAD_LETTER.label, key))

    # -- mending -----------------------------------------------------------------------------------

    def repair(self) -> None:
        """Make what differed what is expected; extra nodes and edges go."""
        if self.differing.odd:
            with self._graph.transaction() as transaction:
                reading.remove_nodes(transaction, self.differing.odd)
        for keys in _chunks(self.differing.entities):
            with self._graph.transaction() as transaction:
                self._lock_all(transaction)
                self._mend_entities(transaction, keys)
        for part in _chunks(self.differing.histories):
            with self._graph.transaction() as transaction:
                self._lock_all(transaction)
                self._mend_histories(transaction, part)

    def _mend_entities(self, transaction: Neo4jTransaction, keys: Sequence[EntityKey]) -> None:
        found = reading.locked_entities(transaction, keys)
        removed_nodes, removed_edges, rows = [], [], []
        operations = Operations()
        for key in keys:
            have, node = found.get(key), self._expected.entities.get(key)
            if node is None:
                removed_nodes += [have.element_id] if have else []
                continue
            if any(one.type == ENTITY.label for one in self._entity(key, have)):
                values = node.values or (None,) * len(ENTITY_NAMES)
                if self._is_lenient and have and node.values is not None:
                    values = joined(node.values, have.values)
                rows.append([*key, node.values is not None, *values, *node.decided()])
            for row, should, does in (
                (RELATES_TO, self._expected.facts(key), have.facts if have else ()),
                (SAME_AS, self._expected.same(key), have.same if have else ()),
            ):
                if self._is_lenient and row is RELATES_TO:
                    continue
                lacking, extra = _exchanged(should, does, len(row.key))
                removed_edges += extra
                for edge in lacking:
                    target = (edge[0], edge[1])
                    operations.add(EnsureNode(ENTITY.label, target))
                    names = [p.name for p in row.carried(NAME)]
                    named = dict(zip(names, edge[2:], strict=True))
                    operations.add(
                        MergeEdge(type=row.type, source=key, target=target, values=named)
                    )
        reading.remove_nodes(transaction, removed_nodes)
        reading.remove_edges(transaction, removed_edges)
        reading.overwrite_entities(transaction, rows)
        transaction.apply(operations, NAME)

    def _mend_histories(self, transaction: Neo4jTransaction, keys: Sequence[HistoryKey]) -> None:
        found = reading.locked_histories(transaction, keys)
        operations = Operations()
        removed = []
        for key in keys:
            should = self._expected.history(key)
            if should is not None:
                if self._is_lenient and key in found:
                    should = merged_entries(should, found[key].entries or ())
                operations.add(
                    MergeNode(label=FACT_HISTORY.label, key=key, values={"entries": should})
                )
            elif key in found:
                removed.append(found[key].element_id)
        reading.remove_nodes(transaction, removed)
        transaction.apply(operations, NAME)


def found_numbers(found: FoundEntity) -> Numbers:
    """Digests of an entity as the graph has it."""
    return entity_numbers(
        found.key,
        found.values if found.visible else None,
        found.decided,
        [edge[:-1] for edge in found.facts],
        [edge[:-1] for edge in found.same],
    )


def _exchanged(
    should: Iterable[Edge], does: Iterable[Edge], keyed: int
) -> tuple[list[Edge], list[str]]:
    """Edges to make, and element ids of those to remove: what is equal stays untouched."""
    wanted = {edge[: 2 + keyed]: edge for edge in should}
    removed = []
    for edge in does:
        place = edge[: 2 + keyed]
        if repr(wanted.get(place)) == repr(edge[:-1]):  # equal in type too
            del wanted[place]
        else:
            removed.append(edge[-1])
    return list(wanted.values()), removed


def _chunks(keys: Iterable[tuple[str, str]]) -> list[list[tuple[str, str]]]:
    ordered = sorted(keys)
    return [
        ordered[first : first + JUDGED_AT_ONCE] for first in range(0, len(ordered), JUDGED_AT_ONCE)
    ]
