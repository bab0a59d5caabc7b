"""Traits of users: derived anew of those whose sessions changed, decided where they say else."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from heapq import nlargest
from typing import NamedTuple

from consolidation.hierarchy import user_key
from consolidation.payloads import LEAST_SESSIONS, Trait, TraitsDecided
from consolidation.sources import SourceEvent
from consolidation.traits import MOST_SESSIONS, remembered, traits_of
from enrichment.vocabulary import LIKES
from pipelines.graph.port import Reads
from pipelines.graph.rows import FoundNode
from pipelines.operations.passes.deciding import Deciding, PassReport, UserSession
from pipelines.operations.passes.scopes import position_of
from pipelines.operations.passes.source_events import source_events
from projections.events import Event
from projections.identity import START, Position
from projections.schema import ENTITY, RELATES_TO, TRAIT

_LIKING = ("relation", "user_id", "valid_to", "expired_at")
_TIMES = ("first_seen", "last_seen", "holds_until")
_SAID = ("kind", "name", "strength", "session_count", "event_ids", "parent_id")
_SHOWN = (*_SAID, *_TIMES, "decided_at", "gone", "gone_decided_at")


def decide_traits(
    deciding: Deciding,
    tenant: str,
    report: PassReport,
    before: Mapping[UserSession, Position],
    *,
    since: Position,
) -> bool:
    """Decide about users; whether there were any to look at.

    Args:
        deciding: of the pass.
        tenant: whose.
        report: of the sessions that this pass has told; counts what is decided.
        before: sessions that passes before told, and where they decided so.
        since: users are looked at of whom a session was told behind that position.
    """
    changed = {one.user_id for one, decided_at in before.items() if decided_at > since}
    changed |= {one.user_id for one in report.told}
    sessions: dict[str, dict[str, UserSession]] = {one: {} for one in changed}
    for session in (*before, *report.told):
        if session.user_id in changed:
            sessions[session.user_id][session.session_id] = session
    for user_id in sorted(changed):
        if not deciding.in_time():
            report.complete = False
            return True
        newest = nlargest(MOST_SESSIONS, sessions[user_id].values())
        decided = _decided(deciding, tenant, user_id, newest)
        report.traits_written += len(decided)
        deciding.append(decided)
    return bool(changed)


def _decided(
    deciding: Deciding, tenant: str, user_id: str, sessions: Sequence[UserSession]
) -> list[Event]:
    """The decision about a user, if their sessions say something new."""
    graph = deciding.graph
    parts: list[list[SourceEvent]] = []
    if len(sessions) >= LEAST_SESSIONS:
        events = source_events(graph, tenant, {session.session_id for session in sessions})
        parts = list(_own(events.values(), user_id))
    liked = _liked(graph, tenant, user_id) if parts else {}
    derived = {one.trait_id: one for one in traits_of(tenant, user_id, parts, liked)}
    shown = _shown(graph, tenant, user_id, derived)
    retained = {event.event_id for part in parts for event in part}
    for own_id, before in shown.items():
        if before.said is not None:
            kept_on = remembered(before.said, derived.get(own_id), retained)
            if kept_on is not None:
                derived[own_id] = kept_on
    derived = {
        own_id: trait if trait.parent_id in derived else replace(trait, parent_id=None)
        for own_id, trait in derived.items()
    }
    new = [
        trait
        for own_id, trait in derived.items()
        # which sessions show it stands in edges, and changes with the events alone
        if own_id not in shown or shown[own_id].said != replace(trait, summary_ids=None)
    ]
    gone = sorted(own_id for own_id, one in shown.items() if one.said and own_id not in derived)
    if not new and not gone:
        return []
    newest = max((one.decided_at for one in shown.values()), default=None)
    decided = TraitsDecided(user_ids=(user_id,), traits=tuple(new), gone=tuple(gone))
    about = ("traits", user_id, repr(new), *gone, newest)
    return [deciding.decision(tenant, decided.payload(), *about)]


def _liked(graph: Reads, tenant: str, user_id: str) -> dict[str, str]:
    """What the user said to like, by id; what holds no more is left out."""
    user = user_key(tenant, user_id)
    likings = [
        edge.target
        for edge in graph.edges(RELATES_TO.type, [user], _LIKING).get(user, ())
        if [edge.values[one] for one in _LIKING] == [LIKES, user_id, None, None]
    ]
    things = graph.nodes(ENTITY.label, likings, ("name",))
    return {key[1]: node.values["name"] for key, node in things.items() if node.values["name"]}


def _own(sessions: Iterable[Sequence[SourceEvent]], user_id: str) -> Iterator[list[SourceEvent]]:
    for events in sessions:
        if part := [event for event in events if event.user_id == user_id]:
            yield part


class _Shown(NamedTuple):
    """A trait as the graph shows it; `said` None: it is no more."""

    decided_at: Position
    said: Trait | None


def _shown(graph: Reads, tenant: str, user_id: str, derived: Iterable[str]) -> dict[str, _Shown]:
    """The traits of a user, and those of these ids that are no more."""
    row = (tenant, user_id)
    nodes = {
        node.key[1]: node
        for node in graph.find(TRAIT.label, TRAIT.indexes[0], [row], _SHOWN).get(row, [])
    }
    others = [(tenant, own_id) for own_id in derived if own_id not in nodes]
    nodes |= {key[1]: node for key, node in graph.nodes(TRAIT.label, others, _SHOWN).items()}
    return {own_id: _of_node(node) for own_id, node in nodes.items()}


def _of_node(node: FoundNode) -> _Shown:
    *_, decided_at, gone, gone_at = (node.values[one] for one in _SHOWN)
    if gone:
        return _Shown(position_of(gone_at) or START, None)
    values = {one: node.values[one] for one in _SAID}
    values |= {f"{one}_ms": node.values[one] for one in _TIMES}
    return _Shown(position_of(decided_at) or START, Trait(trait_id=node.key[1], **values))
