"""The long-term memory of LangGraph (`BaseStore`), kept as events.

from recollect.langgraph import RecollectStore

graph = builder.compile(store=RecollectStore(memory))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta, timezone
from typing import Any, Final, NamedTuple, TypeAlias

from recollect.calls import Plan
from recollect.conversations import Part, happened, is_chat_message, linked, message_parts
from recollect.frameworks import needed
from recollect.histories import AnyMemory, History, Stored, awaited, beside, carry_out
from recollect.questions import ask

with needed("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        Item,
        ListNamespacesOp,
        Op,
        PutOp,
        Result,
        SearchItem,
        SearchOp,
        TTLConfig,
        validate_op_namespace,
    )
    from langgraph.store.memory import InMemoryStore

Namespace: TypeAlias = "tuple[str, ...]"
UserOf: TypeAlias = "Callable[[Namespace], str | None]"
PUT: Final = "store.put"
DELETED: Final = "store.deleted"
REFRESHED: Final = "store.refreshed"
OPENED: Final = "store.namespace_opened"
MOST_RANKED: Final = 500


class _Row(NamedTuple):
    """What a key holds."""

    value: dict[str, Any]
    event_ids: frozenset[str]
    created_at: datetime
    updated_at: datetime
    ttl_minutes: float | None
    expires_at: datetime | None

    def is_expired(self) -> bool:
        return self.expires_at is not None and self.expires_at <= datetime.now(timezone.utc)


class RecollectStore(BaseStore):
    """A store whose every put is an event of the session that its namespace names.

    A value that is a chat message (`role`, `content`, `tool_calls`) becomes that message's events,
    with their causes, any other a `store.put`. `get` and `search` are read from the ledger, so they
    know what was put by whomever; `search(query=…)` ranks by the memory, which reads all of a
    value (`index` changes nothing). An item that is deleted, or whose TTL is over, is no more in
    the store; the memory keeps that it was: nothing is erased here. Reading an item that has a TTL
    writes an event, unless `refresh_ttl=False`.

    Args:
        memory: a `Memory`, or an `AsyncMemory` for `aget`, `aput` … alone.
        agent: who acts; default the memory's.
        user: whose the items are, or what tells that of a namespace; default the memory's.
        ttl: of LangGraph: minutes where nobody says, and whether reads refresh.
    """

    supports_ttl = True

    def __init__(
        self,
        memory: AnyMemory,
        *,
        agent: str | None = None,
        user: str | UserOf | None = None,
        ttl: TTLConfig | None = None,
    ) -> None:
        self.ttl_config = ttl
        self._memory = memory
        self._agent = agent
        self._user_of: UserOf = user if callable(user) else lambda namespace: user
        self._opened = self._history(("store",), "namespaces")
        self._histories: dict[Namespace, History] = {}

    def batch(self, ops: Iterable[Op]) -> list[Result]:
        """Carry out operations: reads see what was there before, of puts of a key the last wins."""
        return carry_out(self._memory, self._batch(list(ops)))

    async def abatch(self, ops: Iterable[Op]) -> list[Result]:
        """The same, awaited."""
        return await awaited(self._memory, self._batch(list(ops)))

    def _batch(self, ops: list[Op]) -> Plan[list[Result]]:
        for op in ops:
            validate_op_namespace(op)
        results: list[Result] = []
        for op in ops:
            match op:
                case GetOp():
                    results.append((yield from self._get(op)))
                case SearchOp():
                    results.append((yield from self._search(op)))
                case ListNamespacesOp():
                    rows = yield from self._rows(())
                    results.append(_reference(rows).batch([op])[0])
                case PutOp():
                    results.append(None)
                case _:
                    raise ValueError(f"unknown operation: {type(op).__name__}")
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        for put in puts.values():
            yield from self._put(put)
        return results

    # -- reading -----------------------------------------------------------------------------------

    def _get(self, op: GetOp) -> Plan[Item | None]:
        row = (yield from self._rows_of(op.namespace)).get(op.key)
        if row is None:
            return None
        if op.refresh_ttl:
            yield from self._refresh(op.namespace, op.key, row)
        return Item(**_item_fields(op.namespace, op.key, row))

    def _search(self, op: SearchOp) -> Plan[list[SearchItem]]:
        rows = yield from self._rows(op.namespace_prefix)
        everything = op._replace(query=None, limit=len(rows), offset=0)
        matching = [(item.namespace, item.key) for item in _reference(rows).batch([everything])[0]]
        scores: Mapping[str, float] = {}
        if op.query:
            scores = yield from self._scores(op.query, {namespace for namespace, _ in matching})
        found = [(key, max(map(scores.get, rows[key].event_ids & scores.keys()), default=None)) for key in matching]
        found.sort(key=lambda pair: -1.0 if pair[1] is None else pair[1], reverse=True)
        shown = found[op.offset : op.offset + op.limit]
        if op.refresh_ttl:
            for (namespace, key), _ in shown:
                yield from self._refresh(namespace, key, rows[namespace, key])
        return [
            SearchItem(**_item_fields(*key, rows[key]), score=score) for key, score in shown
        ]
