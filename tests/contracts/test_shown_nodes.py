"""What sessions were shown outlives a process, and judgements of what nobody asked for count."""

from __future__ import annotations

import uuid

import redis

from api.caches import MAX_SHOWN, ShownNodes
from pipelines.ledger.entries import LedgerKeys
from pipelines.models.cache import ByteCache
from pipelines.observe import metrics

KEYS = LedgerKeys("rc")


def own(number: int) -> str:
    return str(uuid.UUID(int=number))


def metric(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"recollect_{name}", labels) or 0.0


def shown_nodes(client: redis.Redis, *, usable: bool = True) -> ShownNodes:
    """As a process of the API makes them."""
    cache = ByteCache(client, KEYS, "shown", ttl_s=60, max_bytes=2**20)
    return ShownNodes(cache, lambda: usable)


def test_another_process_knows_what_a_session_was_shown(client: redis.Redis) -> None:
    before = shown_nodes(client)
    before.show("t", "s", [own(1), "entity:0f", own(2)], {})
    before.show("t", "s", [own(1)], {})
    after = shown_nodes(client)
    assert after.events("t", "s") == [own(2), own(1)]
    assert after.events("t", "other") == []
    assert after.events("u", "s") == []


def test_the_last_ones_of_a_session_are_remembered(client: redis.Redis) -> None:
    shown = shown_nodes(client)
    shown.show("t", "s", map(own, range(300)), {})
    assert shown.events("t", "s") == [own(number) for number in range(300 - MAX_SHOWN, 300)]


def test_while_redis_is_away_nobody_waits_and_nothing_is_known(client: redis.Redis) -> None:
    shown_nodes(client).show("t", "s", [own(1)], {})
    away = shown_nodes(client, usable=False)
    away.show("t", "s", [own(2)], {})
    assert away.events("t", "s") == []
    assert shown_nodes(client).events("t", "s") == [own(1)]


def test_what_was_shown_unasked_is_counted_when_it_is_read_or_judged(client: redis.Redis) -> None:
    shown = shown_nodes(client)
    signal: metrics.Signal = "recurring_pattern"
    shown.show("t", "s", [own(1), own(2)], {own(1): signal})
    read = metric("proactive_nodes_read_total", signal=signal)
    shown.count_read("t", [own(1), own(2), own(3)])
    shown.count_read("u", [own(1)])
    assert metric("proactive_nodes_read_total", signal=signal) - read == 1
    judged = {
        judgement: metric("proactive_nodes_judged_total", signal=signal, judgement=judgement)
        for judgement in ("useful", "not_useful")
    }
    shown.count_judged("t", [own(2)], [own(1)])
    after = {
        judgement: metric("proactive_nodes_judged_total", signal=signal, judgement=judgement)
        for judgement in judged
    }
    assert after == {"useful": judged["useful"], "not_useful": judged["not_useful"] + 1}
