"""Two hundred real conversations: whatever the order, the workers and the blocks, one digest."""

from __future__ import annotations

import gzip
import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.formats.chat import conversation_events
from pipelines.operations.status import status
from pipelines.proof.sums import digest_text
from pipelines.work.services import Services
from pipelines.work.settings import load_settings
from projections.events import parse_event
from projections.identity import START
from tests.reference_fold import graph_number, session_graph
from tests.servers import emptied_neo4j, emptied_valkey
from tests.waiting import wait_until

CONVERSATIONS = Path(__file__).parents[3] / "shared/data/tau-bench/gpt-4o-airline.json.gz"
MESSAGES = 5_308
FAR_FUTURE_MS = 2**45
PATIENCE_S = 240.0
COMMAND = [sys.executable, "-m", "pipelines.cli.main"]

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(not CONVERSATIONS.exists(), reason="the shared data are not here"),
]


class Deployment:
    """The session's services, emptied for each run, and the command line against them."""

    def __init__(self, valkey: ValkeyServer, neo4j: Neo4jServer) -> None:
        self.urls = ["--redis", valkey.url, "--neo4j", neo4j.url]
        self._valkey, self._neo4j = valkey, neo4j

    def empty(self) -> None:
        emptied_valkey(self._valkey)
        emptied_neo4j(self._neo4j)

    def run(self, *arguments: str) -> dict[str, Any]:
        done = subprocess.run(
            [*COMMAND, *arguments, *self.urls, "--json"],
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
            env=environment(),
        )
        assert done.returncode == 0, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    @contextmanager
    def workers(self, count: int, batch_size: int) -> Iterator[None]:
        running = [
            subprocess.Popen(
                [*COMMAND, "worker", "projection", "--target", "blue", *self.urls],
                env=environment(RECOLLECT_BATCH_SIZE=str(batch_size)),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for _ in range(count)
        ]
        try:
            yield
        finally:
            for worker in running:
                worker.terminate()
            codes = [worker.wait(60) for worker in running]
        assert codes == [0] * count

    def wait_until_projected(self) -> None:
        settings = load_settings(redis_url=self._valkey.url, neo4j_url=self._neo4j.url)
        with Services(settings) as services:
            wait_until(
                lambda: not status(services)["stages"]["projection"]["lag_entries"],
                "the workers catch up",
                PATIENCE_S,
                every_s=0.1,
            )


def environment(**more: str) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
    return own | more


@pytest.fixture(scope="module")
def deployment(valkey: ValkeyServer, neo4j: Neo4jServer) -> Deployment:
    return Deployment(valkey, neo4j)


def envelopes(conversations: int | None = None) -> list[dict[str, Any]]:
    with gzip.open(CONVERSATIONS) as stream:
        trajectories = orjson.loads(stream.read())[:conversations]
    mapped = [item for trajectory in trajectories for item in conversation_events(trajectory)]
    assert all(item.error is None for item in mapped)
    return [item.envelope for item in mapped if item.envelope is not None]


def expected_digest(found: list[dict[str, Any]]) -> str:
    """Folded in memory, by the reference and without a graph."""
    events = [parse_event(envelope, now_ms=FAR_FUTURE_MS) for envelope in found]
    return digest_text(graph_number(session_graph((START, event) for event in events)))


def shuffled_with_duplicates(found: list[dict[str, Any]], path: Path, seed: int) -> Path:
    chance = random.Random(seed)
    lines = found + chance.sample(found, len(found) // 5)
    chance.shuffle(lines)
    path.write_bytes(b"\n".join(orjson.dumps(line) for line in lines))
    return path


@pytest.mark.parametrize(
    ("conversations", "messages"),
    [
        pytest.param(10, 302, id="ten"),
        pytest.param(200, MESSAGES, id="all", marks=pytest.mark.acceptance_long),
    ],
)
def test_imported_as_they_are_by_one_worker(
    deployment: Deployment, tmp_path: Path, conversations: int, messages: int
) -> None:
    source = tmp_path / CONVERSATIONS.name
    with gzip.open(CONVERSATIONS) as whole, gzip.open(source, "wb") as part:
        part.write(orjson.dumps(orjson.loads(whole.read())[:conversations]))
    deployment.empty()
    with deployment.workers(1, batch_size=500):
        first = deployment.run("import", str(source), "--format", "chat", "--wait")
        status = deployment.run("status")
        again = deployment.run("import", str(source), "--format", "chat")
    report = deployment.run("verify")

    assert (first["new"], again["new"], again["duplicates"]) == (messages, 0, messages)
    assert status["stages"]["projection"]["lag_entries"] == 0
    assert status["graph"]["nodes"]["Event"] == messages
    assert (report["ok"], report["events"]) == (True, messages)
    assert report["digest"] == expected_digest(envelopes(conversations))


@pytest.mark.acceptance_long
def test_shuffled_with_duplicates_by_three_workers(deployment: Deployment, tmp_path: Path) -> None:
    found = envelopes()
    source = shuffled_with_duplicates(found, tmp_path / "events.jsonl", seed=3)
    deployment.empty()

    with deployment.workers(3, batch_size=500):
        imported = deployment.run("import", str(source), "--format", "events")
        deployment.wait_until_projected()
    report = deployment.run("verify")

    assert (imported["new"], imported["duplicates"]) == (MESSAGES, MESSAGES // 5)
    assert (report["ok"], report["events"]) == (True, MESSAGES)
    assert report["digest"] == expected_digest(found)


@pytest.mark.parametrize(
    "workers", [pytest.param(1, marks=pytest.mark.acceptance_long), pytest.param(3)]
)
def test_shuffled_one_event_a_transaction(
    deployment: Deployment, tmp_path: Path, workers: int
) -> None:
    found = envelopes(conversations=6)
    source = shuffled_with_duplicates(found, tmp_path / "events.jsonl", seed=workers)
    deployment.empty()

    with deployment.workers(workers, batch_size=1):
        deployment.run("import", str(source), "--format", "events")
        deployment.wait_until_projected()
    report = deployment.run("verify")

    assert (report["ok"], report["events"]) == (True, len(found))
    assert report["digest"] == expected_digest(found)
