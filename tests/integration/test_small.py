"""The small edition: everything in one process and no Java, with the same graph and answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final, cast

import httpx
import pytest

from pipelines.graph.memory_graphs import SMALL_URI, graph_socket
from pipelines.graph.remote import remote_graph
from pipelines.graph.rows import FoundNode
from pipelines.local.data_folder import holder_lock, is_locked, read_holder, read_state
from pipelines.local.processes import free_port, is_alive
from pipelines.local.python_process import python_command
from pipelines.work.settings import Settings
from pipelines.work.stages import STAGES
from projections.operations import Operations, RemoveNode
from projections.schema import EVENT
from recollect import Memory
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

INCIDENT: Final = Path("pipelines/scenarios/payment_incident.jsonl")
SOON_S: Final = 120.0
"""For a process to be back, on a machine that is shared."""
AS_OF: Final = "2026-03-05T00:00:00Z"
QUESTIONS: Final = (
    "Why did the payment fail?",
    "What happened after the deploy?",
    "What is charge_card related to?",
    "Which tool failed most often?",
    "Who is maya?",
    "What was done about the timeouts, and did it help?",
)


class Small:
    """A small edition on a data folder, and commands on it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = {
            **{name: value for name, value in os.environ.items() if "RECOLLECT_" not in name},
            "RECOLLECT_API_PORT": str(free_port()),
        }

    def run(self, *words: str, fails: bool = False, **variables: str) -> Any:
        """What a command says as JSON; with `fails` its exit code and its error."""
        done = subprocess.run(
            self._command(*words),
            env=self._environment | variables,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        if fails:
            return done.returncode, done.stdout + done.stderr
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        """A command that nobody waits for."""
        return subprocess.Popen(self._command(*words), env=self._environment)

    def _command(self, *words: str) -> list[str]:
        command = python_command("pipelines.cli.main", *words)
        return [*command, "--data", str(self.folder), "--json"]

    @property
    def holder(self) -> Mapping[str, Any]:
        held = read_holder(self.folder)
        assert held is not None
        return held

    @property
    def pid(self) -> int:
        """Of the process that holds the graph; 0 while it is being started."""
        return int(self.holder["processes"]["api"]["pid"] or 0)

    def ask(self, method: str, path: str, **options: Any) -> Any:
        key = Path(self.holder["api_key_file"]).read_text(encoding="utf-8").strip()
        headers = {"X-API-Key": key, "X-Tenant": "default"}
        url = f"{self.holder['api_url']}{path}"
        answer = httpx.request(method, url, headers=headers, timeout=60.0, **options)
        assert answer.is_success, answer.text
        return answer.json()

    def ready_target(self) -> str | None:
        """What reads are answered from; None: from nothing yet."""
        try:
            answer = httpx.get(f"{self.holder['api_url']}/health/ready", timeout=30.0)
        except httpx.TransportError:
            return None
        return str(answer.json()["target"]) if answer.is_success else None

    def answers(self) -> dict[str, Any]:
        """What is answered to many questions, without what tells of the asking."""
        told: dict[str, Any] = {}
        for question in QUESTIONS:
            body = {
                "query": question,
                "session_id": "incident-12",
                "agent_id": "ops-agent",
                "user_id": "*",
                "as_of": AS_OF,
                "record_access": False,
                "timeout_ms": 20_000,
            }
            for kind in ("subgraph", "why"):
                told[f"{kind} {question}"] = self.ask("POST", f"/v1/query/{kind}", json=body)
        everyone = {"user_id": "*", "record_access": "false"}
        entities = self.ask("GET", "/v1/entities", params={**everyone, "limit": 50})
        told["entities"] = entities
        for one in entities["entities"][:8]:
            told[one["entity_id"]] = self.ask(
                "GET", f"/v1/entities/{one['entity_id']}", params=everyone
            )
        for path in ("/v1/sessions", "/v1/sessions/incident-12/events", "/v1/communities"):
            told[path] = self.ask("GET", path, params=everyone)
        told["context"] = self.ask("GET", "/v1/context/incident-12", params=everyone)
        as_of = {name for name in told if name.startswith(("subgraph", "why"))}
        return {
            name: without(answer, {"meta"} if name in as_of else {"meta", "scores"})
            for name, answer in told.items()
        }


def without(answer: Any, hidden: set[str]) -> Any:
    """An answer without how it came about, and without scores that grow old with the clock."""
    if isinstance(answer, dict):
        shown = answer.keys() - hidden
        return {name: without(answer[name], hidden) for name in sorted(shown)}
    return [without(part, hidden) for part in answer] if isinstance(answer, list) else answer


def assert_alike(answers: Mapping[str, Any], others: Mapping[str, Any]) -> None:
    """Answers are the same, or the first difference of each is told."""
    told = {
        name: next(differences(answer, others[name], ""), None) for name, answer in answers.items()
    }
    assert {name: one for name, one in told.items() if one is not None} == {}


def differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        for name in one:
            yield from differences(one[name], other[name], f"{path}.{name}")
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for number, both in enumerate(zip(one, other, strict=True)):
            yield from differences(*both, f"{path}[{number}]")
    elif one != other:
        yield f"{path}: {one} != {other}"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Small]:
    made = Small(tmp_path_factory.mktemp("small") / "data")
    try:
        made.run("up", "--small", "--detach")
        made.run("import", str(INCIDENT))
        wait_until(lambda: caught_up(made), "all is folded", SOON_S)
        made.run("consolidate")
        yield made
    finally:
        made.run("down")


def caught_up(small: Small) -> bool:
    stages = small.run("status")["stages"]
    return all(stage["started"] and not stage["lag_entries"] for stage in stages.values())


def verified(small: Small, *words: str) -> dict[str, str]:
    """Digests of all stages, of a graph that is what the ledger says."""
    report = small.run("verify", *words)
    assert report["ok"], report
    return {name: stage["digest"] for name, stage in report["stages"].items() if name in STAGES}


def test_the_client_joins_what_runs_and_leaves_it_running(small: Small) -> None:
    pid = small.pid
    with Memory.local(small.folder) as memory:
        answer = memory.ask(QUESTIONS[0], user="*", record_access=False, timeout_s=60)
        assert answer.nodes
    assert (small.pid, is_alive(pid)) == (pid, True)


def test_no_java_runs_and_one_process_does_all(small: Small) -> None:
    state = read_state(small.folder)
    assert state is not None
    assert state.targets == {}
    assert list(small.holder["processes"]) == ["api"]
    assert not list(small.folder.glob("neo4j-*"))


def test_status_names_the_target(small: Small) -> None:
    status = small.run("status")
    assert status["ok"], status
    assert [(one["name"], one["uri"]) for one in status["targets"]] == [("small", SMALL_URI)]
    assert status["graph"]["nodes"]["Event"] == 75


def test_a_process_that_is_killed_comes_back_with_the_same_graph_and_answers(small: Small) -> None:
    before, digests, pid = small.answers(), verified(small), small.pid
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: small.pid not in (0, pid) and small.ready_target(), "it is back", SOON_S)
    assert verified(small) == digests
    assert_alike(small.answers(), before)


def test_what_differs_is_found_and_mended(small: Small) -> None:
    path = graph_socket(Settings(data_dir=small.folder))
    graph = remote_graph(path, 30.0)
    key = next(cast(Iterator[FoundNode], graph.stream(EVENT.label))).key
    batch = Operations()
    batch.add(RemoveNode(EVENT.label, key))
    with graph.transaction() as transaction:
        transaction.apply(batch, EVENT.stage)
    code, told = small.run("verify", fails=True)
    assert code == 1
    assert key[1] in told
    small.run("verify", "--repair")
    verified(small)


def test_another_edition_is_refused_on_the_same_ledger(small: Small) -> None:
    code, told = small.run("up", "--detach", fails=True)
    assert code != 0
    assert "up --small" in told
    state = read_state(small.folder)
    assert state is not None, "what ran goes on"
    assert state.targets == {}


def test_what_was_so_before_is_what_ended_and_no_other_number(small: Small) -> None:
    for question, value in (
        ("What was the timeout before?", "3"),
        ("What is the timeout now?", "30"),
        ("How much was refunded?", "84.00"),
    ):
        body = {"query": question, "session_id": "s", "agent_id": "a", "user_id": "*"}
        answer = small.ask("POST", "/v1/query/subgraph", json=body)["answer"]
        assert (question, answer["value"]) == (question, value)


def known(small: Small) -> dict[str, list[tuple[str, str]]]:
    """What is known of a user: relations and targets."""
    page = small.run("user", "show", "cust-ana")
    return {
        name: [(fact["relation"], fact["target"]["name"]) for fact in page[name]]
        for name in ("facts", "wishes", "former")
    }


def test_what_a_user_corrects_is_so_and_stays_in_the_history(small: Small) -> None:
    small.run("user", "correct", "cust-ana", "lives_in", "Porto")
    wait_until(lambda: ("lives_in", "Porto") in known(small)["facts"], "it is so", SOON_S)
    small.run("user", "correct", "cust-ana", "lives_in", "Lisbon")
    small.run("user", "correct", "cust-ana", "prefers", "e-mail")
    wait_until(lambda: ("prefers", "e-mail") in known(small)["wishes"], "it is a wish", SOON_S)
    assert known(small) == {
        "facts": [("lives_in", "Lisbon")],
        "wishes": [("prefers", "e-mail")],
        "former": [("lives_in", "Porto")],
    }
    small.run("user", "correct", "cust-ana", "lives_in", "--wrong", "--reason", "moved on")
    wait_until(lambda: not known(small)["facts"], "it is not so any more", SOON_S)
    code, told = small.run("user", "correct", "cust-ana", "prefers", "--wrong", fails=True)
    assert (code, "target" in told) == (4, True)
    code, told = small.run("user", "correct", "*", "prefers", "tea", fails=True)
    assert (code, "user_id" in told) == (4, True)
    file = small.folder / "ana.jsonl"
    report = small.run("user", "export", "cust-ana", str(file))
    users = {json.loads(line)["user_id"] for line in file.read_text().splitlines()}
    assert (users, report["written"]["events"] >= 35) == ({"cust-ana"}, True)


def test_it_moves_up_to_a_neo4j_that_answers_alike(small: Small, neo4j_url: str) -> None:
    before, digests, of_user = small.answers(), verified(small), known(small)
    report = small.run("rebuild", "--into", f"blue={neo4j_url}", "--switch")
    assert report["switched"]
    assert {name: one["digest"] for name, one in report["stages"].items()} == digests
    wait_until(lambda: small.ready_target() == "blue", "Neo4j answers", SOON_S)
    assert_alike(small.answers(), before)
    assert known(small) == of_user, "what was corrected is corrected"
    later = {**json.loads(INCIDENT.read_text(encoding="utf-8").splitlines()[0])}
    later |= {"event_id": "019cb8a0-0088-7000-8000-0000000000ff", "session_id": "later"}
    later.pop("parent_event_id", None)
    small.ask("POST", "/v1/events", json=later)
    wait_until(lambda: caught_up(small), "both are kept in step", SOON_S)
    assert verified(small, "--target", "small") == verified(small, "--target", "blue")
    found = small.run("targets", "diff", "small", "blue")
    assert found["same"], found["examples"]
    assert found["compared"] > 300
    told = small.ask("GET", "/v1/admin/targets")
    assert [(one["name"], one["state"]) for one in told["targets"]] == [
        ("blue", "active"),
        ("small", "standby"),
    ]
    proved = {proof["stage"] for one in told["targets"] for proof in one["proofs"]}
    assert proved >= {"projection", "enrichment", "consolidation"}
    compared = told["comparison"]
    assert (compared["first"], compared["second"], compared["same"]) == ("small", "blue", True)


def test_what_an_up_began_that_was_killed_while_it_waited_is_stopped(tmp_path: Path) -> None:
    begun = Small(tmp_path / "data")
    lock = holder_lock(begun.folder)
    up = begun.start("up", "--small", "--detach")
    wait_until(lambda: is_locked(lock), "the holder starts", SOON_S)
    up.kill()
    up.wait()
    assert read_holder(begun.folder) is None, "it was ready before it could be killed"
    assert begun.run("down")["stopped"]
    assert not is_locked(lock)
    assert not begun.run("down")["stopped"]


def test_two_that_start_it_at_once_both_wait_for_it(tmp_path: Path) -> None:
    begun = Small(tmp_path / "data")
    try:
        ups = [begun.start("up", "--small", "--detach") for _ in range(2)]
        assert [up.wait(timeout=2 * SOON_S) for up in ups] == [0, 0]
    finally:
        begun.run("down")


def test_a_sealed_ledger_without_its_keys_is_refused_at_once(tmp_path: Path) -> None:
    begun = Small(tmp_path / "data")
    try:
        begun.run("up", "--small", "--detach")
        begun.run("seal", "--tenant", "acme", RECOLLECT_MASTER_KEY="ab" * 32)
        begun.run("down")
        code, told = begun.run("up", "--small", "--detach", fails=True)
        assert (code, "no master key" in told) == (3, True), told
        assert not begun.run("down")["stopped"]
    finally:
        begun.run("down")


def test_all_of_it_ends(small: Small) -> None:
    pids = [small.pid, int(small.holder["pid"])]
    assert small.run("down")["stopped"]
    assert not any(map(is_alive, pids))
    assert not graph_socket(Settings(data_dir=small.folder)).exists()
    code, told = small.run("status", fails=True)
    assert code != 0
    assert "up" in told
