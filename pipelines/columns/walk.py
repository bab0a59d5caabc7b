"""The edges that a walk follows from what a viewer sees, the best of each type at each node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from heapq import nsmallest
from math import isnan
from operator import itemgetter
from typing import Any, Final

import numpy

from enrichment.names import VALUE
from pipelines.columns.entities import Entity
from pipelines.columns.records import TYPE_NUMBERS, VIEW_NUMBERS, StepRow, Steps, steps_of
from pipelines.columns.tables import NOBODY
from pipelines.columns.view import View
from pipelines.graph.reads.scope import MAX_SCANNED
from pipelines.graph.rows import COMMUNITY_PREFIX, ENTITY_PREFIX, SUMMARY_PREFIX, label_and_id
from projections.schema import (
    CAUSED_BY,
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
_NOTHING_MORE: Final = (_UNKNOWN, 0, _UNKNOWN)
_SURE: Final = 1.0


Step = tuple[Any, str, bool, bool, float, int, float]
"""An edge from a node: its order among those of its type there, the least first, and the node that
it leads to; then `forward`, `closed`, `quality`, `view` and `at_ms` as in `Steps`. Thousands are
made for a question: records would take as long as all the rest.
"""
_ORDER: Final = itemgetter(0)


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
        self._ids = view.tenant.events.ids
        self._at: Callable[[int], int] = self._events.table["occurred_ms"].item
        self._sees_event = view.seen.item

    def steps(self, node_ids: Iterable[str]) -> Steps:
        """The edges around some nodes; of a node that is not seen there are none."""
        places: dict[str, int] = {}
        rows = self.rows(node_ids, places)
        return steps_of(list(places), rows)

    def rows(self, node_ids: Iterable[str], places: dict[str, int]) -> list[StepRow]:
        """The same, one by one.

        Args:
            node_ids: wire ids.
            places: of nodes, by wire id; those at the edges get the next ones.
        """
        rows: list[StepRow] = []
        for node_id in node_ids:
            label, own_id = label_and_id(node_id)
            for type_, steps in self._around(label, own_id):
                if not steps:
                    continue
                steps.sort(key=_ORDER)
                number = TYPE_NUMBERS[type_.type]
                here = places.setdefault(node_id, len(places))
                for _, there_id, forward, closed, quality, view, at_ms in steps[
                    : self._caps[type_.type]
                ]:
                    there = places.setdefault(there_id, len(places))
                    source, target = (here, there) if forward else (there, here)
                    rows.append((source, target, number, view, forward, closed, quality, at_ms))
        return rows

    def _around(self, label: str, own_id: str) -> Iterator[tuple[EdgeRow, list[Step]]]:
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

    def _of_event(self, row: int) -> Iterator[tuple[EdgeRow, list[Step]]]:
        yield FOLLOWS, self._followed(row)
        yield CAUSED_BY, self._causes(row)
        yield SIMILAR_TO, self._similar(row)
        yield REFERENCES, self._mentioned(row)
        yield SUMMARIZES, self._in_summaries(row)

    def _followed(self, row: int) -> list[Step]:
        before, behind = self._view.neighbours(row)
        steps: list[Step] = []
        for other, forward in ((before, False), (behind, True)):
            if other != NOBODY and self._sees_event(other):
                at_ms, there = self._at(other), self._ids[other]
                delta_ms = abs(at_ms - self._at(row))
                steps.append(((delta_ms, there), there, forward, False, delta_ms, 0, at_ms))
        return steps

    def _causes(self, row: int) -> list[Step]:
        """Causes and effects, the surest first, then the newest."""
        causes = self._tenant.causes
        effects = causes.sources(row)
        if len(effects) > MAX_SCANNED:
            effects = nsmallest(MAX_SCANNED, effects, key=self._newest_first)
        steps: list[Step] = []
        for others, forward in ((causes.targets(row), True), (effects, False)):
            for other, confidence in others:
                if self._sees_event(other):
                    at_ms, there = self._at(other), self._ids[other]
                    sure = _SURE if isnan(confidence) else confidence
                    order = (-sure, -at_ms, there, forward, isnan(confidence))
                    steps.append((order, there, forward, False, confidence, 0, at_ms))
        return steps

    def _newest_first(self, effect: tuple[int, float]) -> tuple[int, str]:
        row, _ = effect
        return -self._at(row), self._ids[row]

    def _similar(self, row: int) -> list[Step]:
        similar = self._tenant.similar
        steps: list[Step] = []
        for others, forward in ((similar.targets(row), True), (similar.sources(row), False)):
            for other, score in others:
                if self._sees_event(other):
                    at_ms, there = self._at(other), self._ids[other]
                    steps.append(((-score, there), there, forward, False, score, 0, at_ms))
        return steps

    def _mentioned(self, row: int) -> list[Step]:
        """What an event that is seen mentions is seen."""
        every = self._entities.all
        met = [every[target] for target, _ in self._tenant.mentions.targets(row)]
        return [_to_entity(entity.entity_id, entity, True) for entity in met if entity.stands]

    def _in_summaries(self, row: int) -> list[Step]:
        steps: list[Step] = []
        for summary_id in self._tenant.above.get(row, ()):
            summary = self._tenant.summaries.get(summary_id)
            if summary is not None and self._view.sees_made(summary):
                steps.append(_to_summary((summary.level, summary_id), summary_id, False))
        return steps

    # -- from an entity ----------------------------------------------------------------------------

    def _of_entity(self, row: int) -> Iterator[tuple[EdgeRow, list[Step]]]:
        yield REFERENCES, self._mentioning(row)
        yield RELATES_TO, self._facts(row)
        yield SAME_AS, self._same(row)
        yield MEMBER_OF, self._communities(row)

    def _mentioning(self, row: int) -> list[Step]:
        """Events that mention it, the newest first: no more than can be followed are looked at."""
        mentioned = self._entities.all[row].mentioned_in()
        seen = mentioned[self._view.seen[mentioned]]
        at = self._events.table["occurred_ms"][seen]
        newest = len(seen) - min(len(seen), self._caps[REFERENCES.type])
        # of those of one moment the smaller ids come first
        first = int(numpy.searchsorted(at, at[newest])) if len(seen) else 0
        targets = self._tenant.mentions.targets
        steps: list[Step] = []
        for event, at_ms in zip(seen[first:].tolist(), at[first:].tolist(), strict=True):
            there = self._ids[event]
            for target, _ in targets(event):  # once for each role
                if target == row:
                    order = (-at_ms, there)
                    steps.append((order, there, False, False, _UNKNOWN, 0, at_ms))
        return steps

    def _facts(self, row: int) -> list[Step]:
        now_ms = self._view.scope.now_ms
        steps: list[Step] = []
        for fact in self._entities.all[row].facts:
            forward = fact.source == row
            other = self._entities.all[fact.target if forward else fact.source]
            if other.stands and fact.holds(now_ms) and self._view.sees_fact(fact):
                view = VIEW_NUMBERS.get(fact.edge_type, 0)
                order = (-fact.confidence, -fact.valid_from, other.entity_id, forward, view)
                values = (fact.confidence, view, fact.valid_from)
                steps.append(_to_entity(order, other, forward, values))
        return steps

    def _same(self, row: int) -> list[Step]:
        entity = self._entities.all[row]
        steps: list[Step] = []
        for other_row, confidence in entity.same.items():
            other = self._entities.all[other_row]
            if self._view.sees_entity(other_row):
                forward = entity.entity_id < other.entity_id
                sure = _UNKNOWN if confidence is None else confidence
                steps.append(_to_entity(other.entity_id, other, forward, (sure, 0, _UNKNOWN)))
        return steps

    def _communities(self, row: int) -> list[Step]:
        return [
            (community, COMMUNITY_PREFIX + community, True, False, _UNKNOWN, 0, _UNKNOWN)
            for community in self._entities.all[row].communities
            if self._view.sees_made(self._tenant.communities.get(community))
        ]

    # -- from what consolidation made --------------------------------------------------------------

    def _parts(self, summary_id: str) -> list[Step]:
        """Events that it was made from, the most important first, then the newest."""
        score = self._events.table["score"]
        steps: list[Step] = []
        for part in self._tenant.below.get(summary_id, ()):
            if isinstance(part, int) and self._sees_event(part):
                at_ms, there = self._at(part), self._ids[part]
                order = (-int(score[part]), -at_ms, there)
                steps.append((order, there, True, False, _UNKNOWN, 0, at_ms))
        return steps

    def _summaries(self, summary_id: str) -> list[Step]:
        """Summaries that it was made from, and those made from it, the highest first."""
        below = [one for one in self._tenant.below.get(summary_id, ()) if isinstance(one, str)]
        above = self._tenant.above.get(summary_id, ())
        steps: list[Step] = []
        for others, forward in ((below, True), (above, False)):
            for other in others:
                summary = self._tenant.summaries.get(other)
                if summary is not None and self._view.sees_made(summary):
                    steps.append(_to_summary((-summary.level, other), other, forward))
        return steps

    def _members(self, community_id: str) -> list[Step]:
        rows = filter(self._view.sees_entity, self._tenant.members.get(community_id, ()))
        members = map(self._entities.all.__getitem__, rows)
        return [_to_entity(entity.entity_id, entity, False) for entity in members]


def _to_entity(
    order: Any, entity: Entity, forward: bool, last: tuple[float, int, float] = _NOTHING_MORE
) -> Step:
    """A step to an entity; `last` are its `quality`, `view` and `at_ms`."""
    return order, ENTITY_PREFIX + entity.entity_id, forward, entity.subtype == VALUE, *last


def _to_summary(order: Any, summary_id: str, forward: bool) -> Step:
    return order, SUMMARY_PREFIX + summary_id, forward, False, _UNKNOWN, 0, _UNKNOWN
