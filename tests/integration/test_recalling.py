"""What was forgotten comes back, on real services: whole, once, and the same in a rebuilt graph."""

from __future__ import annotations

import json
from typing import Any

import pytest

from consolidation.decay import DAY_MS
from consolidation.forgetting_payloads import RECALLED_EVENT
from consolidation.retention import RetentionPolicy, Tier
from consolidation.summary_payloads import summary_id
from pipelines.ledger.registry import Target
from pipelines.operations import restore as recalling
from pipelines.operations.restore import RecallReport, Selection, recall_forgotten, tombstones
from pipelines.work import catch_up as returning
from pipelines.work.folds import StageFold
from pipelines.work.runner import Runner
from pipelines.work.services import Services, make_fold
from pipelines.work.stages import ENRICHMENT, Stage
from tests.decision_factories import system
from tests.factories import START_MS, event, event_id, sessions
from tests.fakes.stages import SCORED
from tests.integration.consolidation_support import PassingStack
from tests.integration.stack import Stack
from tests.integration.test_cli import Recollect, recollect
from tests.passing import LONG_AFTER

__all__ = ["recollect"]
pytestmark = pytest.mark.integration


class Interrupted(Exception):
    """Stands for a process that dies."""


def scored(stage: Stage, services: Services, target: Target) -> StageFold:
    return SCORED if stage is ENRICHMENT else make_fold(stage, services, target)


@pytest.fixture(autouse=True)
def no_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule stands in for the models of the enrichment."""
    monkeypatch.setattr("pipelines.proof.verify.make_fold", scored)


@pytest.fixture
def live(stack: Stack) -> PassingStack:
    """Three sessions of six events."""
    made = PassingStack(stack)
    made.policy = RetentionPolicy()
    made.take_in(*sessions(3, 6))
    return made


def recall(live: PassingStack, **selection: Any) -> RecallReport:
    apply = selection.pop("apply", True)
    return recall_forgotten(
        live.stack.services,
        Selection("default", **selection),
        apply=apply,
        now_ms=LONG_AFTER,
        prepare=scored,
    )


def edges(live: PassingStack) -> list[Any]:
    """All edges between what events, summaries and tombstones there are."""
    text = (
        "MATCH (a)-[r]->(b) RETURN coalesce(a.event_id, a.summary_id), type(r), properties(r), "
        "coalesce(b.event_id, b.summary_id)"
    )
    return sorted(map(repr, live.stack.cypher(text)))


def test_all_come_back_with_all_their_edges(live: PassingStack) -> None:
    live.run(now_ms=START_MS + DAY_MS)
    nodes, before = live.retained(), edges(live)
    live.run()
    assert live.retained() == []
    report = recall(live)
    assert (report.found, report.recalled, report.folded) == (18, 18, {"blue": 18})
    assert (live.retained(), edges(live)) == (nodes, before)
    assert live.stack.verify().ok
    assert set(live.stack.cypher("MATCH (f:Forgotten) RETURN f.recalled")) == {True}


@pytest.mark.parametrize(
    ("selection", "expected"),
    [
        ({"session_id": "session-0"}, {1, 4, 7, 10, 13, 16}),
        ({"event_ids": (event_id(2), event_id(5), event_id(99))}, {2, 5}),
        ({"since_ms": START_MS + 30, "until_ms": START_MS + 60}, {3, 4, 5, 6}),
        ({"session_id": "session-1", "until_ms": START_MS + 50}, {2, 5}),
        ({"session_id": "session-9"}, set()),
    ],
)
def test_what_is_named_comes_back_and_nothing_else(
    live: PassingStack, selection: dict[str, Any], expected: set[int]
) -> None:
    live.run()
    recall(live, **selection)
    assert live.retained() == sorted(map(event_id, expected))
    assert live.stack.verify().ok


@pytest.mark.parametrize("level", [1, 2, 3])
def test_what_a_summary_lists_comes_back(live: PassingStack, level: int) -> None:
    live.run()
    (found,) = live.stack.cypher(
        "MATCH (s:Summary {level: $level}) "
        "WHERE $level = 3 OR s.session_id = 'session-0' RETURN s.summary_id LIMIT 1",
        level=level,
    )
    recall(live, summary_id=found)
    assert len(live.retained()) == (18 if level == 3 else 6)


def test_looking_first_changes_nothing(live: PassingStack) -> None:
    live.run()
    before = live.seqs()
    report = recall(live, apply=False)
    assert (report.found, report.away, report.recalled) == (18, 18, 0)
    assert (live.seqs(), live.retained()) == (before, [])


def test_asked_again_there_is_nothing_to_do(live: PassingStack) -> None:
    live.run()
    recall(live)
    before = live.seqs()
    report = recall(live)
    assert (report.found, report.away, report.recalled, report.folded) == (18, 0, 0, {})
    assert live.seqs() == before


def test_a_rebuilt_graph_is_the_same(live: PassingStack) -> None:
    live.run()
    recall(live, session_id="session-0")
    live.take_in(event(90, at=500, session_id="session-0"))
    expected = live.stack.dump()
    live.empty()
    live.fold()
    recall(live, session_id="session-0")  # decides nothing: it is marked, and only not back
    shown = live.stack.dump()
    assert [one for one in shown if one not in expected] == []
    assert [one for one in expected if one not in shown] == []


@pytest.mark.parametrize("after", ["append", "marks", "projection"])
def test_killed_on_the_way_it_is_taken_up_by_the_next(
    live: PassingStack, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.run()

    def die(*_: Any, **__: Any) -> Any:
        raise Interrupted

    with monkeypatch.context() as patched:
        if after == "append":
            patched.setattr(recalling._Returning, "await_marks", die)
        elif after == "marks":
            patched.setattr(recalling._Returning, "fold", die)
        else:
            fold = Runner.refold

            def half(runner: Any, partition: int, entries: Any) -> Any:
                if runner.stage.name == ENRICHMENT.name:
                    raise Interrupted
                return fold(runner, partition, entries)

            patched.setattr(Runner, "refold", half)
        with pytest.raises(Interrupted):
            recall(live)
    seqs = live.seqs()
    report = recall(live)
    assert (report.recalled, live.seqs()) == (18 if after == "append" else 0, seqs)
    assert len(live.retained()) == 18
    assert live.stack.verify().ok


def test_the_next_pass_lets_them_be_and_a_later_one_does_not(live: PassingStack) -> None:
    arrived_ms = max(tail.position.ms for tail in live.stack.ledger.tails())
    long_after = arrived_ms + 40 * DAY_MS
    live.run(now_ms=long_after)
    assert live.retained() == []
    selection = Selection("default", session_id="session-0")
    recall_forgotten(live.stack.services, selection, now_ms=long_after, prepare=scored)
    assert live.run(now_ms=long_after + DAY_MS).events_forgotten == {}
    assert live.run(now_ms=long_after + 7 * DAY_MS).events_forgotten == {Tier.COLD: 6}
    assert recall(live).recalled == 18


def test_a_target_that_is_away_is_named_and_the_others_do_not_wait(live: PassingStack) -> None:
    live.run()
    services = live.stack.services
    away = Target("green", "bolt://127.0.0.1:9", "neo4j", "standby")
    services.targets.register(away)
    report = recall(live, session_id="session-0")
    assert (report.waiting, report.folded) == (["green"], {"blue": 6})
    assert report.as_dict()["ok"] is False


def test_those_that_cannot_come_back_keep_nobody_else_away(
    live: PassingStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    live.run()
    monkeypatch.setattr(returning, "make_fold", scored)
    expected = sorted(one.event_id for one in sessions(3, 6))
    unheard_of = [event_id(n) for n in range(1, 6)]
    for number, tenant, ids in ((90, "acme", unheard_of), (91, "default", expected)):
        payload = {"kind": "events", "event_ids": ids}
        live.take_in(system(number, RECALLED_EVENT, payload, tenant=tenant))
    assert set(returning.missing(live.stack.services, live.stack.target)) == {
        *(("acme", one) for one in unheard_of),
        *(("default", one) for one in expected),
    }
    assert returning.bring_back(live.stack.services, live.stack.target) == 18
    assert live.retained() == expected
    assert returning.bring_back(live.stack.services, live.stack.target) == 0


def test_pages_of_tombstones_meet_without_gap_or_overlap(live: PassingStack) -> None:
    live.run()
    for size in (1, 4, 100):
        for selection in (Selection("default"), Selection("default", session_id="session-2")):
            found = [
                one.event_id
                for page in tombstones(live.stack.graph, selection, page=size)
                for one in page
            ]
            assert len(found) == len(set(found)) == (6 if selection.session_id else 18)
    assert list(tombstones(live.stack.graph, Selection("acme"))) == []


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "--all"),
        (["--event", "x"], "UUID"),
        (["--summary", "summary:x"], "summary:<hash>"),
        (["--session", "s", "--since", "yesterday"], "--since"),
    ],
)
def test_what_names_nothing_is_refused(
    recollect: Recollect, options: list[str], named: str
) -> None:
    done = recollect("recall-forgotten", *options)
    assert (done.returncode, named in done.stderr) == (2, True)


def test_where_nothing_was_forgotten_there_is_nothing_to_do(recollect: Recollect) -> None:
    named = ["--event", event_id(1), "--summary", f"summary:{summary_id('t', 'session', 's')}"]
    for options in (["--all"], ["--all", "--dry-run"], named):
        done = recollect("recall-forgotten", *options, "--json")
        document = json.loads(done.stdout)
        assert (done.returncode, document["found"], document["recalled"]) == (0, 0, 0)
