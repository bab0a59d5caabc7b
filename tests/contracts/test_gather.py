"""What the stages gather, on both stores: neighbours of late events, tombstones, stretches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pytest

from enrichment.derived import Derived
from enrichment.event_kinds import EventKind
from enrichment.ports import EventText
from pipelines.graph.port import Graph
from pipelines.ledger.ledger import Ledger
from pipelines.work.gather import enrichment as gathering
from pipelines.work.gather import projection
from pipelines.work.gather.enrichment import EnrichmentFacts, RememberedFeatures
from projections.events import Event
from projections.identity import Link, Position
from projections.operations import DecideNode, MergeNode, Operations, RemoveNode
from projections.schema import EVENT, FORGOTTEN
from projections.structural import Facts, Neighbours, project
from tests.contracts.test_graph_port import enriched
from tests.contracts.test_graph_reads import put
from tests.factories import START_MS, event, event_id
from tests.fakes.ledger import FakeLedger

STAGE = "projection"
SESSION = ("default", "session-1")


@pytest.fixture(autouse=True)
def checkpoints(graph: Graph) -> None:
    graph.ensure_checkpoints(STAGE, 1, 1)


def fold(graph: Graph, *events: Event) -> None:
    """What the runner does with a block, without moving a checkpoint."""
    with graph.transaction() as transaction:
        transaction.lock(STAGE, 0)
        facts = projection.gather(transaction, events)
        transaction.apply(project([(Position(9, 0), e) for e in events], facts), STAGE)


def facts_about(graph: Graph, *events: Event) -> Facts:
    with graph.transaction() as transaction:
        transaction.lock(STAGE, 0)
        return projection.gather(transaction, events)


def link(number: int) -> Link:
    made = event(number)
    return Link(made.occurred_at_ms, made.event_id)


def neighbours(*numbers: int | None, present: bool = False) -> Neighbours:
    before, after = (None if n is None else link(n) for n in numbers)
    return Neighbours(before, after, present)


def test_an_empty_graph_knows_nobody(graph: Graph) -> None:
    found = facts_about(graph, event(1), event(2))
    assert found.neighbours == {
        (SESSION, link(1)): neighbours(None, None),
        (SESSION, link(2)): neighbours(None, None),
    }
    assert not found.tombstones


def test_new_events_stand_behind_the_last(graph: Graph) -> None:
    fold(graph, event(1), event(2), event(3, session_id="other"), event(4, tenant="acme"))
    found = facts_about(graph, event(5), event(6))
    assert found.neighbours == {
        (SESSION, link(5)): neighbours(2, None),
        (SESSION, link(6)): neighbours(2, None),
    }


@pytest.mark.parametrize("late", [(1, 6, 10), (1, 3, 4, 6, 10), (3, 5, 7, 9)])
def test_late_events_stand_between(graph: Graph, late: Sequence[int]) -> None:
    """Few of them are looked up one by one, more are found in the stretch that they span."""
    fold(graph, *(event(n) for n in (2, 5, 8)))
    around = {
        1: neighbours(None, 2),
        3: neighbours(2, 5),
        4: neighbours(2, 5),
        5: neighbours(2, 8, present=True),
        6: neighbours(5, 8),
        7: neighbours(5, 8),
        9: neighbours(8, None),
        10: neighbours(8, None),
    }
    found = facts_about(graph, *(event(n) for n in late))
    assert found.neighbours == {(SESSION, link(n)): around[n] for n in late}


@pytest.mark.parametrize("late", [(1, 2), (1, 2, 3, 4, 5, 7)])
def test_of_equal_times_the_id_decides(graph: Graph, late: Sequence[int]) -> None:
    fold(graph, *(event(n, at=0) for n in (2, 4, 6)))
    found = facts_about(graph, *(event(n, at=0) for n in late))

    def tied(number: int | None) -> Link | None:
        return None if number is None else Link(START_MS, event_id(number))

    around = {1: (None, 2), 2: (None, 4), 3: (2, 4), 4: (2, 6), 5: (4, 6), 7: (6, None)}
    assert found.neighbours == {
        (SESSION, Link(START_MS, event_id(n))): Neighbours(
            tied(around[n][0]), tied(around[n][1]), n in (2, 4)
        )
        for n in late
    }


@pytest.mark.parametrize("held", [30, 40, 45])
def test_a_wide_stretch_is_not_read(graph: Graph, held: int) -> None:
    """Around the limit of 8 times 4 it makes no difference which way the neighbours are found."""
    fold(graph, *(event(n, at=10 * n) for n in range(1, held + 1)))
    late = [event(1_000 + n, at=10 * n + 5) for n in (1, 2, 10, held - 1)]
    searches: list[int] = []
    with graph.transaction() as transaction:
        transaction.lock(STAGE, 0)
        stretch = transaction.stretch

        def counted(label: str, spans: Any, *arguments: Any, **options: Any) -> Any:
            searches.append(len(spans))
            return stretch(label, spans, *arguments, **options)

        transaction.stretch = counted  # type: ignore[method-assign]  # of this transaction
        found = projection.gather(transaction, late)
    assert {
        (known.before and known.before.event_id, known.after and known.after.event_id)
        for known in found.neighbours.values()
    } == {(event_id(n), event_id(n + 1)) for n in (1, 2, 10, held - 1)}
    assert searches == ([1, 1] if held == 30 else [1, 1, 4])


def test_sessions_and_tenants_do_not_see_each_other(graph: Graph) -> None:
    fold(graph, event(1), event(9, session_id="other"), event(9, tenant="acme"))
    found = facts_about(
        graph, *(event(n, session_id="other") for n in (1, 2, 3, 4)), event(5, tenant="acme")
    )
    for (session, _), known in found.neighbours.items():
        assert known.before is None
        assert known.after == link(9)
        assert session in {("default", "other"), ("acme", "session-1")}


def test_placeholders_are_nobodys_neighbours(graph: Graph) -> None:
    fold(graph, event(5, parent=3))
    assert facts_about(graph, event(1)).neighbours == {(SESSION, link(1)): neighbours(None, 5)}


def forget(graph: Graph, *events: Event, recalled: bool = False) -> None:
    """Take events away, and leave their tombstones."""
    batch = Operations()
    for made in events:
        batch.add(RemoveNode(EVENT.label, made.key))
        values = {
            "session_id": made.session_id,
            "user_id": made.user_id,
            "occurred_at": made.occurred_at_ms,
            "importance_score": 4,
            "summary_id": None,
            "vector": None,
        }
        batch.add(MergeNode(label=FORGOTTEN.label, key=made.key, values=values))
        if recalled:
            batch.add(
                DecideNode(
                    label=FORGOTTEN.label,
                    key=made.key,
                    name="recalled",
                    value=True,
                    position=Position(3, 0),
                )
            )
    with graph.transaction() as transaction:
        transaction.apply(batch, "consolidation")


def test_tombstones_are_told_of_those_asked_for(graph: Graph) -> None:
    forget(graph, event(1), event(2))
    forget(graph, event(4), recalled=True)
    found = facts_about(graph, event(1), event(3), event(4), event(2, tenant="acme"))
    assert found.tombstones == {event(1).key}


# -- the enrichment's stretches --------------------------------------------------------------------


def derived(number: int, **fields: Any) -> Derived:
    made = event(number, **fields)
    return Derived(Position(number, 0), made, EventText(EventKind.OTHER, ""))


def stretches(graph: Graph, *batch: Derived) -> list[list[tuple[int, bool, bool]]]:
    """Of the one session (event, folded before, gone)."""
    gather = EnrichmentFacts(
        RememberedFeatures(cast(Ledger, FakeLedger(partitions=1))), partitions=1, upstream=STAGE
    )
    with graph.transaction() as transaction:
        transaction.lock(STAGE, 0)
        found = gather.to_apply(transaction, batch).stretches
    return [
        [
            (int(member.link.event_id.replace("-", ""), 16), member.folded, member.gone)
            for member in stretch
        ]
        for stretch in found.get(SESSION, [])
    ]


def test_a_stretch_holds_what_is_enriched_or_about_to_be(graph: Graph) -> None:
    fold(graph, *(event(n) for n in range(1, 9)))
    put(graph, *(enriched(event(n).key) for n in (1, 2, 5, 8)), stage="enrichment")
    forget(graph, event(2))
    assert stretches(graph, derived(4), derived(6)) == [
        [
            (1, True, False),
            (2, False, True),
            (4, False, False),
            (5, True, False),
            (6, False, False),
            (8, True, False),
        ]
    ]


def test_long_stretches_are_halved_until_they_are_short(
    graph: Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gathering, "STRETCH", 5)
    monkeypatch.setattr(gathering, "WINDOW", 1)
    fold(graph, *(event(n) for n in range(1, 21)))
    others = [enriched(event(n).key) for n in range(1, 21) if n not in (2, 3, 19)]
    put(graph, *others, stage="enrichment")
    found = stretches(graph, derived(2), derived(3), derived(19))
    assert [[number for number, *_ in stretch] for stretch in found] == [
        [1, 2, 3],
        [2, 3, 4],
        [18, 19, 20],
    ]


def test_an_event_without_a_node_is_in_no_stretch(graph: Graph) -> None:
    assert stretches(graph, derived(1)) == []
