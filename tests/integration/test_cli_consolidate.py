"""`recollect consolidate` from outside, where nothing must be folded for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from pipelines.ledger.epoch import PassLease
from tests.factories import event, sessions
from tests.integration.consolidation_support import Consolidated
from tests.integration.stack import Stack

pytestmark = pytest.mark.integration


@pytest.fixture
def live(make_stack: Callable[..., Stack]) -> Consolidated:
    made = Consolidated(make_stack())
    made.take_in(*sessions(2, 3))
    return made


def recollect(live: Consolidated, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    settings = live.stack.services.settings
    names = ("redis_url", "neo4j_url", "partitions", "id_buckets")
    return subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", "consolidate", *arguments],
        capture_output=True,
        timeout=120,
        check=False,
        env={
            **{name: value for name, value in os.environ.items() if "RECOLLECT_" not in name},
            **{f"RECOLLECT_{name.upper()}": str(getattr(settings, name)) for name in names},
        },
    )


def answered(done: subprocess.CompletedProcess[bytes]) -> dict[str, Any]:
    assert done.stdout, done.stderr.decode()
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_it_shows_what_would_be_forgotten_and_why(live: Consolidated) -> None:
    asked = ("--dry-run-forgetting", "--now", "2037-01-01T00:00:00Z")
    done = recollect(live, *asked, "--json")
    told = answered(done)
    (rows,) = told["tenants"].values()
    assert told["switched_off"] == ["default"]
    assert (done.returncode, sum(row["events"] for row in rows)) == (0, 6)
    assert not any(row["leaves"] for row in rows), "nothing has a summary yet"
    shown = recollect(live, *asked).stdout.decode()
    assert "default: forgetting is switched off; if it were on" in shown
    assert "no summary lists it" in shown
    assert "stays" in shown


def test_it_refuses_while_a_pass_is_under_way(live: Consolidated) -> None:
    services = live.stack.services
    with PassLease(services.redis, services.settings.prefix, lease_ms=60_000):
        done = recollect(live, "--json")
    error = answered(done)["error"]
    assert (done.returncode, error["kind"], error["retryable"]) == (1, "PassUnderWay", True)


def test_it_refuses_a_graph_that_nobody_ever_enriched(stack: Stack) -> None:
    stack.append(event(1))
    stack.fold()
    settings = stack.services.settings
    done = subprocess.run(
        [
            *(sys.executable, "-m", "pipelines.cli.main", "consolidate", "--json"),
            *("--redis", settings.redis_url, "--neo4j", settings.neo4j_url),
        ],
        capture_output=True,
        timeout=120,
        check=False,
        env={"PATH": os.environ["PATH"], "RECOLLECT_PARTITIONS": "2", "RECOLLECT_ID_BUCKETS": "64"},
    )
    assert "recollect worker enrichment" in answered(done)["error"]["message"]
    assert done.returncode == 1


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--now", "yesterday"), b"--now"),
        (("--session", "a", "--agent", "b"), b"--agent"),
        (("--dry-run-forgetting", "--session", "a"), b"--dry-run-forgetting"),
    ],
)
def test_a_wrong_option_is_named(
    live: Consolidated, arguments: tuple[str, ...], named: bytes
) -> None:
    done = recollect(live, *arguments)
    assert (done.returncode, named in done.stderr) == (2, True)
