"""What decisions become, before any graph is asked: batches, bridges, sums."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.decisions import Sums, parse_decision
from consolidation.forgetting import Leaving, Tombstone, bridges, removals, rewired
from consolidation.hierarchy import DecidedNode, ShownSummary
from consolidation.payloads import MAX_GONE
from consolidation.stage import Counted, Facts, consolidate, derive
from consolidation.summary_payloads import summary_id
from enrichment.importance import importance_score
from enrichment.text import event_text
from projections.errors import InvalidEvent
from projections.events import Event
from projections.identity import Link, Position
from projections.operations import (
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operations,
    RemoveEdge,
    RemoveNode,
)
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    CONSOLIDATION_REQUEST,
    DIRECT,
    EVENT,
    FORGOTTEN,
    LINKED_TO,
    MEMBER_OF,
    PASS,
    SCOPE,
    SUMMARIZES,
    SUMMARY,
)
from projections.structural import follows_edge, neighbours_in
from tests.decision_factories import (
    COMMUNITIES,
    ENTITIES,
    agent_made,
    boosted,
    community,
    community_gone,
    consolidated,
    episode,
    episode_decided,
    episode_id,
    forgotten,
    linked,
    pass_decided,
    pass_ended,
    recalled,
    requested,
    session_decided,
    session_made,
    session_summary_id,
    system,
)
from tests.factories import START_MS, event, event_id
from tests.reference_fold import follows_chain

SESSION = ("default", "session-1")


def folded(*events: Event, first: int = 1, **facts: Any) -> Operations:
    """What a batch becomes; its entries stand at positions from `first` on."""
    placed = [(Position(n, 0), one) for n, one in enumerate(events, first)]
    return consolidate(derive(placed), Facts(**facts))


def key(number: int) -> tuple[str, str]:
    return "default", event_id(number)


def edges(operations: Operations, type_: str) -> list[tuple[str, str]]:
    """Ends of the merged edges of a type."""
    return sorted(
        (one.source[1], one.target[1])
        for one in operations.merge_edges.values()
        if one.type == type_
    )


def node(operations: Operations, label: str, *key: str) -> dict[str, Any]:
    """The properties of a merged node."""
    return dict(operations.merge_nodes[label, key].values)


# -- payloads --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "decided",
    [episode_decided([1, 2]), session_decided(seen=(3, 20), gone=[episode_id()])],
)
def test_a_summary_comes_back_as_it_was_decided(decided: Any) -> None:
    assert parse_decision(consolidated(9, decided.payload())) == decided


def test_the_end_of_a_pass_comes_back_as_it_was_decided() -> None:
    decided = pass_decided([1], complete=False)
    assert parse_decision(consolidated(9, decided.payload())) == decided


EPISODE = episode_decided([1]).payload()
MADE = session_decided().payload()
ENDED = pass_decided().payload()


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ("text", "payload"),
        ({"kind": "other"}, "payload.kind"),
        ({**EPISODE, "event_ids": []}, "payload.event_ids"),
        ({**EPISODE, "event_ids": [event_id(n) for n in range(501)]}, "payload.event_ids"),
        ({**EPISODE, "summary": MADE["summary"]}, "payload.summary.scope"),
        ({**EPISODE, "summary": 1}, "payload.summary"),
        ({**EPISODE, "more": 1}, "payload.more"),
        ({**MADE, "seen_events": -1}, "payload.seen_events"),
        ({**MADE, "seen_importance": True}, "payload.seen_importance"),
        ({**MADE, "gone": ["x"]}, "payload.gone[0]"),
        ({**MADE, "gone": ["a" * 32] * (MAX_GONE + 1)}, "payload.gone"),
        ({**ENDED, "complete": None}, "payload.complete"),
        ({**ENDED, "request_ids": [1]}, "payload.request_ids[0]"),
        ({**ENDED, "request_ids": "x"}, "payload.request_ids"),
        ({**ENDED, "run_id": ""}, "payload.run_id"),
    ],
)
def test_a_broken_decision_names_the_field(payload: Any, field: str) -> None:
    with pytest.raises(InvalidEvent) as raised:
        parse_decision(consolidated(9, payload))
    assert field in dict(raised.value.errors)


@pytest.mark.parametrize("payload", [[], "now", {"reason": "x" * 9_000}])
def test_a_request_is_a_small_object(payload: Any) -> None:
    with pytest.raises(InvalidEvent):
        parse_decision(system(9, "memory.consolidation_requested", payload))


@pytest.mark.parametrize("event_type", ["memory.erased", "memory.same_as"])
def test_what_nothing_is_applied_of_passes(event_type: str) -> None:
    assert derive([(Position(1, 0), system(9, event_type, {}))]) == []


# -- chains ----------------------------------------------------------------------------------------


@given(st.lists(st.booleans(), max_size=30))
def test_what_is_left_of_a_chain_is_the_chain_of_what_is_left(leaves: Sequence[bool]) -> None:
    chain = [Link(START_MS + 7 * n * n, event_id(n)) for n in range(len(leaves))]
    leaving = [link for link, goes in zip(chain, leaves, strict=True) if goes]
    made = bridges(SESSION, leaving, {link: neighbours_in(chain, link) for link in leaving})
    gone = {event_id_ for _, event_id_ in leaving}
    kept = [
        edge
        for edge in follows_chain(SESSION, chain)
        if edge.source[1] not in gone and edge.target[1] not in gone
    ]
    stays = [link for link in chain if link not in leaving]
    assert {edge.place: edge for edge in [*kept, *made]} == {
        edge.place: edge for edge in follows_chain(SESSION, stays)
    }


def test_an_effect_that_stays_keeps_its_cause_as_a_placeholder() -> None:
    nodes = {key(1): Leaving(effects=(event_id(2), event_id(3))), key(2): Leaving()}
    assert list(rewired([key(1), key(2)], nodes, {})) == [
        EnsureNode(EVENT.label, key(1)),
        MergeEdge(type=CAUSED_BY.type, source=key(3), target=key(1), values={"mechanism": DIRECT}),
    ]


@pytest.mark.parametrize(
    ("others", "expected"),
    [((event_id(1),), True), ((event_id(1), event_id(3)), False), ((event_id(1), ""), False)],
)
def test_a_placeholder_goes_with_its_last_effect(others: tuple[str, ...], expected: bool) -> None:
    nodes = {key(1): Leaving(causes={event_id(9): others})}
    found = RemoveNode(EVENT.label, key(9)) in list(removals([key(1)], nodes))
    assert expected == found


# -- a batch of decisions --------------------------------------------------------------------------


def test_an_episode_lists_its_members_under_its_session() -> None:
    made = folded(episode(9, [1, 2]), present={key(1)})
    summary = node(made, SUMMARY.label, "default", episode_id())
    assert summary["level"] == 1
    assert summary["source_event_ids"] == (event_id(1), event_id(2))
    assert summary["time_range"] == (START_MS, START_MS + 1)
    assert set(edges(made, SUMMARIZES.type)) == {
        (episode_id(), event_id(1)),
        (episode_id(), event_id(2)),
        (session_summary_id(), episode_id()),
    }
    assert set(made.ensure_nodes) == {
        (EVENT.label, key(2)),
        (SUMMARY.label, ("default", session_summary_id())),
    }


def test_a_decision_of_before_users_were_written_down_is_of_its_old_id_and_of_nobody() -> None:
    decided = [episode(8, [1]), session_made(9), agent_made(10)]
    assert all("user_ids" not in one.payload["summary"] for one in decided if one.payload)
    made = folded(*decided, present={key(1)})
    agent = summary_id("default", "agent", "agent-1")
    own_ids = (episode_id(), session_summary_id(), agent)
    whose = [node(made, SUMMARY.label, "default", own_id)["user_ids"] for own_id in own_ids]
    assert whose == [None] * 3


def test_an_older_decision_changes_nothing() -> None:
    shown = {("default", episode_id()): ShownSummary(DecidedNode(Position(5, 0)))}
    assert list(folded(episode(9, [1]), first=4, summaries=shown)) == []
    assert list(folded(episode(9, [1]), first=5, summaries=shown)) != []


def test_a_summary_that_is_no_more_is_not_brought_back_by_an_older_decision() -> None:
    shown = {("default", episode_id()): ShownSummary(DecidedNode(Position(5, 0), gone=True))}
    assert list(folded(episode(9, [1]), first=4, summaries=shown)) == []
    (again,) = folded(episode(9, [1]), first=6, summaries=shown).decide_nodes.values()
    assert (again.name, again.value) == ("gone", False)


def test_a_session_takes_its_episode_away() -> None:
    made = folded(episode(8, [1]), session_made(9, gone=[episode_id()]))
    agent = summary_id("default", "agent", "agent-1")
    assert edges(made, SUMMARIZES.type) == [(agent, session_summary_id())]
    assert RemoveNode(SUMMARY.label, ("default", episode_id())) in list(made)


def test_an_agent_that_takes_no_part_any_longer_loses_the_session() -> None:
    mine = ("default", session_summary_id())
    shown = {mine: ShownSummary(DecidedNode(Position(1, 0)), above=frozenset({"x" * 32}))}
    made = folded(session_made(9), agent_made(10), first=2, summaries=shown)
    (removed,) = made.remove_edges.values()
    assert removed == RemoveEdge(
        type=SUMMARIZES.type, source=("default", "x" * 32), target=mine, label=SUMMARY.label
    )


def test_the_later_links_stay() -> None:
    made = folded(linked(8, "session-1", "session-2"), linked(9, "session-1", "session-3"))
    assert edges(made, LINKED_TO.type) == [
        (session_summary_id("session-1"), session_summary_id("session-3"))
    ]
    shown = {("default", session_summary_id()): ShownSummary(linked_at=Position(9, 0))}
    assert list(folded(linked(8, "session-1", "session-2"), first=8, summaries=shown)) == []


def test_forgotten_and_recalled_in_one_batch_is_recalled() -> None:
    made = folded(episode(7, [1, 2]), forgotten(8, [1, 2]), recalled(9, [2]))
    assert (episode_id(), event_id(1)) not in edges(made, SUMMARIZES.type)
    assert (episode_id(), event_id(2)) in edges(made, SUMMARIZES.type)
    assert set(made.remove_nodes) == {(EVENT.label, key(1)), (EVENT.label, key(2))}
    marks = {k[1]: one.value for k, one in made.decide_nodes.items() if k[2] == "recalled"}
    assert marks == {key(1): False, key(2): True}


def test_an_older_departure_does_not_take_a_recalled_event_away() -> None:
    tombs = {key(1): Tombstone(True, Position(9, 0), episode_id())}
    assert list(folded(forgotten(8, [1]), first=8, tombstones=tombs)) == []


@pytest.mark.parametrize(
    ("tombstone", "expected"),
    [
        (None, [0.5]),
        (Tombstone(False, Position(1, 0)), []),
        (Tombstone(True, Position(1, 0)), [0.5]),
        (Tombstone(True, Position(9, 0)), []),
    ],
)
def test_only_events_that_are_there_are_boosted(
    tombstone: Tombstone | None, expected: list[float]
) -> None:
    tombs = {} if tombstone is None else {key(1): tombstone}
    made = folded(boosted(9, {1: 0.5}), first=5, tombstones=tombs)
    assert [one.value for one in made.decide_nodes.values()] == expected


def test_a_member_belongs_to_the_community_that_was_decided_last() -> None:
    made = folded(
        community(7, COMMUNITIES[0], ENTITIES[:3], "run-1"),
        community(8, COMMUNITIES[1], ENTITIES[2:5], "run-2"),
        community(9, COMMUNITIES[0], ENTITIES[:1], "run-2"),
    )
    assert edges(made, MEMBER_OF.type) == sorted(
        [(ENTITIES[0], COMMUNITIES[0]), *((one, COMMUNITIES[1]) for one in ENTITIES[2:5])]
    )


def test_a_community_that_is_no_more_has_no_members() -> None:
    made = folded(
        community(8, COMMUNITIES[0], ENTITIES[:2], "run-1"),
        community_gone(9, COMMUNITIES[0], "run-2"),
    )
    assert edges(made, MEMBER_OF.type) == []
    assert (COMMUNITY.label, ("default", COMMUNITIES[0])) not in made.merge_nodes


def test_a_pass_answers_requests_for_good() -> None:
    made = folded(requested(7), requested(8), pass_ended(9, [7]))
    label = CONSOLIDATION_REQUEST.label
    assert set(made.merge_nodes) == {(label, key(8)), (PASS.label, ("default",))}
    assert node(made, PASS.label, "default")["answered_until"] == (1, 0)


# -- sums ------------------------------------------------------------------------------------------


def test_events_add_up_once() -> None:
    events = [event(1), event(2), session_made(9, seen=(2, 9))]
    counted = {key(1): Counted(4), key(2): Counted(3)}
    scopes = {SESSION: Sums(1, 6, 0, 0)}
    made = folded(*events, counting=True, counted=counted, scopes=scopes)
    assert node(made, SCOPE.label, *SESSION) == {
        "event_count": 3,
        "importance_total": 13,
        "seen_events": 2,
        "seen_importance": 9,
        "pending_events": 1,
        "pending_importance": 4,
    }
    again = folded(*events, counting=False, scopes={SESSION: Sums(3, 13, 2, 9)})
    assert node(again, SCOPE.label, *SESSION) == node(made, SCOPE.label, *SESSION)


def test_a_summary_that_saw_more_leaves_nothing_pending() -> None:
    made = folded(session_made(9, seen=(5, 50)))
    assert node(made, SCOPE.label, *SESSION)["pending_importance"] == 0


def test_an_event_that_could_not_be_enriched_counts_as_the_rules_say() -> None:
    made = folded(event(1), counting=True, counted={key(1): Counted(None)})
    importance = importance_score(event(1), event_text(event(1)))
    assert node(made, SCOPE.label, *SESSION)["importance_total"] == importance


def test_an_event_that_left_before_it_came_still_counts() -> None:
    made = folded(event(1), counting=True, counted={key(1): Counted(None, True, False)})
    importance = importance_score(event(1), event_text(event(1)))
    assert node(made, SCOPE.label, *SESSION)["importance_total"] == importance
    tombstone = node(made, FORGOTTEN.label, *key(1))
    assert tombstone["session_id"] == "session-1"
    assert tombstone["importance_score"] == importance


def test_the_chain_is_bridged_on_behalf_of_its_owner() -> None:
    chain = [Link(START_MS + n, event_id(n)) for n in (1, 2, 3)]
    made = folded(
        forgotten(9, [2]),
        leaving={key(2): Leaving("session-1", START_MS + 2, 4)},
        neighbours={(SESSION, chain[1]): neighbours_in(chain, chain[1])},
    )
    bridge = follows_edge(SESSION, chain[0], chain[2])
    assert list(made.others["projection"]) == [bridge]
    assert bridge.place not in made.merge_edges
    assert node(made, FORGOTTEN.label, *key(2)) == {
        "session_id": "session-1",
        "user_id": None,
        "occurred_at": START_MS + 2,
        "importance_score": 4,
        "summary_id": episode_id(),
        "vector": None,
    }


def test_nodes_remember_the_position_of_their_decision() -> None:
    made = folded(episode(9, [1]), community(10, COMMUNITIES[0], ENTITIES[:1], "r"), pass_ended(11))
    assert all(isinstance(one, MergeNode) for one in made.merge_nodes.values())
    assert node(made, SUMMARY.label, "default", episode_id())["decided_at"] == (1, 0)
    assert node(made, COMMUNITY.label, "default", COMMUNITIES[0])["decided_at"] == (2, 0)
    assert node(made, PASS.label, "default")["decided_at"] == (3, 0)
