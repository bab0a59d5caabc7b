"""From stories to an answer: what comes first, how often, who, when, and whether it is known."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any

import pytest

from api.retrieval.plan import Operator, StoryAnswer
from api.retrieval.planning import plan_of
from api.retrieval.ranking import FIRST_EVENTS, Ranked, merged
from api.retrieval.story_answer import nearest_first, story_answer
from api.retrieval.story_features import features_of
from api.retrieval.story_ranker import explained, model, story_scores
from api.retrieval.story_terms import stories_asked, story_terms
from consolidation.decay import DecayWeights
from pipelines.columns.records import StoryFact
from tests.factories import START_MS, event_id
from tests.unit.api.story_builder import MINUTE_MS, Told

NOW_MS = START_MS + 10_000 * MINUTE_MS
WEIGHTS = DecayWeights(0.0, 0.0, 1.0)


def asked(question: str) -> tuple[Any, Any, Told]:
    """Plan and terms of a question, and room for stories that it is asked of."""
    plan = plan_of(question, NOW_MS)
    terms = story_terms(question, plan)
    wanted = stories_asked(terms, plan, hits=(), vector=None, session_id="s")
    return plan, terms, Told(wanted)


def answer(question: str, stories: Told, plan: Any, terms: Any, zone: Any = UTC) -> StoryAnswer:
    return story_answer(stories.stories(), terms, plan, now_ms=NOW_MS, zone=zone)


def of_printer(stories: Told, story: int, user: str, **fields: Any) -> Told:
    """Somebody's printer jams, and works when the tray was closed."""
    common: dict[str, Any] = {"user": user, **fields}
    return (
        stories.add(story, "message", "my label will not print", author=user, **common)
        .add(story, "call", "label printer", tool="print_label", **common)
        .add(story, "failure", "printer jammed", tool="print_label", **common)
        .add(story, "call", "close tray", tool="close_tray", **common)
        .add(story, "result", "closed", tool="close_tray", **common)
        .add(story, "call", "label printer tray closed", tool="print_label", **common)
        .add(story, "result", "printed", tool="print_label", **common)
    )


def of_weather(stories: Told, story: int, **fields: Any) -> Told:
    """Something else."""
    return (
        stories.add(story, "message", "will it rain", author="eve", **fields)
        .add(story, "call", "berlin", tool="weather", **fields)
        .add(story, "result", "sunny", tool="weather", **fields)
    )


def test_why_gives_the_failure_first() -> None:
    question = "Why did the printer of the label fail?"
    plan, terms, stories = asked(question)
    of_weather(of_printer(stories, 0, "ana"), 1)
    given = answer(question, stories, plan, terms)
    assert given.order[0] == "2"
    assert given.decides


def test_what_fixed_it_gives_what_was_different_first() -> None:
    question = "What fixed the label printer?"
    plan, terms, stories = asked(question)
    of_weather(of_printer(stories, 0, "ana"), 1)
    assert set(answer(question, stories, plan, terms).order[:2]) <= {"4", "5"}


def test_an_error_that_was_met_before_is_followed_by_what_helped() -> None:
    question = 'Have we seen this before: "Printer jammed"?'
    plan, terms, stories = asked(question)
    of_printer(of_printer(stories, 0, "ana"), 1, "ben")
    stories.add(2, "call", "printer", tool="scan").add(2, "failure", "lamp broken", tool="scan")
    order = answer(question, stories, plan, terms).order
    assert (set(order[:2]), set(order[2:4])) == ({"2", "9"}, {"5", "12"})


def test_how_often_counts_what_is_alike() -> None:
    question = "How often did the printer jam?"
    plan, terms, stories = asked(question)
    for number in range(3):
        of_printer(stories, number, "ana")
    of_weather(stories, 3)
    given = answer(question, stories, plan, terms)
    assert (given.type, given.value) == ("count", 3)
    assert given.evidence == ["2", "9", "16"]
    assert given.order[:3] == given.evidence


def test_what_says_no_word_of_the_question_is_counted_by_its_tool() -> None:
    question = "How often did the turnstile reject the thumb?"
    plan, terms, stories = asked(question)
    for number, tool in enumerate(("gate_tail", "gate_tail", "push_feed")):
        stories.add(number, "call", "", tool=tool, user="ana")
        stories.add(number, "failure", f"E{number} no match", tool=tool, user="ana", cosine=-number)
    assert answer(question, stories, plan, terms).evidence == ["1", "3"]


def test_a_thing_that_came_to_a_bad_end_is_counted_by_what_its_tool_failed_with() -> None:
    """And neither by each call nor by the one that worked."""
    plan, terms, stories = asked("The blister run for Les Tilleuls stopped. How many times?")
    for story in range(2):
        stories.add(story, "call", "blister run Les Tilleuls", tool="robot.fill", cosine=0.9)
        stories.add(story, "failure", "E22 not recognised", tool="robot.fill", cosine=-0.9)
    stories.add(1, "call", "blister run Les Tilleuls split", tool="robot.fill", cosine=0.9)
    stories.add(1, "result", "trays 14", tool="robot.fill")
    given = story_answer(stories.stories(), terms, plan, now_ms=NOW_MS, zone=UTC)
    assert (given.value, given.evidence) == (2, ["1", "3"])


def test_how_often_it_failed_in_one_way_counts_no_other_way() -> None:
    question = "How often did the printer time out?"
    plan, terms, stories = asked(question)
    for number, (error, marks) in enumerate((("timeout", 1), ("timeout", 1), ("jammed", 0))):
        stories.add(number, "call", "label printer", tool="print_label")
        stories.add(
            number, "failure", f"printer {error}", tool="print_label", marks=marks, cosine=marks
        )
    assert answer(question, stories, plan, terms).evidence == ["1", "3"]


def test_which_users_gives_each_once() -> None:
    question = "Which users had a printer that jammed?"
    plan, terms, stories = asked(question)
    for number, user in enumerate(("ana", "bob", "ana")):
        of_printer(stories, number, user)
    given = answer(question, stories, plan, terms)
    assert (given.type, given.value) == ("list", ["ana", "bob"])


def test_which_users_met_what_they_tell_of_by_the_failure_behind_it() -> None:
    def given(question: str) -> StoryAnswer:
        plan, terms, stories = asked(question)
        for story, (user, told) in enumerate((("ana", True), ("bob", False), ("eva", True))):
            words = "price tags come out blank" if told else "the printer is on strike"
            stories.add(story, "message", words, author=user, user=user, cosine=0.8 * told)
            stories.add(story, "call", "printer", tool="print_tag", user=user)
            stories.add(story, "failure", "field absent", tool="print_tag", user=user)
        return answer(question, stories, plan, terms)

    assert given("Which users had price tags that came out blank?").value == ["ana", "bob", "eva"]
    assert given("Which users wrote that price tags come out blank?").value == ["ana", "eva"]


def test_which_tools_gives_each_once_in_order() -> None:
    question = "Which tools were used for the label printer?"
    plan, terms, stories = asked(question)
    of_weather(of_printer(stories, 0, "ana"), 1)
    given = answer(question, stories, plan, terms)
    assert (given.type, given.value) == ("list", ["print_label", "close_tray"])
    assert given.evidence == ["1", "3", "5"]


def test_who_gives_the_name_of_who_did_it() -> None:
    plan, terms, stories = asked("Who closed the tray of the printer?")
    of_printer(of_weather(stories, 0), 1, "ana")
    known = answer("", stories, plan, terms)
    assert (known.type, known.value) == ("value", "bot")


def test_all_that_is_known_of_somebody_is_a_list_of_facts_with_their_events() -> None:
    plan, terms, stories = asked("What do we know about Ana?")
    of_printer(stories, 0, "ana")
    stories.facts = [
        StoryFact("1", "Ana", "lives_in", "Oslo", 0, START_MS),
        StoryFact("2", "Ana", "lives_in", "Bergen", START_MS, None),
        StoryFact("3", "Ana", "prefers", "labels in colour", 0, None),
        StoryFact("4", "Ana's printer", "has_state", "jammed", 0, None),
    ]
    known = answer("", stories, plan, terms)
    assert known.type == "list"
    assert known.value == ["lives in Bergen", "prefers labels in colour"]
    assert known.evidence == ["2", "3"]


@pytest.mark.parametrize(
    ("zone", "told"), [(UTC, "+00:00"), (timezone(timedelta(hours=9)), "+09:00")]
)
def test_when_gives_the_moment_in_the_zone(zone: Any, told: str) -> None:
    question = "When did we print the label?"
    plan, terms, stories = asked(question)
    given = answer(question, of_printer(stories, 0, "ana"), plan, terms, zone)
    assert given.type == "value"
    assert str(given.value).endswith(told)


def test_what_nobody_ever_said_is_hardly_known() -> None:
    known = "Why did the printer of the label fail?"
    plan, terms, stories = asked(known)
    sure = answer(known, of_printer(stories, 0, "ana"), plan, terms).confidence
    unknown = "Why did the renewal of the passport fail?"
    plan, terms, stories = asked(unknown)
    unsure = answer(unknown, of_printer(stories, 0, "ana"), plan, terms).confidence
    assert unsure < 0.4 < sure


def test_nothing_found_is_nothing_known() -> None:
    question = "How often did the printer jam?"
    plan, terms, stories = asked(question)
    given = answer(question, stories, plan, terms)
    assert (given.confidence, given.value, given.order, given.decides) == (0.0, 0, [], False)


def test_a_conversation_without_tools_is_ranked_by_what_is_said() -> None:
    question = "What does Ana paint?"
    plan, terms, stories = asked(question)
    stories.add(0, "message", "i paint lakes", author="ana").add(0, "message", "nice", author="bo")
    assert not answer(question, stories, plan, terms).decides


def test_who_said_something_last_is_an_order_in_a_conversation_too() -> None:
    question = "What did Ana say last?"
    plan, terms, stories = asked(question)
    for number, text in enumerate(("hello", "i paint lakes", "bye")):
        stories.add(number, "message", text, author="ana", named=True)
        stories.add(number, "message", "i see", author="bo")
    given = answer(question, stories, plan, terms)
    assert given.decides
    assert given.order[0] == "4"


def test_a_merged_ranking_falls_and_keeps_every_node_once() -> None:
    question = "Why did the printer of the label fail?"
    plan, terms, stories = asked(question)
    of_printer(stories, 0, "ana")
    rows = stories.stories()
    ids = [event_id(number + 1) for number in range(len(rows.ids))]
    given = story_answer(rows._replace(ids=ids), terms, plan, now_ms=NOW_MS, zone=UTC)
    other = event_id(99)
    before = [
        Ranked("entity:aa", 0.99, 0.99, found_by=("entity",)),
        Ranked(ids[0], 0.9, 0.9, found_by=("text",)),
        Ranked(other, 0.8, 0.8, found_by=("vector",)),
    ]
    after = merged(before, given, WEIGHTS)
    nodes = [node.node_id for node in after]
    assert sorted(nodes) == sorted({*ids, other, "entity:aa"})
    ranks = [node.rank for node in after]
    assert ranks == sorted(ranks, reverse=True)
    assert nodes[:FIRST_EVENTS] == given.order[:FIRST_EVENTS]
    assert nodes.index("entity:aa") == FIRST_EVENTS
    assert nodes[-1] == other
    assert after[nodes.index(ids[0])].found_by == ("text", "story")


def test_the_table_has_a_weight_for_each_feature_and_each_operator_is_known() -> None:
    question = "Why did it fail?"
    plan, terms, stories = asked(question)
    features = features_of(of_printer(stories, 0, "ana").stories(), terms, plan, NOW_MS)
    table = model()
    assert table.features == features.names
    assert {len(weights) for weights in table.operators.values()} == {len(features.names)}
    assert set(table.operators) <= set(Operator)
    assert len(table.judge) == len(table.signs) + 1


def test_another_table_is_refused() -> None:
    question = "Why did it fail?"
    plan, terms, stories = asked(question)
    features = features_of(of_printer(stories, 0, "ana").stories(), terms, plan, NOW_MS)
    with pytest.raises(ValueError, match="make train-ranker"):
        story_scores(features, plan, model()._replace(features=("other",)))


def test_a_score_is_explained_by_what_counts_most() -> None:
    question = "Why did the printer of the label fail?"
    plan, terms, stories = asked(question)
    features = features_of(of_printer(stories, 0, "ana").stories(), terms, plan, NOW_MS)
    parts = explained(features, plan, 2, most=200)
    assert sum(parts.values()) == pytest.approx(story_scores(features, plan)[2], abs=0.5)
    assert len(explained(features, plan, 2)) == 5


def of_gateway(stories: Told, story: int, **fields: Any) -> Told:
    """A setting makes a charge fail, which works at the second try; then it is changed back."""
    change: dict[str, Any] = {"type": "config.changed", "author": "rollout", "agent": "rollout"}
    failure = 2 + 3 * story
    return (
        stories.add(story, "other", "limit 30 to 3", leads_to=failure, minute=1, **change)
        .add(story, "other", "limit 3 to 30", minute=90, **change)
        .add(story + 1, "failure", "timeout", tool="charge", minute=10, **fields)
        .add(story + 1, "call", "again", tool="charge", minute=11)
        .add(story + 1, "result", "paid", tool="charge", minute=12)
        .add(story + 1, "message", "thank you", author="ana", minute=13)
    )


def test_what_undid_the_cause_comes_before_a_call_that_got_by() -> None:
    question = "How was the timeout solved?"
    plan, terms, stories = asked(question)
    assert answer(question, of_gateway(stories, 0), plan, terms).order[0] == "1"
    question = "What was different when the charge went through?"
    plan, terms, stories = asked(question)
    assert answer(question, of_gateway(stories, 0), plan, terms).order[0] != "1"


def test_a_question_without_a_topic_is_known_where_there_is_one_case() -> None:
    question = "Which change caused the failure?"
    plan, terms, stories = asked(question)
    alone = answer(question, of_gateway(stories, 0), plan, terms)
    assert alone.order[0] == "0"
    assert alone.confidence > 0.9
    of_gateway(stories, 2)
    stories.add(4, "failure", "disk full", tool="save")
    assert answer(question, stories, plan, terms).confidence < 0.5


def test_a_question_with_a_topic_is_not_known_by_its_only_case() -> None:
    question = "Which change caused the outage of the zeppelin?"
    plan, terms, stories = asked(question)
    assert answer(question, of_gateway(stories, 0), plan, terms).confidence < 0.5


def test_what_is_nearest_in_time_comes_first() -> None:
    plan, terms, stories = asked("What happened between 09:00 and 12:00?")
    given = answer("", of_printer(stories, 0, "ana"), plan, terms)._replace(evidence=["4", "6"])
    after, before = (nearest_first(given, is_before=one) for one in (False, True))
    assert (after.order[:2], before.order[:2]) == (["4", "6"], ["6", "4"])
    worth = [after.relevance[one] for one in after.order]
    assert worth == sorted(worth, reverse=True)
    assert set(after.order) == set(given.order)


@pytest.mark.parametrize(
    ("question", "is_known"),
    [
        ("Summarise session s-12", False),
        ("What happened in conversation order_9?", False),
        ("Summarise the session about the weather", True),
    ],
)
def test_a_session_that_is_not_seen_has_no_summary_and_no_other_stands_for_it(
    question: str, is_known: bool
) -> None:
    plan, terms, stories = asked(question)
    given = answer(question, of_weather(stories, 0), plan, terms)
    assert (given.confidence > 0) is is_known


@pytest.mark.parametrize("which", ["jammed", "thwarted", "vetoed", "withheld", "stuck"])
def test_what_failed_is_known_by_any_word_for_it(which: str) -> None:
    question = f"What came right after the {which} label of the printer?"
    plan, terms, stories = asked(question)
    of_weather(of_printer(stories, 0, "ann"), 1)
    given = answer(question, stories, plan, terms)
    assert given.decides
    assert given.order[0] in ("3", "4")


@pytest.mark.parametrize(("which", "first"), [("held", "2"), ("vetoed", "2"), ("", "6")])
def test_of_an_act_that_failed_once_the_attempt_is_meant_that_is_called_so(
    which: str, first: str
) -> None:
    question = f"What came right before the {which} payment of invoice SI-2037-453?"
    plan, terms, stories = asked(question)
    stories.add(0, "message", "please pay invoice SI-2037-453", author="ann")
    stories.add(0, "call", "invoice SI-2037-453", tool="get_invoice")
    stories.add(0, "result", "invoice SI-2037-453 of the mill", tool="get_invoice")
    stories.add(0, "call", "invoice SI-2037-453", tool="payment")
    stories.add(0, "failure", "price variance of SI-2037-453", tool="payment")
    stories.add(0, "call", "accept SI-2037-453", tool="ask_buyer")
    stories.add(0, "result", "accepted by the buyer", tool="ask_buyer")
    stories.add(0, "call", "invoice SI-2037-453 with the key", tool="payment")
    stories.add(0, "result", "payment queued", tool="payment")
    assert answer(question, stories, plan, terms).order[0] == first


@pytest.mark.parametrize(
    ("act", "first"),
    [
        ("the delivery of the letter", "5"),
        ("the failed delivery of the letter", "2"),
        ("the 554 on the delivery of the letter", "2"),
    ],
)
def test_an_act_by_its_noun_is_the_one_that_went_through(act: str, first: str) -> None:
    plan, terms, stories = asked(f"What was said or done right before {act}?")
    stories.add(0, "message", "mail the letter to my expert", author="ann")
    stories.add(0, "call", "expert of ann", tool="get_expert")
    stories.add(0, "result", "expert at old.example", tool="get_expert")
    stories.add(0, "call", "letter to old.example", tool="send_mail")
    stories.add(0, "failure", "554 host not found", tool="send_mail")
    stories.add(0, "message", "she renamed it, use new.example", author="ann")
    stories.add(0, "call", "letter to new.example", tool="send_mail")
    stories.add(0, "result", "delivered", tool="send_mail")
    assert answer("", of_weather(stories, 1), plan, terms).order[0] == first


def test_a_message_that_says_more_of_it_comes_before_what_was_looked_up() -> None:
    question = "When did I move to Faro?"
    plan, terms, stories = asked(question)
    for story in range(2):
        stories.add(story, "message", "anything else in town", author="ana")
    (
        stories.add(2, "message", "i moved to faro last weekend", author="ana")
        .add(3, "message", "find a boat trip", author="ana", minute=9_000)
        .add(3, "call", "faro boat", tool="search_tours", minute=9_001)
        .add(3, "result", "two boats in faro", tool="search_tours", minute=9_002)
    )
    assert answer(question, stories, plan, terms).order[0] == "2"


def test_what_did_not_fail_is_not_taken_for_a_failure() -> None:
    plan, terms, stories = asked("What came right after the printed label?")
    of_weather(of_printer(stories, 0, "ann"), 1)
    given = answer("What came right after the printed label?", stories, plan, terms)
    assert given.order[0] not in ("3", "4")
