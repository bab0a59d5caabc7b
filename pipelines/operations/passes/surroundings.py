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

from consolidation.causes import changing_sessions, rarities
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
from pipelines.graph.port import Reads
from pipelines.operations.passes import related
from pipelines.operations.passes.related import RecordedLinks, SessionState, Weight
from pipelines.operations.passes.source_events import slim_events

KNOWN_EVENTS = 50_000
"""Events of sessions that are kept in memory (some 30 MB), lest neighbours be read again and
again. What a session is compared by takes as much as an event for each TRAITS_AN_EVENT entities.
"""
TRAITS_AN_EVENT = 10
RUN_EVENTS = 5_000
"""Events of neighbours that are read for sessions that are decided about together."""
READ_EVENTS = 2_000
"""Events that are read by one question, unless one session has more."""
MAX_LINKING = 50
"""Sessions that are looked at again because they are linked to one that changed."""
MAX_CHANGING = 10
"""Sessions that changed what a failure of one that changed names, those that did it last."""
MAX_CAUSING = 20
"""Other sessions of which events of one that changed are effects."""

Mentioning = Mapping[str, Collection[str]]


class Known(NamedTuple):
    """A session as far as others are concerned.

    Attributes:
        profile: what it is compared by.
        events: without their words; empty of one that changed, for its boosts are found in its own
            turn alone.
    """

    profile: SessionProfile
    events: tuple[SourceEvent, ...] = ()


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
        graph: that is read.
        tenant: whose sessions they are.
        anew: each session is looked at in its own turn, whether it changed or not.
    """

    def __init__(self, graph: Reads, tenant: str, *, anew: bool = False) -> None:
        self._graph = graph
        self._tenant = tenant
        self._anew = anew
        self._visited: set[str] = set()
        self._known = _KnownSessions(graph, tenant)

    def read(self, page: Mapping[str, Sequence[SourceEvent]]) -> Iterator[Surroundings]:
        """What lies around each session of a page, in its order.

        Args:
            page: sessions that changed, and all events that each retains, at least one.
        """
        self._visited |= page.keys()
        page_sessions = {one: _known(events) for one, events in page.items()}
        for own_id, session in page_sessions.items():
            self._known.keep(own_id, session._replace(events=()))
        mentioning = related.mentioning(
            self._graph,
            self._tenant,
            {
                name
                for page_session in page_sessions.values()
                for name in page_session.profile.entities
            },
            NEARLY_RARE,
        )
        near = self._near(page_sessions, mentioning)
        others = {session for some in near for session in some.sessions} - page_sessions.keys()
        states = related.states(self._graph, self._tenant, others)
        changed = self._visited | {
            other for other in others if self._anew or states.get(other, SessionState()).pending
        }
        for run in self._known.runs(near, page_sessions, states):
            sessions = page_sessions | self._known.read(
                [one for some in run for one in sorted(some.sessions - page_sessions.keys())],
                changed,
                states,
            )
            yield from self._surroundings(
                [_concerned(some, sessions, changed) for some in run], page_sessions, mentioning
            )

    def _near(self, page_sessions: Mapping[str, Known], mentioning: Mentioning) -> list[_Near]:
        tenant = self._tenant
        tools = {
            one.tool
            for page_session in page_sessions.values()
            for one in page_session.profile.failures
        }
        failed = related.failed_events(self._graph, tenant, tools)
        linking = related.linking(self._graph, tenant, page_sessions, MAX_LINKING)
        outside = {one: _causes_outside(known.events) for one, known in page_sessions.items()}
        outside_ids = {one for some in outside.values() for one in some}
        weights = related.weights(self._graph, tenant, outside_ids)
        near_sessions = []
        failing = any(page_session.profile.failing for page_session in page_sessions.values())
        changed = related.changed_events(self._graph, tenant) if failing else []
        for session_id, session in page_sessions.items():
            profile = session.profile
            mine = {key: mentioning[key] for key in sorted(profile.entities) if key in mentioning}
            near = [
                *sharing_sessions(session_id, mine),
                *alike_sessions(
                    session_id,
                    profile.failures,
                    [
                        event
                        for tool in sorted({failure.tool for failure in profile.failures})
                        for event in failed.get(tool, ())
                    ],
                ),
                *linking.get(session_id, ()),
                *_changing(session, mine, changed),
            ]
            causing = {
                key: weights[key].session_id for key in outside[session_id] if key in weights
            }
            chosen = set(sorted(set(causing.values()))[:MAX_CAUSING])
            near_sessions.append(
                _Near(
                    session,
                    mine,
                    list(dict.fromkeys(near)),
                    {key: session for key, session in causing.items() if session in chosen},
                )
            )
        return near_sessions

    def _surroundings(
        self,
        run: Sequence[_Concerned],
        page_sessions: Mapping[str, Known],
        mentioning: Mapping[str, frozenset[str]],
    ) -> Iterator[Surroundings]:
        tenant = self._tenant
        looked_up = {
            name
            for page_session in page_sessions.values()
            for name in page_session.profile.entities
        }
        more = related.mentioning(
            self._graph,
            tenant,
            {name for one in run for name in one.wanted} - looked_up,
            RARE_SESSIONS,
        )
        more |= {key: some for key, some in mentioning.items() if len(some) <= RARE_SESSIONS}
        linked = {
            session_id
            for one in run
            for session_id in (one.near.own.profile.session_id, *one.touched)
        }
        recorded = related.recorded_links(self._graph, tenant, linked)
        weights = related.weights(
            self._graph,
            tenant,
            {
                event.event_id
                for one in run
                for known in (one.near.own, *one.touched.values())
                for event in known.events
            },
        )
        for concerned in run:
            further = {key: more[key] for key in concerned.wanted if key in more}
            rare = {**further, **concerned.near.mentioning}
            yield Surroundings(
                own=concerned.near.own,
                circle=concerned.circle,
                touched=concerned.touched,
                mentioning=rare,
                recorded=recorded,
                weights=weights,
            )


class _KnownSessions:
    """Sessions of one tenant as others see them, those that were of use last kept."""

    def __init__(self, graph: Reads, tenant: str) -> None:
        self._graph = graph
        self._tenant = tenant
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._size = 0

    def keep(self, session_id: str, session: Known) -> None:
        """Keep a session in place of what was known of it."""
        self._size += _size(session) - _size(self._known.pop(session_id, None))
        self._known[session_id] = session
        while self._size > KNOWN_EVENTS and len(self._known) > 1:
            self._size -= _size(self._known.popitem(last=False)[1])

    def runs(
        self,
        near: Iterable[_Near],
        changed: Collection[str],
        states: Mapping[str, SessionState],
    ) -> Iterator[list[_Near]]:
        """Sessions whose neighbours are few enough to be read together, in their order."""
        run: list[_Near] = []
        missing: set[str] = set()
        for near_session in near:
            further = near_session.sessions - self._known.keys() - missing
            further.difference_update(changed)
            if run and _event_count(missing | further, states) > RUN_EVENTS:
                yield run
                run, missing = [], set()
                further = near_session.sessions - self._known.keys()
                further.difference_update(changed)
            run.append(near_session)
            missing |= further
        if run:
            yield run

    def read(
        self,
        session_ids: Iterable[str],
        changed: Collection[str],
        states: Mapping[str, SessionState],
    ) -> dict[str, Known]:
        """Those of sessions that retain anything; those that changed without their events."""
        others: dict[str, Known] = {}
        missing: list[str] = []
        for session_id in dict.fromkeys(session_ids):
            session = self._known.get(session_id)
            if session is not None and (session.events or session_id in changed):
                others[session_id] = session
                self._known.move_to_end(session_id)
            else:
                missing.append(session_id)
        for part in _parts(missing, states):
            for session_id, events in slim_events(self._graph, self._tenant, part).items():
                whole = _known(events)
                others[session_id] = whole._replace(events=()) if session_id in changed else whole
                self.keep(session_id, others[session_id])
        return others


def _known(events: Sequence[SourceEvent]) -> Known:
    return Known(session_profile(events), tuple(map(slim, events)))


def _size(session: Known | None) -> int:
    """What a session takes in memory, in events."""
    if session is None:
        return 0
    return len(session.events) + 1 + len(session.profile.entities) // TRAITS_AN_EVENT


def _changing(session: Known, mentioning: Mentioning, changed: Sequence[SourceEvent]) -> list[str]:
    """The other sessions that changed what a failure of a session names."""
    profile = session.profile
    if not profile.failing:
        return []
    counts = {one: len(sessions) for one, sessions in mentioning.items()}
    others = (event for event in changed if event.session_id != profile.session_id)
    rarity = rarities(profile.entities, counts, profile.actors)
    return changing_sessions(profile.failing, others, rarity)[:MAX_CHANGING]


def _concerned(near: _Near, sessions: Mapping[str, Known], changed: Collection[str]) -> _Concerned:
    circle = {
        neighbour: sessions[neighbour] for neighbour in near.neighbours if neighbour in sessions
    }
    touched = {
        one: _touched(sessions[one], near.mentioning, near.causing)
        for one in sorted({*circle, *near.causing.values()} & sessions.keys())
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


def _touched(session: Known, mentioning: Mentioning, causing: Collection[str]) -> Known:
    """A session with those of its events whose boost may be another one now."""
    return Known(
        session.profile,
        tuple(
            event
            for event in session.events
            if event.event_id in causing
            or any(entity.entity_id in mentioning for entity in event.entities)
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
    for session_id in session_ids:
        if part and _event_count([*part, session_id], states) > READ_EVENTS:
            yield part
            part = []
        part.append(session_id)
    if part:
        yield part


def _event_count(session_ids: Iterable[str], states: Mapping[str, SessionState]) -> int:
    return sum(states.get(session_id, SessionState()).event_count for session_id in session_ids)
