"""What passes derive of users: decided once, told of the user alone, kept when events go."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.decay import DAY_MS
from enrichment.names import user_entity_id
from enrichment.vocabulary import LIKES
from projections.events import Event
from projections.schema import (
    ABSTRACTED_FROM,
    DERIVED_FROM,
    ENTITY,
    EVENT,
    EXHIBITS_PATTERN,
    HAS_SKILL,
    PARENT_SKILL,
    RELATES_TO,
    SUMMARY,
    TRAIT,
)
from tests.factories import NOW_MS, event
from tests.passing import TENANT, Passing

STEPS = ("lookup", "refund")


def worked(
    live: Passing, session: int, user: str | None = "ann", steps: tuple[str, ...] = STEPS
) -> None:
    """A session of a user that uses tools, and what enrichment would have made of it."""
    made: list[Event] = [
        event(
            100 * session + number,
            at=session * DAY_MS + number,
            session_id=f"session-{session}",
            trace_id=f"trace-{session}",
            user_id=user,
            agent_id="desk",
            event_type="tool.result",
            tool_name=tool,
            status="completed",
        )
        for number, tool in enumerate(steps, 1)
    ]
    live.take_in(*made)
    for one in made:
        live.put(EVENT.label, one.event_id, kind="result")


@pytest.fixture
def live() -> Passing:
    made = Passing()
    for session in (1, 2, 4):
        worked(made, session)
    return made


def names(live: Passing, user: str = "ann") -> dict[str, int]:
    shown = live.shown(TRAIT.label, "name", "user_id", "session_count")
    return {
        node.values["name"]: node.values["session_count"]
        for node in shown
        if node.values["user_id"] == user
    }


TOGETHER = "lookup + refund"
LEARNT = {"lookup, then refund": 3, "lookup": 3, "refund": 3, TOGETHER: 3}


def test_what_sessions_of_a_user_have_in_common_becomes_graph(live: Passing) -> None:
    assert live.run().traits_written == 1
    assert names(live) == LEARNT
    who = (TENANT, user_entity_id(TENANT, "ann"))
    assert [edge.source for edge in live.drawn(EXHIBITS_PATTERN.type)] == [who]
    assert [edge.source for edge in live.drawn(HAS_SKILL.type)] == [who, who, who]


def test_a_trait_leads_to_the_users_summaries_of_its_sessions(live: Passing) -> None:
    live.run()
    told = {
        node.key
        for node in live.shown(SUMMARY.label, "scope", "user_ids")
        if (node.values["scope"], node.values["user_ids"]) == ("session", ("ann",))
    }
    leading: dict[Any, set[Any]] = {}
    for edge in live.drawn(ABSTRACTED_FROM.type):
        leading.setdefault(edge.source, set()).add(edge.target)
    assert list(leading.values()) == [told] * len(LEARNT)
    assert len(told) == 3


def test_a_trait_leads_to_the_events_that_prove_it_and_a_skill_to_what_it_is_a_part_of(
    live: Passing,
) -> None:
    live.run()
    shown = live.shown(TRAIT.label, "name", "event_ids")
    proofs = {(node.key[1], one) for node in shown for one in node.values["event_ids"]}
    assert {(e.source[1], e.target[1]) for e in live.drawn(DERIVED_FROM.type)} == proofs
    name = {node.key: node.values["name"] for node in shown}
    parents = {(name[e.source], name[e.target]) for e in live.drawn(PARENT_SKILL.type)}
    assert parents == {("lookup", TOGETHER), ("refund", TOGETHER)}


@pytest.mark.parametrize(
    ("ended", "interests"),
    [({}, ["pottery"]), ({"valid_to": NOW_MS}, []), ({"relation": "knows"}, [])],
)
def test_what_a_user_said_to_like_is_of_interest_as_long_as_they_do(
    live: Passing, ended: dict[str, Any], interests: list[str]
) -> None:
    for number, session in enumerate((11, 13, 16)):
        made = event(
            100 * session,
            at=session * DAY_MS,
            session_id=f"session-{session}",
            user_id="ann",
            event_type="message.user",
        )
        live.take_in(made)
        live.put(EVENT.label, made.event_id, kind="message", text=f"Pottery again, number {number}")
    thing = live.entity("pottery")
    user = live.put(ENTITY.label, user_entity_id(TENANT, "ann"), name="ann", entity_type="user")
    liking = {"relation": LIKES, "user_id": "ann", "edge_type": "semantic", "fact": "…"}
    told = {"valid_from": NOW_MS, "event_id": "e", "confidence": 0.9, "support_count": 1}
    live.join(RELATES_TO.type, user, thing, **{**liking, **told, **ended})
    live.run()
    assert [name for name in names(live) if name not in LEARNT] == interests


def test_a_parent_goes_with_what_made_it_one(live: Passing) -> None:
    live.run()
    for session in range(5, 12):
        worked(live, session, steps=("lookup",))
    live.run()
    assert TOGETHER not in names(live)
    assert live.drawn(PARENT_SKILL.type) == []
    for size in (1, 500):
        live.empty()
        live.fold(size)
        assert live.drawn(PARENT_SKILL.type) == []


def test_a_second_pass_appends_nothing_whatever_the_time(live: Passing) -> None:
    live.run()
    before = live.seqs()
    assert live.run(now_ms=NOW_MS + 999 * DAY_MS).traits_written == 0
    assert live.seqs() == before


def test_a_session_more_is_told_and_what_is_the_same_is_not(live: Passing) -> None:
    live.run()
    worked(live, 5, steps=("refund",))
    assert live.run().traits_written == 1
    assert names(live) == {**LEARNT, "refund": 4, TOGETHER: 4}


def test_what_is_no_more_so_ends_and_comes_back(live: Passing) -> None:
    live.run()
    for session in (5, 6, 7):
        worked(live, session, steps=("lookup", "search"))
    live.run()
    assert "lookup, then refund" not in names(live)
    assert live.drawn(EXHIBITS_PATTERN.type) == []
    for session in range(10, 20):
        worked(live, session)
    live.run()
    assert names(live)["lookup, then refund"] == 13
    assert live.drawn(EXHIBITS_PATTERN.type)


def test_of_each_user_it_is_their_own(live: Passing) -> None:
    worked(live, 7, "bob")
    worked(live, 8, "bob")
    worked(live, 9, None)
    live.run()
    assert names(live) == LEARNT
    assert names(live, "bob") == {}


def test_a_pass_that_had_no_time_leaves_it_to_the_next(live: Passing) -> None:
    looks = iter([True] * 3)
    live.run(in_time=lambda: next(looks, False))
    assert names(live) == {}
    live.run()
    assert names(live) == LEARNT


def test_folded_anew_it_is_the_same_in_whatever_parts(live: Passing) -> None:
    live.run()
    for session in (5, 6, 7):
        worked(live, session, steps=("lookup", "search"))
    live.run()
    expected = live.shown(TRAIT.label, *(one.name for one in TRAIT.properties))
    for size in (1, 500):
        live.empty()
        live.fold(size)
        assert live.shown(TRAIT.label, *(one.name for one in TRAIT.properties)) == expected


def test_what_is_decided_anew_is_decided_by_what_there_is(live: Passing) -> None:
    live.run()
    before = live.seqs()
    live.run(anew=True)
    assert names(live) == LEARNT
    assert live.seqs() != before
