"""`recollect consolidate` from outside, where nothing must be folded for it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from consolidation.decay import DAY_MS
from pipelines.ledger.epoch import PassLease
from pipelines.operations.consolidate import consolidate
from pipelines.work.settings import ApiKey
from projections.events import timestamp_ms, timestamp_text
from tests import forked_cli
from tests.factories import NOW_MS, event, event_id, session, sessions
from tests.integration.api_support import running_api
from tests.integration.consolidation_support import Consolidated
from tests.integration.query_support import PATIENT
from tests.integration.stack import Stack
from tests.stages.consolidated import without_models
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

IMPORTANT = 20
"""Number of an event that stays whatever its age."""
OTHER = "other"
ASKER_KEY = "read-key-of-asker-0123456789"


@pytest.fixture
def live(make_stack: Callable[..., Stack]) -> Consolidated:
    made = Consolidated(make_stack())
    made.take_in(*sessions(2, 3))
    return made


def recollect(live: Consolidated, *arguments: str) -> subprocess.CompletedProcess[bytes]:
    settings = live.stack.services.settings
    names = ("redis_url", "neo4j_url", "partitions", "id_buckets")
    environment = {
        **{name: value for name, value in os.environ.items() if "RECOLLECT_" not in name},
        **{f"RECOLLECT_{name.upper()}": str(getattr(settings, name)) for name in names},
    }
    return forked_cli.run(["consolidate", *arguments], environment)


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


# -- the past answers of the dry run ---------------------------------------------------------------


@pytest.fixture
def remembered(make_stack: Callable[..., Stack], monkeypatch: pytest.MonkeyPatch) -> Consolidated:
    """Two tenants with a session that a summary lists; an important event in one of its own."""
    monkeypatch.setattr("pipelines.operations.consolidate.make_fold", without_models)
    made = Consolidated(make_stack())
    made.take_in(
        *session("session-0", range(1, 4)),
        event(IMPORTANT, session_id="session-1", importance_hint=9),
        *(one._replace(tenant=OTHER) for one in session("session-0", range(1, 4))),
    )
    consolidate(made.stack.services, now_ms=NOW_MS)
    return made


def ask(live: Consolidated, tenant: str, number: int) -> str:
    """Ask about an event; the one that the answer showed, once the graph counts it as read."""
    settings = live.stack.services.settings
    options: dict[str, Any] = {
        "partitions": settings.partitions,
        "id_buckets": settings.id_buckets,
        "api_keys": [ApiKey(name="asker", key=ASKER_KEY, tenant=tenant, role="read")],
    }
    before = live.stack.ledger.tails()
    urls = settings.redis_url, settings.neo4j_url
    with running_api(*urls, **options) as api, api.client(ASKER_KEY) as client:
        body = {"query": "Why?", "session_id": "asking", "agent_id": "a", "max_nodes": 1}
        seed = event_id(number)
        answer = client.post(
            "/v1/query/subgraph", json={**body, **PATIENT, "seed_nodes": [seed], "proactive": False}
        )
        (shown,) = answer.json()["nodes"]
    wait_until(lambda: live.stack.ledger.tails() != before, "the access is in the ledger")
    live.fold()
    return str(shown["node_id"])


def past_answers(live: Consolidated, now_ms: int) -> dict[str, Any]:
    asked = ("--dry-run-forgetting", "--now", timestamp_text(now_ms), "--json")
    told: dict[str, Any] = answered(recollect(live, *asked))["past_answers"]
    return told


def test_the_dry_run_names_the_past_answers_that_would_change(remembered: Consolidated) -> None:
    asked_ms = remembered.stack.ledger.now_ms()
    assert ask(remembered, "default", IMPORTANT) == event_id(IMPORTANT)
    shown = ask(remembered, "default", 2)
    told = past_answers(remembered, asked_ms + 8 * DAY_MS)
    mine, others = told["default"], told[OTHER]
    (changed,) = mine.pop("newest")
    assert (mine["sampled"], mine["changed"], mine["whole"]) == (2, 1, True)
    assert asked_ms <= timestamp_ms(mine["since"]) <= timestamp_ms(changed["at"])
    assert (changed["shown"], changed["leaving"]) == (1, 1)
    assert changed["event_ids"] == [shown]
    assert (others["sampled"], others["changed"], others["newest"]) == (0, 0, [])

    later = timestamp_text(asked_ms + 8 * DAY_MS)
    text = recollect(remembered, "--dry-run-forgetting", "--now", later).stdout.decode()
    said = " ".join(text.split())
    assert "default: 1 of 2 records of past answers showed events that would leave" in said
    assert f"{changed['at']}: 1 of 1 events: {shown}" in said
    assert f"{OTHER}: no past answer" in said


def test_the_dry_run_says_when_no_past_answer_would_change(remembered: Consolidated) -> None:
    asked_ms = remembered.stack.ledger.now_ms()
    assert ask(remembered, "default", IMPORTANT) == event_id(IMPORTANT)
    told = past_answers(remembered, asked_ms + 8 * DAY_MS)["default"]
    assert (told["sampled"], told["changed"], told["newest"]) == (1, 0, [])


def test_what_was_shown_of_late_stays_and_is_not_looked_at(remembered: Consolidated) -> None:
    asked_ms = remembered.stack.ledger.now_ms()
    ask(remembered, OTHER, 2)
    told = past_answers(remembered, asked_ms + 6 * DAY_MS)[OTHER]
    assert (told["sampled"], told["since"]) == (0, None)
    assert timestamp_ms(told["until"]) < asked_ms
    told = past_answers(remembered, NOW_MS + 8 * DAY_MS)[OTHER]
    assert (told["sampled"], told["changed"]) == (1, 1), "by a clock of before they arrived"


def test_it_refuses_while_a_pass_is_under_way(live: Consolidated) -> None:
    services = live.stack.services
    with PassLease(services.redis, services.settings.prefix, lease_ms=60_000):
        done = recollect(live, "--wait", "0.5", "--json")
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
