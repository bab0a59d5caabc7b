"""Names in normal form, ids that never change, and what an event mentions."""

from __future__ import annotations

import unicodedata
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from enrichment.entities import PATTERN_TYPES, Named, mentions, named_values
from enrichment.event_kinds import EventKind
from enrichment.facts import Mention
from enrichment.names import (
    LABELS,
    MAX_MENTIONS,
    MAX_NAME_BYTES,
    SUBTYPES,
    canonical_name,
    entity_id,
)
from enrichment.patterns import RECOGNISERS
from enrichment.ports import Analysis, EventText
from enrichment.text import event_text
from projections.events import Event
from tests import strategies
from tests.factories import event
from tests.fakes.analyses import analysis_of


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("  Alice\t Smith\n", "alice smith"),
        ("ALICE", "alice"),
        ("ali\u200bce\u202e", "alice"),
        ("Ａｌｉｃｅ", "alice"),  # noqa: RUF001
        ("ﬁle", "file"),
        ("Cafe\u0301", "café"),
        ("e\u200e\u0301", "é"),
        ("STRASSE", "strasse"),
        ("straße", "straße"),
        ("İstanbul", "i̇stanbul"),
        ("a\u00a0b\u3000c\u2028d", "a b c d"),
        ("❤\ufe0f", "❤"),
        ("\x00\x07\u2066", ""),
        ("\ud800abc", "abc"),
        ("invoice-2024-001", "invoice-2024-001"),
    ],
)
def test_a_name_has_one_normal_form(name: str, expected: str) -> None:
    assert canonical_name(name) == expected


def test_near_names_stay_apart() -> None:
    names = ["GPT-4", "gpt-4o", "invoice-2024-001", "invoice-2024-002", "alice", "аlice"]  # noqa: RUF001
    assert len({canonical_name(name) for name in names}) == len(names)


hostile_names = st.text(max_size=40) | st.text(
    st.characters(min_codepoint=0x80, max_codepoint=0x1FFF)
    | st.sampled_from("\u0345\u0301\u0327\u200e\u200d\ufe0f\ud800\u1e9e\u03a3\u0130ﷺ \u00a0\x1f"),
    max_size=300,
)


@settings(deadline=None)  # machines that run tests are shared
@given(hostile_names)
@example("\u1fb3\u0345" * 200)
@example("ﷺ" * 200)
def test_a_normal_form_is_its_own_and_clean_and_bounded(name: str) -> None:
    normal = canonical_name(name)
    forbidden = [c for c in normal if unicodedata.category(c) in ("Cc", "Cf", "Cs")]
    assert (canonical_name(normal), forbidden) == (normal, [])
    assert (normal, len(normal.encode()) <= MAX_NAME_BYTES) == (" ".join(normal.split()), True)
    assert unicodedata.normalize("NFKC", normal) == normal


def test_ids_never_change() -> None:
    assert [
        entity_id("default", "alice", "agent"),
        entity_id("acme", "café", "concept"),
    ] == ["fbe47eb10e649fc858c0defb9fdec7a3", "845e341aec67fcf0d02ef4e92211730e"]


def test_no_two_entities_are_joined_to_one_id() -> None:
    ids = {
        entity_id("a", "b", "user"),
        entity_id("a", "b", "agent"),
        entity_id("a-b", "", "user"),
        entity_id("a", "user\x1fb", "user"),
        entity_id("a", "", "user\x1fb"[:4]),
    }
    assert len(ids) == 5


def of(made: Event, analysis: Analysis | None = None) -> list[tuple[str, str, str]]:
    found = mentions(made, event_text(made), analysis or Analysis())
    return [(m.name, m.entity_type + (f":{m.subtype}" if m.subtype else ""), m.role) for m in found]


def said(content: str, **fields: Any) -> Event:
    return event(payload={"role": "user", "content": content}, **{"agent_id": "ana", **fields})


def test_the_envelope_names_agent_tool_and_user() -> None:
    made = event(agent_id="payment-agent", tool_name="ls", user_id="cust-ana")
    assert of(made) == [
        ("payment-agent", "agent", "subject"),
        ("ls", "tool", "tool"),
        ("cust-ana", "user", "participant"),
    ]


def test_the_role_of_the_user_is_no_agent_when_the_user_is_known() -> None:
    made = said("I have a reservation.", agent_id="user", user_id="mia_li_3668")
    assert of(made) == [("mia_li_3668", "user", "subject")]


def test_the_role_of_the_user_stands_for_one_that_is_not_known() -> None:
    assert of(said("I have a reservation.", agent_id="user")) == [("user", "agent", "subject")]


def test_keys_of_arguments_say_what_values_are() -> None:
    made = event(
        agent_id="assistant",
        tool_name="update_reservation_flights",
        payload={
            "arguments": {
                "user_id": "mia_li_3668",
                "reservation_id": "JGFMMX",
                "cabin": "economy",
                "payment_id": "credit_card_2929732",
                "flights": [{"flight_number": "HAT028", "date": "2024-05-21"}],
            }
        },
    )
    assert of(made)[2:] == [
        ("credit_card_2929732", "resource:credit_card", "target"),
        ("JGFMMX", "resource:reservation", "target"),
        ("mia_li_3668", "user", "target"),
        ("HAT028", "resource:flight", "target"),
        ("2024-05-21", "concept:date", "object"),
    ]


def test_a_code_in_a_note_is_not_what_a_call_acts_on() -> None:
    made = event(
        agent_id="assistant",
        tool_name="close_ticket",
        payload={"arguments": {"ticket": "T-301", "note": "goes on as T-303"}},
    )
    roles = {name: role for name, _, role in of(made)}
    assert (roles["T-301"], roles["T-303"]) == ("target", "object")


def test_a_result_names_people_places_and_what_belongs_to_them() -> None:
    content = (
        '{"name": {"first_name": "Mia", "last_name": "Li"}, "address": {"city": "Austin"},'
        ' "email": "mia.li3818@example.com", "reservations": ["NO6JO3", "AIXC49"]}'
    )
    made = event(
        agent_id="tool",
        tool_name="get_user_details",
        event_type="tool.result",
        payload={"role": "tool", "name": "get_user_details", "content": content},
    )
    assert of(made) == [
        ("get_user_details", "tool", "tool"),
        ("mia.li3818@example.com", "resource:email", "object"),
        ("NO6JO3", "resource:reservation", "object"),
        ("AIXC49", "resource:reservation", "object"),
        ("Mia Li", "concept:person", "object"),
        ("Austin", "concept:location", "object"),
    ]


@pytest.mark.parametrize(
    "payload",
    [
        {"order": "all since 09:03", "status_code": "ok", "key": "name", "items": 3},
        {"trace_id": "abc-123", "tool_call_id": "call_12345678", "session_id": "s-12345"},
        {"owner": "payments", "id": 7, "description": "word " * 60},
    ],
)
def test_words_and_plumbing_in_fields_are_no_entities(payload: Any) -> None:
    found = of(event(payload={"arguments": payload}, tool_name="run"))
    assert found == [("agent-1", "agent", "subject"), ("run", "tool", "tool")]


@pytest.mark.parametrize(
    "key", ["request_id", "requestId", "X-Request-Id", "x-amzn-request-id", "http_request_id"]
)
def test_the_request_of_a_transport_is_no_entity(key: str) -> None:
    assert list(named_values({key: "REQ-77a1"})) == []


@pytest.mark.parametrize("noun", ["pull_request", "merge_request", "leave_request"])
def test_a_request_that_somebody_makes_is_an_entity(noun: str) -> None:
    assert list(named_values({f"{noun}_id": "PR-77"})) == [Named("PR-77", "resource", noun, True)]


def test_identifiers_in_the_text_are_resources_and_services() -> None:
    made = said("Send invoice-2024-001 to mia@example.com from 10.0.0.12 at 15:00.")
    assert of(made)[1:] == [
        ("invoice-2024-001", "resource:id", "object"),
        ("mia@example.com", "resource:email", "object"),
        ("10.0.0.12", "service:ip", "object"),
    ]


def test_content_from_elsewhere_takes_the_place_of_the_payload() -> None:
    made = event(tool_name="get_order", event_type="tool.result", payload_ref="s3://bucket/key")
    content = {"order_id": "ORD_123"}
    found = mentions(made, event_text(made, content), Analysis(), content)
    assert found[-1] == Mention("ORD_123", "ord_123", "resource", "order", "object", True)


def test_an_id_that_is_called_a_user_id_is_a_user() -> None:
    assert of(said("My user ID is mia_li_3668."))[1:] == [("mia_li_3668", "user", "object")]


def test_the_user_of_the_event_is_recognised_in_its_text() -> None:
    made = said("It is mia_li_3668.", user_id="mia_li_3668")
    assert of(made)[1:] == [("mia_li_3668", "user", "participant")]


def test_who_is_spoken_to_is_a_person_without_any_model() -> None:
    assert of(said("Hey Mel! Good to see you!"))[1:] == [("Mel", "concept:person", "participant")]


def test_a_speaker_who_names_herself_stays_the_agent() -> None:
    text = "I am Caroline."
    analysis = analysis_of(text, entities=(("Caroline", "PERSON"),))
    made = said(text, agent_id="Caroline")
    assert of(made, analysis) == [("Caroline", "agent", "subject")]


def test_numbers_and_times_of_the_recogniser_are_dropped() -> None:
    text = "Two of us met ten percent of London yesterday evening."
    labels = (("Two", "CARDINAL"), ("ten percent", "PERCENT"), ("London", "GPE"),
              ("yesterday evening", "TIME"))  # fmt: skip
    found = of(said(text), analysis_of(text, entities=labels))
    assert found[1:] == [("London", "concept:location", "object")]


def test_a_single_word_must_be_a_name_to_the_tagger_too() -> None:
    text = "Nature calms Spanish Anna."
    tags = "Nature/NOUN calms/VERB Spanish/ADJ Anna/PROPN ./PUNCT"
    labels = (("Nature", "PERSON"), ("Spanish", "NORP"), ("Anna", "PERSON"))
    found = of(said(text), analysis_of(text, tags, labels))
    assert [name for name, _, _ in found[1:]] == ["Spanish", "Anna"]


def test_names_are_trimmed_of_greetings_and_articles() -> None:
    text = "I saw the British Museum's maps with hey Anna."
    labels = (("the British Museum's", "ORG"), ("hey Anna", "PERSON"))
    found = of(said(text), analysis_of(text, entities=labels))
    assert [name for name, _, _ in found[1:]] == ["Anna", "British Museum"]


def test_informative_noun_phrases_are_concepts_in_the_singular() -> None:
    text = "We had a great time at an amazing pottery class near two adoption agencies."
    tags = (
        "[ We/PRON ] had/VERB [ a/DET great/ADJ time/NOUN ] at/ADP [ an/DET amazing/ADJ "
        "pottery/NOUN class/NOUN ] near/ADP [ two/NUM adoption/NOUN agencies/NOUN ] ./PUNCT"
    )
    found = of(said(text), analysis_of(text, tags))
    assert found[1:] == [
        ("pottery class", "concept", "object"),
        ("adoption agency", "concept", "object"),
    ]


@pytest.mark.parametrize(
    ("text", "tags"),
    [
        ("a wild ride", "[ a/DET wild/ADJ ride/NOUN ]"),
        ("this whole thing", "[ this/DET whole/ADJ thing/NOUN ]"),
        ("your user ID", "[ your/PRON user/NOUN ID/PROPN ]"),
        ("Freelancing helps", "[ Freelancing/PROPN ] helps/VERB"),
        ("- Flight Date: soon", "-/PUNCT [ Flight/PROPN Date/PROPN ] :/PUNCT soon/ADV"),
        ("Total **Cost**: low", "Total/ADJ [ Cost/PROPN ] :/PUNCT low/ADJ"),
        ("so lenient agent", "[ so/ADV lenient/ADJ agent/NOUN ]"),
    ],
)
def test_what_names_nothing_is_no_concept(text: str, tags: str) -> None:
    assert of(said(text), analysis_of(text, tags)) == [("ana", "agent", "subject")]


def test_field_values_are_not_read_as_language() -> None:
    made = event(payload={"arguments": {"cabin": "Basic Economy"}}, tool_name="run")
    analysis = analysis_of("cabin: Basic Economy", entities=(("Basic Economy", "ORG"),))
    assert len(of(made, analysis)) == 2


def test_amounts_and_dates_only_fill_what_is_left() -> None:
    codes = " ".join(f"HAT{n}" for n in range(101, 112))
    found = mentions(made := said(f"$84 on 2024-05-20 for {codes}"), event_text(made), Analysis())
    assert (len(found), {m.subtype for m in found}) == (MAX_MENTIONS, {None, "code"})


def test_the_strongest_role_wins_and_a_name_is_mentioned_once() -> None:
    made = event(
        agent_id="assistant",
        user_id="mia_li_3668",
        payload={"arguments": {"user_id": "MIA_LI_3668"}},
        tool_name="get_user",
    )
    found = mentions(made, event_text(made), Analysis())
    assert found[-1] == Mention("mia_li_3668", "mia_li_3668", "user", None, "target", True)


def test_names_with_digits_and_identifiers_are_exact() -> None:
    text = "FIFA 23 at London, mail anna@example.com"
    labels = (("FIFA 23", "PRODUCT"), ("London", "GPE"))
    made = said(text)
    found = mentions(made, event_text(made), analysis_of(text, entities=labels))
    assert {m.name: m.exact for m in found} == {
        "ana": False, "anna@example.com": True, "FIFA 23": True, "London": False,
    }  # fmt: skip


def test_short_names_in_the_text_are_left_out() -> None:
    text = "We flew to LA."
    assert len(of(said(text), analysis_of(text, entities=(("LA", "GPE"),)))) == 1


@settings(deadline=None)  # machines that run tests are shared
@given(strategies.events(), hostile_names)
def test_any_event_has_bounded_mentions_in_normal_form(made: Event, content: str) -> None:
    for one in (made, made._replace(payload={"arguments": {"user_id": content, "name": content}})):
        text = event_text(one)
        found = mentions(one, text, Analysis())
        assert (len(found) <= MAX_MENTIONS, found) == (True, mentions(one, text, Analysis()))
        assert [m.canonical_name for m in found] == [canonical_name(m.name) for m in found]
        assert len({(m.canonical_name, m.entity_type) for m in found}) == len(found)


@settings(deadline=None)  # machines that run tests are shared
@given(st.text("aB1-: \n.,'", max_size=60), st.randoms(use_true_random=False))
def test_any_analysis_is_taken(text: str, choice: Any) -> None:
    kinds = ("NOUN", "PROPN", "ADJ", "VERB", "ADV")
    tags = " ".join(f"{word}/{choice.choice(kinds)}" for word in text.split())
    labels = tuple((word, choice.choice([*LABELS, "DATE"])) for word in text.split())
    analysis = analysis_of(text, f"[ {tags} ]" if tags else "", labels)
    made = said(text)
    assert len(mentions(made, EventText(EventKind.MESSAGE, text, "ana"), analysis)) <= MAX_MENTIONS


def test_every_label_of_the_patterns_has_a_type_but_the_time_of_day() -> None:
    assert {row.label for row in RECOGNISERS} - PATTERN_TYPES.keys() == {"time"}


def test_there_are_twelve_types_for_what_a_language_model_extracts() -> None:
    assert len(SUBTYPES) == 12
