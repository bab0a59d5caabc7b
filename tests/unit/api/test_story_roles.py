"""Which part an event has in its story."""

from __future__ import annotations

from api.retrieval.story_roles import roles_of
from tests.unit.api.story_builder import Told


def told_twice_and_helped() -> Told:
    return (
        Told()
        .add(0, "message", "please export", author="ana")
        .add(0, "call", "export", tool="export")
        .add(0, "failure", "too many rows", tool="export")
        .add(0, "call", "look up", tool="search")
        .add(0, "result", "split by month", tool="search")
        .add(0, "call", "export by month", tool="export")
        .add(0, "result", "done", tool="export")
        .add(1, "call", "export", tool="export")
        .add(1, "failure", "no rows", tool="export")
    )


def test_a_failure_and_what_made_it_work_are_found() -> None:
    roles = roles_of(told_twice_and_helped().stories())
    places = {name: getattr(roles, name).nonzero()[0].tolist() for name in roles._fields}
    assert places["first_failure"] == [2, 8]
    assert places["failed_call"] == [1, 7]
    assert places["between"] == [3, 4]
    assert places["fixing_call"] == [5]
    assert places["fixing_result"] == [6]
    assert places["retried"] == [2]
    assert places["has_fix"] == list(range(7))
    assert places["has_failure"] == list(range(9))
    assert roles.place.tolist() == [*range(7), 0, 1]
    assert roles.length.tolist() == [7] * 7 + [2] * 2


def test_a_story_does_not_go_on_in_the_next_one() -> None:
    stories = (
        Told()
        .add(0, "call", tool="pay")
        .add(0, "failure", tool="pay")
        .add(1, "call", tool="pay")
        .add(1, "result", tool="pay")
    )
    roles = roles_of(stories.stories())
    assert not roles.fixing_call.any()
    assert roles.has_failure.tolist() == [True, True, False, False]


def test_another_tool_that_works_is_no_fix() -> None:
    stories = (
        Told()
        .add(0, "call", tool="pay")
        .add(0, "failure", tool="pay")
        .add(0, "call", tool="log")
        .add(0, "result", tool="log")
    )
    assert not roles_of(stories.stories()).fixing_result.any()
