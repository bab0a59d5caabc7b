"""The registry of targets: the graphs a ledger is folded into, and which one answers reads."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeVar, cast

import redis

from pipelines.ledger.connect import call_patiently
from pipelines.ledger.keys import LedgerKeys
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
