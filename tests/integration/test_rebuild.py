"""Replay and rebuild: in place, into a second Neo4j, killed and resumed."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from pipelines.ledger.registry import Target
from pipelines.local.servers import Neo4jServer
from pipelines.operations import rebuild as module
from pipelines.operations.rebuild import rebuild, replay
from pipelines.operations.status import status
from pipelines.proof import verify as verify_module
from pipelines.proof.verify import verify
from pipelines.work import stages
from pipelines.work.runner import Runner
from pipelines.work.stages import PROJECTION
from projections.errors import FoldVersionMismatch, OperationFailed
from projections.events import Event, event_partition
from tests.factories import event, event_id, session
from tests.fakes.stages import PROJECTING
from tests.integration.stack import Ingest, Stack
from tests.memory_stack import PARTITIONS, Worker
from tests.servers import emptied_neo4j

pytestmark = pytest.mark.integration


class Killed(BaseException):
    """The process ends here."""


@pytest.fixture
def green(second_neo4j: Neo4jServer) -> Target:
    return Target("green", emptied_neo4j(second_neo4j), "neo4j")


def disordered(count: int, start: int = 1_000) -> Iterator[Event]:
    rng = random.Random(5)
    for number in range(start, start + count):
        yield event(
            number,
            at=rng.randrange(20_000),
            session_id=f"session-{rng.randrange(8)}",
            parent=number + rng.choice((-3, -1, 2)),
        )


# -- in place --------------------------------------------------------------------------------------


@pytest.mark.parametrize("killed_in", ["projection", "enrichment"])
def test_a_first_rebuild_that_was_killed_goes_on(
    stack: Stack, monkeypatch: pytest.MonkeyPatch, killed_in: str
) -> None:
    stack.append(*disordered(60))
    stack.cypher("MATCH (c:Checkpoint) DELETE c")  # no worker was there before the import
    applied = Runner.apply

    def kill(runner: Runner, *arguments: Any) -> Any:
        if runner.stage.name == killed_in:
            raise Killed
        return applied(runner, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Runner, "apply", kill)
        with pytest.raises(Killed):
            rebuild(stack.services)
    report = rebuild(stack.services)
    assert report.verified.ok
    graph, tails = stack.services.graph(stack.services.active()), stack.services.ledger.tails()
    for stage in stages.STAGES:
        seqs = {row.partition: row.seq for row in graph.checkpoints(stage)}
        assert [seqs.get(place, 0) for place in range(len(tails))] == [t.seq for t in tails]


def test_in_place_mends_and_sweeps(stack: Stack) -> None:
    stack.fill()
    whole, before = stack.verify(), stack.dump()
    stack.cypher("MATCH (e:Event {event_id: $id}) SET e.agent_id = 'x'", id=event_id(4))
    stack.cypher("MATCH (:Event {event_id: $id})-[r]-() DELETE r", id=event_id(7))
    stack.cypher("CREATE (:Event {tenant: 'default', event_id: 'unsupported'})")
    stack.cypher(
        "CREATE (:Event {tenant: 'default', event_id: 'y', session_id: 'session-1', "
        "occurred_at: datetime()})"
    )
    report = rebuild(stack.services)
    assert report.as_dict()["ok"]
    assert (report.in_place, report.entries, report.verified.digest) == (True, 20, whole.digest)
    assert stack.dump() == before


def test_in_place_twice_changes_nothing(stack: Stack) -> None:
    stack.fill()
    before = stack.dump()
    rebuild(stack.services)
    assert rebuild(stack.services).verified.repaired == 0
    assert stack.dump() == before


def test_new_rules_are_refused_until_the_rebuild(
    stack: Stack, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.fill()
    newer = replace(PROJECTION, fold_version=PROJECTION.fold_version + 1)
    for place in (stages, module, verify_module):
        monkeypatch.setattr(place, "PROJECTION", newer)
    worker = stack.new_runner(replace(PROJECTING, stage=newer))
    stack.append(event(900))
    with pytest.raises(FoldVersionMismatch):
        stack.fold(runner=worker)
    with pytest.raises(FoldVersionMismatch):
        stack.verify()
    assert rebuild(stack.services).verified.ok
    assert {c.fold_version for c in stack.graph.checkpoints("projection")} == {newer.fold_version}
    stack.fold(runner=worker)
    report = stack.verify()
    assert (report.ok, report.events, report.lag_entries) == (True, 21, 0)
    with pytest.raises(FoldVersionMismatch):
        stack.fold(runner=stack.new_runner())


# -- replay ----------------------------------------------------------------------------------------


def test_replay_folds_again_what_it_is_told(stack: Stack) -> None:
    places = stack.append(*session("a", range(1, 6)), *session("b", range(11, 16)))
    stack.fold()
    whole = stack.verify()
    told: list[int] = []
    damage = "MATCH (e:Event {event_id: $id}) SET e.agent_id = 'x'"
    for number in (2, 5, 12):
        stack.cypher(damage, id=event_id(number))

    only = replay(stack.services, PROJECTION, session="a", progress=lambda d, t, w: told.append(d))
    assert (only.entries, only.failed) == (5, [])
    assert told
    report = stack.verify()
    assert [d.key for d in report.differences] == [("default", event_id(12))]

    before = replay(stack.services, PROJECTION, until=places[5].position)
    assert before.entries == 6
    assert not stack.verify().ok
    after = replay(stack.services, PROJECTION, after=places[5].position)
    assert after.entries == 4
    assert stack.verify().digest == whole.digest
    assert replay(stack.services, PROJECTION, session="a", tenant="acme").entries == 0


def test_replay_leaves_what_lies_beyond_the_checkpoint(stack: Stack) -> None:
    stack.fill()
    stack.append(event(900))
    assert replay(stack.services, PROJECTION).failed == []
    assert stack.cypher("MATCH (e:Event {event_id: $id}) RETURN e", id=event_id(900)) == []


# -- into a second graph ---------------------------------------------------------------------------


def test_into_a_fresh_target_without_switching(stack: Stack, green: Target) -> None:
    stack.append(*disordered(100))
    stack.fold()
    report = rebuild(stack.services, into=green)
    assert report.as_dict()["ok"]
    assert (report.entries, report.switched, report.generation) == (100, False, None)
    assert report.verified.digest == stack.verify().digest
    assert stack.services.active().name == "blue"
    assert stack.services.targets.get("green").state == "standby"


def test_who_looks_meanwhile_is_told_how_far_it_is(stack: Stack, green: Target) -> None:
    stack.append(*disordered(100))
    stack.fold()
    seen: list[dict[str, Any]] = []

    def look(done: int, total: int | None, what: str) -> None:
        seen.extend(status(stack.services)["rebuilds"])

    rebuild(stack.services, into=green, progress=look)
    assert {told["target"] for told in seen} == {"green"}
    assert {"projection of green", "folding projection again"} <= {told["doing"] for told in seen}
    assert all(told["done"] <= told["total"] for told in seen if told["total"] is not None)
    assert status(stack.services)["rebuilds"] == []


def test_one_that_fails_runs_no_more(stack: Stack, green: Target) -> None:
    stack.fill()

    seen: list[str] = []

    def fail(done: int, total: int | None, what: str) -> None:
        seen.extend(told.target for told in stack.services.rebuilds.all())
        if seen:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rebuild(stack.services, into=green, progress=fail)
    assert seen == ["green"]
    assert stack.services.rebuilds.all() == []


def test_switching_under_ingest_and_reads(stack: Stack, green: Target) -> None:
    stack.append(*disordered(200))
    stack.fold()
    stop = threading.Event()
    green_answered = threading.Event()
    counts: list[tuple[str, int]] = []

    def poll() -> None:
        while not stop.is_set():
            active = stack.services.active()
            with stack.services.driver(active).session() as reading:
                rows = reading.run("MATCH (e:Event) WHERE NOT e:Placeholder RETURN count(e)")
                counts.append((active.name, int(rows.single(strict=True)[0])))
            if active.name == "green":
                green_answered.set()
            stop.wait(0.05)

    ingest = Ingest(stack, disordered(100_000, start=10_000), pause_s=0.01)
    with ThreadPoolExecutor(1) as pool:
        polled = pool.submit(poll)
        with ingest, Worker(stack):
            report = rebuild(stack.services, into=green, switch=True)
        green_answered.wait(30)
        stop.set()
        polled.result(30)  # no read failed
    assert report.switched
    assert stack.services.active().name == "green"
    assert {name for name, _ in counts} == {"blue", "green"}
    before = [n for name, n in counts if name == "blue"]
    after = [n for name, n in counts if name == "green"]
    assert min(before) >= 200
    assert min(after) >= 200, "the new target was read before it was filled"

    # what flowed in after the switch is folded into both, and both are the same
    stack.fold()
    switched = stack.services.active()
    green_runner = Runner(PROJECTING, stack.services.graph(switched), target="green")
    stack.fold(runner=green_runner)
    one, other = (verify(stack.services, target=name) for name in ("blue", "green"))
    assert one.ok
    assert other.ok
    assert one.digest == other.digest
    assert one.events == 200 + ingest.appended


@pytest.mark.parametrize("killed_at", [1, 3])
def test_a_killed_rebuild_goes_on(stack: Stack, green: Target, killed_at: int) -> None:
    small = Stack(
        stack.services.settings.redis_url,
        stack.services.settings.neo4j_url,
        rebuild_batch_size=20,
        worker_concurrency=1,
    )
    small.append(*disordered(200))
    small.fold()
    calls: list[int] = []

    def kill(done: int, total: int | None, what: str) -> None:
        calls.append(done)
        if len(calls) == killed_at:
            raise Killed

    with pytest.raises(Killed):
        rebuild(small.services, into=green, progress=kill)
    assert small.services.targets.get("green").state == "building"
    report = rebuild(small.services, into=green, switch=True)
    assert report.resumed_at == 20 * killed_at
    assert report.verified.ok
    assert report.verified.digest == verify(small.services, target="blue").digest
    small.close()


def test_a_rebuild_killed_while_it_verifies_goes_on(stack: Stack, green: Target) -> None:
    stack.append(*disordered(50))
    stack.fold()

    def kill(done: int, total: int | None, what: str) -> None:
        if "again" in what:
            raise Killed

    with pytest.raises(Killed):
        rebuild(stack.services, into=green, switch=True, progress=kill)
    assert stack.services.active().name == "blue"
    report = rebuild(stack.services, into=green, switch=True)
    assert report.verified.ok
    assert stack.services.active().name == "green"


def test_a_rebuild_of_another_ledgers_remains_starts_anew(stack: Stack, green: Target) -> None:
    stack.fill()
    remains = stack.services.graph(green)
    remains.ensure_schema()
    remains.ensure_checkpoints("projection", PARTITIONS, 1)
    with stack.services.driver(green).session() as writing:
        writing.run("CREATE (:Event {tenant: 'default', event_id: 'x', session_id: 'y'})").consume()
    report = rebuild(stack.services, into=green)
    assert (report.resumed_at, report.verified.ok) == (0, True)


def test_a_database_of_somebody_else_is_left_alone(stack: Stack, green: Target) -> None:
    stack.fill()
    with stack.services.driver(green).session() as session:
        session.run("CREATE (:Person {name: 'Ada'})").consume()
        with pytest.raises(OperationFailed, match="label Person"):
            rebuild(stack.services, into=green)
        assert session.run("MATCH (p:Person) RETURN count(p)").value() == [1]
        session.run("MATCH (p:Person) DELETE p").consume()


def test_a_target_in_use_is_not_rebuilt(stack: Stack, green: Target) -> None:
    stack.fill()
    rebuild(stack.services, into=green)
    for name, advice in (("blue", "drop blue"), ("green", "activate green` .* drop green")):
        with pytest.raises(OperationFailed, match=f"kept in step; `recollect targets {advice}"):
            rebuild(stack.services, into=stack.services.targets.get(name))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_two_targets_never_share_a_graph(stack: Stack, host: str) -> None:
    """Also when it is called by another name: the live graph would be emptied."""
    stack.fill()
    before = stack.dump()
    same = replace(stack.target, name="green", uri=stack.target.uri.replace("127.0.0.1", host))
    with pytest.raises(OperationFailed, match="share the graph of blue"):
        rebuild(stack.services, into=same)
    assert stack.dump() == before
    assert [target.name for target in stack.services.targets.all()] == ["blue"]


def test_a_fold_that_differs_is_not_switched_to(
    stack: Stack, green: Target, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.fill()
    look: Callable[..., Any] = verify

    def spoiled(services: Any, **options: Any) -> Any:
        with services.driver(green).session() as writing:
            writing.run("MATCH (e:Event) SET e.agent_id = 'x'").consume()
        return look(services, **options)

    monkeypatch.setattr(module, "verify", spoiled)
    with pytest.raises(OperationFailed, match="nothing was switched"):
        rebuild(stack.services, into=green, switch=True)
    assert stack.services.active().name == "blue"


def test_partitions_of_the_events_are_both_used() -> None:
    assert {event_partition(made, PARTITIONS) for made in disordered(50)} == {0, 1}
