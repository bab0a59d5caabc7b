"""Keys and fences in memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any

from pipelines.ledger.keys import NAMING, SIGNING, Wrapping
from pipelines.ledger.vault import SEALED, Fenced, Fences, Vault


class MemoryKeys:
    """As `SqliteKeys`, for one process."""

    identity = "memory"

    def __init__(self) -> None:
        self._own = {name: os.urandom(32) for name in (NAMING, SIGNING)}
        self._keys: dict[bytes, bytes | None] = {}
        self._withdrawn: set[bytes] = set()

    def own(self, name: str) -> bytes:
        return self._own[name]

    def get(
        self, key_ids: Iterable[bytes], *, withdrawn: bool = False
    ) -> dict[bytes, bytes | None]:
        return {
            key_id: self._keys[key_id] if withdrawn or key_id not in self._withdrawn else None
            for key_id in key_ids
            if key_id in self._keys
        }

    def make(self, key_ids: Iterable[bytes]) -> None:
        for key_id in key_ids:
            self._keys.setdefault(key_id, os.urandom(32))

    def withdraw(self, key_ids: Iterable[bytes]) -> None:
        self._withdrawn.update(key_ids)

    def destroy(self, key_ids: Iterable[bytes]) -> None:
        self._keys |= dict.fromkeys(key_ids)

    def version(self) -> int:
        return 1

    def gone(self) -> int:
        return sum(key is None for key in self._keys.values()) + len(self._withdrawn)

    def rotate(self, wrapping: Wrapping) -> int:
        return len(self._keys)

    def close(self) -> None:
        pass


class MemoryFences(Fences):
    """Without a Redis, and nobody is kept out by a script."""

    def __init__(self, *sealed: str) -> None:
        self._tenants = dict.fromkeys(sealed, SEALED)
        self._erased: dict[bytes, Mapping[str, Any]] = {}

    def read(self) -> Fenced:
        stores = dict.fromkeys(self._tenants, MemoryKeys.identity)
        return Fenced.of(dict(self._tenants), stores, dict(self._erased))

    def changes(self) -> int:
        return sum(told.get("kind") == "consent" for told in self._erased.values())

    def put_erasure(self, key_id: bytes, told: Mapping[str, Any]) -> None:
        self._erased[key_id] = told


def memory_vault(*sealed: str) -> Vault:
    """With keys of its own; these tenants are sealed."""
    return Vault(MemoryFences(*sealed), MemoryKeys() if sealed else None)
