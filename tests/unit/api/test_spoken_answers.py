"""What people said as an answer: questions are passed over, times are read off, who is told of."""

from __future__ import annotations

from datetime import UTC
from typing import Any

import pytest

from api.retrieval.plan import StoryAnswer
from api.retrieval.planning import plan_of
from api.schemas import AtlasResponse, Meta, Node, NodeProvenance, Scores
from api.spoken_answers import only_asks, said_first, said_time, unless_only_asked
from api.verdict import answer_of
from projections.schema import EVENT
from tests.factories import partly


def said(name: str, text: str, *, agent: str, second: int) -> Node:
    return partly(
        Node,
        node_id=name,
        type=EVENT.label,
        attributes={"summary": f"{agent}: {text}", "kind": "message"},
        provenance=partly(
            NodeProvenance,
            session_id="s",
            agent_id=agent,
            occurred_at=f"2026-11-13T12:00:{second:02}Z",
        ),
        scores=partly(Scores, relevance_score=0.9),
    )


def by_id(*nodes: Node) -> dict[str, Node]:
    return {node.node_id: node for node in nodes}


ASKED = said("asked", "Noted. How old is Pepper?", agent="bot", second=1)
ANSWERED = said("answered", "she's nine. a grey tabby", agent="ana", second=20)
OTHER = said("other", "Pepper likes old chairs.", agent="ana", second=50)


@pytest.mark.parametrize(
    "text",
    [
        "bot: How old is Pepper?",
        "bot: Noted. How old is Pepper?",
        "tom: damn. who takes over the front end",
        "tom: and when is the demo",
    ],
)
def test_a_question_tells_nothing(text: str) -> None:
    assert only_asks(text)


@pytest.mark.parametrize(
    "text",
    [
        "tom: he's leaving in january, did you know?",
        "tom: which one? don't go there, they ripped me off",
        "tom: I like green tea. And what about your sister Mia and her old house?",
        "tom: what a day!",
        "tom: when I was ten I played chess",
        "tom: nine",
    ],
)
def test_what_tells_something_is_no_question(text: str) -> None:
    assert not only_asks(text)


def test_of_a_question_what_was_said_to_it_is_the_answer() -> None:
    assert said_first(by_id(ASKED, OTHER, ANSWERED)) == ["answered"]


def test_the_first_that_tells_something_is_the_answer() -> None:
    again = said("again", "How old is she?", agent="ana", second=30)
    assert said_first(by_id(OTHER, ASKED)) == ["other"]
    assert said_first(by_id(ASKED, again)) == ["asked"]
    assert said_first({}) == []


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("I went there yesterday", "2026-11-12"),
        ("I won last week", "2026-11-02/2026-11-08"),
        ("surgery in 2024. it's ok now", "2024"),
        ("we moved in March 2025", "2025-03"),
        ("I went there", "2026-11-13T12:00:01+00:00"),
        ("I'm off on Monday", None),
        ("demo on December 19th", None),
        ("yesterday, or in 2024", None),
    ],
)
def test_a_time_is_one_that_the_words_name(text: str, when: str | None) -> None:
    assert said_time(said("one", text, agent="ana", second=1), UTC) == when


def answered(question: str, *nodes: Node, **fields: Any) -> tuple[Any, list[str]]:
    story = StoryAnswer(
        plan=plan_of(question, 0),
        confidence=0.9,
        order=[],
        relevance={},
        type=fields.pop("type", "value"),
        value=None,
        evidence=[nodes[0].node_id],
        decides=False,
        explained={},
    )
    told = partly(AtlasResponse, nodes=list(nodes), edges=[], meta=partly(Meta, answered=True))
    known = answer_of(story, told, None)
    return known.value, known.evidence


ASKS_AGAIN = said("again", "What's my plot number? I lost the letter.", agent="ana", second=1)
SHRUGS = said("shrugs", "You never told me.", agent="bot", second=20)
TELLS = said("tells", "My plot number is 31.", agent="ana", second=50)


@pytest.mark.parametrize(
    ("nodes", "is_told"),
    [
        ((ASKS_AGAIN, SHRUGS), False),
        ((ASKS_AGAIN, TELLS), True),
        ((TELLS, ASKS_AGAIN), True),
    ],
)
def test_that_it_was_asked_before_answers_no_question(
    nodes: tuple[Node, ...], *, is_told: bool
) -> None:
    question = "What is my plot number?"
    story = StoryAnswer(
        plan=plan_of(question, 0),
        confidence=0.9,
        order=[],
        relevance={},
        type="value",
        value=None,
        evidence=[nodes[0].node_id],
        decides=True,
        explained={},
    )
    assert bool(unless_only_asked(story, nodes, question).confidence) is is_told


def test_an_answer_is_what_was_said_to_the_question() -> None:
    known = answered("How old is Pepper?", ASKED, ANSWERED, type="events")
    assert known == ("ana: she's nine. a grey tabby", ["answered"])


def test_when_is_the_day_that_somebody_names() -> None:
    went = said("went", "I went to the lake yesterday", agent="ana", second=1)
    assert answered("When did Ana go to the lake?", went) == ("2026-11-12", ["went"])


def test_who_is_told_of_and_not_who_tells() -> None:
    told = said("told", "the landlady is called Mrs. Wolf", agent="ana", second=1)
    assert answered("Who is the landlady?", told)[0] == "ana: the landlady is called Mrs. Wolf"
