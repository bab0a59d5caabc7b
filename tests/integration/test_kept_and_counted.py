"""What went through, what was kept and how often it failed, told over whole sessions."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from tests.bench.small import Edition
from tests.integration.ledger_of_sessions import (
    Step,
    Told,
    call,
    edition_of,
    error,
    result,
    said_by_agent,
    said_by_user,
)

pytestmark = pytest.mark.integration

_NOW: Final = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)


def _jammed(number: int) -> tuple[Step, ...]:
    return (
        said_by_user("The turnstile at the pool rejected my wristband again."),
        call("gate.tail", lane=number),
        error("gate.tail", f"E{number}-NOREAD tag"),
        said_by_agent("I see it. A colleague opens by hand."),
    )


def _without_code(number: int) -> tuple[Step, ...]:
    return (
        said_by_user("The code for logging in never comes."),
        call("POST /auth/otp", channel="sms"),
        error("POST /auth/otp", f'{{"code":"NO_RECEIPT","trace":"q{number}c-77"}}'),
        said_by_agent("I read it out to you by telephone."),
    )


_BASIN: Final = {"name": "basin-cobalt", "hall": "H-3"}


def _drained(times: int) -> tuple[Step, ...]:
    over = "error when emptying pits (ignored: 7): cannot go over the budget of the pump"
    tried = (call("basins:drain", basin=_BASIN, grace="120s"), error("basins:drain", over))
    return (
        said_by_user("drain basin-cobalt, the inspector wants to see the tiles."),
        *tried * times,
        said_by_agent("Some pits refuse to empty. I wait for the quiet hours."),
    )


SESSIONS: Final[tuple[Told, ...]] = (
    ("pin-1", 12.0, "rosa", "desk-agent", _without_code(1)),
    ("pin-2", 11.0, "rosa", "desk-agent", _without_code(2)),
    (
        *("bill-1", 10.5, "rosa", "desk-agent"),
        (
            said_by_user("Please pay me the ten euro back."),
            call("refunds.create", amount=10),
            error("refunds.create", '{"errorCode":"CEILING","message":"10 is over the ceiling"}'),
            said_by_agent("That is over what I may pay out."),
        ),
    ),
    ("drain-1", 10.0, "rosa", "pool-agent", _drained(2)),
    (
        *("drain-2", 9.5, "rosa", "pool-agent"),
        (
            *_drained(1),
            call("basins:drain", basin=_BASIN, grace="120s", sluice=2),
            result("basins:drain", drained=7, remaining=0),
            said_by_agent("All clear, 7 pits drained."),
        ),
    ),
    ("jam-1", 9.0, "rosa", "pool-agent", _jammed(1)),
    ("jam-2", 8.0, "rosa", "pool-agent", _jammed(2)),
    (
        *("slot-1", 7.0, "rosa", "pool-agent"),
        (
            said_by_user("Please reserve lane LN-7 for my class."),
            call("reserve_lane", lane="LN-7"),
            error("reserve_lane", "refused: no coach named"),
            call("search_rules", about="LN-7 lane reservation"),
            result("search_rules", says="A reservation of LN-7 is accepted with a coach"),
            call("reserve_lane", lane="LN-7", coach="Ito"),
            result("reserve_lane", slip="SL-3"),
            said_by_agent("It is yours."),
        ),
    ),
    (
        *("said-1", 6.0, "rosa", "pool-agent"),
        (
            said_by_user("The hall is so dark that I stumbled."),
            said_by_agent("Sorry. I will have a brighter lamp put into the hall by Friday."),
        ),
    ),
    (
        *("kept-1", 5.0, "rosa", "desk-agent"),
        (
            call("facility_relight", spot="hall", fitting="brighter lamp"),
            result("facility_relight", spot="hall", lit="bright lamp"),
            said_by_agent("It shines again."),
        ),
    ),
    (
        *("said-2", 4.0, "rosa", "pool-agent"),
        (
            said_by_user("My locker does not close."),
            said_by_agent("Oh dear. I will send a locksmith to it on Monday."),
        ),
    ),
    (
        *("said-3", 3.0, "rosa", "pool-agent"),
        (
            said_by_user("The water of the small pool is too cold for babies."),
            said_by_agent("I will ask the pool attendant for two more degrees by Friday."),
        ),
    ),
    (
        *("kept-3", 2.0, "rosa", "desk-agent"),
        (
            call("desk/notes", to="crew-4"),
            result("desk/notes", queued=1),
            said_by_agent("The attendant has warmed the small pool up."),
        ),
    ),
)


@pytest.fixture(scope="module")
def edition() -> Iterator[Edition]:
    with edition_of("kept", SESSIONS, _NOW) as edition:
        yield edition


@pytest.mark.parametrize(
    "question",
    [
        "How often did the turnstile reject the wristband?",
        "Number of occasions on which the turnstile rejected the wristband?",
        "Give me a tally of the times the turnstile rejected my wristband.",
    ],
)
def test_how_often_is_what_failed_of_the_tool_that_tells_it(
    edition: Edition, question: str
) -> None:
    answer = edition.ask(question, user_id="rosa")["answer"]
    assert (answer["type"], answer["value"]) == ("count", 2)


@pytest.mark.parametrize(
    "question",
    [
        "count(the drain of basin-cobalt got stuck)?",
        "The drain of basin-cobalt stopped. Yes. But how many times?",
    ],
)
def test_what_came_to_a_bad_end_is_counted_by_what_its_tool_failed_with(
    edition: Edition, question: str
) -> None:
    """And not by each of its calls."""
    answer = edition.ask(question, user_id="rosa")["answer"]
    assert (answer["type"], answer["value"]) == ("count", 3)


def test_a_failure_that_holds_one_of_the_words_is_not_counted(edition: Edition) -> None:
    answer = edition.ask("the login code got lost: n=?", user_id="rosa")["answer"]
    assert (answer["type"], answer["value"]) == ("count", 2)


def test_when_it_was_is_when_it_went_through(edition: Edition) -> None:
    document = edition.ask("What was the day of the lane that was accepted, LN-7?", user_id="rosa")
    at = _NOW - timedelta(days=7) + timedelta(seconds=6 * 30)
    assert document["answer"]["value"] == at.isoformat(timespec="seconds")


@pytest.mark.parametrize(
    "question",
    ["What do we still owe Rosa?", "Which of our words to Rosa did we never live up to?"],
)
def test_of_two_promises_the_one_that_nobody_kept_is_told(edition: Edition, question: str) -> None:
    document = edition.ask(question, user_id="rosa")
    assert document["answer"]["value"] == "I will send a locksmith to it on Monday."
    assert document["nodes"][0]["node_id"] == document["answer"]["evidence"][0]


def test_when_what_was_promised_was_done_is_told_by_what_kept_it(edition: Edition) -> None:
    question = "We said we'd ask the pool attendant for two more degrees. When was that done?"
    document = edition.ask(question, user_id="rosa")
    at = _NOW - timedelta(days=2) + timedelta(seconds=30)
    assert document["answer"]["value"] == at.isoformat(timespec="seconds")


def test_what_nobody_promised_is_a_plain_question(edition: Edition) -> None:
    document = edition.ask(
        "a separate coach for beginners, had I said something on that?", user_id="rosa"
    )
    assert document["meta"]["plan"]["operator"] == "search"


def test_whether_calls_failed_tells_one_that_did(edition: Edition) -> None:
    document = edition.ask("did any gate call error out?", user_id="rosa")
    assert document["meta"]["plan"]["operator"] == "failures"
    assert document["answer"]["value"] == "gate.tail failed: E2-NOREAD tag"
