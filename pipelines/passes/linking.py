"""Links between sessions and boosts of events: what changes around a session that changed.

Both are found from what events mention, what they go back to and how tools failed, whatever
summaries say. Sessions that did not change themselves are looked at again when they are neighbours
of one that did; one that has changed is looked at in its own turn, and not before.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from consolidation.centrality import boost_payloads, boosts, changed_boosts
from consolidation.digests import summary_id
from consolidation.links import (
    MAX_LINKS,
    RARE_SESSIONS,
    SessionLink,
    SessionProfile,
    SessionTraits,
    links_payload,
    session_links,
    session_profile,
    session_traits,
)
from consolidation.neighbours import (
    NEARLY_RARE,
    alike_sessions,
    renewed_links,
    sharing_sessions,
    slim,
)
from consolidation.sources import SourceEvent
from pipelines.adapters.linking_reads import RecordedLinks
from pipelines.passes.deciding import Deciding, PassReport
from projections.events import Event

KNOWN_EVENTS = 20_000
"""Events of sessions that are kept in memory, lest neighbours be read again and again."""
READ_AT_ONCE = 10
"""Neighbours that are read by one question."""
MAX_LINKING = 50
"""Sessions that are looked at again because they are linked to one that changed."""
MAX_CAUSING = 20
"""Other sessions of which events of one that changed are effects."""

Mentioning = Mapping[str, Collection[str]]


class Known(NamedTuple):
    """A session as far as others are concerned; its events without their words."""

    profile: SessionProfile
    events: tuple[SourceEvent, ...]


class Linking:
    """Decides about links and boosts, session by session of one tenant.

    Args:
        deciding: of the pass.
        tenant: whose sessions they are.
        report: counts what is decided.
    """

    def __init__(self, deciding: Deciding, tenant: str, report: PassReport) -> None:
        self._deciding = deciding
        self._reader = deciding.reader.links
        self._tenant = tenant
        self._report = report
        self._visited: set[str] = set()
        self._known: OrderedDict[str, Known] = OrderedDict()
        self._known_events = 0

    def decisions(self, session_id: str, events: Sequence[SourceEvent]) -> list[Event]:
        """What is to be decided because a session changed.

        Args:
            session_id: of the session.
            events: all it retains.
        """
        self._visited.add(session_id)
        if not events:
            return []
        own = self._keep(session_id, events)
        mentioning = self._reader.mentioning(self._tenant, own.profile.entities, NEARLY_RARE)
        circle = self._circle(own.profile, mentioning)
        causing = self._causing(own)
        renewed = self._unchanged({*circle, *causing.values()})
        touched = {
            one: _touched(circle.get(one) or self._session(one), mentioning, causing)
            for one in sorted(renewed)
        }
        mentioning |= self._more_mentioning(circle, touched, mentioning)
        return [
            *self._links(own, circle, [one for one in touched if one in circle], mentioning),
            *self._boosts({session_id: own.events, **touched}, mentioning),
        ]

    # -- who is concerned --------------------------------------------------------------------------

    def _circle(self, profile: SessionProfile, mentioning: Mentioning) -> dict[str, Known]:
        """The neighbours of a session."""
        own_id = profile.session_id
        failed = self._reader.failed(self._tenant, {one.tool for one in profile.failures})
        near = [
            *sharing_sessions(own_id, mentioning),
            *alike_sessions(own_id, profile.failures, failed),
            *self._reader.linking(self._tenant, own_id, MAX_LINKING),
        ]
        return self._sessions(list(dict.fromkeys(near)))

    def _causing(self, own: Known) -> dict[str, str]:
        """The causes of its events in other sessions, and those sessions."""
        outside = {cause.event_id for event in own.events for cause in event.causes}
        outside -= {event.event_id for event in own.events}
        weights = self._reader.weights(self._tenant, outside)
        sessions = sorted({one.session_id for one in weights.values()})[:MAX_CAUSING]
        return {
            event_id: one.session_id
            for event_id, one in weights.items()
            if one.session_id in sessions
        }

    def _unchanged(self, session_ids: Collection[str]) -> set[str]:
        others = set(session_ids) - self._visited
        return others - self._reader.pending(self._tenant, others) if others else set()

    def _more_mentioning(
        self,
        circle: Mapping[str, Known],
        touched: Mapping[str, Sequence[SourceEvent]],
        mentioning: Mentioning,
    ) -> dict[str, frozenset[str]]:
        """Who mentions what renewed sessions have in common with others, or touched events name."""
        wanted = {
            one.entity_id
            for events in touched.values()
            for event in events
            for one in event.entities
        }
        for session_id in touched:
            if session_id in circle:
                mine = circle[session_id].profile.entities.keys()
                for other, known in circle.items():
                    if other != session_id:
                        wanted |= mine & known.profile.entities.keys()
        return self._reader.mentioning(self._tenant, wanted - mentioning.keys(), RARE_SESSIONS)

    # -- links -------------------------------------------------------------------------------------

    def _links(
        self,
        own: Known,
        circle: Mapping[str, Known],
        renewed: Sequence[str],
        mentioning: Mentioning,
    ) -> list[Event]:
        counts = {one: len(sessions) for one, sessions in mentioning.items()}
        mine = session_traits(self._tenant, own.profile, counts)
        others = {
            one: session_traits(self._tenant, known.profile, counts)
            for one, known in circle.items()
        }
        recorded = self._reader.recorded_links(self._tenant, [mine.session_id, *renewed])
        found = {mine.session_id: session_links(mine, others.values())}
        everybody: list[SessionTraits] = [mine, *others.values()]
        for one in renewed:
            before = recorded.get(one, RecordedLinks())
            found[one] = renewed_links(others[one], everybody, before.links)
        decided = []
        for one, links in found.items():
            before = recorded.get(one, RecordedLinks())
            if sorted(links, key=repr) != sorted((link for link, _ in before.links), key=repr):
                decided.append(self._linked(one, links, before))
        self._report.links_written += len(decided)
        return decided

    def _linked(
        self, session_id: str, links: Sequence[SessionLink], before: RecordedLinks
    ) -> Event:
        own_id = summary_id(self._tenant, "session", session_id)
        payload = links_payload(session_id, links[:MAX_LINKS])
        return self._deciding.decision(
            self._tenant, payload, "links", own_id, repr(links), before.decided_at
        )

    # -- boosts ------------------------------------------------------------------------------------

    def _boosts(
        self, touched: Mapping[str, Sequence[SourceEvent]], mentioning: Mentioning
    ) -> list[Event]:
        ids = [event.event_id for events in touched.values() for event in events]
        weights = self._reader.weights(self._tenant, ids)
        effects = {event_id: one.effects for event_id, one in weights.items()}
        found: dict[str, float] = {}
        for session_id, events in touched.items():
            known = self._session(session_id)
            linkable = known.profile.entities if known is not None else {}
            rare = {
                one: sessions
                for one, sessions in mentioning.items()
                if one in linkable and len(sessions) <= RARE_SESSIONS
            }
            found |= boosts(events, effects, rare)
        shown = {event_id: one.boost for event_id, one in weights.items()}
        changed = changed_boosts(found, shown, weights)
        self._report.boosts_written += len(changed)
        return [
            self._deciding.decision(
                self._tenant,
                payload,
                "boosts",
                *(
                    f"{one} {boost} {weights[one].decided_at}"
                    for one, boost in payload["boosts"].items()
                ),
            )
            for payload in boost_payloads(changed)
        ]

    # -- sessions ----------------------------------------------------------------------------------

    def _session(self, session_id: str) -> Known | None:
        """A session; None: it retains nothing."""
        known = self._known.get(session_id)
        if known is not None:
            self._known.move_to_end(session_id)
            return known
        events = self._deciding.reader.session_events(self._tenant, session_id)
        return self._keep(session_id, events) if events else None

    def _sessions(self, session_ids: Sequence[str]) -> dict[str, Known]:
        """Those of several sessions that retain anything, in their order."""
        found = {one: self._known[one] for one in session_ids if one in self._known}
        missing = [one for one in session_ids if one not in found]
        for first in range(0, len(missing), READ_AT_ONCE):
            read = self._deciding.reader.events_of_sessions(
                self._tenant, missing[first : first + READ_AT_ONCE]
            )
            found |= {one: self._keep(one, events) for one, events in read.items()}
        for one in found:
            if one in self._known:
                self._known.move_to_end(one)
        return {one: found[one] for one in session_ids if one in found}

    def _keep(self, session_id: str, events: Sequence[SourceEvent]) -> Known:
        known = Known(session_profile(events), tuple(map(slim, events)))
        before = self._known.pop(session_id, None)
        self._known_events += len(events) - (len(before.events) if before else 0)
        self._known[session_id] = known
        while self._known_events > KNOWN_EVENTS and len(self._known) > 1:
            _, gone = self._known.popitem(last=False)
            self._known_events -= len(gone.events)
        return known


def _touched(
    known: Known | None, mentioning: Mentioning, causing: Collection[str]
) -> list[SourceEvent]:
    """Events of another session whose boost may be another one now."""
    events: Iterable[SourceEvent] = known.events if known is not None else ()
    return [
        event
        for event in events
        if event.event_id in causing or any(one.entity_id in mentioning for one in event.entities)
    ]
