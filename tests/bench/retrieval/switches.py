"""Parts of the retrieval switched off, for the ablation; the API has no such switch for users.

The bench's API runs in this process, so what it reads can be exchanged for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from functools import partial
from typing import Any, Final

import numpy

from api.retrieval import answer, gather
from api.retrieval.ranking import Pool, Ranked, ranking
from api.retrieval.recall import RecallSeeds
from api.retrieval.relevance import DEFAULT_WEIGHTS, RelevanceWeights
from consolidation.decay import DecayWeights
from pipelines.columns.access import RemoteReads
from pipelines.columns.reads import Reached, WalkAsked, Wanted
from pipelines.columns.records import Standings
from pipelines.columns.tables import NOBODY
from pipelines.columns.walked import walked
from pipelines.graph.rows import Hits
from projections.schema import EDGES, FOLLOWS, INTENT_WEIGHTS

Switch = Callable[[], AbstractContextManager[None]]

_standings = RemoteReads.standings
_walked = RemoteReads.walked
_ranking = ranking


@contextmanager
def exchanged(owner: object, name: str, value: Any) -> Iterator[None]:
    """An attribute of a module or a class is another one for a while."""
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


def without_hits(owner: object, name: str) -> AbstractContextManager[None]:
    """A channel finds nothing."""

    def nothing(*_: Any, **__: Any) -> Hits:
        return Hits([], [])

    return exchanged(owner, name, nothing)


def without_names() -> AbstractContextManager[None]:
    """Nobody is named."""

    def nobody(*_: Any, **__: Any) -> RecallSeeds:
        return RecallSeeds([], "none")

    return exchanged(gather.Gathering, "_entities", nobody)


def without_walk() -> AbstractContextManager[None]:
    """Nobody leaves the seeds."""

    def stay(reads: RemoteReads, walk: WalkAsked, wanted: Wanted) -> Reached:
        alone = walked(walk, lambda _, __: (), reads._scope.now_ms)
        return Reached(alone, RemoteReads.standings(reads, wanted))

    return exchanged(RemoteReads, "walked", stay)


def with_weights(weights: RelevanceWeights) -> AbstractContextManager[None]:
    """Relevance is weighed otherwise."""
    return exchanged(answer, "ranking", partial(_ranking, channel_weights=weights))


@contextmanager
def without_neighbours() -> Iterator[None]:
    """An event is judged by itself: nobody knows what was said around it."""

    def alone(standings: Standings) -> Standings:
        previous = numpy.full(len(standings.ids), NOBODY)
        return standings._replace(previous=previous, window_cosines=standings.cosines)

    def told(reads: RemoteReads, wanted: Wanted) -> Standings:
        return alone(_standings(reads, wanted))

    def walked_alone(reads: RemoteReads, walk: WalkAsked, wanted: Wanted) -> Reached:
        reached = _walked(reads, walk, wanted)
        return reached._replace(standings=alone(reached.standings))

    with (
        exchanged(RemoteReads, "standings", told),
        exchanged(RemoteReads, "walked", walked_alone),
    ):
        yield


def by_relevance_alone() -> AbstractContextManager[None]:
    """How recent and how important an event is, is left out."""

    def ranked(
        pool: Pool, standings: Standings, weights: DecayWeights, now_ms: int, **rest: Any
    ) -> list[Ranked]:
        return _ranking(pool, standings, DecayWeights(0.0, 0.0, weights.relevance), now_ms, **rest)

    return exchanged(answer, "ranking", ranked)


@contextmanager
def without_edges(type_: str) -> Iterator[None]:
    """No intent walks edges of a type."""
    before = {intent: weights[type_] for intent, weights in INTENT_WEIGHTS.items()}
    for weights in INTENT_WEIGHTS.values():
        weights[type_] = 0.0
    try:
        yield
    finally:
        for intent, weight in before.items():
            INTENT_WEIGHTS[intent][type_] = weight


@contextmanager
def without_order() -> Iterator[None]:
    """Nobody knows which event follows which: neither the walk nor what is said around one."""
    with without_edges(FOLLOWS.type), without_neighbours():
        yield


WALKED: Final = tuple(type_ for type_ in EDGES if any(w[type_] for w in INTENT_WEIGHTS.values()))
"""Edge types that weigh something for an intent; the others change no answer."""

SWITCHES: Final[Mapping[str, Switch]] = {
    "full text finds": partial(without_hits, RemoteReads, "text_hits"),
    "vector finds": partial(without_hits, RemoteReads, "vector_hits"),
    "entity finds": without_names,
    "the walk": without_walk,
    **{
        f"relevance: {part.name}": partial(
            with_weights, replace(DEFAULT_WEIGHTS, **{part.name: 0.0})
        )
        for part in fields(RelevanceWeights)
    },
    "relevance: neighbours": without_neighbours,
    "recency and importance": by_relevance_alone,
    **{f"edges: {type_}": partial(without_edges, type_) for type_ in WALKED},
    f"edges: {FOLLOWS.type}, neighbours": without_order,
}
"""What can be switched off, by what it is called in the table."""
