"""The registry of targets on a real server."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import redis

from pipelines.graph.memory import MemoryGraph
from pipelines.graph.memory_graphs import graph_socket
from pipelines.graph.remote import GraphServer
from pipelines.ledger.command_notes import KEPT_S, MOST_TENANTS, Comparisons
from pipelines.ledger.entries import LedgerKeys
from pipelines.ledger.registry import Target, Targets
from pipelines.work.services import SMALL, Services
from pipelines.work.settings import Settings
from projections.errors import OperationFailed, UnknownTarget

pytestmark = pytest.mark.integration
BLUE = Target("blue", "bolt://127.0.0.1:1", "neo4j")
GREEN = Target("green", "bolt://127.0.0.1:2", "neo4j", "standby")


@pytest.fixture
def targets(redis_url: str) -> Targets:
    return Targets(redis.Redis.from_url(redis_url))


def test_none_is_registered_at_first(targets: Targets) -> None:
    assert targets.all() == []
    assert targets.active() is None
    with pytest.raises(UnknownTarget):
        targets.get("blue")
    with pytest.raises(UnknownTarget):
        targets.activate("blue")


def test_an_emptied_ledger_stays_that_of_the_small_edition_that_runs(
    redis_url: str, tmp_path: Path
) -> None:
    settings = Settings(redis_url=redis_url, data_dir=tmp_path)
    server = GraphServer(MemoryGraph(), graph_socket(settings), transaction_s=30.0)
    with Services(settings) as services:
        server.start()
        try:
            assert services.active() == SMALL
        finally:
            server.stop()
        services.redis.flushall()
        assert services.active().uri == settings.neo4j_url


def test_switching_leaves_one_active(targets: Targets) -> None:
    targets.register(GREEN)
    targets.register(BLUE)
    assert targets.activate("blue") == 1
    assert targets.activate("green") == 2
    assert targets.activate("green") == 2
    assert targets.active() == ("green", 2)
    assert [(target.name, target.state) for target in targets.all()] == [
        ("blue", "standby"),
        ("green", "active"),
    ]


def test_the_active_target_is_neither_dropped_nor_built_anew(targets: Targets) -> None:
    targets.register(BLUE)
    targets.register(GREEN)
    targets.activate("blue")
    with pytest.raises(OperationFailed):
        targets.drop("blue")
    with pytest.raises(OperationFailed):
        targets.set_state("blue", "building")
    with pytest.raises(OperationFailed):
        targets.set_state("green", "active")
    targets.set_state("green", "building")
    assert targets.get("green").state == "building"
    targets.drop("green")
    assert [target.name for target in targets.all()] == ["blue"]


def test_switches_at_once_count_each(targets: Targets) -> None:
    names = [f"t{number}" for number in range(6)]
    for name in names:
        targets.register(Target(name, "bolt://127.0.0.1:1", name))
    threads = [threading.Thread(target=targets.activate, args=(name,)) for name in names]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    active = targets.active()
    assert active is not None
    assert active[1] == 6
    assert [t.name for t in targets.all() if t.state == "active"] == [active[0]]


# -- comparisons -----------------------------------------------------------------------------------

DIFFERS: dict[str, Any] = {
    "types": [
        {"type": "Event", "only_first": 1, "only_second": 0, "different": 0, "properties": {}}
    ],
    "examples": [],
}
NAMES = ("blue", "green")


@pytest.fixture
def comparisons(redis_url: str) -> Comparisons:
    return Comparisons(redis.Redis.from_url(redis_url))


def test_who_was_compared_and_differs_not_is_known_to_be_the_same(comparisons: Comparisons) -> None:
    assert comparisons.last("acme") is None
    comparisons.put(NAMES, {"acme": DIFFERS}, behind={"enrichment": 3})
    acme, other = comparisons.last("acme"), comparisons.last("other")
    assert acme is not None
    assert other is not None
    assert (acme.first, acme.second, acme.behind) == (*NAMES, {"enrichment": 3})
    assert (acme.types, other.types) == (DIFFERS["types"], [])
    assert abs(acme.ended_at_ms - time.time() * 1000) < 60_000


def test_one_tenant_compared_leaves_what_is_known_of_others(comparisons: Comparisons) -> None:
    comparisons.put(NAMES, {"acme": DIFFERS, "other": DIFFERS}, behind={})
    comparisons.put(NAMES[::-1], {}, behind={}, tenant="acme")
    acme, other = comparisons.last("acme"), comparisons.last("other")
    assert acme is not None
    assert other is not None
    assert (acme.first, acme.types) == ("green", [])
    assert (other.first, other.types) == ("blue", DIFFERS["types"])
    comparisons.put(NAMES, {}, behind={})
    again = comparisons.last("other")
    assert again is not None
    assert again.types == []


def test_of_too_many_tenants_nothing_is_said_rather_than_that_they_are_the_same(
    comparisons: Comparisons, redis_url: str
) -> None:
    names = [f"t{number:05}" for number in range(MOST_TENANTS + 1)]
    comparisons.put(NAMES, dict.fromkeys(names, DIFFERS), behind={})
    assert comparisons.last(names[0]) is not None
    assert comparisons.last(names[-1]) is None
    left_s = redis.Redis.from_url(redis_url).ttl(LedgerKeys().comparisons)
    assert KEPT_S - 60 < left_s <= KEPT_S
