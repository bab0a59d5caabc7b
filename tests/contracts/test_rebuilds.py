"""How far a rebuild is, told on a real server."""

from __future__ import annotations

import time

import pytest
import redis

from pipelines.ledger.command_notes import HEARD_S, TOLD_EVERY_S, Rebuilding, Rebuilds, Telling
from pipelines.ledger.entries import LedgerKeys

pytestmark = pytest.mark.integration


@pytest.fixture
def rebuilds(redis_url: str) -> Rebuilds:
    return Rebuilds(redis.Redis.from_url(redis_url))


def test_none_runs_at_first(rebuilds: Rebuilds) -> None:
    assert rebuilds.all() == []
    rebuilds.end("green")


def test_each_tells_how_far_it_is_until_it_ends(rebuilds: Rebuilds) -> None:
    now_s = time.time()
    green = Rebuilding("green", "projection of green", 5, 10, now_s, now_s)
    blue = Rebuilding("blue", "loading the files", 0, None, now_s, now_s)
    rebuilds.tell(green)
    rebuilds.tell(blue)
    rebuilds.tell(green._replace(done=7))
    assert rebuilds.all() == [blue, green._replace(done=7)]
    rebuilds.end("green")
    assert rebuilds.all() == [blue]


def test_one_that_was_killed_is_forgotten(rebuilds: Rebuilds, redis_url: str) -> None:
    now_s = time.time()
    long_ago = Rebuilding("green", "projection", 5, 10, now_s - 9_000, now_s - HEARD_S - 1)
    rebuilds.tell(long_ago)
    assert rebuilds.all() == []
    left_s = redis.Redis.from_url(redis_url).ttl(LedgerKeys().rebuilds)
    assert HEARD_S - 60 < left_s <= HEARD_S


def test_it_is_told_once_a_second_and_whenever_something_else_is_done(rebuilds: Rebuilds) -> None:
    begun_s = now_s = time.time()
    heard: list[tuple[int, int | None, str]] = []
    telling = Telling(rebuilds, "green", lambda *told: heard.append(told), clock=lambda: now_s)
    for done in range(3):
        telling(done, 9, "projection")
    assert rebuilds.all() == [Rebuilding("green", "projection", 0, 9, begun_s, begun_s)]
    telling(1, None, "making the indexes")
    assert rebuilds.all() == [Rebuilding("green", "making the indexes", 1, None, begun_s, begun_s)]
    now_s += TOLD_EVERY_S
    telling(2, None, "making the indexes")
    assert rebuilds.all()[0].done == 2
    assert rebuilds.all()[0].heard_s == now_s
    assert [done for done, _, _ in heard] == [0, 1, 2, 1, 2], "who called hears all of it"
