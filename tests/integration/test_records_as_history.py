"""What records say of one thing goes on: now, before, how many there are, side by side."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import pytest

from tests.bench.small import Edition
from tests.integration.ledger_of_sessions import (
    Step,
    Told,
    edition_of,
    happened,
    said_by_agent,
    said_by_user,
)

pytestmark = pytest.mark.integration

_NOW: Final = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _calls(tool: str, result: Any = None, *, error: str = "", **arguments: Any) -> tuple[Step, ...]:
    outcome = {"error": error} if error else {"result": result}
    return ("tool.call", {"arguments": arguments}, tool), ("tool.result", outcome, tool)


SESSIONS: Final[tuple[Told, ...]] = (
    (
        *("garden-1", 12.0, "vera", "garden-agent"),
        (
            said_by_user("I'm allergic to wasp stings. My gardener is Tomas Riel."),
            said_by_agent("Noted."),
            *_calls(
                "book_pruning",
                {"visit": "VI-7", "at": "2031-05-02T08:00", "crew": 3},
                orchard="north orchard",
            ),
            said_by_agent("The north orchard is pruned on May 2nd. I will bring you the ladder."),
        ),
    ),
    (
        *("garden-2", 11.0, "vera", "garden-agent"),
        (
            said_by_user("Make that a day later."),
            *_calls("change_visit", {"visit": "VI-7", "at": "2031-05-03T08:00", "crew": 3}),
        ),
    ),
    (
        *("garden-3", 10.0, "vera", "garden-agent"),
        (
            said_by_user("It rains, so make it the afternoon of the fifth."),
            *_calls("change_visit", {"visit": "VI-7", "at": "2031-05-05T14:00", "crew": 5}),
            said_by_user("What is my plot number again? I lost the letter."),
            said_by_agent("You never told me."),
        ),
    ),
    (
        *("soil-1", 9.0, "vera", "soil-agent"),
        (
            *_calls("start_trial", {"trial": "TRI-4"}, trial="TRI-4", mulch="bark", lime_kg=2),
            happened("trial.finished", trial="TRI-4", harvest_kg=31.5, minutes=95),
            *_calls("start_trial", {"trial": "TRI-5"}, trial="TRI-5", mulch="straw", lime_kg=2),
            happened("trial.finished", trial="TRI-5", harvest_kg=44.0, minutes=80),
            happened("agent.decision", decision="Give up bark mulch", reason="it feeds slugs"),
            said_by_agent("The soil acidity is 6.4, and worms are back."),
        ),
    ),
    (
        *("shed", 6.0, None, "shed-agent"),
        (
            *_calls("count_shelf", {"items": [{"item": "tulip bulbs", "stored": 40}]}),
            *_calls("order_bulbs", {"order": "OB-3", "item": "tulip bulbs", "quantity": 200}),
            *_calls("set_vent", {"greenhouse": "fern house", "target_celsius": 17}),
            *_calls("set_vent", {"greenhouse": "fern house", "target_celsius": 14}),
            *_calls("start_mower", error="blade blocked by twine", lawn="front"),
            happened("alarm.fired", alarm="LA-2", sensor="frost"),
            happened("alarm.fired", alarm="LA-3", sensor="wind"),
            happened("alarm.resolved", alarm="LA-2"),
        ),
    ),
    (
        *("pond", 5.5, None, "pond-agent"),
        (
            *(
                step
                for litres in range(20, 48, 2)
                for step in _calls(
                    "tune_pump",
                    {"pump": "PU-4", "flow_limit": {"old": litres, "new": litres + 2}},
                    pump="PU-4",
                )
            ),
            *_calls("set_quiet_time", {"device": "PU-4", "from": {"old": "21:00", "new": "22:00"}}),
            *_calls("page_keeper", error="nobody answered", notice="NO-9"),
            *_calls("pass_notice", {"acknowledged_by": "Rui Sa"}, notice="NO-9"),
            *_calls(
                "ask_chief", {"decision": "refused", "by": "Ines Tobin"}, wish="drain the pond"
            ),
        ),
    ),
    (
        *("gift", 5.0, "ilja", "garden-agent"),
        (
            said_by_user("Send the neighbours a basket of plums, please."),
            *_calls("post_parcel", error="no courier today", to="neighbours"),
            said_by_user("Then I carry it over myself."),
        ),
    ),
)


@pytest.fixture(scope="module")
def edition() -> Iterator[Edition]:
    with edition_of("history", SESSIONS, _NOW) as edition:
        yield edition


@pytest.mark.parametrize(
    ("user", "question", "value"),
    [
        ("vera", "When is the visit to the north orchard?", "2031-05-05T14:00"),
        ("vera", "When was VI-7 before it was moved?", "2031-05-03T08:00"),
        ("vera", "Who is my gardener?", "Tomas Riel"),
        ("vera", "What am I allergic to?", "wasp stings"),
        ("vera", "How long did TRI-4 take?", "1 h 35 min"),
        ("vera", "Which trial had the highest harvest?", "TRI-5"),
        ("vera", "What was the soil acidity?", "6.4"),
        ("*", "How many tulip bulbs do we have?", 40),
        ("*", "How many tulip bulbs were ordered?", 200),
        ("*", "What temperature is the fern house set to?", "14"),
        ("*", "What temperature was the fern house set to before?", "17"),
        ("*", "Which alarms are still open?", ["LA-3"]),
        ("*", "What is the flow limit of pump PU-4?", "48"),
        ("*", "What was the flow limit of pump PU-4 before it became 40?", "38"),
        ("*", "What was the flow limit of pump PU-4 originally?", "20"),
        ("*", "PU-4 flow limit", "48"),
        ("*", "Who acknowledged NO-9?", "Rui Sa"),
        ("*", "Who turned down draining the pond?", "Ines Tobin"),
    ],
)
def test_a_thing_is_what_its_newest_record_says(
    edition: Edition, user: str, question: str, value: Any
) -> None:
    document = edition.ask(question, user_id=user)
    assert document["meta"]["answered"]
    assert document["answer"]["value"] == value
    assert document["answer"]["evidence"]


def test_two_things_are_compared_by_what_differs(edition: Edition) -> None:
    answer = edition.ask("Compare TRI-4 and TRI-5.", user_id="vera")["answer"]
    assert answer["type"] == "list"
    assert set(answer["value"]) == {
        "mulch: TRI-4 bark, TRI-5 straw",
        "harvest_kg: TRI-4 31.5, TRI-5 44",
        "minutes: TRI-4 95, TRI-5 80",
    }


@pytest.mark.parametrize(
    ("user", "question", "told"),
    [
        ("vera", "Why was bark mulch given up?", "it feeds slugs"),
        ("*", "Why did the mower not start?", "blade blocked by twine"),
        ("ilja", "Why couldn't the basket of plums be sent?", "no courier today"),
    ],
)
def test_why_something_was_not_done_says_what_was_in_the_way(
    edition: Edition, user: str, question: str, told: str
) -> None:
    assert told in edition.ask(question, user_id=user)["answer"]["value"]


@pytest.mark.parametrize(
    "question",
    [
        "What is my plot number?",  # who asks has asked that before, and nobody said it
        "What was the harvest of TRI-9?",
    ],
)
def test_what_nobody_said_is_not_known(edition: Edition, question: str) -> None:
    document = edition.ask(question, user_id="vera")
    assert not document["meta"]["answered"]
    assert document["answer"]["value"] is None


def test_who_asks_of_themselves_is_told_all_that_they_said(edition: Edition) -> None:
    told = edition.ask("What do you know about me?", user_id="vera")["answer"]["value"]
    assert {"allergic to wasp stings", "has gardener Tomas Riel"} <= set(told)


def test_of_what_was_promised_a_list_is_told(edition: Edition) -> None:
    told = edition.ask("Which promises are still open?", user_id="vera")["answer"]["value"]
    assert told == ["I will bring you the ladder."]
