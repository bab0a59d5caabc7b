"""Links between sessions and boosts of events: what changes around a session that changed.

Both are found from what events mention, what they go back to and how tools failed, whatever
summaries say. Sessions that did not change themselves are looked at again when they are neighbours
of one that did; one that has changed is looked at in its own turn, and not before.
"""

from __future__ import annotations

from collections.abc import Sequence

from consolidation.links import (
    RARE_SESSIONS,
    SessionProfile,
    SessionTraits,
    boosts,
    changed_boosts,
    renewed_links,
    session_links,
    session_traits,
)
from consolidation.payloads import MAX_LINKS, LinksDecided, SessionLink, boost_payloads
from consolidation.summary_payloads import summary_id
from pipelines.operations.passes.deciding import Deciding, PassReport
from pipelines.operations.passes.related import RecordedLinks
from pipelines.operations.passes.surroundings import Surroundings
from projections.events import Event


class Linking:
    """Decides about links and boosts, session by session of one tenant.

    Args:
        deciding: of the pass.
        tenant: whose sessions they are.
        report: counts what is decided.
    """

    def __init__(self, deciding: Deciding, tenant: str, report: PassReport) -> None:
        self._deciding = deciding
        self._tenant = tenant
        self._report = report

    def decisions(self, around: Surroundings) -> list[Event]:
        """What is to be decided because a session changed."""
        return [*self._links(around), *self._boosts(around)]

    # -- links -------------------------------------------------------------------------------------

    def _links(self, around: Surroundings) -> list[Event]:
        counts = {one: len(sessions) for one, sessions in around.mentioning.items()}
        mine = session_traits(self._tenant, around.own.profile, counts)
        others = {
            one: session_traits(self._tenant, known.profile, counts)
            for one, known in around.circle.items()
            if not _is_mixed(known.profile)
        }
        recorded, mixed = around.recorded, _is_mixed(around.own.profile)
        links_of = {} if mixed else {mine.session_id: session_links(mine, others.values())}
        everybody: list[SessionTraits] = [*([] if mixed else [mine]), *others.values()]
        users = {one.session_id: tuple(sorted(one.user_ids)) for one in everybody}
        for session_id in around.touched:
            if session_id in others:
                before = recorded.get(session_id, RecordedLinks())
                links_of[session_id] = renewed_links(others[session_id], everybody, before.links)
        decided = []
        for session_id, links in links_of.items():
            before = recorded.get(session_id, RecordedLinks())
            if sorted(links, key=repr) != sorted((link for link, _ in before.links), key=repr):
                decided.append(self._linked(session_id, users[session_id], links, before=before))
        self._report.links_written += len(decided)
        return decided

    def _linked(
        self,
        session_id: str,
        user_ids: tuple[str, ...],
        links: Sequence[SessionLink],
        *,
        before: RecordedLinks,
    ) -> Event:
        own_id = summary_id(self._tenant, "session", session_id, user_ids)
        decided = LinksDecided(
            session_id=session_id, user_ids=user_ids or None, links=tuple(links[:MAX_LINKS])
        )
        about = ("links", own_id, repr(links), before.decided_at)
        return self._deciding.decision(self._tenant, decided.payload(), *about)

    # -- boosts ------------------------------------------------------------------------------------

    def _boosts(self, around: Surroundings) -> list[Event]:
        looked_at = [around.own, *around.touched.values()]
        weights = {
            event.event_id: around.weights[event.event_id]
            for known in looked_at
            for event in known.events
            if event.event_id in around.weights
        }
        effects = {event_id: one.effects for event_id, one in weights.items()}
        boosted: dict[str, float] = {}
        for session in looked_at:
            rare = {
                one: sessions
                for one, sessions in around.mentioning.items()
                if one in session.profile.entities and len(sessions) <= RARE_SESSIONS
            }
            boosted |= boosts(session.events, effects, rare)
        shown = {event_id: one.boost for event_id, one in weights.items()}
        changed = changed_boosts(boosted, shown, weights)
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


def _is_mixed(profile: SessionProfile) -> bool:
    """Whether several users took part: what joins such a session to others is nobody's to see."""
    return len(profile.user_ids) > 1
