"""What a language model adds to an event: within the limits, and never instead of the rules."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.derived import Derived
from enrichment.event_kinds import EventKind
from enrichment.model_answers import MAX_CONFIDENCE, derived_with_model, questions
from enrichment.names import MAX_FACTS, MAX_MENTIONS
from enrichment.ports import Analysis
from enrichment.prompts import TASKS, Task, validated
from enrichment.stage import derive_event, derive_statement
from enrichment.text import event_text
from projections.identity import Position
from tests.factories import START_MS, event

POSITION = Position(START_MS, 1)
EXTRACTION: tuple[Task, ...] = ("extraction",)
LONG = "Caroline moved to Berlin in May and works at Acme Corp. now. " * 6


def derived(payload: Any, **fields: Any) -> Derived:
    made = event(1, payload=payload, **fields)
    return derive_event(POSITION, made, event_text(made), Analysis())


def message(content: str, who: str = "user", **fields: Any) -> Derived:
    return derived({"role": "user", "content": content}, **{"agent_id": who, **fields})


def with_extraction(one: Derived, entities: list[Any], edges: list[Any]) -> Derived:
    question = questions(one, EXTRACTION)["extraction"]
    answer = validated("extraction", question, {"entities": entities, "edges": edges})
    assert answer is not None
    return derived_with_model(one, {"extraction": answer})


# what is asked


def test_a_long_message_is_asked_about_twice_and_a_short_one_once() -> None:
    assert list(questions(message(LONG), TASKS)) == ["summary", "extraction"]
    assert list(questions(message("Caroline lives in Berlin."), TASKS)) == ["extraction"]
    assert questions(message("ok, thanks"), TASKS) == {}
    assert questions(message(LONG), ()) == {}


@pytest.mark.parametrize(
    "payload",
    [
        None,
        {"name": "get_order", "arguments": {"note": LONG}},
        {"role": "tool", "content": LONG},
        {"result": LONG},
        {"error": LONG},
        {"password": LONG},
        [LONG, LONG],
    ],
)
def test_only_conversation_is_sent(payload: Any) -> None:
    one = derived(payload)
    assert one.text.kind is not EventKind.MESSAGE or not one.text.spoken
    assert questions(one, TASKS) == {}


def test_code_and_data_inside_a_message_are_not_sent() -> None:
    text = f"Caroline says this is broken:\n```python\nsecret_token = 1\n```\n{LONG}"
    asked = questions(message(text), TASKS)
    assert "secret_token" not in repr(asked)
    assert asked["extraction"]["text"].startswith("Caroline says this is broken:")
    beside = {"text": LONG, "password": "hunter2", "nested": {"api_key": "sk 123"}}
    asked = questions(derived(beside), TASKS)
    assert "hunter2" not in repr(asked)
    assert "sk 123" not in repr(asked)
    assert questions(message("token: abc def\nCaroline lives in Berlin."), EXTRACTION) == {
        "extraction": {"text": "Caroline lives in Berlin.", "speaker": None}
    }
    assert questions(message('{"config": {"a": "some words in a value"}}'), TASKS) == {}
    assert questions(message("[{" + LONG), TASKS) == {}


def test_instructions_are_no_conversation() -> None:
    assert questions(message(LONG, "system"), TASKS) == {}


def test_a_statement_is_not_asked_about() -> None:
    fact = {"source": {"name": "Ada"}, "relation": "works_at", "target": "Acme"}
    stated = event(1, event_type="memory.fact_asserted", payload=fact)
    assert questions(derive_statement(POSITION, stated), TASKS) == {}


@pytest.mark.parametrize(
    ("who", "user_id", "speaker"),
    [
        ("user", "mia_li_3668", "mia_li_3668"),
        ("user", None, None),
        ("assistant", "mia_li_3668", "mia_li_3668"),  # the role says who speaks
        ("Melanie", "mia_li_3668", "Melanie"),
        ("Melanie", None, "Melanie"),
    ],
)
def test_the_speaker_is_who_says_i(who: str, user_id: str | None, speaker: str | None) -> None:
    asked = questions(message(LONG, who, user_id=user_id), EXTRACTION)
    assert asked["extraction"]["speaker"] == speaker


# what is taken in


def test_without_answers_nothing_changes() -> None:
    one = message(LONG)
    assert derived_with_model(one, {}) == one


def test_a_summary_takes_the_place_of_the_extract() -> None:
    one = derived_with_model(message(LONG), {"summary": {"summary": "Caroline has moved."}})
    assert one.summary == "user: Caroline has moved."
    long = derived_with_model(message(LONG), {"summary": {"summary": "word " * 39}})
    assert len(long.summary) <= 200


def test_names_and_facts_are_added_with_our_types() -> None:
    before = message("Caroline works at Acme Corp. in Berlin.", "Melanie", user_id="u1")
    one = with_extraction(
        before,
        [
            {"name": "Caroline", "type": "person"},
            {"name": "Acme Corp.", "type": "organization"},
            {"name": "Berlin", "type": "location"},
        ],
        [
            {"source": "Caroline", "target": "Acme Corp.", "relation": "works_at"},
            {
                "source": "Melanie",
                "target": "Caroline",
                "relation": "knows",
                "fact": "Melanie knows Caroline.",
                "confidence": 0.6,
            },
        ],
    )
    found = {m.canonical_name: (m.entity_type, m.subtype, m.role) for m in one.mentions}
    assert found["caroline"] == ("concept", "person", "participant")
    assert found["acme corp."] == ("concept", "organization", "object")
    job, friend = one.assertions[-2:]
    assert (job.relation, job.fact, job.functional, job.status, job.source_kind) == (
        "works_at",
        "Caroline works at Acme Corp.",
        True,
        "staged",
        "conversation",
    )
    assert (job.confidence, friend.confidence) == (7_000, 6_000)
    assert (friend.source.canonical_name, friend.fact) == ("u1", "Melanie knows Caroline.")
    assert (job.valid_from_ms, job.valid_to_ms, job.user_id) == (
        before.event.occurred_at_ms,
        None,
        "u1",
    )
    assert [fact.ordinal for fact in one.assertions] == list(range(len(one.assertions)))


def test_the_user_who_speaks_is_the_user_of_the_envelope() -> None:
    one = with_extraction(
        message("I moved to Berlin last year.", user_id="mia"),
        [{"name": "Berlin", "type": "location"}],
        [{"source": "mia", "target": "Berlin", "relation": "lives_in", "confidence": 1}],
    )
    fact = one.assertions[-1]
    assert (fact.source.entity_type, fact.source.canonical_name) == ("user", "mia")
    assert fact.confidence == MAX_CONFIDENCE


def test_a_name_keeps_the_type_that_the_envelope_gives_it() -> None:
    one = with_extraction(
        message("Ask agent-1 about that, please.", agent_id="agent-1"),
        [{"name": "agent-1", "type": "person"}],
        [],
    )
    assert [m.entity_type for m in one.mentions if m.canonical_name == "agent-1"] == ["agent"]


def test_a_name_with_a_digit_is_exact() -> None:
    one = with_extraction(message("We tried GPT-4 on Monday."), [{"name": "GPT-4"}], [])
    assert [m.exact for m in one.mentions if m.canonical_name == "gpt-4"] == [True]


def test_what_the_rules_found_stays_and_the_limits_hold() -> None:
    identifiers = " ".join(f"user{n}@example.com" for n in range(8))
    names = [f"Firm {chr(65 + n)}x" for n in range(10)]
    before = message(f"{identifiers} wrote to {', '.join(names)}")
    one = with_extraction(
        before,
        [{"name": name, "type": "organization"} for name in names],
        [
            {"source": a, "target": b, "relation": "knows"}
            for a in names[:6]
            for b in names[:6]
            if a != b
        ],
    )
    strong = [m for m in before.mentions if m.exact or m.entity_type != "concept"]
    assert [m for m in one.mentions if m in strong] == strong
    assert len(one.mentions) == MAX_MENTIONS
    assert len(one.assertions) == MAX_FACTS


def test_a_fact_that_the_rules_have_is_not_doubled() -> None:
    entities = [{"name": "Caroline", "type": "person"}, {"name": "Acme Corp.", "type": "person"}]
    edge = {"source": "Caroline", "target": "Acme Corp.", "relation": "works_at"}
    once = with_extraction(message("Caroline works at Acme Corp. now."), entities, [edge])
    again = with_extraction(once, entities, [{**edge, "confidence": 0.1}])
    assert again.assertions == once.assertions
    assert set(again.mentions) == set(once.mentions)


PROTECTED: list[tuple[str, str, str]] = [
    ("has_diagnosis", "diabetes", ""),
    ("practises", "Islam", "Caroline is a Muslim"),
    ("prays_at", "St Mary", "Caroline prays at the church of St Mary"),
    ("has_orientation", "lesbian", ""),
    ("votes_for", "Greens", "Caroline votes for them at every election"),
    ("has_origin", "Roma", "Caroline has Roma ancestors"),
]


@pytest.mark.parametrize(("relation", "target", "fact"), PROTECTED)
@pytest.mark.parametrize("who", ["person", "user"])
def test_what_a_model_says_of_what_a_person_is_is_refused(
    relation: str, target: str, fact: str, who: str
) -> None:
    words = f"{fact or target}, and Caroline lives in Berlin."
    one = message(words, **({"user_id": "caroline"} if who == "user" else {}))
    entities = [
        *([{"name": "Caroline", "type": "person"}] if who == "person" else []),
        {"name": target, "type": "concept"},
        {"name": "Berlin", "type": "location"},
    ]
    source = "Caroline" if who == "person" else "caroline"
    edges = [
        {"source": source, "target": end, "relation": name, "confidence": 0.9, "fact": told}
        for name, end, told in ((relation, target, fact), ("lives_in", "Berlin", ""))
    ]
    made = with_extraction(one, entities, edges)
    assert [one.relation for one in made.assertions] == ["lives_in"]


def test_how_a_system_is_may_be_said_by_a_model() -> None:
    one = message("The gateway reports the health of the ledger.")
    entities = [{"name": name, "type": "service"} for name in ("gateway", "ledger")]
    edge = {"source": "gateway", "target": "ledger", "relation": "reports_health_of"}
    made = with_extraction(one, entities, [{**edge, "confidence": 0.9, "fact": ""}])
    assert [one.relation for one in made.assertions] == ["reports_health_of"]


def test_the_same_answers_give_the_same_event() -> None:
    answers: dict[Task, dict[str, Any]] = {
        "summary": {"summary": "Caroline has moved."},
        "extraction": {"entities": [{"name": "Berlin", "type": "location"}], "edges": []},
    }
    assert derived_with_model(message(LONG), answers) == derived_with_model(message(LONG), answers)
