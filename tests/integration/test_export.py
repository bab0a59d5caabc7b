"""Export on real services: the whole way round, and what may go wrong on it."""

from __future__ import annotations

import gzip
import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import pytest

from consolidation.decay import DAY_MS
from pipelines.operations.consolidate import consolidate
from pipelines.operations.export.events import Format, Selection
from pipelines.operations.export.run import export
from pipelines.operations.formats.table import event_items
from pipelines.operations.imports import import_events
from pipelines.operations.rebuild import rebuild
from pipelines.operations.sources import Source
from pipelines.proof.verify import verify
from tests.factories import START_MS
from tests.integration.consolidation_support import FORGETTING
from tests.integration.enrichment_support import Enriched, said
from tests.integration.stack import Stack, ValkeyStack
from tests.integration.test_cli import (
    COMMAND,
    NOWHERE,
    Recollect,
    clean_environment,
    document,
    envelope,
    lines,
    recollect,
    run,
    started,
)
from tests.ledger_copies import placeless

__all__ = ["recollect"]

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]
SCENARIO = ROOT / "pipelines/scenarios/payment_incident.jsonl"
LATER_MS = START_MS + 4_000 * DAY_MS
PLACES = ("the old harbour", "Marseille", "the library", "the Acme office")


@pytest.fixture
def make_stack(redis_url: str) -> Iterator[Callable[..., ValkeyStack]]:
    """Ledgers in the session's Valkey, their graphs in this process."""
    with ExitStack() as opened:

        def make(**options: Any) -> ValkeyStack:
            stack = ValkeyStack(redis_url, f"memory://{uuid4().hex}", **options)
            opened.callback(stack.close)
            return stack

        yield make


def test_what_was_decided_comes_along_and_the_digests_are_equal(
    make_stack: Callable[..., ValkeyStack], tmp_path: Path
) -> None:
    stack = make_stack(retention=FORGETTING)
    walks = [
        said(n, f"Ann met Bob at {PLACES[n % 4]} on walk {n}.", session_id=f"session-{n % 3}")
        for n in range(1, 13)
    ]
    Enriched(cast(Any, stack)).take_in(*walks)
    assert consolidate(stack.services).found.episodes_written > 0
    forgot = consolidate(stack.services, now_ms=LATER_MS)
    assert sum(forgot.found.events_forgotten.values()) > 0
    before = verify(stack.services)
    assert before.ok, before.differences

    file = tmp_path / "events.jsonl.gz"
    report = export(stack.services, Format.EVENTS, Selection(), file)
    assert report.written["events"] == before.events + before.system_events

    copy = make_stack(prefix="copy", partitions=5)
    copy.services.__dict__["models"] = stack.services.models
    source = Source(file)
    with source.stream:
        taken = import_events(
            copy.ledger,
            event_items(source.stream),
            decisions=True,
            clock=lambda: LATER_MS / 1_000,
        )
    assert (taken.new, taken.refused) == (report.written["events"], 0)
    tails = copy.ledger.tails()
    copy.graph.clear()  # as no worker has seen it
    after = rebuild(copy.services).verified
    assert copy.ledger.tails() == tails, "a rebuild decides nothing"
    assert after.ok, after.differences
    assert {name: row.digest for name, row in after.stages.items()} == {
        name: row.digest for name, row in before.stages.items()
    }
    nodes = placeless(copy.graph, copy.ledger).nodes
    assert nodes == placeless(stack.graph, stack.ledger).nodes


def test_the_commands_of_the_page_work_as_printed(
    recollect: Recollect, redis_url: str, neo4j_url: str, tmp_path: Path
) -> None:
    told = document(recollect("import", str(SCENARIO), "--tenant", "default", "--json"))
    stack = Stack(redis_url, neo4j_url, partitions=8, id_buckets=32_768)
    stack.fold()  # the first stage is enough for a graph
    stack.close()
    page = (ROOT / "docs" / "how-to" / "export.md").read_text(encoding="utf-8")
    block = re.findall(r"```sh\n(.*?)```", page, re.DOTALL)[0]
    command = f'{" ".join(COMMAND)} "$@" --redis {redis_url} --neo4j {neo4j_url}'
    done = subprocess.run(
        ["bash", "-euc", f"recollect() {{ {command}; }}\n{block}"],
        cwd=tmp_path,
        capture_output=True,
        env={**clean_environment(), "PYTHONPATH": str(ROOT)},
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    lines_of_file = gzip.decompress((tmp_path / "events.jsonl.gz").read_bytes()).splitlines()
    assert len(lines_of_file) == told["new"]
    assert (tmp_path / "acme.jsonl").read_text() == ""
    assert (tmp_path / "graph.graphml").read_text().count("<node") == told["new"]
    assert len(json.loads((tmp_path / "graph.json").read_text())["activity"]) == told["new"]
    assert (tmp_path / "incident.md").read_text().startswith("# Session incident-12")
    assert int(done.stdout.splitlines()[-1]) == told["new"]


# -- what may go wrong -----------------------------------------------------------------------------


@pytest.fixture
def filled(recollect: Recollect) -> Recollect:
    """A ledger of 200 events of a kilobyte."""
    source = lines(*(envelope(number, payload="x" * 1_000) for number in range(1, 201)))
    assert document(recollect("import", "-", "--json", stdin=source))["new"] == 200
    return recollect


def test_the_command_writes_a_file_and_says_what(filled: Recollect, tmp_path: Path) -> None:
    file = tmp_path / "events.jsonl"
    told = document(filled("export", str(file), "--json", "--session", "session-1"))
    events = [json.loads(line) for line in file.read_text().splitlines()]
    assert told["written"] == {"events": len(events)}
    assert {one["session_id"] for one in events} == {"session-1"}
    assert (told["ok"], told["bytes"]) == (True, file.stat().st_size)


def test_standard_output_has_the_events_alone(filled: Recollect) -> None:
    done = filled("export")
    assert done.returncode == 0
    assert len([json.loads(line) for line in done.stdout.splitlines()]) == 200
    assert "200 events" in done.stderr


def test_bad_options_are_told(recollect: Recollect, tmp_path: Path) -> None:
    file = str(tmp_path / "file")
    done = recollect("export", file, "--since", "2026-01-01")
    assert (done.returncode, "--since" in done.stderr) == (2, True)
    assert recollect("export", "--json").returncode == 2
    done = recollect("export", file, "--format", "markdown")
    assert done.returncode == 4
    assert "--session or --user: required with --format markdown" in done.stderr


@pytest.fixture
def shell(filled: Recollect, redis_url: str, neo4j_url: str) -> Callable[..., Any]:
    """Runs a line of bash in which $EXPORT is the command and $SERVICES where they are."""

    def call(line: str) -> subprocess.CompletedProcess[str]:
        services = f"--redis {redis_url} --neo4j {neo4j_url}"
        variables = {"EXPORT": f"{' '.join(COMMAND)} export", "SERVICES": services}
        return subprocess.run(
            ["bash", "-c", line],
            capture_output=True,
            env={**clean_environment(), **variables},
            text=True,
            timeout=60,
            check=False,
        )

    return call


def test_an_output_that_fails_is_told_and_no_half_file_stays(
    shell: Callable[..., Any], tmp_path: Path
) -> None:
    file = tmp_path / "events.jsonl"
    file.write_text("an earlier one")
    for line, told in (
        # of the file system, not of a double: 64 KiB is all that the process may write
        (f"ulimit -f 64; $EXPORT {file} $SERVICES", "jsonl: File too large; nothing was written"),
        (
            "$EXPORT $SERVICES > /dev/full",
            "standard output: No space left on device; what came out is not all",
        ),
        ("$EXPORT $SERVICES | head -c 100; exit ${PIPESTATUS[0]}", "output: Broken pipe"),
    ):
        done = shell(line)
        assert (done.returncode, "Traceback" in done.stderr) == (1, False), done.stderr
        assert told in done.stderr
    assert file.read_text() == "an earlier one"
    assert [path.name for path in tmp_path.iterdir() if "events" in path.name] == [file.name]


def test_an_interrupt_is_exit_130(filled: Recollect, redis_url: str, neo4j_url: str) -> None:
    process = started("export", "--redis", redis_url, "--neo4j", neo4j_url)
    assert process.stdout is not None
    process.stdout.read(1)  # it waits for a reader of the rest
    process.send_signal(signal.SIGINT)
    _, stderr = process.communicate(timeout=60)
    assert (process.returncode, b"Traceback" in stderr) == (130, False)


def test_redis_away_is_exit_3(tmp_path: Path) -> None:
    done = run("export", str(tmp_path / "events.jsonl"), "--redis", NOWHERE)
    assert done.returncode == 3
    assert list(tmp_path.iterdir()) == []


def test_decisions_are_taken_only_when_asked_for(recollect: Recollect) -> None:
    source = lines(envelope(1, event_type="memory.graph_cleared", session_id="memory"))
    refused = recollect("import", "-", stdin=source)
    assert (refused.returncode, "event_type" in refused.stderr) == (4, True)
    assert recollect("import", "-", "--decisions", stdin=source).returncode == 0
