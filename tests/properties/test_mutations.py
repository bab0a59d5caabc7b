"""Whatever is wrong with a graph is found and mended: cases made from the rows of the schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, NamedTuple, cast

import pytest

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.rows import Census, FoundEdge, FoundNode
from pipelines.graph.tables import StoredNode
from pipelines.proof.expected import LedgerFold
from pipelines.proof.proof import prove
from pipelines.proof.report import EVERYTHING, ProofReport, Scope
from pipelines.proof.sums import StoredSums
from projections.identity import START
from projections.operations import Key
from projections.schema import (
    CHECKPOINT,
    DEAD_LETTER,
    EDGES,
    EVENT,
    NODES,
    VECTOR_DIMENSIONS,
    EdgeRow,
    Kind,
    NodeRow,
    Property,
)
from tests.graph_dump import Dump, dump
from tests.proof_world import IMPATIENT, World, populated, stage_folds

PROVED = [row for row in NODES.values() if row is not CHECKPOINT]
INSTANCES = 2
"""Nodes and edges that are changed, of each property."""
Damage = Callable[[MemoryGraph], None]


class Case(NamedTuple):
    """One way in which a graph is wrong."""

    name: str
    damage: Damage


class Whole(NamedTuple):
    """The world, the ledger folded once for all cases, and what every graph must come back to."""

    world: World
    fold: LedgerFold
    dump: Dump
    census: Census


@cache
def whole() -> Whole:
    """Built once."""
    world = populated()
    fold = LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
    return Whole(world, fold, dump(world.graph), world.graph.census())


def nodes_of(row: NodeRow) -> list[FoundNode]:
    """Every node of a label, with all that it stores."""
    names = [p.name for p in row.stored()]
    return list(cast(Iterator[FoundNode], whole().world.graph.stream(row.label, names)))


def edges_of(row: EdgeRow) -> list[FoundEdge]:
    """Every edge of a type."""
    names = [p.name for p in row.properties]
    return list(cast(Iterator[FoundEdge], whole().world.graph.stream(row.type, names)))


# -- values ----------------------------------------------------------------------------------------


def another(p: Property, value: Any) -> Any:
    """A value of the same kind."""
    if p.kind is Kind.VECTOR:
        place = 0 if value is None or value[0] < 0.5 else 1
        return tuple(float(n == place) for n in range(VECTOR_DIMENSIONS))
    if p.kind in (Kind.STRINGS, Kind.INTEGERS, Kind.TIMES):
        return (*(value or ()), "x" if p.kind is Kind.STRINGS else 7)
    if p.kind is Kind.BOOLEAN:
        return not value
    if p.kind is Kind.STRING:
        return f"{value}x"
    return (value or 0) + (0.5 if p.kind is Kind.FLOAT else 1)


def mistyped(p: Property, value: Any) -> Any:
    """The same value of another kind."""
    if p.kind is Kind.VECTOR:
        return tuple(2 * number for number in value)
    if p.kind in (Kind.INTEGER, Kind.TIME):
        return float(value)
    if p.kind is Kind.FLOAT:
        return str(value)
    if p.kind is Kind.BOOLEAN:
        return int(value)
    return 7 if p.kind is Kind.STRING else str(value)


def wrong_values(p: Property, values: list[Any]) -> Iterator[tuple[str, int, Any]]:
    """What may be wrong with a property: how, of which instance, and the wrong value."""
    there = [n for n, value in enumerate(values) if value is not None]
    absent = [n for n, value in enumerate(values) if value is None]
    for n in there[:INSTANCES]:
        yield "changed", n, another(p, values[n])
        yield "removed", n, None
        yield "mistyped", n, mistyped(p, values[n])
    for n in absent[:1]:
        yield "added", n, another(p, None)


# -- nodes -----------------------------------------------------------------------------------------


def put_node(row: NodeRow, node: FoundNode) -> Damage:
    def damage(graph: MemoryGraph) -> None:
        with graph.transaction() as transaction:
            transaction.restore_nodes(row.label, [node])

    return damage


def drop_node(row: NodeRow, key: Key) -> Damage:
    def damage(graph: MemoryGraph) -> None:
        with graph.transaction() as transaction:
            transaction.restore_nodes(row.label, [], gone=[key])

    return damage


def elsewhere(key: Key) -> Key:
    """A key that no node has."""
    last = key[-1]
    return (*key[:-1], last + 1_000 if isinstance(last, int) else f"{last}x")


def node_cases(row: NodeRow) -> Iterator[Case]:
    nodes = nodes_of(row)
    assert nodes, f"the world has no {row.label}"
    for p in row.stored():
        if p.name in row.key:
            continue
        for how, n, value in wrong_values(p, [node.values[p.name] for node in nodes]):
            changed = nodes[n]._replace(values={**nodes[n].values, p.name: value})
            yield Case(f"{row.label}.{p.name} {how} {n}", put_node(row, changed))
    for n, node in enumerate(nodes):
        yield Case(f"{row.label} removed {n}", drop_node(row, node.key))
        if row.placeholder is not None:
            flipped = node._replace(visible=not node.visible)
            yield Case(f"{row.label} visible flipped {n}", put_node(row, flipped))
        key = elsewhere(node.key)
        extra = node._replace(
            key=key, values={**node.values, **dict(zip(row.key, key, strict=True))}
        )
        yield Case(f"{row.label} extra {n}", put_node(row, extra))
    if row.placeholder is not None:
        values = {p.name: None for p in row.stored()}
        bare = FoundNode(elsewhere(nodes[0].key), False, values, True)
        yield Case(f"{row.label} extra placeholder", put_node(row, bare))
    yield Case(
        f"{row.label} foreign property",
        put_node(row, nodes[0]._replace(values={**nodes[0].values, "alien": 1})),
    )


# -- edges -----------------------------------------------------------------------------------------


def put_edges(row: EdgeRow, *edges: FoundEdge) -> Damage:
    def damage(graph: MemoryGraph) -> None:
        with graph.transaction() as transaction:
            transaction.restore_edges(row.type, edges)

    return damage


def drop_edges(row: EdgeRow, edge: FoundEdge) -> Damage:
    def damage(graph: MemoryGraph) -> None:
        with graph.transaction() as transaction:
            transaction.restore_edges(row.type, [], gone=[(edge.source, edge.target, edge.label)])

    return damage


def swap_ends(row: EdgeRow, edge: FoundEdge) -> Damage:
    def damage(graph: MemoryGraph) -> None:
        drop_edges(row, edge)(graph)
        put_edges(row, edge._replace(source=edge.target, target=edge.source))(graph)

    return damage


def edge_cases(row: EdgeRow) -> Iterator[Case]:
    edges = edges_of(row)
    assert edges, f"the world has no {row.type}"
    for p in row.properties:
        for how, n, value in wrong_values(p, [edge.values[p.name] for edge in edges]):
            changed = edges[n]._replace(values={**edges[n].values, p.name: value})
            others = [e for e in edges if e is not edges[n] and e[:3] == edges[n][:3]]
            yield Case(f"{row.type}.{p.name} {how} {n}", put_edges(row, changed, *others))
    pairs = {(edge.source, edge.target, edge.label) for edge in edges}
    for n, edge in enumerate(edges):
        copies = [other for other in edges if other[:3] == edge[:3]]
        yield Case(f"{row.type} removed {n}", drop_edges(row, edge))
        yield Case(f"{row.type} doubled {n}", put_edges(row, *copies, edge))
        if row.source == edge.label and (edge.target, edge.source, edge.label) not in pairs:
            yield Case(f"{row.type} swapped {n}", swap_ends(row, edge))
        for target in nodes_of(NODES[edge.label]):
            if (edge.source, target.key, edge.label) not in pairs:
                added = edge._replace(target=target.key)
                yield Case(f"{row.type} added {n}", put_edges(row, added))
                break
    foreign = edges[0]._replace(values={**edges[0].values, "alien": 1})
    others = [e for e in edges[1:] if e[:3] == foreign[:3]]
    yield Case(f"{row.type} foreign property", put_edges(row, foreign, *others))


# -- what the schema does not know -----------------------------------------------------------------


def foreign_label(graph: MemoryGraph) -> None:
    graph._tables.put_node("Alien", ("default", "1"), StoredNode({"tenant": "default"}, True))
    graph._tables.undo.clear()


def foreign_type(graph: MemoryGraph) -> None:
    one, other, *_ = (node.key for node in nodes_of(EVENT))
    graph._tables.put_pair("KNOWS", (one, EVENT.label, other), ({"since": 1},))
    graph._tables.undo.clear()


def everything_gone(graph: MemoryGraph) -> None:
    graph.clear(keep_checkpoints=True)


def ghosts() -> Iterator[Case]:
    """Dead letters of entries that were folded, of all stages."""
    ledger = whole().world.ledger
    for checkpoint in whole().world.graph.checkpoints():
        for entry in ledger.read(checkpoint.partition, START, 1_000):
            key = (checkpoint.stage, checkpoint.partition, entry.seq)
            if checkpoint.seq < entry.seq or key in {n.key for n in nodes_of(DEAD_LETTER)}:
                continue
            values: dict[str, Any] = {
                "position": str(entry.position),
                "tenant": None,
                "event_id": None,
                "kind": "poison",
                "reason": "so they say",
                "attempts": 5,
            }
            node = FoundNode(key, True, values, False)
            yield Case(f"ghost of {key}", put_node(DEAD_LETTER, node))


def added_up(graph: MemoryGraph) -> StoredSums:
    """All that a store holds, by tenant."""
    sums = StoredSums(by_tenant=True)
    for name in (*NODES, *EDGES):
        for item in graph.held(name) if name != CHECKPOINT.label else ():
            sums.add(name, item)
    return sums


def mended(case: Case, *, by_tenant: bool = False) -> ProofReport:
    """The case found, mended to the same graph, and nothing found any more.

    With `by_tenant` only tenants whose sums differ are judged, if all that differs is a tenant's.
    """
    held = whole()
    graph = held.world.copy()
    case.damage(graph)
    fold, scope = held.fold, EVERYTHING
    if DEAD_LETTER.label in case.name or "ghost" in case.name or "everything" in case.name:
        fold = LedgerFold(held.world.ledger, held.world.rules, policy=IMPATIENT)
    if by_tenant:
        differing = added_up(graph).differing(added_up(held.world.graph))
        tenants = frozenset(one for one in differing if one is not None)
        if tenants == differing:
            scope = Scope(among=tenants, schema=True)
    report = prove(graph, fold, repair=True, scope=scope)
    assert report.found_count, f"not found: {case.name}"
    assert report.ok, f"not mended: {case.name}: {report.differences[:3]}"
    assert dump(graph) == held.dump, f"mended to something else: {case.name}"
    assert graph.census() == held.census, f"something foreign was left: {case.name}"
    return report


def mend_all(cases: Iterator[Case]) -> int:
    """How many were found and mended, one after the other whole and by tenant.

    Names those that were not.
    """
    failed, count = [], 0
    for case in cases:
        count += 1
        try:
            mended(case)
            mended(case, by_tenant=True)
        except AssertionError as error:
            failed.append(str(error).split("\n")[0])
    assert not failed, "\n".join([f"{len(failed)} of {count}", *failed])
    return count


# -- tests -----------------------------------------------------------------------------------------


def test_the_graph_as_it_was_folded_is_proved() -> None:
    held = whole()
    fold = LedgerFold(held.world.ledger, held.world.rules, policy=IMPATIENT)
    report = prove(held.world.graph, fold)
    assert report.ok, report.differences
    assert report.compared == {
        name: number
        for name, number in {**held.census.labels, **held.census.types}.items()
        if name != CHECKPOINT.label
    }
    assert report.scope.startswith("compared: projection, enrichment, consolidation: ")


@pytest.mark.parametrize("row", PROVED, ids=lambda row: row.label)
def test_whatever_is_wrong_with_nodes_is_found_and_mended(row: NodeRow) -> None:
    assert mend_all(node_cases(row)) >= 3


@pytest.mark.parametrize("row", EDGES.values(), ids=lambda row: row.type)
def test_whatever_is_wrong_with_edges_is_found_and_mended(row: EdgeRow) -> None:
    assert mend_all(edge_cases(row)) >= 3


def test_dead_letters_of_entries_that_were_folded_are_found_and_deleted() -> None:
    assert mend_all(ghosts()) > 50


@pytest.mark.parametrize(
    "damage", [foreign_label, foreign_type, everything_gone], ids=lambda one: one.__name__
)
def test_a_graph_that_holds_other_things_or_nothing_is_mended(damage: Damage) -> None:
    mended(Case(damage.__name__, damage))
    mended(Case(damage.__name__, damage), by_tenant=True)


def test_there_are_hundreds_of_cases() -> None:
    nodes = sum(1 for row in PROVED for _ in node_cases(row))
    edges = sum(1 for row in EDGES.values() for _ in edge_cases(row))
    assert nodes + edges > 500
