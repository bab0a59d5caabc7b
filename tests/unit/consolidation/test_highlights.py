"""What of an episode is worth telling, in which words, and which events prove it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.highlights import episode_highlights
from consolidation.lessons import listed
from consolidation.sources import SourceEvent
from consolidation.summary_payloads import (
    HIGHLIGHT_CHARACTERS,
    MAX_HIGHLIGHTS,
    MAX_PROOFS,
    Highlight,
    by_time,
)
from tests.factories import event_id
from tests.source_factories import called, mentioned, returned, said, source_event

MIA = mentioned("mia", "subject", entity_type="user")


def asks(number: int, text: str, **fields: Any) -> SourceEvent:
    return said(number, "user", text, **{"mentions": (MIA, "Seattle"), **fields})


def told(events: list[SourceEvent]) -> list[tuple[str, str]]:
    return [(one.kind, one.text) for one in by_time(episode_highlights(events))]


def proved(events: list[SourceEvent]) -> list[tuple[str, tuple[str, ...]]]:
    return [(one.kind, one.event_ids) for one in episode_highlights(events)]


def ids(*numbers: int) -> tuple[str, ...]:
    return tuple(event_id(number) for number in numbers)


BOOKING = [
    asks(1, "Hi! Please book me a flight to Seattle for May."),
    called(2, "book", "flight: HAT136\namount: 5", mentions=("HAT136",), after=(1,), importance=6),
    returned(3, "book", "reservation: HATHAT", after=(2,), importance=6),
    said(4, "assistant", "Your flight to Seattle has been booked.", mentions=("Seattle",)),
    asks(5, "Thanks, bye!", importance=1, mentions=(MIA,)),
    said(6, "assistant", "You are welcome!", importance=1),
]


def test_what_was_asked_done_and_answered_is_told_and_chatter_is_not() -> None:
    assert told(BOOKING) == [
        ("request", "mia asked: Please book me a flight to Seattle for May."),
        ("action", "assistant used book on HAT136: reservation: HATHAT"),
        ("outcome", "assistant concluded: Your flight to Seattle has been booked."),
    ]


def test_an_act_after_the_last_answer_is_what_came_of_it() -> None:
    assert told(BOOKING[:3])[-1][0] == "outcome"


def test_an_act_after_an_answer_is_what_came_of_it() -> None:
    promised = said(2, "assistant", "Certainly, booking your flight to Seattle now.", importance=8)
    assert kinds([BOOKING[0], promised, *moved(BOOKING[1:3], 10)]) == ["request", "said", "outcome"]


def test_the_outcome_answers_the_last_request_of_substance() -> None:
    events = [
        BOOKING[0],
        said(2, "assistant", "Flights to Seattle leave every Monday morning in May.", importance=9),
        asks(3, "Then book the earliest window seat on that flight, please."),
        said(4, "assistant", "Your window seat on the earliest flight was booked."),
        asks(5, "Thanks, bye!", importance=1),
    ]
    assert kinds(events) == ["request", "said", "request", "outcome"]


def moved(events: list[SourceEvent], later_ms: int) -> list[SourceEvent]:
    return [one._replace(occurred_at_ms=one.occurred_at_ms + later_ms) for one in events]


def kinds(events: list[SourceEvent]) -> list[str]:
    return [kind for kind, _ in told(events)]


def test_a_request_that_led_to_an_act_comes_before_others() -> None:
    events = [
        asks(1, "Please tell me about Seattle harbour tours first."),
        asks(2, "Please tell me about Oslo harbour tours then."),
        asks(3, "Please tell me about Lisbon harbour tours, too."),
        called(4, "book", mentions=("HAT136",), after=(3,), importance=6),
        returned(5, "book", after=(4,), importance=6),
    ]
    order = [one.event_ids[0] for one in episode_highlights(events) if one.kind == "request"]
    assert order == list(ids(1, 3, 2))


def test_an_act_names_first_what_the_episode_is_about() -> None:
    events = [
        said(1, "assistant", "The reservation ZX9 is what we talk about.", mentions=("ZX9",)),
        called(2, "change", mentions=("HAT136", "ZX9"), importance=6),
    ]
    assert told(events)[-1] == ("outcome", "assistant used change on ZX9 and HAT136")


def test_what_an_answer_refuses_is_told_rather_than_what_else_it_says() -> None:
    refusal = said(
        2,
        "assistant",
        "The harbour hotel near the old town is lovely. Unfortunately, it is full.",
        mentions=("harbour",),
    )
    done = said(9, "assistant", "I have noted your wish to visit Seattle.", mentions=("Seattle",))
    assert told([BOOKING[0], refusal, done])[1] == (
        "said",
        "assistant: Unfortunately, it is full.",
    )


def test_a_message_is_told_from_where_it_says_something_to_the_end_of_the_paragraph() -> None:
    event = asks(1, "Hi! Hello.\nSure! I want to fly to Seattle. On Monday.\n- window seat please")
    assert told([event])[0][1] == "mia asked: I want to fly to Seattle. On Monday."


def test_a_result_whose_call_is_missing_is_told_alone() -> None:
    assert told([returned(1, "search", "3 found", importance=6)]) == [
        ("outcome", "search: 3 found")
    ]


def test_the_best_comes_first() -> None:
    asked = said(20, "ana", "Why is the harbour closed?", keywords=("harbour",))
    assert [one.kind for one in episode_highlights([*FAILED, asked])] == ["request", "failure"]


def test_an_episode_of_chatter_alone_tells_its_best_line() -> None:
    assert told(BOOKING[5:]) == [("said", "assistant: You are welcome!")]


def test_a_conversation_has_neither_requests_nor_an_outcome() -> None:
    events = [said(1, "ana", "I moved to Oslo."), said(2, "ben", "I bought a piano.")]
    assert told(events) == [("said", "ana: I moved to Oslo."), ("said", "ben: I bought a piano.")]


def test_what_another_agent_says_to_one_with_tools_is_a_request() -> None:
    events = [
        said(1, "planner", "Find the oldest invoice of the year.", mentions=("invoice",)),
        called(2, "search", after=(1,)),
    ]
    assert told(events)[0] == ("request", "planner asked: Find the oldest invoice of the year.")


FAILED = [
    called(1, "book", "flight: HAT136\namount: 5", mentions=("HAT136",)),
    returned(2, "book", error="payment does not add up", after=(1,), importance=7),
]


def test_a_failure_says_of_what_and_why() -> None:
    assert told(FAILED) == [("failure", "book on HAT136 failed: payment does not add up")]


def test_a_time_out_is_told_as_one() -> None:
    assert told([called(1, "book", status="timeout")]) == [("failure", "book timed out")]


def again(number: int, text: str, **fields: Any) -> list[SourceEvent]:
    return [
        called(number, "book", text, mentions=("HAT136",)),
        returned(number + 1, "book", after=(number,), **fields),
    ]


def test_a_resolution_says_what_was_different_when_it_went_through() -> None:
    events = [*FAILED, *again(3, "flight: HAT136\namount: 55")]
    assert told(events) == [
        (
            "resolution",
            "book on HAT136 failed: payment does not add up; went through with amount 55 instead "
            "of 5",
        )
    ]


def test_the_same_call_that_went_through_was_tried_again() -> None:
    events = [*FAILED, *again(3, "flight: HAT136\namount: 5")]
    assert told(events)[0][1].endswith("; went through when tried again")


def test_several_failures_are_counted_and_the_last_says_why() -> None:
    events = [*FAILED, *again(3, "amount: 6", error="no"), *again(5, "amount: 55")]
    assert told(events)[0][1] == (
        "book on HAT136 failed twice, at last: no; went through with amount 55 instead of 6"
    )


def test_tools_that_the_success_goes_back_to_are_named_when_no_argument_tells() -> None:
    events = [
        *FAILED,
        called(3, "calculate", after=(2,)),
        returned(4, "calculate", "305", after=(3,)),
        called(5, "book", mentions=("HAT136",), after=(4,)),
        returned(6, "book", after=(5,)),
    ]
    assert told(events)[0][1].endswith("; went through after calculate")


def test_a_resolution_is_proved_by_what_failed_first_and_what_resolved_it_last() -> None:
    events = [*FAILED, *again(3, "amount: 6", error="no"), *again(5, "amount: 55")]
    assert proved(events) == [("resolution", ids(1, 2, 3, 4, 5, 6))]


def test_of_many_attempts_the_first_ones_and_the_last_event_are_named() -> None:
    events = list(FAILED)
    for number in range(3, 43, 2):
        events += again(number, "amount: 6", error="no")
    events += again(43, "amount: 55")
    proofs = episode_highlights(events)[0].event_ids
    assert (len(proofs), proofs[0], proofs[-1]) == (MAX_PROOFS, event_id(1), event_id(44))


def test_what_happened_is_told_with_its_type_and_agent() -> None:
    event = source_event(
        1, event_type="plan.made", agent_id="planner", summary="plan.made: Use Valkey from May on."
    )
    assert told([event]) == [("happened", "plan.made by planner: Use Valkey from May on.")]


def test_instructions_are_no_highlights() -> None:
    system = said(1, "system", "Be brief.", event_type="message.system", importance=9)
    assert told([system, *FAILED]) == told(FAILED)


def test_what_speaks_of_something_new_comes_before_what_repeats() -> None:
    events = [
        said(number, "ana", "The harbour and the old lighthouse are closed.")
        for number in range(1, MAX_HIGHLIGHTS + 3)
    ]
    new = said(99, "ana", "I bought a black piano.", importance=4)
    assert episode_highlights([*events, new])[1].text == "ana: I bought a black piano."


def test_lines_of_few_words_give_way_to_those_that_say_more() -> None:
    events = [
        said(1, "ana", "Sure, I see."),
        *[said(n, "ben", f"The {n}th lighthouse of the coast was painted.") for n in range(2, 6)],
    ]
    assert [one.agent_id for one in episode_highlights(events)] == ["ben"] * 4


def test_in_a_conversation_reactions_give_way_to_what_somebody_tells_of_themselves() -> None:
    events = [
        said(1, "ana", "You painted the lighthouse in wild colours."),
        said(2, "ben", "I painted the lighthouse in wild colours."),
    ]
    assert [one.agent_id for one in episode_highlights(events)] == ["ben", "ana"]


def test_of_several_new_fields_of_one_name_the_first_is_told() -> None:
    events = [
        called(1, "book", importance=6),
        returned(2, "book", "flights.price: 155\nflights.price: 185\nid: HATHAT", after=(1,)),
    ]
    assert told(events) == [("outcome", "assistant used book: price: 155; id: HATHAT")]


def test_a_result_is_told_without_what_the_call_said_already() -> None:
    events = [
        called(1, "book", "flight: HAT136\ncabin: economy", importance=6),
        returned(2, "book", "flight: HAT136\nreservation: HATHAT\ncabin: economy", after=(1,)),
    ]
    assert told(events) == [("outcome", "assistant used book: reservation: HATHAT")]


texts = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=400)
anything = st.builds(
    source_event,
    st.integers(0, 40),
    event_type=st.sampled_from(
        ["message.sent", "message.system", "tool.call", "tool.result", "step.failed", "a.b"]
    ),
    agent_id=st.sampled_from(["ana", "ben"]),
    tool_name=st.none() | st.sampled_from(["book", "search"]),
    status=st.none() | st.sampled_from(["failed", "completed", "timeout"]),
    importance=st.integers(1, 10),
    text=texts,
    summary=texts.map(lambda text: text[:200]),
    speaker=st.none() | texts.map(lambda text: text[:20]),
    keywords=st.lists(st.sampled_from(["a", "b", "c"]), max_size=2).map(tuple),
    mentions=st.lists(st.sampled_from(["HAT136", "Oslo", MIA]), max_size=2).map(tuple),
    after=st.lists(st.integers(0, 40), max_size=2).map(tuple),
)
"""Events of every kind, with causes in any direction, to themselves and to others that are not
there."""


@given(st.lists(anything, min_size=1, max_size=40, unique_by=lambda event: event.event_id))
def test_highlights_are_few_short_and_proved_by_events_of_the_episode(
    events: list[SourceEvent],
) -> None:
    known = {event.event_id for event in events}
    found = episode_highlights(events)
    assert 1 <= len(found) <= MAX_HIGHLIGHTS or all(
        event.event_type == "message.system" for event in events
    )
    assert [one for one in found if not is_sound(one, known)] == []


def is_sound(one: Highlight, known: set[str]) -> bool:
    return (
        1 <= len(one.text) <= HIGHLIGHT_CHARACTERS
        and "\n" not in one.text
        and 1 <= len(one.event_ids) <= MAX_PROOFS
        and len(set(one.event_ids)) == len(one.event_ids)
        and known.issuperset(one.event_ids)
    )


@pytest.mark.parametrize(
    ("names", "expected"),
    [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")],
)
def test_names_are_listed_as_they_are_told(names: list[str], expected: str) -> None:
    assert listed(names) == expected


def test_a_line_that_announces_a_list_is_told_with_how_the_list_begins() -> None:
    breakdown = (
        "Here is the payment:\n- **Certificate**: $250\n2. Credit card: $55\n\n* Fee: $1\n- x"
    )
    events = [BOOKING[0], said(2, "assistant", breakdown, importance=8, summary="")]
    events[1] = events[1]._replace(summary="assistant: Here is the payment:")
    texts = [text for _, text in told([*events, *moved(BOOKING[1:4], 10)])]
    line = "assistant: Here is the payment: Certificate: $250; Credit card: $55; Fee: $1"
    assert line in texts


def test_assent_is_worth_less_than_anything_else_that_is_said() -> None:
    things = (
        "We painted the kitchen yellow on Sunday.",
        "My sister moved into a flat near Oslo.",
        "The dog ate every sandwich of our picnic.",
        "Tickets for that concert sold out quickly.",
        "Grandma taught me an old sourdough recipe.",
        "Our car broke down outside a village bakery.",
        "Snow covered both mountain passes yesterday.",
        "Two swallows built their nest under my roof.",
    )
    talk = [
        said(1, "Ann", "I ran a charity race for mental health last Saturday.", importance=6),
        said(2, "Bob", "I totally agree, Ann.", importance=6),
        *(said(n, "Bob", text) for n, text in enumerate(things, 3)),
    ]
    assert "Bob: I totally agree, Ann." not in [text for _, text in told(talk)]
