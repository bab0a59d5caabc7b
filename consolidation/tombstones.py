"""Events that leave the graph, and come back, as decided; what is left when they leave.

FOLLOWS is the chain of a session's retained events, so it is bridged. A retained event that names
a forgotten one as its cause keeps the edge, to a placeholder, as it does when its cause never
came: so the graph is what the projection makes of the retained events, and a cause that comes back
finds its effects.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from consolidation.forgetting_payloads import EventsForgotten
from consolidation.retention import Tier
from projections.operations import (
    DecideNode,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    Operations,
    RemoveNode,
)
from projections.positions import Position
from projections.schema import CAUSED_BY, DIRECT, EVENT, FORGOTTEN, SUMMARIZES
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
    for (tenant, event_id), node in leaving.items():
        link = node.link(event_id)
        if link is not None:
            sessions.setdefault((tenant, str(node.session_id)), []).append(link)
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
    edges = []
    gone = set(leaving)
    for link in sorted(gone):
        before, after, _ = neighbours[link]
        if before is None or before in gone:
            continue
        while after in gone:
            after = neighbours[after].after
        if after is not None:
            edges.append(follows_edge(session, before, after))
    return edges


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


# -- as decided ------------------------------------------------------------------------------------


class Tombstone(NamedTuple):
    """What was last decided of an event that is, or was, forgotten.

    Attributes:
        recalled: it came back, or is about to.
        decided_at: position of that decision.
        summary_id: of the Summary that it was a member of, if that is known.
    """

    recalled: bool
    decided_at: Position
    summary_id: str | None = None


class Tombstones:
    """Tombstones and boosts of events, while decisions are applied in their order.

    Args:
        tombstones: that the graph has, of the events that the decisions name.
        nodes: of the events that are to leave.
        neighbours: of those of them that stand in a chain.
        present: events that have a node, be it a placeholder.
    """

    def __init__(
        self,
        tombstones: Mapping[EventKey, Tombstone],
        nodes: Mapping[EventKey, Leaving],
        neighbours: Mapping[tuple[SessionKey, Link], Neighbours],
        present: Set[EventKey],
    ) -> None:
        self._shown = tombstones
        self._nodes = nodes
        self._neighbours = neighbours
        self._present = present
        self._now: dict[EventKey, Tombstone] = {}
        self._removed: dict[EventKey, tuple[Tier, Position]] = {}
        self._boosts: list[tuple[EventKey, float, Position]] = []

    def of(self, key: EventKey) -> Tombstone | None:
        """What was last decided of an event."""
        return self._now.get(key) or self._shown.get(key)

    def forget(self, tenant: str, position: Position, decided: EventsForgotten) -> None:
        """Members of a Summary leave."""
        for event_id, tier in decided.events:
            key = (tenant, event_id)
            before = self.of(key)
            if before is None or before.decided_at <= position:
                summary_id = before.summary_id if before else None
                self._now[key] = Tombstone(False, position, summary_id or decided.summary_id)
                self._removed[key] = tier, position

    def recall(self, tenant: str, position: Position, event_ids: Sequence[str]) -> list[str]:
        """Events come back; those of which nothing newer was decided, are returned."""
        back = []
        for event_id in event_ids:
            key = (tenant, event_id)
            before = self.of(key)
            if before is None or before.decided_at <= position:
                self._now[key] = Tombstone(True, position, before.summary_id if before else None)
                back.append(event_id)
        return back

    def boost(self, tenant: str, position: Position, boosts: Mapping[str, float]) -> None:
        """Events gain importance."""
        for event_id, boost in boosts.items():
            self._boosts.append(((tenant, event_id), boost, position))

    def away(self, key: EventKey) -> bool:
        """Whether an event is forgotten, and was not recalled."""
        tombstone = self.of(key)
        return tombstone is not None and not tombstone.recalled

    def back(self, key: EventKey) -> bool:
        """Whether an event was recalled: it is there again, or is about to be."""
        tombstone = self.of(key)
        return tombstone is not None and tombstone.recalled

    def recalled(self) -> Iterator[tuple[EventKey, str]]:
        """Events that this batch recalls, and the Summary that each was a member of."""
        for key, tombstone in self._now.items():
            if tombstone.recalled and tombstone.summary_id is not None:
                yield key, tombstone.summary_id

    def listed_by(self, summary: tuple[str, str], key: EventKey) -> Iterator[Operation]:
        """The edge from a Summary to a member, unless that is away.

        A member may come later than the decision, in a partition that is behind, so a placeholder
        waits for it.
        """
        if not self.away(key):
            if key not in self._present or key in self._removed:
                yield EnsureNode(EVENT.label, key)
            yield MergeEdge(type=SUMMARIZES.type, source=summary, target=key, values={})

    def operations(self, operations: Operations, owner: str) -> None:
        """Add tombstones, removals and boosts; what the projection owns on behalf of `owner`."""
        operations.extend(self._made())
        operations.extend(removals(self._removed, self._nodes))
        if self._removed:
            bridging = rewired(self._removed, self._nodes, self._neighbours)
            operations.on_behalf_of(owner).extend(bridging)
        for key, boost, position in self._boosts:
            tombstone = self.of(key)
            if tombstone is None or (tombstone.recalled and tombstone.decided_at < position):
                operations.add(
                    DecideNode(
                        label=EVENT.label,
                        key=key,
                        name="importance_boost",
                        value=boost,
                        position=position,
                    )
                )

    def _made(self) -> Iterator[Operation]:
        for key, (tier, position) in self._removed.items():
            node, tombstone = self._nodes.get(key, Leaving()), self.of(key)
            values = {
                "session_id": node.session_id,
                "occurred_at": node.occurred_at_ms,
                "importance_score": node.importance,
                "summary_id": tombstone.summary_id if tombstone else None,
            }
            yield MergeNode(label=FORGOTTEN.label, key=key, values=values)
            yield DecideNode(
                label=FORGOTTEN.label, key=key, name="tier", value=tier.value, position=position
            )
        for key, tombstone in self._now.items():
            yield DecideNode(
                label=FORGOTTEN.label,
                key=key,
                name="recalled",
                value=tombstone.recalled,
                position=tombstone.decided_at,
            )
