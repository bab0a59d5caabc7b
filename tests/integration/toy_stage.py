"""A stage whose graph is a Redis list: `faust -A tests.integration.toy_stage worker` runs it.

Its checkpoint is fenced like the real one: a block is applied if and only if it starts right
after the checkpoint, in one atomic script. `TOY_DELAY_MS` makes every block slow.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

import redis

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.entries import Block, Entry
from pipelines.work.app import StageApp
from pipelines.work.settings import Settings, load_settings
from projections.errors import Fenced, GraphUnavailable, RecollectError
from projections.identity import Position
from projections.operations import Checkpoint

FOLD = """
local at = tonumber(redis.call('HGET', KEYS[1], 'seq') or '0')
if at + 1 ~= tonumber(ARGV[1]) then return 0 end
for i = 4, #ARGV do redis.call('RPUSH', KEYS[2], ARGV[i]) end
redis.call('HSET', KEYS[1], 'seq', ARGV[2], 'position', ARGV[3])
return 1
"""


class ToyFolder:
    """Applies a block by appending its events' data to `toy:applied:<partition>`."""

    def __init__(self, client: redis.Redis, stop: threading.Event, delay_s: float) -> None:
        self._redis = client
        self._fold = client.register_script(FOLD)
        self._stop = stop
        self._delay_s = delay_s

    def checkpoint(self, partition: int) -> Checkpoint:
        try:
            found = self._redis.hgetall(f"toy:checkpoint:{partition}")
        except redis.RedisError as error:
            raise GraphUnavailable(reason=str(error)) from error
        if not found:
            return Checkpoint("toy", partition)
        return Checkpoint("toy", partition, Position.parse(found[b"position"]), int(found[b"seq"]))

    def read(self, *_: object) -> list[Entry]:
        """The ledger has nothing to object to what was read: these entries are in no index."""
        return []

    def apply_together(self, blocks: Sequence[Block]) -> dict[int, RecollectError | None]:
        outcomes: dict[int, RecollectError | None] = {}
        for block in blocks:
            try:
                self.apply(block)
                outcomes[block.partition] = None
            except RecollectError as error:
                outcomes[block.partition] = error
        return outcomes

    def interrupt(self) -> None:
        """It waits for nothing."""

    def apply(self, block: Block) -> None:
        pid = os.getpid()
        self._redis.hincrby("toy:in_hand", str(pid), 1)
        try:
            if self._delay_s:
                time.sleep(self._delay_s)
            first, last = block.entries[0], block.entries[-1]
            lines = [b"%d " % pid + entry.data for entry in block.entries]
            keys = [f"toy:checkpoint:{block.partition}", f"toy:applied:{block.partition}"]
            done = self._fold(keys=keys, args=[first.seq, last.seq, str(last.position), *lines])
        except redis.RedisError as error:
            raise GraphUnavailable(reason=str(error)) from error
        if not done:
            self._redis.incr("toy:fenced")
            raise Fenced(
                stage="toy", partition=block.partition, position=str(first.position), generation=1
            )


def make_toy_app(settings: Settings) -> StageApp:
    delay_s = int(os.environ.get("TOY_DELAY_MS", "0")) / 1000
    return StageApp(
        "toy",
        settings,
        settings.target,
        lambda stop: ToyFolder(connect_redis(settings), stop, delay_s),
    )


app = make_toy_app(load_settings())
