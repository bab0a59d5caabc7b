"""What ranking needs to know of events: how they stand, from the graph; what they say, remembered.

Which events may be seen, and all that changes of them, the graph says each time. What they say
stays, and to read it costs several times as much, so it is remembered for a while: an event that
is enriched anew ranks by what it said before for that long, and is shown as it is.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

import numpy

from api.retrieval.candidate_text import Candidate, HalfVector, Passage, unit_vector
from api.sized_entries import SizedEntries
from pipelines.graph.reader import GraphRead, GraphReader
from pipelines.graph.reads.channels import contents, standings
from pipelines.graph.reads.scope import Scope
from pipelines.observe import metrics

REMEMBERED_S: Final = 300.0
"""From when it was read."""
_OWN_BYTES: Final = 1_800
_BYTES_PER_WORD: Final = 40
"""Of a passage with its places here, and of a word with its stem, as tracemalloc counts them."""


class _Entry(NamedTuple):
    passage: Passage
    until_s: float


class PassageCache:
    """Passages of one graph, the last used ones; safe for use by several threads.

    Args:
        max_bytes: of all of them, as estimated; 0: nothing is remembered.
    """

    def __init__(self, max_bytes: int) -> None:
        self._entries: SizedEntries[tuple[str, str], _Entry] = SizedEntries(max_bytes)
        self._lock = threading.Lock()
        self._graph: weakref.ref[GraphReader] | None = None

    @property
    def held_bytes(self) -> int:
        """What all of them take, as estimated."""
        return self._entries.held_bytes

    def get(self, graph: GraphReader, tenant: str, event_ids: Iterable[str]) -> dict[str, Passage]:
        """Those that are remembered, by event id; nothing of another graph than the last one."""
        now_s = time.monotonic()
        found = {}
        missed = 0
        with self._lock:
            self._turn_to(graph)
            for event_id in event_ids:
                key = (tenant, event_id)
                entry = self._entries.get(key)
                if entry is None or entry.until_s <= now_s:
                    missed += 1
                    continue
                self._entries.renew(key)
                found[event_id] = entry.passage
        lookups = metrics.CACHE_LOOKUPS
        lookups.labels(cache="passage", outcome="hit").inc(len(found))
        lookups.labels(cache="passage", outcome="miss").inc(missed)
        return found

    def put(self, graph: GraphReader, tenant: str, passages: Iterable[Passage]) -> None:
        """Remember passages that were read just now."""
        until_s = time.monotonic() + REMEMBERED_S
        with self._lock:
            self._turn_to(graph)
            for passage in passages:
                entry = _Entry(passage, until_s)
                self._entries.put((tenant, passage.event_id), entry, _size(passage))

    def _turn_to(self, graph: GraphReader) -> None:
        if self._graph is None or self._graph() is not graph:
            self._entries.clear()
            self._graph = weakref.ref(graph)


def _size(passage: Passage) -> int:
    vector = 0 if passage.vector is None else passage.vector.nbytes
    return _OWN_BYTES + vector + round(_BYTES_PER_WORD * passage.length)


class Candidates:
    """The candidates of one query.

    Args:
        reader: of the graph.
        scope: whose memory.
        cache: of passages.
        vector: of the question; None: it has none.
    """

    def __init__(
        self,
        reader: GraphReader,
        scope: Scope,
        cache: PassageCache,
        vector: Sequence[float] | None,
    ) -> None:
        self._reader = reader
        self._scope = scope
        self._cache = cache
        self._vector = None if vector is None else unit_vector(vector)

    def read(
        self, *, around: Sequence[str], ids: Sequence[str], timeout_ms: int
    ) -> list[Candidate]:
        """The events that are in scope, in no order.

        Args:
            around: these, and a few events before and after each in its session.
            ids: these alone.
            timeout_ms: for all of it.

        Raises:
            QueryTimeout: the time was over.
            GraphUnavailable: Neo4j is away.
        """

        def ask(graph: GraphRead) -> list[Candidate]:
            found = standings(graph, self._scope, around=around, ids=ids)
            passages = self._passages(graph, [one.event_id for one in found])
            known = [one for one in found if one.event_id in passages]
            cosines = self._cosines([passages[one.event_id] for one in known])
            return [
                Candidate(
                    passages[one.event_id],
                    one.previous_id,
                    cosine,
                    one.importance,
                    one.access_count,
                    one.accessed_at_ms,
                )
                for one, cosine in zip(known, cosines, strict=True)
            ]

        return self._reader.read(ask, timeout_ms=timeout_ms)

    def _passages(self, graph: GraphRead, event_ids: Sequence[str]) -> Mapping[str, Passage]:
        """Of the events, as far as they are there still."""
        tenant = self._scope.tenant
        found = self._cache.get(self._reader, tenant, event_ids)
        missing = [one for one in event_ids if one not in found]
        if missing:
            new = contents(graph, tenant, missing)
            read = {one.event_id: Passage.of(one) for one in new}
            # What has no text yet is about to be enriched.
            enriched = [read[one.event_id] for one in new if one.text is not None]
            self._cache.put(self._reader, tenant, enriched)
            found |= read
        return found

    def _cosines(self, passages: Sequence[Passage]) -> list[float | None]:
        """With the question's vector; None: one of the two has none, or of another length."""
        asked = self._vector
        cosines: list[float | None] = [None] * len(passages)
        if asked is None:
            return cosines
        places: list[int] = []
        rows: list[HalfVector] = []
        for place, passage in enumerate(passages):
            if passage.vector is not None and passage.vector.shape == asked.shape:
                places.append(place)
                rows.append(passage.vector)
        if rows:
            found = numpy.stack(rows).astype(numpy.float32) @ asked
            for place, value in zip(places, found.tolist(), strict=True):
                cosines[place] = value
        return cosines
