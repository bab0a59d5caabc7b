"""What events are, which belong together, and what became of what failed."""

from __future__ import annotations

import pytest

from consolidation.actions import (
    actions,
    actor_of,
    ancestors,
    body_of,
    happened,
    incidents,
    is_failure,
    is_tool_result,
    things_of,
)
from consolidation.sources import Cause, SourceEvent
from enrichment.event_kinds import EventKind
from tests.factories import event_id
from tests.source_factories import called, mentioned, returned, said, source_event


def test_what_came_of_the_use_of_a_tool_is_its_result() -> None:
    results = [
        returned(1, "search", "3 found"),
        returned(1, "search", error="no connection"),
        source_event(event_type="tool.failed"),
        returned(1, "search", "3 found", event_type="step.done"),
    ]
    assert all(map(is_tool_result, results))
    others = [
        called(1, "search", "query: shoes", status="failed"),
        source_event(event_type="deploy.failed", status="failed"),
        source_event(event_type="survey.result"),
        said(1, "ana", "Where is my order?"),
    ]
    assert not any(map(is_tool_result, others))


def test_what_happened_is_neither_words_nor_the_use_of_a_tool() -> None:
    others = [
        source_event(event_type="payment.captured"),
        source_event(event_type="deploy.failed", status="failed"),
        source_event(event_type="survey.result"),
        source_event(event_type="plan.decided"),
    ]
    assert all(map(happened, others))
    told = [
        said(1, "ana", "Where is my order?"),
        said(1, "system", "Be brief.", kind=EventKind.INSTRUCTION),
        called(1, "search", "query: shoes"),
        returned(1, "search", "3 found"),
    ]
    assert not any(map(happened, told))


FAILURES = {
    "status": source_event(status="failed"),
    "timeout": source_event(status="timeout"),
    "type": source_event(event_type="deploy.failed"),
    "kind": returned(1, "search", error="no connection", status=None),
}


@pytest.mark.parametrize("sign", FAILURES)
def test_a_failure_is_known_by(sign: str) -> None:
    assert is_failure(FAILURES[sign])


@pytest.mark.parametrize(
    "event",
    [
        returned(1, "search", "3 found"),
        source_event(event_type="error.resolved"),
        said(1, "ana", "The error is back.", event_type="message.error"),
        source_event(event_type="error.handled", status="completed"),
    ],
    ids=lambda event: event.event_type,
)
def test_what_ended_well_or_only_speaks_of_failures_is_none(event: SourceEvent) -> None:
    assert not is_failure(event)


@pytest.mark.parametrize(
    ("event", "expected"),
    [
        (said(1, "ana", "Where is it?"), "Where is it?"),
        (returned(1, "search", "3 found"), "3 found"),
        (returned(1, "search", error="no connection"), "no connection"),
        (returned(1, "search"), ""),
        (source_event(event_type="plan.made", summary="plan.made: go on"), "go on"),
        (source_event(summary="something else"), "something else"),
    ],
)
def test_the_body_is_the_line_without_who_it_comes_from(event: SourceEvent, expected: str) -> None:
    assert body_of(event) == expected


def test_the_actor_is_the_user_who_speaks_through_an_agent() -> None:
    user = mentioned("mia", "subject", entity_type="user")
    assert actor_of(said(1, "user", "Hello", mentions=(user,))) == "mia"
    assert actor_of(said(1, "user", "Hello")) == "user"


def test_things_are_neither_actors_nor_values() -> None:
    event = source_event(
        mentions=(
            "GV1N64",
            mentioned("mia", entity_type="user"),
            mentioned("search", entity_type="tool"),
            mentioned("84 euros", subtype="amount"),
            mentioned("dark mode", subtype="value"),
        )
    )
    assert [one.name for one in things_of(event)] == ["GV1N64"]


# -- uses of tools ---------------------------------------------------------------------------------


def told(events: list[SourceEvent]) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(action.name, action.event_ids, action.failed) for action in actions(events)]


def ids(*numbers: int) -> tuple[str, ...]:
    return tuple(event_id(number) for number in numbers)


def test_a_result_belongs_to_the_call_that_its_producer_named() -> None:
    events = [called(1, "search"), called(2, "search"), returned(3, "search", after=(1,))]
    assert told(events) == [("search", ids(1, 3), False), ("search", ids(2), False)]


def test_a_result_belongs_to_the_call_that_enrichment_found() -> None:
    result = returned(2, "search", error="no", causes=(Cause(event_id(1), "tool_result", 0.98),))
    assert told([called(1, "search"), result]) == [("search", ids(1, 2), True)]


def test_a_value_that_came_from_a_call_does_not_make_its_result() -> None:
    result = returned(2, "search", causes=(Cause(event_id(1), "value_flow", 0.95),))
    assert told([called(1, "search"), result]) == [
        ("search", ids(1), False),
        ("search", ids(2), False),
    ]


def test_one_call_of_two_tools_has_two_results() -> None:
    tools = tuple(mentioned(name, "tool", entity_type="tool") for name in ("read", "write"))
    both = called(1, "planner", tool_name=None, mentions=tools)
    answers = [returned(2, "read", after=(1,)), returned(3, "write", error="full", after=(1,))]
    assert told([both, *answers]) == [("read", ids(1, 2), False), ("write", ids(1, 3), True)]
    assert told([both]) == [("read and write", ids(1), False)]


def test_a_call_may_tell_by_itself_how_it_ended() -> None:
    assert told([called(1, "search", status="timeout")]) == [("search", ids(1), True)]


def test_what_failed_is_an_act_without_a_tool() -> None:
    failed = source_event(1, event_type="deploy.failed", status="failed")
    assert told([failed]) == [("deploy.failed", ids(1), True)]


# -- incidents -------------------------------------------------------------------------------------


def ended(events: list[SourceEvent]) -> list[tuple[list[tuple[str, ...]], tuple[str, ...] | None]]:
    return [
        ([action.event_ids for action in one.failed], one.solved_by and one.solved_by.event_ids)
        for one in incidents(events, actions(events))
    ]


BOOKING = [
    called(1, "book", "amount: 5", mentions=("HAT136",)),
    returned(2, "book", error="does not add up", after=(1,)),
]


def test_a_failure_without_another_attempt_stays_one() -> None:
    assert ended(BOOKING) == [([ids(1, 2)], None)]


@pytest.mark.parametrize("rule", [None, "retry"])
def test_an_attempt_is_another_one_when_the_failure_caused_it(rule: str | None) -> None:
    again = called(3, "book", causes=(Cause(event_id(2), rule, 0.9),))
    events = [*BOOKING, again, returned(4, "book", "HATHAT", after=(3,))]
    assert ended(events) == [([ids(1, 2)], ids(3, 4))]


def test_an_attempt_on_the_same_thing_by_the_same_agent_is_another_one() -> None:
    again = called(3, "book", mentions=("HAT136",))
    events = [*BOOKING, again, returned(4, "book", after=(3,))]
    assert ended(events) == [([ids(1, 2)], ids(3, 4))]


@pytest.mark.parametrize(
    "other",
    [
        called(3, "book", mentions=("HAT999",)),
        called(3, "cancel", mentions=("HAT136",), after=(2,)),
        called(3, "book", mentions=("HAT136",), agent_id="another"),
    ],
    ids=["another thing", "another tool", "another agent"],
)
def test_something_else_solves_nothing(other: SourceEvent) -> None:
    events = [*BOOKING, other, returned(4, other.tool_name or "", after=(3,))]
    assert ended(events) == [([ids(1, 2)], None)]


def test_attempts_that_fail_one_after_the_other_are_one_trouble() -> None:
    events = [
        *BOOKING,
        called(3, "book", after=(2,)),
        returned(4, "book", error="still not", after=(3,)),
        called(5, "book", after=(4,)),
        returned(6, "book", "HATHAT", after=(5,)),
        called(7, "book", after=(4,)),
        returned(8, "book", "HATHAU", after=(7,)),
    ]
    assert ended(events) == [([ids(1, 2), ids(3, 4)], ids(5, 6))]


def test_an_event_that_says_so_resolves_what_caused_it() -> None:
    failed = source_event(1, event_type="deploy.failed")
    resolved = source_event(2, event_type="incident.resolved", after=(1,))
    unrelated = source_event(3, event_type="incident.resolved")
    assert ended([failed, unrelated, resolved]) == [([ids(1)], ids(2))]
    assert ended([failed, unrelated]) == [([ids(1)], None)]


def test_ancestors_are_the_causes_and_theirs_each_once_whatever_their_shape() -> None:
    events = [
        source_event(1, after=(4,)),
        source_event(2, after=(1,)),
        source_event(3, after=(1, 99)),
        source_event(4, after=(2, 3)),
    ]
    by_id = {event.event_id: event for event in events}
    found = [event.event_id for event in ancestors(events[3], by_id)]
    assert found == list(ids(2, 3, 1))
