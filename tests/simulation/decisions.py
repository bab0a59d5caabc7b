"""Decisions as passes make them, of what a graph shows; drawn, where a pass would calculate.

Each names only what the graph shows at this moment, as every real decision does, and is recorded
in the ledger under an id that follows from its grounds: two who decide at once adopt one of both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from consolidation.decisions import decision_event
from consolidation.forgetting_payloads import (
    Accessed,
    FactKey,
    accessed_payloads,
    archived_payloads,
    dropped_payloads,
    expired_payloads,
    recalled_payloads,
)
from consolidation.payloads import AgentDecided, BoostsDecided, LinksDecided, SessionLink
from consolidation.summary_payloads import AgentSummary
from enrichment.payloads import REQUESTED_EVENT
from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.events import Event
from projections.schema import (
    ENTITY,
    EVENT,
    FORGOTTEN,
    RELATES_TO,
    SIMILAR_TO,
    SUMMARY,
)
from tests.decision_factories import (
    COMMUNITIES,
    TRAITS,
    community,
    community_gone,
    derived,
    episode_decided,
    pass_decided,
    said_of,
    session_decided,
)

CONSOLIDATED = "memory.consolidated"
FORGOTTEN_EVENT = "memory.forgotten"
RECALLED_EVENT = "memory.recalled"

Made = tuple[str, dict[str, Any]]
"""Type of the event, and its payload."""


class Shown(NamedTuple):
    """What a graph shows of one tenant, and numbers to choose by."""

    tenant: str
    events: list[FoundNode]
    graph: Graph
    numbers: tuple[int, ...]

    def some(self, things: Sequence[Any], most: int = 4) -> list[Any]:
        """Up to `most` different ones; none of none."""
        if not things:
            return []
        count = 1 + self.numbers[2] % most
        first = self.numbers[3] % len(things)
        return [*things[first:], *things[:first]][:count]

    def all_of(self, label: str, properties: Sequence[str] = ()) -> list[FoundNode]:
        """Visible nodes of the tenant."""
        nodes = self.graph.stream(label, properties, tenants=[self.tenant])
        return [node for node in cast(Iterator[FoundNode], nodes) if node.visible]

    def edges_of(self, type_: str, properties: Sequence[str] = ()) -> list[FoundEdge]:
        """Edges of the tenant."""
        edges = self.graph.stream(type_, properties, tenants=[self.tenant])
        return list(cast(Iterator[FoundEdge], edges))


def look(graph: Graph, tenant: str, numbers: tuple[int, ...]) -> Shown:
    """What a pass would read: events that are enriched."""
    shown = Shown(tenant, [], graph, numbers)
    names = ("session_id", "agent_id", "user_id", "importance_score")
    events = [n for n in shown.all_of(EVENT.label, names) if n.values["importance_score"]]
    return shown._replace(events=events)


def decide(shown: Shown, now_ms: int) -> list[Event]:
    """What is decided; often nothing, where the graph has nothing to decide about."""
    kind = shown.numbers[0] % len(_DECIDERS)
    grounds = shown.numbers[1] % 64
    return [
        decision_event(event_type, shown.tenant, payload, now_ms, kind, grounds, chunk)
        for chunk, (event_type, payload) in enumerate(_DECIDERS[kind](shown))
    ]


def _number(node: FoundNode) -> int:
    return uuid.UUID(node.key[1]).int


def _session(shown: Shown) -> tuple[str, list[FoundNode]]:
    sessions = sorted({node.values["session_id"] for node in shown.events})
    chosen = sessions[shown.numbers[4] % len(sessions)]
    return chosen, [node for node in shown.events if node.values["session_id"] == chosen]


def _content(shown: Shown) -> dict[str, Any]:
    return {"content": f"It was said {shown.numbers[5] % 7} times."}


def _episode(shown: Shown) -> list[Made]:
    if not shown.events:
        return []
    session_id, in_session = _session(shown)
    number = _number(in_session[shown.numbers[6] % len(in_session)]) % 2
    # an event is in one episode, whatever is decided anew
    members = [node for node in in_session if _number(node) % 2 == number]
    decided = episode_decided(
        sorted(map(_number, shown.some(members, 6))),
        session_id,
        number,
        **_content(shown),
    )
    return [(CONSOLIDATED, decided.payload())]


def _session_summary(shown: Shown) -> list[Made]:
    if not shown.events:
        return []
    session_id, members = _session(shown)
    summaries = [
        node.key[1]
        for node in shown.all_of(SUMMARY.label, ("session_id", "scope"))
        if node.values["scope"] == "episode" and node.values["session_id"] == session_id
    ]
    gone = summaries[:1] if shown.numbers[6] % 4 == 0 else []
    decided = session_decided(
        session_id, seen=(len(members), 5 * len(members)), gone=gone, **_content(shown)
    )
    return [(CONSOLIDATED, decided.payload())]


def _agent(shown: Shown) -> list[Made]:
    agent_id = f"agent-{1 + shown.numbers[4] % 2}"
    summary = AgentSummary(agent_id=agent_id, session_count=1, **said_of(**_content(shown)))
    return [(CONSOLIDATED, AgentDecided(summary=summary).payload())]


def _links(shown: Shown) -> list[Made]:
    if not shown.events:
        return []
    session_id, _ = _session(shown)
    others = sorted({node.values["session_id"] for node in shown.events} - {session_id})
    links = tuple(
        SessionLink(other, "shared_entities", ("ZFA04Y",), 0.5) for other in shown.some(others)
    )
    return [(CONSOLIDATED, LinksDecided(session_id=session_id, links=links).payload())]


def _community(shown: Shown) -> list[Made]:
    members = [node.key[1] for node in shown.some(shown.all_of(ENTITY.label), 5)]
    chosen = COMMUNITIES[shown.numbers[4] % len(COMMUNITIES)]
    run_id = f"run-{shown.numbers[5] % 5}"
    if not members or shown.numbers[6] % 4 == 0:
        made = community_gone(1, chosen, run_id)
    else:
        made = community(1, chosen, sorted(members), run_id)
    return [(CONSOLIDATED, cast(dict[str, Any], made.payload))]


def _traits(shown: Shown) -> list[Made]:
    """Of a user some traits, proved by some of theirs, and that others are no more.

    Always of the same one: the id of a trait is made from whose it is.
    """
    theirs = [node.key[1] for node in shown.events if node.values["user_id"] == "ben"]
    if not theirs:
        return []
    chosen = shown.some(TRAITS, 2)
    made = derived(
        1 + shown.numbers[5] % 9,
        *chosen,
        user="ben",
        proofs=theirs[:20],
        gone=[one for one in TRAITS if one not in chosen][: shown.numbers[6] % 3],
    )
    return [(CONSOLIDATED, cast(dict[str, Any], made.payload))]


def _boosts(shown: Shown) -> list[Made]:
    boosts = {node.key[1]: 0.25 * (shown.numbers[5] % 4) for node in shown.some(shown.events)}
    return [(CONSOLIDATED, BoostsDecided(boosts=boosts).payload())] if boosts else []


def _forget(shown: Shown) -> list[Made]:
    names = ("scope", "source_event_ids")
    summaries = [
        node for node in shown.all_of(SUMMARY.label, names) if node.values["source_event_ids"]
    ]
    for summary in shown.some(summaries, 1):
        present = {node.key[1] for node in shown.events}
        members = [one for one in summary.values["source_event_ids"] if one in present]
        leaving = shown.some(sorted(members), 3)
        if leaving:
            tier = ("cold", "archive")[shown.numbers[6] % 2]
            payload = {"kind": "events", "summary_id": summary.key[1], "event_ids": {tier: leaving}}
            return [(FORGOTTEN_EVENT, payload)]
    return []


def _recall(shown: Shown) -> list[Made]:
    tombstones = [
        node.key[1]
        for node in shown.all_of(FORGOTTEN.label, ("recalled",))
        if not node.values["recalled"]
    ]
    payloads = recalled_payloads(shown.some(tombstones, 2), accessed=shown.numbers[6] % 2 == 0)
    return [(RECALLED_EVENT, payload) for payload in payloads]


def _drop_pairs(shown: Shown) -> list[Made]:
    pairs = [(edge.source[1], edge.target[1]) for edge in shown.edges_of(SIMILAR_TO.type)]
    return [(FORGOTTEN_EVENT, payload) for payload in dropped_payloads(shown.some(pairs, 2))]


def _archive(shown: Shown) -> list[Made]:
    chosen = [node.key[1] for node in shown.some(shown.all_of(ENTITY.label), 2)]
    if shown.numbers[6] % 3 == 0:
        payloads = recalled_payloads(entity_ids=chosen)
        return [(RECALLED_EVENT, payload) for payload in payloads]
    return [(FORGOTTEN_EVENT, payload) for payload in archived_payloads(chosen)]


def _facts(shown: Shown) -> list[FactKey]:
    edges = shown.some(shown.edges_of(RELATES_TO.type, RELATES_TO.key), 2)
    return [
        FactKey(
            source_id=edge.source[1],
            relation=edge.values["relation"],
            edge_type=edge.values["edge_type"],
            target_id=edge.target[1],
            valid_from_ms=edge.values["valid_from"],
            event_id=edge.values["event_id"],
        )
        for edge in edges
    ]


def _expire(shown: Shown) -> list[Made]:
    return [(FORGOTTEN_EVENT, payload) for payload in expired_payloads(_facts(shown))]


def _access(shown: Shown) -> list[Made]:
    times = 1 + shown.numbers[5] % 3
    accessed = Accessed(
        {node.key[1]: times for node in shown.some(shown.events)},
        {node.key[1]: times for node in shown.some(shown.all_of(ENTITY.label), 2)},
        dict.fromkeys(_facts(shown), times),
    )
    return [("memory.accessed", payload) for payload in accessed_payloads(accessed)]


def _feedback(shown: Shown) -> list[Made]:
    useful = [node.key[1] for node in shown.some(shown.events, 2)]
    return [("memory.feedback", {"useful": useful, "not_useful": []})] if useful else []


def _request(shown: Shown) -> list[Made]:
    return [(REQUESTED_EVENT, {"reason": f"now {shown.numbers[5] % 3}"})]


def _pass(shown: Shown) -> list[Made]:
    requests = shown.all_of("ConsolidationRequest") if shown.numbers[6] % 2 else []
    decided = pass_decided(uuid.UUID(node.key[1]).int for node in shown.some(requests, 2))
    return [(CONSOLIDATED, decided.payload())]


_DECIDERS: tuple[Callable[[Shown], list[Made]], ...] = (
    _episode,
    _episode,
    _episode,
    _session_summary,
    _agent,
    _links,
    _community,
    _traits,
    _boosts,
    _forget,
    _forget,
    _forget,
    _recall,
    _recall,
    _drop_pairs,
    _archive,
    _expire,
    _access,
    _access,
    _feedback,
    _request,
    _pass,
)

EPISODE = _DECIDERS.index(_episode)
FORGET = _DECIDERS.index(_forget)
"""First numbers of `decide` that lead to them."""
