"""Communities and their members, as decided, chunk by chunk."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from typing import NamedTuple

from consolidation.payloads import CommunityChunk, CommunityGone
from consolidation.subjects import Subject, Subjects
from enrichment.stage import vector_of
from projections.events import Event
from projections.operations import (
    ClearEdges,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operation,
    RemoveEdge,
)
from projections.positions import Position
from projections.schema import COMMUNITY, ENTITY, MEMBER_OF

CommunityKey = tuple[str, str]
EntityKey = tuple[str, str]


class ShownCommunity(NamedTuple):
    """What the graph shows of a community.

    Attributes:
        subject: what was last decided of it.
        run_id: of the pass that decided it.
        members: (entity id, run id) of each.
    """

    subject: Subject = Subject()
    run_id: str | None = None
    members: tuple[tuple[str, str], ...] = ()


class Communities:
    """Communities, while decisions are applied in their order.

    Args:
        shown: those that the decisions name.
        joined: by entity, the position of the decision that its membership shows.
        present: entities that have a node, be it a placeholder.
    """

    def __init__(
        self,
        shown: Mapping[CommunityKey, ShownCommunity],
        joined: Mapping[EntityKey, Position],
        present: Set[EntityKey],
    ) -> None:
        self._shown = shown
        self._subjects = Subjects(COMMUNITY.label, {key: one.subject for key, one in shown.items()})
        self._present = present
        self._joined = dict(joined)
        self._runs = {key: one.run_id for key, one in shown.items()}
        self._renewed: dict[CommunityKey, str] = {}
        self._edges: dict[EntityKey, tuple[CommunityKey, str, Position]] = {}

    def take_chunk(self, position: Position, event: Event, decided: CommunityChunk) -> None:
        """A chunk of a community's members; the first one says what it is."""
        key = (event.tenant, decided.community_id)
        if decided.chunk == 0:
            if not self._subjects.write(position, self._node(key, position, event, decided)):
                return
            self._renew(key, decided.run_id)
        elif self._runs.get(key) != decided.run_id and self._subjects.of(key).outranks(position):
            return
        for entity_id in decided.entity_ids:
            entity = (event.tenant, entity_id)
            known = self._joined.get(entity)
            if known is None or known <= position:
                self._joined[entity] = position
                self._edges[entity] = key, decided.run_id, position

    def take_gone(self, position: Position, event: Event, decided: CommunityGone) -> None:
        """A community is no more."""
        key = (event.tenant, decided.community_id)
        if self._subjects.remove(position, key):
            self._runs[key] = None
            self._renewed.pop(key, None)

    def _renew(self, key: CommunityKey, run_id: str) -> None:
        """Forget the members that another pass named."""
        self._runs[key] = self._renewed[key] = run_id
        for entity, (community, of_run, position) in list(self._edges.items()):
            if community == key and of_run != run_id:
                self._edges[entity] = key, "", position

    def _node(
        self, key: CommunityKey, position: Position, event: Event, decided: CommunityChunk
    ) -> MergeNode:
        before = self._subjects.nodes.get(key)
        text = decided.text
        return MergeNode(
            label=COMMUNITY.label,
            key=key,
            values={
                "name": text.name if text else None,
                "summary": text.summary if text else None,
                "fingerprint": decided.fingerprint,
                "member_count": decided.member_count,
                "user_id": decided.user_id,
                "created_at": before.values["created_at"] if before else event.occurred_at_ms,
                "updated_at": event.occurred_at_ms,
                "centroid": vector_of(decided.centroid),
                "run_id": decided.run_id,
                "event_id": event.event_id,
                "decided_at": tuple(position),
            },
        )

    def operations(self) -> Iterator[Operation]:
        """The communities and their members as decided."""
        yield from self._subjects.operations()
        for key, run_id in self._renewed.items():
            for entity_id, of_run in self._shown.get(key, ShownCommunity()).members:
                if of_run != run_id:
                    yield RemoveEdge(type=MEMBER_OF.type, source=(key[0], entity_id), target=key)
        for entity, (key, run_id, position) in self._edges.items():
            if entity not in self._present:  # enrichment of another partition is behind
                yield EnsureNode(ENTITY.label, entity)
            yield ClearEdges(MEMBER_OF.type, entity)
            if run_id and not self._subjects.of(key).gone:
                yield EnsureNode(COMMUNITY.label, key)
                yield MergeEdge(
                    type=MEMBER_OF.type,
                    source=entity,
                    target=key,
                    values={"run_id": run_id, "decided_at": tuple(position)},
                )
