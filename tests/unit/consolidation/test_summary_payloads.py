"""Summaries as JSON values, and back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.episode_acts import NAME_CHARACTERS
from consolidation.highlights import (
    HIGHLIGHT_CHARACTERS,
    KINDS,
    MAX_HIGHLIGHTS,
    MAX_PROOFS,
    Highlight,
)
from consolidation.summaries import (
    CONTENT_CHARACTERS,
    EPISODE_CHARACTERS,
    UPPER_HIGHLIGHTS,
    AgentSummary,
    EpisodeSummary,
    SessionSummary,
)
from consolidation.summary_content import (
    MAX_ENTITIES,
    MAX_PARTICIPANTS,
    MAX_TOOLS,
    Gist,
    KeyEntity,
    Participant,
    ToolUse,
)
from consolidation.summary_payloads import (
    MAX_EPISODE_BYTES,
    MAX_SUMMARY_BYTES,
    Summary,
    as_payload,
    from_payload,
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
    st.sampled_from(KINDS),
    names,
    st.lists(counts.map(event_id), min_size=1, max_size=MAX_PROOFS).map(tuple),
    st.integers(1, 10),
    times_ms,
    names,
    st.none() | names,
)
gists = st.builds(
    lambda content, told, who, tools, about, sums, times: Gist(
        content, tuple(told), tuple(who), tuple(tools), tuple(about), *sums, *sorted(times)
    ),
    names,
    st.lists(highlight_values, max_size=3),
    st.lists(st.builds(Participant, names, names, counts, counts, counts), max_size=3),
    st.lists(st.builds(ToolUse, names, counts, counts), max_size=3),
    st.lists(
        st.builds(KeyEntity, digests, names, st.sampled_from(["user", "concept"]), counts),
        max_size=3,
    ),
    st.tuples(st.integers(1, 500), counts, counts),
    st.tuples(times_ms, times_ms),
)
summaries: st.SearchStrategy[Summary] = st.one_of(
    st.builds(EpisodeSummary, names, names, counts, gists, digests),
    st.builds(SessionSummary, names, st.integers(1, 10**6), gists, digests),
    st.builds(AgentSummary, names, st.integers(1, 10**6), gists, digests),
)


@given(summaries)
def test_a_summary_is_what_its_payload_says(summary: Summary) -> None:
    assert from_payload(as_payload(summary)) == summary


@given(summaries)
def test_a_payload_is_plain_json_without_floats(summary: Summary) -> None:
    canonical_json(as_payload(summary))  # refuses what is no JSON value
    assert "float" not in kinds_in(as_payload(summary))


def kinds_in(value: Any) -> set[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return {type(value).__name__}.union(*(kinds_in(one) for one in inner))


WIDE = "\U0001f332"  # four bytes of UTF-8


def largest_gist(characters: int, most: int) -> Gist:
    agent, name = WIDE * MAX_NAME_CHARACTERS, WIDE * NAME_CHARACTERS
    proofs = tuple(event_id(number) for number in range(MAX_PROOFS))
    text = WIDE * HIGHLIGHT_CHARACTERS
    return Gist(
        WIDE * characters,
        (Highlight("resolution", text, proofs, 10, 10**13, agent, name),) * most,
        (Participant(agent, name, 10**9, 10**9, 10**9),) * MAX_PARTICIPANTS,
        (ToolUse(name, 10**9, 10**9),) * MAX_TOOLS,
        (KeyEntity("f" * 32, name, "resource", 10**9),) * MAX_ENTITIES,
        500,
        5_000,
        500,
        10**13,
        10**13,
    )


LARGEST = WIDE * MAX_NAME_CHARACTERS


@pytest.mark.parametrize(
    ("summary", "most"),
    [
        (
            EpisodeSummary(
                LARGEST, LARGEST, 10**6, largest_gist(EPISODE_CHARACTERS, MAX_HIGHLIGHTS), "f" * 32
            ),
            MAX_EPISODE_BYTES,
        ),
        (
            AgentSummary(
                LARGEST, 10**6, largest_gist(CONTENT_CHARACTERS, UPPER_HIGHLIGHTS), "f" * 32
            ),
            MAX_SUMMARY_BYTES,
        ),
    ],
    ids=["episode", "agent"],
)
def test_the_largest_summary_fits_into_one_event(summary: Summary, most: int) -> None:
    size = len(canonical_json(as_payload(summary)))
    assert most - 16 * 1024 <= size <= most


SMALL = SessionSummary(
    "session-1",
    1,
    Gist(
        "ana: all is well",
        (Highlight("said", "ana: all is well", (event_id(1),), 5, 1, "ana"),),
        (Participant("ana", "ana", 1, 1, 0),),
        (ToolUse("search", 2, 1),),
        (KeyEntity("0" * 32, "Oslo", "concept", 50),),
        1,
        5,
        0,
        1,
        1,
    ),
    "0" * 32,
)

BROKEN: dict[str, tuple[Any, str]] = {
    "payload.scope": ("week", "one of episode, session, agent"),
    "payload.content": (None, "required"),
    "payload.session_id": ("a\x00", "no control characters or lone surrogates"),
    "payload.episode_count": (0, "a whole number from 1 to 9,007,199,254,740,991"),
    "payload.failed_count": (True, "a whole number from 0 to 9,007,199,254,740,991"),
    "payload.ended_at_ms": (0, "not before started_at_ms"),
    "payload.digest": ("0" * 31, "32 hexadecimal digits"),
    "payload.note": ("more", "unknown field"),
    "payload.highlights[0].kind": ("rumour", f"one of {', '.join(KINDS)}"),
    "payload.highlights[0].text": ("x" * 201, "1 to 200 characters"),
    "payload.highlights[0].event_ids": ([], "a list of 1 to 20 event ids"),
    "payload.highlights[0].event_ids[1]": ([event_id(1), "x"], "a UUID of 36 characters"),
    "payload.highlights[0].importance": (11, "a whole number from 1 to 10"),
    "payload.participants[0].agent_id": ("", "1 to 512 characters"),
    "payload.participants[0].age": (3, "unknown field"),
    "payload.tools[0].calls": (1.5, "a whole number from 0 to 9,007,199,254,740,991"),
    "payload.tools": ([{}] * 11, "a list of 0 to 10 objects"),
    "payload.entities[0].entity_id": ("oslo", "an entity id, entity:<hash>"),
    "payload.entities[0].type": (
        "city",
        "one of agent, tool, user, service, resource, concept",
    ),
}


def broken(path: str, value: Any) -> dict[str, Any]:
    payload = as_payload(SMALL)
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
        from_payload(broken(path, value))
    assert refused.value.errors == ((path, rule),)


@pytest.mark.parametrize("payload", [None, [], "summary"])
def test_what_is_no_object_is_refused(payload: Any) -> None:
    with pytest.raises(InvalidEvent, match="payload: a JSON object"):
        from_payload(payload)
