"""The stages on threads of one process, with a ledger in a real Valkey and a graph in memory."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from uuid import uuid4

import pytest

from pipelines.graph.memory_graphs import note_folding, require_whole
from pipelines.graph.port import Graph
from pipelines.ledger.epoch import PassLease
from pipelines.ledger.registry import Target
from pipelines.operations.decider import Decider
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stage_threads import DECIDED, StageThreads
from pipelines.work.stages import STAGES
from projections.errors import GraphUnavailable
from projections.events import Event, parse_event
from tests.graph_dump import dump
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
NOW_MS = 1_800_000_000_000
INCIDENT = Path("pipelines/scenarios/payment_incident.jsonl")


@pytest.fixture
def services(redis_url: str, tmp_path: Path) -> Iterator[Services]:
    settings = Settings(
        redis_url=redis_url,
        neo4j_url=f"memory://{uuid4().hex}",
        derivations_url=f"sqlite://{tmp_path}/derivations.sqlite",
        data_dir=tmp_path,
        partitions=2,
        id_buckets=64,
    )
    with (
        Services(settings, loads_models=False) as opened,
        PassLease(opened.redis, settings.prefix, lease_ms=600_000),  # no pass decides meanwhile
    ):
        yield opened


def incident() -> list[Event]:
    lines = INCIDENT.read_text(encoding="utf-8").splitlines()
    return [parse_event(json.loads(line), now_ms=NOW_MS) for line in lines]


def appended(services: Services) -> int:
    return sum(tail.seq for tail in services.ledger.tails())


def is_folded(services: Services, graph: Graph) -> bool:
    seqs = {(one.stage, one.partition): one.seq for one in graph.checkpoints()}
    tails = list(enumerate(services.ledger.tails()))
    return all(seqs.get((stage, n), 0) >= tail.seq for stage in STAGES for n, tail in tails)


def folded(services: Services, target: Target) -> Graph:
    """The target's graph, once everything is in it and the stages have ended."""
    graph = services.graph(target)
    work = StageThreads(services, target, Decider)
    work.start()
    try:
        wait_until(lambda: work.is_whole and is_folded(services, graph), "all is folded")
    finally:
        work.stop()
    require_whole(target.uri)
    return graph


def test_a_graph_that_begins_anew_is_the_same_and_decides_nothing_again(services: Services) -> None:
    first, events = services.active(), incident()
    services.ledger.append(events)
    before = folded(services, first)
    entries = appended(services)
    assert entries > len(events), "nothing was decided"
    again = replace(first, uri=f"memory://{uuid4().hex}")
    services.targets.register(again)
    after = folded(services, again)
    assert appended(services) == entries
    assert dump(after) == dump(before)


def test_how_far_it_decided_is_noted(services: Services) -> None:
    first = services.active()
    services.ledger.append(incident()[:3])
    folded(services, first)
    (noted,) = (one.values for one in services.reports.all() if one.command == DECIDED)
    assert sum(noted.values()) == len(STAGES) * appended(services)


def test_what_is_not_whole_is_not_read_from() -> None:
    note_folding("memory://some", lambda: "3 of 9")
    with pytest.raises(GraphUnavailable, match="3 of 9"):
        require_whole("memory://some")
    require_whole("memory://other")
    note_folding("memory://some", None)
    require_whole("memory://some")
