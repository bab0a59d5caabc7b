"""A child that is kept up, with a clock and a child of the test's own."""

from __future__ import annotations

import errno
import sys
import threading
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import pytest

from pipelines.local import companions
from pipelines.local.companions import noted, watched
from pipelines.local.data_folder import locked, run_dir
from pipelines.local.supervision import (
    ANSWERS,
    FIRST_STARTS,
    FORGIVEN_S,
    LONGEST_DELAY_S,
    Backoff,
    Phase,
    Supervised,
    Supervision,
)
from projections.errors import OperationFailed
from tests.waiting import wait_until

SILENCE_S = 20.0
START_S = 300.0


class Clock:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class FakeChild:
    """Runs while it is told to, and answers while it is told to."""

    name = "child"
    silence_s = SILENCE_S
    log_path = Path("child.log")

    def __init__(self, clock: Clock, *, question_s: float = 0.0) -> None:
        self._clock = clock
        self._question_s = question_s
        self.pid: int | None = None
        self.replies = True
        self.refuses_to_start = ""
        self.started_at_s: list[float] = []
        self.calls: list[str] = []

    def start(self) -> None:
        self.started_at_s.append(self._clock())
        if self.refuses_to_start:
            raise OperationFailed(reason=self.refuses_to_start)
        self.pid = 100 + len(self.started_at_s)

    def answers(self) -> bool:
        self._clock.now_s += self._question_s
        return self.replies and self.pid is not None

    def dies(self) -> None:
        self.pid = None

    def kill(self) -> None:
        self.calls.append("kill")
        self.pid = None

    def stop(self) -> None:
        self.calls.append("stop")
        self.pid = None


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def child(clock: Clock) -> FakeChild:
    return FakeChild(clock)


@pytest.fixture
def told() -> list[str]:
    return []


@pytest.fixture
def held(child: FakeChild, clock: Clock, told: list[str]) -> Supervised:
    return Supervised(child, now=clock, tell=told.append, start_timeout_s=START_S)


def run(held: Supervised, clock: Clock, seconds: float) -> None:
    """Look as often as the machine asks to be called, for so long."""
    until_s = clock() + seconds
    while clock() < until_s:
        clock.now_s += max(0.01, held.step())


def test_a_child_that_died_is_started_again_at_once(
    held: Supervised, child: FakeChild, clock: Clock
) -> None:
    run(held, clock, 1)
    child.dies()
    run(held, clock, 0.5)
    assert held.phase is Phase.UP
    assert len(child.started_at_s) == 2


def test_it_is_started_for_ever_and_ever_more_slowly(
    held: Supervised, child: FakeChild, clock: Clock
) -> None:
    child.refuses_to_start = "no room"
    run(held, clock, 3_600)
    pauses = [after - before for before, after in pairwise(child.started_at_s)]
    assert pauses[:5] == pytest.approx([0.0, 0.5, 1.0, 2.0, 4.0], abs=0.15)
    assert max(pauses) == pytest.approx(LONGEST_DELAY_S, abs=0.15)
    assert len(pauses) > 700
    child.refuses_to_start = ""
    run(held, clock, LONGEST_DELAY_S + 1)
    assert held.phase is Phase.UP


def test_six_kills_in_fifteen_seconds_are_no_end(
    held: Supervised, child: FakeChild, clock: Clock
) -> None:
    for _ in range(6):
        run(held, clock, 2.5)
        child.dies()
    run(held, clock, LONGEST_DELAY_S + 1)
    assert held.phase is Phase.UP


def test_who_stayed_up_is_started_at_once_whatever_was_before(clock: Clock) -> None:
    backoff = Backoff()
    assert [backoff.next_s() for _ in range(3)] == [0.0, 0.5, 1.0]
    backoff.stayed_up(FORGIVEN_S / 2)
    assert backoff.next_s() == 2.0
    backoff.stayed_up(FORGIVEN_S)
    assert backoff.next_s() == 0.0


def test_one_that_dies_while_it_starts_is_an_event(
    held: Supervised, child: FakeChild, clock: Clock, told: list[str]
) -> None:
    child.replies = False
    run(held, clock, 0.3)
    child.dies()
    child.replies = True
    run(held, clock, 1)
    assert held.phase is Phase.UP
    assert told == ["ended while starting; started again at once", "answers"]


def test_a_start_without_an_answer_is_given_up_in_time(
    held: Supervised, child: FakeChild, clock: Clock
) -> None:
    child.replies = False
    run(held, clock, START_S - 1)
    assert child.calls == []
    run(held, clock, 2)
    assert child.calls == ["kill"]
    assert len(child.started_at_s) == 2


def test_a_hang_is_noticed_by_asking(held: Supervised, child: FakeChild, clock: Clock) -> None:
    run(held, clock, 10)
    child.replies = False
    run(held, clock, SILENCE_S - 3)
    assert (child.calls, held.phase) == ([], Phase.UP)
    run(held, clock, 6)
    assert child.calls == ["kill"]
    child.replies = True
    run(held, clock, 1)
    assert held.phase is Phase.UP


def test_an_answer_in_between_is_an_answer(
    held: Supervised, child: FakeChild, clock: Clock
) -> None:
    run(held, clock, 1)
    for _ in range(5):
        child.replies = False
        run(held, clock, SILENCE_S - 4)
        child.replies = True
        run(held, clock, 3)
    assert child.calls == []


def test_the_clock_alone_condemns_nobody(clock: Clock, told: list[str]) -> None:
    """The machine slept, or whoever asks was stopped itself: then nobody was asked."""
    child = FakeChild(clock)
    held = Supervised(child, now=clock, tell=told.append)
    run(held, clock, 1)
    child.replies = False
    run(held, clock, 3)
    clock.now_s += 10 * SILENCE_S
    held.step()
    child.replies = True
    run(held, clock, 5)
    assert child.calls == []


def test_slow_questions_are_time_too(clock: Clock) -> None:
    child = FakeChild(clock, question_s=8.0)
    held = Supervised(child, now=clock)
    run(held, clock, 20)
    child.replies = False
    begun_s = clock()
    while not child.calls:
        run(held, clock, 0.1)
    assert SILENCE_S <= clock() - begun_s < 2 * SILENCE_S


def supervision(**children: FakeChild) -> Supervision:
    return Supervision(children.items())


def test_a_start_that_takes_long_holds_up_nobody_else(clock: Clock) -> None:
    slow, quick = FakeChild(clock), FakeChild(clock)
    slow.replies = False
    with supervision(slow=slow, quick=quick) as held:
        assert held.wait_up(["quick"])
        quick.dies()
        wait_until(lambda: len(quick.started_at_s) == 2 and held.is_up("quick"), "a second start")
        assert not held.is_up("slow")
    assert (slow.calls, quick.calls) == (["stop"], ["stop"])


def test_on_a_full_disk_children_are_kept_up_all_the_same(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted: list[int] = []
    child, has_room = FakeChild(clock), threading.Event()

    def note() -> None:
        if not has_room.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        noted.append(len(child.started_at_s))

    with suppress(OSError), Path("/dev/full").open("w") as full:  # nor can it be closed
        monkeypatch.setattr(sys, "stderr", full)
        with Supervision([("child", child)], changed=note) as held:
            held.wait_up(["child"])
            child.dies()
            wait_until(lambda: len(child.started_at_s) == 2 and held.is_up("child"), "a start")
            has_room.set()
            wait_until(lambda: noted[-1:] == [2], "what was not noted is")
        monkeypatch.undo()
    assert noted


def test_who_waits_for_a_first_start_is_told_why_it_fails(clock: Clock) -> None:
    child = FakeChild(clock)
    child.refuses_to_start = "no room"
    with supervision(child=child) as held, pytest.raises(OperationFailed, match="no room"):
        held.wait_up(["child"])
    assert len(child.started_at_s) >= FIRST_STARTS


def test_nobody_waits_when_it_is_over(clock: Clock) -> None:
    child = FakeChild(clock)
    child.replies = False
    with supervision(child=child) as held:
        assert not held.wait_up(["child"], is_over=lambda: True)


def test_what_is_dropped_is_stopped_and_stays_so(clock: Clock) -> None:
    first, second = FakeChild(clock), FakeChild(clock)
    with supervision(first=first, second=second) as held:
        held.wait_up(["first", "second"])
        held.drop("first")
        assert (first.calls, list(held.children)) == (["stop"], ["second"])
    assert first.started_at_s == [clock()]


def test_children_that_stop_together_do_not_wait_for_each_other(clock: Clock) -> None:
    both_stop = threading.Barrier(2, timeout=10)

    class Slow(FakeChild):
        def stop(self) -> None:
            both_stop.wait()
            super().stop()

    told: list[tuple[str, str]] = []
    first, second = Slow(clock), Slow(clock)
    held = Supervision(
        {"first": first, "second": second}.items(), tell=lambda *what: told.append(what)
    )
    held.start()
    held.wait_up(["first", "second"])
    held.stop(together=True)
    assert (first.calls, second.calls) == (["stop"], ["stop"])
    assert told == [("child", ANSWERS)] * 2


def test_a_holder_ends_while_down_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`down` holds the lock until the holders have ended, so none may wait for it to end."""
    monkeypatch.setattr(sys, "orig_argv", [sys.executable, "-c", "pass"])
    monkeypatch.setattr(companions, "LOOK_EVERY_S", 0.05)
    run_dir(tmp_path).mkdir(parents=True, exist_ok=True)
    asked = threading.Event()
    waited = locked

    def asking(path: Path) -> object:
        if path.name == "up.lock":
            asked.set()
        return waited(path)

    monkeypatch.setattr(companions, "locked", asking)
    # one that is noted and whose lock nobody holds: it was killed, and is to be started again
    with (
        noted(tmp_path, "other", lock=tmp_path / "other.lock", log=tmp_path / "other.log"),
        locked(run_dir(tmp_path) / "up.lock"),
    ):
        ended = threading.Event()

        def hold() -> None:
            with watched(tmp_path, "mine"):
                asked.wait(30)
            ended.set()

        threading.Thread(target=hold, daemon=True).start()
        assert asked.wait(30)
        assert ended.wait(30)
