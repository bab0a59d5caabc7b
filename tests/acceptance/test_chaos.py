"""Faults on real services: nothing acknowledged is lost or doubled, whatever is killed and when.

And the loss window: when Redis itself forgets what it acknowledged, that is found before a new
event could be skipped, named, and made good.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import redis

from pipelines.ledger.ledger import Appended
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.recover import recover
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from projections.errors import GraphAhead
from projections.events import Event, decode_event, event_partition
from tests.acceptance.chaos.deployment import Deployment
from tests.acceptance.chaos.producer import Accepted, Producer
from tests.acceptance.chaos.storm import KINDS, Storm
from tests.acceptance.chaos.story import Story
from tests.fakes.proxy import CuttingProxy

pytestmark = [pytest.mark.acceptance, pytest.mark.chaos]
SEED = 7
HOUR_MS = 3_600_000
Deploy = Callable[[ValkeyServer], Deployment]


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize(
    "faults",
    [
        pytest.param(2 * len(KINDS), id="each kind"),
        pytest.param(36, id="36", marks=pytest.mark.acceptance_long),
    ],
)
def test_faults_lose_and_double_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], faults: int
) -> None:
    def tell(text: str) -> None:
        with capsys.disabled():
            print(text)  # noqa: T201  minutes pass

    tally = Storm(tmp_path, SEED, faults, tell).run()
    tell(tally.table())
    assert tally.faults.total() == faults
    assert set(tally.faults) == set(KINDS)
    assert tally.faults["kill -9 a worker"] > faults / 3
    assert tally.under_load.total() > faults / 2, "the faults struck an idle system"
    assert tally.letters > 0


# -- the loss window -------------------------------------------------------------------------------


@pytest.fixture
def deploy(tmp_path: Path, neo4j: Neo4jServer, neo4j_url: str) -> Iterator[Deploy]:
    """Deployments on a Valkey and on the one, empty graph."""
    assert neo4j_url == neo4j.url
    made: list[Deployment] = []

    def make(valkey: ValkeyServer) -> Deployment:
        folder = tmp_path / f"deployment-{len(made)}"
        folder.mkdir()
        made.append(Deployment(folder, valkey=valkey, neo4j=neo4j, batch_size=500))
        return made[-1]

    yield make
    for deployment in made:
        deployment.close()


class Loss:
    """A ledger that a graph was folded from, before and after it lost its end."""

    def __init__(self, deployment: Deployment, seed: int) -> None:
        self.deployment = deployment
        self.producer = Producer(deployment.services.ledger, seed)
        self.story = Story(f"loss/{seed}")

    def append(self, count: int, batch: int) -> None:
        for first in range(0, count, batch):
            size = min(batch, count - first)
            self.producer.send([self.story.event() for _ in range(size)])

    def move(self, deployment: Deployment) -> None:
        """Go on with another server."""
        self.deployment, self.producer.ledger = deployment, deployment.services.ledger

    def lost(self) -> list[Accepted]:
        """What was acknowledged and is not in the ledger."""
        ledger = self.deployment.services.ledger
        return [
            one
            for one in self.producer.accepted.values()
            if ledger.entry_at(one.partition, one.position) is None
        ]


def hasten_clock(valkey: ValkeyServer) -> None:
    """The server's clock was an hour fast: its successor's positions would lie before the graph's.

    Nothing but the checkpoints can tell the successor about them.
    """
    client: Any = redis.Redis(port=valkey.port)
    with client:
        client.set("rc:clock", f"{client.time()[0] * 1000 + HOUR_MS}-0")


def cut_entries(valkey: ValkeyServer, count: int, extra_bytes: int) -> None:
    """Cut the append-only file in front of its `count`-th last entry, `extra_bytes` further on."""
    (path,) = (valkey.data_dir / "appendonlydir").glob("*.incr.aof")
    data = path.read_bytes()
    offsets = [match.start() for match in re.finditer(rb"\*\d+\r\n\$4\r\nXADD\r\n", data)]
    path.write_bytes(data[: offsets[-count] + extra_bytes])


def folded_positions(deployment: Deployment) -> dict[int, Any]:
    return {n: checkpoint.position for n, checkpoint in deployment.checkpoints().items()}


def assert_recovers(loss: Loss, *, by_command: bool) -> None:
    """The whole way: found, refused, named, recovered, sent again, proved."""
    deployment, producer = loss.deployment, loss.producer
    ledger, lost = deployment.services.ledger, loss.lost()
    folded = folded_positions(deployment)
    ahead = {one.partition for one in lost if one.position <= folded[one.partition]}
    producer.expect_older_places()
    assert lost
    assert ahead, "the test cut off nothing that was folded"

    # New events for every partition: those that could be skipped are refused, the others flow.
    fresh = [loss.story.event() for _ in range(200)]
    fresh += [loss.story.event()._replace(session_id=f"new-{n}") for n in range(100)]
    partitions = {event_partition(event, ledger.partitions) for event in fresh}
    assert partitions == set(range(ledger.partitions))
    for event, outcome in zip(fresh, producer.send(fresh), strict=True):
        if event_partition(event, ledger.partitions) in ahead:
            assert isinstance(outcome, GraphAhead)
        else:
            assert isinstance(outcome, Appended)
            assert outcome.position > max(folded.values())
    assert set(ledger.halted()) == ahead
    code, status = deployment.recollect("status")
    assert code == 0
    assert (status["ok"], status["graph_ahead"]) == (False, True)
    assert {int(partition) for partition in status["ledger"]["halted"]} == ahead

    expected_ids = {
        one.event.event_id
        for one in lost
        if one.partition in ahead and one.position <= folded[one.partition]
    }
    listed = recover(deployment.services, apply=False)
    assert {one.event_id for one in listed.lost} == expected_ids
    assert not listed.applied
    assert set(ledger.halted()) == ahead
    if by_command:
        code, document = deployment.recollect("recover", "--yes")
        assert (code, document["ok"], document["applied"]) == (0, True, True)
        assert set(document["lost_event_ids"]) == expected_ids
    else:
        report = recover(deployment.services, apply=True).as_dict()
        assert (report["ok"], report["applied"]) == (True, True)
        assert set(report["lost_event_ids"]) == expected_ids
    assert ledger.halted() == {}

    # Whoever still has the events sends them again: their ids are free, their order is kept.
    producer.forget(lost)
    again = [*(one.event for one in lost), *producer.refused]
    producer.refused = []
    assert all(
        isinstance(outcome, Appended) and not outcome.duplicate for outcome in producer.send(again)
    )
    assert not producer.refused
    deployment.wait(deployment.caught_up, "lag 0")
    assert_graph_is_the_fold(loss, gap_of=expected_ids)
    code, status = deployment.recollect("status")
    assert (code, status["ok"], status["graph_ahead"]) == (0, True, False)
    code, nothing = deployment.recollect("recover", "--dry-run")
    assert (code, nothing["graph_ahead"], nothing["gaps"]) == (0, False, [])


def assert_graph_is_the_fold(loss: Loss, gap_of: set[str]) -> None:
    report = verify(loss.deployment.services)
    assert report.ok, report.as_dict()
    assert report.events == len(loss.producer.accepted)
    assert report.digest == loss.producer.digest()
    assert report.lag_entries == report.dead_letter_count == 0
    named: set[str] = set()
    for event in system_events(loss.deployment.services):
        assert event.event_type == "memory.gap_recorded"
        named |= set(event.payload["lost_event_ids"])
    assert named == gap_of


def system_events(services: Services) -> Sequence[Event]:
    ledger = services.ledger
    events = (
        decode_event(entry.data)
        for partition in range(ledger.partitions)
        for block in ledger.scan(partition)
        for entry in block
    )
    return [event for event in events if event.event_type.startswith("memory.")]


@pytest.mark.parametrize(
    ("count", "batch", "extra_bytes", "worker_lives", "by_command", "seed"),
    [
        pytest.param(1, 1, 0, True, False, 1, marks=pytest.mark.acceptance_long),
        pytest.param(9, 1, 30, False, True, 2),
        pytest.param(150, 25, 11, True, True, 3, marks=pytest.mark.acceptance_long),
        pytest.param(1_000, 100, 500, True, False, 4),
    ],
)
def test_entries_cut_off_the_append_only_file(
    start_valkey: Callable[..., ValkeyServer],
    deploy: Deploy,
    count: int,
    batch: int,
    extra_bytes: int,
    worker_lives: bool,
    by_command: bool,
    seed: int,
) -> None:
    """A worker that lives on sees it come; one that was killed is replaced after the loss."""
    valkey = start_valkey()
    deployment = deploy(valkey)
    loss = Loss(deployment, seed)
    worker = deployment.start_worker()
    loss.append(400, batch=50)
    hasten_clock(valkey)
    loss.append(count, batch)
    deployment.wait(deployment.caught_up, "all folded")
    if not worker_lives:
        worker.kill()
        deployment.remove(worker)
        loss.append(random.Random(seed).randrange(1, count), batch)  # acknowledged, never folded
    valkey.kill()
    cut_entries(valkey, count, extra_bytes)
    valkey.start()
    valkey.wait_ready()
    if not worker_lives:
        deployment.start_worker()
    assert_recovers(loss, by_command=by_command)


def test_a_lagging_replica_with_a_slow_clock_is_promoted(
    start_valkey: Callable[..., ValkeyServer], deploy: Deploy
) -> None:
    primary = start_valkey()
    deployment = deploy(primary)
    loss = Loss(deployment, 5)
    worker = deployment.start_worker()
    with CuttingProxy(primary.port) as link:
        replica = start_valkey(replicaof=("127.0.0.1", link.port))
        loss.append(400, batch=50)
        deployment.wait(deployment.caught_up, "all folded")
        client: Any = redis.Redis(port=replica.port)
        deployment.wait(
            lambda: (
                [client.xlen(f"{{rc:{n}}}:ledger") for n in range(8)]
                == [tail.seq for tail in deployment.services.ledger.tails()]
            ),
            "the replica has all",
        )
    # The link is down: what follows is acknowledged and folded, and never reaches the replica.
    hasten_clock(primary)
    loss.append(120, batch=10)
    deployment.wait(deployment.caught_up, "all folded")
    primary.kill()
    worker.kill()
    deployment.remove(worker)
    client.replicaof("NO", "ONE")
    client.close()
    successor = deploy(replica)
    loss.move(successor)
    successor.start_worker()
    assert len(loss.lost()) == 120
    assert_recovers(loss, by_command=False)
