"""SIMILAR_TO by comparing all: the nearest before each event, whatever the order they come in."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment import similarity
from enrichment.similarity import CAP, THRESHOLD, Embedded, EmbeddedEvents, Near, similar_edges
from enrichment.vectors import MOST, as_text, from_text, whole_numbers
from projections.operations import MergeEdge, RemoveEdge
from projections.schema import SIMILAR_TO

WORDS = [[MOST, 0, 0], [MOST, 20, 0], [MOST, 60, 0], [MOST, 0, 70], [0, MOST, 0], [0, 0, 0]]
"""Some are alike, some are not, and the last one says nothing."""
USERS = (None, "ann", "ben")

events = st.builds(
    lambda number, at, user, word: Embedded(
        f"e{number:02}", at, USERS[user], np.array(WORDS[word], np.int8).tobytes()
    ),
    st.integers(0, 30),
    st.integers(0, 12),
    st.integers(0, len(USERS) - 1),
    st.integers(0, len(WORDS) - 1),
)


def voiced(number: int, word: int = 0, at: int | None = None, user: str | None = None) -> Embedded:
    numbers = np.array(WORDS[word], np.int8).tobytes()
    return Embedded(f"e{number:02}", number if at is None else at, user, numbers)


def cosine(event: Embedded, other: Embedded) -> float:
    a, b = (np.frombuffer(one.numbers, np.int8).astype(int) for one in (event, other))
    norm = float((a @ a) * (b @ b)) ** 0.5
    return float(a @ b) / norm if norm else 0.0


def by_hand(among: Sequence[Embedded], most: int) -> dict[str, list[str]]:
    """Of each event those before it that it is most like, told apart by all there is."""
    return {
        event.event_id: [
            other.event_id
            for _, _, other in sorted(
                (
                    (cosine(event, other), other.link, other)
                    for other in among
                    if other.link < event.link
                    and other.user_id in (None, event.user_id)
                    and cosine(event, other) > THRESHOLD
                ),
                reverse=True,
            )[:most]
        ]
        for event in among
    }


def ids(near: Sequence[Near]) -> list[str]:
    return [other.event_id for other in near]


@given(
    st.lists(events, unique_by=lambda one: one.event_id, max_size=30),
    st.lists(st.integers(1, 5), min_size=30, max_size=30),
    st.sets(st.integers(0, 29), max_size=3),
    st.integers(2, 4),
    st.integers(1, 60),
)
def test_the_nearest_do_not_depend_on_who_came_first(
    among: list[Embedded], sizes: list[int], twice: set[int], most: int, at_once: int
) -> None:
    """Events come in blocks; some blocks are looked at and do not stay, some come twice."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(similarity, "CAP", most)
        patched.setattr(similarity, "_AT_ONCE", at_once)
        held = EmbeddedEvents()
        shown: dict[str, list[str]] = {}
        left, number = list(among), 0
        while left:
            block, left = left[: sizes[number]], left[sizes[number] :]
            held.neighbours(block)
            if number in twice and left:
                held.neighbours([*left[:2], *block])
            for event, near in held.neighbours(block).items():
                shown[event.event_id] = ids(near)
            held.put(*block)
            if number in twice:
                again = held.neighbours(block)
                assert all(shown[event.event_id] == ids(near) for event, near in again.items())
            number += 1
        assert shown == by_hand(among, most)


@given(
    st.lists(events, unique_by=lambda one: one.event_id, min_size=2, max_size=20),
    st.lists(events, max_size=6),
    st.sets(st.integers(0, 30), max_size=4),
)
def test_what_is_said_otherwise_or_no_more_is_made_up_for(
    among: list[Embedded], changes: list[Embedded], gone: set[int]
) -> None:
    held = EmbeddedEvents()
    shown = {event.event_id: ids(near) for event, near in held.neighbours(among).items()}
    now = {event.event_id: event for event in among}
    for event in among:
        held.put(event)
    silent = [f"e{number:02}" for number in gone if f"e{number:02}" in now]
    changed = {
        event.event_id: now[event.event_id]._replace(numbers=event.numbers)
        for event in changes
        if event.event_id in now and event.event_id not in silent
    }
    for event, near in held.neighbours([*changed.values()], silent).items():
        shown[event.event_id] = ids(near)
    now |= changed
    for event_id in silent:
        held.drop(event_id)
        del now[event_id], shown[event_id]
    for event in changed.values():
        held.put(event)
    assert shown == by_hand([*now.values()], CAP)
    again = held.neighbours([*now.values()])
    assert {event.event_id: ids(near) for event, near in again.items()} == shown


def test_a_text_that_is_said_again_and_again_is_a_chain() -> None:
    held = EmbeddedEvents()
    for number in range(40):
        held.put(voiced(number))
    ((event, near),) = held.neighbours([voiced(40)]).items()
    assert event == voiced(40)
    assert ids(near) == [f"e{number}" for number in range(39, 29, -1)]
    assert {other.cosine for other in near} == {1.0}


def test_a_late_event_opens_again_only_those_that_it_is_among_the_nearest_of() -> None:
    held = EmbeddedEvents()
    among = [voiced(number, at=10 * number) for number in range(60)]
    held.neighbours(among)
    for event in among:
        held.put(event)
    for event in among:
        held.neighbours([event])
    opened = held.neighbours([voiced(99, at=255)])
    later = [f"e{number:02}" for number in range(26, 36)]
    assert sorted(event.event_id for event in opened) == [*later, "e99"]


def test_an_event_of_a_user_is_like_theirs_and_nobodys_and_one_of_nobody_like_nobodys() -> None:
    held = EmbeddedEvents()
    for number, user in enumerate((None, "ann", "ben")):
        held.put(voiced(number, user=user))
    near = held.neighbours([voiced(7, user="ann"), voiced(8), voiced(9, user="new")])
    assert [sorted(ids(some)) for some in near.values()] == [
        ["e00", "e01"],
        ["e00"],
        ["e00", "e08"],
    ]


def test_the_threshold_itself_is_not_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(similarity, "THRESHOLD", cosine(voiced(1), voiced(2, 2)))
    held = EmbeddedEvents()
    held.put(voiced(1))
    assert held.neighbours([voiced(2, 2)]) == {voiced(2, 2): []}


def test_whole_numbers_are_kept_as_text() -> None:
    vector = np.array([1.0, -0.5, 0.25], "<f4").tobytes()
    (numbers,) = whole_numbers([vector])
    assert np.frombuffer(numbers, np.int8).tolist() == [127, -64, 32]
    assert from_text(as_text(numbers)) == numbers
    assert from_text("no such text") == b""


# -- edges -----------------------------------------------------------------------------------------


def test_an_edge_is_made_changed_and_taken_away_and_one_that_is_right_is_left_alone() -> None:
    near = {("t", "b"): [Near(0.91, 1, "a"), Near(0.9123456, 1, "c"), Near(0.95, 1, "d")]}
    existing = {("t", "b"): {"a": 0.91, "d": 0.9, "e": 0.99}}
    assert similar_edges(near, existing) == [
        MergeEdge(
            type=SIMILAR_TO.type, source=("t", "b"), target=("t", "c"), values={"score": 0.912346}
        ),
        MergeEdge(
            type=SIMILAR_TO.type, source=("t", "b"), target=("t", "d"), values={"score": 0.95}
        ),
        RemoveEdge(type=SIMILAR_TO.type, source=("t", "b"), target=("t", "e")),
    ]


def test_the_smaller_id_comes_first() -> None:
    (edge,) = similar_edges({("t", "b"): [Near(0.9, 1, "a")]}, {})
    assert isinstance(edge, MergeEdge)
    assert (edge.source, edge.target) == (("t", "a"), ("t", "b"))
