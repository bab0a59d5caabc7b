"""A pass reads the graph and decides; the stage applies; a second pass has nothing to say."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from consolidation.summary_payloads import episode_scope_id, summary_id
from pipelines.graph.reads.consolidation import ConsolidationReader
from pipelines.graph.reads.due_passes import PassReads
from pipelines.operations.passes.deciding import PassReport
from pipelines.operations.passes.run import Pass
from projections.errors import EventConflict, RecollectError
from projections.events import Event
from tests.decision_factories import forgotten
from tests.factories import NOW_MS, event, event_id, sessions
from tests.integration.consolidation_support import Consolidated
from tests.integration.stack import Stack

WAY_DOWN = (
    "MATCH (:Summary {level: 3})-->(:Summary {level: 2})-->(s:Summary {level: 1})-->(e:Event) "
)


@pytest.fixture
def consolidated(stack: Stack) -> Consolidated:
    """Three sessions of six events, in the graph."""
    made = Consolidated(stack)
    made.take_in(*sessions(3, 6))
    return made


def run(
    consolidated: Consolidated,
    applied: Callable[[], None] | None = None,
    in_time: Callable[[], bool] = lambda: True,
) -> PassReport:
    ledger = consolidated.stack.ledger

    def append(events: Sequence[Event]) -> None:
        for outcome in ledger.append(events):
            assert not isinstance(outcome, RecollectError) or isinstance(outcome, EventConflict)

    reader = ConsolidationReader(consolidated.stack.driver)
    made = Pass(
        reader,
        append,
        applied or consolidated.fold,
        now_ms=NOW_MS,
        run_id="run-1",
        in_time=in_time,
    )
    return made.run()


def seqs(consolidated: Consolidated) -> list[int]:
    return [tail.seq for tail in consolidated.stack.ledger.tails()]


def test_every_event_is_reachable_from_an_agent(consolidated: Consolidated) -> None:
    report = run(consolidated)
    reached = consolidated.stack.cypher(f"{WAY_DOWN} RETURN DISTINCT e.event_id")
    assert sorted(reached) == sorted(one.event_id for one in sessions(3, 6))
    assert (report.sessions, report.sessions_written, report.complete) == (3, 3, True)


def test_a_second_pass_appends_nothing(consolidated: Consolidated) -> None:
    run(consolidated)
    before = seqs(consolidated)
    report = run(consolidated)
    assert (seqs(consolidated), report.sessions) == (before, 0)


def test_only_what_changed_is_said_anew(consolidated: Consolidated) -> None:
    run(consolidated)
    consolidated.take_in(event(90, at=500, session_id="session-1"))
    report = run(consolidated)
    assert (report.sessions, report.episodes_written, report.sessions_written) == (1, 1, 1)


def test_an_emptied_graph_is_folded_to_the_same(consolidated: Consolidated) -> None:
    run(consolidated)
    live = consolidated.stack.dump()
    consolidated.empty()
    consolidated.fold()
    assert consolidated.stack.dump() == live


def test_a_pass_that_ended_before_anything_was_applied_decides_nothing_twice(
    consolidated: Consolidated,
) -> None:
    first = run(consolidated, applied=lambda: None)
    after_first = seqs(consolidated)
    run(consolidated, applied=lambda: None)
    assert (first.sessions_written, seqs(consolidated)) == (3, after_first)


def test_a_pass_without_time_says_so_and_the_next_goes_on(consolidated: Consolidated) -> None:
    left = iter([True, False])
    first = run(consolidated, in_time=lambda: next(left, False))
    second = run(consolidated)
    assert (first.complete, first.sessions, second.complete, second.sessions) == (
        False,
        1,
        True,
        2,
    )


def test_an_episode_with_forgotten_members_keeps_its_text_and_lists_who_comes_late(
    consolidated: Consolidated,
) -> None:
    run(consolidated)
    stack = consolidated.stack
    (trace_id,) = set(stack.cypher("MATCH (e:Event {session_id: 'session-0'}) RETURN e.trace_id"))
    own_id = summary_id("default", "episode", episode_scope_id("session-0", trace_id, 0))
    shown = "MATCH (s:Summary {summary_id: $id}) RETURN s.content, s.source_event_ids"
    ((content, members),) = stack.cypher(shown, id=own_id)
    consolidated.take_in(forgotten(120, [4, 7], own_id))
    consolidated.take_in(event(91, at=75, session_id="session-0", trace_id=trace_id))
    report = run(consolidated)
    ((content_now, members_now),) = stack.cypher(shown, id=own_id)
    assert content_now == content
    assert sorted(members_now) == sorted([*members, event_id(91)])
    assert report.episodes_written == 1


def test_ages_are_told_of_every_event_and_scores_of_all_that_are_asked_for(
    consolidated: Consolidated,
) -> None:
    reads = PassReads(consolidated.stack.driver)
    scores = reads.decay_scores(NOW_MS, 1_000)
    assert (sum(reads.tiers(NOW_MS).values()), len(scores)) == (18, 18)
    assert all(0 < score <= 1 for score in scores)
    assert reads.decay_scores(NOW_MS, 0) == []
