"""What a pass says of an episode some of whose members are forgotten."""

from __future__ import annotations

import pytest

from consolidation.episodes import episode_decision
from consolidation.payloads import EPISODE_EVENTS
from consolidation.sources import Episode, RecordedEpisode
from consolidation.summaries import summarize_episode
from projections.identity import START
from tests.factories import event_id
from tests.source_factories import source_event


def sealed(members: int) -> tuple[Episode, RecordedEpisode]:
    """An episode with one event that came late, and what is recorded of it."""
    late = source_event(members + 1)
    episode = Episode(late.session_id, late.trace_id, 0, (late,), sealed=True)
    ids = tuple(event_id(number) for number in range(1, members + 1))
    summary = summarize_episode(episode)
    return episode, RecordedEpisode("id", summary.digest, START, summary, ids)


def test_a_full_one_keeps_the_members_it_has() -> None:
    episode, recorded = sealed(EPISODE_EVENTS)
    assert episode_decision(episode, recorded, {}) is None


@pytest.mark.parametrize("members", [2, EPISODE_EVENTS - 1])
def test_its_first_and_last_member_stay_where_they_are(members: int) -> None:
    episode, recorded = sealed(members)
    decided = episode_decision(episode, recorded, {})
    assert decided is not None
    assert (decided.event_ids[0], decided.event_ids[-1]) == (event_id(1), event_id(members))
    assert sorted(decided.event_ids) == sorted([*recorded.event_ids, event_id(members + 1)])
