"""`recollect verify` compares the columns of the active graph too, and `--repair` mends them."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.columns.client import ColumnsClient
from pipelines.ledger.registry import verified_stage
from pipelines.local.processes import is_alive
from projections.schema import EVENT
from tests import forked_cli
from tests.factories import event_id, sessions
from tests.integration.stack import Stack
from tests.integration.test_cli import clean_environment
from tests.integration.test_status import printed
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
Recollect = Callable[..., tuple[int, dict[str, Any]]]
EVENTS = 10


@pytest.fixture
def stack(redis_url: str, neo4j_url: str) -> Iterator[Stack]:
    """A graph of some events that knows all of them."""
    found = Stack(redis_url, neo4j_url)
    found.append(*sessions(2, EVENTS // 2))
    found.fold()
    yield found
    found.close()


@pytest.fixture
def recollect(stack: Stack, folder: Path) -> Iterator[Recollect]:
    """Runs a command with `--json`: its exit code, and what it says."""
    settings = stack.services.settings
    chosen = {
        "RECOLLECT_MODEL_PROCESS_DIR": str(folder),
        "RECOLLECT_PARTITIONS": str(settings.partitions),
        "RECOLLECT_ID_BUCKETS": str(settings.id_buckets),
    }
    where = ["--redis", settings.redis_url, "--neo4j", settings.neo4j_url, "--data", str(folder)]

    def call(*arguments: str) -> tuple[int, dict[str, Any]]:
        environment = {**clean_environment(), **chosen}
        done = forked_cli.run([*arguments, *where, "--json"], environment)
        return done.returncode, json.loads(done.stdout)

    yield call
    given = {"model_process_dir": folder, "data_dir": folder}
    client = ColumnsClient(
        stack.target.uri, stack.target.database, settings.model_copy(update=given)
    )
    client.state(start=False)
    pid = client.pid
    client.close()
    if pid is not None:  # it would live on for a while
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not is_alive(pid), "it ends")


def test_columns_that_differ_are_found_told_and_mended(stack: Stack, recollect: Recollect) -> None:
    """The graph is changed by hand, read by the columns, and changed back: the feed tells neither.

    So the graph agrees with its ledger, and the columns differ from it.
    """
    code, status = recollect("status")
    assert (status["columns"]["loaded"], status["columns"]["reason"]) == (
        False,
        "no process holds them now",
    )
    change = f"MATCH (e:{EVENT.label} {{event_id: $id}}) SET e.user_id = $user"
    with stack.driver.session() as session:
        session.run(change, id=event_id(3), user="mallory").consume()
        code, first = recollect("verify")
        session.run(change, id=event_id(3), user=None).consume()
    assert (code, first["stages"]["columns"]["difference_count"]) == (1, 0)
    assert first["stages"]["projection"]["difference_count"] == 1

    code, told = recollect("verify")
    assert (code, told["ok"], told["difference_count"], told["repaired"]) == (1, False, 1, 0)
    assert told["stages"]["projection"]["ok"]
    assert told["stages"]["columns"]["difference_count"] == 1
    assert told["stages"]["columns"]["entries"] == EVENTS
    (difference,) = told["differences"]
    assert difference == {
        "kind": "different",
        "element": "column",
        "type": EVENT.label,
        "key": ["default", event_id(3)],
        "fields": {"user": {"expected": None, "found": "mallory"}},
    }
    code, only = recollect("verify", "--stage", "projection")
    assert (code, list(only["stages"])) == (0, ["projection"])

    code, mended = recollect("verify", "--repair")
    assert (code, mended["ok"], mended["found_count"], mended["repaired"]) == (0, True, 1, 1)
    code, after = recollect("verify")
    assert (code, after["found_count"], after["stages"]["columns"]["ok"]) == (0, 0, True)
    assert after["digest"] == told["digest"]
    assert "columns" in after["scope"]
    reports = stack.services.reports.all()
    assert {one.values["differences"] for one in reports if verified_stage(one) == "columns"} == {0}
    code, status = recollect("status")
    columns = status["columns"]
    assert (code, columns["loaded"], columns["events"], columns["reason"]) == (0, True, EVENTS, "")
    assert columns["memory_bytes"] > 0
    assert f"columns {EVENTS} events in" in printed(status)
