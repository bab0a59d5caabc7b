"""Summaries as JSON values, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.summary_payloads import (
    CONTENT_CHARACTERS,
    EPISODE_CHARACTERS,
    HIGHLIGHT_CHARACTERS,
    KINDS,
    MAX_ENTITIES,
    MAX_EPISODE_BYTES,
    MAX_HIGHLIGHTS,
    MAX_PARTICIPANTS,
    MAX_PROOFS,
    MAX_SUMMARY_BYTES,
    MAX_TOOLS,
    NAME_CHARACTERS,
    UPPER_HIGHLIGHTS,
    AgentSummary,
    EpisodeSummary,
    Highlight,
    KeyEntity,
    Participant,
    SessionSummary,
    Summary,
    ToolUse,
    parse_summary,
)
from projections.errors import InvalidEvent
from projections.events import MAX_NAME_CHARACTERS, canonical_json
from tests.factories import event_id

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=40)
counts = st.integers(0, 10**9)
times_ms = st.integers(-62_135_596_800_000, 253_402_300_799_999)
digests = st.from_regex(r"[0-9a-f]{32}", fullmatch=True)
highlight_values = st.builds(
    Highlight,
    kind=st.sampled_from(KINDS),
    text=names,
    event_ids=st.lists(counts.map(event_id), min_size=1, max_size=MAX_PROOFS).map(tuple),
    importance=st.integers(1, 10),
    occurred_at_ms=times_ms,
    agent_id=names,
    tool=st.none() | names,
)
participants = st.builds(
    Participant, agent_id=names, name=names, events=counts, messages=counts, calls=counts
)
entities = st.builds(KeyEntity, digests, names, st.sampled_from(["user", "concept"]), counts)


def several(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=3).map(tuple)


overviews = st.tuples(
    st.fixed_dictionaries(
        {
            "content": names,
            "digest": digests,
            "highlights": several(highlight_values),
            "participants": several(participants),
            "tools": several(st.builds(ToolUse, names, counts, counts)),
            "entities": several(entities),
            "event_count": st.integers(1, 500),
            "importance_total": counts,
            "failed_count": counts,
        }
    ),
    st.tuples(times_ms, times_ms).map(sorted),
).map(lambda made: {**made[0], "started_at_ms": made[1][0], "ended_at_ms": made[1][1]})
summaries: st.SearchStrategy[Summary] = st.one_of(
    st.builds(
        lambda said, **own: EpisodeSummary(**said, **own),
        overviews,
        session_id=names,
        trace_id=names,
        number=counts,
    ),
    st.builds(
        lambda said, **own: SessionSummary(**said, **own),
        overviews,
        session_id=names,
        episode_count=st.integers(1, 10**6),
    ),
    st.builds(
        lambda said, **own: AgentSummary(**said, **own),
        overviews,
        agent_id=names,
        session_count=st.integers(1, 10**6),
    ),
)


@given(summaries)
def test_a_summary_is_what_its_payload_says(summary: Summary) -> None:
    assert parse_summary(summary.payload()) == summary


@given(summaries)
def test_a_payload_is_plain_json_without_floats(summary: Summary) -> None:
    canonical_json(summary.payload())  # refuses what is no JSON value
    assert "float" not in kinds_in(summary.payload())


def kinds_in(value: Any) -> set[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value).__name__}.union(*(kinds_in(one) for one in inner))


WIDE = "\U0001f332"  # four bytes of UTF-8


def largest(characters: int, most: int) -> dict[str, Any]:
    agent, name = WIDE * MAX_NAME_CHARACTERS, WIDE * NAME_CHARACTERS
    highlight = Highlight(
        kind="resolution",
        text=WIDE * HIGHLIGHT_CHARACTERS,
        event_ids=tuple(event_id(number) for number in range(MAX_PROOFS)),
        importance=10,
        occurred_at_ms=10**13,
        agent_id=agent,
        tool=name,
    )
    participant = Participant(agent_id=agent, name=name, events=10**9, messages=10**9, calls=10**9)
    return {
        "content": WIDE * characters,
        "digest": "f" * 32,
        "highlights": (highlight,) * most,
        "participants": (participant,) * MAX_PARTICIPANTS,
        "tools": (ToolUse(name, 10**9, 10**9),) * MAX_TOOLS,
        "entities": (KeyEntity("f" * 32, name, "resource", 10**9),) * MAX_ENTITIES,
        "event_count": 500,
        "importance_total": 5_000,
        "failed_count": 500,
        "started_at_ms": 10**13,
        "ended_at_ms": 10**13,
    }


LARGEST = WIDE * MAX_NAME_CHARACTERS


@pytest.mark.parametrize(
    ("summary", "most"),
    [
        (
            EpisodeSummary(
                session_id=LARGEST,
                trace_id=LARGEST,
                number=10**6,
                **largest(EPISODE_CHARACTERS, MAX_HIGHLIGHTS),
            ),
            MAX_EPISODE_BYTES,
        ),
        (
            AgentSummary(
                agent_id=LARGEST,
                session_count=10**6,
                **largest(CONTENT_CHARACTERS, UPPER_HIGHLIGHTS),
            ),
            MAX_SUMMARY_BYTES,
        ),
    ],
    ids=["episode", "agent"],
)
def test_the_largest_summary_fits_into_one_event(summary: Summary, most: int) -> None:
    size = len(canonical_json(summary.payload()))
    assert most - 16 * 1024 <= size <= most


SMALL = SessionSummary(
    session_id="session-1",
    episode_count=1,
    content="ana: all is well",
    highlights=(
        Highlight(
            kind="said",
            text="ana: all is well",
            event_ids=(event_id(1),),
            importance=5,
            occurred_at_ms=1,
            agent_id="ana",
        ),
    ),
    participants=(Participant(agent_id="ana", name="ana", events=1, messages=1, calls=0),),
    tools=(ToolUse("search", 2, 1),),
    entities=(KeyEntity("0" * 32, "Oslo", "concept", 50),),
    event_count=1,
    importance_total=5,
    failed_count=0,
    started_at_ms=1,
    ended_at_ms=1,
    digest="0" * 32,
)

TOOL = {"name": "search", "calls": 1, "failed": 0}
BROKEN: dict[str, tuple[Any, str]] = {
    "payload.scope": ("week", "one of episode, session, agent"),
    "payload.content": (None, "required"),
    "payload.session_id": ("a\x00", "no control characters or lone surrogates"),
    "payload.episode_count": (0, "a number from 1 on"),
    "payload.failed_count": (True, "a whole number"),
    "payload.event_count": (2**53, "a number up to 9007199254740991"),
    "payload.ended_at_ms": (0, "not before started_at_ms"),
    "payload.digest": ("0" * 31, "32 hexadecimal digits"),
    "payload.note": ("more", "unknown field"),
    "payload.highlights[0].kind": (
        "rumour",
        "one of 'request', 'action', 'failure', 'resolution', 'outcome', 'said' or 'happened'",
    ),
    "payload.highlights[0].text": ("x" * 201, "at most 200 characters"),
    "payload.highlights[0].event_ids": ([], "at least 1 items"),
    "payload.highlights[0].event_ids[1]": ([event_id(1), "x"], "a UUID of 36 characters"),
    "payload.highlights[0].importance": (11, "a number up to 10"),
    "payload.participants[0].agent_id": ("", "at least 1 characters"),
    "payload.participants[0].age": (3, "unknown field"),
    "payload.tools[0].calls": (1.5, "a whole number"),
    "payload.tools": ([TOOL] * 11, "at most 10 items"),
    "payload.entities[0].entity_id": ("oslo", "an entity id, entity:<hash>"),
    "payload.entities[0].type": (
        "city",
        "one of 'agent', 'tool', 'user', 'service', 'resource' or 'concept'",
    ),
}


def broken(path: str, value: Any) -> dict[str, Any]:
    payload = SMALL.payload()
    place: Any = payload
    *way, last = path.removesuffix("[1]").replace("[0]", ".0").split(".")[1:]
    for step in way:
        place = place[int(step)] if step.isdigit() else place[step]
    place[last] = value
    return payload


@pytest.mark.parametrize("path", BROKEN)
def test_a_payload_that_breaks_a_rule_is_refused_by_field_and_rule(path: str) -> None:
    value, rule = BROKEN[path]
    with pytest.raises(InvalidEvent) as refused:
        parse_summary(broken(path, value))
    assert refused.value.errors == ((path, rule),)


@pytest.mark.parametrize("payload", [None, [], "summary"])
def test_what_is_no_object_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidEvent, match="payload: a JSON object"):
        parse_summary(payload)
