"""Who may act on the ledger: admission of server processes, and leases.

A ledger can fall behind its graph: a power loss, or a failover to a lagging replica, loses about
the last second of what Redis acknowledged, while the graph already holds it. New events would then
get positions below a checkpoint and never be read. So nobody appends to a server process before
it was compared with every checkpoint: the clock is raised above them all, and a partition whose
checkpoint names an entry that is gone is halted until `recollect recover` has dealt with it.

The comparison happens once a process. It cannot be skipped: the append script is loaded only
here, and carries the process's replication id (a new one with each promotion) and the number of
the epoch in its text.

A lease is taken, renewed and given back by whoever holds it, compared and set at once.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.resources import files
from threading import Lock
from time import monotonic, sleep
from typing import Any, Final, NamedTuple, Self

import redis
import structlog
from redis.exceptions import RedisError

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.entries import LedgerKeys, decode_entry, decode_position, is_at
from projections.errors import (
    ArchiverUnderWay,
    ConfigurationError,
    GraphAhead,
    LedgerFormatMismatch,
    LedgerUnavailable,
    OperationFailed,
    PassUnderWay,
    RecollectError,
)
from projections.identity import START, Position
from projections.operations import Checkpoint

logger = structlog.get_logger(__name__)

FORMAT_VERSION = 1
ReadCheckpoints = Callable[[], Mapping[str, Sequence[Checkpoint]]]
"""Reads the checkpoints of all stages in all targets, by name of the target."""

_HALTED = "halted:"
_APPEND = files("pipelines.ledger").joinpath("append.lua").read_text("utf-8")
_LARGEST_SEQ = 2**31
_CREATED: Final = "created_at_ms"

# ARGV: epoch found, run id, replication id, clock ms, clock seq, then field and value of halts.
# Compares the process again: the connection may have moved to another one since it was read.
# Runs when Redis is full: one that was restarted could not even be archived from.
_BEGIN_EPOCH = """#!lua flags=allow-oom
local prefix = '@PREFIX@'
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
if not string.find(info, 'run_id:' .. ARGV[2], 1, true)
    or not string.find(info, 'master_replid:' .. ARGV[3], 1, true)
    or (redis.call('HGET', prefix .. ':epoch', 'number') or '0') ~= ARGV[1] then
  return 0
end
local ms, seq = string.match(redis.call('GET', prefix .. ':clock') or '0-0', '^(%d+)-(%d+)$')
ms, seq = tonumber(ms), tonumber(seq)
local floor_ms, floor_seq = tonumber(ARGV[4]), tonumber(ARGV[5])
if floor_ms > ms or (floor_ms == ms and floor_seq > seq) then
  redis.call('SET', prefix .. ':clock', ARGV[4] .. '-' .. ARGV[5])
end
for i = 6, #ARGV, 2 do redis.call('HSETNX', prefix .. ':epoch', ARGV[i], ARGV[i + 1]) end
redis.call('HSET', prefix .. ':epoch', 'number', ARGV[1] + 1, 'run_id', ARGV[2],
  'replication_id', ARGV[3])
return 1
"""


class _Process(NamedTuple):
    """A server process in one role; `replication_id` changes with every promotion."""

    run_id: str
    replication_id: str


class Admission:
    """Admits server processes and keeps the list of halted partitions. Safe for threads.

    Args:
        client: of the ledger's Redis.
        keys: names of its keys.
        partitions: of the ledger.
        id_buckets: of the ledger's id index.
        checkpoints: reads every checkpoint of every target; called for each new process, and again
            where an entry is gone.
        archived: whether the archive has the entry that a checkpoint names; None: that one is not
            archived.
    """

    def __init__(
        self,
        client: redis.Redis,
        keys: LedgerKeys,
        *,
        partitions: int,
        id_buckets: int,
        checkpoints: ReadCheckpoints,
        archived: Callable[[Checkpoint], bool | None],
    ) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._keys = keys
        self._partitions = partitions
        self._id_buckets = id_buckets
        self._checkpoints = checkpoints
        self._archived = archived
        self._lock = Lock()
        self._attempts = 8

    def ensure_format(self) -> None:
        """Create the ledger's format when there is none, else compare.

        Raises:
            LedgerFormatMismatch: the ledger was made with other numbers.
            LedgerUnavailable: it is being restored.
        """
        expected = {
            "version": FORMAT_VERSION,
            "partitions": self._partitions,
            "id_buckets": self._id_buckets,
        }
        names = {name.encode() for name in (*expected, _CREATED)}
        restoring, stored = self._format({})
        if not names <= stored.keys():
            seconds, micros = self._redis.time()
            created_at_ms = int(seconds) * 1000 + int(micros) // 1000
            restoring, stored = self._format({**expected, _CREATED: created_at_ms})
        if restoring:
            raise LedgerUnavailable(reason="a restore has begun and not ended: run it again")
        got = {name: int(stored.get(name.encode(), -1)) for name in expected}
        if got != expected:
            raise LedgerFormatMismatch(
                found=_described(got),
                expected=_described(expected),
                reason="the format is fixed when a ledger is created",
            )

    def _format(self, new: Mapping[str, int]) -> tuple[int, dict[bytes, bytes]]:
        """Whether a restore is under way, and the format; of `new`, what is not there is written.

        To look takes no room, so that a ledger can be opened, and archived, when Redis is full.
        """
        with self._redis.pipeline(transaction=True) as transaction:
            for name, value in new.items():
                transaction.hsetnx(self._keys.format, name, str(value))
            transaction.exists(self._keys.restoring)
            transaction.hgetall(self._keys.format)
            *_, restoring, stored = transaction.execute()
        return restoring, stored

    def refuse_eviction(self) -> None:
        """See that Redis, when full, refuses writes rather than drops parts of the ledger.

        Raises:
            ConfigurationError: its eviction policy may take keys that have no expiry.
        """
        if reason := _evicts(self._redis.info("memory")):
            raise ConfigurationError(reason=reason)

    def risk(self) -> str:
        """Why Redis, as it is set now, may lose what it acknowledges; empty: it does not."""
        info = self._redis.info("memory", "persistence")
        if reason := _evicts(info):
            return reason
        # While it reads its file at its start, Redis says that it keeps none.
        if not int(info.get("loading", 0)) and not int(info.get("aof_enabled", 1)):
            return "Redis keeps no append-only file (appendonly no): set appendonly yes"
        return ""

    def admit(self) -> str:
        """Admit the server process if it is new, and load the append script.

        Returns:
            The script's SHA-1, valid for this process and epoch.

        Raises:
            LedgerFormatMismatch: another ledger came up at this address.
            LedgerUnavailable: the process changed each time it was looked at.
            redis.RedisError: Redis is away, or the process is a replica.
            RecollectError: whatever `checkpoints` raises; nothing was admitted then.
        """
        with self._lock:  # threads that find out together ask the graph once
            for _ in range(self._attempts):
                self.ensure_format()
                process = self._process()
                epoch = self._redis.hgetall(self._keys.epoch)
                number = int(epoch.get(b"number", 0))
                if _Process(*(_text(epoch, name) for name in _Process._fields)) != process:
                    number = self._begin_epoch(process, number)
                if number:
                    return str(self._redis.script_load(self._append_script(process, number)))
            raise LedgerUnavailable(reason="the server process changes faster than it is admitted")

    def missing(self, checkpoints: Sequence[Checkpoint]) -> list[Checkpoint]:
        """Those whose entry (position, seq and content) the ledger has fallen behind.

        An entry that is altered, or gone from between others, is damage and no falling behind:
        what a graph made of it is all that is left of it, and stays.
        """
        named = [checkpoint for checkpoint in checkpoints if checkpoint.position != START]
        with self._redis.pipeline(transaction=False) as pipeline:
            for checkpoint in named:
                position = str(checkpoint.position)
                pipeline.xrange(self._keys.stream(checkpoint.partition), position, position)
            replies = pipeline.execute()
        return [
            checkpoint
            for checkpoint, reply in zip(named, replies, strict=True)
            if not (
                is_at(checkpoint, decode_entry(checkpoint.partition, *reply[0]))
                if reply
                else self._is_kept(checkpoint)
            )
        ]

    def _is_kept(self, checkpoint: Checkpoint) -> bool:
        """Whether the ledger has not fallen behind a checkpoint whose entry the stream has not."""
        is_archived = self._archived(checkpoint)
        return self._is_between(checkpoint) if is_archived is None else is_archived

    def _is_between(self, checkpoint: Checkpoint) -> bool:
        """Whether the partition has entries, or had, on both sides of one that is gone."""
        stream, position = self._keys.stream(checkpoint.partition), f"({checkpoint.position}"
        with self._redis.pipeline(transaction=True) as transaction:
            transaction.xrevrange(stream, position, "-", count=1)
            transaction.xrange(stream, position, "+", count=1)
            transaction.get(self._keys.seq(checkpoint.partition))
            before, after, last_seq = transaction.execute()
        entries = [decode_entry(checkpoint.partition, *raw) for raw in (*before, *after)]
        first = entries[0].seq if before else 0
        last = entries[-1].seq if after else int(last_seq or 0) + 1
        return first < checkpoint.seq < last

    def number(self) -> int:
        """How many server processes were admitted so far."""
        return int(self._redis.hget(self._keys.epoch, "number") or 0)

    def halted(self) -> dict[int, GraphAhead]:
        """Halted partitions, each with the error that its appends get."""
        return {
            int(name.decode().removeprefix(_HALTED)): _graph_ahead(name, value)
            for name, value in sorted(self._redis.hgetall(self._keys.epoch).items())
            if name.startswith(_HALTED.encode())
        }

    def halt(self, target: str, checkpoint: Checkpoint) -> None:
        """Halt the partition of a checkpoint whose entry is gone; one that is halted stays so."""
        field, value = _halt_field(target, checkpoint)
        self._redis.hsetnx(self._keys.epoch, field, value)

    def release(self, partition: int) -> None:
        """Accept appends to a partition again."""
        self._redis.hdel(self._keys.epoch, f"{_HALTED}{partition}")

    def _process(self) -> _Process:
        info: dict[str, Any] = self._redis.info("server", "replication")
        if info["role"] != "master":
            # As the server itself says it: passing, while a failover is under way.
            raise redis.exceptions.ReadOnlyError("READONLY connected to a replica")
        return _Process(str(info["run_id"]), str(info["master_replid"]))

    def _begin_epoch(self, process: _Process, number: int) -> int:
        """Start epoch number + 1; 0 when another client or server came in between."""
        by_target = self._checkpoints()
        gone: dict[str, str] = {}
        for target, checkpoints in by_target.items():
            again = partial(self._checkpoints_of, target)
            lost = lost_checkpoints(self.missing, checkpoints, again)
            # The furthest first: it is the one that `recover` starts from.
            for checkpoint in sorted(lost, key=_position, reverse=True):
                field, value = _halt_field(target, checkpoint)
                gone.setdefault(field, value)
        positions = [_position(checkpoint) for group in by_target.values() for checkpoint in group]
        floor = max([*positions, *self._last_positions()])
        if floor.seq >= _LARGEST_SEQ:
            floor = Position(floor.ms + 1, 0)
        halts = (part for halt in gone.items() for part in halt)
        arguments = (str(number), *process, str(floor.ms), str(floor.seq), *halts)
        script = _BEGIN_EPOCH.replace("@PREFIX@", self._keys.prefix)
        begun = self._redis.eval(script, 0, *arguments)
        return number + 1 if begun else 0

    def _checkpoints_of(self, target: str) -> Sequence[Checkpoint]:
        return self._checkpoints().get(target, ())

    def _last_positions(self) -> list[Position]:
        with self._redis.pipeline(transaction=False) as pipeline:
            for partition in range(self._partitions):
                pipeline.xrevrange(self._keys.stream(partition), count=1)
            return [decode_position(last[0][0]) if last else START for last in pipeline.execute()]

    def _append_script(self, process: _Process, number: int) -> str:
        return (
            _APPEND.replace("@PREFIX@", self._keys.prefix)
            .replace("@EPOCH@", str(number))
            .replace("@REPLICATION_ID@", process.replication_id)
            .replace("@BUCKETS@", str(self._id_buckets))
        )


def lost_checkpoints(
    missing: Callable[[Sequence[Checkpoint]], list[Checkpoint]],
    checkpoints: Sequence[Checkpoint],
    read_again: Callable[[], Sequence[Checkpoint]],
) -> list[Checkpoint]:
    """Checkpoints of a graph whose entry the ledger lost, at a second look too.

    While a worker commits, one property of a checkpoint may be read new and another old, so that
    it names no entry; one that is lost stays as it is, for its worker has halted.

    Args:
        missing: those whose entry the ledger does not hold.
        checkpoints: of the graph.
        read_again: reads them.
    """
    seen = missing(checkpoints)
    again = missing(read_again()) if seen else []
    return [checkpoint for checkpoint in again if checkpoint in seen]


def _evicts(info: Mapping[str, Any]) -> str:
    policy = str(info.get("maxmemory_policy", ""))
    if policy.startswith("allkeys"):
        return f"Redis evicts keys when full (maxmemory-policy {policy}): set noeviction"
    return ""


def _position(checkpoint: Checkpoint) -> Position:
    return checkpoint.position


def _text(fields: Mapping[bytes, bytes], name: str) -> str:
    return fields.get(name.encode(), b"").decode()


def _described(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {value}" for name, value in numbers.items())


def _halt_field(target: str, checkpoint: Checkpoint) -> tuple[str, str]:
    value = {
        "target": target,
        "stage": checkpoint.stage,
        "position": str(checkpoint.position),
        "seq": checkpoint.seq,
    }
    return f"{_HALTED}{checkpoint.partition}", json.dumps(value)


def _graph_ahead(name: bytes, value: bytes) -> GraphAhead:
    halt = json.loads(value)
    return GraphAhead(
        partition=int(name.decode().removeprefix(_HALTED)),
        position=halt["position"],
        reason=f"checkpoint {halt['position']} (seq {halt['seq']}) of "
        f"{halt['stage']}@{halt['target']} names an entry that the ledger no longer has",
    )


# "Already mine" counts as taken: the reply to an earlier try may have been lost. It may be taken
# when Redis is full, too: who folds and who archives makes room.
ACQUIRE = """#!lua flags=allow-oom
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return 1
"""
RENEW = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
RELEASE = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('DEL', KEYS[1])
"""


_RENEWALS = 5
"""In the time of a lease."""
_ACQUIRE_AGAIN_S = 0.25
PASS_PATIENCE_S = 60.0
"""For a pass that runs elsewhere, when a person asks for one: most of a worker's end within it."""


class Lease(ABC):
    """Held while a piece of work runs, and renewed by a thread of its own; a context manager.

    Args:
        client: of the ledger's server.
        prefix: of all keys.
        lease_ms: how long it outlives its last renewal.
        patience_s: how long to wait for who has it.
    """

    def __init__(
        self, client: redis.Redis, prefix: str, *, lease_ms: int, patience_s: float = 0.0
    ) -> None:
        self._redis: Any = client  # its types say bytes or str; undecoded replies are bytes
        self._key = self._key_of(LedgerKeys(prefix))
        self._lease_ms = lease_ms
        self._patience_s = patience_s
        self._name = f"{socket.gethostname()}, process {os.getpid()}, {uuid.uuid4().hex[:8]}"
        self._until_s = 0.0
        self._ended = threading.Event()
        self._renewal = threading.Thread(target=self._renew, name="lease", daemon=True)

    @abstractmethod
    def _key_of(self, keys: LedgerKeys) -> str:
        """Name of the lease."""

    @staticmethod
    @abstractmethod
    def _refusal(holder: str) -> RecollectError:
        """What who comes second is told."""

    @property
    def held(self) -> bool:
        """Whether it is held by this process' own clock; counted from before it was asked for."""
        return monotonic() < self._until_s

    def __enter__(self) -> Self:
        """Take it.

        Raises:
            PassUnderWay, ArchiverUnderWay: another process has it, for longer than there is
                patience.
            LedgerUnavailable: Redis is away.
        """
        begun_s, waits = monotonic(), False
        while not call_patiently(lambda: self._extend(ACQUIRE)):
            holder = call_patiently(lambda: self._redis.get(self._key)) or b"just ended"
            refusal = self._refusal(holder.decode("utf-8", "replace"))
            if monotonic() - begun_s >= self._patience_s:
                raise refusal
            if not waits:
                logger.info("waiting for a lease", reason=str(refusal))
            waits = True
            sleep(_ACQUIRE_AGAIN_S)
        self._renewal.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._renewal.join()
        self._until_s = 0.0
        with suppress(RedisError):  # it ends by itself
            self._eval(RELEASE)

    def _renew(self) -> None:
        while not self._ended.wait(self._lease_ms / 1000 / _RENEWALS):
            try:
                if not self._extend(RENEW):
                    return
            except RedisError:
                continue  # it may be back before the lease ends

    def _eval(self, script: str) -> Any:
        arguments = (self._key, self._name, self._lease_ms)
        return self._redis.eval(script, 1, *arguments)

    def _extend(self, script: str) -> bool:
        asked_at_s = monotonic()
        if not self._eval(script):
            self._until_s = 0.0
            return False
        self._until_s = asked_at_s + self._lease_ms / 1000
        return True


class PassLease(Lease):
    """Of who runs a pass of consolidation; `PassUnderWay` for who comes second."""

    def _key_of(self, keys: LedgerKeys) -> str:
        return keys.pass_lease

    @staticmethod
    def _refusal(holder: str) -> RecollectError:
        return PassUnderWay(holder=holder)


class ArchiveLease(Lease):
    """Of who archives; `ArchiverUnderWay` for who comes second.

    It saves work and is no fence: a boundary moves only from where its archiver has found it.
    """

    def _key_of(self, keys: LedgerKeys) -> str:
        return keys.archive_lease

    @staticmethod
    def _refusal(holder: str) -> RecollectError:
        return ArchiverUnderWay(holder=holder)


class CopyLease(Lease):
    """Of who backs up into a place, or restores (no place); `OperationFailed` for who is second."""

    def __init__(self, client: redis.Redis, prefix: str, *, lease_ms: int, place: str = "") -> None:
        self._place = place
        super().__init__(client, prefix, lease_ms=lease_ms)

    def _key_of(self, keys: LedgerKeys) -> str:
        return keys.copy_lease(self._place)

    @staticmethod
    def _refusal(holder: str) -> RecollectError:
        return OperationFailed(reason=f"another one is under way ({holder}); nothing was begun")

    def require(self) -> None:
        """See that nobody else may have begun meanwhile.

        Raises:
            OperationFailed: this process stood still for longer than the lease.
        """
        if not self.held:
            raise OperationFailed(reason="it stood still for too long; begin it again")
