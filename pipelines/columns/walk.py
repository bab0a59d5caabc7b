"""The edges that a walk follows from what a viewer sees, the best of each type at each node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from heapq import nsmallest
from itertools import islice
from math import isnan
from operator import itemgetter
from typing import Any, Final

import numpy

from enrichment.names import VALUE
from pipelines.columns.edges import Edge
from pipelines.columns.entities import Entity, Fact
from pipelines.columns.tables import NOBODY
from pipelines.columns.view import View
from pipelines.graph.reads.scope import MAX_SCANNED
from pipelines.graph.rows import StepEdge, label_and_id, wire_id
from projections.schema import (
    CAUSED_BY,
    COMMUNITY,
    EDGE_CAPS,
    ENTITY,
    EVENT,
    FOLLOWS,
    MEMBER_OF,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
    SUMMARIZES,
    SUMMARY,
    EdgeRow,
)

Ordered = tuple[Any, StepEdge]
"""What an edge is ordered by among those of its type at a node, the least first, and the edge."""
_SURE: Final = 1.0


class Walker:
    """Steps from the nodes of one view.

    Args:
        view: who looks.
        caps: edges of a type at a node, at most.
    """

    def __init__(self, view: View, caps: Mapping[str, int] = EDGE_CAPS) -> None:
        self._view = view
        self._caps = caps
        self._tenant = view.tenant
        self._events = view.tenant.events
        self._entities = view.tenant.entities

    def steps(self, node_ids: Iterable[str]) -> list[StepEdge]:
        """The edges around some nodes; of a node that is not seen there are none."""
        edges: list[StepEdge] = []
        for node_id in node_ids:
            label, own_id = label_and_id(node_id)
            for type_, ordered in self._around(label, own_id):
                cap = self._caps[type_.type]
                edges += [edge for _, edge in nsmallest(cap, ordered, key=itemgetter(0))]
        return edges

    def _around(self, label: str, own_id: str) -> Iterator[tuple[EdgeRow, Iterable[Ordered]]]:
        if label == EVENT.label:
            row = self._events.rows.get(own_id)
            if row is not None and self._view.sees_event(row):
                yield from self._of_event(row)
        elif label == ENTITY.label:
            row = self._entities.rows.get(own_id)
            if row is not None and self._view.sees_entity(row):
                yield from self._of_entity(row)
        elif label == SUMMARY.label:
            if self._view.sees_made(self._tenant.summaries.get(own_id)):
                yield SUMMARIZES, self._parts(own_id)
                yield SUMMARIZES, self._summaries(own_id)
        elif self._view.sees_made(self._tenant.communities.get(own_id)):
            yield MEMBER_OF, self._members(own_id)

    # -- from an event -----------------------------------------------------------------------------

    def _of_event(self, row: int) -> Iterator[tuple[EdgeRow, Iterable[Ordered]]]:
        yield FOLLOWS, self._followed(row)
        yield CAUSED_BY, self._causes(row)
        yield SIMILAR_TO, self._similar(row)
        yield REFERENCES, self._mentioned(row)
        yield SUMMARIZES, self._in_summaries(row)

    def _followed(self, row: int) -> Iterator[Ordered]:
        before, behind = self._view.neighbours(row)
        for other, forward in ((before, False), (behind, True)):
            if other != NOBODY and self._view.sees_event(other):
                delta_ms = abs(self._at(other) - self._at(row))
                edge = self._edge(FOLLOWS, row, other, forward=forward, delta_ms=delta_ms)
                yield (delta_ms, edge.reached), edge

    def _causes(self, row: int) -> Iterator[Ordered]:
        """Causes and effects, the surest first, then the newest."""
        tenant = self._tenant
        for cause in tenant.causes.out(row):
            yield from self._cause(cause, cause.target, forward=True)
        # the newest effects, if one event has more of them than are looked at
        for effect in islice(tenant.causes.into(row), MAX_SCANNED):
            yield from self._cause(effect, effect.source, forward=False)

    def _cause(self, cause: Edge, there: int, *, forward: bool) -> Iterator[Ordered]:
        if self._view.sees_event(there):
            here = cause.source if forward else cause.target
            unsure = {} if isnan(cause.score) else {"confidence": cause.score}
            edge = self._edge(CAUSED_BY, here, there, forward=forward, **unsure)
            order = (-unsure.get("confidence", _SURE), -self._at(there), edge.reached)
            yield order, edge

    def _similar(self, row: int) -> Iterator[Ordered]:
        similar = self._tenant.similar
        near = [(edge.target, True, edge.score) for edge in similar.out(row)]
        near += [(edge.source, False, edge.score) for edge in similar.into(row)]
        for other, forward, score in near:
            if self._view.sees_event(other):
                edge = self._edge(SIMILAR_TO, row, other, forward=forward, score=score)
                yield (-score, edge.reached), edge

    def _mentioned(self, row: int) -> Iterator[Ordered]:
        """What an event that is seen mentions is seen."""
        here = self._events.ids[row]
        for mention in self._tenant.mentions.out(row):
            entity = self._entities.all[mention.target]
            if entity.stands:
                there = wire_id(ENTITY.label, entity.entity_id)
                closed = entity.subtype == VALUE
                edge = _step(REFERENCES, here, there, forward=True, closed=closed)
                yield entity.entity_id, edge

    def _in_summaries(self, row: int) -> Iterator[Ordered]:
        here = self._events.ids[row]
        for summary_id in self._tenant.above.get(row, ()):
            summary = self._tenant.summaries.get(summary_id)
            if summary is not None and self._view.sees_made(summary):
                there = wire_id(SUMMARY.label, summary_id)
                yield (summary.level, summary_id), _step(SUMMARIZES, here, there, forward=False)

    # -- from an entity ----------------------------------------------------------------------------

    def _of_entity(self, row: int) -> Iterator[tuple[EdgeRow, Iterable[Ordered]]]:
        yield REFERENCES, self._mentioning(row)
        yield RELATES_TO, self._facts(row)
        yield SAME_AS, self._same(row)
        yield MEMBER_OF, self._communities(row)

    def _mentioning(self, row: int) -> Iterator[Ordered]:
        """Events that mention it, the newest first: no more than can be followed are looked at."""
        entity = self._entities.all[row]
        here = wire_id(ENTITY.label, entity.entity_id)
        mentioned = entity.mentioned_in()
        seen = mentioned[self._view.seen[mentioned]]
        at = self._events.table["occurred_ms"][seen]
        newest = len(seen) - min(len(seen), self._caps[REFERENCES.type])
        # of those of one moment the smaller ids come first
        first = int(numpy.searchsorted(at, at[newest])) if len(seen) else 0
        for event in seen[first:].tolist():
            there, at_ms = self._events.ids[event], self._at(event)
            for mention in self._tenant.mentions.out(event):
                if mention.target == row:
                    edge = _step(REFERENCES, here, there, forward=False, at_ms=at_ms)
                    yield (-at_ms, there), edge

    def _facts(self, row: int) -> Iterator[Ordered]:
        now_ms = self._view.scope.now_ms
        for fact in self._entities.all[row].facts:
            other = self._entities.all[fact.target if fact.source == row else fact.source]
            if other.stands and fact.holds(now_ms) and self._view.sees_fact(fact):
                yield self._fact(fact, row, other)

    def _fact(self, fact: Fact, row: int, other: Entity) -> Ordered:
        forward = fact.source == row
        edge = _step(
            RELATES_TO,
            wire_id(ENTITY.label, self._entities.all[row].entity_id),
            wire_id(ENTITY.label, other.entity_id),
            forward=forward,
            view=fact.edge_type,
            closed=other.subtype == VALUE,
            at_ms=fact.valid_from,
            confidence=fact.confidence,
        )
        return (-fact.confidence, -fact.valid_from, other.entity_id), edge

    def _same(self, row: int) -> Iterator[Ordered]:
        entity = self._entities.all[row]
        for other_row, confidence in entity.same.items():
            other = self._entities.all[other_row]
            if self._view.sees_entity(other_row):
                here = wire_id(ENTITY.label, entity.entity_id)
                there = wire_id(ENTITY.label, other.entity_id)
                forward = entity.entity_id < other.entity_id
                closed = other.subtype == VALUE
                sure: dict[str, Any] = {} if confidence is None else {"confidence": confidence}
                edge = _step(SAME_AS, here, there, forward=forward, closed=closed, **sure)
                yield other.entity_id, edge

    def _communities(self, row: int) -> Iterator[Ordered]:
        entity = self._entities.all[row]
        here = wire_id(ENTITY.label, entity.entity_id)
        for community_id in entity.communities:
            if self._view.sees_made(self._tenant.communities.get(community_id)):
                there = wire_id(COMMUNITY.label, community_id)
                yield community_id, _step(MEMBER_OF, here, there, forward=True)

    # -- from what consolidation made --------------------------------------------------------------

    def _parts(self, summary_id: str) -> Iterator[Ordered]:
        """Events that it was made from, the most important first, then the newest."""
        here = wire_id(SUMMARY.label, summary_id)
        score = self._events.table["score"]
        for part in self._tenant.below.get(summary_id, ()):
            if isinstance(part, int) and self._view.sees_event(part):
                there, at_ms = self._events.ids[part], self._at(part)
                edge = _step(SUMMARIZES, here, there, forward=True, at_ms=at_ms)
                yield (-int(score[part]), -at_ms, there), edge

    def _summaries(self, summary_id: str) -> Iterator[Ordered]:
        """Summaries that it was made from, and those made from it, the highest first."""
        here = wire_id(SUMMARY.label, summary_id)
        below = [one for one in self._tenant.below.get(summary_id, ()) if isinstance(one, str)]
        above = self._tenant.above.get(summary_id, ())
        for others, forward in ((below, True), (above, False)):
            for other in others:
                summary = self._tenant.summaries.get(other)
                if summary is not None and self._view.sees_made(summary):
                    there = wire_id(SUMMARY.label, other)
                    yield (-summary.level, other), _step(SUMMARIZES, here, there, forward=forward)

    def _members(self, community_id: str) -> Iterator[Ordered]:
        here = wire_id(COMMUNITY.label, community_id)
        for row in self._tenant.members.get(community_id, ()):
            entity = self._entities.all[row]
            if self._view.sees_entity(row):
                there = wire_id(ENTITY.label, entity.entity_id)
                closed = entity.subtype == VALUE
                edge = _step(MEMBER_OF, here, there, forward=False, closed=closed)
                yield entity.entity_id, edge

    # -- edges -------------------------------------------------------------------------------------

    def _at(self, row: int) -> int:
        return int(self._events.table["occurred_ms"][row])

    def _edge(
        self, row: EdgeRow, here: int, there: int, *, forward: bool, **qualities: Any
    ) -> StepEdge:
        """An edge from an event to an event."""
        ids = self._events.ids
        return _step(
            row, ids[here], ids[there], forward=forward, at_ms=self._at(there), **qualities
        )


def _step(
    row: EdgeRow,
    here: str,
    there: str,
    *,
    forward: bool,
    view: str = "",
    closed: bool = False,
    at_ms: int | None = None,
    **qualities: Any,
) -> StepEdge:
    source, target = (here, there) if forward else (there, here)
    return StepEdge(
        type=row.type,
        source=source,
        target=target,
        view=view,
        properties=qualities,
        reached=there,
        closed=closed,
        at_ms=at_ms,
    )
