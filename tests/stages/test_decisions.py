"""Applying what was decided: whatever comes again or in parts, one graph."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from pipelines.ledger.entries import Block
from pipelines.work.services import make_fold
from pipelines.work.stages import CONSOLIDATION
from projections.identity import partition_of
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    CONSOLIDATION_REQUEST,
    DERIVED_FROM,
    ENTITY,
    EVENT,
    FORGOTTEN,
    LINKED_TO,
    MEMBER_OF,
    PASS,
    SCOPE,
    SUMMARIZES,
    SUMMARY,
)
from tests.decision_factories import (
    COMMUNITIES,
    ENTITIES,
    TRAITS,
    boosted,
    consolidated,
    derived,
    episode,
    episode_id,
    forgotten,
    recalled,
    session_made,
    session_summary_id,
)
from tests.factories import START_MS, event, event_id, session, sessions
from tests.memory_stack import PARTITIONS, MemoryStack
from tests.stages.consolidated import MINE, ConsolidatedLedger, ranges

Consolidated = ConsolidatedLedger[MemoryStack]

DECISIONS = partition_of("default", "memory", PARTITIONS)
APART = 5
"""So many partitions that decisions are in one without sessions of the story."""


@pytest.fixture
def live() -> Consolidated:
    return Consolidated(MemoryStack())


def assert_folded_anew_it_is_the_same(live: Consolidated) -> None:
    """The whole ledger, stage by stage, into an empty graph."""
    again = Consolidated(live.stack.again())
    again.fold()
    assert again.stack.dump() == live.stack.dump()


def follows(*numbers: int, at: dict[int, int] | None = None) -> list[tuple[str, str, int]]:
    """The chain of events of those numbers, 10 ms a number where `at` says nothing else."""
    times = {number: 10 * number for number in numbers} | (at or {})
    return sorted((event_id(a), event_id(b), times[b] - times[a]) for a, b in pairwise(numbers))


def test_decisions_become_graph(live: Consolidated) -> None:
    live.live()
    nodes, edges = live.stack.nodes, live.stack.edges
    levels = [one["level"] for one in nodes(SUMMARY.label, "level").values()]
    assert sorted(levels) == [1, 1, 2, 2, 3]
    assert members_of(live) == sorted(
        [
            *([episode_id("session-0"), event_id(n)] for n in (1, 13)),
            *([episode_id("session-1"), event_id(n)] for n in (8, 30)),
        ]
    )
    sessions_of = {one: agent for agent, one in edges(SUMMARIZES.type)}
    top = {key for key, one in nodes(SUMMARY.label, "level").items() if one["level"] == 3}
    assert {one for one, above in sessions_of.items() if sessions_of.get(above) in top} == {
        episode_id("session-0"),
        episode_id("session-1"),
    }
    ((_, linked_id, score),) = edges(LINKED_TO.type, "score")
    assert (linked_id, score) == (session_summary_id("session-1"), 0.5)
    assert edges(MEMBER_OF.type) == [[one, COMMUNITIES[0]] for one in ENTITIES[2:5]]
    assert nodes(COMMUNITY.label, "name") == {COMMUNITIES[0]: {"name": "Caroline and Acme"}}
    status = live.stack.graph.nodes(ENTITY.label, [("default", ENTITIES[0])], ("status",))
    assert [node.values["status"] for node in status.values()] == ["archived"]
    assert list(nodes(CONSOLIDATION_REQUEST.label)) == [event_id(111)]
    assert nodes(PASS.label, "complete") == {"default": {"complete": True}}
    boosts = nodes(EVENT.label, "importance_boost")
    assert boosts[event_id(13)]["importance_boost"] == 1
    sums = nodes(SCOPE.label, "event_count", "pending_events")
    assert {key: tuple(one.values()) for key, one in sums.items()} == {
        "session-0": (8, 2),
        "session-1": (7, 0),
        "session-2": (6, 6),
    }
    tombs = nodes(FORGOTTEN.label, "session_id", "importance_score", "tier")
    assert tombs.keys() == {event_id(n) for n in (4, 7, 10, 16, 2, 5)}
    assert all(one["session_id"] and one["importance_score"] for one in tombs.values())
    assert {one["tier"] for one in tombs.values()} == {"archive"}


def test_the_story_leaves_the_chains_of_what_is_left(live: Consolidated) -> None:
    live.live()
    assert live.chain("session-0") == follows(1, 31, 13, 32, at={31: 75, 32: 400})
    assert live.chain("session-1") == follows(8, 30, 11, 14, 17, at={30: 95})
    assert_folded_anew_it_is_the_same(live)


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


def test_decisions_may_come_before_what_they_are_about() -> None:
    live = Consolidated(MemoryStack(APART))
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
    assert [event_id(5), event_id(4)] in live.stack.edges(CAUSED_BY.type)
    assert event_id(4) not in live.stack.nodes(EVENT.label)
    live.take_in(forgotten(92, [5], episode_id("session-0")))
    assert live.stack.event_ids() == [event_id(1)]
    assert_folded_anew_it_is_the_same(live)


@pytest.mark.parametrize("at", [5, 25, 35, 45, 99])
def test_a_late_event_is_spliced_into_a_bridged_chain(live: Consolidated, at: int) -> None:
    live.take_in(*session("session-0", range(1, 6)), episode(90, range(1, 6), "session-0"))
    live.take_in(forgotten(91, [2, 4], episode_id("session-0")))
    live.take_in(event(50, at=at, session_id="session-0"))
    times = {1: 10, 3: 30, 5: 50, 50: at}
    assert live.chain() == follows(*sorted(times, key=lambda n: times[n]), at=times)
    assert_folded_anew_it_is_the_same(live)


def test_a_recalled_event_comes_back_to_its_place(live: Consolidated) -> None:
    live.take_in(*session("session-0", range(1, 6), user_id="ann"))
    live.take_in(episode(90, range(1, 6), "session-0"))
    live.take_in(derived(89, TRAITS[0], proofs=[event_id(n) for n in (2, 3, 4)]))
    before, members, proofs = live.chain(), members_of(live), proofs_in(live)
    assert proofs == [[TRAITS[0], event_id(n)] for n in (2, 3, 4)]
    live.take_in(forgotten(91, [2, 3], episode_id("session-0")))
    assert proofs_in(live) == proofs[2:]
    live.take_in(recalled(92, [2, 3]))
    assert proofs_in(live) == proofs
    partition = partition_of("default", "session-0", PARTITIONS)
    entries = [e for block in live.stack.blocks(partition) for e in block.entries]
    back = [e for e in entries if any(event_id(n).encode() in e.data for n in (2, 3))]
    assert live.projection.refold(partition, back) == []
    assert live.chain() == before
    assert members_of(live) == members
    assert proofs_in(live) == proofs
    anew = Consolidated(live.stack.again())
    anew.fold()
    assert anew.projection.refold(partition, back) == []
    assert anew.stack.dump() == live.stack.dump()
    graph = live.stack.dump()
    for first, last in ranges(live.stack.ledger.tails()[DECISIONS].seq, 5):
        live.refold(DECISIONS, first, last)
        assert live.stack.dump() == graph


def members_of(live: Consolidated) -> list[Any]:
    ids = live.stack.event_ids()
    return [edge for edge in live.stack.edges(SUMMARIZES.type) if edge[1] in ids]


def proofs_in(live: Consolidated) -> list[Any]:
    return live.stack.edges(DERIVED_FROM.type)


def test_what_proved_something_and_was_forgotten_proves_it_where_it_is_said_anew(
    live: Consolidated,
) -> None:
    live.take_in(*session("session-0", range(1, 6), user_id="ann"))
    live.take_in(episode(90, range(1, 6), "session-0"))
    live.take_in(forgotten(91, [2, 3], episode_id("session-0")))
    live.take_in(derived(92, TRAITS[0], proofs=[event_id(n) for n in (2, 3, 4)]))
    assert proofs_in(live) == [[TRAITS[0], event_id(4)]]
    live.take_in(recalled(93, [2]), derived(94, TRAITS[0], proofs=[event_id(2)]))
    assert proofs_in(live) == [[TRAITS[0], event_id(2)]]
    live.take_in(recalled(95, [3]))
    assert proofs_in(live) == [[TRAITS[0], event_id(2)]]
    assert_folded_anew_it_is_the_same(live)


def test_events_are_counted_by_the_block_that_moves_the_checkpoint(live: Consolidated) -> None:
    live.take_in(*sessions(1, 5), session_made(90, "session-0", seen=(3, 7)))
    names = [one.name for one in SCOPE.properties]
    before = live.stack.nodes(SCOPE.label, *names)
    assert before["session-0"]["event_count"] == 5
    assert before["session-0"]["importance_total"] == sum(
        one["importance_score"]
        for one in live.stack.nodes(EVENT.label, "importance_score").values()
    )
    for partition in range(PARTITIONS):
        live.refold(partition, 0, 100)
    assert live.stack.nodes(SCOPE.label, *names) == before


def test_a_broken_decision_is_a_dead_letter_and_its_neighbours_flow(live: Consolidated) -> None:
    live.take_in(
        *session("session-0", MINE),
        consolidated(90, {"kind": "episode", "event_ids": []}),
        boosted(91, {1: 0.5}),
    )
    (letter,) = live.stack.letters()
    assert (letter["stage"], letter["event_id"]) == ("consolidation", event_id(90))
    assert "payload.event_ids" in letter["reason"]
    boosts = live.stack.nodes(EVENT.label, "importance_boost")
    assert boosts[event_id(1)]["importance_boost"] == 0.5


def test_a_summary_tells_what_it_is_made_from(live: Consolidated) -> None:
    live.take_in(*session("session-0", [1, 2]), episode(90, [1, 2], "session-0"))
    names = ("content", "source_event_ids", "time_range", "event_id", "created_at")
    told = live.stack.nodes(SUMMARY.label, *names)[episode_id("session-0")]
    ids = (event_id(1), event_id(2))
    times = (START_MS, START_MS + 1)
    assert tuple(told.values()) == ("It was said.", ids, times, event_id(90), START_MS + 90)
    above = session_summary_id("session-0")
    assert [above, episode_id("session-0")] in live.stack.edges(SUMMARIZES.type)
    (waiting,) = live.stack.graph.nodes(SUMMARY.label, [("default", above)]).values()
    assert (waiting.visible, waiting.bare) == (False, True)
