"""Who did something, told by what was done: handed over, let through, asked for in one's words."""

from __future__ import annotations

from itertools import count
from typing import Any

import pytest

from api.retrieval.planning import plan_of
from api.schemas import Node
from tests.unit.api.test_record_values import node, read, shown

SECONDS = count()


def event(name: str, kind: str, tool: str | None = None, **fields: Any) -> Node:
    """One of a session, later than the one before; agent: whose act it is."""
    minute, second = divmod(next(SECONDS), 60)
    at = f"2026-01-01T00:{minute:02}:{second:02}.000Z"
    one = node(name, kind, tool, at=at, **fields)
    one.provenance.session_id = "yard"
    one.provenance.agent_id = fields.get("agent", "yard-bot")
    return one


@pytest.mark.parametrize(
    ("question", "who"),
    [
        ("Whose baby is crane C-7 these days?", "crane-bot"),
        ("Crane C-7 changed hands. Whom do I ask?", "crane-bot"),
        ("Who handed crane C-7 over?", "yard-bot"),
    ],
)
def test_what_was_handed_over_is_with_whom_it_was_handed_to(question: str, who: str) -> None:
    handed = event("handed", "other")
    said = event("said", "message", speaker="yard-bot")
    given = shown(
        (handed, "from: yard-bot\nreason: crane C-7 needs a licence\nto: crane-bot"),
        (said, "yard-bot: I handed crane C-7 over to crane-bot."),
    )
    assert read(question, given) == who


@pytest.mark.parametrize(
    ("record", "used", "who"),
    [
        ("owner: rita.yard\nvouched: yes\nproof: OK-31", "OK-31", "rita.yard"),
        ("chief: Rita Oss\nanswer: fine\nproof: OK-31", "OK-31", "Rita Oss"),
        ("owner: rita.yard\nvouched: yes\nproof: OK-31", "OK-32", None),
        ("owner: rita.yard\nhelper: ann.oss\nproof: OK-31", "OK-31", None),
        ("owner: busy\nvouched: yes\nproof: OK-31", "OK-31", None),
    ],
)
def test_who_let_something_through_is_told_in_any_field_of_a_record_whose_code_was_used(
    record: str, used: str, who: str | None
) -> None:
    refused = event("refused", "failure", "crane/lift", status="failed")
    vouching = event("vouching", "call", "voucher.find")
    vouched = event("vouched", "result", "voucher.find")
    again = event("again", "call", "crane/lift")
    given = shown(
        (vouched, record),
        (vouching, "for: C-7"),
        (refused, "C-7 needs a voucher"),
        (again, f"crane: C-7\nvoucher: {used}"),
    )
    assert read("Who stood guarantor for crane C-7?", given) == who


@pytest.mark.parametrize(
    ("question", "said", "who"),
    [
        ("Who made low tide the default of the cranes?", "Set it to low tide!", "rita, through b"),
        ("Who moved the cranes to another tide?", "Set it to low tide!", "rita, through b"),
        ("Which agent made low tide the default?", "Set it to low tide!", None),
        ("Who moved the cranes to another tide?", "The cranes are slow.", None),
    ],
)
def test_a_change_is_of_the_person_in_whose_words_it_stands_and_of_the_agent_that_made_it(
    question: str, said: str, who: str | None
) -> None:
    asked = event("asked", "message", speaker="rita", agent="rita")
    changed = event("changed", "other", agent="b")
    given = shown(
        (changed, "setting: cranes.tide\nfrom: high tide\nto: low tide"), (asked, f"rita: {said}")
    )
    told = read(question, given)
    assert told == who if who else told != "rita, through b"


def test_what_an_event_is_called_by_in_a_question_is_no_value_that_somebody_asked_for() -> None:
    asked = event("asked", "message", speaker="rita", agent="rita")
    lifted = event("lifted", "call", "crane.lift", agent="b")
    given = shown((lifted, "crane: C-7"), (asked, "rita: Lift C-7, it is late."))
    assert plan_of("Who lifted C-7?", 0).operator.value == "actor"
    assert read("Who lifted C-7?", given) is None
