"""Whose words a pass tells: a summary for each user, and nothing of one in another's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from consolidation.summary_payloads import summary_id
from projections.events import Event
from projections.schema import EVENT, LINKED_TO, REFERENCES, SUMMARIZES, SUMMARY
from tests.decision_factories import agent_made, episode, session_made
from tests.factories import event, event_id
from tests.graph_dump import dump
from tests.passing import TENANT, Passing

USERS = ("ann", "bob", "cat")


def said(live: Passing, number: int, user: str | None, session: str) -> Event:
    """One of a user's messages to the one agent, with words that are the user's alone."""
    return event(
        number,
        session_id=session,
        user_id=user,
        agent_id="desk",
        trace_id=f"trace-{session}",
        event_type="message.received",
        payload=words(user, number),
    )


def words(user: str | None, number: int) -> str:
    return f"Please send order {number} to secret{user}{number}@example.com before Friday"


@pytest.fixture(params=["apart", "together"])
def live(request: pytest.FixtureRequest) -> Passing:
    """Three users of one agent, each in a session, or all in one, where somebody is nobody."""
    made = Passing()
    together = request.param == "together"
    numbers = range(1, 13)
    spoke = [((*USERS, None)[n % 4], n) for n in numbers]
    made.take_in(
        *(said(made, n, user, "room" if together else f"room-{user}") for user, n in spoke)
    )
    speak(made)
    return made


def speak(live: Passing) -> None:
    """What enrichment would have made of the messages."""
    for node in live.shown(EVENT.label, "user_id"):
        number = int(node.key[1].rpartition("-")[2], 16)
        text = words(node.values["user_id"], number)
        live.put(EVENT.label, node.key[1], text=text, summary=text, kind="message")


def shown(live: Passing, user: str | None) -> list[Mapping[str, Any]]:
    """The summaries that a user sees, by the rule of decision 14."""
    names = [prop.name for prop in SUMMARY.stored()]
    return [
        node.values
        for node in live.shown(SUMMARY.label, *names)
        if node.values["user_ids"] is not None and {*node.values["user_ids"]} <= {user}
    ]


def test_nobodys_summary_tells_what_another_said(live: Passing) -> None:
    live.run()
    for user in (*USERS, None):
        mine = shown(live, user)
        assert {values["level"] for values in mine} >= ({1, 2, 3} if user else set())
        told = repr(mine)
        assert user is None or f"secret{user}" in told
        others = {f"secret{other}" for other in USERS if other != user}
        assert [other for other in others if other in told] == []
        ids = {own for values in mine for own in values["source_event_ids"] or ()}
        owners = {
            node.values["user_id"]
            for node in live.graph.nodes(
                EVENT.label, [(TENANT, own) for own in ids], ["user_id"]
            ).values()
        }
        assert owners <= {user, None}


def test_no_edge_leads_from_one_user_to_another(live: Passing) -> None:
    live.run()
    owners = {n.key: n.values["user_ids"] for n in live.shown(SUMMARY.label, "user_ids")}
    for edge in [*live.drawn(SUMMARIZES.type), *live.drawn(LINKED_TO.type)]:
        if edge.target in owners and edge.source in owners:
            assert {*owners[edge.target]} <= {*owners[edge.source]}


def test_a_second_pass_says_nothing_and_a_rebuild_says_the_same(live: Passing) -> None:
    live.run()
    before = live.seqs()
    live.run()
    assert live.seqs() == before
    expected = dump(live.graph)
    live.empty()
    live.fold()
    speak(live)
    assert dump(live.graph) == expected


def test_a_session_of_one_user_has_one_summary_of_each_level() -> None:
    live = Passing()
    live.take_in(*(said(live, n, "ann" if n % 2 else None, "room") for n in range(1, 7)))
    live.run()
    names = ("level", "user_ids")
    shown = sorted((n.values["level"], n.values["user_ids"]) for n in live.shown("Summary", *names))
    assert shown == [(1, ("ann",)), (2, ("ann",)), (3, ("ann",))]


def test_what_was_told_across_users_is_for_operators_until_the_next_pass_tells_it_anew() -> None:
    live = Passing()
    live.take_in(
        event(1, session_id="session-1", user_id="ann"),
        event(2, session_id="session-1", user_id="bob"),
    )
    live.take_in(
        episode(101, [1, 2]), session_made(102, seen=(2, 10), agents=["agent-1"]), agent_made(103)
    )
    first = [node.values["user_ids"] for node in live.shown(SUMMARY.label, "user_ids")]
    assert first == [None] * 3
    live.run()
    assert "It was said." not in repr([shown(live, user) for user in USERS])
    whose = [n.values["user_ids"] for n in live.shown(SUMMARY.label, "user_ids", "content")]
    assert sorted(whose) == sorted([("ann",), ("bob",)] * 3)
    before = live.seqs()
    assert (live.run().sessions, live.seqs()) == (0, before)


def test_a_user_who_comes_later_has_a_summary_of_its_own(live: Passing) -> None:
    live.run()
    live.take_in(said(live, 40, "dan", "room-ann"))
    live.run()
    own_id = summary_id(TENANT, "session", "room-ann", ("dan",))
    (node,) = live.graph.nodes(SUMMARY.label, [(TENANT, own_id)], ("user_ids",)).values()
    assert list(node.values["user_ids"]) == ["dan"]
    assert event_id(40) not in repr([shown(live, user) for user in USERS])


def test_an_entity_is_called_as_its_user_spells_it_and_as_a_person_named_it() -> None:
    live = Passing()
    users = ("ann", "bob", None)
    live.take_in(
        *(said(live, n, user, f"room-{user}") for n, user in enumerate(users, 1)),
        said(live, 4, "ann", "room-ann"),
    )
    speak(live)
    met = live.entity("zephyr", name="Zephyr", first_user_id="bob")
    corrected = live.entity("quartz", name="Quartz", first_user_id="bob", display_name="Q.")
    for number, spelled in enumerate(("ZEPHYR", "Zephyr", None), 1):
        live.join(REFERENCES.type, (TENANT, event_id(number)), met, role="object", name=spelled)
    live.join(REFERENCES.type, (TENANT, event_id(4)), corrected, role="object", name="QUARTZ")
    live.run()
    names = {
        user: {
            one["name"]
            for values in shown(live, user)
            for one in orjson.loads(values["gist"])["entities"]
        }
        for user in users
    }
    assert names == {
        "ann": {"ZEPHYR", "Q.", "zephyr"},
        "bob": {"Zephyr", "zephyr"},
        None: {"zephyr"},
    }
