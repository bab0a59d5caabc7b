"""Parts of the retrieval switched off, for the ablation; the API has no such switch for users.

The bench's API runs in this process, so what it reads can be exchanged for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import fields, replace
from functools import partial
from types import ModuleType
from typing import Any, Final

from api.retrieval import answer, gather, ranking, relevance
from api.retrieval.relevance import DEFAULT_WEIGHTS, RelevanceWeights
from projections.schema import EDGES, FOLLOWS, INTENT_WEIGHTS

Switch = Callable[[], AbstractContextManager[None]]


@contextmanager
def exchanged(module: ModuleType, name: str, value: Any) -> Iterator[None]:
    """A module's attribute is another one for a while."""
    before = getattr(module, name)
    setattr(module, name, value)
    try:
        yield
    finally:
        setattr(module, name, before)


@contextmanager
def without_hits(channel: str) -> Iterator[None]:
    """A channel finds nothing."""

    def nothing(*_: Any, **__: Any) -> list[Any]:
        return []

    with exchanged(gather, channel, nothing):
        yield


@contextmanager
def with_weights(weights: RelevanceWeights) -> Iterator[None]:
    """Relevance is weighed otherwise."""
    with exchanged(answer, "ranking", partial(ranking.ranking, channel_weights=weights)):
        yield


@contextmanager
def without_edges(type_: str) -> Iterator[None]:
    """No intent walks edges of a type; without the order of events they have no neighbours."""
    before = {intent: weights[type_] for intent, weights in INTENT_WEIGHTS.items()}
    for weights in INTENT_WEIGHTS.values():
        weights[type_] = 0.0
    reach = 0 if type_ == FOLLOWS.type else relevance.REACH
    try:
        with exchanged(relevance, "REACH", reach):
            yield
    finally:
        for intent, weight in before.items():
            INTENT_WEIGHTS[intent][type_] = weight


_HITS: Final = {"full text finds": "text_hits", "vector finds": "vector_hits"}

SWITCHES: Final[dict[str, Switch]] = {
    **{name: partial(without_hits, function) for name, function in _HITS.items()},
    **{
        f"relevance: {part.name}": partial(
            with_weights, replace(DEFAULT_WEIGHTS, **{part.name: 0.0})
        )
        for part in fields(RelevanceWeights)
    },
    **{f"edges: {type_}": partial(without_edges, type_) for type_ in EDGES},
}
"""What can be switched off, by what it is called in the table."""
