"""Mutations made from the rows of the schema, on a real Neo4j: some always, all when asked for."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, cast

import neo4j
import pytest

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.proof import proof
from pipelines.proof.expected import LedgerFold
from pipelines.proof.proof import prove
from projections.errors import GraphRejected
from projections.schema import EDGES, index_definitions
from tests.graph_dump import dump
from tests.proof_world import IMPATIENT, World, stage_folds
from tests.properties import test_mutations as mutations
from tests.properties.test_mutations import Case

pytestmark = pytest.mark.integration

SOME = 40
MOST_UNWRITTEN = 0.15
"""Share of the cases that this store cannot be made to hold, such as a time of another type."""


@pytest.fixture
def world(neo4j_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """The world of the mutations, folded into a Neo4j."""
    monkeypatch.setattr(proof, "RETURN_WAIT_S", 0.0)
    with neo4j.GraphDatabase.driver(neo4j_url) as driver:
        made = World(ledger=mutations.whole().world.ledger, graph=cast(Any, Neo4jGraph(driver)))
        made.take_in()
        yield made


def cases() -> list[Case]:
    """All that the store can be made to hold."""
    made = [case for row in mutations.PROVED for case in mutations.node_cases(row)]
    made += [case for row in EDGES.values() for case in mutations.edge_cases(row)]
    return [*made, *mutations.ghosts()]


def check(world: World, chosen: list[Case]) -> None:
    """Each is found, and mended to the same graph."""
    folded = LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
    assert prove(world.graph, folded).ok
    before, census = dump(world.graph), world.graph.census()
    failed, unwritten = [], 0
    for case in chosen:
        fold = folded
        if "ghost" in case.name or "DeadLetter" in case.name:
            fold = LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
        with suppress(GraphRejected):  # a time that is none cannot be written as one
            case.damage(world.graph)
        if dump(world.graph) == before and world.graph.census() == census:
            unwritten += 1  # refused, or taken for the value that was there
            continue
        report = prove(world.graph, fold, repair=True)
        if not report.found_count:
            failed.append(f"not found: {case.name}")
        elif not report.ok:
            failed.append(f"not mended: {case.name}: {report.differences[:2]}")
        elif dump(world.graph) != before or world.graph.census() != census:
            failed.append(f"mended to something else: {case.name}")
    assert not failed, "\n".join([f"{len(failed)} of {len(chosen)}", *failed])
    assert unwritten <= MOST_UNWRITTEN * len(chosen), f"{unwritten} of {len(chosen)} unwritten"


def test_some_mutations_are_found_and_mended(world: World) -> None:
    check(world, random.Random(1).sample(cases(), SOME))


@pytest.mark.acceptance_long
@pytest.mark.timeout(3_600)
def test_all_mutations_are_found_and_mended(world: World) -> None:
    check(world, cases())


def test_dropped_indexes_and_constraints_come_back(world: World, neo4j_url: str) -> None:
    fold = LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
    names = sorted(index_definitions())
    with neo4j.GraphDatabase.driver(neo4j_url) as driver, driver.session() as session:
        constraints = session.run("SHOW CONSTRAINTS YIELD name").value()
        indexes = [name for name in names if name not in constraints]
        dropped = [f"DROP INDEX `{indexes[0]}`", f"DROP CONSTRAINT `{sorted(constraints)[0]}`"]
        for text in dropped:
            session.run(text).consume()
    report = prove(world.graph, fold)
    assert {(one.kind, one.type) for one in report.differences} == {
        ("missing", "index"),
        ("missing", "constraint"),
    }
    assert prove(world.graph, fold, repair=True).ok
