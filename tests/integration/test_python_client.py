"""The Python client against a running API, whose graph a worker keeps up."""

from __future__ import annotations

import asyncio
import os
import re
import subprocess
import sys
import threading
import uuid
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.local.processes import free_port
from pipelines.local.servers import Neo4jServer, ValkeyServer
from recollect import (
    AsyncMemory,
    ConnectionFailed,
    Counts,
    InvalidInput,
    LocalServicesFailed,
    Memory,
    NoAnswer,
    NotFound,
    TimeLimit,
    Unauthenticated,
    Undelivered,
)
from recollect.local import LocalServices, data_folder
from tests.fakes.proxy import CuttingProxy
from tests.integration.api_support import READ_KEY, WRITE_KEY, Api, running_api
from tests.integration.workers import OF_CLIENTS, PATIENCE_S, Workers
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
CLIENT = ROOT / "clients" / "python"
FIVE_LINES = """
from recollect import Memory
memory = Memory({url!r}, {key!r})
with memory.session({session!r}, agent="payments") as session:
    session.log("user", "My card was charged twice")
print(memory.ask("why was the card charged twice?", timeout_s=30).text)
"""


@pytest.fixture(scope="module")
def api(workers: Workers, valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Api]:
    with running_api(valkey.url, neo4j.url, **OF_CLIENTS, stream_life_s=0.1) as running:
        yield running


@pytest.fixture
def memory(api: Api) -> Iterator[Memory]:
    with Memory(api.url, WRITE_KEY, agent="payments") as opened:
        yield opened


def new_session() -> str:
    return f"s-{uuid.uuid4()}"


def settle(memory: Memory, workers: Workers) -> None:
    assert memory.flush(PATIENCE_S)
    workers.fold()
    memory.wait(PATIENCE_S)


def test_what_is_logged_is_found_at_once(memory: Memory) -> None:
    """By its words, before any worker has seen it."""
    with memory.session(new_session()) as session:
        event_id = session.log("user", "A walrus was charged twice")
    answer = memory.ask("which walrus was charged?", timeout_s=PATIENCE_S)

    assert event_id in [node.node_id for node in answer.nodes]
    assert "A walrus was charged twice" in answer.text
    assert str(answer) == answer.text
    assert (answer.is_answered, answer.meta.withheld) == (True, 0)
    assert memory.counts == Counts(accepted=1)


def test_a_question_is_limited_to_kinds(memory: Memory, workers: Workers) -> None:
    with memory.session(new_session()) as session:
        said = session.log("user", "A quokka was charged twice")
        decided = session.log("decision", "The quokka gets its money back")
    settle(memory, workers)
    answer = memory.ask("quokka", kinds=["decision"], proactive=False, timeout_s=PATIENCE_S)
    found = [node.node_id for node in answer.nodes]
    assert (decided in found, said in found) == (True, False)
    with pytest.raises(InvalidInput, match="'decision'"):
        memory.ask("quokka", kinds=["error"])


def test_its_words_are_shown_before_the_second_stage_has_read_them(
    memory: Memory, workers: Workers
) -> None:
    session = memory.session(new_session())
    session.log("user", "An ibex was charged twice")
    assert memory.flush(PATIENCE_S)
    workers.project()
    assert "An ibex was charged twice" in memory.context(session.id, timeout_s=PATIENCE_S).text


def test_a_session_with_a_tool_becomes_a_tree_of_causes(memory: Memory, workers: Workers) -> None:
    @memory.tool
    def charge(order: str) -> None:
        raise TimeoutError("the gateway did not answer")

    session_id = new_session()
    with memory.session(session_id, user="ana") as session:
        asked = session.log("user", "Please charge order 4711")
        with pytest.raises(TimeoutError):
            charge("4711")
        decided = session.log("decision", "Try again tomorrow")
    settle(memory, workers)

    context = memory.context(session_id, user="ana", timeout_s=PATIENCE_S)

    causes = {edge.source: edge.target for edge in context.edges if edge.type == "CAUSED_BY"}
    kinds = {node.node_id: node.attributes["event_type"] for node in context.nodes}
    chain = [decided]
    while chain[-1] in causes:
        chain.append(causes[chain[-1]])
    assert [kinds[each] for each in chain] == [
        "agent.decision",
        "tool.result",
        "tool.call",
        "message.user",
    ]
    assert chain[-1] == asked
    assert "the gateway did not answer" in context.text
    assert {node.attributes["status"] for node in context.nodes} >= {"timeout"}


def test_a_context_of_a_question_begins_with_what_answers_it(
    memory: Memory, workers: Workers
) -> None:
    session = memory.session(new_session())
    for text in ("The harbour is closed", "A lantern hangs there", "The violin is out of tune"):
        session.log("user", text)
    settle(memory, workers)
    context = memory.context(session.id, "what about the violin?", timeout_s=PATIENCE_S)
    first = context.nodes[0].node_id
    assert "[e1]" in next(line for line in context.text.splitlines() if "violin" in line)
    assert f"e1={first}" in context.text


def test_an_answer_has_pages(memory: Memory, workers: Workers) -> None:
    session = memory.session(new_session())
    logged = {session.log("user", f"the glacier number {number} melts") for number in range(7)}
    settle(memory, workers)
    first = memory.ask("glacier melts", session=session.id, max_nodes=3, timeout_s=PATIENCE_S)

    pages = list(memory.pages(first))

    shown = [node.node_id for page in pages for node in page.nodes]
    assert pages[0] is first
    assert all(len(page.nodes) <= 3 for page in pages)
    assert len(shown) == len(set(shown))
    assert logged <= set(shown)
    assert pages[-1].next_cursor is None


def test_facts_and_entities_come_with_their_pages(memory: Memory, workers: Workers) -> None:
    session = memory.session(new_session())
    for number in range(5):
        fact = {
            "source": {"name": "otter"},
            "relation": "eats",
            "target": {"name": f"fish {number}"},
        }
        session.log("memory.fact_asserted", fact)
    settle(memory, workers)

    names = [each.name for each in memory.entities("fish", page=2, timeout_s=PATIENCE_S)]
    facts = memory.facts("What does the otter eat?", max_facts=2, timeout_s=PATIENCE_S)

    fishes = [f"fish {number}" for number in range(5)]
    assert sorted(names) == fishes
    targets = [fact.target.name for page in memory.pages(facts) for fact in page]
    assert sorted(targets) == fishes
    assert len(facts) == 2
    assert [seed.name for seed in facts.seeds] == ["otter"]
    assert "otter" in facts.text


def test_a_person_is_known_by_wishes_and_facts(memory: Memory, workers: Workers) -> None:
    session = memory.session(new_session(), agent="ida", user="cust-ida")
    session.log("user", "I live in Bergen. Please never call me before noon.")
    settle(memory, workers)
    known = memory.person("cust-ida", timeout_s=PATIENCE_S)
    assert [wish.target.name for wish in known.wishes] == ["never call me before noon"]
    assert [(fact.relation, fact.target.name) for fact in known.facts] == [("lives_in", "Bergen")]
    assert known.text.splitlines()[1] == "### Do not"
    assert known.former == []
    with pytest.raises(NotFound):
        memory.person("nobody-of-that-name", timeout_s=PATIENCE_S)


def test_why_is_answered_as_a_tree(memory: Memory, workers: Workers) -> None:
    session = memory.session(new_session())
    session.log("user", "Charge the pelican")
    failed = session.log("failure", "The pelican has no money", tool="charge")
    settle(memory, workers)
    try:
        why = memory.why("why was the pelican not charged?", timeout_s=PATIENCE_S)
    except NotFound:
        pytest.skip("this API has no POST /v1/query/why yet")
    assert why.text
    assert failed in [cause.node_id for cause in why.causes]


def test_the_awaiting_client_answers_as_the_blocking_one(api: Api, workers: Workers) -> None:
    async def use() -> tuple[list[str], str, list[str], Counts]:
        async with AsyncMemory(api.url, WRITE_KEY, agent="payments") as awaiting:

            @awaiting.tool
            async def count(what: str) -> int:
                await asyncio.sleep(0)
                return 3

            with awaiting.session(new_session()) as session:
                await count("cormorants")
                session.log("assistant", "There are three cormorants")
                assert await awaiting.flush(PATIENCE_S)
                await asyncio.to_thread(workers.fold)
                await awaiting.wait(PATIENCE_S)
                context = await awaiting.context(timeout_s=PATIENCE_S)
            answer = await awaiting.ask(
                "how many cormorants?", session=session.id, max_nodes=1, timeout_s=PATIENCE_S
            )
            pages = [page async for page in awaiting.pages(answer)]
            nodes = [node.node_id for page in pages for node in page.nodes]
            kinds = [node.attributes["event_type"] for node in context.nodes]
            return sorted(kinds), answer.text, nodes, awaiting.counts

    kinds, text, nodes, counts = asyncio.run(use())
    assert kinds == ["message.assistant", "tool.call", "tool.result"]
    assert "cormorants" in text
    assert len(nodes) == len(set(nodes)) > 1
    assert counts == Counts(accepted=3)


def test_a_reply_that_is_lost_makes_no_second_event(api: Api, workers: Workers) -> None:
    port = httpx.URL(api.url).port
    assert port is not None
    with CuttingProxy(port, lose_replies_to=b"/v1/events/batch") as proxy:
        with Memory(f"http://127.0.0.1:{proxy.port}", WRITE_KEY) as memory:
            session = memory.session(new_session())
            event_id = session.log("user", "once and only once")
            assert memory.flush(PATIENCE_S)
            counts = memory.counts
            settle(memory, workers)
            context = memory.context(session.id, timeout_s=PATIENCE_S)
        assert proxy.cuts == 1
    assert counts == Counts(accepted=1)
    assert [node.node_id for node in context.nodes] == [event_id]


def test_what_the_api_refuses_is_told_with_field_and_rule(api: Api) -> None:
    told: list[Undelivered] = []
    with (
        warnings.catch_warnings(record=True) as seen,
        Memory(api.url, WRITE_KEY, on_undelivered=told.append) as memory,
    ):
        warnings.simplefilter("always")
        memory.log("user", "hello")
        bad = memory.log("user", "x" * 300_000)
        memory.flush(PATIENCE_S)
        counts = memory.counts
    assert [f"first {bad} refused" in str(each.message) for each in seen] == [True]
    assert told[0].reason.endswith("payload: at most 256 KiB serialised")
    assert [each.event_id for each in told] == [bad]
    assert told[0].event["payload"]["role"] == "user"
    assert counts == Counts(accepted=1, refused=1)


def test_in_the_foreground_a_refusal_is_raised(api: Api) -> None:
    with Memory(api.url, WRITE_KEY, background=False) as memory:
        memory.log("user", "hello")
        with pytest.raises(InvalidInput) as refused:
            memory.log("user", "x" * 300_000)
    assert [(rule.field, rule.rule) for rule in refused.value.errors] == [
        ("payload", "at most 256 KiB serialised")
    ]


def test_a_question_that_breaks_a_rule_names_it(memory: Memory) -> None:
    with pytest.raises(InvalidInput, match="query: String should have at most 8192") as refused:
        memory.ask("x" * 9_000)
    assert [rule.field for rule in refused.value.errors] == ["query"]
    assert refused.value.request_id is not None


def test_a_wrong_key_and_an_unknown_session_have_errors_of_their_own(
    api: Api, memory: Memory
) -> None:
    with Memory(api.url, "no-key") as stranger, pytest.raises(Unauthenticated):
        stranger.ask("who am I?")
    with pytest.raises(NotFound):
        memory.context("no-such-session", timeout_s=PATIENCE_S)


def test_nobody_who_answers_is_a_failed_connection() -> None:
    with (
        Memory(f"http://127.0.0.1:{free_port()}") as memory,
        pytest.raises(ConnectionFailed) as failed,
    ):
        memory.ask("is anybody there?")
    assert failed.value.retryable


def test_waiting_ends_when_the_graph_has_what_was_logged(memory: Memory, workers: Workers) -> None:
    session = memory.session(new_session())
    session.log("user", "wait for me")
    with pytest.raises(TimeLimit):  # nobody folds
        memory.wait(0.5)
    later = threading.Timer(0.5, workers.fold)
    later.start()
    memory.wait(PATIENCE_S)
    later.join()
    assert len(memory.context(session.id, timeout_s=PATIENCE_S).nodes) == 1


def test_waiting_for_an_api_that_is_away_says_so() -> None:
    with Memory(f"http://127.0.0.1:{free_port()}") as memory:
        memory.log("user", "hello")
        with pytest.raises(NoAnswer, match="1 events are not with the API in time"):
            memory.wait(0.2)
        with pytest.warns(UserWarning, match="dropped: not delivered within 0.1 s of the end"):
            memory.close(0.1)


def test_the_code_of_the_page_works_as_printed(
    api: Api, workers: Workers, capsys: pytest.CaptureFixture[str]
) -> None:
    page = (ROOT / "docs" / "how-to" / "python-client.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    code = "\n".join(blocks).replace("http://127.0.0.1:8080", api.url)
    with workers.at_work():
        exec(code, {"key": WRITE_KEY})

    printed = capsys.readouterr().out
    assert "order 4711" in printed
    assert "more than the limit" in printed
    assert "max_nodes Input should be less than or equal to 500" in printed
    assert "Counts(waiting=0, accepted=1, refused=0, dropped=0)" in printed
    assert "Where is order 4714?" in printed


def test_changes_come_over_breaks_of_the_connection(api: Api, memory: Memory) -> None:
    """Each once and in order, whatever is cut and however often the API ends a stream."""
    session_id, texts = new_session(), [f"harbour {number}" for number in range(60)]
    came: list[str] = []

    def follow(follower: Memory) -> None:
        for change in follower.changes(session=session_id, since="0"):
            came.append(change.payload["content"])
            if len(came) == len(texts):
                return

    with (
        CuttingProxy(httpx.URL(api.url).port or 0) as proxy,
        Memory(f"http://127.0.0.1:{proxy.port}", READ_KEY) as follower,
    ):
        thread = threading.Thread(target=follow, args=(follower,))
        thread.start()
        session = memory.session(session_id)
        for number, text in enumerate(texts):
            session.log("user", text)
            if number % 20 == 10:
                assert memory.flush(PATIENCE_S)
                wait_until(lambda: len(came) > 0, "the first ones")
                proxy.cut()
        thread.join(PATIENCE_S)
        assert not thread.is_alive()
        assert proxy.cuts == 3
    assert came == texts


def test_changes_until_now_and_by_kind_and_user(memory: Memory) -> None:
    session = memory.session(new_session(), user="ana")
    logged = [
        session.log("user", "Where is order 4711?"),
        session.log("call", {"order": "4711"}, tool="look_up"),
        session.log("decision", "It is sent again"),
    ]
    assert memory.flush(PATIENCE_S)
    here: dict[str, Any] = {"session": session.id, "since": "0", "wait": False}

    assert list(memory.changes(**here)) == []
    seen = list(memory.changes(**here, user="ana"))
    assert [change.event_id for change in seen] == logged
    assert [change.kind for change in seen] == ["message", "call", "decision"]
    with session:  # the view of its user
        behind = memory.changes(**{**here, "since": seen[0].global_position}, kinds=["decision"])
        assert [change.event_id for change in behind] == logged[2:]


def test_changes_tell_what_is_wrong_at_once(api: Api, memory: Memory) -> None:
    with pytest.raises(InvalidInput) as caught:
        next(memory.changes(since="yesterday"))
    assert caught.value.errors[0].field == "from"
    with Memory(api.url, "no-such-key") as stranger, pytest.raises(Unauthenticated):
        next(stranger.changes(wait=False))
    with Memory(f"http://127.0.0.1:{free_port()}") as nowhere, pytest.raises(ConnectionFailed):
        next(nowhere.changes())


async def test_changes_are_awaited(api: Api) -> None:
    async with AsyncMemory(api.url, WRITE_KEY) as memory:
        session = memory.session(new_session())
        logged = [session.log("user", f"lantern {number}") for number in range(5)]
        came: list[str] = []
        async for change in memory.changes(session=session.id, since="0"):
            came.append(change.event_id)
            if len(came) == 5:
                logged.append(session.log("user", "the last lantern"))
            if len(came) == 6:
                break
        assert came == logged
        pages = memory.changes(session=session.id, since="0", wait=False)
        assert [change.event_id async for change in pages] == logged


def test_the_local_memory_is_where_the_command_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_DATA_DIR", "/somewhere")
    assert [data_folder(None), data_folder("here")] == [Path("/somewhere"), Path("here")]
    monkeypatch.delenv("RECOLLECT_DATA_DIR")
    assert data_folder(None) == Path(".recollect")


def test_without_the_services_it_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalServicesFailed, match="pip install recollect, or name the address"):
        LocalServices.start(tmp_path / "data")


def test_the_wheel_works_in_an_environment_of_its_own(api: Api, tmp_path: Path) -> None:
    uv, wheels, own = Path(sys.executable).with_name("uv"), tmp_path / "wheels", tmp_path / "own"
    python = str(own / "bin" / "python")

    def run(*command: str | Path) -> subprocess.CompletedProcess[str]:
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run(
            [str(part) for part in command],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )

    build = ("build", "--wheel", "--no-build-isolation", "--python", sys.executable)
    built = run(uv, *build, "--out-dir", wheels, CLIENT)
    assert built.returncode == 0, built.stderr
    assert run(uv, "venv", "--python", sys.executable, own).returncode == 0
    (wheel,) = wheels.glob("*.whl")
    installed = run(uv, "pip", "install", "--python", python, wheel)
    if "Failed to fetch" in installed.stderr or "error sending request" in installed.stderr:
        pytest.skip("no registry of packages is in reach")
    assert installed.returncode == 0, installed.stderr

    session = new_session()
    done = run(python, "-c", FIVE_LINES.format(url=api.url, key=WRITE_KEY, session=session))
    there = run(python, "-c", "import recollect; print(recollect.__file__)")

    assert done.returncode == 0, done.stderr
    assert "My card was charged twice" in done.stdout
    assert Path(there.stdout.strip()).is_relative_to(own)
    assert (Path(there.stdout.strip()).parent / "py.typed").exists()
