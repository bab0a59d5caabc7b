"""What agents did in one session answers for another: refusals, promises, roles, lists, lessons."""

from __future__ import annotations

import json
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
    """A call with its outcome; what came back is JSON as text, as agents' frameworks keep it."""
    told = {"error": error} if error else {"content": json.dumps(result)}
    return ("tool.call", {"arguments": arguments}, tool), ("tool.result", told, tool)


SESSIONS: Final[tuple[Told, ...]] = (
    (
        *("rules-1", 9.0, "hana", "rules-agent"),
        (
            said_by_user("No loans of telescopes from the dome until spring, the mount is loose."),
            *_calls("create_stop", {"stop": "ST-4", "created_by": "Hana Iro"}, place="dome"),
            said_by_agent("Loans from the dome are stopped by ST-4."),
        ),
    ),
    (
        *("loan-1", 7.0, "teo", "loan-agent"),
        (
            said_by_user("I would like telescope TL-20 on Saturday."),
            *_calls("loan_telescope", error="denied by stop ST-4", telescope="TL-20"),
            said_by_agent(
                "TL-20 cannot be lent. That is decided in a week, as a rule. I will call you."
            ),
        ),
    ),
    (
        *("loan-2", 6.0, "mia", "loan-agent"),
        (
            said_by_user("Please lend me TL-31 and file request RQ-8 for a second one."),
            *_calls("loan_telescope", error="deposit missing", telescope="TL-31"),
            *_calls(
                "loan_telescope",
                {"loan": "LN-1", "telescope": "TL-31", "start": "2031-04-02T10:00"},
                telescope="TL-31",
                deposit="card",
            ),
            *_calls("request_second", {"request": "RQ-8", "state": "waiting"}, request="RQ-8"),
            said_by_agent("LN-1 is yours. I'll tell you what becomes of RQ-8."),
        ),
    ),
    (
        *("rules-2", 5.0, "hana", "rules-agent"),
        (
            *_calls(
                "decide_request",
                {"request": "RQ-8", "state": "declined", "decided_by": "Ove Lund"},
                request="RQ-8",
                decision="declined",
                reason="only one telescope for each member",
            ),
            *_calls(
                "list_parts",
                {
                    "parts": [
                        {"part": "red lens", "stored": 4, "price": 12.5},
                        {"part": "blue lens", "stored": 9, "price": 30},
                    ]
                },
            ),
        ),
    ),
    (
        *("loan-3", 3.0, "mia", "loan-agent"),
        (
            *_calls("move_loan", {"loan": "LN-1", "start": "2031-05-07T10:00"}, loan="LN-1"),
            *_calls("loan_telescope", error="telescope is in repair", telescope="TL-31"),
            *_calls(
                "write_bill", {"bill": "BL-2", "loan": "LN-1", "due": "2031-06-01"}, loan="LN-1"
            ),
            said_by_user("Is RQ-8 through?"),
            said_by_agent("A second telescope needs a board that can approve RQ-8."),
        ),
    ),
    (
        *("limits", 4.0, "ove", "rules-agent"),
        (
            said_by_user("The members waste our lenses. Set the lens limit to 3."),
            *_calls("publish_limit", {"published": True}, limit="lens", most=3),
            happened("config.changed", setting="lens.limit", **{"from": 7, "to": 3}),
            said_by_agent("Three from now on."),
        ),
    ),
    (
        *("today", 0.0, None, "watch-agent"),
        _calls("point_dome", {"dome": "north", "azimuth": 40}, dome="north"),
    ),
)


@pytest.fixture(scope="module")
def edition() -> Iterator[Edition]:
    with edition_of("across", SESSIONS, _NOW, "results") as edition:
        yield edition


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("Who declined RQ-8?", "Ove Lund"),
        ("When is the loan LN-1?", "2031-05-07T10:00"),
        ("When is BL-2 due?", "2031-06-01"),
        ("How much does the blue lens cost?", "30"),
        ("How many pieces of red lens are stored?", 4),
        ("Which sessions are about LN-1?", ["loan-2", "loan-3"]),
        ("Which agents loaned telescopes?", ["loan-agent"]),
        ("How many loans failed?", 3),
        ("What did you promise Teo?", "I will call you."),
        ("Who asked for TL-20?", "teo"),
    ],
)
def test_a_record_or_a_sentence_is_the_answer(edition: Edition, question: str, value: Any) -> None:
    answer = edition.ask(question)["answer"]
    assert answer["value"] == value
    assert answer["evidence"]


def test_why_it_was_refused_names_what_another_session_decided(edition: Edition) -> None:
    told = edition.ask("Why was TL-20 denied?")["answer"]["value"]
    assert told.startswith("loan_telescope failed: denied by stop ST-4 \u2190 create_stop returned")


def test_what_another_user_decided_is_not_told(edition: Edition) -> None:
    document = edition.ask("Why was TL-20 denied?", user_id="teo")
    sessions = {node["provenance"]["session_id"] for node in document["nodes"]}
    assert "rules-1" not in sessions
    assert document["answer"]["value"] == "loan_telescope failed: denied by stop ST-4"


def test_why_somebody_decided_so_is_in_the_act_that_did(edition: Edition) -> None:
    told = edition.ask("Why was RQ-8 declined?")["answer"]["value"]
    assert "only one telescope for each member" in told


def test_who_changed_a_setting_is_who_wanted_it_so(edition: Edition) -> None:
    answer = edition.ask("Who published the lens limit?")
    assert answer["answer"]["value"] == "ove"
    first = next(node for node in answer["nodes"] if node["type"] == "Event")
    assert first["attributes"]["summary"].endswith("Set the lens limit to 3.")
    assert edition.ask("Which agent published the lens limit?")["answer"]["value"] == [
        "rules-agent"
    ]


def test_what_to_do_is_what_was_learned(edition: Edition) -> None:
    told = edition.ask("What should I do when the deposit is missing?")["answer"]["value"]
    assert "deposit card added" in told


def test_a_day_is_summed_up_by_what_happened_on_it(edition: Edition) -> None:
    document = edition.ask("Summarise today.")
    assert document["meta"]["answered"]
    assert any("point_dome" in line for line in document["answer"]["value"])


def test_who_tells_of_an_act_is_not_who_did_it(edition: Edition) -> None:
    told = edition.ask("Who approved RQ-8?")["answer"]["value"]
    assert told is None or told.startswith("loan-agent: ")
