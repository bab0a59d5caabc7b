"""Proof beside workers: dead letters, folds that go on, and what is alike."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, cast

import pytest

from enrichment.similarity import CAP
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.rows import FoundEdge, FoundNode
from pipelines.ledger.entries import Entry
from pipelines.proof.expected import LedgerFold
from pipelines.proof.proof import prove
from pipelines.proof.report import ProofReport
from pipelines.proof.shares import entries_of, share_of, split
from projections.errors import GraphAhead
from projections.identity import START
from projections.operations import Key
from projections.schema import DEAD_LETTER, DROPPED, EVENT, SIMILAR_TO
from tests.factories import event_id
from tests.fakes.keys import memory_vault
from tests.fakes.ledger import FakeLedger
from tests.graph_dump import dump
from tests.proof_world import (
    IMPATIENT,
    PARTITIONS,
    WordEmbedder,
    World,
    decisions,
    events_of_first_half,
    populated,
    said,
    stage_folds,
)

STORED = [p.name for p in EVENT.stored()]


def proved(world: World, *, repair: bool = False, fold: LedgerFold | None = None) -> ProofReport:
    """With models that stand every word."""
    fold = fold or LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
    return prove(world.graph, fold, repair=repair)


def node_of(graph: MemoryGraph, number: int) -> FoundNode:
    key = ("default", event_id(number))
    return graph.nodes(EVENT.label, [key], STORED)[key]


def change_event(graph: MemoryGraph, number: int, **values: object) -> None:
    node = node_of(graph, number)
    with graph.transaction() as transaction:
        transaction.restore_nodes(EVENT.label, [node._replace(values={**node.values, **values})])


def similar(graph: MemoryGraph) -> list[FoundEdge]:
    return list(cast(Iterator[FoundEdge], graph.stream(SIMILAR_TO.type, ("score",))))


# -- dead letters ----------------------------------------------------------------------------------


@pytest.fixture
def flaky() -> World:
    """Its workers could not embed event 3 when it came."""
    world = World(embedder=WordEmbedder(failing="unspeakable"))
    world.take_in(said(1, "one word"), said(2, "another"), said(3, "unspeakable"), said(4, "well"))
    assert [one["seq"] for one in world.graph.dead_letters("enrichment")]
    return world


def test_what_workers_could_not_fold_is_missed_by_nobody(flaky: World) -> None:
    before = dump(flaky.graph)
    assert proved(flaky).ok
    assert proved(flaky, repair=True).repaired == 0
    assert dump(flaky.graph) == before


def test_a_dead_letter_that_is_replayed_is_folded_after_all(flaky: World) -> None:
    fold = LedgerFold(flaky.ledger, stage_folds(flaky.ledger), policy=IMPATIENT)
    assert proved(flaky, fold=fold).ok
    (letter,) = flaky.graph.dead_letters("enrichment")
    flaky.embedder.failing = ""
    for runner in flaky.runners[1:]:
        entries = flaky.ledger.read(letter["partition"], START, 10)
        assert not runner.refold(letter["partition"], entries)
    assert not flaky.graph.dead_letters()
    assert proved(flaky, fold=fold).ok


def test_a_dead_letter_that_was_given_up_stays_so() -> None:
    world = populated()
    (key,) = [node.key for node in cast(Iterator[FoundNode], world.graph.stream(DEAD_LETTER.label))]
    names = [p.name for p in DEAD_LETTER.stored()]
    node = world.graph.nodes(DEAD_LETTER.label, [key], names)[key]
    with world.graph.transaction() as transaction:
        dropped = node._replace(values={**node.values, "kind": DROPPED})
        transaction.restore_nodes(DEAD_LETTER.label, [dropped])
    assert proved(world).ok


# -- beside workers --------------------------------------------------------------------------------


class Moving(MemoryGraph):
    """A graph into which a worker folds while it is streamed."""

    def __init__(self) -> None:
        super().__init__()
        self.work: list[World] = []

    def stream(
        self,
        label_or_type: str,
        properties: Sequence[str] = (),
        *,
        tenants: Collection[str] | None = None,
    ) -> Iterator[FoundNode] | Iterator[FoundEdge]:
        if self.work:
            number = 100 + len(self.work)
            self.work.pop().take_in(said(number, "the payment service answers", parent=4))
        return super().stream(label_or_type, properties, tenants=tenants)


def test_a_worker_that_goes_on_is_no_difference() -> None:
    graph = Moving()
    world = World(graph=graph)
    world.take_in(*(said(n, "the payment service is away") for n in range(1, 6)))
    graph.work = [world] * 8
    report = proved(world, repair=True)
    assert report.ok
    assert (report.found_count, report.repaired) == (0, 0)
    assert not graph.work
    assert report.stages["projection"].entries == 13


def test_a_fold_goes_on_where_it_ended() -> None:
    world = World()
    world.take_in(said(1, "one"), said(2, "two"))
    fold = LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
    assert proved(world, fold=fold).stages["projection"].entries == 2
    world.take_in(said(3, "three"))
    report = proved(world, fold=fold)
    assert report.ok
    assert [one.entries for one in report.stages.values()] == [3, 3, 3]


def test_a_checkpoint_that_went_back_is_folded_from_the_start() -> None:
    world = populated()
    fold = LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
    assert proved(world, fold=fold).ok
    folded = world.graph
    world.graph = MemoryGraph()
    world.__post_init__()
    assert proved(world, fold=fold).ok
    assert not fold.graph.census().labels.get(EVENT.label)
    world.take_in()
    assert proved(world, fold=fold).ok
    assert dump(world.graph).nodes.keys() == dump(folded).nodes.keys()


class Counting(FakeLedger):
    """Counts the entries that are read."""

    reads = 0

    def read(self, *given: Any, **named: Any) -> list[Entry]:
        entries = super().read(*given, **named)
        self.reads += len(entries)
        return entries


@pytest.mark.parametrize("block", [1, 4, 500])
def test_folds_of_shares_read_the_ledger_once_each_and_make_the_whole(
    monkeypatch: pytest.MonkeyPatch, block: int
) -> None:
    monkeypatch.setattr("pipelines.proof.expected.BLOCK", block)
    ledger = Counting(partitions=PARTITIONS)
    world = World(ledger=ledger)
    tenants = [f"tenant-{n % 3}" for n in range(30)]
    world.take_in(*(said(n, f"word {n % 7}", tenant=one) for n, one in enumerate(tenants, 1)))
    ends = world.graph.checkpoints()
    whole: dict[tuple[str, Key], Any] = {}
    for tenant in sorted(set(tenants)):
        ledger.reads = 0
        fold = LedgerFold(ledger, stage_folds(ledger), policy=IMPATIENT, tenants=tenant.__eq__)
        fold.advance(MemoryGraph(), ends)
        assert len(tenants) == ledger.reads
        assert ends == fold.graph.checkpoints()
        assert [len(tenants)] * 3 == [*fold.entries.values()]
        nodes = dump(fold.graph).nodes
        assert {tenant} == {key[0] for label, key in nodes if label == EVENT.label}
        whole |= nodes
    assert dump(world.graph).nodes == whole


@pytest.mark.parametrize("sealed", [(), ("tenant-1", "tenant-3")])
@pytest.mark.parametrize("block", [1, 4, 500])
def test_shares_that_were_written_down_make_the_whole_of_one_reading(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, block: int, sealed: tuple[str, ...]
) -> None:
    monkeypatch.setattr("pipelines.proof.expected.BLOCK", block)
    monkeypatch.setattr("pipelines.proof.shares.BLOCK", block)
    ledger = Counting(partitions=PARTITIONS, vault=memory_vault(*sealed))
    world = World(ledger=ledger)
    tenants = [f"tenant-{n % 5}" for n in range(30)]
    world.take_in(
        *(said(n, f"word {n % 7} of-{one}", tenant=one) for n, one in enumerate(tenants, 1))
    )
    ends = world.graph.checkpoints()
    ledger.reads = 0
    folders = [tmp_path / str(share) for share in range(3)]
    for folder in folders:
        folder.mkdir()
    split(ledger, ends, folders, lambda done, total, what: None)
    written = b"".join(path.read_bytes() for folder in folders for path in folder.iterdir())
    assert b"of-tenant-0" in written
    assert (b"of-tenant-1" in written) is ("tenant-1" not in sealed)

    def fold_of(share: int, folder: Path) -> LedgerFold:
        return LedgerFold(
            ledger,
            stage_folds(ledger),
            policy=IMPATIENT,
            tenants=lambda tenant: share_of(tenant, len(folders)) == share,
            read=lambda _, to: entries_of(folder, to.partition, ledger.vault),
        )

    whole: dict[tuple[str, Key], Any] = {}
    for share, folder in enumerate(folders):
        fold = fold_of(share, folder)
        fold.advance(MemoryGraph(), ends)
        assert ends == fold.graph.checkpoints()
        whole |= dump(fold.graph).nodes
    assert dump(world.graph).nodes == whole
    assert ledger.reads == len(tenants)


def test_a_ledger_that_lost_entries_proves_nothing() -> None:
    world = World()
    world.take_in(said(1, "one"), said(2, "two"))
    partition = next(n for n, tail in enumerate(world.ledger.tails()) if tail.seq)
    world.ledger.server.lose(partition, 1)
    with pytest.raises(GraphAhead):
        proved(world)


# -- alike -----------------------------------------------------------------------------------------


def test_a_forged_vector_costs_no_edge() -> None:
    world = populated()
    before = dump(world.graph)
    assert similar(world.graph)
    change_event(world.graph, 4, embedding=(1.0, *([0.0] * 383)))
    report = proved(world, repair=True)
    assert report.ok
    assert report.repaired == 1
    assert dump(world.graph) == before


def crowd() -> World:
    """More events that say the same than a node may have neighbours."""
    world = World()
    world.take_in(*(said(n, "the payment service is away") for n in range(1, CAP + 8)), size=3)
    return world


def test_which_of_equals_are_neighbours_does_not_depend_on_who_came_first() -> None:
    world = crowd()
    assert proved(world).ok
    later = World(ledger=world.ledger)
    later.take_in(size=7)  # another order of arrival
    assert proved(later).ok
    assert dump(later.graph) == dump(world.graph)


@pytest.mark.parametrize("number", range(3))
def test_each_edge_between_equals_is_missed(number: int) -> None:
    world = crowd()
    before = dump(world.graph)
    missed = similar(world.graph)[number::3]
    with world.graph.transaction() as transaction:
        gone = [(edge.source, edge.target, edge.label) for edge in missed]
        transaction.restore_edges(SIMILAR_TO.type, [], gone=gone)
    report = proved(world)
    assert report.difference_count == len(missed)
    assert {one.kind for one in report.differences} == {"missing"}
    assert proved(world, repair=True).ok
    assert dump(world.graph) == before


def test_a_neighbour_too_many_goes() -> None:
    world = crowd()
    edges = similar(world.graph)
    ends: set[Key] = {edge.source for edge in edges} | {edge.target for edge in edges}
    pairs = {(edge.source, edge.target) for edge in edges}
    added = next(
        FoundEdge(source, target, EVENT.label, {"score": 1.0})
        for source in sorted(ends)
        for target in sorted(ends)
        if source < target and (source, target) not in pairs
    )
    with world.graph.transaction() as transaction:
        transaction.restore_edges(SIMILAR_TO.type, [added])
    assert not proved(world).ok
    assert proved(world, repair=True).ok
    assert {(edge.source, edge.target) for edge in similar(world.graph)} == pairs


# -- any order -------------------------------------------------------------------------------------

LATE = {event_id(number) for number in (7, 8, 9, 12, 13)}
"""Events that no decision is about."""


@pytest.mark.parametrize("seed", range(12))
def test_what_workers_fold_in_any_order_is_proved(seed: int) -> None:
    draw = random.Random(seed)
    world = World()
    first = events_of_first_half()
    draw.shuffle(first)
    late = [e for e in first if e.event_id in LATE][: draw.randint(0, 5)]
    world.take_in(*(e for e in first if e not in late), size=draw.randint(1, 9))
    decided = decisions(world.graph)
    early = draw.randint(0, len(decided))
    for some in (decided[:early], late, decided[early:]):
        world.take_in(*some, size=draw.randint(1, 9))
    report = proved(world)
    assert report.ok, report.differences
