"""Ids of summaries, and digests of what they are made from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.sources import Cause, events_digest, summaries_digest
from consolidation.summary_payloads import episode_scope_id, summary_id
from tests.factories import event_id
from tests.source_factories import mentioned, source_event


def test_ids_are_part_of_the_stored_format() -> None:
    assert summary_id("default", "session", "session-1") == "c8194e9bf0505e5dde826f074831dd9c"
    of_before = summary_id("default", "session", "session-1", None)
    assert of_before == "c8194e9bf0505e5dde826f074831dd9c"
    of_ann = summary_id("default", "session", "session-1", ("ann",))
    assert of_ann == "097aa89b93c9b2ad05f10922a1e3b3e0"


def test_scope_tenant_number_and_trace_all_tell_summaries_apart() -> None:
    scopes = [
        ("acme", "session", "s"),
        ("acme", "agent", "s"),
        ("globex", "session", "s"),
        ("acme", "episode", episode_scope_id("s", "t", 0)),
        ("acme", "episode", episode_scope_id("s", "t", 1)),
        ("acme", "episode", episode_scope_id("s", "u", 0)),
    ]
    assert len({summary_id(*one) for one in scopes}) == len(scopes)  # type: ignore[arg-type]


@given(st.lists(st.integers(0, 50), unique=True), st.randoms(use_true_random=False))
def test_unchanged_events_have_the_same_digest_in_any_order(numbers: list[int], rng: Any) -> None:
    made = [source_event(number, at=number % 3) for number in numbers]
    shuffled = list(made)
    rng.shuffle(shuffled)
    assert events_digest(shuffled, 1) == events_digest(made, 1)


FULL = source_event(
    1,
    text="as it was",
    mentions=("GV1N64", mentioned("ana", "participant", subtype="person")),
    after=(7, 8),
)


def test_the_order_of_mentions_and_causes_does_not_change_the_digest() -> None:
    turned = FULL._replace(entities=FULL.entities[::-1], causes=FULL.causes[::-1])
    assert events_digest([turned], 1) == events_digest([FULL], 1)


@pytest.mark.parametrize(
    "change",
    [
        {"text": "as it is now"},
        {"importance": 6},
        {"status": "failed"},
        {"entities": FULL.entities[:1]},
        {"causes": FULL.causes[:1]},
        {"causes": (Cause(event_id(7), "retry", 0.9), FULL.causes[1])},
        {"occurred_at_ms": FULL.occurred_at_ms + 1},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_the_summary_is_made_from_changes_the_digest(change: dict[str, Any]) -> None:
    assert events_digest([FULL._replace(**change)], 1) != events_digest([FULL], 1)


def test_another_member_and_other_rules_change_the_digest() -> None:
    one, two = source_event(1), source_event(2)
    digests = {
        events_digest([], 1),
        events_digest([one], 1),
        events_digest([one, two], 1),
        events_digest([one], 2),
    }
    assert len(digests) == 4


def test_a_digest_of_summaries_depends_on_what_they_are_and_not_on_their_order() -> None:
    below = [("a", "1"), ("b", "2")]
    assert summaries_digest(below[::-1], 1) == summaries_digest(below, 1)
    others = [[("a", "1")], [("a", "1"), ("b", "3")], [("a", "2"), ("b", "1")], []]
    assert [one for one in others if summaries_digest(one, 1) == summaries_digest(below, 1)] == []
