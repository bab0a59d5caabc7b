"""What an answer says in a few words: a cause with what led to it, a summary, a name."""

from __future__ import annotations

from typing import Any

from api.retrieval.plan import StoryAnswer
from api.retrieval.planning import plan_of
from api.schemas import Answer, AtlasResponse, Edge, Meta, Node, NodeProvenance, Scores
from api.verdict import NONE_KNOWN, answer_head, answer_of, lacks_value, proof_first
from projections.schema import CAUSED_BY, ENTITY, EVENT, FOLLOWS
from tests.factories import partly

TOLD = {
    "reload": ("config.changed: limit 30 to 3", "other", None),
    "refused": ("charge refused: limit 3", "failure", "failed"),
    "asks": ("charge", "call", None),
    "twice": ("charged twice", "failure", "failed"),
}


def response(*edges: tuple[str, str], answered: bool = True) -> AtlasResponse:
    nodes = [
        partly(
            Node,
            node_id=name,
            type=EVENT.label,
            attributes={"summary": summary, "kind": kind, "status": status},
            provenance=partly(NodeProvenance, session_id="s", occurred_at=None),
            scores=partly(Scores, relevance_score=0.9),
        )
        for name, (summary, kind, status) in TOLD.items()
    ]
    causes = [
        Edge(source=effect, target=cause, type=CAUSED_BY.type, properties={})
        for effect, cause in edges
    ]
    follows = Edge(source="asks", target="twice", type=FOLLOWS.type, properties={})
    meta = partly(Meta, answered=answered)
    return partly(AtlasResponse, nodes=nodes, edges=[*causes, follows], meta=meta)


def story(question: str, **fields: Any) -> StoryAnswer:
    given: dict[str, Any] = {
        "plan": plan_of(question, 0),
        "confidence": 0.9,
        "order": ["twice"],
        "relevance": {},
        "type": "events",
        "value": None,
        "evidence": ["twice"],
        "decides": True,
        "explained": {},
    }
    return StoryAnswer(**{**given, **fields})


CHAIN = (("twice", "refused"), ("refused", "asks"), ("asks", "reload"), ("reload", "twice"))


def test_why_names_the_nearest_failure_and_the_first_change_behind_it() -> None:
    known = answer_of(story("Why was it charged twice?"), response(*CHAIN), None)
    assert known.value == "charged twice ← charge refused: limit 3 ← config.changed: limit 30 to 3"
    assert known.evidence == ["twice", "refused", "reload"]


def test_what_proves_who_it_was_stands_before_other_events() -> None:
    def scored(name: str, kind: str, relevance: float) -> Node:
        scores = Scores(0.1, relevance_score=relevance, importance_score=5, rank_score=relevance)
        return Node(name, kind, {}, partly(NodeProvenance), scores)

    nodes = [
        scored("person", ENTITY.label, 0.9),
        scored("call", EVENT.label, 0.8),
        scored("grant", EVENT.label, 0.2),
        scored("other", EVENT.label, 0.1),
    ]

    def order(question: str, kind: Any, *evidence: str) -> list[tuple[str, float]]:
        answer = Answer(type=kind, value="Ines", evidence=list(evidence))
        told = proof_first(nodes, answer, plan_of(question, 0))
        return [(node.node_id, node.scores.rank_score) for node in told]

    who, moved = (
        "Who approved it?",
        [("person", 0.9), ("grant", 0.8), ("call", 0.8), ("other", 0.1)],
    )
    as_before = [(node.node_id, node.scores.rank_score) for node in nodes]
    assert order(who, "value", "grant", "call") == moved
    assert order("When is the loan due?", "value", "grant") == moved
    assert order("How much may the agent lend?", "value", "grant") == moved
    assert order(who, "list", "grant") == as_before
    assert order("When was the loan approved?", "value", "grant") == as_before
    assert order(who, "value", "call") == as_before
    assert order(who, "value", "elsewhere") == as_before
    assert order(who, "value") == as_before


def test_why_without_a_cause_names_what_happened() -> None:
    known = answer_of(story("Why was it charged twice?"), response(), None)
    assert (known.value, known.evidence) == ("charged twice", ["twice"])


def test_what_is_no_why_names_no_cause() -> None:
    known = answer_of(story("What was charged?"), response(*CHAIN), None)
    assert known.value == "charged twice"


def test_a_summary_is_that_of_the_session() -> None:
    asked_for = story("Summarise the incident", type="summary")
    assert answer_of(asked_for, response(), "all of it").value == "all of it"


def test_nothing_known_has_no_value_and_no_proof() -> None:
    unknown = answer_of(story("Why?", value="x"), response(*CHAIN, answered=False), "all of it")
    assert (unknown.value, unknown.evidence) == (None, [])


def head(value: Any) -> str | None:
    told = response()
    told.answer = Answer(type="value", value=value, evidence=["twice"])
    above = answer_head(told)
    assert above is not None
    return above.value


def test_a_value_stands_above_the_evidence_unless_that_says_it_in_the_same_words() -> None:
    assert head("ops-agent") == "ops-agent"
    assert head(["a", "b"]) == "a, b"
    assert head("charged twice") is None


def test_a_list_of_events_is_told_by_what_they_say_and_once() -> None:
    given = story("Which cases are open?", type="list", evidence=["refused", "twice", "gone"])
    answered = response()
    known = answer_of(given, answered, None)
    assert known.value == ["charge refused: limit 3", "charged twice"]
    head = answer_head(answered.model_copy(update={"answer": known}))
    assert head is not None
    assert head.value is None  # the events are told below it


def test_that_nothing_is_open_is_told() -> None:
    given = story("Which cases are open?", type="list", value=[], evidence=["twice"])
    answered = response()
    known = answer_of(given, answered, None)
    assert known.value == []
    head = answer_head(answered.model_copy(update={"answer": known}))
    assert head is not None
    assert head.value == NONE_KNOWN


def returned(summary: str) -> AtlasResponse:
    """An answer whose first event is what a tool returned."""
    tool = summary.partition(" ")[0]
    node = partly(
        Node,
        node_id="twice",
        type=EVENT.label,
        attributes={"summary": summary, "tool_name": tool},
        provenance=partly(NodeProvenance, session_id="s", occurred_at=None),
        scores=partly(Scores, relevance_score=0.9),
    )
    return partly(AtlasResponse, nodes=[node], edges=[], meta=partly(Meta, answered=True))


def test_a_value_is_the_field_that_is_asked_for() -> None:
    called = "ship returned: tracking: JD0146; carrier: DHL"
    shipped = returned(called)
    for question, value in (
        ("What is the tracking number of order A-1?", "JD0146"),
        ("What is order A-1's carrier?", "DHL"),
        ("What is the weight of order A-1?", None),  # a whole record is no weight
    ):
        assert answer_of(story(question), shipped, None).value == value


def test_a_whole_record_is_no_day_no_name_and_no_amount() -> None:
    told = returned("book returned: berth: 12; owner_id: O-7; note: as always")
    for question in (
        "When does the regatta begin?",
        "What date is the regatta?",
        "Who sailed in the regatta?",
        "How much did regatta 200 cost?",
        "How long did the harbour keep the boats?",
    ):
        asked = story(question, evidence=["twice"])
        known = answer_of(asked, told, None)
        assert (question, known.value) == (question, None)
        is_of_record = question.startswith(("When", "Who", "What date"))
        assert not is_of_record or lacks_value(asked.plan, known)
    for question in ("What happened to the berth?", "What is the berth of O-7?"):
        assert answer_of(story(question), told, None).value is not None


def test_no_single_record_says_the_sum_of_all() -> None:
    told = returned("create_order returned: order_id: B-7; total: 59")
    for question, value in (
        ("What is the total of all orders?", None),
        ("What is the average total for every order?", None),
        ("What is the total of order B-7?", "59"),
    ):
        asked = story(question, evidence=["twice"])
        known = answer_of(asked, told, None)
        assert (question, known.value) == (question, value)
        assert lacks_value(asked.plan, known) is (value is None)


def test_how_much_is_not_answered_where_no_record_says_it() -> None:
    told = returned("order returned: lamp: brass")
    asked = story("How much did the lamp cost?", evidence=["twice"])
    known = answer_of(asked, told, None)
    assert known.value is None
    assert lacks_value(asked.plan, known)


def test_how_many_is_not_answered_by_what_has_no_number() -> None:
    told = returned("order returned: lamp: brass")
    asked = story("How many lamps were on the boat?", evidence=["twice"])
    assert lacks_value(asked.plan, answer_of(asked, told, None))
    in_talk = asked._replace(decides=False)
    assert not lacks_value(asked.plan, answer_of(in_talk, told, None))
    counted = returned("order returned: lamp: brass; left: both")
    assert not lacks_value(asked.plan, answer_of(asked, counted, None))


def test_what_is_told_by_digits_is_not_told_without_one() -> None:
    for summary, lacks in (("ann: feedback in the margin", True), ("ann: call 555", False)):
        told = returned(summary)
        told.nodes[0].attributes["kind"] = "message"
        for question in ("What is Ann's phone number?", "Ann's phone?"):
            asked = story(question, evidence=["twice"])
            assert lacks_value(asked.plan, answer_of(asked, told, None)) is lacks


def test_what_was_looked_up_is_told_by_what_was_returned() -> None:
    told = returned("show_berth: ship: Swan")
    [found] = returned(summary := "show_berth returned: ship: Swan; owner: Ina; length: 9 m").nodes
    found.node_id = "found"
    for node, kind in ((told.nodes[0], "call"), (found, "result")):
        node.attributes |= {"kind": kind, "tool_name": "show_berth"}
    told.nodes.append(found)
    asked = story("What is the state of the Swan?", evidence=["twice"])
    known = answer_of(asked, told, None)
    assert (known.value, known.evidence) == (summary, ["found", "twice"])


def test_when_it_was_told_is_no_answer_to_when_it_will_be() -> None:
    told = returned("book returned: berth: 12")
    at = "2026-01-01T00:00:00+00:00"
    for question, value in (
        ("When was the berth booked?", at),
        ("When is the berth free?", None),
        ("Since when is the berth 12?", at),
        ("What date was the regatta set for?", None),
        ("From which day does the regatta run?", None),
    ):
        assert answer_of(story(question, value=at, type="value"), told, None).value == value


def test_who_and_when_are_what_the_event_itself_records_of_it() -> None:
    given = returned("approve returned: approved_by: Marta Oss; requested_by: librarian; steps: 2")
    for question, value in (
        ("Who approved the loan?", "Marta Oss"),
        ("Who requested the loan?", "librarian"),
        ("Who rejected the loan?", "the agent"),
    ):
        assert answer_of(story(question, value="the agent"), given, None).value == value
    given = returned("renew returned: due: 2026-12-12; valid_until: 2027-01-31T12:00Z; loan: 7")
    for question, value in (
        ("When is the loan due?", "2026-12-12"),
        ("Until when is the card valid?", "2027-01-31T12:00Z"),
        ("When was the loan made?", "its time"),
    ):
        assert answer_of(story(question, value="its time"), given, None).value == value


def test_when_something_will_be_is_not_when_that_was_said() -> None:
    for question, ahead in (
        ("When is the loan due?", True),
        ("Until when will it be open?", True),
        ("When was the loan renewed?", False),
        ("Since when is the limit 3?", False),
    ):
        assert plan_of(question, 0).ahead is ahead


def test_where_stories_do_not_decide_the_first_event_that_is_shown_proves_it() -> None:
    answer = answer_of(story("What was charged?", decides=False), response(), None)
    assert (answer.evidence, answer.value) == (["reload"], "config.changed: limit 30 to 3")


def test_a_promise_is_the_sentence_that_promises() -> None:
    texts = {
        "refused": "It waits for the board. As a rule that takes a week.",
        "twice": "B-40 is in the kiln. I will send you a photo.",
    }
    asked_for = story("What did you promise me?", evidence=["refused", "twice"])
    told = answer_of(asked_for, response(), None, texts)
    assert (told.value, told.evidence) == ("I will send you a photo.", ["twice"])
    texts["refused"] = "I'll call you."
    told = answer_of(asked_for, response(), None, texts)
    assert told.value == ["I'll call you.", "I will send you a photo."]


def test_why_tells_what_was_decided_elsewhere() -> None:
    asked_for = story("Why was it refused?", evidence=["refused", "reload"])
    told = answer_of(asked_for, response(), None)
    assert told.value == "charge refused: limit 3 \u2190 config.changed: limit 30 to 3"
    assert told.evidence == ["refused", "reload"]


def test_each_order_counts_once_whatever_its_quantity() -> None:
    asked_for = story("How many orders were placed?", type="count", value=1)
    texts = {"twice": "order: O-7\nquantity: 500"}
    assert answer_of(asked_for, response(), None, texts).value == 1


def test_a_value_is_told_as_the_event_that_proves_it_writes_it() -> None:
    for value, told in (
        ("limit 3", "limit 3"),
        ("charge refused", "charge refused"),
        ("LIMIT 3", "LIMIT 3"),
    ):
        asked = story("What is the limit?", value=value, evidence=["refused"])
        assert answer_of(asked, response(), None).value == told
    texts = {"refused": "Charge Refused: the Lake Ombe limit"}
    asked = story("What is the limit?", value="lake ombe", evidence=["refused"])
    assert answer_of(asked, response(), None, texts).value == "Lake Ombe"
    asked = story("What is the limit?", value="ake omb", evidence=["refused"])
    assert answer_of(asked, response(), None, texts).value == "ake omb"
