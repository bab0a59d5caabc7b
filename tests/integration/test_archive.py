"""A memory whose older events are archived is folded, proved and answered from as any other."""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from pipelines.ledger.registry import Target
from pipelines.local.python_process import python_command, python_environment
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.archive import archive, archive_when_due
from pipelines.operations.backup import backup
from pipelines.operations.export.events import Format, Selection
from pipelines.operations.export.run import export
from pipelines.operations.rebuild import rebuild, replay
from pipelines.operations.status import status
from pipelines.proof.verify import verify
from pipelines.work.stages import PROJECTION
from projections.errors import LedgerUnavailable
from tests.archive_support import ArchivedStack, small_segments
from tests.factories import session, sessions
from tests.fakes.events import numbered_event
from tests.integration.api_support import ADMIN_KEY, running_api
from tests.integration.changes_support import pages
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
EVENTS = sessions(4, 15)


@pytest.fixture
def archived(
    make_stack: Callable[..., Stack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Stack:
    """Most of its events are archived; `whole` of it is the report of before."""
    small_segments(monkeypatch)
    stack = make_stack(archive_url=str(tmp_path / "archive"))
    stack.append(*EVENTS)
    stack.fold()
    return stack


def test_graphs_are_folded_and_proved_from_the_archive(
    archived: Stack, second_neo4j: Neo4jServer, tmp_path: Path
) -> None:
    whole, graph = archived.verify(), archived.dump()
    before, after = tmp_path / "before.jsonl", tmp_path / "after.jsonl"
    export(archived.services, Format.EVENTS, Selection(), before)
    assert archive(archived.services, keep=3).archived == len(EVENTS) - 2 * 3
    report = archived.verify()
    assert (report.ok, report.digest, report.events) == (True, whole.digest, len(EVENTS))
    assert archived.verify(fast=True).digest == whole.digest
    replay(archived.services, PROJECTION)
    assert archived.dump() == graph
    green = Target("green", emptied_neo4j(second_neo4j), "neo4j")
    rebuilt = rebuild(archived.services, into=green, switch=True)
    assert (rebuilt.verified.digest, rebuilt.entries) == (whole.digest, len(EVENTS))
    assert archived.services.active().name == "green"
    export(archived.services, Format.EVENTS, Selection(), after)
    assert after.read_bytes() == before.read_bytes()


def test_a_worker_on_an_empty_graph_begins_in_the_archive(
    archived: Stack, neo4j: Neo4jServer
) -> None:
    whole = archived.verify()
    archive(archived.services, keep=3)
    emptied_neo4j(neo4j)
    told = status(archived.services)
    assert told["stages"]["projection"]["lag_entries"] == len(EVENTS)
    settings = archived.services.settings
    environment = {
        "RECOLLECT_PARTITIONS": str(PARTITIONS),
        "RECOLLECT_ID_BUCKETS": "64",
        "RECOLLECT_BATCH_SIZE": "16",
        "RECOLLECT_REDIS_URL": settings.redis_url,
        "RECOLLECT_NEO4J_URL": settings.neo4j_url,
    }
    with subprocess.Popen(
        [*python_command("pipelines.cli.main"), "worker", "projection"],
        env=python_environment(environment),
        stderr=subprocess.PIPE,
    ) as worker:
        try:
            wait_until(lambda: not _lag(archived), "all is folded", patience_s=60.0)
            archived.append(*session("later", range(1_001, 1_006)))
            wait_until(lambda: not _lag(archived), "what comes is folded", patience_s=60.0)
        finally:
            worker.send_signal(signal.SIGTERM)
            worker.communicate()
    report = archived.verify()
    assert (report.ok, report.events) == (True, len(EVENTS) + 5)
    assert report.digest != whole.digest
    assert not status(archived.services)["graph_ahead"]


def test_the_archivers_process_looks_and_ends_in_order(archived: Stack) -> None:
    settings = archived.services.settings
    command = [*python_command("pipelines.cli.main"), "worker", "archive"]
    places = {
        "RECOLLECT_PARTITIONS": str(PARTITIONS),
        "RECOLLECT_ID_BUCKETS": "64",
        "RECOLLECT_REDIS_URL": settings.redis_url,
        "RECOLLECT_NEO4J_URL": settings.neo4j_url,
    }
    nowhere = subprocess.run(
        command, env=python_environment(places), capture_output=True, text=True, check=False
    )
    assert nowhere.returncode == 2
    assert "archive_url: where older entries go is not set" in nowhere.stderr
    place = {"RECOLLECT_ARCHIVE_URL": str(settings.archive_url)}
    with subprocess.Popen(
        command, env=python_environment(places | place), stderr=subprocess.PIPE
    ) as archiver:
        try:
            wait_until(archived.ledger.archive.told, "it has looked", patience_s=60.0)
        finally:
            archiver.send_signal(signal.SIGTERM)
            _, log = archiver.communicate()
    assert (archiver.returncode, log) == (0, b"")
    assert archived.ledger.archive.told() == {"problem": "", "waits_for": ""}  # nothing was due


def _lag(stack: Stack) -> int:
    seqs = {c.partition: c.seq for c in stack.graph.checkpoints("projection")}
    return sum(t.seq - seqs.get(n, 0) for n, t in enumerate(stack.ledger.tails()))


def test_the_api_answers_from_the_archive(archived: Stack) -> None:
    events = [event._replace(tenant="acme") for event in EVENTS]
    archived.append(*events)
    archived.fold()
    settings = archived.services.settings
    places = {"partitions": PARTITIONS, "id_buckets": 64}
    with (
        running_api(settings.redis_url, settings.neo4j_url, **places) as api,
        api.client() as client,
    ):
        before = [client.get(f"/v1/events/{event.event_id}").json() for event in events[:3]]
        changes = pages(client)
        assert len(changes) == len(events)
        archive(archived.services, keep=3)
        after = [client.get(f"/v1/events/{event.event_id}").json() for event in events[:3]]
        assert after == before
        assert before[0]["payload"] == events[0].payload
        assert pages(client) == changes
        with api.client(ADMIN_KEY) as operator:
            told = operator.get("/metrics").text
        assert "recollect_ledger_archive_stopped 0.0" in told


def test_a_small_redis_takes_more_than_it_can_hold(
    start_valkey: Callable[..., ValkeyServer], tmp_path: Path
) -> None:
    """Events of more than 10 MB go through a Redis of 8 MB, which without an archive is full."""
    server = start_valkey(extra_args=["--maxmemory", "8mb"])
    texts = [numbered_event(n, payload={"text": f"{n} " * 900}) for n in range(2_800)]
    assert sum(len(event.payload["text"]) for event in texts) > 10 * 2**20
    with closing(ArchivedStack(server.url, tmp_path / "archive")) as stack:
        full = 0
        for first in range(0, len(texts), 200):
            try:
                stack.append(*texts[first : first + 200])
            except LedgerUnavailable:
                full += 1
            stack.fold()
            archive_when_due(stack.services, lambda: None)
        assert full == 0
        assert sum(tail.seq for tail in stack.ledger.tails()) == len(texts)
        assert stack.ledger.archive.boundary(0).seq > 500
        found = stack.ledger.find_many([texts[0].key, texts[-1].key])
        assert [entry.event() for entry in found.values()] == [texts[0], texts[-1]]
        used, limit = stack.ledger.memory()
        assert used < limit


def test_a_redis_that_is_full_is_emptied_by_the_archiver(
    start_valkey: Callable[..., ValkeyServer], tmp_path: Path
) -> None:
    server = start_valkey(extra_args=["--maxmemory", "8mb"])
    with closing(ArchivedStack(server.url, tmp_path / "archive")) as stack:
        number, full = 0, False
        while not full:
            try:
                stack.append(numbered_event(number, payload={"text": f"{number} " * 1_000}))
                number += 1
            except LedgerUnavailable as error:
                full = "maxmemory" in str(error)
        stack.fold()
        with closing(stack.reopened()) as begun_when_full:
            assert verify(begun_when_full.services).ok
            copied = backup(begun_when_full.services, str(tmp_path / "backup"))
            assert copied.entries == number
            assert archive_when_due(begun_when_full.services, lambda: None).archived > 500
        assert stack.append(numbered_event(number))[0].duplicate is False
