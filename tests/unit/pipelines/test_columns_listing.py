"""Exact lists of events: by kind, tool, failure, speaker, time and session, of one viewer."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in
from pipelines.columns.listing import MAX_LISTED, listed
from pipelines.columns.records import ListAsked, Listed
from pipelines.columns.view import View
from pipelines.graph.reads.scope import Scope
from tests.unit.pipelines.test_columns_stories import MINUTE_MS, TENANT, made, put

CALL, RESULT, FAILURE = EventKind.CALL, EventKind.RESULT, EventKind.FAILURE
HISTORY: list[dict[str, Any]] = [
    {"speaker": "ann"},
    {"kind": CALL, "tool_name": "charge", "speaker": "charge"},
    {"kind": FAILURE, "tool_name": "charge", "speaker": "charge", "text": "it jams"},
    {"kind": CALL, "tool_name": "mail", "speaker": "mail"},
    {"kind": RESULT, "tool_name": "mail", "speaker": "mail", "status": "failed"},
    {"speaker": "bot"},
    {"kind": CALL, "tool_name": "charge", "speaker": "charge", "session_id": "t"},
    {"kind": RESULT, "tool_name": "charge", "speaker": "charge", "session_id": "t"},
    {"speaker": "ann", "session_id": "t", "user_id": "ann"},
]


def asked(user: str | None = "ann", **fields: Any) -> Listed:
    view = View(made(*HISTORY), Scope(TENANT, user, 10**13))
    return listed(view, ListAsked("u")._replace(**fields))


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({}, "012345678"),
        ({"kinds": [CALL]}, "136"),
        ({"kinds": [CALL], "session": "s"}, "13"),
        ({"kinds": [CALL], "tools": ["charge"]}, "16"),
        ({"kinds": [CALL], "tools": ["charge"], "session": "s"}, "16"),
        ({"tools": ["nobody"]}, ""),
        ({"failed": True}, "24"),
        ({"failed": True, "only_tools": True}, "24"),
        ({"only_tools": True}, "123467"),
        ({"failed": True, "newest_first": True}, "42"),
        ({"failed": True, "session": "t"}, "24"),
        ({"failed": True, "session": "t", "only_session": True}, ""),
        ({"only_session": True}, ""),
        ({"failed": True, "stems": ["jam", "rain"]}, "2"),
        ({"failed": True, "stems": ["failed"]}, "4"),
        ({"stems": ["rain"]}, ""),
        ({"by_person": True}, "08"),
        ({"by_person": False}, "1234567"),
        ({"windows": [(0, 2 * MINUTE_MS), (5 * MINUTE_MS, 6 * MINUTE_MS)]}, "04"),
        ({"windows": [(0, 2 * MINUTE_MS)], "session": "t"}, "0"),
        ({"session": "t"}, "678"),
        ({"user": "ben", "session": "t"}, "67"),
    ],
)
def test_what_is_asked_for_is_listed(fields: dict[str, Any], ids: str) -> None:
    told = asked(**fields)
    assert told.ids == [f"e{number}" for number in ids]
    assert told.total == len(ids)


def test_tools_are_counted_by_their_first_event() -> None:
    assert asked(kinds=[CALL]).groups == [("charge", 2), ("mail", 1)]
    assert asked(kinds=[CALL], newest_first=True).groups == [("charge", 2), ("mail", 1)]
    assert asked(failed=True, newest_first=True).groups == [("mail", 1), ("charge", 1)]
    assert asked(by_person=True).groups == []


def test_sessions_and_users_are_told_each_with_its_first_event() -> None:
    told = asked(kinds=[CALL], session="t", grouped="session")
    assert told.groups == [("s", 2), ("t", 1)], "those of the session that asks are not all"
    assert told.ids == ["e1", "e6", "e3"]
    told = asked(grouped="user")
    assert (told.ids, told.total, told.groups) == (["e8"], 1, [("ann", 1)])


def test_a_list_knows_when_it_begins_and_ends() -> None:
    told = asked(session="t", only_session=True)
    assert told.last_ms - told.first_ms == 2 * MINUTE_MS


def test_all_are_counted_where_not_all_are_listed() -> None:
    view = View(made(*({} for _ in range(MAX_LISTED + 5))), Scope(TENANT, None, 10**13))
    told = listed(view, ListAsked("s"))
    assert (len(told.ids), told.total) == (MAX_LISTED, MAX_LISTED + 5)
    assert listed(view, ListAsked("s", newest_first=True)).ids[0] == f"e{MAX_LISTED + 4}"


def test_a_session_is_of_whom_the_ledger_had_an_event_first() -> None:
    late = {"user_id": "ben", "occurred_at": 1}
    tenant = made(
        {}, {"user_id": "ann", "global_position": "5-3"}, {**late, "global_position": "5-4"}
    )
    view = View(tenant, Scope(TENANT, None, 10**13))
    assert (view.session_user("s"), view.session_user("t")) == ("ann", None)
    put(tenant, "e3", {"user_id": "cat", "global_position": "5-9", "occurred_at": 0})
    assert view.session_user("s") == "ann"
    put(tenant, "e4", {"user_id": "dan", "global_position": "5-2"})
    assert view.session_user("s") == "dan"
    tenant.events.remove("e4")
    assert view.session_user("s") == "ann"
    put(tenant, "e1", {"user_id": None, "global_position": "5-3"})
    assert view.session_user("s") == "ben"
    assert View(made({}), Scope(TENANT, None, 10**13)).session_user("s") is None


SHOP: list[dict[str, Any]] = [
    {"kind": CALL, "tool_name": "move_pallet", "text": "pallet 7 bay 4", "agent_id": "floor-agent"},
    {"kind": RESULT, "tool_name": "move_pallet", "text": "done", "agent_id": "floor-agent"},
    {"kind": CALL, "tool_name": "move_pallet", "text": "pallet 9 rack", "agent_id": "floor-agent"},
    {"kind": FAILURE, "tool_name": "move_pallet", "text": "full", "agent_id": "floor-agent"},
    {"kind": CALL, "tool_name": "move_pallet", "text": "pallet 9 bay 1", "agent_id": "night-agent"},
    {"kind": RESULT, "tool_name": "move_pallet", "text": "done", "agent_id": "night-agent"},
    {"kind": EventKind.OTHER, "event_type": "pallet.moved", "text": "pallet 7"},
    {"kind": EventKind.OTHER, "event_type": "lathe.calibration.finished", "text": "lathe"},
    {"kind": CALL, "tool_name": "getPallet", "text": "pallet 7", "agent_id": "floor-agent"},
]


@pytest.mark.parametrize(
    ("fields", "ids"),
    [
        ({"words": ["pallet", "mov"], "verbs": ["mov"]}, "04"),
        ({"words": ["pallet", "mov", "7"], "verbs": ["mov", "7"]}, "0"),
        ({"words": ["pallet", "mov"], "verbs": ["mov"], "text": " did the night agent "}, "4"),
        ({"words": ["night", "mov"], "verbs": ["mov"], "text": " did the night agent "}, "4"),
        ({"words": ["mov"], "verbs": ["mov"], "kinds": [CALL]}, "024"),
        ({"words": ["pallet", "burn"], "verbs": ["burn"]}, ""),
        ({"words": ["crate", "mov"], "verbs": ["mov"]}, ""),
        ({"words": ["lath", "calibrat"], "verbs": ["calibrat"]}, "7"),
        ({"words": ["floor"], "text": " by the floor agent ", "kinds": [CALL]}, "028"),
        ({"words": ["rain"], "text": " by the floor agent ", "kinds": [CALL]}, ""),
        ({"words": ["rain"]}, ""),
    ],
)
def test_every_word_of_what_is_counted_is_accounted_for(fields: dict[str, Any], ids: str) -> None:
    view = View(made(*SHOP), Scope(TENANT, None, 10**13))
    assert listed(view, ListAsked("u")._replace(**fields)).ids == [f"e{one}" for one in ids]


def test_sessions_are_told_by_what_one_event_of_them_says() -> None:
    tenant = made(
        {"text": "migration 88 failed"},
        {"text": "88 lamps, and a migration of birds", "session_id": "t"},
        {"text": "the migration", "session_id": "v"},
        {"text": "88", "session_id": "v"},
    )
    view = View(tenant, Scope(TENANT, None, 10**13))
    told = listed(view, ListAsked("u", grouped="session", saying=(stem_in("migration"), "88")))
    assert [name for name, _ in told.groups] == ["s", "t"]


def test_acts_that_failed_are_counted_by_the_name_of_their_tool() -> None:
    tenant = made(
        {"kind": CALL, "tool_name": "deploy_site"},
        {"kind": FAILURE, "tool_name": "deploy_site", "text": "no image"},
        {"kind": CALL, "tool_name": "deploy_site"},
        {"kind": RESULT, "tool_name": "deploy_site", "text": "live"},
        {"kind": FAILURE, "tool_name": "mail", "text": "the deploy is late"},
    )
    view = View(tenant, Scope(TENANT, None, 10**13))
    verb = (stem_in("deploys"),)
    assert listed(view, ListAsked("u", failed=True, words=verb, verbs=verb)).ids == ["e1"]
    assert listed(view, ListAsked("u", words=verb, verbs=verb)).ids == ["e2"]
