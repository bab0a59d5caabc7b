"""Wishes that were changed, what was put right, and what somebody told by the way, over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from pipelines.local.data_folder import read_holder
from tests.bench.small import Edition, own_edition

pytestmark = pytest.mark.integration

_BEGIN: Final = datetime.now(UTC).replace(microsecond=0) - timedelta(days=12)
INES: Final = "ines_moreau_47"
_TASKS: Final = ("move_crate", "label_crate", "count_crates")
_ASIDE: Final = {
    0: "Stamp my crates red, please.",
    1: "I play the cello in a small orchestra.",
    2: "Do not ring the bell, knock at the window.",
    3: "My accountant wants one receipt a month for the pallets.",
    4: "Forget what I said about colours. Plain crates without a mark, thieves look for red ones.",
    6: "When frost is near, cover the crates.",
}
"""What Ines says at the end of a session about something else, by day."""


def _event(session: str, second: int, kind: str, payload: dict[str, Any], tool: str = "") -> Any:
    day = int(session.rpartition("-")[2])
    at = _BEGIN + timedelta(days=day, seconds=20 * second)
    agent = "ines.moreau" if kind == "message.user" else "yard-agent"
    envelope = {
        "event_id": str(uuid.uuid5(uuid.NAMESPACE_URL, f"{session} {second}")),
        "event_type": kind,
        "occurred_at": f"{at:%Y-%m-%dT%H:%M:%S}.000Z",
        "session_id": session,
        "agent_id": agent,
        "trace_id": session,
        "user_id": INES,
        "payload": payload,
    }
    return {**envelope, **({"tool_name": tool} if tool else {})}


def _says(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def recorded() -> Iterator[Any]:
    """A week of a yard: tasks, each with an aside, then an address that is put right."""
    for day in range(8):
        session, tool = f"yard-{day}", _TASKS[day % len(_TASKS)]
        text = f"{tool.replace('_', ' ')} K-{400 + day} to hall {day} please."
        yield _event(session, 0, "message.user", _says(text))
        yield _event(session, 1, "tool.call", {"arguments": {"crate": f"K-{400 + day}"}}, tool)
        yield _event(session, 2, "tool.result", {"result": {"state": "done"}}, tool)
        answer = {"role": "assistant", "content": f"Crate K-{400 + day} is done."}
        yield _event(session, 3, "message.assistant", answer)
        if day in _ASIDE:
            yield _event(session, 4, "message.user", _says(_ASIDE[day]))
        yield _event(session, 5, "message.user", _says("Ok, that is all for today."))
    found = {"customer_id": INES, "email": "ines.moreau@yrd.example", "name": "Ines Moreau"}
    yield _event("yard-9", 0, "message.user", _says("Where does the notice go?"))
    yield _event("yard-9", 1, "tool.call", {"arguments": {"customer_id": INES}}, "find_customer")
    yield _event("yard-9", 2, "tool.result", {"result": found}, "find_customer")
    right = "No, wrong. It is ines.moreau@yard.example."
    yield _event("yard-9", 3, "message.user", _says(right))


WORDS: Final = {one["event_id"]: one["payload"].get("content", "") for one in recorded()}


@pytest.fixture(scope="module")
def edition() -> Iterator[Edition]:
    with own_edition("of-persons") as edition:
        edition.fill(recorded())
        yield edition


def ranked(document: Any) -> list[str]:
    """What the events of an answer say, the best first."""
    events = [node["node_id"] for node in document["nodes"] if node["type"] == "Event"]
    return [WORDS[one] for one in events]


def facts(edition: Edition, question: str) -> list[tuple[str, str]]:
    held = read_holder(edition.folder / "data")
    assert held is not None
    key = Path(held["api_key_file"]).read_text(encoding="utf-8").strip()
    answer = httpx.post(
        f"{held['api_url']}/v1/query/facts",
        json={"query": question, "session_id": "s", "agent_id": "a", "user_id": INES},
        headers={"X-API-Key": key},
        timeout=30.0,
    )
    answer.raise_for_status()
    return [(one["relation"], one["target"]["name"]) for one in answer.json()["facts"]]


def test_a_wish_that_took_the_place_of_another_stands_before_it(edition: Edition) -> None:
    question = "How does Ines want us to stamp crates?"
    told = ranked(edition.ask(question, user_id=INES))
    assert told[0] == _ASIDE[4]
    values = [value for _, value in facts(edition, question)]
    plain = "Plain crates without a mark, thieves look for red ones"
    assert values[0] == plain
    assert values.index("Stamp my crates red") > values.index("knock at the window")


@pytest.mark.parametrize(
    "question",
    [
        "Any wish of Ines as to receipts?",
        "Ines and receipts: what is her rule, red or plain?",  # words of wishes that are known
    ],
)
def test_what_somebody_told_may_be_a_wish_that_is_not_known_as_one(
    edition: Edition, question: str
) -> None:
    assert ranked(edition.ask(question, user_id=INES))[0] == _ASIDE[3]
    assert _ASIDE[3].rstrip(".") not in [value for _, value in facts(edition, question)]


def test_what_is_to_be_done_stands_before_what_is_not(edition: Edition) -> None:
    told = facts(edition, "What does Ines prefer for the bell?")
    assert told[:2] == [("prefers", "knock at the window"), ("avoids", "Do not ring the bell")]


def test_what_is_put_right_is_the_value(edition: Edition) -> None:
    document = edition.ask("What is the email address of Ines Moreau?", user_id=INES)
    assert document["answer"]["value"] == "ines.moreau@yard.example"


@pytest.mark.parametrize(
    "question",
    [
        "Any musical hobby of Ines Moreau?",
        "How musical is the evening of Ines Moreau?",
        "Who conducts the music of Ines Moreau?",
        "Might Ines Moreau be about to perform?",  # no wish, though it is read as one
    ],
)
def test_what_was_told_by_the_way_answers_what_no_word_says(
    edition: Edition, question: str
) -> None:
    document = edition.ask(question, user_id=INES)
    assert ranked(document)[0] == _ASIDE[1]


def test_a_phrase_that_asks_for_no_value_is_answered_by_what_was_told(edition: Edition) -> None:
    question = "Any gift for strings and bows on the side of Ines Moreau?"
    document = edition.ask(question, user_id=INES)
    assert (ranked(document)[0], document["meta"]["answered"]) == (_ASIDE[1], True)


def test_a_profile_tells_wishes_and_remarks_before_thanks_and_tasks(edition: Edition) -> None:
    document = edition.ask("What do we know about Ines Moreau?", user_id=INES)
    told = ranked(document)
    thanks = told.index("Ok, that is all for today.")
    assert max(told.index(_ASIDE[day]) for day in (1, 2, 4, 6)) < thanks
    lines = document["answer"]["value"]
    assert lines[-1] == "before that wants: Stamp my crates red"
    assert "has email ines.moreau@yard.example" in lines
    assert not any("has name" in line for line in lines)


@pytest.mark.parametrize("question", ["Who is {}?", "Give me a profile of {}.", "profile of {}"])
def test_somebody_is_asked_for_by_their_identifier(edition: Edition, question: str) -> None:
    document = edition.ask(question.format(INES))
    assert document["meta"]["plan"]["operator"] == "profile"
    assert "wants: knock at the window" in document["answer"]["value"]


def test_the_record_of_somebody_stands_before_what_they_said(edition: Edition) -> None:
    document = edition.ask(f"What is in the profile of customer {INES}?", user_id=INES)
    events = [node["node_id"] for node in document["nodes"] if node["type"] == "Event"]
    assert events[0] == str(uuid.uuid5(uuid.NAMESPACE_URL, "yard-9 2"))
    assert "wants: knock at the window" in document["answer"]["value"]


@pytest.mark.parametrize(
    "limits",
    [
        {"session": "yard-1"},
        {
            "since": f"{_BEGIN + timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}",
            "until": f"{_BEGIN + timedelta(days=2):%Y-%m-%dT%H:%M:%SZ}",
        },
    ],
    ids=["session", "time"],
)
def test_what_is_known_of_somebody_is_limited_as_asked(
    edition: Edition, limits: dict[str, str]
) -> None:
    answer = edition.ask("What do we know about Ines?", user_id=INES, **limits)
    sessions = {
        node["provenance"]["session_id"] for node in answer["nodes"] if node["type"] == "Event"
    }
    assert sessions == {"yard-1"}
    proofs = set(answer["answer"]["evidence"])
    assert proofs <= {node["node_id"] for node in answer["nodes"]}
