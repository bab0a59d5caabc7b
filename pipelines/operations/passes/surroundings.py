"""What lies around sessions that changed: with whom each is compared, and what both are made of.

Who is concerned is found for a whole page of sessions at once, and then read run by run, so that a
pass asks few questions and still has few events in memory. Everything but what sessions are made
of is read anew for each page, after the events of its sessions: of two sessions that come to share
something while a pass is under way, the later one finds the earlier.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from consolidation.links import (
    NEARLY_RARE,
    RARE_SESSIONS,
    SessionProfile,
    alike_sessions,
    session_profile,
    sharing_sessions,
    slim,
)
from consolidation.sources import SourceEvent
from pipelines.graph.reads.consolidation import ConsolidationReader
from pipelines.graph.reads.linking import RecordedLinks, SessionState, Weight

KNOWN_EVENTS = 50_000
"""Events of sessions that are kept in memory (some 30 MB), lest neighbours be read again and
again.
"""
RUN_EVENTS = 5_000
"""Events of neighbours that are read for sessions that are decided about together."""
READ_EVENTS = 2_000
"""Events that are read by one question, unless one session has more."""
MAX_LINKING = 50
"""Sessions that are looked at again because they are linked to one that changed."""
MAX_CAUSING = 20
"""Other sessions of which events of one that changed are effects."""

Mentioning = Mapping[str, Collection[str]]


class Known(NamedTuple):
    """A session as far as others are concerned; its events without their words."""

    profile: SessionProfile
    events: tuple[SourceEvent, ...]


class Surroundings(NamedTuple):
    """What is to be known to link a session that changed, and to weigh events in and around it.

    Attributes:
        own: the session.
        circle: its neighbours, by id.
        touched: of each session that did not change itself, the events whose boost may be another
            one now.
        mentioning: by id of what is rare, the sessions that mention it.
        recorded: links of the session and of neighbours that did not change, as decided.
        weights: of its events and of those that are touched.
    """

    own: Known
    circle: Mapping[str, Known]
    touched: Mapping[str, Known]
    mentioning: Mentioning
    recorded: Mapping[str, RecordedLinks]
    weights: Mapping[str, Weight]


class _Near(NamedTuple):
    """Who is concerned by a session that changed.

    Attributes:
        mentioning: of what it may be linked by.
        neighbours: the sessions to compare it with, in that order.
        causing: causes of its events in other sessions, and those sessions.
    """

    own: Known
    mentioning: Mentioning
    neighbours: Sequence[str]
    causing: Mapping[str, str]

    @property
    def sessions(self) -> set[str]:
        return {*self.neighbours, *self.causing.values()}


class _Concerned(NamedTuple):
    """The same once the others were read; `wanted`: what else must be known to be rare or not."""

    near: _Near
    circle: Mapping[str, Known]
    touched: Mapping[str, Known]
    wanted: set[str]


class SurroundingsReader:
    """Reads what lies around sessions of one tenant, page by page.

    Args:
        reader: of the graph.
        tenant: whose sessions they are.
    """

    def __init__(self, reader: ConsolidationReader, tenant: str) -> None:
        self._reader = reader.links
        self._tenant = tenant
        self._visited: set[str] = set()
        self._known = _KnownSessions(reader, tenant)

    def read(self, page: Mapping[str, Sequence[SourceEvent]]) -> Iterator[Surroundings]:
        """What lies around each session of a page, in its order.

        Args:
            page: sessions that changed, and all events that each retains, at least one.
        """
        self._visited |= page.keys()
        own = {one: self._known.keep(one, events) for one, events in page.items()}
        mentioning = self._reader.mentioning(
            self._tenant,
            {name for known in own.values() for name in known.profile.entities},
            NEARLY_RARE,
        )
        near = self._near(own, mentioning)
        others = {one for some in near for one in some.sessions} - own.keys()
        states = self._reader.states(self._tenant, others)
        changed = self._visited | {one for one, state in states.items() if state.pending}
        for run in self._known.runs(near, own, states):
            found = own | self._known.read(
                [one for some in run for one in sorted(some.sessions)], own, states
            )
            yield from self._surroundings(
                [_concerned(some, found, changed) for some in run], own, mentioning
            )

    def _near(self, own: Mapping[str, Known], mentioning: Mentioning) -> list[_Near]:
        tenant = self._tenant
        tools = {one.tool for known in own.values() for one in known.profile.failures}
        failed = self._reader.failed(tenant, tools)
        linking = self._reader.linking(tenant, own, MAX_LINKING)
        outside = {one: _causes_outside(known.events) for one, known in own.items()}
        weights = self._reader.weights(tenant, {one for some in outside.values() for one in some})
        found = []
        for one, known in own.items():
            profile = known.profile
            mine = {key: mentioning[key] for key in sorted(profile.entities) if key in mentioning}
            near = [
                *sharing_sessions(one, mine),
                *alike_sessions(
                    one,
                    profile.failures,
                    [
                        event
                        for tool in sorted({failure.tool for failure in profile.failures})
                        for event in failed.get(tool, ())
                    ],
                ),
                *linking.get(one, ()),
            ]
            causing = {key: weights[key].session_id for key in outside[one] if key in weights}
            kept = set(sorted(set(causing.values()))[:MAX_CAUSING])
            found.append(
                _Near(
                    known,
                    mine,
                    list(dict.fromkeys(near)),
                    {key: session for key, session in causing.items() if session in kept},
                )
            )
        return found

    def _surroundings(
        self,
        run: Sequence[_Concerned],
        own: Mapping[str, Known],
        mentioning: Mapping[str, frozenset[str]],
    ) -> Iterator[Surroundings]:
        tenant = self._tenant
        asked = {name for known in own.values() for name in known.profile.entities}
        more = self._reader.mentioning(
            tenant, {name for one in run for name in one.wanted} - asked, RARE_SESSIONS
        )
        more |= {key: some for key, some in mentioning.items() if len(some) <= RARE_SESSIONS}
        linked = {
            session_id
            for one in run
            for session_id in (one.near.own.profile.session_id, *one.touched)
        }
        recorded = self._reader.recorded_links(tenant, linked)
        weights = self._reader.weights(
            tenant,
            {
                event.event_id
                for one in run
                for known in (one.near.own, *one.touched.values())
                for event in known.events
            },
        )
        for one in run:
            further = {key: more[key] for key in one.wanted if key in more}
            rare = {**further, **one.near.mentioning}
            yield Surroundings(one.near.own, one.circle, one.touched, rare, recorded, weights)


class _KnownSessions:
    """Sessions of one tenant as others see them, those that were of use last kept."""

    def __init__(self, reader: ConsolidationReader, tenant: str) -> None:
        self._reader = reader.sessions
        self._tenant = tenant
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._events = 0

    def keep(self, session_id: str, events: Sequence[SourceEvent]) -> Known:
        """Keep a session, of which all events are given, in place of what was known of it."""
        known = Known(session_profile(events), tuple(map(slim, events)))
        before = self._known.pop(session_id, None)
        self._events += len(events) - (len(before.events) if before else 0)
        self._known[session_id] = known
        while self._events > KNOWN_EVENTS and len(self._known) > 1:
            _, gone = self._known.popitem(last=False)
            self._events -= len(gone.events)
        return known

    def runs(
        self,
        near: Iterable[_Near],
        own: Collection[str],
        states: Mapping[str, SessionState],
    ) -> Iterator[list[_Near]]:
        """Sessions whose neighbours are few enough to be read together, in their order."""
        run: list[_Near] = []
        missing: set[str] = set()
        for one in near:
            further = one.sessions - self._known.keys() - missing
            further.difference_update(own)
            if run and _event_count(missing | further, states) > RUN_EVENTS:
                yield run
                run, missing = [], set()
                further = one.sessions - self._known.keys()
                further.difference_update(own)
            run.append(one)
            missing |= further
        if run:
            yield run

    def read(
        self,
        session_ids: Iterable[str],
        own: Collection[str],
        states: Mapping[str, SessionState],
    ) -> dict[str, Known]:
        """Those of other sessions than one's own that retain anything."""
        wanted = [one for one in dict.fromkeys(session_ids) if one not in own]
        found = {one: self._known[one] for one in wanted if one in self._known}
        for part in _parts([one for one in wanted if one not in found], states):
            read = self._reader.slim_events(self._tenant, part)
            found |= {one: self.keep(one, events) for one, events in read.items()}
        for one in found:
            if one in self._known:
                self._known.move_to_end(one)
        return found


def _concerned(near: _Near, found: Mapping[str, Known], changed: Collection[str]) -> _Concerned:
    circle = {one: found[one] for one in near.neighbours if one in found}
    touched = {
        one: _touched(found[one], near.mentioning, near.causing)
        for one in sorted({*circle, *near.causing.values()} & found.keys())
        if one not in changed
    }
    wanted = {
        entity.entity_id
        for known in touched.values()
        for event in known.events
        for entity in event.entities
    }
    # what a neighbour that did not change has in common with another
    times = Counter(name for known in circle.values() for name in known.profile.entities)
    wanted.update(
        name
        for one, known in touched.items()
        if one in circle
        for name in known.profile.entities
        if times[name] > 1
    )
    return _Concerned(near, circle, touched, wanted - near.mentioning.keys())


def _touched(known: Known, mentioning: Mentioning, causing: Collection[str]) -> Known:
    """A session with those of its events whose boost may be another one now."""
    return Known(
        known.profile,
        tuple(
            event
            for event in known.events
            if event.event_id in causing
            or any(one.entity_id in mentioning for one in event.entities)
        ),
    )


def _causes_outside(events: Iterable[SourceEvent]) -> set[str]:
    events = list(events)
    causes = {cause.event_id for event in events for cause in event.causes}
    return causes - {event.event_id for event in events}


def _parts(
    session_ids: Sequence[str], states: Mapping[str, SessionState]
) -> Iterator[Sequence[str]]:
    part: list[str] = []
    for one in session_ids:
        if part and _event_count([*part, one], states) > READ_EVENTS:
            yield part
            part = []
        part.append(one)
    if part:
        yield part


def _event_count(session_ids: Iterable[str], states: Mapping[str, SessionState]) -> int:
    return sum(states.get(one, SessionState()).event_count for one in session_ids)
