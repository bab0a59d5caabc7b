"""What is left of the projection's graph when events leave it.

FOLLOWS is the chain of a session's retained events, so it is bridged. A retained event that names
a forgotten one as its cause keeps the edge, to a placeholder, as it does when its cause never
came: so the graph is what the projection makes of the retained events, and a cause that comes back
finds its effects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from projections.operations import EnsureNode, MergeEdge, Operation, RemoveNode
from projections.schema import CAUSED_BY, DIRECT, EVENT
from projections.structural import Link, Neighbours, SessionKey, follows_edge

EventKey = tuple[str, str]
"""(tenant, event_id)"""


class Leaving(NamedTuple):
    """The node of an event that leaves; a placeholder has neither session nor time.

    Attributes:
        session_id, occurred_at_ms, importance: as the graph has them.
        effects: ids of the events that name it as their cause.
        causes: by id of each placeholder that it names as its cause, the ids of all events that
            have an edge to that one, and an empty string for every other node.
    """

    session_id: str | None = None
    occurred_at_ms: int | None = None
    importance: int | None = None
    effects: tuple[str, ...] = ()
    causes: Mapping[str, tuple[str, ...]] = {}

    def link(self, event_id: str) -> Link | None:
        """Its place in the chain of its session; None: it has none."""
        if self.session_id is None or self.occurred_at_ms is None:
            return None
        return Link(self.occurred_at_ms, event_id)


def leaving_links(leaving: Mapping[EventKey, Leaving]) -> dict[SessionKey, list[Link]]:
    """The places of the leaving events by session, sorted."""
    sessions: dict[SessionKey, list[Link]] = {}
    for (tenant, event_id), one in leaving.items():
        link = one.link(event_id)
        if link is not None:
            sessions.setdefault((tenant, str(one.session_id)), []).append(link)
    for links in sessions.values():
        links.sort()
    return sessions


def bridges(
    session: SessionKey, leaving: Collection[Link], neighbours: Mapping[Link, Neighbours]
) -> list[MergeEdge]:
    """The edges that close the gaps in a chain, one for each run of neighbours that leave.

    Args:
        session: whose chain it is.
        leaving: the events that leave, all of them in the chain.
        neighbours: of each of them, while it is still there.
    """
    made = []
    gone = set(leaving)
    for link in sorted(gone):
        before, after, _ = neighbours[link]
        if before is None or before in gone:
            continue
        while after in gone:
            after = neighbours[after].after
        if after is not None:
            made.append(follows_edge(session, before, after))
    return made


def removals(leaving: Iterable[EventKey], nodes: Mapping[EventKey, Leaving]) -> Iterator[Operation]:
    """Operations that take events away, with the placeholders that nobody needs any longer."""
    gone = set(leaving)
    for key in gone:
        yield RemoveNode(EVENT.label, key)
        for cause_id, others in nodes.get(key, Leaving()).causes.items():
            cause = (key[0], cause_id)
            if cause not in gone and all((key[0], other) in gone for other in others):
                yield RemoveNode(EVENT.label, cause)


def rewired(
    leaving: Iterable[EventKey],
    nodes: Mapping[EventKey, Leaving],
    neighbours: Mapping[tuple[SessionKey, Link], Neighbours],
) -> Iterator[Operation]:
    """What the projection would have made without the events: bridges, and waiting effects."""
    gone = set(leaving)
    for session, links in leaving_links({k: one for k, one in nodes.items() if k in gone}).items():
        around = {link: neighbours[session, link] for link in links}
        yield from bridges(session, links, around)
    for key in gone:
        effects = [(key[0], effect) for effect in nodes.get(key, Leaving()).effects]
        for effect in effects:
            if effect not in gone:
                yield EnsureNode(EVENT.label, key)
                yield MergeEdge(
                    type=CAUSED_BY.type, source=effect, target=key, values={"mechanism": DIRECT}
                )
