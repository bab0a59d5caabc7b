"""Histories whose steps are interleaved as a schedule says, over a ledger that loses answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recollect import histories
from recollect.calls import Call, Pause, Plan, Reply
from recollect.conversations import Conversation, Item, said
from recollect.errors import EventConflict, NoAnswer
from recollect.memory import Memory
from recollect.values import Values

SESSION = "s-1"
COUNTS = {"accepted": 0, "duplicates": 0, "conflicts": 0, "invalid": 0, "unavailable": 0}


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """One that nobody answers: its plans are carried out here."""
    with Memory("http://127.0.0.1:9") as opened:
        yield opened


@pytest.fixture(autouse=True, scope="module")
def _clock_that_stands_still() -> Iterator[None]:
    """So that what differs by nothing but its time does not differ."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(histories, "now_ns", lambda: 1_800_000_000_000_000_000)
        yield


def problem(status: int) -> dict[str, Any]:
    kind = f"urn:recollect:problem:{status}"
    return {"type": kind, "title": kind, "status": status, "detail": ""}


class Ledger:
    """Appends and finds as the API does: equal content is a duplicate, other content a conflict."""

    def __init__(self) -> None:
        self.events: dict[str, Any] = {}
        self.hidden: set[str] = set()

    def reply(self, call: Call[Any]) -> Reply:
        if call.method == "GET":
            event_id = call.path.rpartition("/")[2]
            event = None if event_id in self.hidden else self.events.get(event_id)
            answer: dict[str, Any] = problem(404) if event is None else event
            status = 404 if event is None else 200
        else:
            body = orjson.loads(cast(bytes, call.body))
            if call.path.endswith("/batch"):
                answer = {"results": [self.append(each) for each in body["events"]]}
                answer, status = {**answer, "counts": COUNTS}, 200
            else:
                answer = self.append(body)
                status = answer["status"]
                answer = problem(409) if status == 409 else answer
        return Reply(status, {}, orjson.dumps(answer))

    def append(self, event: Mapping[str, Any]) -> dict[str, Any]:
        event_id = event["event_id"]
        if event_id not in self.events:
            self.events[event_id] = event
            return {
                "status": 201,
                "event_id": event_id,
                "global_position": "1-0",
                "duplicate": False,
            }
        if self.events[event_id] == event:
            return {
                "status": 200,
                "event_id": event_id,
                "global_position": "1-0",
                "duplicate": True,
            }
        return {"status": 409, "event_id": event_id, "error": problem(409)}


class Running:
    """A plan that is carried out a step at a time."""

    def __init__(self, plan: Plan[Any], ledger: Ledger) -> None:
        self._plan, self._ledger = plan, ledger
        self.step: Any = next(plan)
        self.is_over = False
        self.result: Any = None

    def go(self, fault: str = "") -> None:
        """The next step; a fault loses the request, or its answer."""
        try:
            if isinstance(self.step, Pause):
                self.step = self._plan.send(None)
            elif fault == "request":
                self.step = self._plan.throw(NoAnswer("lost"))
            else:
                reply = self._ledger.reply(self.step)
                lost = fault == "answer"
                self.step = self._plan.throw(NoAnswer("lost")) if lost else self._plan.send(reply)
        except StopIteration as end:
            self.is_over, self.result = True, end.value


def carried_out(plan: Plan[Any], ledger: Ledger) -> Any:
    running = Running(plan, ledger)
    while not running.is_over:
        running.go()
    return running.result


class Writer(NamedTuple):
    """What a client does, one thing after the other: adds so many items, or pops (0)."""

    steps: tuple[int, ...]


def words(value: str) -> Item:
    part = said("user", value)
    return Item(dict(part.payload), [part])


def working(
    writer: Writer, number: int, conversation: Conversation, popped: list[str]
) -> Plan[None]:
    for turn, size in enumerate(writer.steps):
        if size:
            items = [words(f"{number}.{turn}.{place}") for place in range(size)]
            yield from conversation.add(items)
        elif (item := (yield from conversation.pop())) is not None:
            popped.append(item["content"])


WRITERS = st.lists(
    st.builds(Writer, st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple)),
    min_size=2,
    max_size=3,
)
FAULTS = st.dictionaries(st.integers(0, 60), st.sampled_from(["request", "answer"]), max_size=3)


@given(writers=WRITERS, schedule=st.lists(st.integers(0, 2), max_size=80), faults=FAULTS)
def test_who_writes_at_once_loses_nothing_and_keeps_turns_whole(
    memory: Memory, writers: Sequence[Writer], schedule: Sequence[int], faults: Mapping[int, str]
) -> None:
    ledger, popped = Ledger(), list[str]()
    conversations = [Conversation(memory, SESSION, user="ana") for _ in writers]
    tasks = [
        Running(working(writer, number, conversations[number], popped), ledger)
        for number, writer in enumerate(writers)
    ]
    order = [*schedule]
    steps = 0
    while not all(task.is_over for task in tasks):
        turn = order.pop(0) % len(tasks) if order else steps % len(tasks)
        if not tasks[turn].is_over:
            tasks[turn].go(faults.get(steps, ""))
        steps += 1
        assert steps < 5_000

    left = [
        item["content"]
        for item in carried_out(Conversation(memory, SESSION, user="ana").items(), ledger)
    ]
    added = {
        f"{number}.{turn}.{place}"
        for number, writer in enumerate(writers)
        for turn, size in enumerate(writer.steps)
        for place in range(size)
    }
    assert sorted([*left, *popped]) == sorted(added)
    for conversation in conversations:
        assert [i["content"] for i in carried_out(conversation.items(), ledger)] == left
    turns = list(dict.fromkeys(item.rpartition(".")[0] for item in left))
    assert left == sorted(left, key=lambda item: (turns.index(item.rpartition(".")[0]), item))
    for number in range(len(writers)):
        own = [turn for turn in turns if turn.startswith(f"{number}.")]
        assert own == sorted(own)


def test_what_is_added_again_after_a_lost_answer_is_there_once(memory: Memory) -> None:
    ledger = Ledger()
    conversation = Conversation(memory, SESSION)
    running = Running(conversation.add([words("a"), words("b")]), ledger)
    tried: list[Any] = []
    while not running.is_over:
        is_new = running.step not in tried
        tried.append(running.step)
        running.go("answer" if is_new and isinstance(running.step, Call) else "")
    assert [item["content"] for item in carried_out(conversation.items(), ledger)] == ["a", "b"]
    assert len(ledger.events) == 2


def test_a_place_that_is_taken_by_what_one_may_not_see_is_a_conflict(memory: Memory) -> None:
    ledger = Ledger()
    carried_out(Conversation(memory, SESSION).add([words("a")]), ledger)
    ledger.hidden.update(ledger.events)
    with pytest.raises(EventConflict):
        carried_out(Conversation(memory, SESSION).add([words("b")]), ledger)


def test_the_end_of_a_long_history_is_found_in_few_reads(memory: Memory) -> None:
    ledger = Ledger()
    conversation = Conversation(memory, SESSION)
    for number in range(1_000):
        carried_out(conversation.add([words(str(number))]), ledger)
    fresh = Running(Conversation(memory, SESSION).items(2), ledger)
    reads = 0
    while not fresh.is_over:
        fresh.go()
        reads += 1
    assert [item["content"] for item in fresh.result] == ["998", "999"]
    assert reads <= 22


def test_a_value_is_what_was_put_last(memory: Memory) -> None:
    ledger = Ledger()
    values = Values(memory, memory.session(SESSION))
    for number in range(3):
        carried_out(values.put("k", {"n": number}, None), ledger)
    carried_out(values.put("other", {"n": 9}, None), ledger)
    rows = carried_out(Values(memory, memory.session(SESSION)).rows(), ledger)
    assert {key: row.value for key, row in rows.items()} == {"k": {"n": 2}, "other": {"n": 9}}
    carried_out(values.delete("k"), ledger)
    assert list(carried_out(values.rows(), ledger)) == ["other"]


def test_two_that_do_the_same_at_once_do_it_twice_though_a_request_was_lost(
    memory: Memory,
) -> None:
    ledger = Ledger()
    conversations = [Conversation(memory, SESSION) for _ in range(2)]
    for plans in (
        [each.add([words("yes")]) for each in conversations],
        [each.pop() for each in conversations],
    ):
        late, other = (Running(plan, ledger) for plan in plans)
        while late.step.method != "POST":
            late.go()
        late.go("request")
        while not other.is_over:
            other.go()
        while not late.is_over:
            late.go()
        left = carried_out(Conversation(memory, SESSION).items(), ledger)
        assert len(left) == (2 if late.result is None else 0)
