"""Verify of columns: no alarm while writers write, and whatever was changed is found and mended."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.columns import follow
from pipelines.columns.contents import KINDS, LISTED, compared, whole
from pipelines.columns.copy import Copy
from pipelines.columns.follow import Columns
from pipelines.columns.loading import columns_of
from pipelines.columns.tenant import Tenant
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.port import Graph
from projections.errors import ChangesLost, GraphUnavailable
from projections.schema import EDGES
from tests.columns_damage import DAMAGES
from tests.contracts.test_columns import World
from tests.contracts.test_graph_feed import STEPS, A, B, C, Step, apply, occurred
from tests.unit.pipelines.test_columns_follow import held, held_by


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "ITEMS_BESIDE", 1)


def drawn(graph: Graph) -> Columns:
    """Columns of a graph that holds a world."""
    World(2).write(graph)
    columns = Columns(graph)
    columns.load()
    return columns


def prepared() -> MemoryGraph:
    graph = MemoryGraph()
    with graph.transaction() as transaction:  # so that edges find their ends
        for label in sorted({one for row in EDGES.values() for one in (row.source, row.target)}):
            transaction.lock_nodes(label, (A, B, C), make=True)
    return graph


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[
        HealthCheck.too_slow,
        HealthCheck.data_too_large,
        HealthCheck.function_scoped_fixture,
    ],
)
@given(STEPS, STEPS, st.booleans())
def test_no_alarm_while_writers_write(
    before: list[tuple[Step, int]], beside: list[tuple[Step, int]], ahead: bool
) -> None:
    """Writes fall between any two items that are read, and between any reading and the next."""
    graph = prepared()
    for step, _ in before[: len(before) // 2]:
        step(graph)
    columns = Columns(graph)
    columns.load()
    for step, most in before[len(before) // 2 :]:
        step(graph)
        if most:
            columns.catch_up(most)
    left = iter(beside)

    def meanwhile() -> None:
        step, most = next(left, (None, 0))
        if step is not None:
            step(graph)
        if most or ahead:
            columns.catch_up(max(1, most))

    try:
        finding = columns.verify(meanwhile=meanwhile)
    except ChangesLost:  # emptied again and again
        assert len(beside) >= 3
        return
    assert str(finding.first) == "[]"
    assert (finding.difference_count, finding.counts) == (0, {})
    for step, _ in left:
        step(graph)
    columns.catch_up()
    assert held(columns) == held_by(columns_of(graph))


class Between(MemoryGraph):
    """A graph to which somebody writes before each of its answers, for a while."""

    def __init__(self) -> None:
        super().__init__()
        self.writes: Iterator[Callable[[], None]] = iter(())
        self.is_writing = False

    def _write(self) -> None:
        if not self.is_writing:
            self.is_writing = True
            next(self.writes, lambda: None)()
            self.is_writing = False

    def nodes(self, *arguments: Any, **options: Any) -> Any:
        self._write()
        return super().nodes(*arguments, **options)

    def changes(self, *arguments: Any, **options: Any) -> Any:
        self._write()
        return super().changes(*arguments, **options)


def test_what_was_read_before_it_was_told_is_no_difference() -> None:
    """A writer commits between what a round is told and what it reads, up to the last one."""
    graph = Between()
    for number in range(3):
        apply(graph, occurred(A, 10 + number))
    columns = Columns(graph)
    columns.load()
    apply(graph, occurred(B))
    times = iter(range(100, 140))
    graph.writes = iter([lambda: apply(graph, occurred(A, next(times))) for _ in range(40)])
    assert columns.verify().counts == {}


@pytest.mark.parametrize("name", DAMAGES)
def test_each_damage_is_named_and_mended(name: str, tmp_path: Path) -> None:
    world = World(2)
    see_that_it_is_mended(MemoryGraph(), world, name, tmp_path / "columns.sqlite")


def see_that_it_is_mended(graph: Graph, world: World, name: str, path: Path) -> None:
    world.write(graph)
    columns = Columns(graph, path)
    columns.load()
    assert columns.verify().counts == {}
    named = DAMAGES[name](columns.tenants[world.tenant])
    told = columns.verify()
    assert {(one.kind, one.key, *one.fields) for one in told.first} == named
    assert (told.difference_count, {*told.counts}) == (len(named), {world.tenant})
    assert columns.verify() == told, "it mends nothing unless it is told to"
    assert columns.verify(mend=True) == told
    assert columns.verify().counts == {}
    assert held(columns) == held_by(columns_of(graph))
    apply(graph, occurred(A, 7))
    columns.catch_up()
    columns.close()
    copied = Copy(path)
    assert copied.place() == columns.place
    assert held_by(copied.read() or {}) == held(columns)
    copied.close()


def test_a_tenant_too_many_and_one_too_few_are_found() -> None:
    columns = drawn(MemoryGraph())
    (name,) = columns.tenants
    columns.tenants["other"] = columns.tenants.pop(name)
    finding = columns.verify(mend=True)
    assert finding.counts[name] == finding.counts["other"]
    assert {(one.is_expected, one.is_held) for one in finding.first} <= {
        (True, False),
        (False, True),
    }
    assert columns.verify().counts == {}


def test_of_each_kind_some_are_named_and_all_are_counted() -> None:
    tenants = {"t": Tenant()}
    for number in range(3 * LISTED):
        row = tenants["t"].entities.row(f"n{number:02}")
        tenants["t"].entities.all[row].communities.add("c")
    finding = compared({}, tenants)
    (kind,) = finding.counts["t"]
    assert finding.counts == {"t": {kind: 3 * LISTED}}
    assert [one.key for one in finding.first] == [f"n{number:02}" for number in range(LISTED)]


def test_the_world_that_is_damaged_has_something_of_each_kind() -> None:
    columns = drawn(MemoryGraph())
    (tenant,) = columns.tenants.values()
    assert set(whole(tenant)) == {kind.name for kind in KINDS}


def test_a_graph_that_is_away_is_an_error_and_nothing_is_mended() -> None:
    class Away(MemoryGraph):
        is_away = False

        def stream(self, *arguments: Any, **options: Any) -> Any:
            if self.is_away:
                raise GraphUnavailable(reason="it is away")
            return super().stream(*arguments, **options)

    graph = Away()
    columns = drawn(graph)
    (tenant,) = columns.tenants.values()
    named = DAMAGES["a vector"](tenant)
    before = held(columns)
    graph.is_away = True
    with pytest.raises(GraphUnavailable, match="it is away"):
        columns.verify(mend=True)
    assert held(columns) == before
    graph.is_away = False
    apply(graph, occurred(A, 9))
    assert columns.verify(mend=True).difference_count == len(named)


def test_a_graph_that_is_emptied_again_and_again_is_an_error() -> None:
    graph = MemoryGraph()
    columns = drawn(graph)

    def empty() -> None:
        graph.clear(keep_checkpoints=True)
        apply(graph, occurred(A))
        columns.catch_up()

    with pytest.raises(ChangesLost, match="made anew"):
        columns.verify(meanwhile=empty)
