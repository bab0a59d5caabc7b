"""Stage 1 on a target: it asks for the chains around a batch, and for what was forgotten."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from pipelines.graph.port import Reads, Transaction
from pipelines.graph.rows import LAST, FoundNode, Span
from pipelines.ledger.registry import Target
from pipelines.work.folds import Placed, StageFold
from pipelines.work.services import Services
from pipelines.work.stages import Stage
from projections import structural
from projections.events import Event
from projections.identity import Link, SessionKey
from projections.schema import EVENT, FORGOTTEN
from projections.structural import Facts, Neighbours, neighbours_in, wanted_facts

_FEW = 4
"""Late events of a session in a batch from which on their stretch of the chain is read whole."""
_WIDE = 8
"""How many times more events than late ones a stretch may hold."""


def projection_fold(stage: Stage, services: Services, target: Target) -> StageFold:
    """Stage 1: what an event says of itself, and its place in its session."""
    return StageFold(stage, gather_neighbours, structural.project)


def gather_neighbours(transaction: Transaction, events: Sequence[Placed]) -> Facts:
    """What the graph says about the places of events in their sessions."""
    bare = [event for _, event in events]
    return gather(transaction, bare)


def gather(transaction: Transaction, events: Sequence[Event]) -> Facts:
    """What the graph says about a batch: two or three round trips, whatever its size.

    Most events come after everything their session has, so the sessions' last events are read
    first, and neighbours one by one only where an event is late or there already.
    """
    tombstones = _tombstones(transaction, events)
    sessions = wanted_facts(events).sessions
    tails = _tails(transaction, sorted(sessions))
    neighbours: dict[tuple[SessionKey, Link], Neighbours] = {}
    late: dict[SessionKey, list[Link]] = {}
    for session, links in sessions.items():
        tail = tails.get(session)
        last = Neighbours(tail, None, False)
        for link in links:
            if tail is None or link > tail:
                neighbours[session, link] = last
            else:
                late.setdefault(session, []).append(link)
    if late:
        neighbours |= neighbours_of(transaction, late)
    return Facts(neighbours, tombstones)


def _tombstones(transaction: Transaction, events: Iterable[Event]) -> set[tuple[str, str]]:
    """Keys of those events that were forgotten, and not recalled."""
    if not transaction.has_tombstones:
        return set()
    keys = dict.fromkeys(event.key for event in events)
    nodes = transaction.nodes(FORGOTTEN.label, keys, ("recalled",))
    return {key for key in keys if key in nodes and not nodes[key].values["recalled"]}


def _tails(reads: Reads, sessions: Sequence[SessionKey]) -> dict[SessionKey, Link]:
    """The last event of each session that has any."""
    spans = [Span(session, LAST, LAST) for session in sessions]
    stretches = reads.stretch(EVENT.label, spans, before=1, within=0)
    return {
        session: _link(members[0])
        for session, members in zip(sessions, stretches, strict=True)
        if members
    }


def neighbours_of(
    reads: Reads, late: Mapping[SessionKey, Sequence[Link]]
) -> dict[tuple[SessionKey, Link], Neighbours]:
    """Neighbours of events that are not the last of their session; of each the sorted links.

    Where a session has several (a replay, an import out of order), the stretch of the chain that
    they span is read at once, thirty times faster than two searches an event; unless it holds far
    more than them.
    """
    neighbours: dict[tuple[SessionKey, Link], Neighbours] = {}
    wide = {session: links for session, links in late.items() if len(links) >= _FEW}
    if wide:
        limit = _WIDE * max(len(links) for links in wide.values())
        spans = [Span(session, links[0], links[-1]) for session, links in wide.items()]
        stretches = reads.stretch(EVENT.label, spans, before=1, within=limit, after=1)
        for span, members in zip(spans, stretches, strict=True):
            chain = [_link(member) for member in members]
            if sum(span.low <= link <= span.high for link in chain) < limit:
                for link in wide[span.session]:
                    neighbours[span.session, link] = neighbours_in(chain, link)
    single = [
        Span(session, link, link)
        for session, links in late.items()
        for link in links
        if (session, link) not in neighbours
    ]
    if single:
        stretches = reads.stretch(EVENT.label, single, before=1, within=1, after=1)
        for span, members in zip(single, stretches, strict=True):
            chain = [_link(member) for member in members]
            neighbours[span.session, span.low] = neighbours_in(chain, span.low)
    return neighbours


def _link(member: FoundNode) -> Link:
    return Link(member.values["occurred_at"], member.key[1])
