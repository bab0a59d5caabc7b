"""What a new thing costs: a row for a stage, a row for an edge type, a rule; nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from pipelines.cli.reference import schema_page
from pipelines.graph.rows import FoundEdge
from pipelines.ledger.registry import Target
from pipelines.operations.rebuild import rebuild, replay
from pipelines.proof.verify import verify
from pipelines.work.folds import Placed, StageFold
from pipelines.work.services import Services
from pipelines.work.stages import PROJECTION, STAGES, Stage
from projections.operations import MergeEdge, Operations
from projections.schema import EDGES, INTENTS, Certainty, EdgeRow, Kind, Property, View
from tests.factories import event
from tests.memory_stack import MemoryStack

REPEATS = EdgeRow(
    type="REPEATS",
    source="Event",
    target="Event",
    properties=(Property("tool_name", Kind.STRING, "lessons"),),
    stage="lessons",
    certainty=Certainty.FOLDED,
    view=View.CAUSAL,
    prov="(none)",
    weights=dict.fromkeys(INTENTS, 1.0),
    meaning="the same tool as its cause",
)


def repeated(events: Sequence[Placed], _: object) -> Operations:
    """The rule: an event repeats its cause where both used the same tool."""
    tools = {event.key: event.tool_name for _, event in events}
    operations = Operations()
    for _, made in events:
        cause = (made.tenant, made.parent_event_id or "")
        if made.tool_name is not None and tools.get(cause) == made.tool_name:
            values = {"tool_name": made.tool_name}
            edge = MergeEdge(type=REPEATS.type, source=made.key, target=cause, values=values)
            operations.add(edge)
    return operations


def lessons_fold(stage: Stage, services: Services, target: Target) -> StageFold:
    return StageFold(stage, lambda transaction, events: None, repeated)


LESSONS = Stage(
    name="lessons",
    fold_version=1,
    package="projections",
    make=lessons_fold,
    upstream=PROJECTION.name,
)
EVENTS = [
    event(n, tool_name="search" if n % 3 else "book", parent=n - 1 if n > 1 else None)
    for n in range(1, 10)
]
TWICE = [(n, n - 1) for n in (2, 5, 8)]
"""Each search right after a search."""


class Reports:
    """Takes what verify says of each stage."""

    def __init__(self) -> None:
        self.stages: list[str] = []

    def put(self, report: Any) -> None:
        self.stages.append(report.command)


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> MemoryStack:
    monkeypatch.setitem(EDGES, REPEATS.type, REPEATS)
    monkeypatch.setitem(STAGES, LESSONS.name, LESSONS)
    made = MemoryStack()
    made.services.reports = Reports()
    made.append(*EVENTS)
    made.fold()
    runner = made.new_runner(lessons_fold(LESSONS, cast(Any, made.services), made.target))
    runner.prepare(made.ledger.partitions)
    made.fold(runner=runner)
    return made


def edges(stack: MemoryStack) -> list[FoundEdge]:
    return list(cast(Any, stack.graph.stream(REPEATS.type, ("tool_name",))))


def test_it_is_folded_replayed_and_counted(stack: MemoryStack) -> None:
    places = {made.key: number for number, made in enumerate(EVENTS, 1)}
    assert sorted((places[e.source], places[e.target]) for e in edges(stack)) == TWICE
    before = stack.dump()
    assert replay(stack.services, LESSONS).failed == []
    assert stack.dump() == before
    assert stack.graph.counts().edges[REPEATS.type] == len(TWICE)


def test_it_is_proved_and_mended(stack: MemoryStack) -> None:
    before, whole = stack.dump(), verify(stack.services)
    assert whole.ok
    assert whole.compared[REPEATS.type] == len(TWICE)
    assert stack.services.reports.stages == ["verify", "verify-lessons"]
    first, second, _ = edges(stack)
    with stack.graph.transaction() as transaction:
        gone = [(first.source, first.target, first.label)]
        transaction.restore_edges(
            REPEATS.type, [second._replace(values={"tool_name": "x"})], gone=gone
        )
    report = verify(stack.services)
    assert [(one.kind, one.type) for one in report.differences] == [
        ("missing", REPEATS.type),
        ("different", REPEATS.type),
    ]
    assert report.stages["lessons"].difference_count == 2
    assert report.stages["projection"].difference_count == 0
    assert verify(stack.services, repair=True).stages == whole.stages
    assert stack.dump() == before


def test_it_is_rebuilt(stack: MemoryStack) -> None:
    before = stack.dump()
    with stack.graph.transaction() as transaction:
        gone = [(edge.source, edge.target, edge.label) for edge in edges(stack)]
        transaction.restore_edges(REPEATS.type, [], gone=gone)
    report = rebuild(stack.services)
    assert report.ok
    assert list(report.verified.stages) == ["projection", "lessons"]
    assert stack.dump() == before


def test_it_is_documented(stack: MemoryStack) -> None:
    assert f"`{REPEATS.type}`" in schema_page()
    assert REPEATS.meaning in schema_page()
