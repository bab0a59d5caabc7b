"""Questions that the records of tools answer: who, which, how many, how long, what changed."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from api.retrieval.planning import plan_of
from tests.bench.small import Edition
from tests.integration.ledger_of_sessions import (
    Told,
    call,
    edition_of,
    error,
    result,
    said_by_agent,
    said_by_user,
)

pytestmark = pytest.mark.integration

_NOW: Final = datetime.now(UTC).replace(microsecond=0)


SESSIONS: Final[tuple[Told, ...]] = (
    (
        *("kiln-1", 9.0, "olga", "kiln-agent"),
        (
            said_by_user("My locker is 17. Please fire batch B-40 in kiln K-2."),
            call("load_kiln", kiln="K-2", batch="B-40", shelf="upper"),
            error("load_kiln", "upper shelf is cracked"),
            call("load_kiln", kiln="K-2", batch="B-40", shelf="lower"),
            result("load_kiln", kiln="K-2", batch="B-40", loaded=True),
            said_by_agent("B-40 is in kiln K-2. I will send you a photo when it is open."),
        ),
    ),
    (
        *("kiln-2", 7.0, "rui", "kiln-agent"),
        (
            said_by_user("I repaired the thermostat of K-2, please heat it to 900 degrees."),
            call("heat_kiln", kiln="K-2", temperature_c=900),
            error("heat_kiln", "K-2 is out of order: report M-5 is open"),
            call("close_report", report="M-5", remark="thermostat repaired"),
            result("close_report", report="M-5", state="closed"),
            call("heat_kiln", kiln="K-2", temperature_c=900),
            result("heat_kiln", kiln="K-2", temperature_c=900),
            said_by_user("I live in Faro, by the way."),
        ),
    ),
    (
        *("shop-1", 5.0, None, "shop-agent"),
        (
            call("open_report", kiln="K-3", title="Door jams"),
            result("open_report", report="M-6", assignee="Lina Okafor"),
            call("print_labels", prefix="B"),
            result("print_labels", printed=36),
            call("buy_clay", item="white clay", supplier="Terra Nova", quantity=12),
            result("buy_clay", purchase="PU-9", total_eur=81.5, delivery="2026-12-04"),
        ),
    ),
    (
        *("kiln-3", 3.0, "olga", "kiln-agent"),
        (
            said_by_user("My locker is 23 now."),
            said_by_user("Such numbers I would rather have in euros."),
            call("inspect_batch", batch="B-40"),
            result("inspect_batch", batch="B-40", pieces=48, broken_pieces=5),
        ),
    ),
    (
        *("night", 1.0, None, "shop-agent"),
        (
            call("sync_stock", to="warehouse"),
            error("sync_stock", "warehouse does not answer"),
            call("sync_stock", to="warehouse"),
            error("sync_stock", "warehouse does not answer"),
        ),
    ),
    (
        *("course-1", 2.8, "ines", "desk-agent"),
        (
            said_by_user(
                "Please book me into the throwing course. And could you stop sending me flyers? "
                "Text me on my phone instead. My new address is Harbour Road 8."
            ),
            call("book_place", course="throwing", day="Thursday"),
            error("book_place", "the throwing course is full on Thursday"),
            call("book_place", course="throwing", day="Friday"),
            result("book_place", place="PL-4", day="Friday", room="north"),
            said_by_agent("You are in on Friday. I will send you the list of tools tomorrow."),
        ),
    ),
    (
        *("course-2", 2.6, "ines", "desk-agent"),
        (
            said_by_user("I cannot come on Friday, another day please."),
            call("book_place", course="throwing", day="Sunday"),
            result("book_place", place="PL-5", day="Sunday", room="south"),
        ),
    ),
    (
        *("desk-1", 2.4, None, "desk-agent"),
        (
            call("set_fee", course="throwing", fee_eur=55),
            result("set_fee", course="throwing", fee_eur=55),
            (
                "agent.decision",
                {"text": "The fee goes from 48 to 55 because clay has become dearer"},
                "",
            ),
            call("open_report", kiln="K-3", title="Door jams again"),
            result("open_report", report="M-7", assignee="Lina Okafor"),
            call("close_report", report="M-6", remark="goes on as M-7"),
            result("close_report", report="M-6", state="closed"),
        ),
    ),
    (
        *("orders-1", 2.3, None, "desk-agent"),
        (
            ("order.sent", {"order": "OR-4", "channel": "email"}, ""),
            ("order.bounced", {"order": "OR-4", "reason": "mailbox full"}, ""),
            ("order.sent", {"order": "OR-4", "channel": "post"}, ""),
            ("payment.failed", {"payment": "PY-1", "order": "OR-4", "error": "card expired"}, ""),
            ("payment.received", {"payment": "PY-2", "order": "OR-4", "amount_eur": 90}, ""),
        ),
    ),
    (
        *("yard-1", 2.2, "rui", "desk-agent"),
        (
            said_by_agent("The wheel W-9 stands in the yard. Who moved it?"),
            said_by_user("Lina did, on Monday."),
        ),
    ),
)


@pytest.fixture(scope="module")
def edition() -> Iterator[Edition]:
    with edition_of("records", SESSIONS, _NOW) as edition:
        yield edition


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("Who is assigned to M-6?", "Lina Okafor"),
        ("Who repaired the thermostat of K-2?", "rui"),
        ("Which shelf was used for B-40?", "lower"),
        ("From which supplier did we buy the clay?", "Terra Nova"),
        ("Which supplier sold us the clay?", "Terra Nova"),
        ("Who is the supplier?", "Terra Nova"),
        ("What temperature is K-2 set to?", "900"),
        ("What is the status of M-5?", "closed"),
        ("When will PU-9 be delivered?", "2026-12-04"),
        ("How much did PU-9 cost?", "81.5"),
        ("How many labels were printed?", 36),
        ("How many pieces of B-40 are broken?", 5),
        ("What was Olga's locker before?", "17"),
        ("What is Olga's locker now?", "23"),
        ("Which sessions had failures?", ["kiln-1", "kiln-2", "course-1", "orders-1", "night"]),
        ("How many sessions had failures?", 5),
        ("Which users had failures?", ["olga", "rui", "ines"]),
        ("Which agent failed most often?", "kiln-agent"),
        ("When is the throwing course?", "Sunday"),
        ("What was the fee of the throwing course before?", "48"),
        ("Which reports are still open?", ["M-7"]),
        ("Who moved the wheel W-9?", "rui: Lina did, on Monday."),
        ("Is OR-4 paid?", "payment.received: order: OR-4; payment: PY-2; amount_eur: 90"),
        ("How many orders were sent by email?", 1),
        (
            "Why was OR-4 sent by post?",
            "order.sent: order: OR-4; channel: post \u2190 "
            "order.bounced: order: OR-4; reason: mailbox full",
        ),
        (
            "What happened to OR-4?",
            [
                "order.sent: order: OR-4; channel: email",
                "order.bounced: order: OR-4; reason: mailbox full",
                "order.sent: order: OR-4; channel: post",
                "payment.failed: card expired; order: OR-4; payment: PY-1",
                "payment.received: order: OR-4; payment: PY-2; amount_eur: 90",
            ],
        ),
        ("How long did kiln-1 take?", "2 min 30 s"),
        ("How long did it take to fix the heating of K-2?", "2 min"),
    ],
)
def test_what_a_record_says_is_the_answer(edition: Edition, question: str, value: Any) -> None:
    answer = edition.ask(question, user_id="*")["answer"]
    assert answer["value"] == value
    assert answer["evidence"]


def test_what_solved_it_is_told_as_a_lesson(edition: Edition) -> None:
    document = edition.ask("How was the failed heating of K-2 solved?", user_id="*")
    told = document["answer"]["value"]
    assert told.startswith(
        "heat_kiln failed: K-2 is out of order: report M-5 is open; went through"
    )
    assert "close_report" in told


def test_who_asks_is_told_what_was_promised_to_them(edition: Edition) -> None:
    document = edition.ask("What did you promise me?", user_id="olga")
    assert document["meta"]["answered"]
    first = document["nodes"][0]["attributes"]["summary"]
    assert first.startswith("kiln-agent: B-40 is in kiln K-2.")


def test_what_failed_yesterday_is_of_yesterday(edition: Edition) -> None:
    document = edition.ask("What failed yesterday?", user_id="*")
    ids = document["answer"]["evidence"]
    told = {node["node_id"]: node["provenance"]["session_id"] for node in document["nodes"]}
    assert {told[one] for one in ids} == {"night"}


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("Where do I live?", "Faro"),
        ("What do you know about me?", ["lives in Faro"]),
        ("What is my new address?", "Harbour Road 8"),
        (
            "What do I prefer?",
            ["wants: Text me on my phone instead", "avoid: sending me flyers"],
        ),
    ],
)
def test_who_asks_about_themselves_is_known(edition: Edition, question: str, value: Any) -> None:
    is_of_rui = "Faro" in str(value)
    document = edition.ask(question, user_id="rui" if is_of_rui else "ines")
    assert document["meta"]["answered"]
    assert document["answer"]["value"] == value


def test_what_did_not_work_is_listed_by_its_name(edition: Edition) -> None:
    document = edition.ask("Which bookings failed?", user_id="*")
    told = document["answer"]["value"]
    assert told == ["book_place failed: the throwing course is full on Thursday"]


@pytest.mark.parametrize(
    "question", ["Why was the fee raised?", "Why was the fee of the throwing course raised?"]
)
def test_a_reason_that_was_given_is_told(edition: Edition, question: str) -> None:
    told = edition.ask(question, user_id="*")["answer"]["value"]
    assert "because clay has become dearer" in told


def test_what_failed_and_says_it_is_told_before_a_field_of_what_worked(edition: Edition) -> None:
    document = edition.ask("Which throwing course is full on Thursday?", user_id="*")
    assert document["answer"]["value"] == (
        "book_place failed: the throwing course is full on Thursday"
    )


def test_a_day_in_a_record_of_something_else_is_no_answer(edition: Edition) -> None:
    value = edition.ask("When does the exhibition end?", user_id="ines")["answer"]["value"]
    assert value not in ("Friday", "Sunday", "Thursday")


def test_the_failure_that_is_named_is_explained(edition: Edition) -> None:
    told = edition.ask("Why did PY-1 fail?", user_id="*")["answer"]["value"]
    assert told.startswith("payment.failed: card expired; order: OR-4; payment: PY-1")


def test_why_something_was_done_is_no_attempt_that_failed(edition: Edition) -> None:
    told = edition.ask("Why was K-2 heated?", user_id="*")["answer"]
    assert told["value"] == (
        "heat_kiln: kiln: K-2; temperature_c: 900 \u2190 "
        "rui: I repaired the thermostat of K-2, please heat it to 900 degrees."
    )


def test_what_is_to_be_done_is_what_is_open_and_what_was_promised(edition: Edition) -> None:
    document = edition.ask("What is still to be done?", user_id="*")
    told = " ".join(document["answer"]["value"])
    assert "report: M-7" in told
    assert "report: M-6" not in told
    assert "I will send you the list of tools tomorrow" in told


def test_a_question_without_a_word_is_not_answered(edition: Edition) -> None:
    assert not edition.ask("?", user_id="*")["meta"]["answered"]


def test_a_guess_that_finds_nothing_is_asked_as_a_plain_question(edition: Edition) -> None:
    question = "What is still to come of the white clay?"
    assert plan_of(question, 0).guessed
    document = edition.ask(question, user_id="*")
    assert document["meta"]["plan"]["operator"] == "search"
    assert "white clay" in document["answer"]["value"]


def test_what_somebody_would_rather_have_is_found_by_a_plain_question(edition: Edition) -> None:
    document = edition.ask("In which currency do I want numbers?", user_id="olga")
    assert document["meta"]["plan"]["operator"] == "search"
    assert document["answer"]["value"] == "olga: Such numbers I would rather have in euros."
