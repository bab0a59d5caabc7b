"""A pass reads the graph and decides; the stage applies; a second pass has nothing to say."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.payloads import EpisodeDecided
from consolidation.summary_payloads import episode_scope_id, summary_id
from pipelines.graph.memory import MemoryGraph
from pipelines.operations.passes.retained import ages
from pipelines.operations.passes.scopes import PassScope
from projections.errors import InvalidEvent
from projections.events import timestamp_ms
from projections.operations import Key
from projections.schema import EVENT, SUMMARIZES, SUMMARY
from tests.decision_factories import forgotten
from tests.factories import NOW_MS, START_MS, event, event_id, sessions
from tests.graph_dump import dump
from tests.passing import Passing


@pytest.fixture
def live() -> Passing:
    """Three sessions of six events, in the graph."""
    made = Passing()
    made.take_in(*sessions(3, 6))
    return made


def below(live: Passing, summaries: list[Key], label: str) -> list[Key]:
    """What summaries are made from, each once."""
    edges = live.graph.edges(SUMMARIZES.type, summaries, label=label)
    return sorted({edge.target for some in edges.values() for edge in some})


def test_every_event_is_reachable_from_an_agent(live: Passing) -> None:
    report = live.run()
    agents = [n.key for n in live.shown(SUMMARY.label, "level") if n.values["level"] == 3]
    of_sessions = below(live, agents, SUMMARY.label)
    reached = below(live, below(live, of_sessions, SUMMARY.label), EVENT.label)
    assert sorted(key[1] for key in reached) == sorted(one.event_id for one in sessions(3, 6))
    assert (report.sessions, report.sessions_written, report.complete) == (3, 3, True)


def test_a_second_pass_appends_nothing(live: Passing) -> None:
    live.run()
    before = live.seqs()
    report = live.run()
    assert (live.seqs(), report.sessions) == (before, 0)


def test_only_what_changed_is_said_anew(live: Passing) -> None:
    live.run()
    live.take_in(event(90, at=500, session_id="session-1"))
    report = live.run()
    assert (report.sessions, report.episodes_written, report.sessions_written) == (1, 1, 1)


def test_a_decision_that_its_reader_would_refuse_is_not_appended(
    live: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = EpisodeDecided.payload

    def doubled(episode: EpisodeDecided) -> dict[str, Any]:
        payload = said(episode)
        return payload | {"event_ids": [*payload["event_ids"], payload["event_ids"][0]]}

    monkeypatch.setattr(EpisodeDecided, "payload", doubled)
    before = live.seqs()
    with pytest.raises(InvalidEvent, match=r"payload\.event_ids"):
        live.run()
    assert live.seqs() == before


def test_odd_sessions_are_decided_about_once(live: Passing) -> None:
    """Times before any calendar, thousands alike, cycles of parents, a crowd in one session."""
    crowd = [event(n, at=n, session_id="crowd", agent_id=f"agent-{n}") for n in range(100, 400)]
    alike = [event(n, at=5, session_id="alike") for n in range(400, 1_000)]
    begun = timestamp_ms("0001-01-01T00:00:00.001Z") - START_MS
    early = [event(n, at=begun + n % 7, session_id="early") for n in range(1_000, 1_100)]
    cycle = [
        event(n, at=n, session_id="cycle", parent_event_id=event_id(2_000 + (n + 1) % 3))
        for n in range(2_000, 2_003)
    ]
    live.take_in(*crowd, *alike, *early, *cycle)
    first, before = live.run(), live.seqs()
    assert (first.complete, first.sessions) == (True, 7)
    assert (live.run().complete, live.seqs()) == (True, before)


def test_an_emptied_graph_is_folded_to_the_same(live: Passing) -> None:
    live.run()
    expected = dump(live.graph)
    live.empty()
    live.fold()
    assert dump(live.graph) == expected


def test_a_pass_that_ended_before_anything_was_applied_decides_nothing_twice(
    live: Passing,
) -> None:
    first = live.run(applied=lambda: None)
    after_first = live.seqs()
    live.run(applied=lambda: None)
    assert (first.sessions_written, live.seqs()) == (3, after_first)


def test_a_pass_without_time_says_so_and_the_next_goes_on(live: Passing) -> None:
    left = iter([True, False])
    first = live.run(in_time=lambda: next(left, False))
    second = live.run()
    assert (first.complete, first.sessions, second.complete, second.sessions) == (
        False,
        1,
        True,
        2,
    )


def episode_of(live: Passing, own_id: str) -> tuple[str, tuple[str, ...]]:
    """The content of a summary, and the events that it lists."""
    names = ("content", "source_event_ids")
    (node,) = live.graph.nodes(SUMMARY.label, [("default", own_id)], names).values()
    return node.values["content"], node.values["source_event_ids"]


def test_an_episode_with_forgotten_members_keeps_its_text_and_lists_who_comes_late(
    live: Passing,
) -> None:
    live.run()
    (node,) = live.graph.nodes(EVENT.label, [("default", event_id(1))], ("trace_id",)).values()
    trace_id = node.values["trace_id"]
    own_id = summary_id("default", "episode", episode_scope_id("session-0", trace_id, 0))
    content, members = episode_of(live, own_id)
    live.take_in(forgotten(120, [4, 7], own_id))
    live.take_in(event(91, at=75, session_id="session-0", trace_id=trace_id))
    report = live.run()
    content_now, members_now = episode_of(live, own_id)
    assert content_now == content
    assert sorted(members_now) == sorted([*members, event_id(91)])
    assert report.episodes_written == 1


def test_ages_are_told_of_every_event_and_scores_of_all_that_are_asked_for(
    live: Passing,
) -> None:
    tiers, scores = ages(live.graph, NOW_MS, 1_000)
    assert (sum(tiers.values()), len(scores)) == (18, 18)
    assert all(0 < score <= 1 for score in scores)
    assert len(ages(live.graph, NOW_MS, 5)[1]) == 5
    assert ages(live.graph, NOW_MS, 0) == (tiers, [])


def test_a_pass_over_one_session_looks_at_no_other(
    live: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else what is asked for of one session would cost as much as there are sessions."""
    live.run()
    live.take_in(event(90, at=500, session_id="session-1"))
    asked: list[Any] = []
    scan = MemoryGraph.scan

    def noted(graph: MemoryGraph, label: str, *about: Any, **bounds: Any) -> Any:
        shown = scan(graph, label, *about, **bounds)
        if label == SUMMARY.label:
            asked.extend(node.key for some in shown.values() for node in some)
        return shown

    monkeypatch.setattr(MemoryGraph, "scan", noted)
    assert live.run(PassScope("default", session_id="session-1")).sessions_written == 1
    whose = {n.key: n.values["session_id"] for n in live.shown(SUMMARY.label, "session_id")}
    assert {whose[key] for key in asked} <= {"session-1"}
    asked.clear()
    live.run()
    assert len(asked) == len({*asked}), "a whole pass reads the summaries once"


def test_agents_that_a_pass_left_behind_are_told_by_the_next(live: Passing) -> None:
    live.run()
    live.take_in(event(90, at=500, session_id="session-1", agent_id="agent-7"))
    left = iter([True])
    assert live.run(in_time=lambda: next(left, False)).agents_written == 0
    key = ("default", summary_id("default", "agent", "agent-7"))

    def told() -> str | None:
        (node,) = live.graph.nodes(SUMMARY.label, [key], ("content",)).values()
        content: str | None = node.values["content"]
        return content

    assert told() is None
    report = live.run()
    assert (report.sessions, report.agents_written) == (0, len(report.agents))
    assert told()
