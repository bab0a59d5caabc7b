"""Applying what was decided, on real services: whatever comes again or in parts, one graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from pipelines.ledger.connect import Block
from pipelines.operations.dead_letters import list_
from pipelines.work.folds import make_fold
from pipelines.work.stages import CONSOLIDATION
from projections.identity import partition_of
from tests.decided import (
    COMMUNITIES,
    ENTITIES,
    boosted,
    consolidated,
    episode,
    episode_id,
    forgotten,
    recalled,
    session_made,
    session_summary_id,
)
from tests.factories import START_MS, event, event_id, session, sessions
from tests.integration.consolidation_support import MINE, Consolidated, ranges
from tests.integration.stack import PARTITIONS, Stack

pytestmark = pytest.mark.integration

DECISIONS = partition_of("default", "memory", PARTITIONS)
APART = 5
"""So many partitions that decisions are in one without sessions of the story."""


@pytest.fixture
def live(stack: Stack) -> Consolidated:
    return Consolidated(stack)


def follows(*numbers: int, at: dict[int, int] | None = None) -> list[tuple[str, str, int]]:
    """The chain of events of those numbers, 10 ms a number where `at` says nothing else."""
    times = {number: 10 * number for number in numbers} | (at or {})
    return sorted((event_id(a), event_id(b), times[b] - times[a]) for a, b in pairwise(numbers))


def test_decisions_become_graph(live: Consolidated) -> None:
    live.live()
    ask = live.stack.cypher
    assert sorted(ask("MATCH (s:Summary) WHERE NOT s:Unwritten RETURN s.level")) == [1, 1, 2, 2, 3]
    assert members_of(live) == sorted(
        [
            *([episode_id("session-0"), event_id(n)] for n in (1, 13)),
            *([episode_id("session-1"), event_id(n)] for n in (8, 30)),
        ]
    )
    assert sorted(
        ask(
            "MATCH (a:Summary {level: 3})-[:SUMMARIZES]->(s)-[:SUMMARIZES]->(e:Summary) "
            "RETURN e.summary_id"
        )
    ) == sorted([episode_id("session-0"), episode_id("session-1")])
    assert ask("MATCH (a:Summary)-[l:LINKED_TO]->(b) RETURN [b.session_id, l.score]") == [
        ["session-1", 0.5]
    ]
    assert sorted(ask("MATCH (n:Entity)-[:MEMBER_OF]->(c) RETURN [n.entity_id, c.name]")) == [
        [one, "Caroline and Acme"] for one in ENTITIES[2:5]
    ]
    assert ask("MATCH (c:Community) WHERE NOT c:Unnamed RETURN c.community_id") == COMMUNITIES[:1]
    assert ask("MATCH (n:Entity) WHERE n.status = 'archived' RETURN n.entity_id") == ENTITIES[:1]
    assert ask("MATCH (r:ConsolidationRequest) RETURN r.event_id") == [event_id(111)]
    assert ask("MATCH (p:Pass) RETURN [p.tenant, p.complete]") == [["default", True]]
    assert ask("MATCH (e:Event {event_id: $id}) RETURN e.importance_boost", id=event_id(13)) == [1]
    rows = ask(
        "MATCH (s:Scope) RETURN s.session_id, s.event_count, s.pending_events ORDER BY s.session_id"
    )
    assert rows == [["session-0", 8, 2], ["session-1", 7, 0], ["session-2", 6, 6]]
    tombs = ask("MATCH (f:Forgotten) RETURN f.event_id, f.session_id, f.importance_score, f.tier")
    assert {row[0] for row in tombs} == {event_id(n) for n in (4, 7, 10, 16, 2, 5)}
    assert all(row[1] and row[2] and row[3] == "archive" for row in tombs)


def test_the_story_leaves_the_chains_of_what_is_left(live: Consolidated) -> None:
    live.live()
    assert live.chain("session-0") == follows(1, 31, 13, 32, at={31: 75, 32: 400})
    assert live.chain("session-1") == follows(8, 30, 11, 14, 17, at={30: 95})
    report = live.stack.verify()
    assert report.ok, report.differences


@pytest.mark.parametrize("size", [1, 4])
def test_how_the_ledger_is_cut_does_not_matter(live: Consolidated, size: int) -> None:
    expected = live.live()
    live.empty()
    live.fold(size)
    assert live.stack.dump() == expected


def test_a_rebuilt_graph_equals_the_live_one(live: Consolidated) -> None:
    expected = live.live(size=3)
    live.empty()
    live.fold()
    assert live.stack.dump() == expected


def test_decisions_may_come_before_what_they_are_about(make_stack: Callable[..., Stack]) -> None:
    live = Consolidated(make_stack(partitions=APART))
    decisions = partition_of("default", "memory", APART)
    expected = live.live()
    live.empty()
    alone = replace(CONSOLIDATION, upstream=None)
    early = make_fold(alone, live.stack.services, live.stack.target)
    runner = live.stack.new_runner(early)
    entries = [e for block in live.stack.blocks(decisions) for e in block.entries]
    runner.apply(Block(decisions, tuple(entries)))
    live.fold()
    assert live.stack.dump() == expected


@pytest.mark.parametrize("partition", range(PARTITIONS))
def test_any_part_again_changes_nothing(live: Consolidated, partition: int) -> None:
    before = live.live()
    count = live.stack.ledger.tails()[partition].seq
    for first, last in ranges(count, 12):
        live.refold(partition, first, last)
        assert live.stack.dump() == before, (first, last)


def test_the_last_of_a_run_of_forgotten_events_still_has_its_effect(live: Consolidated) -> None:
    live.take_in(*session("session-0", range(1, 6)), episode(90, range(1, 6), "session-0"))
    live.take_in(forgotten(91, [2, 3, 4], episode_id("session-0")))
    assert live.chain() == follows(1, 5)
    waiting = "MATCH (p:Placeholder)<-[:CAUSED_BY]-(e) RETURN [p.event_id, e.event_id]"
    assert live.stack.cypher(waiting) == [[event_id(4), event_id(5)]]
    live.take_in(forgotten(92, [5], episode_id("session-0")))
    assert live.stack.cypher("MATCH (e:Event) RETURN e.event_id") == [event_id(1)]
    assert live.stack.verify().ok


@pytest.mark.parametrize("at", [5, 25, 35, 45, 99])
def test_a_late_event_is_spliced_into_a_bridged_chain(live: Consolidated, at: int) -> None:
    live.take_in(*session("session-0", range(1, 6)), episode(90, range(1, 6), "session-0"))
    live.take_in(forgotten(91, [2, 4], episode_id("session-0")))
    live.take_in(event(50, at=at, session_id="session-0"))
    times = {1: 10, 3: 30, 5: 50, 50: at}
    assert live.chain() == follows(*sorted(times, key=lambda n: times[n]), at=times)
    assert live.stack.verify().ok


def test_a_recalled_event_comes_back_to_its_place(live: Consolidated) -> None:
    live.take_in(*session("session-0", range(1, 6)), episode(90, range(1, 6), "session-0"))
    before, members = live.chain(), members_of(live)
    live.take_in(forgotten(91, [2, 3], episode_id("session-0")))
    live.take_in(recalled(92, [2, 3]))
    partition = partition_of("default", "session-0", PARTITIONS)
    entries = [e for block in live.stack.blocks(partition) for e in block.entries]
    back = [e for e in entries if any(event_id(n).encode() in e.data for n in (2, 3))]
    assert live.projection.refold(partition, back) == []
    assert live.chain() == before
    assert members_of(live) == members
    assert live.stack.verify().ok
    graph = live.stack.dump()
    for first, last in ranges(live.stack.ledger.tails()[DECISIONS].seq, 5):
        live.refold(DECISIONS, first, last)
        assert live.stack.dump() == graph


def members_of(live: Consolidated) -> list[Any]:
    text = "MATCH (s:Summary)-[:SUMMARIZES]->(e:Event) RETURN [s.summary_id, e.event_id]"
    return sorted(live.stack.cypher(text))


def test_events_are_counted_by_the_block_that_moves_the_checkpoint(live: Consolidated) -> None:
    live.take_in(*sessions(1, 5), session_made(90, "session-0", seen=(3, 7)))
    before = live.stack.cypher("MATCH (s:Scope) RETURN properties(s)")
    assert before[0]["event_count"] == 5
    assert before[0]["importance_total"] == sum(
        live.stack.cypher("MATCH (e:Event) RETURN e.importance_score")
    )
    for partition in range(PARTITIONS):
        live.refold(partition, 0, 100)
    assert live.stack.cypher("MATCH (s:Scope) RETURN properties(s)") == before


def test_a_broken_decision_is_a_dead_letter_and_its_neighbours_flow(live: Consolidated) -> None:
    live.take_in(
        *session("session-0", MINE),
        consolidated(90, {"kind": "episode", "event_ids": []}),
        boosted(91, {1: 0.5}),
    )
    (letter,) = list_(live.stack.services).dead_letters
    assert (letter["stage"], letter["event_id"]) == ("consolidation", event_id(90))
    assert "payload.event_ids" in letter["reason"]
    rows: Sequence[Any] = live.stack.cypher(
        "MATCH (e:Event {event_id: $id}) RETURN e.importance_boost", id=event_id(1)
    )
    assert rows == [0.5]


def test_a_summary_tells_what_it_is_made_from(live: Consolidated) -> None:
    live.take_in(*session("session-0", [1, 2]), episode(90, [1, 2], "session-0"))
    (found,) = live.stack.cypher(
        "MATCH (s:Summary {summary_id: $id}) "
        "RETURN [s.content, s.source_event_ids, [t IN s.time_range | t.epochMillis], s.event_id, "
        "s.created_at.epochMillis]",
        id=episode_id("session-0"),
    )
    ids = [event_id(1), event_id(2)]
    times = [START_MS, START_MS + 1]
    assert found == ["It was said.", ids, times, event_id(90), START_MS + 90]
    above = session_summary_id("session-0")
    assert live.stack.cypher(
        "MATCH (s:Unwritten)-[:SUMMARIZES]->(:Summary) RETURN [s.summary_id, size(keys(s))]"
    ) == [[above, 2]]
