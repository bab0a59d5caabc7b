"""What Redis knows besides events: targets, last results of commands, and stages that hold.

Targets are the graphs a ledger is folded into; one of them answers reads.

`verify`, `rebuild` and `consolidate` end before anybody could scrape them, so the API shows their
results to Prometheus. A stage that holds says so while it does, and asks whether an operator told
it to go on.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, NamedTuple, TypeVar, cast

import redis

from pipelines.ledger.connect import call_patiently, tell
from pipelines.ledger.entries import LedgerKeys
from projections.errors import OperationFailed, UnknownTarget

Result = TypeVar("Result")
TargetState = Literal["building", "standby", "active"]


@dataclass(frozen=True, slots=True)
class Target:
    """One Neo4j that a graph lives in.

    Attributes:
        uri: of the server, without credentials.
        state: building (being filled, not yet to be read), standby (kept in step) or active
            (answers reads).
    """

    name: str
    uri: str
    database: str
    state: TargetState = "building"


class Targets:
    """The registered targets. Changes are atomic, and doing one twice is doing it once.

    All methods raise LedgerUnavailable when Redis is away.
    """

    def __init__(self, redis: redis.Redis, prefix: str = "rc") -> None:
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._keys = LedgerKeys(prefix)

    def register(self, target: Target) -> None:
        """Add a target, or replace the one of that name."""
        value = json.dumps(asdict(target))
        call_patiently(lambda: self._redis.hset(self._keys.targets, target.name, value))

    def all(self) -> list[Target]:
        """Every target, by name."""
        values = call_patiently(lambda: self._redis.hgetall(self._keys.targets))
        return sorted(map(_decode, values.values()), key=lambda target: target.name)

    def get(self, name: str) -> Target:
        """The target of that name.

        Raises:
            UnknownTarget: there is none.
        """
        registered = {target.name: target for target in self.all()}
        if name not in registered:
            raise UnknownTarget(name=name, known=", ".join(registered) or "none")
        return registered[name]

    def active(self) -> tuple[str, int] | None:
        """Name of the target that answers reads, and how often that was switched."""
        return _decode_active(call_patiently(lambda: self._redis.get(self._keys.active)))

    def activate(self, name: str) -> int:
        """Let a target answer reads; the one before it stands by. Returns the generation.

        Raises:
            UnknownTarget: there is none of that name.
        """

        def switch(transaction: Any) -> int:
            targets = {
                target.name: target
                for target in map(_decode, transaction.hgetall(self._keys.targets).values())
            }
            if name not in targets:
                raise UnknownTarget(name=name, known=", ".join(sorted(targets)) or "none")
            current = _decode_active(transaction.get(self._keys.active))
            states: dict[str, TargetState] = {name: "active"}
            if current is not None and current[0] != name and current[0] in targets:
                states[current[0]] = "standby"
            generation = current[1] if current else 0
            if current is None or current[0] != name:
                generation += 1
            transaction.multi()
            for changed, state in states.items():
                value = json.dumps(asdict(replace(targets[changed], state=state)))
                transaction.hset(self._keys.targets, changed, value)
            active = json.dumps({"name": name, "generation": generation})
            transaction.set(self._keys.active, active)
            return generation

        return self._transaction(switch)

    def set_state(self, name: str, state: TargetState) -> None:
        """Change the state of a target; `activate` alone makes one active.

        Raises:
            UnknownTarget: there is none of that name.
            OperationFailed: it would leave the active target in another state, or two active.
        """

        def change(transaction: Any) -> None:
            value = transaction.hget(self._keys.targets, name)
            if value is None:
                raise UnknownTarget(name=name, known="others")
            current = _decode_active(transaction.get(self._keys.active))
            is_active = current is not None and current[0] == name
            if is_active != (state == "active"):
                raise OperationFailed(reason="only activating a target changes which is active")
            transaction.multi()
            changed = json.dumps(asdict(replace(_decode(value), state=state)))
            transaction.hset(self._keys.targets, name, changed)

        self._transaction(change)

    def drop(self, name: str) -> None:
        """Forget a target; its graph is left alone.

        Raises:
            OperationFailed: it is the active one.
        """

        def remove(transaction: Any) -> None:
            current = _decode_active(transaction.get(self._keys.active))
            if current is not None and current[0] == name:
                raise OperationFailed(reason=f"{name} is the active target: activate another first")
            transaction.multi()
            transaction.hdel(self._keys.targets, name)

        self._transaction(remove)

    def _transaction(self, change: Callable[[Any], Result]) -> Result:
        """Run `change` on a watched pipeline, again whenever somebody else was faster."""
        return call_patiently(
            lambda: cast(
                "Result",
                self._redis.transaction(
                    change, self._keys.targets, self._keys.active, value_from_callable=True
                ),
            )
        )


def _decode(value: bytes) -> Target:
    return Target(**json.loads(value))


def _decode_active(value: bytes | None) -> tuple[str, int] | None:
    if value is None:
        return None
    active = json.loads(value)
    return str(active["name"]), int(active["generation"])


CONSOLIDATE_REPORT = "consolidate"
_VERIFY, _FIRST = "verify", "projection"  # whose command is the bare word


class Report(NamedTuple):
    """The last word of a command about a target."""

    command: str
    target: str
    values: dict[str, float]


def verified(stage: str, target: str, *, differences: int, duration_s: float) -> Report:
    """What a verify says that ends now."""
    values = {
        "differences": float(differences),
        "duration_s": duration_s,
        "ended_at_s": time.time(),
    }
    return Report(_VERIFY if stage == _FIRST else f"{_VERIFY}-{stage}", target, values)


def verified_stage(report: Report) -> str | None:
    """The stage that a verify compared; None: it is the report of something else."""
    command, _, stage = report.command.partition("-")
    return (stage or _FIRST) if command == _VERIFY else None


class Reports:
    """The last report of each command and target. All methods raise LedgerUnavailable."""

    def __init__(self, redis: redis.Redis, prefix: str = "rc") -> None:
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._key = LedgerKeys(prefix).reports

    def put(self, report: Report) -> None:
        """Replace what the command said about the target before."""
        field = f"{report.command}:{report.target}"
        tell(self._redis, self._key, {field: json.dumps(report.values)})

    def last(self, command: str, target: str) -> dict[str, float]:
        """The values that a command reported of a target last; none if it never did."""
        values = (
            report.values
            for report in self.all()
            if (report.command, report.target) == (command, target)
        )
        return next(values, {})

    def all(self) -> list[Report]:
        """Every last report."""
        stored = call_patiently(lambda: self._redis.hgetall(self._key))
        return [
            Report(command, target, json.loads(values))
            for field, values in sorted(stored.items())
            for command, _, target in [field.decode().partition(":")]
        ]


SHOWN_S = 60
"""A hold that its worker has not shown again for so long is over: the worker has ended."""


RETRY_S = 86_400
"""A dead letter that nobody could try again for so long is not waited for any more."""


class LetterPlace(NamedTuple):
    """Which dead letter of a target."""

    stage: str
    partition: int
    seq: int

    def __str__(self) -> str:
        return f"{self.stage}/{self.partition}/{self.seq}"

    @classmethod
    def parse(cls, text: str) -> LetterPlace:
        """As `str` writes it."""
        stage, partition, seq = text.split("/")
        return cls(stage, int(partition), int(seq))


class Hold(NamedTuple):
    """A stage that gives no entry up at the moment.

    Attributes:
        partition, seq, position: of the first entry that it holds at.
        reason: why that entry fails.
        since_s: Unix time.
    """

    partition: int
    seq: int
    position: str
    reason: str
    since_s: float


class Holds:
    """Holds by stage and target, and which dead letters are to be tried again.

    All methods raise LedgerUnavailable.
    """

    def __init__(self, redis: redis.Redis, prefix: str = "rc") -> None:
        self._redis: Any = redis  # its types say bytes or str; undecoded replies are bytes
        self._keys = LedgerKeys(prefix)

    def show(self, stage: str, target: str, hold: Hold) -> None:
        """Say that the stage holds; again and again, while it does."""
        key, value = self._keys.hold(stage, target), json.dumps(hold._asdict())
        call_patiently(lambda: self._redis.set(key, value, ex=SHOWN_S))

    def clear(self, stage: str, target: str) -> None:
        """Say that it goes on."""
        call_patiently(lambda: self._redis.delete(self._keys.hold(stage, target)))

    def of_target(self, target: str, stages: Iterable[str]) -> dict[str, Hold]:
        """Which of the stages hold on a target, by name."""
        names = list(stages)
        keys = [self._keys.hold(name, target) for name in names]
        values = call_patiently(lambda: self._redis.mget(keys))
        return {
            name: Hold(**json.loads(value))
            for name, value in zip(names, values, strict=True)
            if value is not None
        }

    def release(self, stage: str, target: str, for_s: int) -> None:
        """Let the stage's workers give up entries without a brake for so many seconds."""
        call_patiently(lambda: self._redis.set(self._keys.release(stage, target), 1, ex=for_s))

    def is_released(self, stage: str, target: str) -> bool:
        """Whether an operator has said so, and the time is not over."""
        return bool(call_patiently(lambda: self._redis.exists(self._keys.release(stage, target))))

    def ask_retries(self, target: str, places: Sequence[LetterPlace]) -> None:
        """Let a worker try dead letters again."""
        key = self._keys.retries(target)
        if places:
            call_patiently(lambda: self._redis.sadd(key, *map(str, places)))
            call_patiently(lambda: self._redis.expire(key, RETRY_S))

    def retries(self, target: str) -> list[LetterPlace]:
        """Those that were asked for and have not been tried yet, sorted."""
        stored = call_patiently(lambda: self._redis.smembers(self._keys.retries(target)))
        return sorted(LetterPlace.parse(text.decode()) for text in stored)

    def tried(self, target: str, place: LetterPlace) -> None:
        """A dead letter was tried again, whatever came of it."""
        call_patiently(lambda: self._redis.srem(self._keys.retries(target), str(place)))
