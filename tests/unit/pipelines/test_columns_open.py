"""What was opened and is not closed: by types, tools, identifiers, sessions and viewers."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in
from pipelines.columns.entities import PROPERTIES
from pipelines.columns.open_items import open_things
from pipelines.columns.records import OpenAsked, OpenThings
from pipelines.columns.tables import Edge
from pipelines.columns.tenant import Tenant
from pipelines.columns.view import View
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import FoundNode
from projections.schema import ENTITY
from tests.unit.pipelines.test_columns_stories import MINUTE_MS, TENANT, made

CALL, RESULT, FAILURE = EventKind.CALL, EventKind.RESULT, EventKind.FAILURE


def event(event_type: str, text: str = "", *ids: str, **fields: Any) -> dict[str, Any]:
    """What happened, by its type."""
    said = f"{event_type}: {text} {' '.join(ids)}"
    return {"event_type": event_type, "kind": EventKind.OTHER, "text": said, "ids": ids, **fields}


def tool(name: str, text: str, *ids: str, result: str = "", **fields: Any) -> list[dict[str, Any]]:
    """A call and what came of it; identifiers that begin with = are of the result."""
    of_call = [one for one in ids if not one.startswith("=")]
    of_result = [one[1:] for one in ids if one.startswith("=")]
    common = {"tool_name": name, "event_type": "tool.call", **fields}
    return [
        {**common, "kind": CALL, "text": f"{name}: {text} {' '.join(of_call)}", "ids": of_call},
        {**common, "kind": RESULT, "text": f"{name}: {result}", "ids": of_result, **fields},
    ]


def columns(*events: dict[str, Any]) -> Tenant:
    """Events with the identifiers that they mention."""
    own = ("ids", "acts_on")
    tenant = made(*({name: one[name] for name in one if name not in own} for one in events))
    for row, one in enumerate(events):
        for name in one["ids"]:
            values = dict.fromkeys(PROPERTIES) | {"canonical_name": name, "entity_type": "resource"}
            tenant.set_node(ENTITY.label, name, FoundNode((TENANT, name), True, values, False))
            acted_on = float(name in one.get("acts_on", ()))
            tenant.mentions.add(Edge(row, tenant.entities.rows[name], acted_on, False))
            tenant.entities.mention(tenant.entities.rows[name], row, tenant.events.place)
    return tenant


def still(*events: dict[str, Any], words: str = "", user: str | None = None) -> OpenThings:
    view = View(columns(*events), Scope(TENANT, user, 10**13, everyone=user is None))
    return open_things(view, OpenAsked(tuple(map(stem_in, words.split()))))


def test_a_task_that_was_completed_is_not_open() -> None:
    things = still(
        event("task.created", "print the label", "k-1"),
        event("task.created", "call the driver", "k-2"),
        event("task.completed", "", "k-1"),
    )
    assert things == OpenThings(["e1"], ["e2"])


def test_a_ticket_is_called_by_its_number_whoever_closes_it() -> None:
    things = still(
        *tool("open_ticket", "the lift is stuck", "=t-1"),
        *tool("open_ticket", "the door jams", "=t-2"),
        *tool("close_ticket", "", "t-1", session_id="other"),
    )
    assert things == OpenThings(["e3"], ["e4"])


@pytest.mark.parametrize(("acts_on", "left"), [("t-1", "e3"), ("t-2", "e1")])
def test_what_a_note_speaks_of_is_not_what_is_closed(acts_on: str, left: str) -> None:
    things = still(
        *tool("open_ticket", "the lift is stuck", "=t-1"),
        *tool("open_ticket", "the lift is stuck again", "=t-2"),
        *tool("close_ticket", "the same as the other", "t-1", "t-2", acts_on=[acts_on]),
    )
    assert things.ids == [left]


def test_a_thing_without_a_number_is_closed_in_its_session() -> None:
    things = still(
        event("incident.opened", "no water", session_id="one"),
        event("incident.opened", "no light", session_id="two"),
        event("incident.resolved", "", session_id="one"),
    )
    assert things == OpenThings(["e1"], ["e2"])


def test_of_two_about_the_same_the_one_is_closed_that_shares_more() -> None:
    things = still(
        event("approval.requested", "", "bed-7", "a-1"),
        event("approval.requested", "", "bed-7", "a-2"),
        event("approval.given", "", "bed-7", "a-1"),
    )
    assert things.ids == ["e1"]


def test_what_is_told_again_by_another_word_is_one_thing() -> None:
    things = still(
        event("ticket.opened", "", "t-1"),
        event("ticket.assigned", "to ruth", "t-1"),
        event("ticket.closed", "", "t-1"),
    )
    assert things == OpenThings([], ["e2"])


@pytest.mark.parametrize(
    ("returned", "is_open"),
    [("approved_by: Marta Oss", False), ("state: declined", False), ("state: waiting", True)],
)
def test_what_is_decided_as_soon_as_it_is_asked_for_is_not_open(
    returned: str, is_open: bool
) -> None:
    things = still(*tool("request_override", "limit reached", "l-1", result=returned))
    assert bool(things.ids) is is_open


def test_a_state_that_says_so_closes() -> None:
    things = still(
        event("claim.filed", "", "c-1"),
        *tool("update_claim", "state: resolved", "c-1", result="state: resolved"),
    )
    assert things.ids == []


def test_a_state_that_is_read_as_open_closes_nothing() -> None:
    things = still(
        *tool("open_ticket", "ice", "=t-1"),
        *tool("get_ticket", "", "t-1", result="state: open"),
    )
    assert things.ids == ["e1"]


def test_a_call_that_failed_opens_and_closes_nothing() -> None:
    failed = {"tool_name": "close_ticket", "kind": FAILURE, "event_type": "tool.result", "ids": []}
    opening = {"tool_name": "open_ticket", "kind": FAILURE, "event_type": "tool.result", "ids": []}
    things = still(*tool("open_ticket", "ice", "=t-1"), failed, opening)
    assert things.ids == ["e1"]


@pytest.mark.parametrize("event_type", ["session.started", "account.created", "page.opened"])
def test_what_is_not_there_to_be_finished_is_not_open(event_type: str) -> None:
    assert still(event(event_type, "", "x-1")) == OpenThings([], [])


def test_what_is_ever_closed_here_is_there_to_be_finished() -> None:
    things = still(
        event("pallet.created", "", "p-1"),
        event("pallet.created", "", "p-2"),
        event("pallet.delivered", "", "p-1"),
    )
    assert things == OpenThings(["e1"], ["e2"])


@pytest.mark.parametrize(
    ("words", "ids"),
    [
        ("tasks", ["e0"]),
        ("tickets", ["e2"]),
        ("ann", ["e2"]),
        ("k-1", ["e0"]),
        ("task ann", []),
        ("pallets", []),
    ],
)
def test_words_of_the_question_limit_it(words: str, ids: list[str]) -> None:
    things = still(
        event("task.created", "", "k-1"),
        *tool("open_ticket", "ice", "=t-1", user_id="ann"),
        words=words.replace("-", " "),
    )
    assert things.ids == ids


def test_what_another_user_opened_is_not_seen() -> None:
    events = (event("task.created", "", "k-1", user_id="ann"),)
    assert still(*events, user="ann").ids == ["e0"]
    assert still(*events, user="ben") == OpenThings([], [])


def test_a_time_limits_when_it_was_opened() -> None:
    view = View(
        columns(event("task.created", "", "k-1"), event("task.created", "", "k-2")),
        Scope(TENANT, None, 10**13, everyone=True),
    )
    windows = [(2 * MINUTE_MS, 3 * MINUTE_MS)]
    assert open_things(view, OpenAsked(windows=windows)).ids == ["e1"]


def test_what_only_speaks_of_an_approval_is_none() -> None:
    asking = tool("request_approval", "gloves", result="waiting")
    placing = tool("place_order", "approval: AV-9", "AV-9", result="order O-7")
    assert still(*asking, *placing, words="approvals").ids == ["e0"]
    assert still(*asking, *placing, words="orders").ids == ["e2"]
