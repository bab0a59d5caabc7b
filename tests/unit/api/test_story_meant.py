"""Which event is meant: the failure, what worked, the act that decided, who asked for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from api.retrieval.plan import Operator, StoryAnswer
from api.retrieval.planning import plan_of
from api.retrieval.story_answer import GUESSED_AT_MOST, story_answer
from api.retrieval.story_evidence import asks_behind, stating
from api.retrieval.story_features import features_of
from api.retrieval.story_terms import stories_asked, story_terms
from tests.factories import START_MS
from tests.unit.api.story_builder import MINUTE_MS, Told

NOW_MS = START_MS + 10_000 * MINUTE_MS
OF_ANN: dict[str, Any] = {"user": "ann", "theirs": True}
BY_ANN: dict[str, Any] = {**OF_ANN, "author": "ann.lee", "named": True}
"""What was done for Ann Lee, whom a question names; what she said."""


def moment(minute: int) -> str:
    at_s = START_MS // 1_000 + 60 * minute
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")


class Asked:
    """A question, and the stories that it is answered from."""

    def __init__(self, question: str) -> None:
        self.plan = plan_of(question, NOW_MS)
        self.terms = story_terms(question, self.plan)
        wanted = stories_asked(self.terms, self.plan, hits=(), vector=None, session_id="s")
        self.stories = Told(wanted)

    def add(self, story: int, kind: str, text: str, **fields: Any) -> Asked:
        self.stories.add(story, kind, text, **fields)
        return self

    def answer(self) -> StoryAnswer:
        told = self.stories.stories()
        return story_answer(told, self.terms, self.plan, now_ms=NOW_MS, zone=UTC)


def test_why_is_answered_by_the_failure_of_what_is_named() -> None:
    asked = Asked("Why was sample S-9003 rejected?")
    asked.add(0, "call", "sample S-9004 fridge", tool="register_sample")
    asked.add(0, "failure", "sample S-9004 rejected sample", tool="register_sample")
    asked.add(1, "call", "sample S-9003", tool="get_result")
    asked.add(1, "failure", "hemolyzed", tool="get_result")
    assert asked.answer().order[0] == "3"


def test_why_it_was_declined_is_in_the_act_that_declined_it() -> None:
    asked = Asked("Why was RQ-31 declined?")
    asked.add(0, "call", "RQ-31 declined budget is spent", tool="decide_request")
    asked.add(0, "result", "RQ-31 declined", tool="decide_request")
    asked.add(1, "call", "limit", tool="raise_quota")
    asked.add(1, "failure", "request RQ-31 is declined", tool="raise_quota")
    assert asked.answer().order[0] == "0"


def test_why_tells_what_another_session_decided_next() -> None:
    asked = Asked("Why was telescope TL-20 denied?")
    asked.add(0, "result", "stop ST-4", tool="create_stop", leads_to=2)
    asked.add(1, "call", "TL-20", tool="lend_telescope")
    asked.add(1, "failure", "denied by ST-4", tool="lend_telescope")
    assert asked.answer().evidence == ["2", "0"]


@pytest.mark.parametrize(("code", "is_known"), [("E-77", True), ("E-78", False)])
def test_what_is_behind_a_failure_that_is_named_is_known(code: str, *, is_known: bool) -> None:
    asked = Asked("What is the root cause of the E-77 of kiln 4?")
    asked.add(0, "other", "heat 900 to 700", type="config.changed", leads_to=2, minute=1)
    asked.add(1, "call", "kiln 4", tool="fire_pot", minute=60)
    asked.add(1, "failure", f"{code} of kiln 4", tool="fire_pot", minute=61)
    answer = asked.answer()
    assert answer.order[0] == "0"
    assert (answer.confidence >= 0.9) is is_known


def test_a_call_of_another_session_that_is_behind_a_failure_is_the_answer() -> None:
    asked = Asked("Could you trace the lost firing of kiln 4 back to whatever brought it about?")
    asked.add(0, "call", "burner B-1", tool="swap_burner", leads_to=3, minute=1)
    asked.add(0, "result", "B-1 in use", tool="swap_burner", leads_to=3, minute=2)
    asked.add(1, "call", "firing of kiln 4", tool="fire_pot", minute=60)
    asked.add(1, "failure", "lost flame", tool="fire_pot", minute=61)
    answer = asked.answer()
    assert answer.decides
    assert answer.order[0] in ("0", "1")


def test_why_something_is_so_is_in_the_decision_that_says_each_word() -> None:
    asked = Asked("Why is the payment timeout 20 seconds?")
    asked.add(0, "other", "payment timeout 20 to 2", type="config.changed", cosine=0.6, leads_to=2)
    asked.add(0, "call", "tests", tool="run_tests")
    asked.add(0, "failure", "timeout expected 20", tool="run_tests", cosine=0.5)
    asked.add(1, "decision", "The payment timeout stays at 20 seconds for slow banks", cosine=0.7)
    assert asked.answer().order[0] == "3"


def test_a_change_that_is_only_guessed_to_be_behind_a_failure_is_told_with_a_doubt() -> None:
    for guessed in (False, True):
        asked = Asked("Which change brought about the E-77 of kiln 4?")
        asked.plan = asked.plan._replace(elsewhere=True)
        asked.add(0, "other", "gas 9 to 4", type="config.changed", leads_to=2, guessed=guessed)
        asked.add(1, "call", "firing of kiln 4", tool="fire_pot", minute=60)
        asked.add(1, "failure", "E-77 of kiln 4", tool="fire_pot", minute=61)
        answer = asked.answer()
        assert answer.order[0] == "0"
        assert (answer.confidence <= GUESSED_AT_MOST) is guessed


def test_why_a_call_failed_is_in_what_came_of_it() -> None:
    asked = Asked("What was behind the firing of kiln 4?")
    asked.add(0, "call", "firing of kiln 4", tool="fire_pot", cosine=0.9)
    asked.add(0, "message", "Shall I try again?")
    asked.add(0, "failure", "no flame", tool="fire_pot")
    assert asked.answer().order[0] == "2"


def test_of_failures_that_say_the_same_the_newest_is_told() -> None:
    asked = Asked("Did any gate call error out?")
    for day in range(3):
        asked.add(day, "call", "lane", tool="gate_tail", minute=1_440 * day)
        asked.add(day, "failure", f"E{day} tag", tool="gate_tail", minute=1_440 * day + 1)
    assert asked.answer().order[0] == "5"


def test_what_came_after_an_error_that_is_called_by_its_code() -> None:
    asked = Asked("What came next after the 409 on the firing of kiln 4?")
    asked.add(0, "call", "kiln 4 firing", tool="look_up")
    asked.add(0, "result", "kiln 4 firing at noon", tool="look_up", cosine=0.9)
    asked.add(0, "call", "kiln 4", tool="fire_pot")
    asked.add(0, "failure", "409 Conflict", tool="fire_pot")
    asked.add(0, "message", "The kiln is taken; I ask the potter for a firing")
    asked.add(0, "call", "kiln 4 permit", tool="ask_potter")
    asked.add(0, "result", "granted", tool="ask_potter")
    answer = asked.answer()
    assert answer.order[0] in ("5", "6")
    assert answer.decides


def test_an_identifier_that_a_story_has_makes_up_for_words_that_nobody_used() -> None:
    def confidence(question: str) -> float:
        asked = Asked(question)
        for kiln in range(20):
            asked.add(kiln, "call", f"kiln {kiln}", tool="fire_pot")
        asked.add(20, "call", "order GL-77/3 cobalt", tool="mix_glaze")
        asked.add(20, "failure", "E-9 cobalt wants a signature", tool="mix_glaze")
        return asked.answer().confidence

    named = confidence("Why did the colour request GL-77/3 come to grief?")
    assert named >= 0.3  # 0.19 before the judge looked at it
    assert confidence("Why did the colour request come to grief?") < 0.05


def test_when_it_was_is_when_it_went_through_and_not_when_it_was_looked_up() -> None:
    asked = Asked("When was the firing of the kiln that was accepted?")
    asked.add(0, "call", "kiln", tool="stoke")
    asked.add(0, "failure", "kiln wants a cone", tool="stoke")
    asked.add(0, "call", "kiln", tool="search_handbook")
    said = "a firing of the kiln is accepted with a cone"
    asked.add(0, "result", said, tool="search_handbook", cosine=0.9)
    asked.add(0, "call", "kiln cone 6", tool="stoke")
    asked.add(0, "result", "queued", tool="stoke")
    given = asked.answer()
    assert given.order[0] == "5"
    assert given.value == moment(5)


def test_when_it_was_is_not_when_something_was_done_for_it() -> None:
    asked = Asked("On what day did the firing of the kiln take place?")
    asked.add(0, "call", "kiln", tool="weather_now")
    asked.add(0, "result", "for a firing of the kiln: dry", tool="weather_now", cosine=0.9)
    asked.add(0, "call", "kiln", tool="stoke")
    asked.add(0, "failure", "kiln wants a cone", tool="stoke")
    asked.add(0, "call", "kiln cone 6", tool="stoke")
    asked.add(0, "result", "queued", tool="stoke")
    assert asked.answer().value == moment(5)


def test_when_it_was_looked_up_is_when_that_was_done() -> None:
    asked = Asked("When was the handbook searched for the kiln?")
    asked.add(0, "call", "kiln", tool="fire_kiln")
    asked.add(0, "failure", "kiln wants a cone", tool="fire_kiln")
    asked.add(0, "call", "kiln", tool="search_handbook")
    asked.add(0, "result", "kiln firings want a cone", tool="search_handbook")
    asked.add(0, "call", "kiln cone 6", tool="fire_kiln")
    asked.add(0, "result", "queued", tool="fire_kiln")
    assert asked.answer().order[0] in ("2", "3")


def test_what_is_was_not_set_by_an_attempt_that_failed() -> None:
    asked = Asked("Which strategy is for pot P-421?")
    for strategy, kind in (("all strategy", "failure"), ("slow", "result")):
        asked.add(0, "call", f"pot P-421 strategy {strategy}", tool="fire_pot")
        asked.add(0, kind, "pot", tool="fire_pot")
    assert asked.answer().order[0] in ("2", "3")


@pytest.mark.parametrize(
    "question", ["Who approved CH-80?", "Who merged CH-80?", "When was CH-80 closed?"]
)
def test_who_opened_something_has_not_settled_it(question: str) -> None:
    asked = Asked(question)
    asked.add(0, "call", "title Rehash", tool="open_change")
    asked.add(0, "result", "CH-80 open", tool="open_change")
    asked.add(0, "message", "CH-80 is open, it waits for a review by Jonas", agent="dev")
    assert asked.answer().confidence == 0.0


def test_that_somebody_approved_one_thing_says_nothing_of_another() -> None:
    asked = Asked("Who approved PO-613?")
    asked.add(0, "call", "referral RF-77", tool="approve_referral")
    asked.add(0, "result", "approved RF-77", tool="approve_referral")
    asked.add(1, "call", "gloves", tool="place_order")
    asked.add(1, "result", "order PO-613", tool="place_order")
    assert asked.answer().confidence == 0.0


def test_who_tells_of_an_act_is_not_who_did_it() -> None:
    asked = Asked("Who approved RQ-31?")
    asked.add(0, "call", "limit", tool="raise_quota")
    asked.add(0, "result", "limit raised", tool="raise_quota")
    asked.add(0, "message", "a director has to approve RQ-31 or approved is nothing")
    given = asked.answer()
    assert (given.order[0], given.value) == ("2", None)


def test_who_asked_for_an_act_is_the_person_before_it() -> None:
    asked = Asked("Who asked for the rollback of billing?")
    asked.add(0, "message", "it is slow, undo it", author="mateo")
    asked.add(0, "call", "billing rollback", tool="rollback_service")
    asked.add(0, "result", "billing rollback done", tool="rollback_service")
    assert asked.answer().value == "mateo"


def test_whoever_asks_who_did_it_did_nothing() -> None:
    asked = Asked("Who pays the bill?")
    asked.add(0, "message", "who pays the bill?", author="tom")
    asked.add(0, "message", "the insurance pays")
    asked.add(0, "call", "bill", tool="send_bill")
    assert asked.answer().order[0] != "0"


def test_a_thing_lasts_from_the_event_that_opens_it_to_the_one_that_ends_it() -> None:
    asked = Asked("How long did AL-90 last?")
    asked.add(0, "other", "AL-90", type="alert.raised", minute=0)
    asked.add(0, "call", "AL-90", tool="page", minute=3)
    asked.add(1, "other", "AL-90", type="alert.resolved", minute=20)
    given = asked.answer()
    assert (given.value, given.evidence) == ("20 min", ["0", "2"])


def test_a_thing_without_a_name_lasts_as_long_as_its_story_tells() -> None:
    asked = Asked("How long did the alarm last?")
    asked.add(0, "other", "alarm in the cellar", type="alarm.raised", minute=1)
    asked.add(0, "call", "cellar", tool="open_valve", minute=3)
    asked.add(0, "result", "open", tool="open_valve", minute=4)
    asked.add(0, "other", "alarm in the cellar", type="alarm.cleared", minute=9)
    asked.add(1, "message", "the lift is out again", minute=900)
    assert (asked.answer().value, asked.answer().evidence) == ("8 min", ["0", "3"])


def test_why_it_was_refused_is_told_by_the_tool_that_is_called_so() -> None:
    asked = Asked("Why was the push rejected?")
    asked.add(0, "message", "move it, we test before each push", author="ana")
    asked.add(0, "call", "kiln", tool="run_tests")
    asked.add(0, "failure", "two tests rejected before the push", tool="run_tests")
    asked.add(0, "call", "kiln branch", tool="git_push")
    asked.add(0, "failure", "a review is missing", tool="git_push")
    assert asked.answer().order[0] == "4"


def test_a_failure_is_known_by_the_story_that_it_ends() -> None:
    asked = Asked("Why couldn't the basket of plums be sent?")
    asked.add(0, "message", "a basket of plums for the neighbours", author="ilja")
    asked.add(0, "failure", "courier away", tool="post_parcel")
    asked.add(1, "message", "mow the lawn", author="vera")
    asked.add(1, "failure", "blade blocked", tool="start_mower")
    assert asked.answer().order[0] == "1"


def test_a_decision_that_says_why_is_meant_before_a_failure() -> None:
    asked = Asked("Why was bark mulch given up?")
    asked.add(0, "decision", "give up bark mulch because it feeds slugs")
    asked.add(1, "failure", "blade blocked", tool="start_mower")
    assert asked.answer().order[0] == "0"


def test_what_is_refused_without_an_error_is_told_by_what_refused_it() -> None:
    asked = Asked("Why did I not approve RV-90 at first?")
    asked.add(0, "other", "review RV-90 asked")
    asked.add(0, "other", "review RV-90 reasons plot missing, no holdout", type="review.submitted")
    asked.add(0, "failure", "module missing", tool="run_notebook")
    assert asked.answer().order[0] == "1"


def test_what_is_named_by_a_number_that_nobody_said_is_not_known() -> None:
    asked = Asked("What was the harvest of TRI-90?")
    asked.add(0, "result", "trial TRI-4 harvest 31", tool="finish_trial")
    assert asked.answer().confidence == 0.0
    like = Asked("Have we seen this before: HarvestError: trial TRI-90 flooded")
    like.add(0, "failure", "harvesterror trial TRI-4 flooded", tool="finish_trial")
    assert like.answer().confidence > 0.0


@pytest.mark.parametrize(
    ("question", "type_"),
    [
        ("I was not listening to kiln-0712. Headlines?", "summary"),
        ("Was the glaze spoken of in kiln-0712?", "events"),
        ("Headlines about the glaze?", "events"),
    ],
)
def test_a_session_of_which_nothing_else_is_said_is_meant_as_a_whole(
    question: str, type_: str
) -> None:
    asked = Asked(question)
    is_named = "kiln-0712" in question
    asked.add(0, "message", "The glaze is too thin", in_session=is_named)
    asked.add(0, "call", "second coat", tool="fire_pot", in_session=is_named)
    asked.add(0, "result", "shelf 3", tool="fire_pot", in_session=is_named)
    answer = asked.answer()
    assert answer.type == type_
    assert (answer.plan.operator is Operator.SUMMARY) is (type_ == "summary")


def test_what_stands_behind_an_act_that_failed_in_no_call_comes_before_it() -> None:
    asked = Asked("Why was the firing of kiln 4 aborted?")
    asked.add(0, "other", "heat 900 to 700", type="config.changed", leads_to=1, minute=1)
    asked.add(1, "other", "kiln 4 firing", type="firing.aborted", minute=60)
    asked.add(1, "message", "The firing of kiln 4 is cold", minute=61)
    assert asked.answer().order[0] == "0"


@pytest.mark.parametrize("asking", ["gave consent to delete", "approved the removal of"])
def test_who_let_something_be_done_is_not_who_then_did_it(asking: str) -> None:
    asked = Asked(f"By whom was it that somebody {asking} snap-31? Who {asking} it?")
    asked.add(0, "message", "please delete snap-31", **BY_ANN)
    asked.add(0, "call", "snap-31", tool="snaps.delete", **OF_ANN)
    asked.add(0, "failure", "snap-31 is locked", tool="snaps.delete", **OF_ANN)
    asked.add(0, "call", "snap-31", tool="owner.ask", **OF_ANN)
    asked.add(0, "result", "consent given, approved the removal", tool="owner.ask", **OF_ANN)
    asked.add(0, "call", "snap-31 delete", tool="snaps.delete", **OF_ANN)
    asked.add(0, "result", "removal of snap-31 deleted", tool="snaps.delete", **OF_ANN)
    assert asked.answer().order[0] == "4"


def test_who_lifted_a_lock_is_told_by_what_let_it_through() -> None:
    asked = Asked("I want to thank whoever lifted the retention lock on snap-31. Who was it?")
    refused = "retention lock: snap-31 is cited, only a principal may lift it"
    asked.add(0, "message", "delete snap-31", author="ana")
    asked.add(0, "call", "target snap-31 force no", tool="purge")
    asked.add(0, "failure", refused, tool="purge", cosine=0.9)
    asked.add(0, "call", "reason quota", tool="ask_principal")
    asked.add(0, "result", "yes, answered by ilse", tool="ask_principal")
    asked.add(0, "call", "target snap-31 key", tool="purge")
    asked.add(0, "result", "gone", tool="purge")
    assert asked.answer().order[0] == "3"


@pytest.mark.parametrize("asking", ["waved run-81 to the front", "cleared run-81 for the kiln"])
def test_who_let_it_through_is_asked_in_words_of_no_tool(asking: str) -> None:
    asked = Asked(f"Can it be that nobody remembers who {asking}?")
    asked.add(0, "message", "mine waits behind all", cosine=-0.9, **BY_ANN)
    asked.add(0, "call", "run-81 priority 9", tool="sched.update", cosine=0.9, **OF_ANN)
    asked.add(0, "failure", "run-81 over the ceiling", tool="sched.update", cosine=0.8, **OF_ANN)
    asked.add(0, "call", "page duty", tool="pager.send", **OF_ANN)
    asked.add(0, "result", "ack by rosalind", tool="pager.send", **OF_ANN)
    asked.add(0, "call", "run-81 priority 9 flag", tool="sched.update", **OF_ANN)
    asked.add(0, "result", "run-81 moved", tool="sched.update", **OF_ANN)
    assert asked.answer().order[0] == "4"


def test_what_made_a_thing_is_no_failure_that_does_not_say_it() -> None:
    asked = Asked("MN-19437 is on the bill, what produced it?")
    asked.add(0, "call", "extract 28", tool="download")
    asked.add(0, "failure", "blocked, a steward has to sign", tool="download")
    asked.add(0, "call", "extract 28", tool="download")
    asked.add(0, "result", "manifest MN-19437", tool="download")
    assert asked.answer().order[0] == "3"


def test_what_went_through_is_the_act_whose_call_names_it() -> None:
    asked = Asked("The accepted invoice SI-265: what happened a moment earlier?")
    asked.add(0, "message", "send SI-265, please", author="ana")
    asked.add(0, "call", "invoice SI-265", tool="find_invoice")
    asked.add(0, "result", "invoice SI-265", tool="find_invoice")
    asked.add(0, "call", "SI-265", tool="submit")
    asked.add(0, "failure", "SI-265 order is closed", tool="submit")
    asked.add(0, "message", "take order PO-7", author="ana")
    asked.add(0, "call", "SI-265 PO-7", tool="submit")
    asked.add(0, "result", "accepted", tool="submit")
    assert asked.answer().order[0] == "5"


@pytest.mark.parametrize("ok", ["the OK", "its blessing", "the green light"])
def test_who_gave_leave_is_told_by_what_came_of_asking(ok: str) -> None:
    asked = Asked(f"Who gave {ok} for basket BK-7?")
    asked.add(0, "call", "basket BK-7", tool="checkout")
    asked.add(0, "failure", "basket BK-7 is above the limit", tool="checkout")
    asked.add(0, "call", "basket BK-7", tool="ask_parent")
    asked.add(0, "result", "yes, answered by renske", tool="ask_parent")
    asked.add(0, "call", "basket BK-7 pay", tool="checkout", cosine=0.9)
    asked.add(0, "result", "paid", tool="checkout")
    assert asked.answer().order[0] == "3"


@pytest.mark.parametrize(
    ("question", "is_asked"),
    [
        ("Why did we get the E-COLD on BATH-7?", True),
        ("Why is there trouble with BATH-7?", False),
        ("Why was BATH-7 refused?", False),
        ("Why did we get the E-COLD on BATH-8?", False),
        ("When did the E-COLD on BATH-7 come?", False),
    ],
)
def test_a_failure_that_is_named_by_what_it_says_is_no_cause_of_it(
    question: str, *, is_asked: bool
) -> None:
    asked = Asked(question)
    asked.add(0, "message", "run a bath, BATH-7", author="ana")
    asked.add(0, "call", "BATH-7", tool="fill_bath")
    asked.add(0, "failure", "BATH-7 E-COLD inflow too cool", tool="fill_bath")
    assert asks_behind(asked.stories.stories(), asked.terms, asked.plan) is is_asked


def test_a_value_that_had_to_be_put_right_is_what_went_through() -> None:
    asked = Asked("What is the tablet of Ann Lee?")
    ann = {"author": "ann.lee", "named": True, "theirs": True}
    asked.add(0, "message", "my tablet shows no jobs, it is TAB-1", **ann)
    asked.add(0, "call", "TAB-1", tool="jobs.push")
    asked.add(0, "failure", "unknown tag", tool="jobs.push")
    asked.add(0, "message", "the sticker says TAB-2", **ann)
    asked.add(0, "call", "TAB-2", tool="jobs.push")
    asked.add(0, "result", "pushed", tool="jobs.push")
    assert asked.answer().order[0] == "4"


def test_a_value_of_a_day_is_what_was_set_before_it() -> None:
    asked = Asked(f"What was the queue of Ann Lee on {moment(3_000)[:10]}?")
    ann = {"author": "ann.lee", "named": True, "theirs": True}
    asked.add(0, "message", "my queue is ember from now on", minute=0, **ann)
    asked.add(0, "call", "ann.lee queue ember", tool="defaults.write", minute=1)
    asked.add(0, "result", "applied", tool="defaults.write", minute=2)
    asked.add(1, "message", "the run is slow", minute=3_000, **ann)
    asked.add(1, "call", "run", tool="runs.retry", minute=3_001)
    asked.add(1, "result", "run queued in queue", tool="runs.retry", minute=3_002)
    assert int(asked.answer().order[0]) < 3


@pytest.mark.parametrize("tool", ["GET /channel/slots", "slots.get"])
def test_a_value_of_a_day_that_no_record_says_is_by_the_tools_of_the_thing(tool: str) -> None:
    asked = Asked(f"What was the stream hour of Ann Lee on {moment(3_000)[:10]}?")
    asked.add(0, "message", "when am I on air?", minute=0, **BY_ANN)
    asked.add(0, "call", "ann", tool=tool, minute=1, **OF_ANN)
    asked.add(0, "result", "Fridays 21:00", tool=tool, minute=2, **OF_ANN)
    asked.add(1, "message", "a new stream hour, Saturdays 15:00", minute=6_000, **BY_ANN)
    asked.add(1, "call", "Saturdays 15:00", tool="PUT /channel/slots", minute=6_001, **OF_ANN)
    asked.add(1, "result", "done", tool="PUT /channel/slots", minute=6_002, **OF_ANN)
    assert asked.answer().order[0] == "2"


def test_what_was_set_before_is_by_the_same_tool_where_no_record_has_the_words() -> None:
    asked = Asked("What was the voice of the hero of Ann Lee before the last change?")
    asked.add(0, "message", "we take Ben Harlow", **BY_ANN)
    asked.add(0, "call", "actor Ben Harlow", tool="casting.recast", **OF_ANN)
    asked.add(0, "result", "updated", tool="casting.recast", **OF_ANN)
    asked.add(1, "message", "voice of the hero: Wendell Pryce", **BY_ANN)
    asked.add(1, "call", "actor Wendell Pryce", tool="casting.recast", **OF_ANN)
    asked.add(1, "result", "updated", tool="casting.recast", **OF_ANN)
    assert asked.answer().order[0] == "1"


def test_a_value_that_was_looked_up_is_not_told_by_who_asked_for_it() -> None:
    asked = Asked("What is the continent of the tests of Ann Lee?")
    asked.add(0, "message", "on which continent do my tests run, it is slow.", **BY_ANN)
    asked.add(0, "call", "ann", tool="region/get", **OF_ANN)
    asked.add(0, "result", "city Santiago", tool="region/get", **OF_ANN)
    asked.add(0, "message", "thanks", **BY_ANN)
    assert asked.answer().order[0] == "2"


def test_when_something_was_done_is_not_when_an_agent_said_that_it_would_be() -> None:
    asked = Asked("On which day could you finally rename the impostor of Ann Lee?")
    asked.add(0, "message", "someone uses my name", **BY_ANN)
    asked.add(0, "message", "I'll have the impostor renamed", author="helper", **OF_ANN)
    asked.add(1, "call", "impersonation", tool="forum.rename", author="helper", **OF_ANN)
    asked.add(1, "result", "done", tool="forum.rename", author="helper", **OF_ANN)
    assert asked.answer().order[0] == "3"


@pytest.mark.parametrize(
    ("question", "first"),
    [
        ("When was the lid of Ann Lee mended, was that done?", "3"),
        ("We said we would mend the lid of Ann Lee. When was that done?", "3"),
        ("When did somebody say that the lid of Ann Lee gets mended?", "1"),
    ],
)
def test_what_an_agent_said_would_be_done_was_when_an_act_kept_it(
    question: str, first: str
) -> None:
    asked = Asked(question)
    asked.add(0, "message", "my lid is broken", **BY_ANN)
    words = "i'll have the lid mended, somebody will say when"
    asked.add(0, "message", words, author="helper", kept_by=3, **OF_ANN)
    asked.add(1, "call", "workshop", tool="look.up", author="helper", **OF_ANN)
    asked.add(1, "result", "ring 3", tool="look.up", author="helper", **OF_ANN)
    assert asked.answer().order[0] == first


def test_what_is_behind_a_record_of_a_failure_is_behind_that_of_its_tool() -> None:
    asked = Asked("Why did the setup of laptop NB-56 fail?")
    asked.add(0, "other", "default image gold-29 instead of gold-31", leads_to=1)
    asked.add(1, "failure", "enrolment failed gold-31", type="device.enrol_failed")
    asked.add(1, "message", "the setup of laptop NB-56 hangs", author="ann")
    asked.add(1, "call", "laptop NB-56", tool="device.enrol")
    asked.add(1, "failure", "laptop NB-56 wants gold-31: no such profile", tool="device.enrol")
    assert asked.answer().order[:2] == ["0", "4"]


def test_when_something_was_done_is_when_it_went_through_in_a_later_session() -> None:
    asked = Asked("When was the acceptance of the background check on the new controller?")
    ann = {"user": "ann", "theirs": True}
    words = "the background check on my new controller is not begun, start the background check"
    asked.add(0, "message", words, author="ann", **ann)
    asked.add(0, "call", "check controller", tool="vetting.create", **ann)
    asked.add(0, "failure", "consent is lacking", tool="vetting.create", **ann)
    asked.add(1, "message", "once more please", author="ann", **ann)
    asked.add(1, "call", "check", tool="vetting.create", **ann)
    asked.add(1, "result", "running", tool="vetting.create", **ann)
    assert asked.answer().order[0] == "5"


def test_whose_failure_it_was_is_told_by_the_tool_and_not_by_its_record() -> None:
    asked = Asked("Which users had a dead link?")
    asked.add(0, "failure", "dead link", type="link_dead", user="ann")
    asked.add(0, "call", "link", tool="link.status", user="ann")
    asked.add(0, "failure", "suspended", tool="link.status", user="ann")
    answer = asked.answer()
    assert (answer.order[0], answer.value) == ("2", ["ann"])


def test_the_last_message_is_no_topic() -> None:
    asked = Asked("Ann's last msg")
    ann = {"author": "ann", "named": True, "theirs": True}
    asked.add(0, "message", "ann here, the log of ann", **ann)
    asked.add(0, "message", "off to court", **ann)
    assert asked.answer().order[0] == "1"
    assert asked.answer().decides


def test_what_an_identifier_is_of_is_no_name_of_an_act() -> None:
    asked = Asked("What day was the payout on claim MC-99?")
    asked.add(0, "message", "pay claim MC-99", author="ann")
    asked.add(0, "call", "MC-99", tool="claims.get")
    asked.add(0, "result", "MC-99 payout open", tool="claims.get")
    asked.add(0, "call", "MC-99", tool="payments.release")
    asked.add(0, "failure", "second signature needed", tool="payments.release")
    asked.add(0, "call", "MC-99 signed", tool="payments.release")
    asked.add(0, "result", "released", tool="payments.release")
    assert asked.answer().order[0] == "6"


def test_who_let_it_through_is_told_by_what_came_of_asking() -> None:
    asked = Asked("Who cleared the alert wording of PS-921?")
    asked.add(0, "message", "send the alert of PS-921", author="ann")
    asked.add(0, "call", "PS-921", tool="push.send")
    asked.add(0, "failure", "wording of PS-921 not cleared", tool="push.send")
    asked.add(0, "message", "Legal flag on it, I have woken them.")
    asked.add(0, "call", "PS-921 alert wording", tool="legal.read")
    asked.add(0, "result", "fit to send, counsel Rosa", tool="legal.read")
    asked.add(0, "call", "PS-921", tool="push.send")
    asked.add(0, "result", "queued", tool="push.send")
    assert asked.answer().order[0] == "5"


@pytest.mark.parametrize(("tool", "first"), [("refresh_cache", "3"), ("get_cache", "0"), ("", "0")])
def test_what_helped_where_nothing_was_tried_again_is_what_was_done_since(
    tool: str, first: str
) -> None:
    asked = Asked("What fixed the problem with the kiln door?")
    asked.add(0, "message", "the kiln door has a problem", author="ann")
    asked.add(0, "call", "ann", tool="open_door").add(0, "failure", "stale", tool="open_door")
    if tool:
        asked.add(0, "call", "ann", tool=tool).add(0, "result", "fresh", tool=tool)
    asked.add(0, "message", "done, press once more", author="bot")
    assert asked.answer().order[0] == first


def test_how_often_something_failed_counts_no_words_of_it() -> None:
    asked = Asked("How often was Ann locked out of the studio?")
    for story in range(3):
        asked.add(story, "call", "ann", tool="open_studio", theirs=True)
        asked.add(story, "failure", "studio stale", tool="open_studio", theirs=True)
    asked.add(2, "message", "I am locked out of the studio", author="ann", named=True, theirs=True)
    assert asked.answer().evidence == ["1", "3", "5"]


@pytest.mark.parametrize(("place", "is_known"), [("Delft", True), ("Ghent", False)])
def test_a_change_behind_a_failure_that_is_named_is_known(place: str, *, is_known: bool) -> None:
    asked = Asked(f"What is the root cause of the glaze failure at {place}?")
    asked.add(0, "other", "heat 900 to 700", type="config.changed", leads_to=2, minute=1)
    asked.add(1, "call", "Delft", tool="fire_pot", minute=60)
    asked.add(1, "failure", "Delft glaze is cold", tool="fire_pot", minute=61)
    answer = asked.answer()
    assert answer.order[0] == "0"
    assert (answer.confidence >= 0.9) is is_known


def test_what_is_named_is_not_told_by_what_speaks_of_another() -> None:
    asked = Asked("The reference act.759 occurs in our working papers; please explain it.")
    asked.add(0, "message", "please confirm REQ-8, for our working papers", author="ann")
    asked.add(1, "message", "the host is back, action act.759", author="bot")
    assert asked.answer().order[0] == "1"


def test_what_a_reference_is_of_is_told_by_what_says_it() -> None:
    asked = Asked("There's act.759 scribbled on the back of ann's hand")
    asked.add(0, "message", "can they dance until two?", author="ann", named=True, theirs=True)
    asked.add(0, "call", "dance 02:00", tool="extend_dance", theirs=True)
    asked.add(0, "result", "act.759 extended", tool="extend_dance", theirs=True)
    asked.add(0, "message", "ann: thanks, bye", author="ann", named=True, theirs=True, cosine=0.3)
    assert asked.answer().order[0] == "2"


@pytest.mark.parametrize(
    ("question", "names_a_field"),
    [("act.759, it is which paper please", False), ("What is the deadline of act.759?", True)],
)
def test_what_a_reference_is_of_is_no_field_of_it(question: str, *, names_a_field: bool) -> None:
    asked = Asked(question)
    asked.add(0, "result", "act.759 extended", tool="extend_dance")
    told = asked.stories.stories()
    features = features_of(told, asked.terms, asked.plan, NOW_MS)
    assert (stating(told, features, asked.terms) is not None) is names_a_field


@pytest.mark.parametrize(
    "question",
    [
        "What was the kiln certificate of the furnaces before?",  # nobody says furnaces
        "It'd be good to have the number of KILN.",  # of what: in words that only ask
    ],
)
def test_what_is_found_is_judged_where_words_around_the_value_are_unheard_of(question: str) -> None:
    asked = Asked(question)
    asked.add(0, "other", "kiln certificate from crt-1 to crt-2", type="config.changed")
    asked.add(1, "message", "the wheel turns again", author="ann")
    answer = asked.answer()
    assert (answer.order[0], answer.confidence > 0) == ("0", True)


def test_who_is_to_be_asked_is_told_by_words_and_not_by_who_said_them() -> None:
    for question, value in (
        ("Who should be called first about the kiln?", None),
        ("Who asked about the kiln?", "ann"),
    ):
        asked = Asked(question)
        asked.add(0, "message", "about the kiln: call Radomir first", author="ann")
        asked.add(0, "call", "note", tool="add_note").add(0, "result", "ok", tool="add_note")
        assert asked.answer().value == value


@pytest.mark.parametrize(
    ("question", "first"), [("Why was my kiln cold?", "2"), ("Why did Ann want a warm kiln?", "0")]
)
def test_why_is_told_by_the_failure_and_not_by_who_complains(question: str, first: str) -> None:
    asked = Asked(question)
    asked.add(0, "message", "ann: my kiln is cold, I wanted it warm", author="ann", cosine=0.9)
    asked.add(0, "call", "900", tool="fire").add(0, "failure", "E-LOW", tool="fire")
    assert asked.answer().order[0] == first


@pytest.mark.parametrize(
    ("question", "is_known"),
    [
        ("Which kiln did Ann Lee want hot?", True),
        ("Which kiln did Ann want hot?", True),
        ("Which kiln did Ann Quirke want hot?", False),  # only shares the name that she is given
        ("Which kiln did Zofia Lee want hot?", False),  # or that of her family
        ("Which kiln did Potter Ann want hot?", True),
        ("Which kiln did Zofia Quirke-Lee want hot?", True),  # shares no whole name
        ("Ann's Quirkoven: which kiln did she want hot?", True),
    ],
)
def test_who_shares_one_name_is_not_known(question: str, *, is_known: bool) -> None:
    asked = Asked(question)
    asked.add(0, "message", "I want the kiln hot", author="ann.lee", user="ann", named=True)
    assert (asked.answer().confidence > 0) is is_known


def test_an_error_that_is_pasted_may_have_a_number_of_its_own() -> None:
    for error, is_known in (
        ("kiln controller exited (137) c3-91: cannot reach cone", True),
        ("c3-91: kiln", False),
    ):
        asked = Asked(f"Help, a queue at the door and I get {error}")
        asked.add(0, "call", "K-2", tool="fire")
        asked.add(0, "failure", "kiln controller exited 137 c8-77 cannot reach cone", tool="fire")
        assert (asked.answer().confidence > 0) is is_known


def test_what_a_reference_is_needs_no_record_of_where_it_stands() -> None:
    asked = Asked("what's GE-93-S, it's on a letter without a header")
    asked.add(0, "result", "granted licence GE-93-S", tool="grant_licence")
    assert asked.answer().confidence > 0


def test_when_it_was_done_is_told_by_what_kept_the_words_that_were_found_soon() -> None:
    asked = Asked("When was the charging credit put on the account?")
    asked.add(0, "message", "is the kiln alright? my account is unhappy", author="ann", user="ann")
    asked.add(0, "call", "charging account", tool="put_state", user="ann")
    asked.add(0, "result", "put charging account", tool="put_state", user="ann", cosine=0.9)
    promise = "I put a charging credit on your account by Monday"
    asked.add(1, "message", promise, user="ann", minute=1, kept_by=5, cosine=0.5)
    asked.add(2, "call", "37", tool="top_up", user="ann", minute=500)
    asked.add(2, "result", "ok", tool="top_up", user="ann", minute=501)
    assert asked.answer().order[0] == "5"
