"""Prove that a graph is what the ledger says: look, repair, look again; one report.

A look folds the ledger again as far as the graph has come, streams both in the order of keys, and
takes what differs for candidates, for workers go on meanwhile. Those are judged again by key, under
the locks of all checkpoints. Repair is the same judgement in a transaction that also writes what
must be there; it deletes nothing but what the ledger does not justify.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Final, TypeVar, cast

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception_type,
    stop_after_attempt,
    wait_random_exponential,
)

from pipelines.graph.port import Graph, Reads, Transaction
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.proof.compare import (
    Difference,
    EdgeChange,
    EdgePair,
    NodeChange,
    census_differences,
    edge_changes,
    mend_schema,
    node_changes,
    remove_unknown,
)
from pipelines.proof.expected import LedgerFold
from pipelines.proof.report import (
    EVERYTHING,
    LISTED,
    Change,
    ProofReport,
    Scope,
    StageFinding,
    Unread,
    described,
)
from pipelines.work.recalled import returning
from pipelines.work.stages import STAGES
from projections.errors import GraphUnavailable
from projections.operations import Checkpoint, Key
from projections.schema import (
    CHECKPOINT,
    DEAD_LETTER,
    EDGES,
    NODES,
    EdgeRow,
    NodeRow,
)

ROUNDS: Final = 3
"""Of repair: a node that comes back gets its edges in the next one at the latest."""
TOGETHER: Final = 2_000
"""Candidates that are judged under one lock."""
UNLOCKED_TRIES: Final = 5
"""How often the fold goes on without the locks before it goes on under them."""
RETURN_LOOKS: Final = 4
"""How often what was recalled is looked for: it comes back a moment after the decision."""
RETURN_WAIT_S: Final = 1.0

TRIES: Final = 5
"""Of what the graph breaks off: under load one answer may stay away."""
LONGEST_PAUSE_S: Final = 5.0
"""Between two of them."""

Item = TypeVar("Item")
logger = structlog.get_logger(__name__)


def prove(
    graph: Graph,
    fold: LedgerFold,
    *,
    repair: bool = False,
    scope: Scope = EVERYTHING,
    unread: Callable[[], Iterable[Key]] = tuple,
) -> ProofReport:
    """Compare a graph with its ledger, and mend it if told to.

    Args:
        graph: what is proved; workers may go on with it.
        fold: of its ledger, by the rules of the stages that it holds, with the workers' models; it
            goes on where it stands.
        repair: whether to write what must be there, and look again.
        scope: what is told of, and repaired.
        unread: keys of events of which the fold does not know all that was once known.

    Raises:
        GraphAhead: the ledger lost entries that the graph has folded.
        FoldVersionMismatch, ModelsMismatch: the graph was folded by other rules.
        GraphUnavailable, LedgerUnavailable: a service is away.
    """
    proof = _Proof(graph, fold, scope, unread)
    for number in range(1 + ROUNDS * repair):
        report, changes = proof.look()
        if number == 0:
            found_count, repaired = report.difference_count, 0
        if not repair or not (changes or report.difference_count) or number == ROUNDS:
            break
        proof.mend(changes)
        repaired += report.difference_count
    report.found_count, report.repaired = found_count, repaired
    return report


class _Proof:
    def __init__(
        self,
        graph: Graph,
        fold: LedgerFold,
        scope: Scope,
        unread: Callable[[], Iterable[Key]],
    ) -> None:
        self._graph = graph
        self._expected = fold
        self._scope = scope
        self._unread = unread
        self._is_schema_wrong = False

    def look(self) -> tuple[ProofReport, list[Change]]:
        """What differs."""
        report = ProofReport()
        candidates, counts = patiently(self._candidates)
        changes = self._judged(candidates)
        for _ in range(RETURN_LOOKS):
            if not changes or not returning(self._graph, enriched=self._expected.is_enriched):
                break
            time.sleep(RETURN_WAIT_S)
            changes = self._judged(changes)
        changes = self._readable(report, changes)
        census = patiently(self._graph.census) if self._scope.has_schema else None
        schema = list(census_differences(census)) if census is not None else []
        self._is_schema_wrong = bool(schema)
        rows = NODES | EDGES
        report.compared = {name: counts[name] for name in counts if self._scope.covers(rows[name])}
        self._describe(report, changes, schema)
        return report, changes

    def _candidates(self) -> tuple[list[Change], Counter[str]]:
        self._expected.advance(self._graph, self._graph.checkpoints())
        expected, held = self._expected.graph, self._graph
        counts: Counter[str] = Counter()
        changes: list[Change] = list(streamed_nodes(expected, held, self._scope, counts))
        for row in EDGES.values():
            changes += streamed_edges(row, expected, held, self._scope, counts=counts)
        return [change for change in changes if self._scope.may_have(change)], counts

    def mend(self, changes: Sequence[Change]) -> None:
        """Write what must be there, after a look under the locks."""
        if self._is_schema_wrong:
            census = patiently(self._graph.census)
            self._under_locks(lambda transaction: remove_unknown(transaction, census))
            mend_schema(self._graph)
        for some in _parts(changes):
            self._under_locks(partial(self._mend, some))

    def _judged(self, candidates: Sequence[Change]) -> list[Change]:
        """Those that differ while nothing moves."""
        changes: list[Change] = []
        for some in _parts(candidates):
            changes += self._under_locks(partial(self._again, some))
        if self._scope.session is None:
            return [change for change in changes if self._scope.may_have(change)]
        members = self._scope.members_of(self._expected.graph)
        return [change for change in changes if self._scope.has(change, members)]

    def _under_locks(self, work: Callable[[Transaction], Item]) -> Item:
        """Do something while nothing moves, and the ledger is folded exactly as far.

        A deadlock with a worker costs another try.
        """
        return patiently(partial(self._once_under_locks, work))

    def _once_under_locks(self, work: Callable[[Transaction], Item]) -> Item:
        for tried in range(UNLOCKED_TRIES + 1):
            with self._graph.transaction() as transaction:
                checkpoints = _lock_all(transaction, self._graph.checkpoints())
                if tried == UNLOCKED_TRIES:
                    self._expected.advance(self._graph, checkpoints)
                if self._expected.stands_at(checkpoints):
                    return work(transaction)
            self._expected.advance(self._graph, checkpoints)
        raise AssertionError("unreachable")

    def _again(self, candidates: Iterable[Change], held: Reads) -> list[Change]:
        """Compare nodes and edges once more, by key."""
        expected = self._expected.graph
        labels: dict[str, set[Key]] = {}
        types: dict[str, set[EdgePair]] = {}
        for change in candidates:
            if isinstance(change, NodeChange):
                labels.setdefault(change.difference.type, set()).add(change.key)
            else:
                types.setdefault(change.difference.type, set()).add(change.pair)
        changes: list[Change] = []
        for label, keys in labels.items():
            row = NODES[label]
            changes += node_changes(row, _some(expected, row, keys), _some(held, row, keys))
        for type_, pairs in types.items():
            edge_row = EDGES[type_]
            left, right = (_between(graph, edge_row, pairs) for graph in (expected, held))
            changes += edge_changes(edge_row, left, right)
        return changes

    def _mend(self, candidates: Iterable[Change], transaction: Transaction) -> None:
        """Make nodes and edges what they must be, where they still are not."""
        nodes: dict[str, list[NodeChange]] = {}
        edges: dict[str, list[EdgeChange]] = {}
        for change in self._again(candidates, transaction):
            if isinstance(change, NodeChange):
                nodes.setdefault(change.difference.type, []).append(change)
            else:
                edges.setdefault(change.difference.type, []).append(change)
        for label, some in nodes.items():
            transaction.restore_nodes(
                label,
                [one.expected for one in some if one.expected is not None],
                gone=[one.key for one in some if one.expected is None],
            )
        for type_, changed in edges.items():
            transaction.restore_edges(
                type_,
                [edge for one in changed for edge in one.expected],
                gone=[one.pair for one in changed if not one.expected],
            )

    def _readable(self, report: ProofReport, changes: list[Change]) -> list[Change]:
        """Leave out what depends on events that nobody can read any more as they were read."""
        unread = Unread(self._unread(), self._expected.graph, self._graph)
        left = [change for change in changes if not unread.explains(change)]
        report.unread = len(unread.events)
        if len(left) < len(changes):
            report.notes.append(
                f"{len(changes) - len(left)} differences are not counted: they depend on "
                "payloads or answers that are not at hand any more"
            )
        return left

    def _describe(
        self, report: ProofReport, changes: Sequence[Change], schema: Sequence[Difference]
    ) -> None:
        differences = [*(change.difference for change in changes), *schema]
        report.difference_count = len(differences)
        report.differences = differences[:LISTED]
        concerned = Counter(stage for change in changes for stage in change.stages)
        for name, entries in self._expected.entries.items():
            if self._scope.has_stage(name):
                report.stages[name] = StageFinding(
                    entries=entries, difference_count=concerned[name]
                )
        if schema:  # indexes and foreign labels are nobody's; the first stage is always there
            next(iter(report.stages.values())).difference_count += len(schema)
        described(report, self._expected.graph, self._expected.entries, self._scope)


def patiently(call: Callable[[], Item]) -> Item:
    """Call again what the graph breaks off.

    Raises:
        GraphUnavailable: it broke off every try.
    """
    trying = Retrying(
        retry=retry_if_exception_type(GraphUnavailable),
        stop=stop_after_attempt(TRIES),
        wait=wait_random_exponential(multiplier=0.1, max=LONGEST_PAUSE_S),
        before_sleep=_log_broken_off,
        reraise=True,
    )
    return trying(call)


def _log_broken_off(state: RetryCallState) -> None:
    error = state.outcome.exception() if state.outcome is not None else None
    logger.warning("the graph broke off the proof; trying again", reason=str(error))


# -- comparing -------------------------------------------------------------------------------------


def streamed_nodes(
    expected: Graph, held: Graph, scope: Scope, counts: Counter[str]
) -> Iterator[NodeChange]:
    """Nodes that differ between two graphs that may not stand still."""
    for label, row in NODES.items():
        if row is not CHECKPOINT:
            left = _counted(_nodes(expected, row, scope), counts, label)
            yield from node_changes(row, left, _nodes(held, row, scope))


def streamed_edges(
    row: EdgeRow, expected: Graph, held: Graph, scope: Scope, *, counts: Counter[str]
) -> Iterator[EdgeChange]:
    """Likewise edges of a type."""
    left = _counted(_edges(expected, row, scope), counts, row.type)
    return edge_changes(row, left, _edges(held, row, scope))


def _nodes(graph: Graph, row: NodeRow, scope: Scope) -> Iterator[FoundNode]:
    tenants, is_letter = scope.tenants, row is DEAD_LETTER
    names = _stored(row)
    nodes = graph.stream(row.label, names, tenants=None if is_letter else tenants)
    for node in cast(Iterator[FoundNode], nodes):
        if not is_letter or tenants is None or node.values["tenant"] in tenants:
            yield node


def _edges(graph: Graph, row: EdgeRow, scope: Scope) -> Iterator[FoundEdge]:
    edges = graph.stream(row.type, [p.name for p in row.properties], tenants=scope.tenants)
    return cast(Iterator[FoundEdge], edges)


def _some(graph: Reads, row: NodeRow, keys: Iterable[Key]) -> list[FoundNode]:
    nodes = graph.nodes(row.label, keys, _stored(row))
    return [nodes[key] for key in sorted(nodes)]


def _between(graph: Reads, row: EdgeRow, pairs: Iterable[EdgePair]) -> list[FoundEdge]:
    by_label: dict[str, list[tuple[Key, Key]]] = {}
    for source, target, label in pairs:
        by_label.setdefault(label, []).append((source, target))
    names = [p.name for p in row.properties]
    edges = [
        (source, target, label, copies)
        for label, ends in by_label.items()
        for (source, target), copies in graph.between(row.type, ends, names, label=label).items()
    ]
    edges.sort(key=lambda edge: edge[:3])
    return [edge for *_, copies in edges for edge in copies]


def _stored(row: NodeRow) -> list[str]:
    return [p.name for p in row.stored()]


def _counted(items: Iterable[Item], counts: Counter[str], name: str) -> Iterator[Item]:
    for item in items:
        counts[name] += 1
        yield item


def _parts(changes: Sequence[Change]) -> Iterator[list[Change]]:
    """Nodes before edges, so many together as are judged under one lock."""
    ordered = sorted(changes, key=lambda change: isinstance(change, EdgeChange))
    for first in range(0, len(ordered), TOGETHER):
        yield ordered[first : first + TOGETHER]


def _lock_all(transaction: Transaction, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Lock the checkpoints of all stages, and read them.

    The last stage comes first: a stage that asks for another's lock holds its own already, and the
    other is always an earlier one.
    """
    numbers = {name: number for number, name in enumerate(STAGES)}
    ordered = sorted(checkpoints, key=lambda at: (-numbers.get(at.stage, 0), at.partition))
    held = [transaction.lock(at.stage, at.partition) for at in ordered]
    return [at for at in held if at is not None]
