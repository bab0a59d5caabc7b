"""What was decided is asked for again; what is decided then takes its place, in every graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from consolidation import episodes as recorded
from consolidation.decay import DAY_MS
from consolidation.summaries import summarize_episode
from pipelines.operations.consolidate import ConsolidationReport, consolidate, redecide
from pipelines.proof.verify import verify
from pipelines.work.live import Decisions
from tests.decision_factories import system
from tests.factories import START_MS, event_id, sessions
from tests.integration.consolidation_support import FORGETTING, PassingStack
from tests.integration.stack import Stack
from tests.passing import entity_id

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_models")]

LATER_MS = START_MS + 4_000 * DAY_MS
"""So late that every event is old, also counted from its arrival."""
NOBODY_FORGETS = {"default": {"enabled": False}}
OTHERWISE = "Put otherwise."


class Interrupted(Exception):
    """Stands for a process that dies."""


@pytest.fixture
def live(make_stack: Callable[..., Stack]) -> PassingStack:
    """Three sessions of six events, summarised, and forgotten since."""
    made = PassingStack(make_stack(retention=FORGETTING))
    made.take_in(*sessions(3, 6))
    services = made.stack.services
    consolidate(services, now_ms=START_MS + DAY_MS)
    consolidate(services, now_ms=LATER_MS)
    assert retained(made) == []
    return made


def decide_anew(live: PassingStack, **settings: Any) -> ConsolidationReport:
    services = live.stack.services
    services.settings = services.settings.model_copy(update=settings)
    return redecide(services, now_ms=LATER_MS)


def retained(live: PassingStack) -> list[str]:
    return sorted(live.stack.cypher("MATCH (e:Event) WHERE NOT e:Placeholder RETURN e.event_id"))


def contents(live: PassingStack) -> list[Any]:
    """What summaries say, and whom they list."""
    return live.stack.cypher(
        "MATCH (s:Summary) WHERE NOT s:Unwritten "
        "RETURN s.summary_id, s.content, s.source_event_ids ORDER BY s.summary_id"
    )


def assert_a_plain_rebuild_is_the_same(live: PassingStack) -> None:
    """Folded from the ledger alone, the graph is what it is now."""
    report = verify(live.stack.services)
    assert report.ok, report.differences
    shown = live.stack.dump()
    live.empty()
    live.fold()
    redone = verify(live.stack.services)
    assert (redone.ok, redone.digest) == (True, report.digest)
    again = live.stack.dump()
    assert [one for one in again if one not in shown] == []


def test_under_the_same_rules_the_same_is_said_again(live: PassingStack) -> None:
    said, before = contents(live), live.seqs()
    report = decide_anew(live)
    assert (report.complete, report.found.sessions_written) == (True, 3)
    assert report.found.events_forgotten == {"archive": 18}
    assert live.seqs() > before
    assert (contents(live), retained(live)) == (said, [])
    assert_a_plain_rebuild_is_the_same(live)


def test_what_was_forgotten_is_there_again_where_nobody_forgets_any_more(
    live: PassingStack,
) -> None:
    decide_anew(live, retention=NOBODY_FORGETS)
    assert retained(live) == sorted(one.event_id for one in sessions(3, 6))
    asked_for = "MATCH (e:Event) WHERE e.access_count > 0 RETURN e.event_id"
    assert live.stack.cypher(asked_for) == [], "that was no access"
    report = live.stack.verify()
    assert report.ok, report.differences
    report = verify(live.stack.services)
    assert report.ok, report.differences


def test_another_rule_counts_although_nothing_it_is_made_from_changed(
    live: PassingStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    def otherwise(*arguments: Any) -> Any:
        made = summarize_episode(*arguments)
        return made.model_copy(update={"content": OTHERWISE})

    monkeypatch.setattr(recorded, "summarize_episode", otherwise)
    services = live.stack.services
    assert consolidate(services, now_ms=LATER_MS).found.episodes_written == 0
    decide_anew(live)
    episodes = live.stack.cypher("MATCH (s:Summary {level: 1}) RETURN DISTINCT s.content")
    assert episodes == [OTHERWISE]
    assert_a_plain_rebuild_is_the_same(live)
    assert consolidate(services, now_ms=LATER_MS).found.episodes_written == 0


def test_communities_are_found_anew_and_stay_who_they_were(live: PassingStack) -> None:
    live.relate("Ann", "Acme")
    live.relate("Bob", "Acme")
    shown = "MATCH (c:Community) WHERE c.name IS NOT NULL RETURN c.community_id, c.decided_at"
    consolidate(live.stack.services, now_ms=LATER_MS + 2 * DAY_MS)
    ((own_id, decided_at),) = live.stack.cypher(shown)
    report = decide_anew(live)
    assert report.found.communities_written == 1
    ((again, redecided_at),) = live.stack.cypher(shown)
    assert (again, redecided_at > decided_at) == (own_id, True)


def test_an_archived_entity_comes_back_unless_the_rule_archives_it_again(
    live: PassingStack,
) -> None:
    live.stack.cypher(
        "CREATE (:Entity {tenant: 'default', entity_id: $id, name: 'Ann'})", id=entity_id("Ann")
    )
    gone = {"kind": "entities", "entity_ids": [entity_id("Ann")]}
    live.take_in(system(90, "memory.forgotten", gone))
    status = "MATCH (n:Entity) RETURN n.status"
    decide_anew(live)
    assert live.stack.cypher(status) == ["archived"]
    decide_anew(live, retention=NOBODY_FORGETS)
    assert live.stack.cypher(status) == ["active"]


@pytest.mark.parametrize("after", [1, 3, 6])
def test_one_that_was_interrupted_leaves_a_graph_that_is_right_and_begins_again(
    live: PassingStack, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    append, left = Decisions.append, [after]

    def die(decisions: Decisions, events: Any) -> int:
        if events and not left[0]:
            raise Interrupted
        left[0] -= bool(events)
        return append(decisions, events)

    said = contents(live)
    with monkeypatch.context() as patched:
        patched.setattr(Decisions, "append", die)
        with pytest.raises(Interrupted):
            decide_anew(live)
    live.fold()
    report = verify(live.stack.services)
    assert report.ok, report.differences
    assert decide_anew(live).complete
    assert (contents(live), retained(live)) == (said, [])
    assert_a_plain_rebuild_is_the_same(live)


def test_event_ids_that_were_forgotten_stay_listed(live: PassingStack) -> None:
    decide_anew(live)
    text = "MATCH (s:Summary {level: 1}) UNWIND s.source_event_ids AS id RETURN id"
    listed = live.stack.cypher(text)
    assert sorted(listed) == sorted(event_id(n) for n in range(1, 19))
