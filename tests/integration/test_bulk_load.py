"""A new target of the data folder is filled from files, and is what Bolt would have made of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import orjson
import pytest

from pipelines.graph.bulk import BulkFiles
from pipelines.graph.port import Graph
from pipelines.graph.rows import FoundNode
from pipelines.local.data_folder import (
    connection_settings,
    exclusive_lock,
    live_servers,
    run_dir,
    target_dir,
)
from pipelines.local.processes import free_port, wait_until
from pipelines.local.services import down, drop_target, up
from pipelines.operations.bulk_load import (
    FILES_FROM,
    LOADING,
    plan,
)
from pipelines.operations.consolidate import consolidate
from pipelines.operations.rebuild import NewTarget, RebuildReport, rebuild
from pipelines.proof.shares import PROCESS_MB, FoldTask, fold_shares, shares_of
from pipelines.proof.sums import digest_text
from pipelines.proof.verify import verify
from pipelines.work.poison import PoisonPolicy
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from projections.errors import LedgerUnavailable, OperationFailed
from projections.events import Event, content_digest, parse_event
from tests.bench.stack import child_pids, command_line

pytestmark = pytest.mark.integration

INCIDENT = Path(__file__).parents[2] / "pipelines/scenarios/payment_incident.jsonl"
_PATIENCE_S = 180.0


def incident(tenant: str) -> list[Event]:
    now_ms = int(time.time() * 1_000)
    lines = INCIDENT.read_bytes().splitlines()
    events = [parse_event(orjson.loads(line), now_ms=now_ms) for line in lines]
    return [one._replace(tenant=tenant) for one in events]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data folder whose ledger has two tenants, decisions, and an entry that is no event."""
    data_dir = tmp_path_factory.mktemp("load") / "data"
    up(data_dir, detach=True)
    try:
        with opened(data_dir) as services:
            services.active()
            services.ledger.admit()
            services.ledger.append([*incident("shop"), *incident("branch")])
            append_raw(services, b"no event")
            rebuild(services)
            consolidate(services)
        yield data_dir
    finally:
        down(data_dir)


def append_raw(services: Services, data: bytes) -> None:
    """Write bytes into the first stream as the append script writes events."""
    keys, redis = services.ledger.keys, cast(Any, services.redis)
    seq = redis.incr(keys.seq(0))
    redis.xadd(keys.stream(0), {"e": data, "s": seq, "d": content_digest(data)})


def opened(data_dir: Path) -> Services:
    given = cast(dict[str, Any], connection_settings(data_dir))
    return Services(Settings(**given, data_dir=data_dir, log_level="warning", max_attempts=1))


@pytest.fixture
def services(folder: Path) -> Iterator[Services]:
    with opened(folder) as made:
        yield made


def fill(services: Services, name: str = "green", **options: Any) -> RebuildReport:
    return rebuild(services, into=NewTarget(name, "files"), **options)


def drop(services: Services, name: str = "green") -> None:
    if name in {target.name for target in services.targets.all()}:
        services.targets.drop(name)
    drop_target(services.settings.data_dir, name)


def names(services: Services) -> set[str]:
    return {target.name for target in services.targets.all()}


def test_it_holds_what_the_ledger_says_and_what_arrived_meanwhile(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []

    def arriving(done: int, total: int | None, what: str) -> None:
        if what == LOADING and LOADING not in said:
            services.ledger.append(incident("late"))
        said.append(what)

    report = fill(services, switch=True, progress=arriving)
    assert report.ok
    assert report.route == "files"
    assert set(report.seconds) == {"fold", "load", "start", "index", "prove"}
    assert report.switched
    assert services.active().name == "green"
    # folded again, by another process, and compared node by node
    proved = verify(services, target="green")
    assert proved.ok, proved.differences
    assert proved.events == report.verified.events + 75 == 225
    assert proved.system_events == report.verified.system_events > 0
    assert proved.dead_letters == report.verified.dead_letters != []
    assert proved.waiting_parents == report.verified.waiting_parents
    with monkeypatch.context() as patched:
        patched.setattr("pipelines.proof.verify.CHILD_FROM_ENTRIES", 1)
        by_tenant = verify(services, target="green")
    assert {**by_tenant.as_dict(), "duration_s": 0} == {**proved.as_dict(), "duration_s": 0}
    of_before = [verify(services, target="green", tenant=name) for name in ("shop", "branch")]
    numbers = Counter[str]()
    for part in of_before:
        numbers.update(part.compared)
    shared = {"DeadLetter"}
    assert numbers == {k: n for k, n in report.verified.compared.items() if k not in shared}
    for name, finding in report.verified.stages.items():
        parts = [int(part.stages[name].digest, 16) for part in of_before]
        assert finding.digest == digest_text(sum(parts))
    services.targets.activate("blue")
    drop(services)


def test_a_folding_process_that_ends_is_an_error_and_leaves_nobody(services: Services) -> None:
    killed: list[int] = []

    def kill() -> None:
        while not (pids := folding(os.getpid())):
            time.sleep(0.01)
        os.kill(pids[0], signal.SIGKILL)  # it has hardly begun
        killed.extend(pids)

    killer = threading.Thread(target=kill, daemon=True)
    killer.start()
    with pytest.raises(OperationFailed, match="ended without a result"):
        fill(services)
    killer.join(timeout=60)
    assert killed
    assert not folding(os.getpid())
    assert "green" not in names(services)


def test_two_processes_do_not_fill_one_target(services: Services) -> None:
    lock = run_dir(services.settings.data_dir) / "load-green.lock"
    with (
        exclusive_lock(lock, "held by the test"),
        pytest.raises(OperationFailed, match="another process fills green"),
    ):
        fill(services)


@pytest.mark.parametrize(
    "step",
    [
        "load",
        pytest.param("fold", marks=pytest.mark.acceptance_long),
        pytest.param("index", marks=pytest.mark.acceptance_long),
    ],
)
def test_killed_at_any_step_it_leaves_nobody_and_begins_anew(
    services: Services, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what begins anew is refused where the store then lacks something."""
    data_dir = services.settings.data_dir
    home = target_dir(data_dir, "green")
    reached: dict[str, Callable[[], bool]] = {
        "fold": lambda: bool(folding(child.pid)),
        "load": lambda: (home / "data" / "databases" / "neo4j").exists(),
        "index": lambda: "green" in live_servers(data_dir),
    }
    child = subprocess.Popen(
        [
            *(sys.executable, "-m", "pipelines.cli.main", "rebuild", "--into", "green"),
            *("--route", "files", "--switch", "--data", str(data_dir)),
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        assert wait_until(reached[step], _PATIENCE_S)
        started = [*folding(child.pid), *loading(home)]
    finally:
        child.kill()
        child.wait()
    assert started or step == "index"
    assert wait_until(lambda: not any(map(runs, started)), 30)
    assert "green" not in names(services)
    with monkeypatch.context() as patched:
        patched.setattr(BulkFiles, "restore", lambda files, graph: None)
        refusal = r"green does not hold what was folded: .*Summary"
        with pytest.raises(OperationFailed, match=refusal):
            fill(services)
    assert "green" not in names(services)
    drop(services)


def test_a_store_that_holds_more_than_was_folded_is_refused(
    services: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also of a label of which nothing was folded, and whose nodes nobody reads therefore."""
    restore = BulkFiles.restore

    def more(files: BulkFiles, graph: Graph) -> None:
        restore(files, graph)
        assert not [labels for labels, _ in files.nodes if labels.startswith("Trait")]
        with graph.transaction() as transaction:
            trait = FoundNode(("shop", "t"), True, {}, bare=True)
            transaction.restore_nodes("Trait", [trait])

    monkeypatch.setattr(BulkFiles, "restore", more)
    with pytest.raises(OperationFailed, match=r"folded: Trait$"):
        fill(services)
    assert "green" not in names(services)
    drop(services)


def folding(pid: int) -> list[int]:
    """The processes that fold for a process."""
    return [child for child in child_pids(pid) if b"proof.shares" in command_line(child)]


def loading(home: Path) -> list[int]:
    """The Java processes that load files into a folder."""
    pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
    words = (b"org.neo4j.cli.AdminTool", str(home).encode())
    return [pid for pid in pids if all(word in command_line(pid) for word in words)]


def runs(pid: int) -> bool:
    return bool(command_line(pid))


def test_what_a_folding_process_meets_is_what_is_raised(tmp_path: Path) -> None:
    settings = Settings(redis_url=f"redis://127.0.0.1:{free_port()}", redis_timeout_s=1)
    task = FoldTask(
        settings,
        ("projection",),
        until=(),
        share=0,
        shares=1,
        policy=PoisonPolicy.of_command(settings),
        folder=tmp_path,
    )
    with pytest.raises(LedgerUnavailable):
        fold_shares([task], processes=1, progress=lambda done, total, what: None)


def test_the_plan_is_told_and_nothing_is_done(folder: Path) -> None:
    told = subprocess.run(
        [
            *(sys.executable, "-m", "pipelines.cli.main", "rebuild", "--into", "red", "--plan"),
            *("--route", "files", "--json", "--data", str(folder)),
        ],
        capture_output=True,
        check=True,
    )
    document = json.loads(told.stdout)
    assert document["route"] == "files"
    assert document["entries"] > 150
    assert document["shares"] == document["processes"]
    assert not target_dir(folder, "red").exists()


def test_files_are_for_large_ledgers(services: Services) -> None:
    chosen = plan(services)
    assert chosen.entries < FILES_FROM
    assert chosen.route == "bolt"


@pytest.mark.parametrize(
    ("entries", "memory_mb", "shares"), [(0, 3_000, 2), (100_000, 3_000, 2), (1_000_000, 3_000, 16)]
)
def test_tenants_that_do_not_fit_together_are_folded_after_each_other(
    entries: int, memory_mb: int, shares: int
) -> None:
    assert shares_of(entries, 2, memory_mb) == shares
    assert shares_of(entries, 2, 2 * PROCESS_MB) >= shares
