"""What the Python client makes of what is logged, as the memory reads it."""

from __future__ import annotations

import asyncio
import functools
import io
import sqlite3
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import datetime
from typing import Any

import pytest
from pydantic_core import from_json

from enrichment.event_kinds import EventKind, event_kind
from enrichment.payloads import offered_event
from projections.events import Event
from recollect.delivery import Outbox
from recollect.events import new_event_id, now_ns
from recollect.sessions import Recorder
from tests.bench.client_log import LIMIT_US, accepting


class Ledger:
    """Accepts what the API would, and keeps it."""

    def __init__(self) -> None:
        self.events: dict[str, Event] = {}
        self.order: list[Event] = []
        self.outbox = Outbox(self._send, most=1_000)
        self.recorder = Recorder(self.outbox, agent="payments", user=None, background=False)

    def _send(self, body: bytes) -> Any:
        for raw in from_json(body)["events"]:
            event = offered_event(raw, now_ms=now_ns() // 1_000_000, tenant="acme")
            self.events[event.event_id] = event
            self.order.append(event)
        return accepting(body)

    def told(self) -> list[tuple[str, str | None, str | None]]:
        """Type and status of each event, and the place of its parent in this list."""
        places = {event.event_id: number for number, event in enumerate(self.order)}
        return [
            (event.event_type, event.status, places.get(event.parent_event_id or ""))  # type: ignore[misc]
            for event in self.order
        ]


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    made = Ledger()
    yield made
    made.outbox.close(5)


@pytest.mark.parametrize(
    ("kind", "content", "tool", "read_as"),
    [
        ("user", "charged twice", None, EventKind.MESSAGE),
        ("assistant", "I look", None, EventKind.MESSAGE),
        ("system", "be kind", None, EventKind.INSTRUCTION),
        ("developer", "be brief", None, EventKind.INSTRUCTION),
        ("thought", "maybe a retry", None, EventKind.THOUGHT),
        ("plan", ["look", "refund"], None, EventKind.THOUGHT),
        ("decision", "refund it", None, EventKind.DECISION),
        ("call", {"order": "4711"}, "refund", EventKind.CALL),
        ("result", {"refund": "r-1"}, "refund", EventKind.RESULT),
        ("failure", "no such order", "refund", EventKind.FAILURE),
        ("order.placed", {"order": "4711"}, None, EventKind.OTHER),
    ],
)
def test_what_is_logged_is_read_as_what_it_is(
    ledger: Ledger, kind: str, content: Any, tool: str | None, read_as: EventKind
) -> None:
    event_id = ledger.recorder.session("s").log(kind, content, tool=tool)
    assert event_kind(ledger.events[event_id]) is read_as


def test_a_kind_that_there_is_not_is_named_with_those_that_there_are(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="kind: 'said' is none of assistant, call, "):
        ledger.recorder.log("said", "hello")


def test_a_time_without_zone_is_refused_at_once(ledger: Ledger) -> None:
    with pytest.raises(ValueError, match="a time needs a zone"):
        ledger.recorder.log("user", "hello", at=datetime(2026, 3, 1))  # noqa: DTZ001


def test_ids_are_of_version_7_and_sort_as_they_were_made() -> None:
    clock_ns = now_ns()
    made = [new_event_id(clock_ns + number * 1_000) for number in range(1_000)]
    assert made == sorted(made)
    assert {uuid.UUID(text).version for text in made} == {7}
    assert {uuid.UUID(text).variant for text in made} == {uuid.RFC_4122}


def test_each_event_follows_from_what_came_before_and_a_result_from_its_call(
    ledger: Ledger,
) -> None:
    session = ledger.recorder.session("s", agent="payments")
    session.log("user", "refund 4711 and 4712")
    session.log("call", {"order": "4711"}, tool="refund")
    session.log("call", {"order": "4712"}, tool="look_up")
    session.log("result", {"refund": "r-1"}, tool="refund")
    session.log("failure", "no such order", tool="look_up")
    session.log("assistant", "One is refunded")
    session.log("user", "thanks", parent=None)

    assert ledger.told() == [
        ("message.user", None, None),
        ("tool.call", None, 0),
        ("tool.call", None, 0),
        ("tool.result", "completed", 1),
        ("tool.result", "failed", 2),
        ("message.assistant", None, 4),
        ("message.user", None, None),
    ]
    assert [event.agent_id for event in ledger.order][:2] == ["user", "payments"]


def test_a_tool_is_logged_with_its_result_and_what_it_called(ledger: Ledger) -> None:
    memory = ledger.recorder

    @memory.tool
    def look_up(order: str) -> dict[str, int]:
        return {"amount": 84}

    @memory.tool(name="pay_back", hide=("card",))
    def refund(order: str, card: str, times: int = 1) -> str:
        amount = look_up(order)["amount"]
        memory.log("thought", f"{amount} is little")
        return "r-1"

    with memory.session("s"):
        memory.log("user", "refund it")
        assert refund("4711", card="4242") == "r-1"
        memory.log("assistant", "done")

    assert ledger.told() == [
        ("message.user", None, None),
        ("tool.call", None, 0),
        ("tool.call", None, 1),
        ("tool.result", "completed", 2),
        ("agent.thought", None, 1),
        ("tool.result", "completed", 1),
        ("message.assistant", None, 5),
    ]
    call, result = ledger.order[1], ledger.order[5]
    assert (call.tool_name, result.tool_name) == ("pay_back", "pay_back")
    assert call.payload == {"arguments": {"order": "4711", "card": "[hidden]"}}
    assert result.payload.keys() == {"result", "duration_ms"}
    assert {event.session_id for event in ledger.order} == {"s"}


def test_what_is_hidden_is_in_no_event_however_the_tool_is_called_or_ends(
    ledger: Ledger,
) -> None:
    tool = ledger.recorder.tool(hide=("token", "more"))

    @tool
    def look_up(order: str, token: Any = 't0p "s3cret', **more: str) -> dict[str, Any]:
        if order == "none":
            raise KeyError(f"no {token} nor {more}")
        if order == "deep":
            return functools.reduce(lambda inner, _: {"in": inner}, range(220), {"auth": token})
        return {"auth": [f"Bearer {token}"], f"{token}": more, "order": order}

    @tool
    async def later(order: str, token: str, **more: str) -> None:
        raise ValueError(f"401 for {token}")

    for args, kwargs in (
        (("4711",), {}),
        (("deep", "s3cret-0"), {}),
        (("4711", "s3cret-1"), {"tokn": "s3cret-2"}),
        (("none", ["s3cret-3", {"pin": 5347110}]), {}),
        (("none", "s3cr\u00e9t\\s3cret"), {}),
        ((), {"token": "s3cret-4", "oder": "s3cret-5"}),
        (("4711", "s3cret-6", "s3cret-7"), {}),
    ):
        with suppress(KeyError, TypeError):
            look_up(*args, **kwargs)
    with pytest.raises(ValueError, match="s3cret-8"):
        asyncio.run(later("4711", "s3cret-8"))

    told = [event.payload for event in ledger.order]
    assert len(told) == 16
    for secret in ("s3cr", "5347110"):
        assert [payload for payload in told if secret in str(payload)] == []
    assert told[0] == {"arguments": {"order": "4711"}}
    assert told[10] == {"arguments": {"token": "[hidden]", "oder": "[hidden]", "args": []}}
    assert told[1]["result"] == {"auth": ["Bearer [hidden]"], "[hidden]": {}, "order": "4711"}


@pytest.mark.parametrize(
    ("error", "status"), [(KeyError("4711"), "failed"), (TimeoutError("3 s"), "timeout")]
)
def test_a_tool_that_raises_is_a_failure_and_raises_as_ever(
    ledger: Ledger, error: Exception, status: str
) -> None:
    @ledger.recorder.tool
    def fail() -> None:
        raise error

    with pytest.raises(type(error)):
        fail()

    result = ledger.order[1]
    told = {"exception_type": type(error).__name__, "message": str(error)}
    assert (result.status, result.payload["error"]) == (status, told)
    assert event_kind(result) is EventKind.FAILURE


async def test_tasks_that_run_at_once_keep_their_calls_apart(ledger: Ledger) -> None:
    memory = ledger.recorder

    @memory.tool
    async def inner(name: str) -> str:
        await asyncio.sleep(0)
        return name

    @memory.tool
    async def outer(name: str) -> str:
        await asyncio.sleep(0)
        return await inner(name)

    with memory.session("s"):
        await asyncio.gather(outer("a"), outer("b"), outer("c"))
        memory.log("assistant", "done")

    calls = {event.event_id: event for event in ledger.order if event.event_type == "tool.call"}
    parents = {
        calls[event.parent_event_id].payload["arguments"]["name"]  # type: ignore[index]
        + event.payload["arguments"]["name"]
        for event in calls.values()
        if event.tool_name == "inner"
    }
    assert parents == {"aa", "bb", "cc"}
    last = ledger.events[ledger.order[-1].parent_event_id or ""]
    assert (last.event_type, last.tool_name) == ("tool.result", "outer")


async def test_a_task_that_is_cancelled_is_a_failure(ledger: Ledger) -> None:
    @ledger.recorder.tool
    async def wait() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(wait())
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ledger.order[1].status == "failed"


def test_sessions_of_threads_are_apart(ledger: Ledger) -> None:
    memory = ledger.recorder
    together = threading.Barrier(4)

    def work(name: str) -> None:
        with memory.session(name):
            together.wait(10)
            memory.log("user", name)

    threads = [threading.Thread(target=work, args=(f"s-{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)

    assert {(event.session_id, event.payload["content"]) for event in ledger.order} == {
        (f"s-{number}", f"s-{number}") for number in range(4)
    }


def test_outside_of_a_session_things_go_to_one_of_the_client(ledger: Ledger) -> None:
    memory = ledger.recorder
    memory.log("user", "hello")
    assert ledger.order[0].session_id == memory.default_session.id


class Money:
    """Nothing that JSON knows."""


def looped() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "make",
    [Money, looped, lambda: float("nan"), lambda: b"\xff", lambda: "\ud800", lambda: {1, 2}],
    ids=["object", "loop", "nan", "bytes", "surrogate", "set"],
)
def test_what_json_does_not_know_is_told_all_the_same(
    ledger: Ledger, make: Callable[[], Any]
) -> None:
    @ledger.recorder.tool
    def give(value: Any) -> Any:
        return value

    give(make())
    assert [event.event_type for event in ledger.order] == ["tool.call", "tool.result"]


def test_what_can_be_read_only_once_is_left_to_whoever_it_is_for(ledger: Ledger) -> None:
    @ledger.recorder.tool(hide=("token",))
    def doubled(numbers: Any, token: Any) -> Any:
        return {"rows": ["two", (2 * n for n in numbers)]}

    rows = doubled((n for n in (1, 2)), (word for word in ("a", "b")))["rows"]
    assert list(rows[1]) == [2, 4]
    ledger.recorder.log("order.placed", {"items": rows[1]})
    assert "generator object" in ledger.order[0].payload["arguments"]["numbers"]
    assert [event.event_type for event in ledger.order[1:]] == ["tool.result", "order.placed"]


@pytest.mark.parametrize(
    "make",
    [
        lambda: map(str, [1, 2]),
        lambda: iter(["1", "2"]),
        lambda: io.StringIO("1\n2"),
        lambda: (row[0] for row in sqlite3.connect(":memory:").execute("VALUES ('1'), ('2')")),
        lambda: sqlite3.connect(":memory:").execute("VALUES (1), (2)"),
    ],
    ids=["map", "iter", "file", "generator", "cursor"],
)
def test_every_iterator_is_left_as_it_is(ledger: Ledger, make: Callable[[], Any]) -> None:
    @ledger.recorder.tool
    def passed_on(rows: Any) -> Any:
        return rows

    assert len(list(passed_on(make()))) == 2


def test_numbers_beyond_what_json_is_read_with_are_told_as_text(ledger: Ledger) -> None:
    @ledger.recorder.tool
    def look_up(user_id: int) -> dict[str, Any]:
        return {"ids": [user_id, -(2**53), 2**53 - 1], "far": 1e300, "near": 1.5, "is": True}

    look_up(1234567890123456789)
    payloads: list[Any] = [event.payload for event in ledger.order]
    assert payloads[0] == {"arguments": {"user_id": "1234567890123456789"}}
    ids = ["1234567890123456789", str(-(2**53)), 2**53 - 1]
    assert payloads[1]["result"] == {"ids": ids, "far": "1e+300", "near": 1.5, "is": True}


def test_what_has_no_form_in_json_leaves_what_stands_beside_it(ledger: Ledger) -> None:
    session = ledger.recorder.session("s")
    session.log("user", "broken \ud83d, whole \ud83d\ude00")
    session.log("order.placed", {"by": {("\ud800",): Money(), "items": looped(), "nr": 2**60}})
    told: list[Any] = [event.payload for event in ledger.order]
    assert told[0] == {"role": "user", "content": "broken \ufffd, whole \U0001f600"}
    assert told[1]["by"]["nr"] == str(2**60)
    assert (list(told[1]["by"]), told[1]["by"]["items"]) == (
        ["('\\ud800',)", "items", "nr"],
        [["..."]],
    )


def test_what_a_tool_returns_is_cut_to_what_the_ledger_takes(ledger: Ledger) -> None:
    @ledger.recorder.tool
    def read() -> list[str]:
        return ["line"] * 100_000

    read()
    payload = ledger.order[1].payload
    assert payload["result"].startswith('["line","line"')
    assert payload["cut_from_bytes"] > 700_000


def test_what_is_logged_is_copied(ledger: Ledger) -> None:
    memory = Recorder(ledger.outbox, agent="a", user=None, background=True)
    items = ["first"]
    event_id = memory.log("order.placed", {"items": items})
    items.append("second")
    assert ledger.outbox.flush(10)
    assert ledger.events[event_id].payload == {"items": ["first"]}


def test_generators_and_hidden_arguments_that_there_are_not_are_refused(ledger: Ledger) -> None:
    def words() -> Iterator[str]:
        yield "a"

    def plain(order: str) -> None: ...

    with pytest.raises(TypeError, match="a generator cannot be a logged tool"):
        ledger.recorder.tool(words)
    with pytest.raises(TypeError, match="hide: no arguments of plain: card"):
        ledger.recorder.tool(hide=("card",))(plain)


def test_log_costs_its_caller_little() -> None:
    """The figures: `python -m tests.bench.client_log`. A busy machine gets a tenfold allowance."""
    outbox = Outbox(accepting, most=100_000)
    session = Recorder(outbox, agent="a", user=None, background=True).session("s")
    times = []
    for _ in range(2_000):
        began_ns = now_ns()
        session.log("user", "My card was charged twice")
        times.append(now_ns() - began_ns)
    outbox.close(30)
    assert sorted(times)[1_000] / 1_000 < 10 * LIMIT_US
