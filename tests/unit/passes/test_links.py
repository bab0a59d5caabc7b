"""Links between sessions and boosts of events, as passes find them."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from consolidation.causes import GIVEN_SHARE, TYPE_CONFIDENCE
from consolidation.links import session_profile
from consolidation.payloads import CAUSE
from consolidation.sources import SourceEvent
from enrichment.event_kinds import EventKind
from pipelines.graph.port import Reads
from pipelines.operations.passes import sessions as pages
from pipelines.operations.passes import surroundings as runs
from pipelines.operations.passes.run import Pass
from pipelines.operations.passes.source_events import slim_events, source_events
from projections.events import Event
from projections.schema import ENTITY, EVENT, LINKED_TO, SAME_AS
from tests.factories import NOW_MS, event, event_id, sessions
from tests.passing import Passing, entity_id

BOTH = [("session-0", "session-1"), ("session-1", "session-0")]


@pytest.fixture
def live() -> Passing:
    """Three sessions of four events; those of session-0 are 1, 4, 7 and 10."""
    made = Passing()
    made.take_in(*sessions(3, 4))
    return made


def fail(live: Passing, number: int, session: str, said: str = "Error: no seats left") -> None:
    """A call of a tool that fails; the call has the number before."""
    call = event(number - 1, at=number * 10, session_id=session, tool_name="book_flight")
    failed = call._replace(
        event_id=event_id(number), status="failed", occurred_at_ms=call.occurred_at_ms + 1
    )
    live.take_in(call, failed)
    live.say(number, said)
    live.cause(number, number - 1, "tool_result")


def solve(live: Passing, failed: int, number: int, session: str) -> None:
    """The call is made again, and goes through."""
    call = event(number - 1, at=number * 10, session_id=session, tool_name="book_flight")
    done = call._replace(
        event_id=event_id(number), status="completed", occurred_at_ms=call.occurred_at_ms + 1
    )
    live.take_in(call, done)
    live.cause(number - 1, failed, "retry")
    live.cause(number, number - 1, "tool_result")


def test_sessions_that_share_what_is_rare_are_linked(live: Passing) -> None:
    live.mention(1, "GV1N64")
    live.mention(2, "GV1N64")
    report = live.run()
    assert live.links() == dict.fromkeys(BOTH, (["GV1N64"], None))
    assert report.links_written == 2


def test_what_many_sessions_mention_links_none(live: Passing) -> None:
    live.take_in(*(event(n, session_id=f"other-{n}") for n in range(50, 54)))
    for number in (1, 2, *range(50, 54)):
        live.mention(number, "Seattle")
    live.run()
    assert live.links() == {}


def test_a_failure_leads_to_what_resolved_it_elsewhere(live: Passing) -> None:
    fail(live, 21, "session-0")
    fail(live, 31, "session-1", "Error: no seats left!")
    solve(live, 31, 33, "session-1")
    live.run()
    assert live.links() == {
        BOTH[0]: (["book_flight: error: no seats left"], event_id(33)),
        BOTH[1]: (["book_flight: error: no seats left"], None),
    }


def test_a_new_session_is_linked_from_those_that_did_not_change(live: Passing) -> None:
    live.mention(1, "GV1N64")
    live.mention(2, "GV1N64")
    live.run()
    live.take_in(event(90, session_id="session-9"))
    live.mention(90, "GV1N64")
    report = live.run()
    linked = {(one, other) for one, other in live.links() if "session-9" in (one, other)}
    assert linked == {
        ("session-0", "session-9"),
        ("session-1", "session-9"),
        ("session-9", "session-0"),
        ("session-9", "session-1"),
    }
    assert (report.sessions, report.sessions_written) == (1, 1)


def test_sessions_that_fail_alike_later_are_linked_from_those_before(live: Passing) -> None:
    fail(live, 21, "session-0")
    live.run()
    fail(live, 31, "session-1")
    live.run()
    assert live.links().keys() == set(BOTH)


def test_what_becomes_common_links_no_more(live: Passing) -> None:
    live.mention(1, "GV1N64")
    live.mention(2, "GV1N64")
    live.run()
    live.take_in(*(event(n, session_id=f"other-{n}") for n in range(50, 54)))
    for number in range(50, 54):
        live.mention(number, "GV1N64")
    live.run()
    assert live.links() == {}


def test_a_user_is_not_shown_anothers_session() -> None:
    live = Passing()
    live.take_in(event(1, session_id="session-0", user_id="ann"), event(2, session_id="session-1"))
    live.mention(1, "GV1N64")
    live.mention(2, "GV1N64")
    live.run()
    assert live.links().keys() == {("session-0", "session-1")}


def test_causes_gain_importance_across_sessions(live: Passing) -> None:
    live.run()
    before = live.boosts()
    live.take_in(
        *(event(n, session_id="session-9", parent_event_id=event_id(10)) for n in range(50, 54))
    )
    live.run()
    after = live.boosts()
    assert (before.get(event_id(10), 0.0), after[event_id(10)]) == (0.0, 1.5)


def test_who_shares_what_is_rare_gains_importance_with_a_session_that_comes(live: Passing) -> None:
    live.mention(10, "GV1N64")
    live.run()
    assert event_id(10) not in live.boosts()
    live.take_in(event(90, session_id="session-9"))
    live.mention(90, "GV1N64")
    live.run()
    assert (live.boosts()[event_id(10)], live.boosts()[event_id(90)]) == (0.2, 0.2)


def test_a_second_pass_appends_nothing(live: Passing) -> None:
    live.mention(1, "GV1N64")
    live.mention(2, "GV1N64")
    fail(live, 21, "session-0")
    fail(live, 31, "session-1")
    live.run()
    before = live.seqs()
    live.run()
    assert live.seqs() == before


def test_a_change_that_links_nothing_anew_writes_no_links(live: Passing) -> None:
    live.mention(1, "GV1N64")
    live.mention(2, "GV1N64")
    live.run()
    live.take_in(event(90, at=500, session_id="session-1"))
    assert live.run().links_written == 0


def test_nothing_is_decided_twice_by_a_pass_before_which_nothing_was_applied(
    live: Passing,
) -> None:
    live.mention(1, "GV1N64")
    live.mention(2, "GV1N64")
    live.run(applied=lambda: None)
    before = live.seqs()
    live.run(applied=lambda: None)
    assert live.seqs() == before
    live.fold()
    report = live.run()  # the agents are left
    assert (report.links_written, report.boosts_written, report.agents_written) == (0, 0, 1)


def test_links_go_back_and_forth_as_often_as_what_is_shared(live: Passing) -> None:
    """The same links decided again after others are another decision."""
    for round_ in range(4):
        live.forget_entities()
        live.mention(1, "GV1N64")
        live.mention(2, "GV1N64" if round_ % 2 == 0 else "HAT136")
        live.take_in(
            event(60 + 2 * round_, session_id="session-0"),
            event(61 + 2 * round_, session_id="session-1"),
        )
        live.run()
        assert bool(live.links()) == (round_ % 2 == 0)


def test_a_hub_that_everybody_mentions_and_everything_goes_back_to_ends() -> None:
    live = Passing()
    live.take_in(*(event(n, at=n, session_id=f"session-{n % 40}") for n in range(1, 601)))
    for number in range(1, 601):
        if number % 20 == 1:
            live.mention(number, "hub", "rare" if number < 60 else "rarer")
            live.cause(number, 1 if number > 1 else 2, "value_flow")
    report = live.run()
    assert (report.sessions, report.complete) == (40, True)
    assert not live.run().sessions_written
    assert all(score <= 3 for score in live.boosts().values())
    assert len(live.drawn(LINKED_TO.type)) <= 40 * 10


def decided(live: Passing) -> list[Event]:
    """What a pass would decide."""
    found: list[Event] = []
    Pass(live.graph, found.extend, lambda: None, now_ms=NOW_MS, run_id="run-1").run()
    return found


def test_how_much_is_read_at_once_changes_no_decision(
    live: Passing, monkeypatch: pytest.MonkeyPatch
) -> None:
    def alone(live: Passing) -> list[Event]:
        with monkeypatch.context() as patched:
            patched.setattr(pages, "SESSIONS_AT_ONCE", 1)
            for name in ("RUN_EVENTS", "READ_EVENTS", "KNOWN_EVENTS"):
                patched.setattr(runs, name, 0)
            return decided(live)

    for number in (1, 2, 3):
        live.mention(number, "GV1N64")
    fail(live, 21, "session-0")
    fail(live, 31, "session-1", "Error: no seats left!")
    solve(live, 31, 33, "session-1")
    first = decided(live)
    assert (len(first) > 6, alone(live)) == (True, first)
    live.run()
    live.take_in(
        *(
            event(n, session_id=f"session-{n}", parent_event_id=event_id(n - 89))
            for n in (90, 91, 92)
        )
    )
    live.mention(90, "GV1N64")
    live.mention(91, "GV1N64")
    second = decided(live)
    assert (len(second) > 6, alone(live)) == (True, second)


def test_sessions_that_changed_are_read_once_for_all_their_neighbours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    live = Passing()
    live.take_in(*sessions(4, 20))
    for number in (1, 2, 3, 4):
        live.mention(number, "GV1N64")
    read: list[str] = []

    def noted(graph: Reads, tenant: str, ids: Collection[str]) -> dict[str, list[SourceEvent]]:
        read.extend(ids)
        return slim_events(graph, tenant, ids)

    monkeypatch.setattr(pages, "SESSIONS_AT_ONCE", 1)
    monkeypatch.setattr(runs, "KNOWN_EVENTS", 40)  # of two sessions
    monkeypatch.setattr(runs, "slim_events", noted)
    assert live.run().links_written == 4
    assert (len(read), len(set(read))) == (3, 3)  # all but the first, which is read for itself


def test_a_session_is_to_others_what_it_is_to_itself(live: Passing) -> None:
    def connected(event: SourceEvent) -> tuple[object, ...]:
        return event.event_id, {one.entity_id for one in event.entities}, event.causes

    live.mention(1, "GV1N64", "HAT136")
    fail(live, 21, "session-0")
    solve(live, 21, 23, "session-0")
    call = event(30, at=300, session_id="session-0", tool_name="book_flight")
    live.take_in(call, call._replace(event_id=event_id(31)))
    live.say(30, "no reply")
    live.cause(31, 30, "retry")  # which tells that the first failed, whatever its status says
    graph = live.graph
    own = source_events(graph, "default", ["session-0"])["session-0"]
    seen = slim_events(graph, "default", ["session-0"])["session-0"]
    assert session_profile(seen) == session_profile(own)
    assert [one.signature for one in session_profile(own).failures] == [
        "error: no seats left",
        "no reply",
    ]
    assert list(map(connected, seen)) == list(map(connected, own))


def test_an_entity_that_nothing_mentions_gives_its_id_but_no_name(live: Passing) -> None:
    live.mention(1, "beta")
    unmentioned = ("default", entity_id("alpha"))
    with live.graph.transaction() as transaction:
        transaction.lock_nodes(ENTITY.label, [unmentioned], make=True)
    live.join(SAME_AS.type, unmentioned, live.entity("beta", "resource"), confidence=0.9)
    (first, *_) = source_events(live.graph, "default", ["session-0"])["session-0"]
    assert [(one.entity_id, one.name) for one in first.entities] == [(unmentioned[1], "beta")]
    assert live.run().complete
    assert live.graph.dead_letters() == []


# -- causes in other sessions ----------------------------------------------------------------------


def lower(live: Passing) -> None:
    """The house changes a setting, with a session of its own."""
    change = event(1, session_id="house", trace_id="t", event_type="config.changed")
    live.take_in(change)
    live.say(1, "now: 2.1 bar\npoint: prv.night_sp.DMA-74.9\nwas: 3.4 bar")
    live.put(EVENT.label, event_id(1), kind=EventKind.OTHER)
    live.mention(1, "DMA-74.9")


def sample(live: Passing) -> None:
    """A call that is given what was changed fails, and does not say so."""
    call = event(2, session_id="desk", event_type="tool.call", tool_name="head_sample")
    low = event(3, session_id="desk", tool_name="head_sample", status="failed")
    live.take_in(call, low._replace(parent_event_id=call.event_id))
    live.say(2, "hydrant: H1234/5\nzone: DMA-74.9")
    live.put(EVENT.label, event_id(2), kind=EventKind.CALL)
    live.say(3, "LOW_HEAD 0.4 bar @ H1234/5")
    live.put(EVENT.label, event_id(3), kind=EventKind.FAILURE)
    live.mention(2, "DMA-74.9")


def decided_causes(live: Passing) -> list[tuple[object, ...]]:
    names = ("reason", "effect_event_id", "cause_event_id", "evidence", "score")
    links = [edge.values for edge in live.drawn(LINKED_TO.type, *names)]
    return [(*map(link.get, names[1:]),) for link in links if link["reason"] == CAUSE]


@pytest.mark.parametrize(
    "steps",
    [(lower, sample, Passing.run), (lower, Passing.run, sample), (sample, Passing.run, lower)],
    ids=["together", "the change first", "the failure first"],
)
def test_what_a_failed_call_was_given_leads_to_its_change_in_every_order(
    steps: tuple[Callable[[Passing], object], ...],
) -> None:
    live = Passing()
    for step in steps:
        step(live)
    live.run()
    ((effect, cause, evidence, score),) = decided_causes(live)
    assert (effect, cause, evidence) == (event_id(3), event_id(1), ("DMA-74.9",))
    assert score == round(TYPE_CONFIDENCE * GIVEN_SHARE, 4)
    assert live.run(anew=True).links_written == 0


def test_a_call_that_failed_keeps_its_words_for_others() -> None:
    live = Passing()
    sample(live)
    whole, slim = (
        session_profile(read(live.graph, "default", ["desk"])["desk"])
        for read in (source_events, slim_events)
    )
    assert slim.failing == whole.failing
    assert [failing.given for failing in whole.failing] == ["hydrant: h1234/5 zone: dma-74.9"]
