"""A viewer's questions, answered where the columns are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy

from pipelines.columns.beside import beside
from pipelines.columns.listing import last_ms, listed
from pipelines.columns.names import ColumnNames
from pipelines.columns.open_items import open_things
from pipelines.columns.reads import (
    Beside,
    Mentions,
    Reached,
    SessionAsked,
    SessionList,
    SessionPage,
    SessionsAsked,
    WalkAsked,
    Wanted,
)
from pipelines.columns.records import (
    Array,
    ListAsked,
    Listed,
    OpenAsked,
    OpenThings,
    Standings,
    Steps,
    Stories,
    StoriesAsked,
)
from pipelines.columns.sessions import session_page, sessions_of
from pipelines.columns.stories import stories_of
from pipelines.columns.walk import Walker
from pipelines.columns.walked import MAX_REACHED_EVENTS, walked
from pipelines.graph.rows import Hits, Least, SessionCandidates, Signalled


class ViewReads(ColumnNames):
    """The questions, asked of a view.

    Args:
        view: who looks; nobody changes the columns meanwhile.
    """

    def session(self, session_id: str, names: Sequence[str]) -> SessionAsked:
        """The last events of a session, and which of canonical names somebody acts under."""
        return SessionAsked(self._view.session_events(session_id), self._view.speaking(names))

    def session_user(self, session_id: str) -> str | None:
        """The user of a session, by its last events, whoever looks; None: they are of nobody."""
        return self._view.session_user(session_id)

    def sessions(self, wanted: SessionsAsked) -> SessionList:
        """The sessions in which the viewer sees something, the newest first."""
        return sessions_of(self._view, wanted)

    def session_page(
        self, session_id: str, behind: tuple[int, str] | None, limit: int
    ) -> SessionPage:
        """The events of a session in order, behind (time, event id)."""
        return session_page(self._view, session_id, behind, limit)

    def session_candidates(self, session_id: str, limit: int) -> SessionCandidates:
        """Events among which the session's `limit` best by decay score are, and how many it has."""
        return self._view.session_candidates(session_id, limit)

    def text_hits(self, stems: Sequence[str], limit: int) -> Hits:
        """Events whose text holds the stems, the best first, and those kept from the viewer."""
        return self._view.text_hits(stems, limit)

    def vector_hits(self, vector: Sequence[float], limit: int) -> Hits:
        """The nearest events by plain cosine, the nearest first; see `text_hits`."""
        return self._view.vector_hits(numpy.array(vector, dtype=numpy.float32), limit)

    def standings(self, wanted: Wanted) -> Standings:
        """Events that the viewer sees."""
        vector = None if wanted.vector is None else numpy.array(wanted.vector, dtype=numpy.float32)
        chosen = self._view.chosen(wanted.around, wanted.ids)
        met = self._view.among(wanted.met, beside=chosen)[: wanted.most_met]
        rows = numpy.union1d(chosen, met).astype(numpy.int32)
        return self._view.standings(rows, stems=wanted.stems, vector=vector)

    def last_ms(self, until_ms: int) -> int | None:
        """See `ColumnReads`."""
        return last_ms(self._view, until_ms)

    def listed(self, question: ListAsked) -> Listed:
        """See `ColumnReads`."""
        return listed(self._view, question)

    def open_things(self, question: OpenAsked) -> OpenThings:
        """See `ColumnReads`."""
        return open_things(self._view, question)

    def stories(self, question: StoriesAsked) -> Stories:
        """The stories that a question may be answered from."""
        return stories_of(self._view, question)

    def pending(self, event_ids: Sequence[str]) -> list[str]:
        """Those of some events that the viewer sees, and that are not in the graph yet."""
        return self._view.pending(event_ids)

    def vectors(self, event_ids: Sequence[str]) -> Array:
        """Vectors of unit length, a row an event; zeros of one that has none or is not seen."""
        return self._view.vectors(event_ids)

    def mentions(self, ids: Iterable[str], before: tuple[int, str], limit: int) -> Mentions:
        """The newest events that mention any of the entities, behind (time, event id)."""
        return self._view.mentions(ids, before, limit)

    def steps(self, node_ids: Iterable[str], caps: Mapping[str, int]) -> Steps:
        """The edges around some nodes, at most `caps` of each type at each, the best of them."""
        return Walker(self._view, caps).steps(node_ids)

    def walked(self, walk: WalkAsked, wanted: Wanted) -> Reached:
        """What a walk from some nodes meets, and what ranking must know of events."""
        reached = walked(walk, Walker(self._view, walk.caps).rows, self._view.scope.now_ms)
        met = reached.events()[:MAX_REACHED_EVENTS]
        return Reached(reached, self.standings(wanted._replace(met=met)))

    def beside(self, start: Beside, least: Least) -> list[Signalled]:
        """Events nobody asked for, the most telling first."""
        return beside(self._view, start, least)
