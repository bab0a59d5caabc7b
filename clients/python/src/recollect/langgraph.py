"""The long-term memory of LangGraph (`BaseStore`), kept as events.

from recollect.langgraph import RecollectStore

graph = builder.compile(store=RecollectStore(memory))
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from typing import Any, Final, TypeAlias, cast

from recollect.calls import Plan
from recollect.frameworks import needed
from recollect.histories import AnyMemory, Draft, History, awaited, carry_out, new_id
from recollect.questions import ask
from recollect.values import Row, Values

with needed("langgraph"):
    from langgraph.store.base import (
        BaseStore,
        GetOp,
        InvalidNamespaceError,
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

Namespace: TypeAlias = tuple[str, ...]
Name: TypeAlias = tuple[Namespace, str]
Rows: TypeAlias = dict[Name, Row]
UserOf: TypeAlias = Callable[[Namespace], "str | None"]

DIRECTORY: Final = "store"
"""The session that says which namespaces there are."""

OPENED: Final = "store.namespace_opened"
MOST_RANKED: Final = 500
"""Nodes that the memory ranks for a query; what is beyond them has no score."""


class RecollectStore(BaseStore):
    """A store whose every put is an event of the session that its namespace names.

    `get` and `search` are read from the ledger, so they know what was put, by whomever;
    `search(query=…)` is ranked by the memory, which reads all of a value: `index` changes nothing.
    What is deleted, or whose TTL is over, is no more in the store, but the ledger and the memory
    keep that it was there: erasing is another matter. Reading an item that has a TTL writes an
    event (at most ten a TTL), unless with `refresh_ttl=False`.

    Args:
        memory: a `Memory`; or an `AsyncMemory`, for `aget`, `aput` … alone.
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
        self._spaces: dict[Namespace, Values] = {}
        self._named: set[Namespace] = set()
        owner = None if callable(user) else user
        directory = memory.session(DIRECTORY, agent=agent, user=owner)
        self._opened = History(memory, directory, "namespaces")

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
            if isinstance(op, GetOp):
                results.append((yield from self._get(op)))
            elif isinstance(op, SearchOp):
                results.append((yield from self._search(op)))
            elif isinstance(op, ListNamespacesOp):
                results.append((yield from self._listed(op)))
            else:
                results.append(None)
        puts = {(op.namespace, op.key): op for op in ops if isinstance(op, PutOp)}
        for put in puts.values():
            yield from self._put(put)
        return results

    def _get(self, op: GetOp) -> Plan[Item | None]:
        space = self._space(op.namespace)
        row = (yield from space.rows()).get(op.key)
        if row is None:
            return None
        if op.refresh_ttl:
            yield from space.note_read(op.key, row)
        return Item(key=op.key, namespace=op.namespace, **_shown(row))

    def _search(self, op: SearchOp) -> Plan[list[SearchItem]]:
        prefix = op.namespace_prefix
        opened = yield from self._namespaces()
        rows = yield from self._rows([each for each in opened if each[: len(prefix)] == prefix])
        names = [name for name, row in rows.items() if _fits(op, {name: row.value})]
        scores: dict[Name, float] = {}
        if op.query and names:
            scores = yield from self._scores(op.query, {name: rows[name] for name in names})
            names.sort(key=lambda name: scores.get(name, -1.0), reverse=True)
        names = names[op.offset : op.offset + op.limit]
        for namespace, key in names if op.refresh_ttl else ():
            yield from self._space(namespace).note_read(key, rows[namespace, key])
        return [SearchItem(*name, **_shown(rows[name]), score=scores.get(name)) for name in names]

    def _scores(self, query: str, rows: Rows) -> Plan[dict[Name, float]]:
        """How well items answer a query, where the memory finds them; a question for each user."""
        spaces: dict[str | None, set[Namespace]] = {}
        for namespace, _ in rows:
            spaces.setdefault(self._user_of(namespace), set()).add(namespace)
        ranks: dict[str, float] = {}
        for user, namespaces in spaces.items():
            options: dict[str, Any] = {"max_nodes": MOST_RANKED, "record_access": False}
            place = self._memory.session(DIRECTORY, agent=self._agent, user=user)
            if len(namespaces) == 1:
                options["session"] = _session_id(*namespaces)
            who = self._memory.asker(place)
            answer = yield from ask(who, query, False, {**options, "proactive": False})
            ranks.update((node.node_id, node.scores.rank_score) for node in answer.nodes)
        ranked = {name: row.event_ids & ranks.keys() for name, row in rows.items()}
        return {name: max(ranks[each] for each in ids) for name, ids in ranked.items() if ids}

    def _listed(self, op: ListNamespacesOp) -> Plan[list[Namespace]]:
        opened = yield from self._namespaces()
        names: dict[Name, dict[str, Any]] = {(namespace, ""): {} for namespace in opened}
        everything = op._replace(max_depth=None, offset=0, limit=len(opened))
        rows = yield from self._rows(_listing(names, everything))
        return _listing({name: row.value for name, row in rows.items()}, op)

    def _rows(self, namespaces: Iterable[Namespace]) -> Plan[Rows]:
        """What is in namespaces."""
        rows: Rows = {}
        for namespace in namespaces:
            held = yield from self._space(namespace).rows()
            rows.update(((namespace, key), row) for key, row in held.items())
        return rows

    def _namespaces(self) -> Plan[list[Namespace]]:
        """All in which something was put, in order."""
        for place in range((yield from self._opened.end())):
            event = yield from self._opened.at(place)
            self._named.add(tuple(event["trace_id"].split(".")))
        return sorted(self._named)

    def _put(self, op: PutOp) -> Plan[None]:
        space = self._space(op.namespace)
        if op.value is None:
            yield from space.delete(op.key)
            return
        if not (op.namespace in self._named or op.namespace in (yield from self._namespaces())):
            place = yield from self._opened.end()
            # Told by the envelope alone, so that the memory has no words of it.
            trace = _session_id(op.namespace)
            draft = Draft(OPENED, None, self._opened.session.agent, new_id(), trace=trace)
            yield from self._opened.append([draft], place)
        yield from space.put(op.key, op.value, op.ttl)

    def _space(self, namespace: Namespace) -> Values:
        if not namespace:
            raise InvalidNamespaceError("a namespace has at least one label")
        if namespace not in self._spaces:
            user = self._user_of(namespace)
            session = self._memory.session(_session_id(namespace), agent=self._agent, user=user)
            self._spaces[namespace] = Values(self._memory, session)
        return self._spaces[namespace]


def _session_id(namespace: Namespace) -> str:
    return ".".join(namespace)  # labels hold no dots


def _reference(values: Mapping[Name, dict[str, Any]]) -> InMemoryStore:
    """LangGraph's own store with the same items: what filters and conditions mean is its matter."""
    store = InMemoryStore()
    store.batch([PutOp(*name, value) for name, value in values.items()])
    return store


def _listing(values: Mapping[Name, dict[str, Any]], op: ListNamespacesOp) -> list[Namespace]:
    return cast("list[Namespace]", _reference(values).batch([op])[0])


def _fits(op: SearchOp, value: Mapping[Name, dict[str, Any]]) -> bool:
    """Whether an item is as a search wants it, but for the query."""
    if not op.filter:
        return True
    try:
        return bool(_reference(value).batch([SearchOp(op.namespace_prefix, op.filter)])[0])
    except TypeError:  # compared with what the item does not have
        return False


def _shown(row: Row) -> dict[str, Any]:
    value = deepcopy(row.value)  # theirs to change
    return {"value": value, "created_at": row.created_at, "updated_at": row.updated_at}
