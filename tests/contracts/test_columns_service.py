"""One process answers from columns for all: as a view does, though killed, or its graph away."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import neo4j
import numpy
import pytest
from pydantic import SecretStr

from enrichment.event_kinds import EventKind
from enrichment.stems import stem
from pipelines.columns.client import ColumnsClient
from pipelines.columns.follow import Columns
from pipelines.columns.follower import Follower
from pipelines.columns.graph_scores import ActivationConfig
from pipelines.columns.loading import columns_of
from pipelines.columns.reads import Beside, ColumnReads, Reached, SessionsAsked, Walked, Wanted
from pipelines.columns.records import ListAsked, OpenAsked, Standings, Steps, Stories, StoriesAsked
from pipelines.columns.tenant import Tenant
from pipelines.columns.view import View
from pipelines.columns.view_reads import ViewReads
from pipelines.columns.wire import ANSWERS, Login, Question, decoded
from pipelines.graph.memory import MemoryGraph
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.graph.port import Graph
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import ENTITY_PREFIX, Least
from pipelines.local.processes import is_alive
from pipelines.local.python_process import framed
from pipelines.local.servers import Neo4jServer
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable, QueryTimeout
from projections.events import LAST_MS
from projections.identity import Position
from projections.operations import Operations
from projections.schema import EDGE_CAPS
from projections.structural import event_node
from tests.contracts.test_columns import WORDS, World
from tests.factories import event
from tests.servers import emptied_neo4j
from tests.steps import walk_asked
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
PATIENT_MS = 120_000
DATABASE = "neo4j"
ROOT = Path(__file__).resolve().parents[2]
SCOPE = Scope("t", None, 2_000_000)
Ask = Callable[[ColumnReads], Any]
Make = Callable[..., ColumnsClient]


@pytest.fixture
def make(folder: Path, neo4j_url: str, neo4j_graph: Neo4jGraph) -> Iterator[Make]:
    """Makes clients of the session's graph, which has a feed, or of another."""
    clients: list[ColumnsClient] = []
    pids: set[int] = set()

    def made(uri: str = neo4j_url, password: str | None = None, **options: Any) -> ColumnsClient:
        secret = None if password is None else SecretStr(password)
        settings = Settings(model_process_dir=folder, data_dir=folder, neo4j_password=secret)
        client = ColumnsClient(uri, DATABASE, settings, **{"linger_s": 0.3, **options})
        clients.append(client)
        return client

    yield made
    for client in clients:
        pids |= {client.pid} if client.pid else set()
        client.close()
    for pid in pids:
        wait_until(partial(is_gone, pid), "a process is left")


def is_gone(pid: int) -> bool:
    return not is_alive(pid)


def loaded(client: ColumnsClient) -> ColumnsClient:
    wait_until(lambda: client.state(PATIENT_MS).is_loaded, "the columns are loaded")
    return client


def write(graph: Graph, number: int) -> str:
    """Commit an event to session `s`; its id."""
    event_id = f"e{number:05}"
    batch = Operations()
    at = event(number, tenant=SCOPE.tenant, session_id="s", event_id=event_id)
    batch.extend([event_node(at, Position(7, number))])
    with graph.transaction() as transaction:
        transaction.apply(batch, "projection")
    return event_id


def newest(reads: ColumnReads) -> str | None:
    """Id of the newest event of session `s`."""
    events = reads.session("s", []).events
    return events[0].event_id if events else None


# What is answered


def _session(session_id: str, reads: ColumnReads) -> Any:
    return reads.session(session_id, ["ann", "ann lee"])


def _candidates(session_id: str, reads: ColumnReads) -> Any:
    return reads.session_candidates(session_id, 3)


def _page(session_id: str, reads: ColumnReads) -> Any:
    whole = reads.session_page(session_id, None, 100)
    behind = whole.events[0] if whole.events else None
    return [whole, reads.session_page(session_id, behind, 2)]


def _user(session_id: str, reads: ColumnReads) -> Any:
    return reads.session_user(session_id)


def questions(world: World) -> dict[str, list[Ask]]:
    """Some of each kind, by name."""
    stems = [stem(word) for word in WORDS[:3]]
    events, entities = world.events, world.entities
    vectors = [node.values["embedding"] for node in world.nodes["Event"]]
    vector = next(list(one) for one in vectors if one is not None)
    wanted = Wanted(events[:5], events[20:30], events[25:50], 7, stems, vector)
    nothing = Wanted((), (), (), 0, (), None)
    looked_for = StoriesAsked(
        hits=events[:9],
        stems=stems,
        identifiers=[stems[:1]],
        vector=vector,
        capitalised=["ann"],
        text=" ann lee said ",
        sessions=["s-1"],
        windows=[(0, 2**50)],
        marks=stems[:2],
        by_speaker=True,
    )
    start = Beside(world.summaries, events[:9], entities[:5], events)
    seeds = dict.fromkeys([*world.node_ids[::7], "unknown"], 0.5)
    from_few = walk_asked(seeds, {"why": 0.8, "general": 0.4})
    sessions = [f"s-{number}" for number in range(6)]
    every = SessionsAsked(None, None, None, failed=False, before=None, limit=100)
    return {
        "session": [partial(_session, session_id) for session_id in sessions],
        "session_user": [partial(_user, session_id) for session_id in sessions],
        "session_candidates": [partial(_candidates, session_id) for session_id in sessions],
        "sessions": [
            lambda r: r.sessions(every),
            lambda r: r.sessions(every._replace(words="S-1", failed=True, since_ms=0, limit=2)),
            lambda r: r.sessions(every._replace(before=(2**40, "s-1"))),
        ],
        "session_page": [partial(_page, session_id) for session_id in sessions],
        "text_hits": [lambda r: r.text_hits(stems, 4), lambda r: r.text_hits(["nothing"], 4)],
        "vector_hits": [lambda r: r.vector_hits(vector, 5), lambda r: r.vector_hits(vector, 100)],
        "standings": [
            lambda r: r.standings(wanted),
            lambda r: r.standings(wanted._replace(vector=None, stems=())),
            lambda r: r.standings(nothing),
        ],
        "listed": [
            lambda r: r.listed(ListAsked("s-1")),
            lambda r: r.listed(ListAsked("s-1", failed=True, windows=[(0, 2**50)])),
            lambda r: r.listed(ListAsked("unknown", kinds=(EventKind.CALL,), by_person=False)),
            lambda r: r.listed(ListAsked("s-1", words=("search",), verbs=("search",))),
        ],
        "last_ms": [lambda r: r.last_ms(2**50), lambda r: r.last_ms(0)],
        "open_things": [
            lambda r: r.open_things(OpenAsked()),
            lambda r: r.open_things(OpenAsked(["ticket"], [(0, 2**50)])),
        ],
        "stories": [
            lambda r: r.stories(looked_for),
            lambda r: r.stories(looked_for._replace(by_window=True, by_failure=True)),
            lambda r: r.stories(StoriesAsked((), (), (), None, (), "", (), ())),
        ],
        "pending": [lambda r: r.pending([*events[:9], "unknown"])],
        "vectors": [lambda r: r.vectors([*events[:9], "unknown"])],
        "steps": [lambda r: r.steps(world.node_ids, EDGE_CAPS), lambda r: r.steps([], EDGE_CAPS)],
        "walked": [
            lambda r: r.walked(from_few, wanted),
            lambda r: r.walked(from_few._replace(beside=True), wanted),
            lambda r: r.walked(from_few._replace(method="ppr"), nothing),
            lambda r: r.walked(
                from_few._replace(method="activation", activation=ActivationConfig()), nothing
            ),
        ],
        "beside": [lambda r: r.beside(start, Least(0.0, 1, 1, 9))],
        "found": [lambda r: r.found(["oslo", "an"], ["ann lee"], 5)],
        "found_by_name": [lambda r: r.found_by_name(["oslo", "ann", "lamp"], 9)],
        "found_by_id": [lambda r: r.found_by_id([*entities, "unknown"])],
        "found_near": [lambda r: r.found_near(vector, 5)],
        "same_as": [lambda r: r.same_as(entities)],
        "mentioned": [lambda r: r.mentioned(entities)],
        "newest_mentions": [lambda r: r.newest_mentions(entities, 4)],
        "mentions": [lambda r: r.mentions(entities, (LAST_MS, ""), 9)],
        "surroundings": [lambda r: r.surroundings(entities)],
    }


def plain(answer: Any) -> Any:
    """As it can be compared, with the types of what numbers are made of."""
    if isinstance(answer, Standings | Steps | Stories | Reached | Walked):
        return [plain(column) for column in answer]
    if isinstance(answer, numpy.ndarray):
        return str(answer.dtype), answer.shape, repr(answer.tolist())
    return answer


def test_answers_are_those_of_a_view(neo4j_graph: Neo4jGraph, make: Make) -> None:
    world = World(1)
    world.write(neo4j_graph)
    tenant = columns_of(neo4j_graph)[world.tenant]
    client = loaded(make())
    asked = questions(world)
    assert set(asked) == set(ANSWERS) == {name for name in dir(ColumnReads) if name[0] != "_"}
    nothing = ViewReads(View(Tenant(), Scope(world.tenant, None, 1)))
    telling: set[str] = set()
    for scope in world.scopes():
        here, there = ViewReads(View(tenant, scope)), client.reads(scope, PATIENT_MS)
        for name, each in asked.items():
            for ask in each:
                expected, answer = ask(here), ask(there)
                assert plain(answer) == plain(expected), (name, scope)
                assert type(answer) is type(expected), name
                if plain(answer) != plain(ask(nothing)):
                    telling.add(name)
    assert telling == set(ANSWERS) - {"pending"}  # a graph's columns alone have none


def test_a_question_about_what_nobody_knows(neo4j_graph: Neo4jGraph, make: Make) -> None:
    reads = loaded(make()).reads(Scope("nobody", None, 1), PATIENT_MS)
    assert reads.steps([f"{ENTITY_PREFIX}x"], EDGE_CAPS).edges() == []
    walk, wanted = walk_asked({"x": 1.0}, {"why": 1.0}), Wanted(["x"], ["x"], ["x"], 1, ["x"], None)
    assert reads.walked(walk, wanted).walk.ids == ["x"]
    assert reads.text_hits(["x"], 3) == ([], [])
    assert reads.vectors(["x"]).any() == numpy.False_
    assert reads.standings(wanted).ids == []
    nothing = StoriesAsked(["x"], ["x"], [["x"]], None, ["x"], " x ", ["x"], [(0, 1)])
    assert reads.stories(nothing).ids == []
    assert reads.session_candidates("s", 3) == ([], 0, 0)


def test_fresh_knows_what_was_committed_just_before(neo4j_graph: Neo4jGraph, make: Make) -> None:
    client = loaded(make())
    for number in range(20):
        event_id = write(neo4j_graph, number)
        assert newest(client.reads(SCOPE, PATIENT_MS, fresh=True)) == event_id


def test_what_is_committed_is_known_before_long(neo4j_graph: Neo4jGraph, make: Make) -> None:
    client = loaded(make())
    event_id = write(neo4j_graph, 1)
    wait_until(lambda: newest(client.reads(SCOPE, PATIENT_MS)) == event_id, "it is followed")
    assert client.state(PATIENT_MS).events == 1


class GatedColumns(Columns):
    """Whose rounds after the first end one by one, as they may."""

    def __init__(self, graph: Graph) -> None:
        super().__init__(graph)
        self.rounds = 0
        self.gate = threading.Semaphore(0)

    def catch_up(self, most: int = 20) -> None:
        super().catch_up(most)
        self.rounds += 1
        self.gate.acquire()


@pytest.fixture
def gated() -> Iterator[tuple[GatedColumns, Follower]]:
    """Whose first round is at the gate."""
    graph = MemoryGraph()
    graph.ensure_schema()
    columns = GatedColumns(graph)
    follower = Follower(columns)
    wait_until(lambda: columns.rounds == 1, "a round waits at the gate")
    yield columns, follower
    columns.gate.release(1_000)


def fresh_question(timeout_ms: int = PATIENT_MS) -> Question:
    return Question(True, timeout_ms, SCOPE, "text_hits", [["x"], 1])


def test_fresh_questions_share_the_round_that_begins_after_them(
    gated: tuple[GatedColumns, Follower],
) -> None:
    columns, follower = gated
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(follower.answer, fresh_question()) for _ in range(8)]
        wait_until(lambda: follower.waiting == 8, "all of them wait")
        columns.gate.release()
        wait_until(lambda: columns.rounds == 2, "a round that began after them is at the gate")
        assert not any(answer.done() for answer in answers)
        columns.gate.release()
        assert {decoded(answer.result())[2] for answer in answers} == {None}


def test_a_fresh_question_waits_half_of_its_time_at_most(
    gated: tuple[GatedColumns, Follower],
) -> None:
    columns, follower = gated
    answer, _, error = decoded(follower.answer(fresh_question(20)))
    assert (answer, error) == ([[], []], None)
    assert columns.rounds == 1


# Whose it is


CHILD = """
import sys; sys.path[:0] = [{root!r}]
from pathlib import Path
from pipelines.columns.client import ColumnsClient
from pipelines.work.settings import Settings
folder = Path({folder!r})
settings = Settings(model_process_dir=folder, data_dir=folder)
client = ColumnsClient({uri!r}, "neo4j", settings, linger_s=0.3)
client.state(120_000)
print(client.pid, flush=True)
sys.stdin.read()
client.close()
"""


def test_processes_share_one_process(folder: Path, neo4j_url: str, make: Make) -> None:
    code = CHILD.format(root=str(ROOT), folder=str(folder), uri=neo4j_url)
    children = [
        subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    pids = {int(child.stdout.readline()) for child in children if child.stdout}
    client = loaded(make())
    assert pids == {client.pid}
    for child in children:
        child.communicate()
    assert client.state(PATIENT_MS).is_loaded
    assert pids == {client.pid}


def test_it_ends_after_its_last_client(make: Make) -> None:
    client = loaded(make())
    pid = client.pid
    assert pid is not None
    client.close()
    wait_until(partial(is_gone, pid), "it ends")
    with pytest.raises(GraphUnavailable):
        client.reads(SCOPE, PATIENT_MS).text_hits(["x"], 1)


def test_other_graphs_and_other_passwords_are_other_processes(make: Make, neo4j_url: str) -> None:
    clients = [
        make(),
        make(password="right"),
        make(uri=neo4j_url.replace("127.0.0.1", "localhost")),
    ]
    assert len({loaded(client).pid for client in clients}) == len(clients)


def test_it_tells_its_password_to_nobody(make: Make, folder: Path, neo4j_url: str) -> None:
    if not sys.platform.startswith("linux"):
        pytest.skip("what a process was started with is shown by Linux only")
    secret = "not for everybody"
    client = loaded(make(password=secret))
    reads = client.reads(SCOPE, PATIENT_MS)
    with pytest.raises(GraphUnavailable):  # a traceback goes to the log
        client.ask(Question(False, PATIENT_MS, SCOPE, "text_hits", [3]))
    assert reads.text_hits(["x"], 1).shown == []
    process = Path(f"/proc/{client.pid}")
    written = [path for path in folder.rglob("*") if path.is_file()]
    shown = [process / "cmdline", process / "environ", *written]
    texts = [path.read_bytes() for path in shown]
    assert b"pipelines.columns.service" in texts[0]
    assert any(b"Traceback" in text for text in texts)
    for text in texts:
        assert secret.encode() not in text
    assert neo4j_url.encode() not in texts[0]
    assert b"RECOLLECT_" not in texts[1]
    assert any(path.suffix == ".sqlite" for path in written)
    assert {path.stat().st_mode & 0o077 for path in (folder, *written)} == {0}


def test_a_folder_of_somebody_else_is_refused(folder: Path, neo4j_url: str) -> None:
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    for path in (folder / "link", folder / ("x" * 100)):
        client = ColumnsClient(neo4j_url, DATABASE, Settings(model_process_dir=path))
        with pytest.raises(GraphUnavailable):
            client.reads(SCOPE, PATIENT_MS).text_hits(["x"], 1)
        assert not client.state().is_loaded
    assert list((folder / "real").iterdir()) == []


# What may go wrong


def test_killed_under_load_no_answer_is_wrong(neo4j_graph: Neo4jGraph, make: Make) -> None:
    ids = [write(neo4j_graph, number) for number in range(60)]
    clients = [loaded(make()), loaded(make())]
    stop = threading.Event()
    wrong: list[object] = []
    answered: list[int] = [0, 0]

    def ask(place: int) -> None:
        reads = clients[place].reads(SCOPE, PATIENT_MS)
        while not stop.is_set():
            try:
                candidates = reads.session_candidates("s", 60)
            except GraphUnavailable:  # it is being read again
                continue
            if sorted(one.event_id for one in candidates.best) != ids:
                wrong.append(candidates)
            answered[place] += 1

    def wait_for_answers() -> None:
        before = list(answered)
        wait_until(lambda: all(map(int.__lt__, before, answered)), "both are answered")

    def kill() -> None:
        pid = clients[0].pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: clients[0].pid != pid, "another is started")

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, place) for place in (0, 1, 0, 1)]
        try:
            for _ in range(3):
                wait_for_answers()
                kill()
            wait_for_answers()
        finally:
            stop.set()
        for one in asking:
            one.result()
    assert wrong == []
    assert clients[0].pid == clients[1].pid


def test_the_question_after_a_kill_waits_for_the_next_process(
    neo4j_graph: Neo4jGraph, make: Make
) -> None:
    event_id = write(neo4j_graph, 1)
    client = loaded(make())
    first = client.pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    assert newest(client.reads(SCOPE, PATIENT_MS)) == event_id
    assert client.pid != first


def test_it_answers_while_its_graph_is_away_and_catches_up(
    second_neo4j: Neo4jServer, make: Make
) -> None:
    url = emptied_neo4j(second_neo4j)
    with neo4j.GraphDatabase.driver(url) as driver:
        graph = Neo4jGraph(driver)
        graph.ensure_schema()
        before = write(graph, 1)
        client = loaded(make(uri=url))
        second_neo4j.kill()
        try:
            for fresh in (False, True):
                assert newest(client.reads(SCOPE, 2_000, fresh=fresh)) == before
            wait_until(lambda: client.state(PATIENT_MS).reason, "it says why")
            state = client.state(PATIENT_MS)
            assert state.is_loaded
            assert state.events == 1
            assert state.behind_s > 0
        finally:
            second_neo4j.start()
            second_neo4j.wait_ready()
        after = write(graph, 2)
        wait_until(lambda: newest(client.reads(SCOPE, 2_000)) == after, "it catches up")
        assert client.state(PATIENT_MS).reason == ""


def test_a_graph_that_was_never_there_is_told(make: Make) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        client = make(uri=f"bolt://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.raises(GraphUnavailable, match="are being read from the graph"):
            client.reads(SCOPE, PATIENT_MS).text_hits(["x"], 1)
        state = client.state(PATIENT_MS)
    assert not state.is_loaded
    assert "ServiceUnavailable" in state.reason


def test_a_question_that_breaks_it_harms_nobody(make: Make) -> None:
    client = loaded(make())
    pid = client.pid
    with pytest.raises(GraphUnavailable, match="cannot be asked"):
        client.ask(Question(False, PATIENT_MS, SCOPE, "steps", [3]))
    assert client.reads(SCOPE, PATIENT_MS).text_hits(["x"], 1).shown == []
    assert client.pid == pid


@pytest.mark.parametrize(
    "said",
    [
        b"\x01",
        framed(b"no JSON"),
        framed(Login("bolt://a", "b", "c", None, None).encode())[:-3],
        framed(b"[1]"),
        framed(b'["a", "b", "c", "d"]') + framed(b"{}"),
        framed(b'["a", "b", "c", "d"]') + framed(b'[1, 1, null, "steps", []]'),
        (2**31).to_bytes(4, "little") + b"x",
    ],
)
def test_a_client_that_says_nonsense_harms_nobody(make: Make, folder: Path, said: bytes) -> None:
    client = loaded(make())
    pid = client.pid
    (path,) = folder.glob("*.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as raw:
        raw.connect(str(path))
        raw.sendall(said)
        assert client.reads(SCOPE, PATIENT_MS).text_hits(["x"], 1).shown == []
    assert loaded(client).pid == pid


def test_one_that_hangs_is_ended_and_another_asked(neo4j_graph: Neo4jGraph, make: Make) -> None:
    event_id = write(neo4j_graph, 1)
    client = loaded(make(hang_s=0.5))
    first = client.pid
    assert first is not None
    reads = client.reads(SCOPE, 200)

    def is_late() -> bool:
        try:
            reads.text_hits(["x"], 1)
        except QueryTimeout:
            return True
        return False

    def is_answered() -> bool:
        try:
            return newest(client.reads(SCOPE, 1_000)) == event_id
        except (QueryTimeout, GraphUnavailable):
            return False

    os.kill(first, signal.SIGSTOP)
    try:
        wait_until(is_late, "it stands still")
        wait_until(is_answered, "another process answers")
        assert client.pid != first
        assert is_gone(first)
    finally:
        with suppress(ProcessLookupError):
            os.kill(first, signal.SIGCONT)


def test_one_that_cannot_start_is_not_started_for_each_question(folder: Path, make: Make) -> None:
    program = [
        sys.executable,
        "-c",
        f"open({str(folder / 'started')!r}, 'a').write('x'); raise SystemExit(3)",
    ]
    client = make(program=program)
    for _ in range(5):
        with pytest.raises(GraphUnavailable, match="cannot be asked"):
            client.reads(SCOPE, PATIENT_MS).text_hits(["x"], 1)
    assert (folder / "started").read_text() == "xxx"


def test_threads_ask_side_by_side(neo4j_graph: Neo4jGraph, make: Make) -> None:
    ids = [write(neo4j_graph, number) for number in range(30)]
    client = loaded(make())

    def ask(number: int) -> bool:
        reads = client.reads(SCOPE, PATIENT_MS)
        if number % 2:
            return reads.text_hits([f"x{number}"], number).shown == []
        limit = 1 + number % 30
        best: Sequence[Any] = reads.session_candidates("s", limit).best
        return [one.event_id for one in best] == ids[-limit:][::-1]

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(ask, range(400)))
