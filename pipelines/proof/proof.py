"""Prove that a graph is what the ledger says: look, repair, look again; one report.

A look folds the ledger again as far as the graph has come, streams both in the order of keys, and
takes what differs for candidates, for workers go on meanwhile. Those are judged again by key, under
the locks of all checkpoints. Repair is the same judgement in a transaction that also writes what
must be there; it deletes nothing but what the ledger does not justify.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, TypeVar, cast

from pipelines.graph.port import FoundEdge, FoundNode, Graph, Reads, Transaction
from pipelines.proof.census import census_differences, mend_schema, remove_unknown
from pipelines.proof.compare import (
    Difference,
    EdgeChange,
    EdgePair,
    NodeChange,
    Similarity,
    edge_changes,
    node_changes,
    similar_changes,
)
from pipelines.proof.expected import LedgerFold, ReadLedger
from pipelines.work.folds import StageFold
from pipelines.work.poison import UNBRAKED, PoisonPolicy
from pipelines.work.stages import STAGES
from projections.operations import Checkpoint, Key
from projections.schema import CHECKPOINT, EDGES, NODES, SIMILAR_TO, EdgeRow, NodeRow

ROUNDS: Final = 3
"""Of repair: a node that comes back gets its edges in the next one at the latest."""
TOGETHER: Final = 2_000
"""Candidates that are judged under one lock."""
UNLOCKED_TRIES: Final = 5
"""How often the fold goes on without the locks before it goes on under them."""
SHOWN: Final = 1_000
"""Differences that a report names; all are counted."""
RECALL: Final = 0.99
"""Share of SIMILAR_TO that must be there of a large graph, whose index finds them nearly all."""
LARGE: Final = 2_000
"""SIMILAR_TO from which on a graph is large."""

Change = NodeChange | EdgeChange
Item = TypeVar("Item")


@dataclass(slots=True)
class ProofReport:
    """What a proof found.

    Attributes:
        entries: of the ledger that were folded, by stage.
        compared: nodes and edges that must be there, by label and type.
        differences: of the last look, the first SHOWN.
        difference_count: all of them.
        found_count: of the first look, before anything was repaired.
        repaired: how many differences were repaired.
        notes: what was tolerated, and why.
    """

    entries: Mapping[str, int] = field(default_factory=dict)
    compared: Mapping[str, int] = field(default_factory=dict)
    differences: list[Difference] = field(default_factory=list)
    difference_count: int = 0
    found_count: int = 0
    repaired: int = 0
    notes: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether nothing differs."""
        return not self.difference_count

    @property
    def scope(self) -> str:
        """What was compared, in one line."""
        things = ", ".join(f"{number} {name}" for name, number in self.compared.items() if number)
        return f"compared whole: {', '.join(self.entries)}: {things or 'nothing to compare'}"

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "ok": self.ok,
            "entries": dict(self.entries),
            "compared": dict(self.compared),
            "scope": self.scope,
            "differences": [one.as_dict() for one in self.differences],
            "difference_count": self.difference_count,
            "found_count": self.found_count,
            "repaired": self.repaired,
            "notes": self.notes,
        }


def prove(
    ledger: ReadLedger,
    graph: Graph,
    rules: Sequence[StageFold],
    *,
    repair: bool = False,
    policy: PoisonPolicy = UNBRAKED,
    fold: LedgerFold | None = None,
) -> ProofReport:
    """Compare a whole graph with its ledger, and mend it if told to.

    Args:
        ledger: what is true.
        graph: what is proved; workers may go on with it.
        rules: of the stages that it holds, in their order, with the workers' models.
        repair: whether to write what must be there, and look again.
        policy: when an entry is given up, as the workers have it.
        fold: of that ledger, which goes on where it stands; None: a new one.

    Raises:
        GraphAhead: the ledger lost entries that the graph has folded.
        FoldVersionMismatch, ModelsMismatch: the graph was folded by other rules.
        GraphUnavailable, LedgerUnavailable: a service is away.
    """
    proof = _Proof(graph, fold or LedgerFold(ledger, rules, policy=policy))
    report = ProofReport()
    for number in range(1 + ROUNDS * repair):
        changes, schema = proof.look(report)
        differences = [*(one.difference for one in changes), *schema]
        report.difference_count = len(differences)
        report.differences = differences[:SHOWN]
        if number == 0:
            report.found_count = len(differences)
        if not repair or not (differences or proof.unproved) or number == ROUNDS:
            break
        proof.mend([*changes, *proof.unproved], bool(schema))
        report.repaired += len(differences)
    return report


class _Proof:
    def __init__(self, graph: Graph, fold: LedgerFold) -> None:
        self._graph = graph
        self._expected = fold
        self.unproved: list[Change] = []
        """Missing edges that a large graph may lack; repair adds them all the same."""

    def look(self, report: ProofReport) -> tuple[list[Change], list[Difference]]:
        """What differs, of the graph and of its schema."""
        self._expected.advance(self._graph, self._graph.checkpoints())
        counts: Counter[str] = Counter()
        candidates = list(_streamed(self._expected.graph, self._graph, counts))
        changes: list[Change] = []
        for some in _parts(candidates):
            changes += self._under_locks(partial(_again, self._expected, some))
        report.entries = dict(self._expected.entries)
        report.compared = dict(counts)
        report.notes, changes = self._forgive(changes, counts[SIMILAR_TO.type])
        return changes, list(census_differences(self._graph.census()))

    def mend(self, changes: Sequence[Change], is_schema_wrong: bool) -> None:
        """Write what must be there, after a look under the locks."""
        if is_schema_wrong:
            census = self._graph.census()
            self._under_locks(lambda transaction: remove_unknown(transaction, census))
            mend_schema(self._graph)
        for some in _parts(changes):
            self._under_locks(partial(_mend, self._expected, some))

    def _under_locks(self, work: Callable[[Transaction], Item]) -> Item:
        """Do something while nothing moves, and the ledger is folded exactly as far."""
        for tried in range(UNLOCKED_TRIES + 1):
            with self._graph.transaction() as transaction:
                checkpoints = _lock_all(transaction, self._graph.checkpoints())
                if tried == UNLOCKED_TRIES:
                    self._expected.advance(self._graph, checkpoints)
                if self._expected.stands_at(checkpoints):
                    return work(transaction)
            self._expected.advance(self._graph, checkpoints)
        raise AssertionError("unreachable")

    def _forgive(self, changes: list[Change], total: int) -> tuple[list[str], list[Change]]:
        """Tell apart the few edges that an approximate index may not find in a large graph."""
        missed = [
            one
            for one in changes
            if one.difference.type == SIMILAR_TO.type and one.difference.kind == "missing"
        ]
        self.unproved = []
        if total < LARGE or not missed or len(missed) > (1 - RECALL) * total:
            return [], changes
        self.unproved = list(missed)
        note = f"{len(missed)} of {total} {SIMILAR_TO.type} are not there: the index is approximate"
        return [note], [one for one in changes if one not in missed]


# -- comparing -------------------------------------------------------------------------------------


def _streamed(expected: Graph, held: Graph, counts: Counter[str]) -> Iterator[Change]:
    """What differs between two graphs that may not stand still."""
    for label, row in NODES.items():
        if row is not CHECKPOINT:
            yield from node_changes(
                row, _counted(_nodes(expected, row), counts, label), _nodes(held, row)
            )
    for type_, edge_row in EDGES.items():
        left = _counted(_edges(expected, edge_row), counts, type_)
        right = _edges(held, edge_row)
        yield from _edge_changes(edge_row, left, right, Similarity(expected, held))


def _again(fold: LedgerFold, candidates: Iterable[Change], held: Reads) -> list[Change]:
    """Compare nodes and edges once more, by key."""
    expected = fold.graph
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
        changes += _edge_changes(edge_row, left, right, Similarity(expected, held))
    return changes


def _edge_changes(
    row: EdgeRow, left: Iterable[FoundEdge], right: Iterable[FoundEdge], judge: Similarity
) -> Iterator[EdgeChange]:
    if row is SIMILAR_TO:
        return similar_changes(left, right, judge)
    return edge_changes(row, left, right)


def _nodes(graph: Graph, row: NodeRow) -> Iterator[FoundNode]:
    return cast(Iterator[FoundNode], graph.stream(row.label, _stored(row)))


def _edges(graph: Graph, row: EdgeRow) -> Iterator[FoundEdge]:
    return cast(Iterator[FoundEdge], graph.stream(row.type, [p.name for p in row.properties]))


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


# -- repairing -------------------------------------------------------------------------------------


def _lock_all(transaction: Transaction, checkpoints: Iterable[Checkpoint]) -> list[Checkpoint]:
    """Lock the checkpoints of all stages, and read them.

    The last stage comes first: a stage that asks for another's lock holds its own already, and the
    other is always an earlier one.
    """
    numbers = {name: number for number, name in enumerate(STAGES)}
    ordered = sorted(checkpoints, key=lambda at: (-numbers.get(at.stage, 0), at.partition))
    held = [transaction.lock(at.stage, at.partition) for at in ordered]
    return [at for at in held if at is not None]


def _mend(fold: LedgerFold, candidates: Iterable[Change], transaction: Transaction) -> None:
    """Make nodes and edges what they must be, where they still are not."""
    changes = _again(fold, candidates, transaction)
    nodes: dict[str, list[NodeChange]] = {}
    edges: dict[str, list[EdgeChange]] = {}
    for change in changes:
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
