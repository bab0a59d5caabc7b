"""`up`, `worker`, `serve`, `down` as processes: what runs, what dies with whom, what stays."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from pipelines.cli.invocation import settings_of
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.registry import Target, Targets
from pipelines.local.companions import wanted
from pipelines.local.data_folder import read_holder
from pipelines.local.processes import is_alive
from pipelines.local.python_process import python_environment
from pipelines.local.workers import RECOLLECT
from pipelines.operations.demo import EVENTS, FAILURE, scenario_path
from pipelines.work.stages import STAGES
from tests.waiting import wait_until

pytestmark = pytest.mark.acceptance
COMMAND = [sys.executable, "-m", "pipelines.cli.main"]
PACKAGES = ("pipelines", "api", "projections", "enrichment", "consolidation")
PATIENCE_S = 600.0


def environment() -> dict[str, str]:
    variables = python_environment()
    return {name: value for name, value in variables.items() if not name.startswith("RECOLLECT_")}


def run(
    *arguments: str,
    data: Path,
    timeout_s: float = 900.0,
    settings: Mapping[str, str] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command in the folder around the data, as `recollect` does."""
    return subprocess.run(
        [*RECOLLECT, *arguments, "--json", "--data", data.name],
        cwd=data.parent,
        capture_output=True,
        timeout=timeout_s,
        env={**environment(), **(settings or {})},
        check=False,
        text=True,
    )


def recollect(*arguments: str, data: Path, code: int = 0, **options: Any) -> dict[str, Any]:
    """What a command tells, and that it ends as it should; options as of `run`."""
    done = run(*arguments, data=data, **options)
    assert done.returncode == code, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def children(pid: int) -> dict[int, str]:
    """Child processes and their command lines."""
    listed = subprocess.run(
        ["ps", "-ww", "-o", "pid=,args=", "--ppid", str(pid)],
        capture_output=True,
        check=False,
        text=True,
    )
    rows = (line.split(maxsplit=1) for line in listed.stdout.splitlines())
    return {int(number): arguments for number, arguments in rows}


def own_packages(folder: Path, *names: str) -> None:
    """Packages of a user's project that are named like ours and tell when they are run."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / "__init__.py").write_text(
            "from pathlib import Path\n"
            "Path(__file__).with_name('executed').touch()\n"
            "raise ImportError('a package of the user, not ours')\n",
            encoding="utf-8",
        )


def executed(folder: Path) -> list[str]:
    return [str(path.parent.name) for path in folder.rglob("executed")]


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder whose services run, with the scenario imported.

    It lies in a project whose packages are named like ours, and all commands run there: none of
    the processes that they start may take those for ours.
    """
    project = tmp_path_factory.mktemp("project")
    own_packages(project, *PACKAGES)
    folder = project / "data"
    up = recollect("up", "--detach", data=folder)
    try:
        assert up["redis_url"].startswith("redis://127.0.0.1:")
        assert up["neo4j_url"] == up["neo4j_urls"]["blue"]
        assert recollect("import", str(scenario_path()), data=folder)["new"] == EVENTS
        yield folder
    finally:
        recollect("down", data=folder)


def new_event(data: Path, number: str) -> dict[str, Any]:
    """One that no import has brought yet; it is in `NUMBER.jsonl` of the project."""
    event: dict[str, Any] = json.loads(scenario_path().read_text("utf-8").splitlines()[0])
    event["event_id"] = event["event_id"][: -len(number)] + number
    (data.parent / f"{number}.jsonl").write_text(json.dumps(event), encoding="utf-8")
    return event


@pytest.fixture
def worker(data: Path) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [*RECOLLECT, "worker", "projection", "--data", data.name],
        cwd=data.parent,
        stderr=subprocess.DEVNULL,
        env=environment(),
    )
    yield process
    process.kill()
    process.wait()


def test_a_worker_folds_what_was_imported_and_ends_with_0_on_sigterm(
    data: Path, worker: subprocess.Popen[bytes]
) -> None:
    again = recollect("import", str(scenario_path()), "--wait", data=data)
    assert (again["new"], again["projected"], again["behind"]) == (0, True, None)
    status = recollect("status", data=data)
    assert status["stages"]["projection"]["lag_entries"] == 0
    assert status["graph"]["nodes"]["Event"] == EVENTS
    verified = recollect("verify", data=data)
    assert (verified["ok"], verified["events"], verified["differences"]) == (True, EVENTS, [])
    worker.send_signal(signal.SIGTERM)
    assert worker.wait(60) == 0


def test_waiting_without_a_worker_gives_up_with_1(data: Path) -> None:
    new_event(data, "999")
    waited = recollect("import", "999.jsonl", "--wait", "--wait-timeout", "1", data=data, code=1)
    assert "error" not in waited, waited
    assert (waited["new"], waited["projected"], waited["behind"]) == (1, False, "projection")


def test_every_other_target_has_a_worker_that_dies_with_its_parent(
    data: Path, worker: subprocess.Popen[bytes]
) -> None:
    recollect("up", "--detach", data=data)
    with connect_redis(settings_of(None, None, data)) as client:
        targets = Targets(client)
        # Servers that are away: their workers wait, which is all that this needs.
        targets.register(Target("green", "bolt://127.0.0.1:1", "neo4j", "standby"))
        targets.register(Target("grey", "bolt://127.0.0.1:1", "neo4j", "building"))

        def companions() -> list[int]:
            return [pid for pid, line in children(worker.pid).items() if "--target" in line]

        try:
            [first] = wait_until(companions, "a worker for green", PATIENCE_S)
            assert "--target green" in children(worker.pid)[first]
            os.kill(first, signal.SIGKILL)
            [second] = wait_until(
                lambda: [p for p in companions() if p != first], "another one", PATIENCE_S
            )
            worker.send_signal(signal.SIGKILL)
            wait_until(lambda: not is_alive(second), "the end of green's worker", PATIENCE_S)
        finally:
            targets.drop("green")
            targets.drop("grey")


def wait_for_models(data: Path) -> None:
    """See the models at work, which are children of a worker and of the API."""
    event = new_event(data, "998")
    assert recollect("import", "998.jsonl", "--wait", data=data)["projected"]

    def enriched() -> bool:
        return bool(recollect("status", data=data)["stages"]["enrichment"]["lag_entries"] == 0)

    def answered() -> bool:
        question = ("ask", event["event_type"], "--session", event["session_id"])
        return run(*question, data=data).returncode == 0

    wait_until(enriched, "the enrichment", PATIENCE_S)
    wait_until(answered, "an answer of the API", PATIENCE_S)


def test_all_adds_worker_and_api_that_outlive_their_holders_and_down_leaves_nothing(
    data: Path,
) -> None:
    """It is the last on this data: what it stops stays stopped."""
    up = recollect("up", "--detach", "--all", data=data)
    assert set(up["processes"]) == {"api", *(f"worker-{stage}" for stage in STAGES)}
    assert all(is_alive(process["pid"]) for process in up["processes"].values())
    assert recollect("up", "--detach", "--all", data=data)["processes"] == up["processes"]
    key = Path(up["api_key_file"])
    assert key.stat().st_mode & 0o077 == 0
    question = urllib.request.Request(
        f"{up['api_url']}/v1/events/{FAILURE}?user_id=*",
        headers={"X-API-Key": key.read_text(encoding="utf-8")},
    )

    def is_answered() -> bool:
        try:
            with urllib.request.urlopen(question, timeout=30) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    assert is_answered()
    wait_for_models(data)
    # That of Valkey and the graph, then that of the workers and the API: each is brought back by
    # the other, and what it held with it.
    for name, holder in wanted(data).items():
        os.kill(holder.pid, signal.SIGKILL)
        wait_until(lambda: wanted(data)[name].pid != holder.pid, f"{name} is back", PATIENCE_S)  # noqa: B023
        wait_until(is_answered, f"the API answers after {name} was killed", PATIENCE_S)
    up = recollect("up", "--detach", "--all", data=data)
    killed = up["processes"]["worker-projection"]["pid"]
    os.kill(killed, signal.SIGKILL)

    def is_told() -> bool:
        told = read_holder(data) or up
        return told["processes"]["worker-projection"]["pid"] not in (None, killed)

    wait_until(is_told, "the worker that was started again is told", PATIENCE_S)
    up = recollect("up", "--detach", "--all", data=data)
    state = json.loads((data / "run" / "services.json").read_text(encoding="utf-8"))
    started = [*up["processes"].values(), *state["servers"].values()]
    pids = [*(one["pid"] for one in started), *(one.pid for one in wanted(data).values())]
    assert all(map(is_alive, pids))
    assert recollect("down", data=data)["stopped"] is True
    assert not [pid for pid in pids if is_alive(pid)]
    assert recollect("down", data=data)["stopped"] is False
    assert executed(data.parent) == []


def test_even_a_module_run_by_name_leaves_the_users_packages_alone(tmp_path: Path) -> None:
    own_packages(tmp_path, *(name for name in PACKAGES if name != "pipelines"))
    done = subprocess.run(
        [*COMMAND, "targets", "list", "--redis", "redis://127.0.0.1:1/0", "--json"],
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        timeout=300,
        check=False,
        text=True,
    )
    assert done.returncode == 3, done.stderr
    assert executed(tmp_path) == []
