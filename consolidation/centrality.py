"""How much an event gains in importance by what hangs on it.

`TERMS` is the whole of it; the documentation's table is made from it. Every term is measured on
CAUSED_BY or REFERENCES: who summarises, follows or resembles an event adds nothing, so no summary
makes its sources immortal. All measures are local (the event's own edges, and who else mentions its
rare entities), so a pass over changed sessions finds the boosts of their events, and those of
their causes, without looking at the rest of the graph. Of an unchanged session that shares a rare
entity with a changed one the boosts are found when it is looked at together with it; a rare entity
is known in few sessions, so those are few.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from math import log2
from typing import Final, NamedTuple

from consolidation.sources import SourceEvent
from projections.schema import CAUSED_BY, REFERENCES, EdgeRow


class Connections(NamedTuple):
    """What the boost of an event is made from, each at least 0.

    Attributes:
        effects: different retained events that go back to it.
        causes: different retained events that it goes back to.
        sessions: other sessions that mention one of its rare entities.
    """

    effects: int = 0
    causes: int = 0
    sessions: int = 0


class Term(NamedTuple):
    """A row of the table.

    Attributes:
        name: of the term.
        row: the edges that it is measured on.
        measure: at least 0; a power of two in it is a step.
        points: for each doubling of the measure, from 1 on.
        most: points that the term gives.
        meaning: what is measured, for the documentation.
    """

    name: str
    row: EdgeRow
    measure: Callable[[Connections], int]
    points: float
    most: float
    meaning: str


TERMS: Final = (
    Term(
        name="in-degree",
        row=CAUSED_BY,
        measure=lambda one: one.effects,
        points=0.5,
        most=1.5,
        meaning="events that go back to it; one is what every step of a chain has",
    ),
    Term(
        name="paths",
        row=CAUSED_BY,
        measure=lambda one: one.effects * one.causes,
        points=0.25,
        most=0.5,
        meaning="causal paths of two steps that lead through it",
    ),
    Term(
        name="shared entities",
        row=REFERENCES,
        measure=lambda one: 1 + one.sessions,
        points=0.25,
        most=1.0,
        meaning="its own session and the others that mention one of its rare entities",
    ),
)


def importance_boost(connections: Connections) -> float:
    """The boost of an event's importance, 0 to `payloads.MAX_BOOST`, a multiple of 0.1.

    0 without connections; never less with more of them.
    """
    points = sum(
        min(term.most, term.points * log2(max(1, term.measure(connections)))) for term in TERMS
    )
    return round(points, 1)


def boosts(
    events: Iterable[SourceEvent],
    effects: Mapping[str, int],
    sessions_of: Mapping[str, Collection[str]],
) -> dict[str, float]:
    """Boosts by event id, those that are 0 left out.

    Args:
        events: whose boosts are asked for.
        effects: by event id, how many different retained events have a CAUSED_BY to it; none: 0.
        sessions_of: by id of a rare entity (`links.rare_entities`), the sessions that mention it.
    """
    positive = {}
    for event in events:
        others = {
            session
            for entity in event.entities
            for session in sessions_of.get(entity.entity_id, ())
            if session != event.session_id
        }
        causes = {cause.event_id for cause in event.causes}
        boost = importance_boost(
            Connections(effects.get(event.event_id, 0), len(causes), len(others))
        )
        if boost:
            positive[event.event_id] = boost
    return positive


def changed_boosts(
    current: Mapping[str, float], recorded: Mapping[str, float], looked_at: Iterable[str]
) -> dict[str, float]:
    """Boosts to record: those that are others than recorded, 0 where one is lost.

    Args:
        current: of the events that were looked at.
        recorded: what the graph shows; an event without one has 0.
        looked_at: ids of the events; what is recorded of others stays.
    """
    return {
        key: current.get(key, 0.0)
        for key in sorted(set(looked_at))
        if current.get(key, 0.0) != recorded.get(key, 0.0)
    }
