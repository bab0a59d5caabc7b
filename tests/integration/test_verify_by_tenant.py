"""A large graph is added up by tenant, in bounded memory; what differs is judged exactly."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Collection, Iterator
from typing import Any

import pytest

from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.entries import Entry
from pipelines.proof import verify as verifying
from pipelines.proof.expected import LedgerFold
from pipelines.proof.report import ProofReport
from pipelines.proof.shares import FOLDING
from projections.errors import OperationFailed
from projections.schema import DEAD_LETTER, EVENT
from tests.bench.stack import child_pids, command_line
from tests.factories import event, event_id
from tests.integration.stack import Stack, keys_of

pytestmark = pytest.mark.integration

TENANTS = ("acme", "branch", "shop")
EVENTS = 6
"""Of each tenant."""


@pytest.fixture
def large(stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Stack:
    """A graph of a few events that counts as large, and is folded in two shares."""
    monkeypatch.setattr(verifying, "CHILD_FROM_ENTRIES", 1)
    monkeypatch.setattr(verifying, "shares_of", lambda *given: 2)
    take_in(stack, *TENANTS)
    return stack


@pytest.fixture
def exactly_folded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Tenants that are folded in this process, to be judged exactly."""
    tenants: list[str] = []
    advance = LedgerFold.advance

    def noted(fold: LedgerFold, *given: Any) -> None:
        tenants.extend(one for one in (*TENANTS, "foreign") if fold.is_of(one))
        advance(fold, *given)

    monkeypatch.setattr(LedgerFold, "advance", noted)
    return tenants


def take_in(stack: Stack, *tenants: str, first: int = 1) -> None:
    stack.append(
        *(
            event(n, tenant=tenant, session_id=f"session-{n % 2}", at=n)
            for tenant in tenants
            for n in range(first, first + EVENTS)
        )
    )
    stack.fold()


def of_event(n: int, text: str, tenant: str = "shop") -> str:
    return f"MATCH (e:Event {{tenant: '{tenant}', event_id: '{event_id(n)}'}}) {text}"


def same(one: ProofReport, other: ProofReport) -> bool:
    left, right = one.as_dict(), other.as_dict()
    return all(left[name] == right[name] for name in left if name != "duration_s")


def test_what_is_right_is_told_as_the_exact_proof_tells_it(
    large: Stack, exactly_folded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    report = large.verify(progress=lambda done, total, what: said.append(what))
    assert report.ok
    assert report.events == len(TENANTS) * EVENTS
    assert FOLDING in said
    assert not exactly_folded
    monkeypatch.setattr(verifying, "CHILD_FROM_ENTRIES", 1_000)
    assert same(report, large.verify())
    assert exactly_folded


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (of_event(2, "SET e.text = 'forged'"), ("different", "node", EVENT.label)),
        (of_event(3, "SET e.event_type = 7"), ("different", "node", EVENT.label)),
        (of_event(4, "DETACH DELETE e"), ("missing", "node", EVENT.label)),
        (
            "MATCH (a:Event {tenant: 'shop'})-[f:FOLLOWS]->(b) WITH * LIMIT 1 "
            "CREATE (b)-[:FOLLOWS]->(a)",
            ("extra", "edge", "FOLLOWS"),
        ),
        (
            "CREATE (:Event {tenant: 'foreign', event_id: 'x', session_id: 's'})",
            ("extra", "node", EVENT.label),
        ),
    ],
)
def test_what_differs_is_judged_exactly_with_its_tenant_alone(
    large: Stack, exactly_folded: list[str], text: str, named: tuple[str, ...]
) -> None:
    whole, before = large.verify(), large.dump()
    large.cypher(text)
    report = large.verify()
    assert named in {key[:3] for key in keys_of(report)}
    assert set(exactly_folded) in ({"shop"}, {"foreign"})
    mended = large.verify(repair=True)
    assert mended.ok
    assert mended.repaired == report.difference_count == mended.found_count
    assert large.dump() == before
    assert same(whole, large.verify())


@pytest.mark.parametrize(
    "text",
    [
        "DROP CONSTRAINT entity_key IF EXISTS",
        "CREATE (:Alien {name: 'x'})",
        "CREATE (:Event {tenant: 7, event_id: 'x'})",
    ],
)
def test_what_is_of_no_tenant_is_found_and_mended(large: Stack, text: str) -> None:
    before = large.dump()
    large.cypher(text)
    report = large.verify()
    assert not report.ok
    assert large.verify(repair=True).ok
    assert large.dump() == before
    assert large.verify().ok


def test_a_worker_that_goes_on_is_no_difference(large: Stack) -> None:
    worked: list[str] = []

    def progress(done: int, total: int | None, what: str) -> None:
        if what == FOLDING and not worked:  # the graph was read, the ledger is folded as far
            worked.append(what)
            take_in(large, "shop", "late", first=100)

    report = large.verify(progress=progress)
    assert worked
    assert report.ok, report.differences


def test_what_changes_while_it_is_read_is_judged_again(
    large: Stack, exactly_folded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Neo4jGraph.held

    def working(graph: Neo4jGraph, names: Collection[str]) -> Iterator[Any]:
        take_in(large, "shop", first=100)  # checkpoints were read, the graph is not yet
        return held(graph, names)

    monkeypatch.setattr(Neo4jGraph, "held", working)
    report = large.verify()
    assert report.ok, report.differences
    assert set(exactly_folded) == {"shop"}


def test_what_nobody_can_read_and_is_given_up_meanwhile_is_looked_at_again(
    large: Stack, exactly_folded: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    held = Neo4jGraph.held
    given_up: list[Entry] = []

    def working(graph: Neo4jGraph, names: Collection[str]) -> Iterator[Any]:
        if given_up:
            return held(graph, names)
        given_up.append(large.append_raw(0, b"no event"))
        large.fold()
        return held(graph, [*names, DEAD_LETTER.label])

    monkeypatch.setattr(Neo4jGraph, "held", working)
    report = large.verify()
    assert report.ok, report.differences
    assert report.dead_letter_count == 1
    assert not exactly_folded


def test_a_folding_process_that_is_killed_is_an_error(large: Stack) -> None:
    def folding() -> list[int]:
        return [pid for pid in child_pids(os.getpid()) if b"proof.shares" in command_line(pid)]

    def kill() -> None:
        while not (pids := folding()):
            time.sleep(0.01)
        os.kill(pids[0], signal.SIGKILL)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(OperationFailed, match="ended without a result"):
        large.verify()
    killer.join(timeout=60)
    assert not folding()
    assert large.verify().ok


def test_one_stage_is_told_of_alone(large: Stack) -> None:
    large.cypher(of_event(2, "SET e.event_type = 'forged'"))
    assert large.verify(stage="projection").difference_count == 1
    assert not large.verify(stage="enrichment").stages
