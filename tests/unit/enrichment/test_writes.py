"""What calls would bring about, and which results confirm it."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enrichment.facts import Assertion
from enrichment.features import Features, features
from enrichment.histories import entry_of, group_of, intervals, merge
from enrichment.outcomes import Place, changes, outcome_of
from enrichment.writes import Tool
from tests.factories import START_MS, event, event_id

USER = "u-77"


def call(number: int, tool: str, arguments: Any, **fields: Any) -> Features:
    return _features(number, "tool.call", tool, {"arguments": arguments}, **fields)


def answer(
    number: int, tool: str = "update_profile", result: Any = None, **fields: Any
) -> Features:
    fields.setdefault("status", "completed")
    return _features(number, "tool.result", tool, {"result": result or {"ok": True}}, **fields)


def _features(number: int, event_type: str, tool: str, payload: Any, **fields: Any) -> Features:
    made = event(
        number,
        event_type=event_type,
        tool_name=tool,
        payload=payload,
        **{"user_id": USER, **fields},
    )
    return features(made, position_ms=number)


def said(one: Features) -> list[tuple[str, str, str]]:
    return [(c.source.name, c.relation, c.target.name) for c in one.claims]


SUBJECTS = {
    "the only id": (
        "set_plan",
        {"customer_id": "c-1", "plan": "Plus"},
        [("c-1", "has_plan", "Plus")],
    ),
    "of several ids the one in the tool's name": (
        "update_order",
        {"order_id": "A-1", "customer_id": USER, "colour": "grey"},
        [(USER, "has_order", "A-1"), ("A-1", "has_colour", "grey")],
    ),
    "what is set is said last, and whose it is before": (
        "slurm.set_user_defaults",
        {"user": "rsch-42", "partition": "mi300-trial"},
        [("rsch-42", "has_partition", "mi300-trial")],
    ),
    "of ids, too": (
        "set_order_carrier",
        {"order_id": "A-1", "carrier_id": "C-2"},
        [("A-1", "has_carrier", "C-2")],
    ),
    "a word that joins ends what is set": (
        "assign_bed_to_patient",
        {"patient": "P-2", "bed": "B-4"},
        [("P-2", "has_bed", "B-4")],
    ),
    "so does one of another name, where the name of the tool is no verb": (
        "terrace/hours",
        {"mode": "set", "licensee": USER, "window": "16:00 to 21:45"},
        [(USER, "has_window", "16:00 to 21:45")],
    ),
    "an argument says what is done": (
        "annot.v3/projects",
        {"op": "assign", "pi": USER, "workforce": "Labelwerk"},
        [(USER, "has_workforce", "Labelwerk")],
    ),
    "so does an action, where the name is no verb": (
        "crm/contacts",
        {"action": "update_contact", "contact_id": "c-1", "city": "Oslo"},
        [("c-1", "has_city", "Oslo")],
    ),
    "a list of one object is that object": (
        "coverage.set",
        {"user": USER, "cover": [{"name": "Ada Lim"}]},
        [(USER, "has_cover_name", "Ada Lim")],
    ),
    "an amount is no place, and a period says for when": (
        "quotas/put",
        {"payee": USER, "period": "2026-Q4", "target": "EUR 420k"},
        [(USER, "has_target", "EUR 420k")],
    ),
    "a place may have a number": (
        "move_parcel",
        {"parcel_id": "P-1", "location": "BIN 12"},
        [("P-1", "located_in", "BIN 12"), ("P-1", "has_location", "BIN 12")],
    ),
    "what is set is no subject": (
        "set_carrier",
        {"order_id": "A-1", "carrier_id": "K-2"},
        [("A-1", "has_carrier", "K-2")],
    ),
    "an argument that holds the user": (
        "pin_version",
        {"owner": USER, "python": "3.13"},
        [(USER, "has_python", "3.13")],
    ),
    "the user, when the tool is named after the argument": (
        "set_language",
        {"language": "Portuguese"},
        [(USER, "has_language", "Portuguese")],
    ),
    "the user, when the tool is about people": (
        "profile.update",
        {"city": "Oslo"},
        [(USER, "lives_in", "Oslo")],
    ),
    "the thing that a key names": (
        "configure_limits",
        {"service": "billing", "replicas": 3},
        [("billing", "has_replicas", "3")],
    ),
    "what a key names by an identifier": (
        "create_work_order",
        {"work_order": "WO-8", "customer": "acme", "quantity": 40},
        [("WO-8", "has_customer", "acme"), ("WO-8", "has_quantity", "40")],
    ),
    "what is assigned is no subject either": (
        "assign_bed",
        {"patient": "P-204", "bed": "B-12"},
        [("P-204", "has_bed", "B-12")],
    ),
    "what is set to a measure": (
        "set_offset",
        {"machine": "Lathe-1", "axis": "X", "offset_mm": 0.12},
        [("Lathe-1", "has_axis", "X"), ("Lathe-1", "has_offset_mm", "0.12")],
    ),
    "where something is moved to": (
        "move_pallet",
        {"pallet": "PAL-7", "from": "Rack A3", "to": "Bay 4"},
        [("PAL-7", "located_in", "Bay 4")],
    ),
    "what it is transferred to": (
        "transfer_patient",
        {"patient": "P-204", "from_ward": "W1", "to_ward": "W3"},
        [("P-204", "has_ward", "W3")],
    ),
    "a new value": (
        "update_user",
        {"user_id": "u-1", "new_seats": 4},
        [("u-1", "has_seats", "4")],
    ),
    "a field and its value": (
        "update_user",
        {"user_id": "u-1", "field": "timezone", "value": "Europe/Oslo"},
        [("u-1", "has_timezone", "Europe/Oslo")],
    ),
    "a bundle of changes": (
        "update_user",
        {"user_id": "u-1", "changes": {"seats": 4}},
        [("u-1", "has_seats", "4")],
    ),
    "a list of changes": (
        "patchUser",
        {"user_id": "u-1", "patch": [{"op": "replace", "path": "/seats", "value": 4}]},
        [("u-1", "has_seats", "4")],
    ),
    "an inner object": (
        "update_user",
        {"user_id": "u-1", "address": {"city": "Oslo"}},
        [("u-1", "has_address_city", "Oslo")],
    ),
    "the last part of a tool's name goes before what it belongs to": (
        "guestList.transfer",
        {"guest": USER, "to": {"table": "Window 4"}},
        [(USER, "has_table", "Window 4")],
    ),
    "what is made for somebody, and named after": (
        "add_allergy",
        {"patient": USER, "allergy": "penicillin", "grade": 3},
        [(USER, "has_allergy", "penicillin")],
    ),
    "and so behind a colon": (
        "locker:list:set",
        {"member": USER, "locker": "Left 11"},
        [(USER, "has_locker", "Left 11")],
    ),
    "a verb wherever it stands, before one that may be a noun": (
        "schedule_shift_put",
        {"nurse": USER, "shift": "2028-W11"},
        [(USER, "has_shift", "2028-W11")],
    ),
    "a name within in another case": (
        "delegation.put",
        {"holder": USER, "deputy": {"displayName": "Ana Wrona"}},
        [(USER, "has_deputy_display_name", "Ana Wrona")],
    ),
    "a sum that is changed for somebody": (
        "gifts.mandate.amend",
        {"donor": USER, "mandate": {"amount": "EUR 32.00"}},
        [(USER, "has_mandate_amount", "EUR 32.00")],
    ),
    "a bare sum, of what the tool is called by": (
        "contracts/rates/update",
        {"freelancer": USER, "amount": "EUR 265"},
        [(USER, "has_rate_amount", "EUR 265")],
    ),
    "who is appointed": (
        "labs.appoint",
        {"head": USER, "deputy": {"name": "Ruta Balcys"}},
        [(USER, "has_deputy_name", "Ruta Balcys")],
    ),
}
NOTHING = {
    "a tool that reads": ("get_plan", {"customer_id": "c-1", "plan": "Plus"}),
    "a tool that reads what was updated": ("list_updates", {"user_id": "u-1", "city": "Oslo"}),
    "a tool whose last part reads": ("update.list", {"user_id": "u-1", "city": "Oslo"}),
    "what is made for somebody": ("addSlip", {"holder": USER, "gross": 830}),
    "a verb that is a noun behind another": ("issue_pin", {"account": USER, "hours": 12}),
    "of nobody, where more is said": ("liftDiary.put", {"lift": "north", "hour": 15}),
    "what has a name that is no argument's": (
        "SetFate",
        {"tag": "PV:8245", "scene": "S35/32", "fate": "crushed"},
    ),
    "an argument that says how it does what it is called": (
        "list_plans",
        {"mode": "set", "plan": "Plus", "user": "u-1"},
    ),
    "an argument that says that it looks": ("set_plan", {"op": "get", "plan": "Plus"}),
    "what a rule that is looked at does": ("rules/show", {"action": "update", "rule_id": "r-1"}),
    "a trial": ("set_plan", {"customer_id": "c-1", "plan": "Plus", "dry_run": True}),
    "a file of nobody's": ("edit_file", {"path": "src/app.py", "replace": "x"}),
    "something new without an id": ("create_ticket", {"title": "Broken", "priority": "high"}),
    "of several that could be meant": ("assign_seat", {"row": "R4", "bus": "B7", "seat": "S1"}),
    "options of the call": ("set_plan", {"customer_id": "c-1", "force": True, "reason": "asked"}),
    "what lets one in": ("set_password", {"user_id": "u-1", "password": "hunter2"}),
    "sums of what was bought": ("update_account", {"user_id": "u-1", "amount": 30}),
    "sums of what is made for somebody": ("create_refund", {"payee": USER, "amount": 30}),
}


@pytest.mark.parametrize("case", SUBJECTS)
def test_a_write_says_what_its_arguments_say(case: str) -> None:
    tool, arguments, expected = SUBJECTS[case]
    assert said(call(1, tool, arguments)) == expected


@pytest.mark.parametrize("case", NOTHING)
def test_what_is_no_write_says_nothing(case: str) -> None:
    tool, arguments = NOTHING[case]
    assert call(1, tool, arguments).claims == ()


DECLARED = {
    "it writes, and about what": (
        Tool(True, "patient"),
        "dispense",
        {"patient": "Ines", "drug": "aspirin", "dose": "10 mg"},
        [("Ines", "has_dose", "10 mg"), ("Ines", "has_drug", "aspirin")],
    ),
    "it writes, though its name says that it looks": (
        Tool(True),
        "check_in",
        {"booking_id": "B-7", "gate": "C4"},
        [("B-7", "has_gate", "C4")],
    ),
    "of two ids the one it is about": (
        Tool(True, "ward_id"),
        "rotate_nurse",
        {"nurse_id": "N-1", "ward_id": "W-3"},
        [("W-3", "has_nurse", "N-1")],
    ),
    "it changes nothing": (
        Tool(False),
        "set_alarm",
        {"alarm_id": "A-1", "level": "high"},
        [],
    ),
    "a trial run": (
        Tool(True, "patient"),
        "dispense",
        {"patient": "Ines", "drug": "aspirin", "dry_run": True},
        [],
    ),
    "nothing names what it is about": (
        Tool(True, "patient"),
        "dispense",
        {"drug": "aspirin", "order_id": "A-1"},
        [],
    ),
}


@pytest.mark.parametrize("case", DECLARED)
def test_what_is_declared_of_a_tool_goes_before_its_name(case: str) -> None:
    declared, tool, arguments, claims = DECLARED[case]
    made = event(1, event_type="tool.call", tool_name=tool, payload={"arguments": arguments})
    assert sorted(said(features(made, tools={tool: declared}))) == claims
    by_its_name = {("A-1", "has_level", "high")} if tool == "set_alarm" else set()
    assert set(said(features(made, tools={"another": declared}))) == by_its_name


def test_calls_of_one_message_are_answered_one_by_one() -> None:
    calls = [
        {
            "id": f"call-{n}",
            "function": {
                "name": "set_plan",
                "arguments": f'{{"user_id": "u-{n}", "plan": "P{n}"}}',
            },
        }
        for n in (1, 2)
    ]
    asked = features(
        event(1, event_type="message.assistant", payload={"role": "assistant", "tool_calls": calls})
    )
    message = {"role": "tool", "tool_call_id": "call-2", "content": '{"ok": true}'}
    told = features(event(2, event_type="message.tool", payload=message))
    found = outcome_of([asked], told)
    assert found is not None
    assert [fact.fact for fact in found.assertions("t")] == ["u-2 has plan P2"]


def test_only_the_first_result_that_did_not_fail_confirms() -> None:
    asked = call(1, "set_plan", {"user_id": USER, "plan": "Plus"})
    failed = answer(2, "set_plan", parent_event_id=event_id(1), status="failed")
    first = answer(3, "set_plan", parent_event_id=event_id(1))
    second = answer(4, "set_plan", parent_event_id=event_id(1))
    assert outcome_of([asked], failed) is None
    found = outcome_of([asked, failed], first)
    assert found is not None
    (fact,) = found.assertions("t")
    assert (fact.event_id, fact.confirmed_by) == (event_id(1), event_id(3))
    assert fact.valid_from_ms == first.occurred_at_ms
    assert outcome_of([asked, failed, first], second) is None


def test_a_call_of_one_user_is_not_confirmed_by_what_is_anothers() -> None:
    asked = call(1, "set_plan", {"user_id": USER, "plan": "Plus"})
    told = answer(2, "set_plan", parent_event_id=event_id(1), user_id="u-78")
    assert outcome_of([asked], told) is None


def test_a_call_that_is_completed_confirms_itself() -> None:
    done = call(1, "set_plan", {"user_id": USER, "plan": "Plus"}, status="completed")
    found = outcome_of([], done)
    assert found is not None
    assert [(f.fact, f.confirmed_by) for f in found.assertions("t")] == [
        ("u-77 has plan Plus", None)
    ]


# -- whatever the order of arrival -----------------------------------------------------------------


@st.composite
def histories(draw: st.DrawFn) -> list[Features]:
    """Calls and results of one session, answered by parent, by call id, or by nothing at all."""
    made = []
    for number in range(1, draw(st.integers(2, 9)) + 1):
        tool = draw(st.sampled_from(("set_plan", "set_city")))
        by = draw(st.sampled_from(("parent", "nothing")))
        at = {"occurred_at_ms": START_MS + 10 * number}
        if draw(st.booleans()):
            value = draw(st.sampled_from(("A", "B")))
            made.append(call(number, tool, {"user_id": USER, tool[4:]: value}, **at))
        else:
            parent = event_id(draw(st.integers(1, 9)))
            told = (
                {"parent_event_id": parent} if by == "parent" and parent != event_id(number) else {}
            )
            status = draw(st.sampled_from(("completed", "completed", "failed")))
            made.append(answer(number, tool, status=status, **told, **at))
    return made


def folded(batches: list[list[Features]]) -> dict[Any, list[str]]:
    """The rows of all histories, after batches in some order."""
    rows: dict[Any, list[str]] = {}
    known: list[Features] = []
    for batch in batches:
        fresh = {one.event_id for one in batch}
        known = sorted([*known, *batch], key=lambda one: (one.occurred_at_ms, one.event_id))
        found = changes({"t": [[Place(one, one.event_id in fresh) for one in known]]})
        new: dict[Any, list[str]] = {}
        gone: dict[Any, list[str]] = {}
        for into, assertions in ((new, found.made), (gone, found.gone)):
            for fact in assertions:
                into.setdefault(group_of(fact), []).append(entry_of(fact))
        for group in {*new, *gone}:
            rows[group] = merge(rows.get(group, ()), new.get(group, ()), gone.get(group, ()))
    return {group: entries for group, entries in rows.items() if entries}


@given(histories(), st.data())
def test_any_order_of_arrival_gives_the_same_facts(
    history: list[Features], data: st.DataObject
) -> None:
    arrived = data.draw(st.permutations(history))
    size = data.draw(st.integers(1, len(arrived)))
    batches = [list(arrived[n : n + size]) for n in range(0, len(arrived), size)]
    assert folded(batches) == folded([history])


def test_a_late_result_takes_the_place_of_a_later_one() -> None:
    asked = call(1, "set_plan", {"user_id": USER, "plan": "Plus"})
    later = answer(3, "set_plan", parent_event_id=event_id(1))
    late = answer(2, "set_plan", parent_event_id=event_id(1))
    (entries,) = folded([[asked, later], [late]]).values()
    assert len(entries) == 1
    assert event_id(2) in entries[0]


def test_a_later_write_ends_the_earlier_one() -> None:
    facts: list[Assertion] = []
    for number, plan in ((1, "Basic"), (3, "Plus")):
        asked = call(number, "set_plan", {"user_id": USER, "plan": plan})
        told = answer(number + 1, "set_plan", parent_event_id=event_id(number))
        found = outcome_of([asked], told)
        assert found is not None
        facts += found.assertions("t")
    first, second = intervals(group_of(facts[0]), map(entry_of, facts))
    assert (first.valid_to_ms, second.valid_to_ms) == (second.valid_from_ms, None)
    assert second.supporting_event_ids == (event_id(3), event_id(4))
