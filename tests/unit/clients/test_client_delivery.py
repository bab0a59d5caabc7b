"""Events on their way: none is lost without a word, none is sent as another."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from pydantic_core import from_json

import recollect
from recollect.delivery import MAX_BATCH_EVENTS, Counts, Outbox, Undelivered
from recollect.errors import (
    ConnectionFailed,
    RecollectError,
    UndeliveredWarning,
    UnexpectedAnswer,
    api_error,
)
from recollect.events import Made
from recollect.models import BatchResult, FieldError, Problem
from tests.waiting import wait_until


def problem(status: int, kind: str, *rules: tuple[str, str]) -> Problem:
    errors = [FieldError(field=field, rule=rule) for field, rule in rules]
    name = f"urn:recollect:problem:{kind}"
    return Problem(type=name, title=kind, status=status, detail=kind, errors=errors)


Answer = Callable[[list[str]], Sequence[BatchResult]]


class Api:
    """Answers batches as it is told, one answer after the other, and accepts the rest."""

    def __init__(self, *answers: RecollectError | Answer) -> None:
        self.answers = list(answers)
        self.batches: list[list[str]] = []
        self.gate = threading.Event()
        self.gate.set()

    def __call__(self, body: bytes) -> Sequence[BatchResult]:
        assert self.gate.wait(30)
        ids = [event["event_id"] for event in from_json(body)["events"]]
        self.batches.append(ids)
        if not self.answers:
            return accepted(ids)
        answer = self.answers.pop(0)
        if isinstance(answer, RecollectError):
            raise answer
        return answer(ids)


def accepted(ids: list[str]) -> list[BatchResult]:
    return [BatchResult(status=201, event_id=each, global_position=f"{each}-0") for each in ids]


def event(number: int, session_id: str = "s", size: int = 0) -> Made:
    text = "x" * size
    return Made(str(number), session_id, f'{{"event_id":"{number}","text":"{text}"}}'.encode())


class Delivery:
    """An outbox and what it tells."""

    def __init__(self) -> None:
        self.told: list[Undelivered] = []
        self.outbox: Outbox | None = None

    def to(self, api: Api, **options: Any) -> Outbox:
        self.outbox = Outbox(api, **{"most": 1_000, "told": self.told.append, **options})
        return self.outbox


@pytest.fixture
def delivery() -> Iterator[Delivery]:
    made = Delivery()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UndeliveredWarning)
        yield made
        if made.outbox is not None:
            made.outbox.close(1)


def test_events_go_in_order_and_in_batches(delivery: Delivery) -> None:
    api = Api()
    outbox = delivery.to(api, most=2_000)
    api.gate.clear()
    for number in range(MAX_BATCH_EVENTS + 10):
        outbox.put(event(number))
    api.gate.set()
    assert outbox.flush(10)
    assert [each for batch in api.batches for each in batch] == [
        str(number) for number in range(MAX_BATCH_EVENTS + 10)
    ]
    assert max(len(batch) for batch in api.batches) <= MAX_BATCH_EVENTS
    assert outbox.counts == Counts(accepted=MAX_BATCH_EVENTS + 10)
    assert outbox.unread() == {"s": f"{MAX_BATCH_EVENTS + 9}-0"}


@pytest.mark.parametrize(
    "failure",
    [
        ConnectionFailed("reset"),
        api_error(problem(429, "overloaded"), retry_after_s=0.01),
        api_error(problem(503, "ledger-unavailable"), retry_after_s=0.01),
        api_error(problem(500, "internal")),
        api_error(problem(504, "unknown")),
        api_error(problem(408, "request-timeout")),
    ],
    ids=["connection", "429", "503", "500", "504", "408"],
)
def test_what_may_succeed_later_is_sent_again_as_it_was(
    delivery: Delivery, failure: RecollectError
) -> None:
    api = Api(failure, failure)
    outbox = delivery.to(api)
    outbox.put(event(1))
    assert outbox.flush(10)
    assert api.batches == [["1"], ["1"], ["1"]]
    assert (outbox.counts, delivery.told) == (Counts(accepted=1), [])


def test_the_api_says_when_to_come_again(delivery: Delivery) -> None:
    api = Api(api_error(problem(429, "rate-limited"), retry_after_s=0.5))
    outbox = delivery.to(api)
    began_s = time.monotonic()
    outbox.put(event(1))
    assert outbox.flush(10)
    assert time.monotonic() - began_s >= 0.5


def test_an_event_that_breaks_a_rule_is_told_with_field_and_rule(delivery: Delivery) -> None:
    def second(ids: list[str]) -> list[BatchResult]:
        error = problem(422, "invalid-input", ("payload", "at most 256 KiB serialised"))
        results = accepted(ids)
        results[1] = BatchResult(status=422, event_id=ids[1], error=error)
        return results

    api = Api(second)
    outbox = delivery.to(api)
    api.gate.clear()
    for number in range(3):
        outbox.put(event(number))
    api.gate.set()
    assert outbox.flush(10)

    (told,) = delivery.told
    assert (told.event_id, told.was_refused, told.event["event_id"]) == ("1", True, "1")
    assert told.reason == "refused: invalid-input: payload: at most 256 KiB serialised"
    assert outbox.counts == Counts(accepted=2, refused=1)


def test_a_halted_partition_does_not_hold_up_the_others(delivery: Delivery) -> None:
    def first_waits(ids: list[str]) -> list[BatchResult]:
        results = accepted(ids)
        error = problem(503, "partition-halted")
        results[0] = BatchResult(status=503, event_id=ids[0], error=error)
        return results

    api = Api(first_waits)
    outbox = delivery.to(api)
    api.gate.clear()
    outbox.put(event(0))
    outbox.put(event(1))
    api.gate.set()
    assert outbox.flush(10)
    assert sorted(api.batches[-1]) == ["0"]
    assert outbox.counts == Counts(accepted=2)


def test_a_batch_that_is_too_large_is_parted(delivery: Delivery) -> None:
    def too_large(ids: list[str]) -> Sequence[BatchResult]:
        if "2" in ids:
            raise api_error(problem(413, "body-too-large"))
        return accepted(ids)

    api = Api(*[too_large] * 20)
    outbox = delivery.to(api)
    api.gate.clear()
    for number in range(5):
        outbox.put(event(number))
    api.gate.set()
    assert outbox.flush(10)
    assert [told.event_id for told in delivery.told] == ["2"]
    assert outbox.counts == Counts(accepted=4, refused=1)


@pytest.mark.parametrize(
    "failure",
    [api_error(problem(401, "unauthenticated")), UnexpectedAnswer("HTML")],
    ids=["key", "no API"],
)
def test_what_never_succeeds_is_told_at_once(delivery: Delivery, failure: RecollectError) -> None:
    outbox = delivery.to(Api(failure))
    outbox.put(event(1))
    assert outbox.flush(10)
    assert [told.error for told in delivery.told] == [failure]
    assert outbox.counts == Counts(refused=1)


def test_fewer_results_than_events_are_no_success(delivery: Delivery) -> None:
    outbox = delivery.to(Api(lambda ids: []))
    outbox.put(event(1))
    assert outbox.flush(10)
    assert outbox.counts == Counts(refused=1)


def test_an_event_is_shown_however_deep_it_is() -> None:
    deep = b'{"payload":' + b"[" * 400 + b"]" * 400 + b"}"
    told = Undelivered("e", "refused: payload: nested", was_refused=True, event_json=deep)
    assert list(told.event) == ["payload"]


def test_a_full_queue_drops_the_newest_and_tells(delivery: Delivery) -> None:
    api = Api()
    outbox = delivery.to(api, most=3)
    api.gate.clear()
    for number in range(5):
        outbox.put(event(number))
    assert [told.event_id for told in delivery.told] == ["3", "4"]
    assert delivery.told[0].reason == "dropped: the queue is full"
    api.gate.set()
    assert outbox.flush(10)
    assert outbox.counts == Counts(accepted=3, dropped=2)


def test_positions_are_remembered_by_session(delivery: Delivery) -> None:
    outbox = delivery.to(Api())
    for number, session_id in enumerate(("a", "b", "a")):
        outbox.put(event(number, session_id))
    assert outbox.flush(10)
    assert [outbox.position(name) for name in ("a", "b", "c")] == ["2-0", "1-0", "2-0"]
    outbox.note_read("b", "1-0")
    assert outbox.unread() == {"a": "2-0"}


def test_the_first_that_is_lost_is_warned_of_and_no_other(delivery: Delivery) -> None:
    api = Api()
    outbox = delivery.to(api, most=1, told=None)
    api.gate.clear()
    outbox.put(event(0))
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for number in range(1, 4):
            outbox.put(event(number))
    assert len(seen) == 1
    assert "first 1 dropped: the queue is full" in str(seen[0].message)
    api.gate.set()


def test_who_never_answers_is_given_up_and_what_comes_then_is_sent(delivery: Delivery) -> None:
    outbox = delivery.to(Api(*[ConnectionFailed("away")] * 3), give_up_s=0.2)
    outbox.put(event(1))
    assert outbox.flush(10)
    assert [told.reason for told in delivery.told] == ["dropped: not delivered for 0.2 s (away)"]
    wait_until(lambda: outbox.counts == Counts(dropped=1), "it is counted")


def test_a_callback_that_fails_does_not_end_the_delivery(delivery: Delivery) -> None:
    def broken(told: Undelivered) -> None:
        raise RuntimeError("mine")

    outbox = delivery.to(Api(UnexpectedAnswer("HTML")), told=broken)
    outbox.put(event(1))
    assert outbox.flush(10)
    outbox.put(event(2))
    assert outbox.flush(10)
    assert outbox.counts == Counts(accepted=1, refused=1)


def test_closing_sends_what_waits_and_tells_what_cannot_be_sent(delivery: Delivery) -> None:
    api = Api(ConnectionFailed("away"), *[ConnectionFailed("away")] * 100)
    outbox = delivery.to(api)
    outbox.put(event(1))
    outbox.close(0.5)
    outbox.put(event(2))
    wait_until(lambda: outbox.counts == Counts(dropped=2), "both are told")
    assert {told.event_id for told in delivery.told} == {"1", "2"}


def test_a_flush_waits_for_what_came_before_it_alone(delivery: Delivery) -> None:
    api = Api()
    outbox = delivery.to(api)
    stop = threading.Event()

    def pour() -> None:
        number = 0
        while not stop.is_set():
            outbox.put(event(number))
            number += 1
            time.sleep(0.0005)

    thread = threading.Thread(target=pour)
    thread.start()
    try:
        assert outbox.flush(10)
    finally:
        stop.set()
        thread.join(10)


def test_the_end_of_the_process_sends_what_waits_and_a_fork_sends_its_own(tmp_path: Path) -> None:
    """Each process writes what it sent; nothing is sent by both."""
    script = f"""
import os, sys, time
from pydantic_core import from_json
from recollect.delivery import Outbox
from recollect.events import Made
from recollect.models import BatchResult

def send(body):
    time.sleep(0.05)
    ids = [event["event_id"] for event in from_json(body)["events"]]
    with open({str(tmp_path / "sent")!r}, "a") as sent:
        sent.writelines(f"{{each}}\\n" for each in ids)
    return [BatchResult(status=201, event_id=each) for each in ids]

def put(name):
    outbox.put(Made(name, "s", b'{{"event_id":"%s"}}' % name.encode()))

outbox = Outbox(send, most=100)
put("parent-1")
put("parent-2")
child = os.fork()
put("child" if child == 0 else "parent-3")
if child:
    os.waitpid(child, 0)
"""
    folder = str(Path(recollect.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": folder},
        check=True,
        timeout=60,
    )
    sent = (tmp_path / "sent").read_text().split()
    assert sorted(sent) == ["child", "parent-1", "parent-2", "parent-3"]
