"""Questions about all events of a sort: which are, what they list, and what is answered."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from api.retrieval.plan import StoryAnswer
from api.retrieval.planning import plan_of
from api.retrieval.story_lists import (
    acts_answer,
    acts_listed,
    is_unheard_of,
    list_answer,
    list_asked,
)
from api.retrieval.story_terms import story_terms
from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in
from pipelines.columns.records import ListAsked, Listed
from tests.factories import START_MS
from tests.unit.api.test_story_answer import asked

NOW_MS = START_MS + int(timedelta(days=40).total_seconds() * 1_000)
CALLS, MESSAGES = (EventKind.CALL,), (EventKind.MESSAGE,)
HERE = ListAsked("s-1")
TOLD = Listed(["e1", "e2", "e3"], 3, [("charge", 1), ("mail", 2)])


def wanted(question: str) -> ListAsked | None:
    plan = plan_of(question, NOW_MS)
    return list_asked(question, plan, story_terms(question, plan), "s-1")


def _text(question: str) -> str:
    return story_terms(question, plan_of(question, NOW_MS)).text


def answered(question: str, listed: Listed = TOLD) -> StoryAnswer:
    assert wanted(question) is not None
    return list_answer(question, plan_of(question, NOW_MS), listed)


@pytest.mark.parametrize(
    ("question", "fields"),
    [
        ("Which tools failed?", {"only_tools": True, "failed": True, "newest_first": True}),
        ("What went wrong?", {"failed": True}),
        ("What failed?", {"failed": True, "newest_first": True}),
        ("List all errors", {"failed": True, "newest_first": True}),
        ("Did anything go wrong?", {"failed": True, "newest_first": True}),
        ("Which tool failed most?", {"only_tools": True, "failed": True, "newest_first": True}),
        ("How many calls failed?", {"only_tools": True, "failed": True}),
        ("How many errors were there?", {"failed": True}),
        ("How often did something fail?", {"failed": True}),
        ("What was the last error?", {"failed": True, "newest_first": True}),
        ("What was the first thing that failed?", {"failed": True}),
        ("What happened first?", {}),
        ("What happened last?", {"newest_first": True}),
        ("How many tools were called?", {"kinds": CALLS}),
        ("Which tool was used last?", {"kinds": CALLS, "newest_first": True}),
        ("Which tool was called first?", {"kinds": CALLS}),
        ("What was the last tool call?", {"kinds": CALLS, "newest_first": True}),
        ("Which tools were used?", {"kinds": CALLS}),
        ("Which tool calls were there?", {"kinds": CALLS}),
        ("What tools did the agent call?", {"kinds": CALLS, "by_person": False}),
        ("How often did the agent call a tool?", {"kinds": CALLS, "by_person": False}),
        ("What did the user ask for first?", {"kinds": MESSAGES, "by_person": True}),
        (
            "What did the customer say last?",
            {"kinds": MESSAGES, "by_person": True, "newest_first": True},
        ),
        ("What was the last thing the agent did?", {"by_person": False, "newest_first": True}),
        ("What did the agent do last?", {"by_person": False, "newest_first": True}),
        ("How many messages did the user send?", {"kinds": MESSAGES, "by_person": True}),
        ("How many events are there?", {}),
        ("What was the last decision?", {"kinds": (EventKind.DECISION,), "newest_first": True}),
        ("How often did charge_card fail?", {"failed": True, "tools": ("charge_card",)}),
        (
            "How often did charge_card time out?",
            {
                "failed": True,
                "tools": ("charge_card",),
                "stems": ("tim", "timeout", "timeouterror", "timeoutexception"),
            },
        ),
        (
            "How often was charge_card declined?",
            {"failed": True, "tools": ("charge_card",), "stems": ("declin",)},
        ),
        ("Which sessions had failures?", {"failed": True, "grouped": "session"}),
        ("Which agent failed most often?", {"failed": True, "grouped": "agent"}),
        (
            "Which users wrote to us?",
            {"kinds": MESSAGES, "by_person": True, "grouped": "user"},
        ),
        (
            "In how many sessions did charge_card fail?",
            {"failed": True, "tools": ("charge_card",), "grouped": "session"},
        ),
        (
            "Which agents used charge_card?",
            {"kinds": CALLS, "tools": ("charge_card",), "grouped": "agent"},
        ),
        ("Which decisions were made?", {"kinds": (EventKind.DECISION,)}),
        ("How many times was mail.send called?", {"kinds": CALLS, "tools": ("mail.send",)}),
        (
            "How many calls failed in this session?",
            {"only_tools": True, "failed": True, "only_session": True},
        ),
    ],
)
def test_what_names_no_topic_is_a_list(question: str, fields: dict[str, Any]) -> None:
    assert wanted(question) == HERE._replace(**fields, text=_text(question))


@pytest.mark.parametrize(
    "question",
    [
        "Which tools failed in the refund?",
        "How often did charge_card fail for order A-4711?",
        "How often did the gateway time out?",
        "Which tools were used for the refund?",
        "What did Ana ask for last?",
        "What was the last message about the printer?",
        "How many parcels were lost?",
        "Why did the call fail?",
        "What happened?",
        'Which calls failed with "no route to host"?',
        "What was the last price of the lamp?",
        "Which lamp is in the hall?",
        "Which sessions were about the lamp?",
        "Which users asked about the lamp?",
    ],
)
def test_what_is_about_something_is_searched_for(question: str) -> None:
    asked = wanted(question)
    assert asked is None or asked.words  # of an agent that is called so, or of nobody


def test_a_time_limits_the_list() -> None:
    today = wanted("How many messages did the user send today?")
    before = wanted("Which tools failed yesterday?")
    assert today is not None
    assert before is not None
    assert before.windows[0][1] == today.windows[0][0] <= NOW_MS < today.windows[0][1]


@pytest.mark.parametrize(
    ("question", "kind", "value", "evidence"),
    [
        ("Which tools failed?", "list", ["charge", "mail"], TOLD.ids),
        ("What failed?", "list", None, TOLD.ids),
        ("Which tool failed most?", "value", "mail", TOLD.ids),
        ("How many calls failed?", "count", 3, TOLD.ids),
        ("How many tools were called?", "count", 2, TOLD.ids),
        ("Which tools were used?", "list", ["charge", "mail"], TOLD.ids),
        ("What did the user say last?", "events", None, TOLD.ids[:1]),
        ("How often did charge_card fail?", "count", 3, TOLD.ids),
        ("Which tool was used last?", "value", "charge", ["e1"]),
        ("What was the very first tool call?", "value", "charge", ["e1"]),
        ("Which sessions had errors?", "list", ["charge", "mail"], ["e1", "e2"]),
        ("How many sessions had errors?", "count", 2, ["e1", "e2"]),
        ("Which session had the most errors?", "value", "mail", ["e2"]),
    ],
)
def test_a_list_answers(question: str, kind: str, value: Any, evidence: list[str]) -> None:
    answer = answered(question)
    assert (answer.type, answer.value, answer.evidence) == (kind, value, evidence)
    assert answer.order == TOLD.ids
    assert answer.decides
    assert answer.confidence >= 0.9
    worths = [answer.relevance[one] for one in answer.order]
    assert worths == sorted(worths, reverse=True)


@pytest.mark.parametrize(
    ("question", "words", "verbs"),
    [
        ("How many transports were booked?", "transport book", "book"),
        ("How often was PAL-7 moved?", "pal 7 mov", "pal 7 mov"),
        ("Which parts were rejected?", "part", "reject"),
        ("How many books did the stack robot lend?", "book stack robot lend", "stack robot lend"),
        ("How many orders were shipped on Monday?", "order ship", "ship"),
        ("How many refunds were made?", "refund", "refund creat"),
        ("How many transfers were there?", "transfer", "transfer creat"),
    ],
)
def test_what_was_done_is_counted_by_verb_and_object(question: str, words: str, verbs: str) -> None:
    plan = plan_of(question, NOW_MS)
    *_, asked = acts_listed(question, plan, story_terms(question, plan), "s-1")
    assert (" ".join(asked.words), " ".join(asked.verbs)) == (words, verbs)
    assert asked.windows == plan.spans
    told = acts_answer(question, plan, TOLD)
    assert told.evidence == TOLD.ids
    assert told.value == (3 if question.startswith("How") else None)


@pytest.mark.parametrize(
    "question",
    [
        "How often did the printer fail?",
        "How many visitors did the reading have?",
        "What happened after the part was rejected?",
        "Why was the part rejected?",
        "Which lamp is in the hall?",
    ],
)
def test_what_counts_no_acts_is_left_to_others(question: str) -> None:
    plan = plan_of(question, NOW_MS)
    assert acts_listed(question, plan, story_terms(question, plan), "s-1") == ()


def test_what_is_done_may_be_the_verb_itself() -> None:
    question = "How many requests were granted?"
    plan = plan_of(question, NOW_MS)
    first, second = acts_listed(question, plan, story_terms(question, plan), "s-1")
    assert (first.verbs, second.verbs) == (("grant",), ("request", "creat"))


@pytest.mark.parametrize(
    ("kind", "said", "is_unheard"),
    [
        ("result", "lift block door", False),
        ("result", "lift block", True),
        ("failure", "lift", False),  # a tool has other words for what the asker says
    ],
)
def test_what_failed_may_be_told_in_other_words(kind: str, said: str, is_unheard: bool) -> None:
    plan, terms, stories = asked("How many times did the lift block the door?")
    stories.add(0, kind, said, tool="run")
    assert is_unheard_of(stories.stories(), terms, plan, "0") is is_unheard


def test_what_leads_to_a_count_need_not_be_heard_of() -> None:
    plan, terms, stories = asked("The board asks for a figure: how many times did the lift stop?")
    stories.add(0, "result", "lift stop", tool="run")
    assert is_unheard_of(stories.stories(), terms, plan, "0") is False


def test_what_may_only_ask_need_not_be_heard_of() -> None:
    plan, terms, stories = asked("Did the lift stop twice, thrice or even more?")
    stories.add(0, "result", "lift stop", tool="run")
    assert is_unheard_of(stories.stories(), terms, plan, "0") is False


def test_sessions_are_listed_by_the_number_of_what_they_are_about() -> None:
    for question, saying in (
        ("Which sessions are about RF-77?", ("rf", "77")),
        ("In which conversations did we deal with migration 88?", ("migration", "88")),
    ):
        asked = wanted(question)
        assert asked is not None
        assert (asked.grouped, asked.saying) == ("session", saying)


def test_acts_are_told_apart_by_who_did_them() -> None:
    question = "Which agents placed orders?"
    plan = plan_of(question, NOW_MS)
    (asked,) = acts_listed(question, plan, story_terms(question, plan), "s-1")
    assert (asked.grouped, asked.words) == ("agent", (stem_in("placed"), "order"))


def test_failed_acts_are_counted_by_their_name() -> None:
    question = "How many deploys failed?"
    plan = plan_of(question, NOW_MS)
    (asked,) = acts_listed(question, plan, story_terms(question, plan), "s-1")
    assert (asked.failed, asked.verbs) == (True, ("deploi",))
