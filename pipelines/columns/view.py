"""What one viewer sees of a tenant's columns, as of now or of a position: masks, then questions.

The one test of visibility of `pipelines.graph.reads.scope`, here for columns: what comes from the
events of a user is that user's alone, what comes from nobody's is shared, what was made from those
of several is for operators; what is behind a position is not seen.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import islice
from typing import Final

import numpy

from pipelines.columns.entities import Entity, Fact
from pipelines.columns.reads import Mentions
from pipelines.columns.records import Standings
from pipelines.columns.tables import NOBODY, Array, Bits, Rows, best
from pipelines.columns.tenant import Made, Tenant
from pipelines.columns.windows import NEIGHBOUR_STEPS, neighbours
from pipelines.graph.reads.scope import OVER_FETCH, Scope, Within
from pipelines.graph.rows import Hit, Hits, SessionCandidate, SessionCandidates, SessionEvent
from projections.events import LAST_MS

CONTEXT_EVENTS: Final = 50
"""The last events of a session among which the most important are looked for."""
_BEHIND_ALL: Final = (LAST_MS, "")
"""Behind it is everything."""
SPEAKING: Final = ("agent", "user")
"""Types of entities that may speak or act."""


class View:
    """Questions about one tenant in one scope; made for each, while the columns do not change.

    Args:
        tenant: whose columns.
        scope: who looks, and as of when.
    """

    def __init__(self, tenant: Tenant, scope: Scope) -> None:
        self.tenant = tenant
        self.scope = scope
        self._met: dict[int, bool] = {}

    # -- who may see what --------------------------------------------------------------------------

    @cached_property
    def known(self) -> Bits:
        """Of each event whether it stands, whoever may see it."""
        table = self.tenant.events.table
        standing = table["stands"].copy()
        until = self.scope.until
        if until is not None:
            ms = table["position_ms"]
            standing &= (ms < until.ms) | ((ms == until.ms) & (table["position_seq"] <= until.seq))
        within = self.scope.within
        return standing if within is None else standing & self._within(within)

    def _within(self, within: Within) -> Bits:
        """Of each event whether a search may find it, whoever looks."""
        table, names = self.tenant.events.table, self.tenant.events.names
        chosen = numpy.ones(table.size, dtype=bool)
        if within.since_ms is not None:
            chosen &= table["occurred_ms"] >= within.since_ms
        if within.until_ms is not None:
            chosen &= table["occurred_ms"] < within.until_ms
        if within.session_id is not None:
            chosen &= table["session"] == names.find(within.session_id)
        for column, texts in (("kind", within.kinds), ("status", within.statuses)):
            if texts:
                numbers = [number for number in map(names.find, texts) if number != NOBODY]
                chosen &= numpy.isin(table[column], numbers)
        return chosen

    @cached_property
    def seen(self) -> Bits:
        """Of each event whether the viewer sees it."""
        return numpy.asarray(self.known & self._of_viewer)

    @cached_property
    def _of_viewer(self) -> Bits:
        users = self.tenant.events.table["user"]
        if self.scope.everyone:
            return numpy.ones(len(users), dtype=bool)
        mine = self.tenant.events.names.find(self.scope.user_id)
        return numpy.asarray((users == NOBODY) | (users == mine))

    def sees_event(self, row: int) -> bool:
        """Whether the viewer sees an event."""
        return bool(self.seen[row])

    def sees_fact(self, fact: Fact) -> bool:
        """Whether the viewer sees a fact, whether it holds or not, and a search may find it."""
        if not self.scope.sees_user(fact.user_id):
            return False
        if self.scope.until is None and self.scope.within is None:
            return True
        row = self.tenant.events.rows.get(fact.event_id)
        table = self.tenant.events.table
        return row is None or not table["stands"][row] or bool(self.known[row])

    def sees_entity(self, row: int) -> bool:
        """Whether the viewer sees an entity: through events that mention it, or facts about it."""
        if row not in self._met:
            entity = self.tenant.entities.all[row]
            self._met[row] = entity.stands and (
                (self.scope.everyone and self.scope.until is None)
                or bool(self.seen[entity.mentioned_in()].any())
                or any(map(self.sees_fact, entity.facts))
            )
        return self._met[row]

    def name_of(self, entity: Entity) -> str:
        """How an entity is called: as whoever met it first spells it, where that may be known."""
        name = entity.name if self.scope.sees_user(entity.first_user_id) else None
        return entity.display_name or name or entity.canonical_name

    def sees_made(self, node: Made | None) -> bool:
        """Whether the viewer sees what consolidation made."""
        if node is None or not node.stands:
            return False
        until, sources = self.scope.until, node.user_ids
        if until is not None and (node.decided_at is None or node.decided_at > tuple(until)):
            return False
        if self.scope.everyone:
            return True
        return sources is not None and all(source == self.scope.user_id for source in sources)

    # -- channels ----------------------------------------------------------------------------------

    def text_hits(self, stems: Sequence[str], limit: int) -> Hits:
        """Events whose text holds the stems, the best first, and those kept from the viewer.

        Args:
            stems: of the question.
            limit: at most so many; those kept are among the best OVER_FETCH times as many.
        """
        sought = [(self.seen, limit)]
        if not numpy.array_equal(self.known, self.seen):  # some may be withheld
            sought.append((self.known, OVER_FETCH * limit))
        rows, scores = self.tenant.events.texts.scored(stems, sought)
        is_known = self.known[rows]
        return self._hits(rows[is_known], scores[is_known], limit)

    def vector_hits(self, vector: Array, limit: int) -> Hits:
        """The nearest events by plain cosine, the nearest first; see `text_hits`."""
        vectors = self.tenant.events.vectors
        rows, cosines = vectors.nearest(
            vector, self.known, OVER_FETCH * limit, self.tenant.events.ranks
        )
        hits = self._hits(rows, cosines, limit)
        if len(hits.shown) < limit and hits.withheld:
            rows, cosines = vectors.nearest(vector, self.seen, limit, self.tenant.events.ranks)
            hits = Hits(self._hits(rows, cosines, limit).shown, hits.withheld)
        return hits

    def _hits(self, rows: Rows, scores: Array, limit: int) -> Hits:
        ids, ranks = self.tenant.events.ids, self.tenant.events.ranks
        seen = self.seen[rows]
        first = best(rows, scores, OVER_FETCH * limit, ranks)
        withheld = [ids[row] for row in rows[first[~seen[first]]].tolist()]
        rows, scores = rows[seen], scores[seen]
        order = best(rows, scores, limit, ranks)
        scored = zip(rows[order].tolist(), scores[order].tolist(), strict=True)
        return Hits([Hit(ids[row], score) for row, score in scored], withheld)

    # -- what ranking must know --------------------------------------------------------------------

    def chosen(self, around: Iterable[str], ids: Iterable[str]) -> Rows:
        """Rows of events that the viewer sees, sorted.

        Args:
            around: these, and up to NEIGHBOUR_STEPS events before and after each in its session.
            ids: these alone.
        """
        return numpy.union1d(self._with_neighbours(self._rows(around)), self._rows(ids))

    def among(self, event_ids: Iterable[str], *, beside: Rows) -> Rows:
        """Rows of events that the viewer sees and that are not among others, in their order."""
        rows = self.tenant.events.rows
        taken = set(beside.tolist())
        chosen = (rows[event_id] for event_id in dict.fromkeys(event_ids) if event_id in rows)
        new = numpy.array([row for row in chosen if row not in taken], dtype=numpy.int32)
        return new[self.seen[new]]

    def standings(
        self, rows: Rows, *, stems: Sequence[str] = (), vector: Array | None = None
    ) -> Standings:
        """What ranking must know of events.

        Args:
            rows: of them, each once; they are told in the order of time.
            stems: of the question.
            vector: of the question, of unit length; None: it has none.
        """
        events = self.tenant.events
        rows = events.in_time(rows)
        table = {name: events.table[name][rows] for name in _OF_STANDINGS}
        previous = self._places_before(rows)
        cosines = window_cosines = numpy.full(len(rows), numpy.nan)
        if vector is not None:
            cosines = events.vectors.cosines(vector, rows)
            window_cosines = events.vectors.window_cosines(vector, rows, neighbours(previous))
        return Standings(
            ids=[events.ids[row] for row in rows.tolist()],
            authors=[events.names.text(one) or "" for one in table["author"].tolist()],
            occurred_ms=table["occurred_ms"],
            importance=table["importance"] + table["boost"],
            accesses=table["accesses"],
            accessed_ms=table["accessed_ms"],
            words=table["words"],
            asks=table["asks"],
            previous=previous,
            counts=events.texts.counts(stems, rows),
            stems=events.texts.distinct(rows),
            cosines=cosines,
            window_cosines=window_cosines,
        )

    def pending(self, event_ids: Iterable[str]) -> list[str]:
        """Those of some events that the viewer sees, and that are not in the graph yet."""
        events = self.tenant.events
        rows = self._rows(event_ids)
        return [events.ids[row] for row in rows[events.table["pending"][rows]].tolist()]

    def mentions(self, ids: Iterable[str], before: tuple[int, str], limit: int) -> Mentions:
        """The newest events that mention any of the entities, behind (time, event id).

        Args:
            ids: of entities.
            before: of the last event of the page before; milliseconds since the epoch.
            limit: of events.
        """
        entities = self.tenant.entities
        each = [
            entities.all[entities.rows[own_id]].mentions
            for own_id in ids
            if own_id in entities.rows
        ]
        rows = numpy.unique(numpy.concatenate([numpy.zeros(0, dtype=numpy.int32), *each]))
        in_time = rows[numpy.argsort(self.tenant.events.table["occurred_ms"][rows], kind="stable")]
        withheld = int((self.known[rows] & ~self.seen[rows]).sum())
        return Mentions(self.newest(in_time, limit, before), withheld)

    def newest(
        self, rows: Rows, limit: int, before: tuple[int, str] = _BEHIND_ALL
    ) -> list[tuple[int, str]]:
        """When the newest events occurred that the viewer sees, and their ids, the newest first.

        Args:
            rows: in their order of time.
            limit: of events.
            before: time and id that they stand behind, milliseconds since the epoch.
        """
        at_ms, event_id = before
        rows, ids = rows[self.seen[rows]], self.tenant.events.ids
        at = self.tenant.events.table["occurred_ms"][rows]
        last = int(at.searchsorted(at_ms, side="right"))
        equal = int(at[:last].searchsorted(at_ms))  # of that very moment ids decide
        behind = [row for row in rows[equal:last].tolist() if ids[row] > event_id]
        first = max(0, equal - limit + len(behind))
        if first < equal:  # likewise of the moment of the last one
            first = int(at.searchsorted(at[first]))
        chosen = [*rows[first:equal].tolist(), *behind]
        times = [*at[first:equal].tolist(), *[at_ms] * len(behind)]
        newest = sorted((-ms, ids[row]) for ms, row in zip(times, chosen, strict=True))
        return [(-ms, own_id) for ms, own_id in newest[:limit]]

    def vectors(self, event_ids: Sequence[str]) -> Array:
        """Vectors of unit length, a row an event; zeros of one that has none or is not seen."""
        events = self.tenant.events
        rows = [events.rows.get(event_id, NOBODY) for event_id in event_ids]
        seen = [row != NOBODY and self.sees_event(row) for row in rows]
        vectors = events.vectors.unit(numpy.array(rows, dtype=numpy.int32))
        vectors[~numpy.array(seen, dtype=bool)] = 0.0
        return vectors

    def _rows(self, event_ids: Iterable[str]) -> Rows:
        """Rows of the events that the viewer sees, each once, sorted."""
        rows = self.tenant.events.rows
        chosen = {rows[event_id] for event_id in event_ids if event_id in rows}
        sorted_rows = numpy.array(sorted(chosen), dtype=numpy.int32)
        return sorted_rows[self.seen[sorted_rows]]

    def _with_neighbours(self, rows: Rows) -> Rows:
        """Rows, and those within a few steps that lead through seen events alone."""
        met = [rows]
        for step in (self._before, self._behind):
            at = rows
            for _ in range(NEIGHBOUR_STEPS):
                at = step(at)
                at = at[at != NOBODY]
                at = at[self.seen[at]]
                met.append(at)
        return numpy.unique(numpy.concatenate(met))

    def _places_before(self, rows: Rows) -> Array:
        """Of each row the place of the one before it in its session; NOBODY: it is not here."""
        places = numpy.full(self.tenant.events.table.size + 1, NOBODY)  # the last one is nobody's
        places[rows] = numpy.arange(len(rows))
        return numpy.asarray(places[self._before(rows)])

    def _before(self, rows: Rows) -> Rows:
        return self._stepped(rows, "previous")

    def _behind(self, rows: Rows) -> Rows:
        return self._stepped(rows, "following")

    def _stepped(self, rows: Rows, side: str) -> Rows:
        """The next event of the session on one side, over those behind the position."""
        column = self.tenant.events.table[side]
        steps = column[rows]
        if self.scope.until is not None:
            while (later := (steps != NOBODY) & ~self.known[steps]).any():
                steps = numpy.where(later, column[steps], steps)
        return steps

    def neighbours(self, row: int) -> tuple[int, int]:
        """Rows of the events before and behind one in its session; NOBODY: there is none."""
        if self.scope.until is None:
            table = self.tenant.events.table
            return table["previous"].item(row), table["following"].item(row)
        at = numpy.array([row])
        return int(self._before(at)[0]), int(self._behind(at)[0])

    # -- where is asked ----------------------------------------------------------------------------

    def session_events(self, session_id: str) -> list[SessionEvent]:
        """The last events of a session, the newest first."""
        events = self.tenant.events
        order = events.sessions.get(events.names.find(session_id), ())
        newest = (row for row in reversed(order) if self.known[row])
        last = list(islice(newest, CONTEXT_EVENTS))
        table, names = events.table, events.names
        return [
            SessionEvent(
                events.ids[row],
                occurred_at_ms=int(table["occurred_ms"][row]),
                importance=int(table["importance"][row]),
                user_id=names.text(int(table["user"][row])),
                agent_id=names.texts[int(table["agent"][row])],
            )
            for row in last
            if self.seen[row]
        ]

    def session_user(self, session_id: str) -> str | None:
        """Whose session it is: the user of whom the ledger had an event first; None: nobody's.

        The first, by a position that nobody can choose: who writes into the session of another
        must not turn its view into their own.
        """
        events = self.tenant.events
        owner = events.owner(events.names.find(session_id))
        return None if owner == NOBODY else events.names.text(int(events.table["user"][owner]))

    def session_candidates(self, session_id: str, limit: int) -> SessionCandidates:
        """Events among which the session's `limit` best by decay score are, and how many it has.

        What the graph does not have yet is none of them. The score falls with age alone once
        importance and access count are given, so the newest of each such group contain them: the
        formula stays in one place.
        """
        events = self.tenant.events
        order = events.sessions.get(events.names.find(session_id), ())
        rows = numpy.array(order, dtype=numpy.int32)
        rows = rows[self.known[rows] & ~events.table["pending"][rows]]
        shown = rows[self.seen[rows]]
        table = {name: events.table[name][shown] for name in _OF_CANDIDATES}
        used = numpy.maximum(table["occurred_ms"], table["accessed_ms"])
        newest = numpy.lexsort((-table["occurred_ms"], -used))
        groups = numpy.stack((table["importance"], table["accesses"]))[:, newest]
        best: list[SessionCandidate] = []
        for group in numpy.unique(groups, axis=1).T:
            places = newest[(groups == group[:, None]).all(axis=0)][:limit]
            best += [
                SessionCandidate(
                    events.ids[shown[place]],
                    int(table["occurred_ms"][place]),
                    int(used[place]),
                    importance=int(group[0]),
                    access_count=int(group[1]),
                )
                for place in places.tolist()
            ]
        return SessionCandidates(best, len(shown), len(rows) - len(shown))

    def speaking(self, names: Iterable[str]) -> list[str]:
        """Those of the canonical names under which somebody speaks or acts, sorted."""
        entities = self.tenant.entities
        return sorted(
            {
                entity.canonical_name
                for row in entities.named(names)
                if (entity := entities.all[row]).entity_type in SPEAKING
                and self.sees_entity(row)
                and self._acts(row, entity)
            }
        )

    def _acts(self, row: int, entity: Entity) -> bool:
        seen = entity.mentioned_in()
        mentions = self.tenant.mentions
        return any(
            mention.target == row and mention.mark
            for event in seen[self.seen[seen]][::-1].tolist()
            for mention in mentions.out(event)
        )


_OF_CANDIDATES: Final = ("occurred_ms", "accessed_ms", "importance", "accesses")
_OF_STANDINGS: Final = (
    *("author", "occurred_ms", "importance", "boost", "accesses", "accessed_ms", "words", "asks"),
)
