"""Episodes: stretches of one trace, cut at long gaps and at 500 events."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.episodes import EPISODE_GAP_MS, Sealed, episodes
from consolidation.payloads import EPISODE_EVENTS
from consolidation.sources import Episode, SourceEvent, place_of
from tests.factories import START_MS, event_id
from tests.source_factories import source_event

HOUR_MS = 3_600_000


@st.composite
def sessions(draw: st.DrawFn) -> list[SourceEvent]:
    """Events of three traces at the same time, with pauses about as long as a gap."""
    count = draw(st.integers(0, 12))
    pauses = st.sampled_from([0, 1, EPISODE_GAP_MS // 2, EPISODE_GAP_MS, EPISODE_GAP_MS + 1])
    at = 0
    made = []
    for number in draw(st.permutations(range(count))):
        at += draw(pauses)
        made.append(source_event(number, at=at, trace_id=draw(st.sampled_from("abc"))))
    return made


def told(found: list[Episode]) -> list[tuple[str, int, list[str]]]:
    return [(one.trace_id, one.number, [e.event_id for e in one.events]) for one in found]


def ids(*numbers: int) -> list[str]:
    return [event_id(number) for number in numbers]


def sealed(number: int, first: int, last: int, **fields: Any) -> Sealed:
    """An episode from minute `first` to minute `last`, that began and ended with other events."""
    one = Sealed(
        "trace-1",
        number,
        place_of(source_event(0, at=first * 60_000)),
        place_of(source_event(9_999, at=last * 60_000)),
    )
    return one._replace(**fields)


def minutes(*at: int) -> list[SourceEvent]:
    return [source_event(minute, at=minute * 60_000) for minute in at]


def test_a_session_without_events_has_no_episodes() -> None:
    assert episodes([]) == []


@pytest.mark.parametrize(
    ("pause_ms", "expected"),
    [
        (EPISODE_GAP_MS, [("trace-1", 0, ids(1, 2))]),
        (EPISODE_GAP_MS + 1, [("trace-1", 0, ids(1)), ("trace-1", 1, ids(2))]),
    ],
)
def test_only_a_pause_of_more_than_half_an_hour_ends_an_episode(
    pause_ms: int, expected: list[tuple[str, int, list[str]]]
) -> None:
    made = [source_event(1, at=0), source_event(2, at=pause_ms)]
    assert told(episodes(made)) == expected


def test_traces_that_run_at_the_same_time_are_cut_apart() -> None:
    made = [
        source_event(1, at=0, trace_id="a"),
        source_event(2, at=1, trace_id="b"),
        source_event(3, at=2, trace_id="a"),
        source_event(4, at=HOUR_MS, trace_id="b"),
    ]
    assert told(episodes(made)) == [("a", 0, ids(1, 3)), ("b", 0, ids(2)), ("b", 1, ids(4))]


def test_events_of_another_trace_do_not_fill_a_gap() -> None:
    made = [
        source_event(1, at=0, trace_id="a"),
        source_event(2, at=EPISODE_GAP_MS // 2, trace_id="b"),
        source_event(3, at=EPISODE_GAP_MS + 1, trace_id="a"),
    ]
    assert told(episodes(made)) == [("a", 0, ids(1)), ("b", 0, ids(2)), ("a", 1, ids(3))]


def test_a_long_stretch_is_cut_at_five_hundred_events() -> None:
    made = [source_event(number) for number in range(2 * EPISODE_EVENTS + 1)]
    assert [len(one.events) for one in episodes(made)] == [EPISODE_EVENTS, EPISODE_EVENTS, 1]


def test_events_of_the_same_moment_are_in_the_order_of_their_ids() -> None:
    made = [source_event(2, at=0), source_event(1, at=0)]
    assert told(episodes(made)) == [("trace-1", 0, ids(1, 2))]


@given(sessions())
def test_every_event_is_in_exactly_one_episode(made: list[SourceEvent]) -> None:
    found = [event for one in episodes(made) for event in one.events]
    assert Counter(found) == Counter(made)


@given(sessions(), st.randoms(use_true_random=False))
def test_the_order_of_the_events_changes_nothing(made: list[SourceEvent], rng: Any) -> None:
    shuffled = list(made)
    rng.shuffle(shuffled)
    assert episodes(shuffled) == episodes(made)


@given(sessions(), st.sampled_from("abc"), st.sampled_from([0, EPISODE_GAP_MS, 2 * HOUR_MS]))
def test_an_event_at_the_end_changes_the_last_episode_of_its_trace_alone(
    made: list[SourceEvent], trace_id: str, pause_ms: int
) -> None:
    end = max((one.occurred_at_ms for one in made), default=START_MS)
    before = episodes(made)
    number = 1_000
    added = source_event(number, at=end - START_MS + pause_ms, trace_id=trace_id)
    after = episodes([*made, added])
    last = max((one.number for one in before if one.trace_id == trace_id), default=None)
    kept = [one for one in before if (one.trace_id, one.number) != (trace_id, last)]
    assert [one for one in kept if one not in after] == []


@given(sessions())
def test_numbers_count_the_episodes_of_each_trace_by_time(made: list[SourceEvent]) -> None:
    for trace_id in "abc":
        mine = [one for one in episodes(made) if one.trace_id == trace_id]
        assert [one.number for one in mine] == list(range(len(mine)))


# -- episodes with forgotten members ---------------------------------------------------------------


def test_events_within_a_sealed_episode_are_its_own() -> None:
    found = episodes(minutes(10, 20), [sealed(0, 0, 25)])
    assert [(one.number, one.sealed, len(one.events)) for one in found] == [(0, True, 2)]


def test_what_follows_a_sealed_episode_begins_a_new_one() -> None:
    found = episodes(minutes(10, 26), [sealed(0, 0, 25)])
    assert [(one.number, one.sealed) for one in found] == [(0, True), (1, False)]


def test_a_sealed_episode_without_events_keeps_its_number() -> None:
    found = episodes(minutes(200), [sealed(0, 0, 25)])
    assert [(one.number, one.sealed) for one in found] == [(1, False)]


def test_a_sealed_episode_parts_what_lies_around_it() -> None:
    found = episodes(minutes(4, 16), [sealed(1, 5, 15)])
    assert [(one.number, len(one.events)) for one in found] == [(0, 1), (2, 1)]


def test_a_sealed_episode_of_another_trace_takes_nothing() -> None:
    found = episodes(minutes(10), [sealed(0, 0, 25, trace_id="other")])
    assert [(one.number, one.sealed) for one in found] == [(0, False)]


@given(sessions(), st.data())
def test_forgetting_leaves_the_other_episodes_as_they_were(
    made: list[SourceEvent], data: st.DataObject
) -> None:
    before = episodes(made)
    touched = [one for one in before if data.draw(st.booleans())]
    forgotten = {
        event.event_id for one in touched for event in one.events if data.draw(st.booleans())
    }
    fixed = [
        Sealed(one.trace_id, one.number, place_of(one.events[0]), place_of(one.events[-1]))
        for one in touched
    ]
    after = episodes([one for one in made if one.event_id not in forgotten], fixed)
    expected = [
        (one.trace_id, one.number, kept)
        for one in before
        if (kept := [e.event_id for e in one.events if e.event_id not in forgotten])
    ]
    assert sorted(told(after)) == sorted(expected)
