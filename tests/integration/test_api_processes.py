"""Several processes that serve one API: they answer as one, count as one, and end as one."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import neo4j as neo4j_driver
import pytest

from api.preflight import listening
from api.processes import Siblings
from pipelines.local.processes import free_port, is_alive, port_is_free
from pipelines.local.python_process import python_environment
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.local.workers import RECOLLECT
from pipelines.work.settings import Settings
from projections.events import LAST_MS
from tests.bench.stack import child_pids
from tests.fakes.events import numbered_event
from tests.integration.api_support import assert_problem, envelope
from tests.integration.changes_support import Stream, followed
from tests.integration.changes_support import ids as event_ids
from tests.integration.query_support import Memory, ids
from tests.integration.stack import Stack
from tests.servers import emptied_neo4j, emptied_valkey
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

PROCESSES = 2
KEYS = {"usual": "usual-key-0123456789", "few": "few-key-0123456789"}
FEW = 20
STREAMS = 4
STORM_S = 10.0
ASKERS = 3
AS_OF = "2026-03-01T00:00:00Z"
WORDS = ("payment", "timeout", "harbour", "lantern", "violin", "glacier")
OPTIONS = {
    "RECOLLECT_API_KEYS": json.dumps(
        [{"name": n, "key": k, "role": "write", "tenant": "acme"} for n, k in KEYS.items()]
    ),
    "RECOLLECT_REQUEST_LIMITS": json.dumps({"*": "", "few": f"{FEW}/day"}),
    "RECOLLECT_RESULT_CACHE_S": "0",
    "RECOLLECT_MAX_STREAMS": str(STREAMS),
    "RECOLLECT_RECORD_ACCESSES": "false",
}


class Served:
    """`recollect serve --processes 2`, and the processes behind it."""

    def __init__(self, redis_url: str, neo4j_url: str, folder: Path, **options: str) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        self.log = folder / "log"
        command = [*RECOLLECT, "serve", "--port", str(self.port), "--processes", str(PROCESSES)]
        environment = {**OPTIONS, "TMPDIR": str(self.temporary), **options}
        with self.log.open("wb") as log:
            self.parent = subprocess.Popen(
                [*command, "--redis", redis_url, "--neo4j", neo4j_url],
                env=python_environment(environment),
                stderr=log,
                cwd=folder,
            )

    def pids(self) -> set[int]:
        """Of those that serve; who has just been killed is none."""
        return set(filter(is_alive, child_pids(self.parent.pid)))

    def client(self, key: str = "usual") -> httpx.Client:
        return httpx.Client(
            base_url=self.url, headers={"Authorization": f"Bearer {KEYS[key]}"}, timeout=30
        )

    def asked(
        self, ask: Callable[[httpx.Client], httpx.Response], key: str = "usual"
    ) -> tuple[int, httpx.Response]:
        """An answer over a connection of its own, and the process that the kernel gave that to."""
        with self.client(key) as client:
            answer = ask(client)
            stream = answer.extensions["network_stream"]
            port = stream.get_extra_info("client_addr")[1]
            (pid,) = (pid for pid in self.pids() if port in _client_ports(pid, self.port))
            return pid, answer

    def answers_of_each(
        self, ask: Callable[[httpx.Client], httpx.Response]
    ) -> Mapping[int, httpx.Response]:
        """The last answer of every process."""
        answers: dict[int, httpx.Response] = {}

        def asked() -> bool:
            pid, answer = self.asked(ask)
            answers[pid] = answer
            return len(answers) == PROCESSES

        wait_until(asked, "an answer of each")
        return answers

    def wait_serving(self) -> None:
        """Return once each of them takes connections."""

        def all_serve() -> bool:
            if len(self.pids()) < PROCESSES:
                return False
            lines = self.log.read_text(encoding="utf-8").splitlines()
            told = [json.loads(line) for line in lines if '"api process"' in line]
            last = {line["process"]: line["what"] for line in told}
            return list(last.values()) == ["answers"] * PROCESSES

        wait_until(all_serve, "all of them serve")

    def end(self) -> None:
        self.parent.kill()
        self.parent.wait()


def _client_ports(pid: int, port: int) -> set[int]:
    """The ports of those whose connections to a port a process has taken."""
    sockets = set()
    for descriptor in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(FileNotFoundError):  # closed meanwhile
            sockets.add(str(descriptor.readlink()))
    lines = Path("/proc/net/tcp").read_text("ascii").splitlines()[1:]
    rows = [line.split() for line in lines]
    return {
        int(row[2].partition(":")[2], 16)
        for row in rows
        if int(row[1].partition(":")[2], 16) == port and f"socket:[{row[9]}]" in sockets
    } - {0}


@contextmanager
def serving(redis_url: str, neo4j_url: str, folder: Path, **options: str) -> Iterator[Served]:
    served = Served(redis_url, neo4j_url, folder, **options)
    try:
        yield served
    finally:
        served.end()


@pytest.fixture(scope="module")
def served(
    valkey: ValkeyServer, neo4j: Neo4jServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Served]:
    """Over a memory of conversations, until the last test of the module."""
    redis_url, neo4j_url = emptied_valkey(valkey), emptied_neo4j(neo4j)
    with neo4j_driver.GraphDatabase.driver(neo4j_url, notifications_min_severity="OFF") as driver:
        memory = Memory(driver)
        event_ids = iter(ids(len(WORDS) ** 2))
        for word in WORDS:
            texts = {next(event_ids): f"the {word} of the {other}" for other in WORDS}
            memory.say(texts, session_id=f"session-{word}")
    with serving(redis_url, neo4j_url, tmp_path_factory.mktemp("served")) as running:
        running.wait_serving()
        with running.client() as client:
            wait_until(lambda: client.get("/health/ready").status_code == 200, "ready")
        yield running


def ask(word: str) -> Callable[[httpx.Client], httpx.Response]:
    """Asks for a word, in a session that nothing is known of, at a time that stands still."""
    body = {"query": f"the {word}", "agent_id": "a", "timeout_ms": 30_000, "as_of": AS_OF}
    return lambda client: client.post(
        "/v1/query/subgraph", json={**body, "session_id": str(uuid.uuid4())}
    )


def content(answer: httpx.Response) -> Any:
    """What it says, without how long that took and where it goes on."""
    assert answer.status_code == 200, answer.text
    body = answer.json()
    meta = {key: body["meta"][key] for key in ("intent", "seed_names", "degraded", "truncated_by")}
    return body["nodes"], body["edges"], body["answer"], meta


def test_every_process_gives_the_same_answer(served: Served) -> None:
    for word in WORDS[:3]:
        answers = served.answers_of_each(ask(word))
        first, second = map(content, answers.values())
        assert first == second
        assert len(first[0]) > 5


def test_a_key_has_its_limit_once_and_not_once_a_process(served: Served) -> None:
    statuses = [
        served.asked(lambda client: client.get("/v1/entities"), "few") for _ in range(2 * FEW)
    ]
    admitted = [pid for pid, answer in statuses if answer.status_code == 200]
    assert len(admitted) == FEW
    assert {answer.status_code for _, answer in statuses} == {200, 429}
    assert len({pid for pid, _ in statuses}) == PROCESSES, "both were asked"


def counted(answer: httpx.Response, name: str) -> float:
    """The sum over all series of a metric."""
    lines = answer.text.splitlines()
    return sum(float(line.rpartition(" ")[2]) for line in lines if line.startswith(name))


ENTITIES = 'recollect_api_request_duration_seconds_count{method="GET",route="/v1/entities"'


def test_metrics_are_those_of_all_processes(served: Served) -> None:
    def metrics(client: httpx.Client) -> httpx.Response:
        return client.get("/metrics")

    (before,) = {counted(it, ENTITIES) for it in served.answers_of_each(metrics).values()}
    asked = {served.asked(lambda client: client.get("/v1/entities"))[0] for _ in range(20)}
    assert len(asked) == PROCESSES
    after = served.answers_of_each(metrics).values()
    assert {counted(it, ENTITIES) for it in after} == {before + 20}
    assert {counted(it, "recollect_build_info") for it in after} == {1}
    assert {counted(it, "recollect_api_connections ") for it in after} <= {1, 2, 3}

    (answer, *_) = after
    for number in range(PROCESSES):
        assert counted(answer, f'process_resident_memory_bytes{{process="{number}"') > 2**20


def test_streams_go_on_in_another_process_and_are_counted_once(served: Served) -> None:
    """One of two processes is killed: its streams come back elsewhere, and nothing is missing."""
    with ExitStack() as opened:
        streams = _streams_of_each(served, opened)
        for answer in served.answers_of_each(lambda client: client.get("/v1/changes")).values():
            assert_problem(answer, 429, "rate-limited")
        with served.client() as client:
            first = _append(client, 30)
            assert [event_ids(stream.take(30)) for stream in streams.values()] == [first] * STREAMS
            (victim, *_) = served.pids()
            os.kill(victim, signal.SIGKILL)
            wait_until(lambda: not is_alive(victim), "it is gone")
            second = _append(client, 30)
            for (pid, _), stream in streams.items():
                came = (
                    opened.enter_context(followed(client, came=stream.position))
                    if (pid == victim)
                    else stream
                )
                assert event_ids(came.take(30)) == second
    served.wait_serving()


def open_streams(served: Served) -> float:
    """Of all processes."""
    with served.client() as client:
        return counted(client.get("/metrics"), "recollect_api_streams ")


def _streams_of_each(served: Served, opened: ExitStack) -> Mapping[tuple[int, int], Stream]:
    """As many streams as a key may have, shared out among all processes: by process, number."""
    while True:
        with ExitStack() as opening:
            streams = {}
            for number in range(STREAMS):
                client = opening.enter_context(served.client())
                stream = opening.enter_context(followed(client))
                (pid,) = (
                    pid for pid in served.pids() if stream.port in _client_ports(pid, served.port)
                )
                streams[pid, number] = stream
            if len({pid for pid, _ in streams}) == PROCESSES:
                opened.push(opening.pop_all())
                return streams
        wait_until(lambda: not open_streams(served), "they are over")


def _append(client: httpx.Client, count: int) -> list[str]:
    """New events, sent until they are taken; their ids."""
    events = [envelope(event_id=str(uuid.uuid4()), session_id=f"s-{n}") for n in range(count)]

    def accepted() -> bool:
        with suppress(httpx.TransportError):  # of the process that was killed
            return client.post("/v1/events/batch", json=events).status_code == 200
        return False

    wait_until(accepted, "the events are taken")
    return [str(event["event_id"]) for event in events]


class Asker:
    """Asks one question after the other, each until it is answered, on connections that it keeps.

    Args:
        served: that is asked.
        right: the answers, by word.
        over: set at the end.
    """

    def __init__(self, served: Served, right: Mapping[str, Any], over: threading.Event) -> None:
        self._served = served
        self._right = right
        self._over = over
        self.answered = self.tries = 0
        self.wrong: list[Any] = []
        self.longest_s = 0.0
        self.thread = threading.Thread(target=self._run)
        self.thread.start()

    def _run(self) -> None:
        with self._served.client() as client:
            while not self._over.is_set():
                for word, right in self._right.items():
                    begun_s = time.monotonic()
                    found = self._answer(client, word)
                    self.longest_s = max(self.longest_s, time.monotonic() - begun_s)
                    self.answered += 1
                    if found != right:
                        self.wrong.append((word, found))

    def _answer(self, client: httpx.Client, word: str) -> Any:
        while True:
            self.tries += 1
            with suppress(httpx.TransportError):  # its process was killed: another one is asked
                return content(ask(word)(client))


def test_processes_that_are_killed_under_load_cost_no_answer(served: Served) -> None:
    right = {word: content(served.asked(ask(word))[1]) for word in WORDS}
    over, longest_restart_s = threading.Event(), 0.0
    askers = [Asker(served, right, over) for _ in range(ASKERS)]
    ends_s = time.monotonic() + STORM_S
    chance, kills = random.Random(5), 0
    try:
        while time.monotonic() < ends_s or kills < 2:
            time.sleep(chance.uniform(0.2, 1.0))
            os.kill(chance.choice(sorted(served.pids())), signal.SIGKILL)
            killed_s, kills = time.monotonic(), kills + 1
            served.answers_of_each(lambda client: client.get("/health/live"))
            longest_restart_s = max(longest_restart_s, time.monotonic() - killed_s)
    finally:
        over.set()
        for asker in askers:
            asker.thread.join()
    assert [asker.wrong for asker in askers] == [[]] * ASKERS
    assert sum(asker.answered for asker in askers) > 50
    assert max(asker.longest_s for asker in askers) < longest_restart_s + 1
    assert sum(asker.tries - asker.answered for asker in askers) >= 1, "no kill met a question"
    served.wait_serving()
    for word in WORDS:
        assert {str(content(it)) for it in served.answers_of_each(ask(word)).values()} == {
            str(right[word])
        }


def test_what_is_counted_outlives_every_process(served: Served) -> None:
    with served.client("few") as client:
        while client.get("/v1/entities").status_code == 200:
            pass
    with served.client() as client:
        before = counted(client.get("/metrics"), ENTITIES)
    for pid in served.pids():
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(served.pids()) == PROCESSES, "others")
    with served.client() as client:
        wait_until(lambda: _lives(client), "it answers")
        assert counted(client.get("/metrics"), ENTITIES) >= before > 0
    with served.client("few") as client:
        assert client.get("/v1/entities").status_code == 429


def test_sigterm_finishes_the_requests_under_way_and_ends_all(served: Served) -> None:
    served.wait_serving()
    pids = served.pids()
    waiting: list[httpx.Response] = []

    def wait() -> None:
        with served.client() as client:
            path = f"/v1/context/s?min_position={LAST_MS}-0&timeout_ms=2000"
            waiting.append(client.get(path))

    thread = threading.Thread(target=wait)
    thread.start()
    wait_until(lambda: any(_client_ports(pid, served.port) for pid in pids), "it is under way")
    served.parent.send_signal(signal.SIGTERM)
    thread.join()
    assert waiting[0].status_code == 504, "finished, and not cut"
    assert served.parent.wait(30) == 0
    assert not any(map(is_alive, pids))
    assert port_is_free(served.port)
    assert not list(served.temporary.glob("recollect-api-*"))


def test_who_loses_its_parent_ends_and_frees_the_port(
    redis_url: str, neo4j_url: str, tmp_path: Path
) -> None:
    with serving(redis_url, neo4j_url, tmp_path) as served:
        with served.client() as client:
            wait_until(lambda: _lives(client), "it answers")
        pids = served.pids()
        assert len(pids) == PROCESSES
        (shared,) = served.temporary.glob("recollect-api-*")
        assert shared.stat().st_mode & 0o777 == 0o700
        served.end()
        wait_until(lambda: not any(map(is_alive, pids)), "all end", patience_s=10)
        # a process whose first thread has ended may still have others, and the port with them
        wait_until(lambda: port_is_free(served.port), "the port is free", patience_s=10)
        wait_until(lambda: not shared.exists(), "nothing is left", patience_s=10)


def _lives(client: httpx.Client) -> bool:
    with suppress(httpx.TransportError):
        return client.get("/health/live").status_code == 200
    return False


def test_processes_that_cannot_start_are_given_up(
    stack: Stack, redis_url: str, neo4j_url: str, tmp_path: Path
) -> None:
    stack.append(numbered_event(1))
    with serving(redis_url, neo4j_url, tmp_path / "served", RECOLLECT_PARTITIONS="4") as served:
        assert served.parent.wait(60) == 1
        log = served.log.read_text(encoding="utf-8")
    assert "ended while starting; started again in 0.5 s" in log
    assert "partitions" in log


def test_one_that_hangs_does_not_answer_and_can_be_replaced(
    redis_url: str, neo4j_url: str, tmp_path: Path
) -> None:
    settings = Settings(
        redis_url=redis_url, neo4j_url=neo4j_url, api_port=0, insecure_dev=True, log_level="error"
    )
    with listening(settings) as (listener, url):
        (child,) = Siblings(settings, 1, listener, tmp_path).children
        child.start()
        try:
            wait_until(child.answers, "it serves")
            hung = child.pid
            assert hung is not None
            os.kill(hung, signal.SIGSTOP)
            assert not child.answers()
            child.kill()
            child.start()
            wait_until(child.answers, "another one serves")
            assert child.pid != hung
            assert httpx.get(f"{url}/health/live", timeout=30).status_code == 200
        finally:
            child.stop()
        assert child.pid is None
