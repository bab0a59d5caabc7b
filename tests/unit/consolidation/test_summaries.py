"""Summaries of episodes, sessions and agents: what they say, count and depend on."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from consolidation.episodes import episodes
from consolidation.sources import SourceEvent, Totals
from consolidation.summaries import (
    agent_digest,
    session_digest,
    summarize_agent,
    summarize_episode,
    summarize_session,
)
from consolidation.summary_payloads import (
    CONTENT_CHARACTERS,
    EPISODE_CHARACTERS,
    UPPER_HIGHLIGHTS,
    EpisodeSummary,
    Participant,
    SessionSummary,
    ToolUse,
)
from tests.factories import START_MS
from tests.source_factories import called, mentioned, returned, said, source_event

DAY_MS = 86_400_000
MIA = mentioned("mia", "subject", entity_type="user")

BOOKING = [
    said(1, "system", "Policy of Atlantis.", event_type="message.system", mentions=("Atlantis",)),
    said(2, "user", "I need a flight to Seattle in May.", mentions=(MIA, "Seattle")),
    called(3, "search", "to: Seattle", mentions=(mentioned("Seattle", "target"),), importance=3),
    returned(4, "search", "HAT136", after=(3,), mentions=("HAT136",), importance=3),
    called(5, "book", "amount: 5", mentions=(mentioned("HAT136", "target"),), importance=6),
    returned(6, "book", error="payment does not add up", after=(5,), importance=7),
    called(7, "book", "amount: 55", mentions=(mentioned("HAT136", "target"),), importance=6),
    returned(8, "book", "HATHAT", after=(7,), importance=6),
    said(9, "assistant", "Your flight to Seattle has been booked.", mentions=("Seattle",)),
]


def summary_of(events: list[SourceEvent], **fields: Any) -> EpisodeSummary:
    (episode,) = episodes(events)
    return summarize_episode(episode, **fields)


def test_an_episode_says_who_did_what_for_whom_with_what_and_what_came_of_it() -> None:
    assert summary_of(BOOKING).content.split("\n") == [
        "2026-02-02: assistant, for mia, used book and search; about HAT136 and Seattle.",
        "mia asked: I need a flight to Seattle in May.",
        "book on HAT136 failed: payment does not add up; went through with amount 55 instead of 5",
        "assistant concluded: Your flight to Seattle has been booked.",
    ]


def test_a_conversation_says_who_talked_about_what() -> None:
    events = [
        said(1, "ana", "I moved to Oslo last week.", mentions=("Oslo",)),
        said(2, "ben", "My sister studied medicine in Oslo.", mentions=("Oslo",)),
    ]
    assert summary_of(events).content.split("\n") == [
        "2026-02-02: ana and ben talked; about Oslo.",
        "ana: I moved to Oslo last week.",
        "ben: My sister studied medicine in Oslo.",
    ]


def test_events_that_are_neither_words_nor_tools_are_told_too() -> None:
    event = source_event(event_type="plan.made", summary="plan.made: Use Valkey.")
    assert summary_of([event]).content.split("\n") == [
        "2026-02-02: agent-1, 1 event.",
        "plan.made by agent-1: Use Valkey.",
    ]


def test_an_episode_counts_what_it_holds() -> None:
    summary = summary_of(BOOKING)
    assert summary.event_count == 9
    assert summary.importance_total == sum(event.importance for event in BOOKING)
    assert summary.failed_count == 1
    assert (summary.started_at_ms, summary.ended_at_ms) == (START_MS + 1, START_MS + 9)
    assert summary.tools == (ToolUse("book", 2, 1), ToolUse("search", 1, 0))
    assert summary.participants == (
        Participant("assistant", "assistant", 4, 1, 3),
        Participant("user", "mia", 1, 1, 0),
        Participant("tool", "tool", 3, 0, 0),
        Participant("system", "system", 1, 0, 0),
    )


def test_entities_are_what_the_important_events_are_about() -> None:
    names = [one.name for one in summary_of(BOOKING).entities]
    assert names == ["HAT136", "Seattle", "mia"]  # Atlantis only stands in the instructions


def test_what_is_mentioned_everywhere_counts_less() -> None:
    degrees = {one.entity_id: 10_000 for one in BOOKING[4].entities}
    names = [one.name for one in summary_of(BOOKING, degrees=degrees).entities]
    assert names == ["Seattle", "mia", "HAT136"]


def test_what_a_tool_was_used_on_counts_more_than_what_came_back() -> None:
    events = [
        called(1, "read", mentions=(mentioned("zebra.txt", "target"),)),
        returned(2, "read", after=(1,), mentions=("apple.txt",)),
    ]
    assert [one.name for one in summary_of(events).entities] == ["zebra.txt", "apple.txt"]


def test_of_entities_that_differ_by_case_alone_one_is_named() -> None:
    names = (mentioned("MasterCard"), mentioned("mastercard", entity_type="concept"))
    event = said(1, "ana", "MasterCard or mastercard?", mentions=names)
    assert len(summary_of([event]).entities) == 1


def test_what_is_told_is_not_about_those_who_speak() -> None:
    events = [
        said(1, "Melanie", "I moved to Oslo last week.", mentions=("Oslo", "Caro")),
        said(2, "Caroline", "Mel, that is good news for Oslo.", mentions=("Oslo", "Mel")),
    ]
    lead = summary_of(events).content.split("\n")[0]
    assert lead == "2026-02-02: Caroline and Melanie talked; about Oslo."


def test_highlights_for_which_there_is_no_room_are_left_out_whole() -> None:
    events = [said(n, "ana", f"{n} harbours, " + "lighthouses and ships, " * 8) for n in range(8)]
    summary = summary_of(events)
    lines = summary.content.split("\n")[1:]
    assert 0 < len(lines) < len(summary.highlights)
    assert {one.text for one in summary.highlights}.issuperset(lines)


def test_a_long_episode_stays_within_its_bounds() -> None:
    name = "An endless name " * 12
    events = [said(n, f"speaker-{n} {name}", f"{n} {name}") for n in range(400)]
    content = summary_of(events).content
    assert len(content) <= EPISODE_CHARACTERS
    assert content.count("\n") >= 2


# -- sessions and agents ---------------------------------------------------------------------------


def session_of(*days: int, name: str = "session-1") -> SessionSummary:
    """A session with one booking on each of those days."""
    step = len(BOOKING)
    events = [
        event._replace(
            event_id=source_event(day * step + place).event_id,
            causes=tuple(
                cause._replace(event_id=source_event(day * step + origin).event_id)
                for cause in event.causes
                for origin, other in enumerate(BOOKING)
                if other.event_id == cause.event_id
            ),
            occurred_at_ms=event.occurred_at_ms + day * DAY_MS,
            session_id=name,
        )
        for day in days
        for place, event in enumerate(BOOKING)
    ]
    return summarize_session([summarize_episode(one) for one in episodes(events)])


def test_a_session_of_one_episode_says_what_that_says() -> None:
    session = session_of(0)
    episode = summary_of(
        [
            event._replace(
                event_id=source_event(place).event_id,
                causes=tuple(
                    cause._replace(event_id=source_event(place - 1).event_id)
                    for cause in event.causes
                ),
            )
            for place, event in enumerate(BOOKING)
        ]
    )
    assert (session.overview(), session.content) == (episode.overview(), episode.content)


def test_a_session_of_several_episodes_tells_the_best_of_each_with_its_day() -> None:
    lines = session_of(0, 2).content.split("\n")
    assert lines[:3] == [
        "2026-02-02 to 2026-02-04, 2 episodes: assistant, for mia, used book and search; about "
        "HAT136 and Seattle; failed: book 2 of 4 times.",
        "2026-02-02 mia asked: I need a flight to Seattle in May.",
        "2026-02-02 book on HAT136 failed: payment does not add up; went through with amount 55 "
        "instead of 5",
    ]
    assert len(lines) == 7


def test_a_session_adds_up_what_its_episodes_count() -> None:
    one, two = session_of(0), session_of(0, 2)
    assert two.event_count == 2 * one.event_count
    assert two.importance_total == 2 * one.importance_total
    assert two.failed_count == 2
    assert two.tools == (ToolUse("book", 4, 2), ToolUse("search", 2, 0))
    assert two.entities == tuple(replace(each, weight=2 * each.weight) for each in one.entities)


@given(st.permutations(range(4)))
def test_the_order_of_episodes_and_sessions_changes_nothing(order: list[int]) -> None:
    parts = [session_of(day, name=f"session-{day}") for day in range(4)]
    assert summarize_agent("assistant", [parts[n] for n in order]) == summarize_agent(
        "assistant", parts
    )


def test_an_agent_says_in_how_many_sessions_it_did_what() -> None:
    parts = [session_of(day, name=f"session-{day}") for day in range(2)]
    content = summarize_agent("assistant", parts).content
    assert content.split("\n")[0] == (
        "assistant, 2 sessions, 2026-02-02 to 2026-02-03: assistant, for mia, used book and "
        "search; about HAT136 and Seattle; failed: book 2 of 4 times."
    )


def test_totals_are_of_all_sessions_and_the_words_of_those_handed_in() -> None:
    totals = Totals(10_000, 90_000, 450_000, 10_000, START_MS - DAY_MS, START_MS + 9 * DAY_MS)
    found = summarize_agent("assistant", [session_of(0)], totals)
    assert (found.session_count, found.event_count) == (10_000, 90_000)
    assert found.content.startswith(
        "assistant, 10,000 sessions, 2026-02-01 to 2026-02-11: assistant"
    )


def test_agents_and_sessions_stay_within_their_bounds() -> None:
    parts = [session_of(day, name=f"session-{day}") for day in range(60)]
    found = summarize_agent("assistant", parts)
    assert len(found.content) <= CONTENT_CHARACTERS
    assert len(found.highlights) == UPPER_HIGHLIGHTS


def test_at_most_half_of_what_an_agent_did_is_told_as_troubles() -> None:
    parts = [session_of(day, name=f"session-{day}") for day in range(20)]
    kinds = [one.kind for one in summarize_agent("assistant", parts).highlights]
    assert (kinds.count("resolution"), len(kinds)) == (UPPER_HIGHLIGHTS // 2, UPPER_HIGHLIGHTS)


def test_what_an_agent_did_itself_comes_before_what_others_did() -> None:
    found = [
        summarize_session([summary_of([said(n, who, f"The {n}th word of {who}, on the harbour.")])])
        for n, who in enumerate(["ana", "ben"] * 10)
    ]
    told = summarize_agent("ben", found).highlights
    assert [one.agent_id for one in told].count("ben") == 10


# -- digests and other words -----------------------------------------------------------------------


def test_an_unchanged_episode_has_the_same_digest_and_a_changed_one_another() -> None:
    changed = [BOOKING[0]._replace(text="Another policy."), *BOOKING[1:]]
    assert summary_of(BOOKING[::-1]).digest == summary_of(BOOKING).digest
    assert summary_of(changed).digest != summary_of(BOOKING).digest


def test_a_sessions_digest_is_known_from_those_of_its_episodes() -> None:
    parts = [summarize_episode(one) for one in episodes([source_event(1), far_away(2)])]
    digests = [(one.trace_id, one.number, one.digest) for one in parts]
    assert session_digest(digests[::-1]) == summarize_session(parts).digest
    assert session_digest(digests[:1]) != summarize_session(parts).digest


def far_away(number: int) -> SourceEvent:
    return source_event(number, at=DAY_MS)


def test_an_agents_digest_is_known_from_its_sessions_and_totals() -> None:
    totals = Totals(3, 27, 100, 3, 0, 1)
    part = session_of(0)
    digest = agent_digest([(part.session_id, part.digest)], totals)
    assert summarize_agent("assistant", [part], totals).digest == digest
    assert summarize_agent("assistant", [part]).digest != digest
