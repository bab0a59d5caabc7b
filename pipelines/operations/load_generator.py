"""Load as agents make it: sessions that are logged at a rate, and questions about them meanwhile.

By the Python client, as agents would. The server knows its client by HTTP alone, so this looks for
it by name; who has not installed it is told. A question begins when its time has come, whether or
not the last one is answered (an open loop).
"""

from __future__ import annotations

import importlib
import math
import random
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, NamedTuple

from pipelines.operations.api import Place, RunningApi
from pipelines.operations.rates import samples_of
from pipelines.scenarios.agents import Story, stories
from projections.errors import OperationFailed


class Latency(NamedTuple):
    """Of one measurement, ms from when a question should have begun; `failed` got no answer."""

    name: str
    rate: float
    asked: int
    p50: float
    p95: float
    p99: float
    failed: int


class Timings:
    """How long things took, as threads tell it."""

    def __init__(self) -> None:
        self._took_ms: list[float] = []
        self._failed = 0
        self._guard = threading.Lock()

    def add(self, took_ms: float, *, is_answered: bool = True) -> None:
        """One of them is over."""
        with self._guard:
            self._took_ms.append(took_ms)
            self._failed += not is_answered

    def latency(self, name: str, rate: float) -> Latency:
        """What they come to; zeros where nothing was asked."""
        with self._guard:
            took = sorted(self._took_ms)
            p50, p95, p99 = (_quantile(took, share) for share in (0.5, 0.95, 0.99))
            return Latency(name, rate, len(took), p50=p50, p95=p95, p99=p99, failed=self._failed)


def measured(
    name: str,
    ask: Callable[[int], bool],
    *,
    rate: float,
    count: int,
    threads: int = 64,
    unanswered: tuple[type[Exception], ...] = (),
) -> Latency:
    """Ask `count` times at `rate` a second.

    Args:
        name: of what is asked.
        ask: with the number of the question; whether it was answered.
        rate: questions a second.
        count: questions.
        threads: that may wait for an answer at once.
        unanswered: errors of `ask` that are an answer that did not come.
    """
    begun_s = time.perf_counter() + 0.2
    timings = Timings()

    def one(number: int) -> None:
        due_s = begun_s + number / rate
        time.sleep(max(0.0, due_s - time.perf_counter()))
        try:
            is_answered = ask(number)
        except unanswered:
            is_answered = False
        timings.add((time.perf_counter() - due_s) * 1000, is_answered=is_answered)

    with ThreadPoolExecutor(threads) as pool:
        waiting = []
        for number in range(count):
            time.sleep(max(0.0, begun_s + number / rate - time.perf_counter() - 0.05))
            waiting.append(pool.submit(one, number))
        for each in waiting:
            each.result()
    return timings.latency(name, rate)


def _quantile(ordered: Sequence[float], share: float) -> float:
    if not ordered:
        return 0.0
    return ordered[min(len(ordered) - 1, math.ceil(share * len(ordered)) - 1)]


CLIENT: Final = "recollect"
ASK_TIMEOUT_S: Final = 30.0
LAG: Final = "recollect_lag_entries"
ASKED_ABOUT: Final = 200
"""The newest sessions that questions are about."""
_LOOK_S: Final = 0.25
_SEEN_S: Final = 2.0
"""Until the API, which looks at lags each second, has seen what came last."""


class Load(NamedTuple):
    """What is asked of a memory.

    Attributes:
        rate: events a second, of all agents together.
        questions: a second.
        for_s: how long.
        agents: sessions that go on at once, one after the other each.
        users: people whom they are for.
        seed: of what they say.
        tenant: whose memory it is; None: that of the key.
        patience_s: how long the stages may take afterwards.
    """

    rate: float = 50.0
    questions: float = 2.0
    for_s: float = 30.0
    agents: int = 16
    users: int = 20
    seed: int = 1
    tenant: str | None = None
    patience_s: float = 300.0


class Outcome(NamedTuple):
    """What came of it.

    Attributes:
        events, questions: latencies from when each was due, in ms; `rate` is what was reached.
        sessions: that were begun.
        errors: how many of each sort, by the client's name for it.
        behind: entries that each stage had not folded when the load ended.
        caught_up_s: how long each stage took for these; None: longer than anybody waited.
    """

    events: Latency
    questions: Latency
    sessions: int
    errors: dict[str, int]
    behind: dict[str, int]
    caught_up_s: dict[str, float | None]

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        return {
            **self._asdict(),
            "events": self.events._asdict(),
            "questions": self.questions._asdict(),
        }


def run(place: Place, load: Load, progress: Callable[[int, int, str], None]) -> Outcome:
    """Put a memory under load, and wait until its stages are there again.

    Args:
        place: of its API.
        load: how much.
        progress: told seconds that have passed, of how many, and what is done.

    Raises:
        OperationFailed: the client is not installed, or nothing answers there.
    """
    client = _client()
    with client.Memory(place.url, place.key, tenant=load.tenant, background=False) as memory:
        try:
            with memory.session("load", agent="load") as session:
                session.log("assistant", "The load begins.")
        except client.RecollectError as error:
            raise OperationFailed(reason=f"{place.url}: {error}") from None
        work = _Work(memory, client.RecollectError, load)
        answers = work.run(progress)
    api = RunningApi(place.url, place.key)
    time.sleep(_SEEN_S)
    behind = behind_of(api)
    return Outcome(
        events=work.events.latency("events", work.logged / work.took_s),
        questions=answers,
        sessions=work.begun,
        errors=dict(work.errors.most_common()),
        behind=behind,
        caught_up_s=_caught_up_s(api, behind, load.patience_s, progress),
    )


def _client() -> Any:
    try:
        return importlib.import_module(CLIENT)
    except ModuleNotFoundError:
        reason = "load is made by the Python client: pip install recollect-client"
        raise OperationFailed(reason=reason) from None


class _Work:
    """Agents and askers for a while."""

    def __init__(self, memory: Any, refused: type[Exception], load: Load) -> None:
        self.events = Timings()
        self.errors: Counter[str] = Counter()
        self.begun = self.logged = 0
        # until the last agent was through; questions may take longer to be answered
        self.took_s = 1e-9
        self._memory = memory
        self._refused = refused
        self._load = load
        self._stories = stories(load.seed, users=load.users)
        self._told: deque[Story] = deque(maxlen=ASKED_ABOUT)
        self._guard = threading.Lock()

    def run(self, progress: Callable[[int, int, str], None]) -> Latency:
        """Until the time is over; latencies of the questions."""
        load = self._load
        begun_s = time.perf_counter()
        agents = [
            threading.Thread(target=self._act, args=(number, begun_s), name=f"agent-{number}")
            for number in range(load.agents)
        ]
        telling = threading.Event()
        teller = threading.Thread(target=self._tell, args=(telling, begun_s, progress))
        for thread in (*agents, teller):
            thread.start()
        count = round(load.questions * load.for_s)
        chance = random.Random(load.seed)
        answers = measured(
            "questions",
            lambda number: self._ask(chance, number),
            rate=load.questions or 1.0,
            count=count,
        )
        for thread in agents:
            thread.join()
        telling.set()
        teller.join()
        return answers

    def _tell(
        self, over: threading.Event, begun_s: float, progress: Callable[[int, int, str], None]
    ) -> None:
        whole = round(self._load.for_s)
        while not over.wait(_LOOK_S):
            passed = min(whole, round(time.perf_counter() - begun_s))
            progress(passed, whole, "agents at work")

    def _act(self, number: int, begun_s: float) -> None:
        """Be an agent: one session after the other, a step whenever it is due."""
        load = self._load
        pace_s = load.agents / load.rate
        first_s = begun_s + pace_s * number / load.agents
        dues = iter([first_s + pace_s * step for step in range(round(load.for_s / pace_s))])
        due_s = next(dues, None)
        while due_s is not None:
            story = self._next()
            with self._memory.session(story.session_id, agent=story.agent, user=story.user) as told:
                for step in story.steps:
                    if due_s is None:
                        break
                    time.sleep(max(0.0, due_s - time.perf_counter()))
                    self._log(told, step._asdict(), due_s)
                    due_s = next(dues, None)
            with self._guard:
                self._told.append(story)
        with self._guard:
            self.took_s = max(self.took_s, time.perf_counter() - begun_s)

    def _next(self) -> Story:
        with self._guard:
            self.begun += 1
            return next(self._stories)

    def _log(self, session: Any, step: dict[str, Any], due_s: float) -> None:
        is_taken = self._tried(lambda: session.log(**step))
        self.events.add((time.perf_counter() - due_s) * 1000, is_answered=is_taken)
        with self._guard:
            self.logged += is_taken

    def _ask(self, chance: random.Random, number: int) -> bool:
        with self._guard:
            story = chance.choice(self._told) if self._told else None
        question = "What happened?" if story is None else story.questions[number % 4]
        user = None if story is None else story.user
        options = {"text": False, "timeout_s": ASK_TIMEOUT_S, "user": user, "session": "load"}
        return self._tried(lambda: self._memory.ask(question, **options))

    def _tried(self, do: Callable[[], object]) -> bool:
        try:
            do()
        except self._refused as error:
            with self._guard:
                self.errors[type(error).__name__] += 1
            return False
        return True


def behind_of(api: RunningApi) -> dict[str, int]:
    """How many entries each stage has not folded, as the API sees it.

    Of several targets the one that is farthest behind: one that was read from before stands still.
    """
    behind: dict[str, int] = {}
    for (name, labels), value in samples_of(api.metrics()).items():
        if name == LAG:
            stage = dict(labels)["stage"]
            behind[stage] = max(behind.get(stage, 0), round(value))
    return behind


def _caught_up_s(
    api: RunningApi,
    behind: dict[str, int],
    patience_s: float,
    progress: Callable[[int, int, str], None],
) -> dict[str, float | None]:
    """Seconds until a stage had nothing to fold any more."""
    begun_s = time.monotonic()
    took_s: dict[str, float | None] = dict.fromkeys(behind)
    for passed_s in _looks(begun_s, patience_s):
        with suppress(OperationFailed):  # busy: it is asked again
            for stage, entries in behind_of(api).items():
                if not entries and took_s.get(stage) is None:
                    took_s[stage] = round(passed_s, 1)
        if None not in took_s.values():
            break
        progress(round(passed_s), round(patience_s), "stages catch up")
    return took_s


def _looks(begun_s: float, patience_s: float) -> Iterator[float]:
    while (passed_s := time.monotonic() - begun_s) < patience_s:
        yield passed_s
        time.sleep(_LOOK_S)
