"""The edges that a walk follows from what a viewer sees, the best of each type at each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from math import isnan
from operator import itemgetter
from typing import Any, Final, NamedTuple

import numpy

from enrichment.names import VALUE
from pipelines.columns.entities import Entity
from pipelines.columns.records import TYPE_NUMBERS, VIEW_NUMBERS, Steps, steps_of
from pipelines.columns.tables import NOBODY
from pipelines.columns.view import View
from pipelines.graph.reads.scope import MAX_SCANNED
from pipelines.graph.rows import label_and_id, wire_id
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

_UNKNOWN: Final = float("nan")
_SURE: Final = 1.0


class Step(NamedTuple):
    """An edge from a node; beside `order` and `there`, the node that it leads to, as in `Steps`.

    Attributes:
        order: among the edges of its type at the node, the least first.
    """

    order: Any
    there: str
    forward: bool
    closed: bool = False
    quality: float = _UNKNOWN
    view: int = 0
    at_ms: float = _UNKNOWN


_ORDER: Final = itemgetter(Step._fields.index("order"))


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
        self._at: Callable[[int], int] = self._events.table["occurred_ms"].item
        self._sees_event = view.seen.item

    def steps(self, node_ids: Iterable[str]) -> Steps:
        """The edges around some nodes; of a node that is not seen there are none."""
        places: dict[str, int] = {}
        rows: list[tuple[Any, ...]] = []
        for node_id in node_ids:
            label, own_id = label_and_id(node_id)
            for type_, ordered in self._around(label, own_id):
                best = sorted(ordered, key=_ORDER)
                if not best:
                    continue
                number = TYPE_NUMBERS[type_.type]
                here = places.setdefault(node_id, len(places))
                for _, there_id, forward, closed, quality, view, at_ms in best[
                    : self._caps[type_.type]
                ]:
                    there = places.setdefault(there_id, len(places))
                    source, target = (here, there) if forward else (there, here)
                    rows.append((source, target, number, view, forward, closed, quality, at_ms))
        return steps_of(list(places), rows)

    def _around(self, label: str, own_id: str) -> Iterator[tuple[EdgeRow, Iterable[Step]]]:
        if label == EVENT.label:
            row = self._events.rows.get(own_id)
            if row is not None and self._sees_event(row):
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

    def _of_event(self, row: int) -> Iterator[tuple[EdgeRow, Iterable[Step]]]:
        yield FOLLOWS, self._followed(row)
        yield CAUSED_BY, self._causes(row)
        yield SIMILAR_TO, self._similar(row)
        yield REFERENCES, self._mentioned(row)
        yield SUMMARIZES, self._in_summaries(row)

    def _followed(self, row: int) -> Iterator[Step]:
        before, behind = self._view.neighbours(row)
        for other, forward in ((before, False), (behind, True)):
            if other != NOBODY and self._sees_event(other):
                at_ms, there = self._at(other), self._events.ids[other]
                delta_ms = abs(at_ms - self._at(row))
                yield Step((delta_ms, there), there, forward, quality=delta_ms, at_ms=at_ms)

    def _causes(self, row: int) -> Iterator[Step]:
        """Causes and effects, the surest first, then the newest."""
        causes = self._tenant.causes
        for cause in causes.out(row):
            yield from self._cause(cause.target, cause.score, forward=True)
        # the newest effects, if one event has more of them than are looked at
        for effect in islice(causes.into(row), MAX_SCANNED):
            yield from self._cause(effect.source, effect.score, forward=False)

    def _cause(self, other: int, confidence: float, *, forward: bool) -> Iterator[Step]:
        if self._sees_event(other):
            at_ms, there = self._at(other), self._events.ids[other]
            sure = _SURE if isnan(confidence) else confidence
            order = (-sure, -at_ms, there)
            yield Step(order, there, forward, quality=confidence, at_ms=at_ms)

    def _similar(self, row: int) -> Iterator[Step]:
        similar = self._tenant.similar
        near = [(edge.target, True, edge.score) for edge in similar.out(row)]
        near += [(edge.source, False, edge.score) for edge in similar.into(row)]
        for other, forward, score in near:
            if self._sees_event(other):
                at_ms, there = self._at(other), self._events.ids[other]
                yield Step((-score, there), there, forward, quality=score, at_ms=at_ms)

    def _mentioned(self, row: int) -> Iterator[Step]:
        """What an event that is seen mentions is seen."""
        for mention in self._tenant.mentions.out(row):
            entity = self._entities.all[mention.target]
            if entity.stands:
                yield _to_entity(entity.entity_id, entity, forward=True)

    def _in_summaries(self, row: int) -> Iterator[Step]:
        for summary_id in self._tenant.above.get(row, ()):
            summary = self._tenant.summaries.get(summary_id)
            if summary is not None and self._view.sees_made(summary):
                there = wire_id(SUMMARY.label, summary_id)
                yield Step((summary.level, summary_id), there, forward=False)

    # -- from an entity ----------------------------------------------------------------------------

    def _of_entity(self, row: int) -> Iterator[tuple[EdgeRow, Iterable[Step]]]:
        yield REFERENCES, self._mentioning(row)
        yield RELATES_TO, self._facts(row)
        yield SAME_AS, self._same(row)
        yield MEMBER_OF, self._communities(row)

    def _mentioning(self, row: int) -> Iterator[Step]:
        """Events that mention it, the newest first: no more than can be followed are looked at."""
        mentioned = self._entities.all[row].mentioned_in()
        seen = mentioned[self._view.seen[mentioned]]
        at = self._events.table["occurred_ms"][seen]
        newest = len(seen) - min(len(seen), self._caps[REFERENCES.type])
        # of those of one moment the smaller ids come first
        first = int(numpy.searchsorted(at, at[newest])) if len(seen) else 0
        for event, at_ms in zip(seen[first:].tolist(), at[first:].tolist(), strict=True):
            there = self._events.ids[event]
            for mention in self._tenant.mentions.out(event):  # once for each role
                if mention.target == row:
                    yield Step((-at_ms, there), there, forward=False, at_ms=at_ms)

    def _facts(self, row: int) -> Iterator[Step]:
        now_ms = self._view.scope.now_ms
        for fact in self._entities.all[row].facts:
            forward = fact.source == row
            other = self._entities.all[fact.target if forward else fact.source]
            if other.stands and fact.holds(now_ms) and self._view.sees_fact(fact):
                order = (-fact.confidence, -fact.valid_from, other.entity_id)
                yield _to_entity(order, other, forward=forward)._replace(
                    quality=fact.confidence,
                    view=VIEW_NUMBERS.get(fact.edge_type, 0),
                    at_ms=fact.valid_from,
                )

    def _same(self, row: int) -> Iterator[Step]:
        entity = self._entities.all[row]
        for other_row, confidence in entity.same.items():
            other = self._entities.all[other_row]
            if self._view.sees_entity(other_row):
                forward = entity.entity_id < other.entity_id
                step = _to_entity(other.entity_id, other, forward=forward)
                yield step if confidence is None else step._replace(quality=confidence)

    def _communities(self, row: int) -> Iterator[Step]:
        for community_id in self._entities.all[row].communities:
            if self._view.sees_made(self._tenant.communities.get(community_id)):
                yield Step(community_id, wire_id(COMMUNITY.label, community_id), forward=True)

    # -- from what consolidation made --------------------------------------------------------------

    def _parts(self, summary_id: str) -> Iterator[Step]:
        """Events that it was made from, the most important first, then the newest."""
        score = self._events.table["score"]
        for part in self._tenant.below.get(summary_id, ()):
            if isinstance(part, int) and self._sees_event(part):
                at_ms, there = self._at(part), self._events.ids[part]
                order = (-int(score[part]), -at_ms, there)
                yield Step(order, there, forward=True, at_ms=at_ms)

    def _summaries(self, summary_id: str) -> Iterator[Step]:
        """Summaries that it was made from, and those made from it, the highest first."""
        below = [one for one in self._tenant.below.get(summary_id, ()) if isinstance(one, str)]
        above = self._tenant.above.get(summary_id, ())
        for others, forward in ((below, True), (above, False)):
            for other in others:
                summary = self._tenant.summaries.get(other)
                if summary is not None and self._view.sees_made(summary):
                    there = wire_id(SUMMARY.label, other)
                    yield Step((-summary.level, other), there, forward)

    def _members(self, community_id: str) -> Iterator[Step]:
        for row in self._tenant.members.get(community_id, ()):
            entity = self._entities.all[row]
            if self._view.sees_entity(row):
                yield _to_entity(entity.entity_id, entity, forward=False)


def _to_entity(order: Any, entity: Entity, *, forward: bool) -> Step:
    there = wire_id(ENTITY.label, entity.entity_id)
    return Step(order, there, forward, closed=entity.subtype == VALUE)
