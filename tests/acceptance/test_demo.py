"""`recollect demo`: the whole, seen from outside."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest

from pipelines.operations.demo import EVENTS, FAILURE, QUESTIONS, ROOT, scenario_path
from projections.events import parse_event
from tests.waiting import wait_until

COMMAND = [sys.executable, "-m", "pipelines.cli.main", "demo"]
NOW_MS = 1_800_000_000_000


def environment(home: Path) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
    return {**clean, "TMPDIR": str(home)}


def running_below(folder: Path) -> list[str]:
    """Command lines that name the folder."""
    listed = subprocess.run(
        ["ps", "-eww", "-o", "args="], capture_output=True, check=True, text=True
    )
    return [line for line in listed.stdout.splitlines() if str(folder) in line]


def test_the_scenario_is_what_it_says_it_is() -> None:
    lines = scenario_path().read_text(encoding="utf-8").splitlines()
    events = [parse_event(json.loads(line), now_ms=NOW_MS) for line in lines]
    assert len({event.event_id for event in events}) == EVENTS
    by_id = {event.event_id: event for event in events}
    assert {e.parent_event_id for e in events if e.parent_event_id} <= set(by_id)
    chain = [FAILURE]
    while parent := by_id[chain[-1]].parent_event_id:
        chain.append(parent)
    assert chain[-1] == ROOT
    assert len({by_id[event_id].session_id for event_id in chain}) == 2
    arrived = {event.event_id: place for place, event in enumerate(events)}
    before_parent = [
        e for e in events if e.parent_event_id and arrived[e.event_id] < arrived[e.parent_event_id]
    ]
    assert len(before_parent) == 2
    late = [a for a, b in pairwise(events) if b.occurred_at_ms < a.occurred_at_ms]
    assert len(late) > 10
    assert {e.status for e in events} >= {"failed", "timeout", "completed"}
    assert len({event.session_id for event in events}) == 6


@pytest.mark.acceptance
def test_the_demo_explains_the_failure_and_leaves_nothing_behind(tmp_path: Path) -> None:
    done = subprocess.run(
        COMMAND, capture_output=True, timeout=900, env=environment(tmp_path), check=False, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    why, _, rest = done.stdout.partition("And then?")
    assert "order.charged_twice (failed)" in why
    assert FAILURE in why
    assert "config.changed" in why
    assert why.rindex(ROOT) > why.rindex("config.changed")
    assert "incident.resolved" in rest
    for question in QUESTIONS:
        _, asked, answered = rest.partition(question.text)
        assert asked, question.text
        assert f"{question.intent} 0." in answered.splitlines()[1]
    assert "what else was found" in rest
    assert f"{EVENTS} events, digest " in rest
    assert "✗" not in done.stdout
    assert list(tmp_path.glob("recollect-demo-*")) == []
    # the process of the embedder ends by itself, some seconds after its last client
    wait_until(lambda: not running_below(tmp_path), "nothing runs any more")


@pytest.mark.acceptance
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGINT, 130),
        pytest.param(signal.SIGKILL, -9, marks=pytest.mark.acceptance_long),
    ],
)
def test_an_ended_demo_leaves_no_process_behind(
    tmp_path: Path, number: signal.Signals, code: int
) -> None:
    folder = tmp_path / "data"
    process = subprocess.Popen(
        [*COMMAND, "--data", str(folder)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    deadline = time.monotonic() + 600
    while not any(" worker projection " in line for line in running_below(folder)):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    process.send_signal(number)
    _, stderr = process.communicate(timeout=300)
    assert process.returncode == code
    assert b"Traceback" not in stderr
    while running_below(folder):
        assert time.monotonic() < deadline + 60
        time.sleep(0.1)
