"""A fact is asked for in words that no record has: its tool and its field call it otherwise."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.bench.small import Edition
from tests.integration.ledger_of_sessions import (
    Told,
    call,
    edition_of,
    result,
    said_by_agent,
    said_by_user,
)

pytestmark = pytest.mark.integration

_NOW: Final = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
_BETWEEN: Final = f"{_NOW - timedelta(days=5):%-d %B}"
"""A day after the first car was given and before the second."""
SESSIONS: Final[tuple[Told, ...]] = (
    (
        *("car-1", 9.0, "otto.lind", "fleet-agent"),
        (
            said_by_user("The old one is at the garage. I was told that mine is FL-202 now."),
            call("motorpool.assign", driver="otto.lind", plate="FL-202", depot="south"),
            result("motorpool.assign", ok=1),
            said_by_agent("Noted, all the best."),
        ),
    ),
    (
        *("desk-1", 8.0, "otto.lind", "fleet-agent"),
        (
            said_by_user("Somebody sits at my place."),
            call("floorplan.set", person="otto.lind", seat="4-B"),
            result("floorplan.set", ok=1),
        ),
    ),
    (
        *("car-2", 2.0, "otto.lind", "fleet-agent"),
        (
            said_by_user("It broke down again, they gave me FL-909."),
            call("motorpool.assign", driver="otto.lind", plate="FL-909", depot="south"),
            result("motorpool.assign", ok=1),
        ),
    ),
    (
        *("car-4", 3.0, "otto.berg", "fleet-agent"),
        (
            said_by_user("A van, if you have one."),
            call("motorpool.assign", driver="otto.berg", plate="FL-777", depot="north"),
            result("motorpool.assign", ok=1),
        ),
    ),
    (
        *("car-3", 2.0, "ines.roth", "fleet-agent"),
        (
            said_by_user("Which one may I take?"),
            call("motorpool.assign", driver="ines.roth", plate="FL-345", depot="north"),
            result("motorpool.assign", ok=1),
        ),
    ),
    (
        *("cover-1", 8.0, "otto.berg", "fleet-agent"),
        (
            said_by_user("Swap my stand-in to Cora Pabst, please."),
            call("absence.assign", driver="otto.berg", deputy="Cora Pabst", scope="all"),
            result("absence.assign", ok=1),
        ),
    ),
    (
        *("cover-2", 1.0, "otto.berg", "fleet-agent"),
        (
            said_by_user("Cora is away. Swap my stand-in to Jan Wyatt."),
            call("absence.assign", driver="otto.berg", deputy="Jan Wyatt", scope="all"),
            result("absence.assign", ok=1),
        ),
    ),
    (
        *("home-1", 8.5, "ana", "shop-agent"),
        (said_by_user("Hi, I live in Porto and I want to buy a bike."),),
    ),
    (
        *("home-2", 2.5, "ana", "shop-agent"),
        (
            said_by_user("I have moved: I now live in Coimbra."),
            call("update_address", customer_id="ana", city="Coimbra", street="Rua Larga 4"),
            result("update_address", customer_id="ana", city="Coimbra", status="updated"),
        ),
    ),
)


@pytest.fixture(scope="module")
def edition() -> Iterator[Edition]:
    with edition_of("meaning", SESSIONS, _NOW, "results") as edition:
        yield edition


@pytest.mark.parametrize(
    ("question", "value", "event_of"),
    [
        ("What is the car registration of Otto Lind?", "FL-909", "car-2"),
        ("the car registration of Otto Lind?", "FL-909", "car-2"),
        ("What was the car registration of Otto Lind before?", "FL-202", "car-1"),
        (f"What was Otto Lind's car registration on {_BETWEEN}?", "FL-202", "car-1"),
        ("What is the car registration of Ines Roth?", "FL-345", "car-3"),
        ("Which entry is in force for the desk of Otto Lind?", "4-B", "desk-1"),
        ("Where did Ana live before Coimbra?", "PORTO", "home-1"),
        ("The stand-in of Otto Berg got changed. From what?", "CORA PABST", "cover-1"),
        ("I cannot find the stand-in of Otto Berg.", "JAN WYATT", "cover-2"),
        (f"What was the stand-in of Otto Berg on {_BETWEEN}?", "CORA PABST", "cover-1"),
        ("Where did Ana live before?", "PORTO", "home-1"),
    ],
)
def test_a_fact_is_found_by_what_it_means(
    edition: Edition, question: str, value: str, event_of: str
) -> None:
    document = edition.ask(question)
    assert document["meta"]["answered"]
    assert document["answer"]["value"].upper() == value
    sessions = {node["node_id"]: node["provenance"]["session_id"] for node in document["nodes"]}
    assert sessions[document["answer"]["evidence"][0]] == event_of


@pytest.mark.parametrize(
    "question",
    [
        "What is the shoe size of Otto Lind?",
        "What is the car registration of Otto?",
        "What is the phone number of Otto Lind?",
        "What is the parking space of Otto Lind?",
        "What is the blood group of Ines Roth?",
        "Which entry is in force for the desk of Ines Roth?",
    ],
)
def test_what_nobody_knows_is_no_fact_of_another_kind(edition: Edition, question: str) -> None:
    document = edition.ask(question)
    value = document["answer"]["value"]
    assert value is None or not document["meta"]["answered"]


def test_a_question_of_oneself_is_put_by_name(edition: Edition) -> None:
    document = edition.ask("What is my car registration?", user_id="otto.lind")
    assert (document["meta"]["answered"], document["answer"]["value"].upper()) == (True, "FL-909")
    assert document["meta"]["confidence"] < 1
    before = edition.ask("What was my car registration before?", user_id="otto.lind")
    assert before["answer"]["value"].upper() == "FL-202"


def test_a_fact_of_another_user_is_not_told(edition: Edition) -> None:
    document = edition.ask("What is the car registration of Otto Lind?", user_id="ines.roth")
    assert "FL-909" not in str(document)


def test_whether_something_is_so_asks_for_no_value(edition: Edition) -> None:
    document = edition.ask("Is Otto Lind without a car registration?")
    assert document["answer"]["value"] != "FL-909"
