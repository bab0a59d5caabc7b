"""The store of LangGraph, beside LangGraph's own one in memory."""

from __future__ import annotations

import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest
from langgraph.store.base import (
    GetOp,
    InvalidNamespaceError,
    Item,
    ListNamespacesOp,
    MatchCondition,
    PutOp,
    SearchItem,
    SearchOp,
)
from langgraph.store.memory import InMemoryStore

from recollect import AsyncMemory, InvalidInput, Memory
from recollect.langgraph import RecollectStore

SHORT_TTL = 0.02  # minutes
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "Refund order 4711"},
    {
        "role": "assistant",
        "content": "I refund it.",
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "refund", "arguments": '{"order": 4711}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": '{"error": "gateway timeout"}'},
]
ODD_MESSAGES: list[dict[str, Any]] = [
    {"role": "user"},
    {"role": 7, "content": "no role"},
    {"role": "assistant", "content": None},
    {"role": "assistant", "tool_calls": [{"name": "refund", "args": {}}]},
    {"role": "assistant", "tool_calls": "none"},
    {"role": "tool", "content": {"done": True}},
    {"role": "user", "content": "a", "history": {"key": "b", "with": ["c"]}},
]


def plain(result: Any) -> Any:
    """A result without what two stores cannot share: times and scores."""
    if isinstance(result, list):
        return [plain(each) for each in result]
    if isinstance(result, SearchItem | Item):
        return result.namespace, result.key, result.value
    return result


@pytest.mark.parametrize("seed", range(2))
def test_it_answers_as_the_store_of_langgraph(memory: Memory, name: str, seed: int) -> None:
    """Any sequence of operations, by two stores that take turns."""
    chance = random.Random(seed)
    ours = [RecollectStore(memory) for _ in range(2)]
    theirs = InMemoryStore()
    spaces = [(name, "a"), (name, "a", "b"), (name, "c")]
    used = set()
    for number in range(30):
        space, key = chance.choice(spaces), chance.choice("xyz")
        value = {"number": number, "parity": number % 2, "deep": {"list": [number, None]}}
        condition = MatchCondition("suffix", (chance.choice("ab*"),))
        op = chance.choice(
            [
                PutOp(space, key, value),
                PutOp(space, key, value),
                PutOp(space, key, chance.choice(MESSAGES)),
                PutOp(space, key, None),
                GetOp(space, key),
                SearchOp((name, *space[1:2]), limit=100),
                SearchOp((name,), {"parity": 1}, limit=100),
                SearchOp((name,), {"number": {"$gte": 10, "$ne": 12}, "parity": 0}, limit=100),
                SearchOp(space, {"deep": {"list": [number - 1, None]}}, limit=100),
            ]
        )
        store = chance.choice(ours)
        if isinstance(op, PutOp):
            used.add(space)
        try:
            expected = theirs.batch([op])[0]
        except TypeError:  # it compares what an item does not have
            continue
        told = plain(store.batch([op])[0])
        if isinstance(op, SearchOp):
            assert sorted(told, key=repr) == sorted(plain(expected), key=repr)
        else:
            assert told == plain(expected)
        listing = ListNamespacesOp((MatchCondition("prefix", (name,)), condition), max_depth=3)
        held = {item.namespace for item in theirs.search((name,), limit=100)}
        fits = [each for each in theirs.batch([listing])[0] if each in held]  # type: ignore[union-attr]
        assert store.batch([listing])[0] == fits


def test_pages_of_a_search_are_the_whole(memory: Memory, name: str) -> None:
    store = RecollectStore(memory)
    for number in range(7):
        store.put((name,), f"k{number}", {"number": number})
    pages = [store.search((name,), limit=3, offset=start) for start in (0, 3, 6)]
    assert [len(page) for page in pages] == [3, 3, 1]
    assert {item.key for page in pages for item in page} == {f"k{number}" for number in range(7)}


def test_a_batch_reads_before_it_writes_and_its_last_put_wins(memory: Memory, name: str) -> None:
    store = RecollectStore(memory)
    ops = [PutOp((name,), "k", {"n": 1}), GetOp((name,), "k"), PutOp((name,), "k", {"n": 2})]
    assert store.batch(ops) == [None, None, None]
    item = store.get((name,), "k")
    assert item is not None
    assert item.value == {"n": 2}


def test_times_tell_when_a_key_was_put_first_and_last(memory: Memory, name: str) -> None:
    store, begin = RecollectStore(memory), datetime.now(UTC)
    store.put((name,), "k", {"n": 1})
    first = store.get((name,), "k")
    store.put((name,), "k", {"n": 2})
    second = RecollectStore(memory).get((name,), "k")
    assert first is not None
    assert second is not None
    assert begin.timestamp() - 0.001 <= first.created_at.timestamp()
    assert first.created_at == first.updated_at == second.created_at < second.updated_at


def test_a_query_ranks_by_what_values_say(memory: Memory, name: str) -> None:
    store = RecollectStore(memory)
    store.put((name, "ana"), "1", {"text": "Ana keeps bees on her roof"})
    store.put((name, "ana"), "2", {"text": "The invoice of March was paid late"})
    store.put((name, "ben"), "3", {"text": "Ben rides a bicycle to work"})
    store.put((name, "ana"), "2", {"text": "The invoice of March was paid in time"})
    found = store.search((name,), query="Was the March invoice paid?")
    assert found[0].key == "2"
    assert found[0].value == {"text": "The invoice of March was paid in time"}
    assert found[0].score is not None
    assert {item.key for item in found} == {"1", "2", "3"}
    bees = store.search((name, "ana"), query="Who has bees?", limit=1)
    assert [(item.namespace, item.key) for item in bees] == [((name, "ana"), "1")]


def test_messages_become_a_conversation_with_causes(memory: Memory, name: str) -> None:
    store = RecollectStore(memory)
    for number, message in enumerate(MESSAGES):
        store.put((name,), str(number), message)
    assert [item.value for item in store.search((name,))] == MESSAGES
    memory.wait()
    context = memory.context(name)
    order = sorted(context.nodes, key=lambda node: node.provenance.occurred_at or "")
    told = [(node.attributes["event_type"], node.attributes["status"]) for node in order]
    assert told == [
        ("message.user", None),
        ("message.assistant", None),
        ("tool.call", None),
        ("tool.result", "failed"),
    ]
    causes = {(e.source, e.target) for e in context.edges if e.type == "CAUSED_BY"}
    ids = [node.node_id for node in order]
    assert causes >= set(pairwise(reversed(ids)))


def test_values_that_nearly_are_messages_come_back_as_they_were(memory: Memory, name: str) -> None:
    store = RecollectStore(memory)
    for number, value in enumerate(ODD_MESSAGES):
        store.put((name,), str(number), value)
    assert [item.value for item in RecollectStore(memory).search((name,))] == ODD_MESSAGES


def test_what_is_over_is_out_of_the_store_and_reading_puts_that_off(
    memory: Memory, name: str
) -> None:
    store = RecollectStore(memory, ttl={"default_ttl": SHORT_TTL, "refresh_on_read": False})
    store.put((name,), "short", {"n": 1})
    store.put((name,), "read", {"n": 2})
    store.put((name,), "long", {"n": 3}, ttl=None)
    begin = time.monotonic()
    while time.monotonic() < begin + SHORT_TTL * 60 * 1.5:
        assert store.get((name,), "read", refresh_ttl=True) is not None
        time.sleep(0.2)
    assert store.get((name,), "short") is None
    assert [item.key for item in store.search((name,))] == ["read", "long"]
    store.put((name,), "short", {"n": 4})
    again = RecollectStore(memory).get((name,), "short", refresh_ttl=False)
    assert again is not None
    assert (again.value, again.created_at) == ({"n": 4}, again.updated_at)
    assert RecollectStore.supports_ttl


def test_who_puts_at_once_loses_nothing(memory: Memory, name: str) -> None:
    def put(writer: int) -> None:
        store = RecollectStore(memory)
        for number in range(3):
            store.put((name, str(writer % 2)), f"{writer}.{number}", {"n": number})

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(put, range(3)))
    assert len(RecollectStore(memory).search((name,), limit=100)) == 9


def test_items_are_of_the_user_whom_their_namespace_names(memory: Memory, name: str) -> None:
    def user_of(namespace: tuple[str, ...]) -> str | None:
        return namespace[1] if len(namespace) > 1 else None

    store = RecollectStore(memory, user=user_of)
    store.put((name, "ana"), "k", {"text": "The locker code of Ana is 1906"})
    store.put((name, "ben"), "k", {"text": "The locker code of Ben is 2207"})
    assert len(store.search((name,), query="locker codes?")) == 2
    memory.wait()
    seen = memory.ask("What are the locker codes?", user="ana").text
    assert "1906" in seen
    assert "2207" not in seen


def test_items_are_ranked_in_the_view_of_whom_they_are(memory: Memory, name: str) -> None:
    store = RecollectStore(memory, user="ana")
    store.put((name,), "code", {"text": "The locker code is 1906"})
    memory.wait()
    with memory.session("elsewhere", user="ben"):
        (item,) = store.search((name,), query="Which locker code?")
    assert item.score is not None


@pytest.mark.parametrize("namespace", [("a.b",), ("",), ()])
def test_a_namespace_that_is_none_is_refused(memory: Memory, namespace: tuple[str, ...]) -> None:
    store = RecollectStore(memory)
    with pytest.raises(InvalidNamespaceError):
        store.batch([PutOp(namespace, "k", {"n": 1})])


def test_a_value_that_cannot_be_an_event_is_refused(memory: Memory, name: str) -> None:
    store = RecollectStore(memory)
    with pytest.raises(InvalidInput, match="payload: at most 256 KiB"):
        store.put((name,), "k", {"text": "x" * 300_000})
    with pytest.raises(ValueError, match="not JSON compliant"):
        store.put((name,), "k", {"n": float("nan")})
    assert store.get((name,), "k") is None


async def test_an_awaiting_memory_keeps_it_as_well(awaiting: AsyncMemory, name: str) -> None:
    store = RecollectStore(awaiting)
    await store.aput((name,), "k", {"n": 1})
    item = await RecollectStore(awaiting).aget((name,), "k")
    assert item is not None
    assert item.value == {"n": 1}
    assert [each.key for each in await store.asearch((name,))] == ["k"]
    assert await store.alist_namespaces(prefix=(name,)) == [(name,)]
    await store.adelete((name,), "k")
    assert await store.aget((name,), "k") is None
    with pytest.raises(TypeError, match="code that blocks needs a Memory"):
        store.get((name,), "k")


async def test_a_blocking_memory_is_awaited_in_a_thread(memory: Memory, name: str) -> None:
    store = RecollectStore(memory)
    await store.aput((name,), "k", {"n": 1})
    item = store.get((name,), "k")
    assert item is not None
    assert item.value == {"n": 1}
