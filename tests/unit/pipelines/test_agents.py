"""Made-up agents: the same at every run, with failures and second tries, and what can be asked."""

from __future__ import annotations

from itertools import islice

import pytest

from pipelines.operations.load_generator import Timings, measured
from pipelines.scenarios.agents import FAILS, Story, stories
from recollect.events import content_of

MANY = list(islice(stories(3, users=7), 400))


def kinds(story: Story) -> list[str]:
    return [step.kind for step in story.steps]


def test_a_seed_gives_the_same_sessions_and_another_one_others() -> None:
    assert list(islice(stories(3, users=7), 400)) == MANY
    other = {story.session_id for story in islice(stories(4, users=7), 400)}
    assert other.isdisjoint({story.session_id for story in MANY})
    assert len({story.session_id for story in MANY}) == len(MANY)


def test_they_are_for_several_users_by_several_agents() -> None:
    assert len({story.user for story in MANY}) == 7
    assert len({story.agent for story in MANY}) == 4


def test_every_step_is_one_that_the_client_logs() -> None:
    for story in MANY:
        for step in story.steps:
            content_of(step.kind, step.content)
        assert kinds(story)[0] == "user"
        assert kinds(story)[-1] == "assistant"


def test_every_call_has_what_came_of_it_before_the_next() -> None:
    for story in MANY:
        called = None
        for step in story.steps:
            if step.kind == "call":
                assert called is None
                called = step.tool
            elif step.kind in ("result", "failure"):
                assert step.tool == called
                called = None
        assert called is None


def test_some_calls_fail_and_most_of_these_work_at_the_second_try() -> None:
    firsts = [s for m in MANY for s in m.steps if s.kind == "call" and "attempt" not in s.content]
    seconds = [s for m in MANY for s in m.steps if s.kind == "call" and "attempt" in s.content]
    assert len(seconds) / len(firsts) == pytest.approx(FAILS, abs=0.04)
    failing = [story for story in MANY if "failure" in kinds(story)]
    lost = [story for story in failing if "could not finish" in str(story.steps[-1].content)]
    assert 0 < len(lost) < len(failing) / 2


def test_what_is_asked_names_what_the_session_is_about() -> None:
    for story in MANY:
        done, why, wish, tools = story.questions
        assert done.removeprefix("What was done for ").rstrip("?") in str(story.steps[0].content)
        assert why.startswith("Why did ")
        assert story.user in wish
        assert tools.startswith("Which tools")


def test_latencies_count_from_when_something_was_due() -> None:
    timings = Timings()
    for ms in range(1, 101):
        timings.add(float(ms), is_answered=ms != 50)
    told = timings.latency("x", 5.0)
    assert (told.asked, told.failed, told.p50, told.p95, told.p99) == (100, 1, 50, 95, 99)
    assert Timings().latency("x", 5.0).p99 == 0.0


def test_what_does_not_come_is_counted_and_what_is_wrong_is_raised() -> None:
    def refuse(number: int) -> bool:
        if number % 2:
            raise TimeoutError
        return number != 0

    told = measured("x", refuse, rate=1_000, count=4, unanswered=(TimeoutError,))
    assert (told.asked, told.failed) == (4, 3)
    with pytest.raises(TimeoutError):
        measured("x", refuse, rate=1_000, count=2)
