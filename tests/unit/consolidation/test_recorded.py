"""What a pass says of an episode some of whose members are forgotten."""

from __future__ import annotations

import pytest

from consolidation.episodes import told_episodes
from consolidation.payloads import EPISODE_EVENTS, EpisodeDecided
from consolidation.sources import Episode, RecordedEpisode, SourceEvent
from consolidation.summaries import summarize_episode
from consolidation.summary_payloads import episode_scope_id, summary_id
from projections.identity import START
from tests.factories import event_id
from tests.source_factories import source_event


def recorded_of(*events: SourceEvent, unowned: bool = False) -> RecordedEpisode:
    """What is recorded of an episode; of one of before: nothing of its users, in the summary."""
    users = tuple(sorted({one.user_id for one in events if one.user_id is not None}))
    episode = Episode(events[0].session_id, events[0].trace_id, 0, events, user_ids=users)
    summary = summarize_episode(episode)
    scope_id = episode_scope_id(episode.session_id, episode.trace_id, 0)
    own_id = summary_id("default", "episode", scope_id, () if unowned else users)
    ids = tuple(one.event_id for one in events)
    if unowned:
        summary = summary.model_copy(update={"user_ids": None})
    return RecordedEpisode(own_id, summary.digest, START, summary, ids, users)


def told(
    retained: list[SourceEvent], *recorded: RecordedEpisode
) -> tuple[list[EpisodeDecided], list[str]]:
    """What is decided, and what is no more."""
    outcome = told_episodes("default", retained, recorded, {})
    return [one.decided for one in outcome.changes], outcome.gone


def late_in(members: int, **fields: str) -> tuple[list[SourceEvent], RecordedEpisode]:
    """The last member of an episode whose others left, with one that came late before it."""
    events = [source_event(n, at=10 * n, **fields) for n in range(1, members + 1)]
    late = source_event(members + 1, at=10 * members - 5, **fields)
    return [late, events[-1]], recorded_of(*events)


def test_a_full_one_keeps_the_members_it_has() -> None:
    retained, recorded = late_in(EPISODE_EVENTS)
    assert told(retained, recorded) == ([], [])


@pytest.mark.parametrize("members", [2, EPISODE_EVENTS - 1])
@pytest.mark.parametrize("fields", [{}, {"user_id": "ann"}])
def test_its_first_and_last_member_stay_where_they_are(
    members: int, fields: dict[str, str]
) -> None:
    retained, recorded = late_in(members, **fields)
    (decided,), gone = told(retained, recorded)
    assert (decided.event_ids[0], decided.event_ids[-1]) == (event_id(1), event_id(members))
    assert sorted(decided.event_ids) == sorted([*recorded.event_ids, event_id(members + 1)])
    assert (decided.summary, gone) == (recorded.summary, [])


def test_another_users_late_event_is_not_listed_in_a_summary_that_stays() -> None:
    events = [source_event(n, at=10 * n, user_id="ann") for n in (1, 2, 3)]
    late = source_event(4, at=25, user_id="bob")
    (decided,), gone = told([late, events[2]], recorded_of(*events))
    assert (decided.event_ids, decided.summary.user_ids) == ((event_id(4),), ("bob",))
    assert gone == []


@pytest.mark.parametrize(
    ("users", "expected"), [([None, None], ()), (["ann", None], ("ann",)), (["ann", "bob"], None)]
)
def test_what_was_told_before_users_were_written_down_is_told_anew(
    users: list[str | None], expected: tuple[str, ...] | None
) -> None:
    events = [source_event(n, user_id=user) for n, user in enumerate(users, 1)]
    before = recorded_of(*events, unowned=True)
    decided, gone = told(events, before)
    named = [one.summary.user_ids for one in decided]
    assert named == ([expected] if expected is not None else [("ann",), ("bob",)])
    assert gone == ([] if expected == () else [before.summary_id])


@pytest.mark.parametrize("users", [[None, None], ["ann", None], ["ann", "bob"]])
def test_what_cannot_be_told_anew_keeps_its_id_and_learns_its_users(
    users: list[str | None],
) -> None:
    events = [source_event(n, user_id=user) for n, user in enumerate(users, 1)]
    before = recorded_of(*events, unowned=True)
    (decided,), gone = told([], before)
    assert (decided.summary.content, decided.event_ids) == (
        before.summary.content,
        before.event_ids,
    )
    assert decided.summary.user_ids == before.user_ids
    assert (decided.unowned_id, gone) == (True if before.user_ids else None, [])
