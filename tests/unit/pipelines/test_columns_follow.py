"""Columns that follow a graph hold what columns hold that have just read all of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pipelines.columns.contents import whole
from pipelines.columns.copy import Copy
from pipelines.columns.follow import Columns
from pipelines.columns.tenant import Tenant
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.port import Graph
from pipelines.graph.rows import FeedPlace
from projections.errors import ChangesLost
from projections.operations import MergeEdge, RemoveNode
from projections.schema import CAUSED_BY, DIRECT, EDGES, EVENT
from tests.contracts.test_graph_feed import STAGE, STEPS, A, B, C, Step, apply, occurred


def held(columns: Columns) -> dict[str, Any]:
    """Everything that columns hold, by names instead of rows; without tenants that have nothing."""
    return held_by(columns.tenants)


def held_by(columns: Mapping[str, Tenant]) -> dict[str, Any]:
    """The same of columns by the names of their tenants."""
    tenants = {name: whole(tenant) for name, tenant in columns.items()}
    return {name: one for name, one in tenants.items() if one}


@settings(
    deadline=None,
    max_examples=150,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
@given(STEPS, st.booleans())
def test_columns_that_follow_hold_what_the_graph_holds(
    steps: list[tuple[Step, int]], again: bool
) -> None:
    see_that_they_follow(MemoryGraph(), steps, again=again)


def see_that_they_follow(graph: Graph, steps: list[tuple[Step, int]], *, again: bool) -> None:
    """Let columns follow a graph now and then, each time as another process if `again`."""
    with graph.transaction() as transaction:  # so that edges find their ends
        for label in sorted({one for row in EDGES.values() for one in (row.source, row.target)}):
            transaction.lock_nodes(label, (A, B, C), make=True)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "columns.sqlite"
        columns = Columns(graph, path)
        for step, most in steps:
            step(graph)
            if most:
                columns.catch_up(most)
            if most and again:  # from the copy
                columns.close()
                columns = Columns(graph, path)
        columns.catch_up()
        anew = Columns(graph)
        anew.load()
        assert held(columns) == held(anew)
        columns.close()
        copied = Copy(path)
        assert copied.place() == columns.place == graph.feed()
        assert held_by(copied.read() or {}) == held(anew)
        copied.close()


def test_what_a_later_chain_tells_first_is_not_lost() -> None:
    """An event is removed in one chain; in another it comes back, and that is told first."""
    graph = MemoryGraph()
    graph.ensure_checkpoints(STAGE, 2, 1)
    link = MergeEdge(type=CAUSED_BY.type, source=A, target=B, values={"mechanism": DIRECT})
    apply(graph, occurred(A), occurred(B), link)
    columns = Columns(graph)
    columns.load()
    apply(graph, RemoveNode(EVENT.label, A), partition=1)
    apply(graph, occurred(A), link, partition=0)
    assert [one.chain for one in graph.changes(columns.place or graph.feed(), 1).changes] == [
        f"{STAGE}/0"
    ]
    columns.catch_up(most=1)
    tenant = columns.tenant(A[0])
    rows = [tenant.events.row(key[1]) for key in (A, B)]
    assert [edge[:2] for edge in tenant.causes.out(rows[0])] == [tuple(rows)]


def test_a_graph_without_a_feed_is_said_to_have_none() -> None:
    class Older(MemoryGraph):
        def feed(self) -> FeedPlace:
            raise ChangesLost(reason="there is no feed")

    columns = Columns(Older())
    for attempt in (columns.load, columns.catch_up):
        with pytest.raises(ChangesLost, match="no feed"):
            attempt()
    assert columns.place is None
    assert held(columns) == {}


def test_an_edge_between_tenants_is_in_the_columns_of_neither() -> None:
    """No stage makes one; the same id in the other tenant is something else."""
    graph = MemoryGraph()
    twin = (C[0], A[1])
    apply(graph, occurred(A), occurred(C), occurred(twin))
    own, foreign = (
        MergeEdge(type=CAUSED_BY.type, source=C, target=target, values={"mechanism": DIRECT})
        for target in (twin, A)
    )
    apply(graph, own)
    columns = Columns(graph)
    columns.load()
    sound = held(columns)
    apply(graph, foreign)
    columns.catch_up()
    anew = Columns(graph)
    anew.load()
    assert held(columns) == held(anew) == sound
