"""What a pass is asked for, what it looks at of its own accord, and what it says in the end."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.payloads import PassRequest
from pipelines.operations.passes.scopes import PassScope, due, tenants_of
from projections.events import Event
from projections.schema import CONSOLIDATION_REQUEST, PASS, SUMMARY
from tests.decision_factories import system
from tests.factories import NOW_MS, event, event_id, sessions
from tests.graph_dump import dump
from tests.passing import Passing


@pytest.fixture
def live() -> Passing:
    """Three sessions of three events."""
    made = Passing()
    made.take_in(*sessions(3, 3))
    return made


def asked(number: int, *, tenant: str = "default", **scope: str) -> Event:
    payload = PassRequest(**scope).payload()
    return system(number, "memory.consolidation_requested", payload, tenant=tenant)


def last_pass(live: Passing) -> dict[str, Any]:
    names = [p.name for p in PASS.properties]
    (node,) = live.graph.nodes(PASS.label, [("default",)], names).values()
    return dict(node.values)


def waiting(live: Passing) -> list[str]:
    return sorted(node.key[1] for node in live.shown(CONSOLIDATION_REQUEST.label))


def summarised(live: Passing) -> set[str]:
    nodes = live.shown(SUMMARY.label, "session_id", "level")
    return {node.values["session_id"] for node in nodes if node.values["level"] == 2}


def test_a_pass_ends_with_a_decision(live: Passing) -> None:
    live.run()
    found = last_pass(live)
    assert (found["run_id"], found["complete"]) == ("run-1", True)
    assert found["ended_at"] == found["communities_at"]


def test_a_pass_that_finds_nothing_to_do_says_nothing(live: Passing) -> None:
    live.run()
    before = live.seqs()
    live.run()
    assert live.seqs() == before


def test_requests_are_answered_even_if_there_is_nothing_to_do(live: Passing) -> None:
    live.run()
    live.take_in(asked(100), asked(101, session_id="session-1"))
    assert waiting(live) == [event_id(100), event_id(101)]
    live.run()
    assert (waiting(live), last_pass(live)["complete"]) == ([], True)


def test_what_was_asked_for_is_done_and_no_more(live: Passing) -> None:
    live.take_in(asked(100, session_id="session-1"))
    assert due(live.graph) == [PassScope("default", session_id="session-1")]
    live.run(*due(live.graph))
    assert (summarised(live), waiting(live)) == ({"session-1"}, [])


def test_a_request_is_answered_by_a_pass_that_does_it_alone(live: Passing) -> None:
    live.take_in(asked(100, session_id="session-1"), asked(101))
    live.run(PassScope("default", session_id="session-1"))
    assert waiting(live) == [event_id(101)]


def test_an_agent_has_its_sessions_looked_at(live: Passing) -> None:
    live.take_in(event(50, session_id="session-9", agent_id="other"))
    live.take_in(asked(100, agent_id="other"))
    live.run(*due(live.graph))
    assert (summarised(live), waiting(live)) == ({"session-9"}, [])
    summaries = live.shown(SUMMARY.label, "scope_id", "level")
    assert [n.values["scope_id"] for n in summaries if n.values["level"] == 3] == ["other"]


def test_a_pass_that_was_cut_short_leaves_requests_to_the_next(live: Passing) -> None:
    live.take_in(asked(100))
    left = iter([True])
    report = live.run(in_time=lambda: next(left, False))
    assert (report.complete, waiting(live)) == (False, [event_id(100)])
    assert live.run().complete
    assert (summarised(live), waiting(live)) == ({f"session-{n}" for n in range(3)}, [])


def test_requests_of_a_tenant_without_events_are_answered(live: Passing) -> None:
    live.take_in(asked(100, tenant="empty"))
    assert due(live.graph) == [PassScope("empty")]
    live.run()
    assert waiting(live) == []


def test_sessions_to_which_much_came_are_due(live: Passing) -> None:
    assert due(live.graph, 100) == []
    live.take_in(*(event(n, session_id="session-1", importance_hint=10) for n in range(100, 120)))
    scopes = due(live.graph, 100)
    assert scopes == [PassScope("default", least=101)]
    live.run(*scopes)
    assert summarised(live) == {"session-1"}
    assert due(live.graph, 100) == []
    assert last_pass(live)["communities_at"] is None


def test_the_tenant_to_which_most_came_is_first(live: Passing) -> None:
    live.take_in(*(event(n, tenant="zeta", importance_hint=10) for n in range(100, 120)))
    assert tenants_of(live.graph) == ["zeta", "default"]


def test_a_request_that_waits_for_its_pass_comes_once(live: Passing) -> None:
    live.take_in(asked(100), asked(101), asked(102, session_id="session-1"))
    assert due(live.graph) == [PassScope("default")]


def test_a_pass_that_was_killed_before_its_end_is_answered_by_the_next(live: Passing) -> None:
    live.take_in(asked(100))
    live.run(applied=lambda: None)
    before = live.seqs()
    live.run(applied=lambda: None)
    assert live.seqs() == before
    live.fold()
    assert waiting(live) == []


def test_an_emptied_graph_is_folded_to_the_same(live: Passing) -> None:
    live.take_in(asked(100), asked(101, session_id="gone"))
    live.run()
    expected = dump(live.graph)
    live.empty()
    live.fold()
    assert dump(live.graph) == expected


def test_a_clock_that_was_put_back_is_no_reason_to_wait(live: Passing) -> None:
    live.run()
    live.take_in(event(90, session_id="session-1"))
    live.run(now_ms=NOW_MS - 10**9)
    assert last_pass(live)["ended_at"] == last_pass(live)["communities_at"]
