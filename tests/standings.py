"""Events as tests write them down, and what columns would tell of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy

from api.retrieval.query_terms import QueryTerms
from enrichment.stems import said_stems
from pipelines.columns.records import Standings
from pipelines.columns.tables import NOBODY
from pipelines.graph.rows import DEFAULT_IMPORTANCE


class Said(NamedTuple):
    """An event that may be ranked."""

    event_id: str
    author: str | None
    text: str
    tool_name: str | None = None
    occurred_ms: int = 0
    previous_id: str | None = None
    cosine: float | None = None
    window_cosine: float | None = None
    importance: float = DEFAULT_IMPORTANCE
    accesses: int = 0
    accessed_ms: int = 0


def standings(said: Sequence[Said], terms: QueryTerms) -> Standings:
    """What columns tell of events; one before them that is not among them is nobody."""
    places = {one.event_id: place for place, one in enumerate(said)}
    stems = [said_stems(one.author or "", one.tool_name or "", one.text) for one in said]
    counts = numpy.zeros((len(said), len(terms.stems)))
    for row, held in enumerate(stems):
        counts[row] = [held.get(stem, 0) for stem in terms.stems]
    cosines = numpy.array([one.cosine for one in said], dtype="f8")
    summed = numpy.array([one.window_cosine for one in said], dtype="f8")
    return Standings(
        ids=[one.event_id for one in said],
        authors=[one.author or "" for one in said],
        occurred_ms=numpy.array([one.occurred_ms for one in said], dtype="i8"),
        importance=numpy.array([one.importance for one in said], dtype="f8"),
        accesses=numpy.array([one.accesses for one in said], dtype="i8"),
        accessed_ms=numpy.array([one.accessed_ms for one in said], dtype="i8"),
        words=numpy.array([len(one.text.split()) for one in said], dtype="i8"),
        asks=numpy.array([one.text.rstrip().endswith("?") for one in said], dtype=bool),
        previous=numpy.array([places.get(one.previous_id or "", NOBODY) for one in said], "i8"),
        counts=counts,
        stems=numpy.array([len(held) for held in stems], dtype="i8"),
        cosines=cosines,
        window_cosines=numpy.where(numpy.isnan(summed), cosines, summed),  # as of who stands alone
    )
