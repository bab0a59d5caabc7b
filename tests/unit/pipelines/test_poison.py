"""An entry that fails is given up; many different ones are not: then the stage holds."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from pipelines.graph.memory import MemoryGraph
from pipelines.ledger.registry import Hold
from pipelines.observe import metrics
from pipelines.work import poison
from pipelines.work.folds import Placed
from pipelines.work.poison import UNBRAKED, NoBoard, PoisonPolicy
from pipelines.work.runner import Runner
from pipelines.work.settings import Settings
from projections.errors import StageHeld, Stopped, UpstreamDeadLetter
from projections.operations import Operations
from projections.schema import BLOCKED_BY, EVENT
from projections.structural import Facts
from tests.factories import block, event
from tests.fakes.stages import PROJECTING, QUICK

PATIENT = replace(QUICK, patience_s=None)
BRIEF = replace(QUICK, patience_s=0.3)
SOON_S = 20.0
MADE: list[Line] = []


@pytest.fixture(autouse=True)
def _nobody_waits_for_ever() -> Iterator[None]:
    yield
    for line in MADE:
        line.stop.set()
    MADE.clear()


class Told(NoBoard):
    """A board that remembers what it was told."""

    def __init__(self) -> None:
        self.shown: list[Hold] = []
        self.cleared = 0
        self.released = False
        self.holding = threading.Event()

    def show(self, stage: str, target: str, hold: Hold) -> None:
        self.shown.append(hold)
        self.holding.set()

    def clear(self, stage: str, target: str) -> None:
        self.cleared += 1

    def is_released(self, stage: str, target: str) -> bool:
        return self.released


class Line:
    """A stage on a graph in memory whose fold fails for `bad` events while it is `broken`."""

    def __init__(self, policy: PoisonPolicy, error: Exception | None = None) -> None:
        self.broken = True
        self.error = error or ValueError("a bad agent")
        self.board = Told()
        self.stop = threading.Event()
        self.graph = MemoryGraph()
        self.runner = Runner(
            replace(PROJECTING, fold=self._fold),
            self.graph,
            target="poisoned",
            policy=policy,
            stop=self.stop,
            board=self.board,
        )
        self.runner.prepare(2)
        MADE.append(self)

    def _fold(self, events: Sequence[Placed], facts: Facts) -> Operations:
        if self.broken and any(one.agent_id == "bad" for _, one in events):
            raise self.error
        return PROJECTING.fold(events, facts)

    def letters(self, partition: int = 0) -> set[int]:
        return {letter["seq"] for letter in self.graph.dead_letters("projection", partition)}

    def folded(self) -> int:
        return self.graph.census().labels.get(EVENT.label, 0)

    def held(self) -> float:
        (sample,) = [
            sample.value
            for family in metrics.STAGE_HELD.collect()
            for sample in family.samples
            if sample.labels == {"stage": "projection", "target": "poisoned"}
        ]
        return sample

    def apply(self, bad: Iterable[int], count: int, partition: int = 0) -> None:
        self.runner.apply(events(bad, count, partition))

    def in_thread(self, bad: Iterable[int], count: int) -> Any:
        pool = ThreadPoolExecutor(1)
        future = pool.submit(self.apply, bad, count)
        pool.shutdown(wait=False)
        return future


def events(bad: Iterable[int], count: int, partition: int = 0) -> Any:
    guilty = set(bad)
    first = 1_000 * partition
    return block(
        *(
            event(first + n, session_id="s", agent_id="bad" if n in guilty else "good")
            for n in range(1, count + 1)
        ),
        partition=partition,
    )


def test_single_poison_among_good_entries_is_given_up_and_the_stage_flows() -> None:
    line = Line(BRIEF)
    line.apply(range(1, 31, 2), 30)
    assert line.letters() == set(range(1, 31, 2))
    assert line.folded() == 15
    assert line.board.shown == []


def test_many_different_entries_in_a_row_are_not_given_up() -> None:
    line = Line(BRIEF)
    with pytest.raises(StageHeld) as caught:
        line.apply(range(1, 31), 30)
    assert line.letters() == {1, 2, 3, 4, 5}
    assert (caught.value.partition, caught.value.reason) == (0, "ValueError: a bad agent")
    assert (line.held(), line.board.cleared) == (0, 1)


def test_so_are_more_than_so_many_within_a_minute() -> None:
    line = Line(BRIEF)
    with pytest.raises(StageHeld):
        line.apply(range(1, 100, 2), 100)
    assert line.letters() == set(range(1, 41, 2))
    assert line.folded() == 20


def test_a_minute_later_they_count_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(poison, "MINUTE_S", 0.0)
    line = Line(BRIEF)
    line.apply(range(1, 100, 2), 100)
    assert len(line.letters()) == 50


def test_the_same_entry_is_counted_once() -> None:
    line = Line(BRIEF)
    for _ in range(10):
        assert line.runner.refold(0, events([1], 1).entries) == []  # beyond the checkpoint
    line.apply([1], 1)
    for _ in range(10):
        assert len(line.runner.refold(0, events([1], 1).entries)) == 1
    assert line.board.shown == []


def test_it_goes_on_by_itself_when_a_held_entry_passes() -> None:
    line = Line(PATIENT)
    done = line.in_thread(range(1, 31), 30)
    assert line.board.holding.wait(SOON_S)
    assert line.held() == 1
    assert (line.board.shown[0].seq, line.board.shown[0].reason) == (6, "ValueError: a bad agent")
    line.broken = False
    done.result(SOON_S)
    assert line.letters() == {1, 2, 3, 4, 5}
    assert line.folded() == 25
    assert (line.held(), line.board.cleared) == (0, 1)


def test_it_goes_on_when_an_operator_says_so() -> None:
    line = Line(PATIENT)
    done = line.in_thread(range(1, 31), 40)
    assert line.board.holding.wait(SOON_S)
    line.board.released = True
    done.result(SOON_S)
    assert line.letters() == set(range(1, 31))
    assert line.folded() == 10
    assert line.held() == 0


def test_one_that_passes_sets_free_all_that_hold() -> None:
    line = Line(PATIENT)
    with ThreadPoolExecutor(2) as pool:
        both = [pool.submit(line.apply, range(1, 21), 20, partition) for partition in (0, 1)]
        assert line.board.holding.wait(SOON_S)
        line.broken = False
        for one in both:
            one.result(SOON_S)
    assert len(line.letters(0)) + len(line.letters(1)) == 5
    assert line.folded() == 35
    assert line.held() == 0


def test_a_worker_that_is_stopped_while_it_holds_gives_nothing_up() -> None:
    line = Line(PATIENT)
    done = line.in_thread(range(1, 31), 30)
    assert line.board.holding.wait(SOON_S)
    line.stop.set()
    with pytest.raises(Stopped):
        done.result(SOON_S)
    assert line.letters() == {1, 2, 3, 4, 5}
    assert line.held() == 0


def test_what_an_earlier_stage_gave_up_is_passed_without_a_brake() -> None:
    error = UpstreamDeadLetter(stage="projection", event_id="e")
    line = Line(BRIEF, error)
    line.apply(range(1, 31), 30)
    assert len(line.letters()) == 30
    kinds = {letter["kind"] for letter in line.graph.dead_letters()}
    assert kinds == {BLOCKED_BY}


@pytest.mark.parametrize(("policy", "failed"), [(BRIEF, None), (UNBRAKED, 30)])
def test_a_replay_has_the_brake_and_a_retry_of_dead_letters_has_none(
    policy: PoisonPolicy, failed: int | None
) -> None:
    line = Line(policy)
    line.broken = False
    line.apply([], 30)
    line.broken = True
    entries = events(range(1, 31), 30).entries
    if failed is None:
        with pytest.raises(StageHeld):
            line.runner.refold(0, entries)
    else:
        assert len(line.runner.refold(0, entries)) == failed
    assert line.letters() == set()


def test_a_replay_goes_on_when_the_fault_is_gone() -> None:
    line = Line(PATIENT)
    line.broken = False
    line.apply([], 30)
    line.broken = True
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(line.runner.refold, 0, events(range(1, 31), 30).entries)
        assert line.board.holding.wait(SOON_S)
        line.broken = False
        assert len(done.result(SOON_S)) == 5


class Waits(threading.Event):
    """Notes how long is waited, and does not wait."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds: list[float] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.seconds.append(timeout or 0.0)
        return self.is_set()


def waited(make: Callable[[threading.Event], Runner]) -> list[float]:
    waits = Waits()
    make(waits).apply(events([1], 1))
    return waits.seconds


def test_attempts_wait_longer_and_longer_but_not_for_ever() -> None:
    line = Line(BRIEF)
    policy = PoisonPolicy(max_attempts=9, wait_s=0.1)

    def make(stop: threading.Event) -> Runner:
        return Runner(line.runner.rules, line.graph, target="poisoned", policy=policy, stop=stop)

    seconds = waited(make)
    bounds = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0]
    assert all(0.75 * bound <= one <= bound for bound, one in zip(bounds, seconds, strict=True))


def test_policies_are_settings() -> None:
    settings = Settings(
        max_attempts=7,
        attempt_wait_s=0.5,
        poison_in_a_row=3,
        poison_a_minute=9,
        hold_patience_s=11.0,
    )
    live = PoisonPolicy.of_live_work(settings)
    assert (live.max_attempts, live.wait_s, live.in_a_row, live.a_minute) == (7, 0.5, 3, 9)
    assert live.patience_s is None
    assert PoisonPolicy.of_command(settings) == replace(live, patience_s=11.0)
