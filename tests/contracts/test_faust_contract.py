"""What the transport relies on inside Faust. An upgrade that changes any of it fails here, loudly.

None of this is promised by Faust; each entry names who depends on it.
"""

from __future__ import annotations

import asyncio
import importlib
import importlib.metadata
import inspect
import os
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakSet

import faust
import pytest
from faust.app import BootStrategy
from faust.app.base import App
from faust.app.base import BootStrategy as FullBootStrategy
from faust.exceptions import ImproperlyConfigured
from faust.streams import Stream
from faust.tables.manager import TableManager
from faust.transport import base
from faust.transport.conductor import Conductor
from faust.transport.consumer import Consumer, Fetcher
from faust.types import ConsumerMessage
from faust.types.tuples import TP, ack_lock
from faust.worker import Worker
from mode import Service

from pipelines.ledger.entries import Entry
from pipelines.work.app import StageApp
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from pipelines.work.transport import LEDGER_TOPIC, Transport
from pipelines.work.transport import Consumer as LedgerConsumer
from projections.errors import RecollectError
from projections.operations import Checkpoint


class NoFolder:
    """Nothing is applied in these tests."""

    def checkpoint(self, partition: int) -> Checkpoint:
        return Checkpoint("toy", partition)

    def read(self, *_: object) -> list[Entry]:
        """The ledger has nothing to object to what was read."""
        return []

    def apply_together(self, blocks: Any) -> dict[int, RecollectError | None]:
        raise NotImplementedError

    def interrupt(self) -> None:
        """It waits for nothing."""


def make_app(tmp_path: Path, **settings: Any) -> StageApp:
    def make(stop: threading.Event) -> NoFolder:
        return NoFolder()

    return StageApp("toy", Settings(data_dir=tmp_path, partitions=4, **settings), "blue", make)


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def source(function: Callable[..., Any]) -> str:
    return inspect.getsource(function)


def test_the_versions_are_those_the_transport_was_measured_with() -> None:
    assert importlib.metadata.version("faust-streaming").startswith("0.15.")
    assert importlib.metadata.version("mode-streaming").startswith("0.7.")


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (Consumer._commit_tps, ["self", "tps", "start_new_transaction"]),
        (Consumer._drain_messages, ["self", "fetcher"]),
        (Consumer.ack, ["self", "message"]),
        (Consumer.wait_empty, ["self"]),
        (Consumer.on_stop, ["self"]),
        (Consumer.seek_to_committed, ["self"]),
        (Consumer.on_buffer_full, ["self", "tp"]),
        (Consumer.on_buffer_drop, ["self", "tp"]),
        (Consumer.on_partitions_assigned, ["self", "assigned", "generation_id"]),
        (Consumer.commit, ["self", "topics", "start_new_transaction"]),
        (Conductor.on_partitions_assigned, ["self", "assigned"]),
        (base.Transport.__init__, ["self", "url", "app", "loop"]),
        (App.on_rebalance_start, ["self"]),
        (App.on_stop, ["self"]),
        (Service.add_future, ["self", "coro"]),
    ],
)
def test_methods_that_are_overridden_or_called_have_these_parameters(
    function: Callable[..., Any], expected: list[str]
) -> None:
    assert parameters(inspect.unwrap(function)) == expected


def test_nothing_else_is_abstract_in_the_consumer() -> None:
    assert Consumer.__abstractmethods__ == {
        "_commit", "_getmany", "_new_topicpartition", "_seek", "_to_message", "assignment",
        "create_topic", "earliest_offsets", "highwater", "highwaters", "key_partition",
        "position", "seek_to_committed", "seek_wait", "subscribe", "topic_partitions",
    }  # fmt: skip
    assert not inspect.isabstract(LedgerConsumer)


async def test_acks_are_kept_in_these_attributes(tmp_path: Path) -> None:
    consumer = make_app(tmp_path).consumer
    assert isinstance(consumer, LedgerConsumer)
    for name in ("_acked", "_acked_index", "_committed_offset"):
        assert isinstance(getattr(consumer, name), defaultdict), name
    assert isinstance(consumer._unacked_messages, WeakSet)
    assert consumer._acked[TP("ledger", 0)] == []
    assert consumer._acked_index[TP("ledger", 0)] == set()
    assert consumer._committed_offset[TP("ledger", 0)] is None
    with ack_lock, ack_lock:  # reentrant: `event.ack()` takes it around `Consumer.ack`
        pass


def test_the_stream_iterator_in_cython_is_the_one_that_runs() -> None:
    """It writes `_acked` itself, which is why acks are taken in `_commit_tps`."""
    streams: Any = importlib.import_module("faust.streams")
    assert streams._CStreamIterator is not None


def test_an_ack_of_the_last_reference_reaches_the_consumer(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Acks:
        def ack(self, message: Any) -> bool:
            seen.append(message)
            return True

    message = ConsumerMessage("ledger", 0, 1, 0.0, 1, {}, None, None, None)
    message.incref(1)
    message.ack(Acks())  # type: ignore[arg-type]  # a consumer's only method that matters here
    assert seen == [message]


def test_force_commit_hands_every_partition_that_ever_acked_to_commit_tps() -> None:
    assert "_filter_tps_with_pending_acks" in source(inspect.unwrap(Consumer.force_commit))
    assert "_commit_tps" in source(inspect.unwrap(Consumer.force_commit))


def test_the_conductor_waits_before_it_subscribes_again() -> None:
    """45 seconds in Faust; the transport's waits for one."""
    assert Conductor._resubscribe_sleep_lock_seconds == 45.0
    assert Transport.Conductor._resubscribe_sleep_lock_seconds == 1.0
    assert "self._resubscribe_sleep_lock_seconds" in source(
        inspect.unwrap(Conductor._subscriber.fun)
    )


def test_the_conductor_notes_its_subscription_after_subscribe_has_returned() -> None:
    """So the assignment, which waits for that note, must run in a task of its own."""
    lines = source(inspect.unwrap(Conductor._subscriber.fun))
    assert lines.index("consumer.subscribe(") < lines.index("notify(self._subscription_done)")
    assert "maybe_wait_for_subscriptions" in source(App._on_partitions_assigned)


def test_the_fetcher_runs_drain_messages_and_nothing_else() -> None:
    assert "await consumer._drain_messages(self)" in source(inspect.unwrap(Fetcher._fetcher.fun))


def test_a_message_of_another_generation_is_skipped_by_streams() -> None:
    assert "message.generation_id != consumer_generation_id" in source(Stream._py_aiter).replace(
        "self.app.consumer_generation_id", "consumer_generation_id"
    ).replace("app.consumer_generation_id", "consumer_generation_id")


def test_stopping_an_app_waits_for_streams_before_agents_are_stopped() -> None:
    assert "await self._stop_consumer()" in source(App.on_stop)
    assert "await self._consumer_wait_empty(" in source(App._stop_consumer)
    assert "stream_wait_empty" in source(App._consumer_wait_empty)


def test_a_service_that_stops_runs_on_stop_before_its_tasks_are_cancelled() -> None:
    """Leases are renewed by a task while the worker drains in `on_stop`."""
    lines = source(Service.stop)
    assert lines.index("self._stopped_set()") < lines.index("await self.on_stop()")
    assert lines.index("await self.on_stop()") < lines.index("await self._stop_futures()")


def test_the_leader_is_who_is_assigned_the_leader_topic(tmp_path: Path) -> None:
    app: Any = make_app(tmp_path)
    leader_tp = app._leader_assignor._leader_tp
    assert isinstance(leader_tp, TP)
    assert "in self.app.consumer.assignment()" in source(type(app._leader_assignor).is_leader)
    assert not app.is_leader()


def test_the_web_server_is_off_even_when_the_command_line_turns_it_on(tmp_path: Path) -> None:
    assert FullBootStrategy is BootStrategy
    app: Any = make_app(tmp_path)
    app.conf.web_enabled = True  # what `faust worker` does
    assert not list(app.boot_strategy.web_server())


def test_tables_are_refused(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    app.Table("counts", default=int)
    assert isinstance(app.tables, TableManager)

    async def subscribe() -> None:
        await app.consumer.subscribe([LEDGER_TOPIC])

    with pytest.raises(ImproperlyConfigured, match=r"app\.Table"):
        asyncio.run(subscribe())


async def test_sending_is_refused(tmp_path: Path) -> None:
    app = make_app(tmp_path)
    with pytest.raises(ImproperlyConfigured, match="append to the ledger"):
        await app.producer.send("elsewhere", None, b"", None, None, None)
    with pytest.raises(ImproperlyConfigured, match="append to the ledger"):
        await app.producer.send_and_wait("elsewhere", None, b"", None, None, None)
    with pytest.raises(ImproperlyConfigured, match="ledger only"):
        await app.consumer.subscribe([LEDGER_TOPIC, app.conf.reply_to])


def test_an_app_without_positions_is_refused() -> None:
    app = faust.App("bare", broker="redisstreams://")
    with pytest.raises(ImproperlyConfigured, match=r"app\.positions"):
        _ = app.transport


def test_the_worker_takes_these_options() -> None:
    assert {"app", "loglevel", "quiet"} <= set(parameters(Worker.__init__))
    assert "raise SystemExit(EX_OK)" in source(Worker.execute_from_commandline)


FIND_APPS = """
from faust.cli.base import find_app
from pipelines.ledger.entries import Entry
from pipelines.work.stages import STAGES
print(*[find_app(f"pipelines.work.app:{name}").conf.id for name in STAGES])
"""


def test_faust_finds_the_app_of_every_stage(tmp_path: Path) -> None:
    """In a process of its own: a stage that runs models lowers the priority of its process."""
    found = subprocess.run(
        [sys.executable, "-c", FIND_APPS],
        env={**os.environ, "RECOLLECT_DATA_DIR": str(tmp_path), "RECOLLECT_TARGET": "green"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.stdout.split() == [f"{name}@green" for name in STAGES], found.stderr
