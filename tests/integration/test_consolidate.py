"""A pass as a worker or a person runs it: alone, once, and whole however often it is killed."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from consolidation.decay import DAY_MS
from pipelines.ledger.epoch import PassLease
from pipelines.ledger.registry import Target
from pipelines.local.servers import Neo4jServer
from pipelines.operations.consolidate import ConsolidationReport, consolidate, planned_forgetting
from pipelines.operations.decider import Decider, Due
from pipelines.operations.passes.scopes import PassScope, changed
from pipelines.proof.verify import verify
from pipelines.work.folds import StageFold
from pipelines.work.runner import Runner
from projections.errors import PassUnderWay, Stopped
from projections.events import decode_event
from projections.schema import SUMMARIZES
from tests.decision_factories import requested
from tests.factories import NOW_MS, START_MS, event, sessions
from tests.fakes.stages import SCORED
from tests.integration.consolidation_support import FORGETTING, Consolidated
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j
from tests.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("no_models")]

ROOT = Path(__file__).resolve().parents[2]
LEASE_MS = 1_000
LATER_MS = START_MS + 4_000 * DAY_MS
"""So late that every event is old, also counted from its arrival."""


@pytest.fixture
def live(make_stack: Callable[..., Stack]) -> Consolidated:
    """Four sessions of six events, in the graph; no worker runs."""
    made = Consolidated(make_stack(lease_ms=LEASE_MS, retention=FORGETTING))
    made.take_in(*sessions(4, 6))
    return made


def run(live: Consolidated, now_ms: int = NOW_MS) -> ConsolidationReport:
    return consolidate(live.stack.services, now_ms=now_ms)


def seqs(live: Consolidated) -> list[int]:
    return [tail.seq for tail in live.stack.ledger.tails()]


def test_where_no_worker_runs_a_pass_applies_what_it_decided(live: Consolidated) -> None:
    report = run(live)
    assert (report.found.sessions_written, report.complete) == (4, True)
    written = live.stack.cypher("MATCH (s:Summary {level: 2}) WHERE NOT s:Unwritten RETURN s.level")
    assert written == [2] * 4
    assert verify(live.stack.services).ok


def test_a_second_pass_decides_nothing_about_events(live: Consolidated) -> None:
    run(live)
    again = run(live)
    assert (again.found.sessions, again.found.episodes_written) == (0, 0)


def test_what_the_stage_has_not_folded_yet_is_folded_first(live: Consolidated) -> None:
    live.stack.append(event(50, at=900, session_id="session-9"))
    for runner in (live.projection, live.enrichment):
        live.stack.fold(runner=runner)
    assert run(live).found.sessions_written == 5


def test_while_a_pass_is_under_way_another_is_refused(live: Consolidated) -> None:
    services = live.stack.services
    before = seqs(live)
    with PassLease(services.redis, services.settings.prefix, lease_ms=60_000) as lease:
        with pytest.raises(PassUnderWay) as refused:
            run(live)
        assert f"process {os.getpid()}" in str(refused.value)
        assert (lease.held, seqs(live)) == (True, before)
    assert run(live).complete


def test_a_person_waits_for_the_pass_that_is_under_way(live: Consolidated) -> None:
    services = live.stack.services
    with PassLease(services.redis, services.settings.prefix, lease_ms=60_000) as lease:
        ends = threading.Timer(1.0, lease.__exit__)
        ends.start()
        report = consolidate(services, now_ms=NOW_MS, patience_s=60.0)
        assert (report.complete, lease.held) == (True, False)


def test_a_lease_is_renewed_as_long_as_it_is_needed(live: Consolidated) -> None:
    services = live.stack.services
    with PassLease(services.redis, "rc", lease_ms=2_000) as lease:
        threading.Event().wait(3.0)
        assert lease.held
        assert services.redis.pttl("rc:lease:pass") > 0
    assert services.redis.exists("rc:lease:pass") == 0


def test_a_lease_that_was_lost_ends_the_pass(live: Consolidated) -> None:
    services = live.stack.services
    with PassLease(services.redis, "rc", lease_ms=500) as lease:
        services.redis.set("rc:lease:pass", "another")
        wait_until(lambda: not lease.held, "it is noticed")
    assert services.redis.get("rc:lease:pass") == b"another"


def test_a_pass_that_is_told_to_stop_decides_no_more(live: Consolidated) -> None:
    stop = threading.Event()
    stop.set()
    report = consolidate(live.stack.services, now_ms=NOW_MS, stop=stop)
    assert (report.complete, report.decisions) == (False, 0)
    assert run(live).complete


def test_what_would_be_forgotten_is_told_and_not_decided(live: Consolidated) -> None:
    run(live)
    before = seqs(live)
    planned = planned_forgetting(live.stack.services, now_ms=LATER_MS)
    leaving = sum(row.events for row in planned["default"].rows if row.leaves)
    staying = sum(row.events for row in planned["default"].rows if not row.leaves)
    assert (leaving > 0, leaving + staying, seqs(live)) == (True, 24, before)


# -- killed ----------------------------------------------------------------------------------------


def killed(live: Consolidated, when: str, now_ms: int) -> None:
    """Run a pass in a process that is killed at that moment."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.integration.killed_pass", when, str(now_ms)],
        cwd=ROOT,
        capture_output=True,
        timeout=120,
        check=False,
        env=environment(live),
    )
    assert done.returncode == -9, done.stderr.decode()


def environment(live: Consolidated) -> dict[str, str]:
    """Of a process on the same services."""
    settings = live.stack.services.settings
    names = ("redis_url", "neo4j_url", "partitions", "id_buckets", "lease_ms")
    return {
        **{name: value for name, value in os.environ.items() if "RECOLLECT_" not in name},
        **{f"RECOLLECT_{name.upper()}": str(getattr(settings, name)) for name in names},
        "RECOLLECT_RETENTION": json.dumps(settings.retention),
    }


def unlisted(live: Consolidated) -> list[str]:
    """Forgotten events that no Summary lists."""
    found: list[str] = live.stack.cypher(
        "MATCH (f:Forgotten) WHERE NOT EXISTS { MATCH (s:Summary) "
        "WHERE f.event_id IN s.source_event_ids } RETURN f.event_id"
    )
    return found


@pytest.mark.parametrize("when", ["append:1", "append:3", "apply:1", "append:7", "apply:3"])
def test_a_killed_pass_is_completed_by_the_next_and_nothing_is_decided_twice(
    live: Consolidated, make_stack: Callable[..., Stack], when: str
) -> None:
    killed(live, when, LATER_MS)
    assert unlisted(live) == []
    wait_until(lambda: not live.stack.services.redis.exists("rc:lease:pass"), "the lease ends")
    assert run(live, LATER_MS).complete
    assert unlisted(live) == []
    live.fold()
    graph, decided = said(live), kinds(live)
    assert verify(live.stack.services).ok
    live.stack.services.redis.flushall()
    fresh = Consolidated(make_stack(lease_ms=LEASE_MS, retention=FORGETTING))
    fresh.empty()
    fresh.take_in(*sessions(4, 6))
    run(fresh, LATER_MS)
    assert said(fresh) == graph
    assert kinds(fresh) == decided


def said(live: Consolidated) -> list[object]:
    """What summaries say, whom they list, and who is forgotten."""
    return [
        live.stack.cypher(
            "MATCH (s:Summary) WHERE NOT s:Unwritten "
            "RETURN s.summary_id, s.content, s.source_event_ids ORDER BY s.summary_id"
        ),
        live.stack.cypher("MATCH (f:Forgotten) RETURN f.event_id ORDER BY f.event_id"),
        live.stack.cypher(
            f"MATCH (s:Summary)-[:{SUMMARIZES.type}]->(e) "
            "RETURN s.summary_id, coalesce(e.event_id, e.summary_id) AS id ORDER BY id"
        ),
    ]


def kinds(live: Consolidated) -> dict[str, int]:
    """How many decisions of each kind the ledger holds, the end of a pass left out."""
    found: dict[str, int] = {}
    for partition in range(PARTITIONS):
        for block in live.stack.blocks(partition):
            for entry in block.entries:
                one = decode_event(entry.data)
                if one.event_type in ("memory.consolidated", "memory.forgotten"):
                    kind = f"{one.event_type} {one.payload['kind']}"
                    found[kind] = found.get(kind, 0) + 1
    found.pop("memory.consolidated pass", None)
    return found


# -- beside a worker -------------------------------------------------------------------------------


@contextmanager
def decider(live: Consolidated, target: str = "blue", **options: Any) -> Iterator[Decider]:
    """What a worker of the target has beside its blocks."""
    settings = live.stack.services.settings.model_copy(update=options)
    made = Decider(settings, target)
    yield made
    asyncio.run(made.end())


def look(live: Consolidated, target: str = "blue") -> None:
    """Let a worker of the target look once, and wait for what it does."""
    with decider(live, target) as one, Workers(live):
        asyncio.run(one.look())
        wait_until(lambda: not one.is_busy, "the pass ends", 60)


class Workers:
    """A thread for each stage that folds what comes, as live workers do."""

    def __init__(self, live: Consolidated, *, last: StageFold | None = None) -> None:
        self._stop = threading.Event()
        stack = live.stack
        runners = [stack.new_runner(stop=self._stop), stack.new_runner(SCORED, stop=self._stop)]
        if last is None:
            runners.append(live.new_runner(stop=self._stop))
        self._threads = [
            threading.Thread(target=self._work, args=(stack, runner)) for runner in runners
        ]

    def _work(self, stack: Stack, runner: Runner) -> None:
        with suppress(Stopped):
            while not self._stop.wait(0.02):
                stack.fold(runner=runner)

    def __enter__(self) -> Workers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *raised: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)


def test_a_first_look_begins_a_pass(live: Consolidated) -> None:
    look(live)
    assert verify(live.stack.services).system_events > 0


def test_a_worker_of_another_target_does_not_decide(live: Consolidated) -> None:
    before = seqs(live)
    look(live, target="green")
    assert seqs(live) == before


def test_a_request_is_a_reason_and_is_answered(live: Consolidated) -> None:
    look(live)
    live.take_in(requested(80), event(81, at=500, session_id="session-1"))
    with decider(live) as one:
        assert one.due() == Due("request", [PassScope("default")])
    look(live)
    assert live.stack.cypher("MATCH (r:ConsolidationRequest) RETURN r") == []


def test_much_that_came_to_a_session_is_a_reason(live: Consolidated) -> None:
    look(live)
    with decider(live) as one:
        assert one.due() is None
    live.take_in(*(event(n, at=10 * n, session_id="session-1") for n in range(100, 180)))
    with decider(live) as one:
        assert one.due() == Due("reflection", [PassScope("default", least=151)])


def test_time_is_a_reason(live: Consolidated) -> None:
    look(live)
    with decider(live, consolidation_every_s=0.0) as one:
        assert one.due() == Due("timer", None)


def test_quiet_is_a_reason_if_anything_came_and_all_of_it_is_folded(
    live: Consolidated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an import, or the last event of a session; and once for what came, not again."""
    monkeypatch.setattr("pipelines.operations.decider.QUIET_S", 0.0)
    look(live)
    with decider(live) as quiet:
        assert quiet.due() is None, "nothing came"
        live.take_in(event(90, at=900, session_id="session-9"))
        assert quiet.due() == Due("quiet", [PassScope("default")])
        live.stack.append(event(91, at=910, session_id="session-9"))
        assert quiet.due() is None, "it is not folded yet"
    look(live)
    monkeypatch.setattr("pipelines.operations.decider.QUIET_S", 60.0)
    live.take_in(event(92, at=920, session_id="session-9"))
    with decider(live) as busy:
        assert busy.due() is None, "something came right now"


def test_a_pass_in_quiet_times_sees_what_came_and_is_not_begun_again(
    live: Consolidated, monkeypatch: pytest.MonkeyPatch
) -> None:
    look(live)
    live.take_in(event(90, at=900, session_id="session-9"))
    monkeypatch.setattr("pipelines.operations.decider.QUIET_S", 0.0)
    monkeypatch.setattr("pipelines.operations.decider._PASS_SHARE", 0)
    with decider(live) as one, Workers(live):
        one.begin()
        wait_until(lambda: not one.is_busy, "the pass ends", 60)
        wait_until(lambda: changed(live.stack.graph) == {}, "what it decided is applied", 60)
        before = seqs(live)
        one.begin()
        wait_until(lambda: not one.is_busy, "the look ends", 60)
        assert seqs(live) == before


def test_a_worker_that_ends_ends_its_pass(live: Consolidated) -> None:
    with decider(live) as one:  # no worker applies anything: it would wait for ever
        asyncio.run(one.look())
    assert not one.is_busy
    assert live.stack.services.redis.exists("rc:lease:pass") == 0


def test_a_worker_process_applies_and_decides_and_ends_when_told(
    live: Consolidated, tmp_path: Path
) -> None:
    worker = subprocess.Popen(
        [
            *(sys.executable, "-m", "pipelines.cli.main", "worker"),
            *("consolidation", "--target", "blue"),
        ],
        stderr=subprocess.DEVNULL,
        env={
            **environment(live),
            "RECOLLECT_CONSOLIDATION_LOOK_S": "1",
            "RECOLLECT_DATA_DIR": str(tmp_path),
        },
    )
    try:
        with Workers(live, last=SCORED):
            wait_until(lambda: summaries(live) == [1, 2, 3], "the worker decides", 90)
            worker.send_signal(signal.SIGTERM)
            assert worker.wait(45) == 0
        assert live.stack.services.redis.keys("*lease*") == []
    finally:
        worker.kill()
        worker.wait()


def summaries(live: Consolidated) -> list[int]:
    """Levels of summaries that there are."""
    found: list[int] = live.stack.cypher(
        "MATCH (s:Summary) WHERE NOT s:Unwritten RETURN DISTINCT s.level ORDER BY s.level"
    )
    return found


# -- two targets -----------------------------------------------------------------------------------


def test_of_two_targets_one_decides_and_both_apply(
    live: Consolidated, second_neo4j: Neo4jServer, make_stack: Callable[..., Stack]
) -> None:
    services = live.stack.services
    green = Target("green", emptied_neo4j(second_neo4j), "neo4j", "standby")
    services.targets.register(green)
    other = Consolidated(make_stack(lease_ms=LEASE_MS), target=green)
    other.fold()
    before = seqs(live)
    for name in ("green", "blue", "green", "blue"):
        look(live, name)
        other.fold()
    decided = [after - early for early, after in zip(before, seqs(live), strict=True)]
    assert sum(decided) == verify(services).system_events
    assert said(other) == said(live)
    reports = [verify(services, target=name) for name in ("blue", "green")]
    assert [report.ok for report in reports] == [True, True]
    assert len({report.digest for report in reports}) == 1
