"""What the API's caches keep their entries in."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class SizedEntries(Generic[K, V]):
    """Entries that take at most so many bytes together; who comes last drives out the first.

    Whoever shares them between threads holds a lock around each call.

    Args:
        max_bytes: of all of them.
    """

    def __init__(self, max_bytes: int) -> None:
        self.max_bytes = max_bytes
        self.held_bytes = 0
        self._entries: OrderedDict[K, tuple[V, int]] = OrderedDict()

    def get(self, key: K) -> V | None:
        """The entry of a key; None: there is none."""
        found = self._entries.get(key)
        return None if found is None else found[0]

    def renew(self, key: K) -> None:
        """Have an entry that is there go last."""
        self._entries.move_to_end(key)

    def put(self, key: K, value: V, size: int) -> None:
        """Keep an entry of so many bytes, in the place of the one that is there."""
        self.drop(key)
        self._entries[key] = (value, size)
        self.held_bytes += size
        while self.held_bytes > self.max_bytes:
            _, (_, oldest) = self._entries.popitem(last=False)
            self.held_bytes -= oldest

    def drop(self, key: K) -> None:
        """Forget an entry, if there is one."""
        _, size = self._entries.pop(key, (None, 0))
        self.held_bytes -= size

    def clear(self) -> None:
        """Forget all."""
        self._entries.clear()
        self.held_bytes = 0
