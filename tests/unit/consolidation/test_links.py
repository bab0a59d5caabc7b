"""Sessions that belong together: rare entities and alike failures."""

from __future__ import annotations

from math import exp, log
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.actions import Failure
from consolidation.causes import Failing
from consolidation.links import (
    RareEntity,
    SessionTraits,
    rare_entities,
    session_links,
    session_profile,
    session_traits,
)
from consolidation.payloads import (
    EVIDENCE_CHARACTERS,
    MAX_EVIDENCE,
    MAX_LINKS,
    LinksDecided,
    SessionLink,
    parse_consolidated,
)
from projections.errors import InvalidEvent
from tests.factories import START_MS, event_id
from tests.source_factories import mentioned, returned, source_event

NO_SEATS = Failure("book_flight", "error: no seats on <value>", event_id(1))
SOLVED = NO_SEATS._replace(resolution_event_id=event_id(9))


def rare(name: str, sessions: int = 2) -> RareEntity:
    return RareEntity(name.lower(), name, sessions)


def traits(number: int, *shown: RareEntity | Failure, **fields: Any) -> SessionTraits:
    """Session of that number, which ended so many milliseconds after START_MS."""
    made = SessionTraits(
        "default",
        f"session-{number}",
        START_MS + number,
        entities=tuple(one for one in shown if isinstance(one, RareEntity)),
        failures=tuple(one for one in shown if isinstance(one, Failure)),
    )
    return made._replace(**fields)


def linked(session: SessionTraits, *candidates: SessionTraits) -> list[tuple[str, str]]:
    return [(link.session_id, link.reason) for link in session_links(session, candidates)]


# -- rare entities ---------------------------------------------------------------------------------


def test_rare_is_what_few_sessions_know() -> None:
    entities = [mentioned(name) for name in ("GV1N64", "Seattle", "HAT136", "unheard")]
    counts = dict(zip((one.entity_id for one in entities[:3]), (2, 6, 5), strict=True))
    profile = session_profile([source_event(1, mentions=entities)])
    found = rare_entities(profile.entities, counts)
    assert {(one.name, one.sessions) for one in found} == {("GV1N64", 2), ("HAT136", 5)}


@pytest.mark.parametrize(
    ("fields", "links"),
    [
        ({"entity_type": "agent"}, False),
        ({"entity_type": "tool"}, False),
        ({"entity_type": "user"}, False),
        ({"entity_type": "user", "name": "Noah_Kim"}, True),
        ({"entity_type": "concept", "subtype": "value"}, False),
        ({"entity_type": "concept", "subtype": "amount"}, False),
        ({"entity_type": "concept", "subtype": "date"}, False),
        ({"entity_type": "concept", "subtype": "person"}, True),
        ({"entity_type": "resource", "subtype": "code"}, True),
    ],
)
def test_what_all_sessions_of_an_agent_share_never_links(
    fields: dict[str, Any], links: bool
) -> None:
    """The session is of user mia_li."""
    one = mentioned(**{"name": "Mia_Li", **fields})
    events = [source_event(1, mentions=[one]), source_event(2, user_id="mia_li")]
    assert len(rare_entities(session_profile(events).entities, {one.entity_id: 2})) == links


def test_traits_are_of_all_events_of_a_session() -> None:
    known = mentioned("GV1N64")
    events = [
        returned(2, "book_flight", error="Error: no seats on HAT136", user_id="mia_li"),
        source_event(1, mentions=[known]),
    ]
    assert session_traits("acme", session_profile(events), {known.entity_id: 3}) == SessionTraits(
        "acme",
        "session-1",
        START_MS + 2,
        frozenset(["mia_li"]),
        (RareEntity(known.entity_id, "GV1N64", 3),),
        (NO_SEATS._replace(event_id=event_id(2)),),
        (Failing(event_id(2), START_MS + 2, "trace-1", "error: no seats on hat136"),),
        rarity={"gv1n64": 1.0, "mia_li": 0.0},
    )


# -- links -----------------------------------------------------------------------------------------


def test_sessions_that_share_rare_entities_are_linked_by_adamic_and_adar() -> None:
    mine = traits(1, rare("HAT136", 4), rare("GV1N64"), rare("Ada"))
    other = traits(2, rare("GV1N64"), rare("HAT136", 4))
    weight = 1 / log(4) + 1 / log(2)
    assert session_links(mine, [other]) == [
        SessionLink(
            "session-2",
            "shared_entities",
            ("GV1N64", "HAT136"),
            round(1 - exp(-weight / 2), 4),
        )
    ]


def test_the_rarer_the_closer_and_the_more_the_closer() -> None:
    mine = traits(1, rare("a"), rare("b"), rare("c", 5))
    candidates = traits(2, rare("c", 5)), traits(3, rare("a"), rare("b")), traits(4, rare("a"))
    assert [one for one, _ in linked(mine, *candidates)] == ["session-3", "session-4", "session-2"]


def test_an_entity_counted_before_the_other_session_came_still_links() -> None:
    assert linked(traits(1, rare("a", 1)), traits(2, rare("a", 1))) == [
        ("session-2", "shared_entities")
    ]


def test_an_equal_failure_is_linked_with_what_resolved_it() -> None:
    assert session_links(traits(1, NO_SEATS), [traits(2, SOLVED)]) == [
        SessionLink(
            "session-2",
            "similar_failure",
            ("book_flight: error: no seats on <value>",),
            1.0,
            event_id(9),
        )
    ]


@pytest.mark.parametrize(
    ("other", "score"),
    [
        (NO_SEATS, 0.8),
        (SOLVED._replace(signature="error: no seats left on <value>"), 0.6667),
        (SOLVED._replace(signature="error: payment declined"), None),
        (SOLVED._replace(tool="list_flights"), None),
    ],
)
def test_failures_are_alike_by_their_words_and_tool(other: Failure, score: float | None) -> None:
    links = session_links(
        traits(1, NO_SEATS._replace(signature="error: no seats")),
        [traits(2, other._replace(signature=other.signature.replace(" on <value>", "")))],
    )
    assert [link.score for link in links] == ([] if score is None else [score])


def test_the_most_alike_of_many_failures_counts() -> None:
    mine = traits(1, NO_SEATS, Failure("pay", "card declined", event_id(2)))
    other = traits(2, NO_SEATS, Failure("pay", "card declined", event_id(3), event_id(4)))
    assert [(one.evidence, one.resolution_event_id) for one in session_links(mine, [other])] == [
        (("pay: card declined",), event_id(4))
    ]


def test_a_session_may_be_linked_for_both_reasons() -> None:
    assert linked(traits(1, rare("a"), NO_SEATS), traits(2, rare("a"), SOLVED)) == [
        ("session-2", "similar_failure"),
        ("session-2", "shared_entities"),
    ]


@pytest.mark.parametrize(
    ("other", "seen"),
    [
        (traits(2, SOLVED), True),
        (traits(2, SOLVED, tenant="acme"), False),
        (traits(1, SOLVED), False),
        (traits(2, SOLVED, user_ids=frozenset(["mia"])), True),
        (traits(2, SOLVED, user_ids=frozenset(["noah"])), False),
        (traits(2, SOLVED, user_ids=frozenset(["mia", "noah"])), False),
    ],
)
def test_only_sessions_that_the_reader_may_see_are_linked(other: SessionTraits, seen: bool) -> None:
    mine = traits(1, NO_SEATS, user_ids=frozenset(["mia"]))
    assert bool(session_links(mine, [other])) == seen


def test_sessions_without_a_user_show_nothing_of_one() -> None:
    assert linked(traits(1, NO_SEATS), traits(2, SOLVED, user_ids=frozenset(["mia"]))) == []


def test_resolved_failures_come_first_then_the_latest() -> None:
    candidates = [traits(2, SOLVED), traits(3, NO_SEATS), traits(4, SOLVED)]
    assert [one for one, _ in linked(traits(1, NO_SEATS), *candidates)] == [
        "session-4",
        "session-2",
        "session-3",
    ]


def test_of_equal_scores_the_resolved_one_comes_first() -> None:
    mine = NO_SEATS._replace(signature="window seats sold twice")
    nearly = SOLVED._replace(signature="window seats sold twice today")
    links = session_links(traits(1, mine), [traits(3, mine), traits(2, nearly)])
    assert [(one.session_id, one.score) for one in links] == [
        ("session-2", 0.8),
        ("session-3", 0.8),
    ]


@pytest.mark.parametrize(
    ("sharing", "failing", "expected"),
    [(20, 20, (5, 5)), (20, 2, (8, 2)), (3, 20, (3, 7)), (2, 3, (2, 3)), (0, 20, (0, 10))],
)
def test_links_are_capped_and_neither_reason_crowds_out_the_other(
    sharing: int, failing: int, expected: tuple[int, int]
) -> None:
    candidates = [traits(n, rare("a")) for n in range(2, 2 + sharing)]
    candidates += [traits(n, SOLVED) for n in range(100, 100 + failing)]
    links = session_links(traits(1, rare("a"), NO_SEATS), candidates)
    reasons = [link.reason for link in links]
    assert (reasons.count("shared_entities"), reasons.count("similar_failure")) == expected


many = st.lists(
    st.builds(
        lambda number, names, failures: traits(number, *map(rare, names), *failures),
        st.integers(2, 30),
        st.sets(st.sampled_from("abcd")).map(sorted),
        st.lists(st.sampled_from([NO_SEATS, SOLVED._replace(tool="pay"), SOLVED]), max_size=2),
    ),
    max_size=25,
    unique_by=lambda one: one.session_id,
)


@given(many, st.randoms(use_true_random=False))
def test_links_do_not_depend_on_the_order_of_candidates(candidates, random) -> None:  # type: ignore[no-untyped-def]  # Hypothesis's Random
    mine = traits(1, rare("a"), rare("b", 4), NO_SEATS)
    links = session_links(mine, candidates)
    assert session_links(mine, random.sample(candidates, len(candidates))) == links
    assert len(links) <= MAX_LINKS
    assert all(0 < link.score <= 1 for link in links)
    assert [link.score for link in links] == sorted((one.score for one in links), reverse=True)


# -- payloads --------------------------------------------------------------------------------------


def test_links_come_back_from_a_payload_below_128_kib() -> None:
    longest = "\u20ac" * 512
    evidence = tuple(str(n) + "\u20ac" * (EVIDENCE_CHARACTERS - 1) for n in range(MAX_EVIDENCE))
    links = tuple(
        SessionLink(f"{n}" + longest[1:], "similar_failure", evidence, 0.0001 + n / 10, event_id(n))
        for n in range(MAX_LINKS)
    )
    decided = LinksDecided(session_id=longest, links=links)
    data = orjson.dumps(decided.payload())
    assert len(data) <= 128 * 1024
    assert parse_consolidated(orjson.loads(data)) == decided


def test_a_session_may_have_no_more_links() -> None:
    decided = LinksDecided(session_id="session-1", links=())
    assert parse_consolidated(decided.payload()) == decided


LINK = {"session_id": "s2", "reason": "shared_entities", "evidence": ["Ada"], "score": 0.5}


@pytest.mark.parametrize(
    ("fields", "field", "rule"),
    [
        ({"session_id": None}, "session_id", "a string"),
        ({"session_id": "s1"}, "session_id", "another session"),
        ({"reason": "hunch"}, "reason", "one of 'shared_entities', 'similar_failure' or 'cause'"),
        ({"evidence": []}, "evidence", "at least 1 items"),
        ({"evidence": ["x"] * 6}, "evidence", "at most 5 items"),
        ({"evidence": [""]}, "evidence[0]", "at least 1 characters"),
        ({"evidence": ["x" * 241]}, "evidence[0]", "at most 240 characters"),
        ({"evidence": "Ada"}, "evidence", "a list"),
        ({"score": 0}, "score", "a number above 0.0"),
        ({"score": 1.1}, "score", "a number up to 1.0"),
        ({"score": True}, "score", "a number"),
        ({"resolution_event_id": "x"}, "resolution_event_id", "an event id: a UUID in lower case"),
        ({"why": 1}, "why", "unknown field"),
    ],
)
def test_a_broken_link_is_named_with_its_rule(
    fields: dict[str, Any], field: str, rule: str
) -> None:
    payload = {"kind": "links", "session_id": "s1", "links": [{**LINK, **fields}]}
    with pytest.raises(InvalidEvent) as caught:
        parse_consolidated(payload)
    assert caught.value.errors == ((f"payload.links[0].{field}", rule),)


@pytest.mark.parametrize(
    ("payload", "fields"),
    [
        (None, ["payload"]),
        ({}, ["payload.kind"]),
        ({"kind": "links"}, ["payload.session_id", "payload.links"]),
        ({"kind": "links", "session_id": "s1", "links": [LINK] * 11}, ["payload.links"]),
        ({"kind": "links", "session_id": "s1", "links": [], "more": 1}, ["payload.more"]),
    ],
)
def test_a_broken_payload_is_named_by_its_fields(payload: Any, fields: list[str]) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_consolidated(payload)
    assert [field for field, _ in caught.value.errors] == fields
