"""The registry of targets on a real server."""

from __future__ import annotations

import threading

import pytest
import redis

from pipelines.ledger.registry import Target, Targets
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
