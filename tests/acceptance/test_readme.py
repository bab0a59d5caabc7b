"""The commands of the README and of the tutorial, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from pipelines.graph.client import connect_neo4j
from pipelines.local.data_folder import connection_settings
from pipelines.local.processes import free_port
from pipelines.work.settings import Settings
from projections.schema import stored_names

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
TOUR = "## A five-minute tour"
PORT = "8080"
STOP = "recollect down"
PATIENCE_S = 120.0

Bash = Callable[[str], str]


def tour() -> str:
    """Every shell block of the tour, one after the other."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    section = text[text.index(TOUR) + len(TOUR) :].split("\n## ")[0]
    return "\n".join(re.findall(r"```sh\n(.*?)```", section, re.DOTALL))


def first_code() -> str:
    """The first code of all, as a script."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    language, code = re.findall(r"```(\w+)\n(.*?)```", text, re.DOTALL)[0]
    assert language == "python"
    return str(code)


def substance(text: str) -> list[str]:
    """Its lines without what is another each time: ids, times, the width of columns."""
    text = re.sub(r"\[?\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b\]?", "", text)
    text = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?", "TIME", text)
    text = re.sub(r"\b\d+ ms\b", "MS", text)
    lines = (re.sub(r"\s+", " ", line).strip().casefold() for line in text.splitlines())
    return [line for line in lines if line]


def missing(shown: str, printed: str) -> str | None:
    """The first line of what a page shows that was not printed, in this order."""
    lines = iter(substance(printed))
    return next((line for line in substance(shown) if line != "…" and line not in lines), None)


def names_in(data: Path) -> tuple[set[str], ...]:
    """Of the Neo4j of a data folder: labels and types that occur, properties that it knows."""
    values: dict[str, Any] = dict(connection_settings(data))
    settings = Settings(**values)
    with connect_neo4j(settings.neo4j_url, settings) as driver:
        return tuple(
            {row[0] for row in driver.execute_query(f"CALL db.{procedure}()").records}
            for procedure in ("labels", "relationshipTypes", "propertyKeys")
        )


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder as a reader of the pages works in. What is started on its data ends with them."""
    folder = tmp_path_factory.mktemp("clone")
    (folder / "pipelines").symlink_to(ROOT / "pipelines")
    yield folder
    subprocess.run(
        [sys.executable, "-m", "pipelines.cli.main", "down", "--data", folder / ".recollect"],
        check=False,
        capture_output=True,
        timeout=300,
    )


@pytest.fixture(scope="module")
def bash(clone: Path, port: int) -> Bash:
    """Runs a script in that folder; returns what it printed."""
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")},
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": f"{ROOT}:{ROOT / 'clients/python/src'}",
        "RECOLLECT_API_PORT": str(port),
        "COLUMNS": "200",
    }

    def run(script: str) -> str:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=clone,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1_500,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.mark.acceptance
def test_the_tutorial_works_as_printed(bash: Bash, clone: Path, port: int) -> None:
    """It is first, in an empty memory; what it starts serves the tour, too, which stops it."""
    page = TUTORIAL.read_text(encoding="utf-8")
    blocks = re.findall(r"(?:`(\w+\.py)`:\n\n)?```(\w+)\n(.*?)```", page, re.DOTALL)
    (_, _, setup), *blocks, (_, _, stop) = blocks
    assert re.findall(r"^[^#\n]*[^# \n]", setup, re.MULTILINE) == [
        "make setup",
        ". .venv/bin/activate",
    ]
    assert stop.startswith(STOP)
    assert stop.count("\n") == 1
    commands = printed = ""
    for name, language, text in blocks:
        if language == "python":
            (clone / name).write_text(text, encoding="utf-8")
        elif language == "sh":
            commands, printed = text, bash(text)
        else:
            deadline = time.monotonic() + PATIENCE_S
            # Words and facts come after the graph; the page says to look again.
            reads = re.fullmatch(r"(recollect (timeline|ask|facts) .+\n)+", commands)
            while reads and missing(text, printed) and time.monotonic() < deadline:
                printed = bash(commands)
            assert missing(text, printed) is None, printed
    assert printed.strip() == (clone / ".recollect/run/api-key").read_text().strip()
    (address,) = re.findall(rf"`(http://localhost:{PORT}/\S+)`", page)
    shown = httpx.get(address.replace(PORT, str(port)), follow_redirects=True)
    assert "<title>" in shown.text
    # Neo4j was told all of them at the start, of which it lists the properties alone: with each
    # new one it would plan questions again.
    of_locks = {"lock", "held"}
    labels, types, properties = names_in(clone / ".recollect")
    told_labels, told_types, told_properties = map(set, stored_names())
    assert labels <= told_labels
    assert types <= told_types
    assert told_properties <= properties <= told_properties | of_locks


@pytest.mark.acceptance
@pytest.mark.skipif(shutil.which("curl") is None, reason="the tour asks the API with curl")
def test_the_tour_works_as_printed(bash: Bash, clone: Path, port: int) -> None:
    script = tour()
    assert ". .venv/bin/activate" in script
    script = script.replace(". .venv/bin/activate", "")
    script = script.replace(f"localhost:{PORT}", f"127.0.0.1:{port}")
    # The first code joins what the tour has started: it names no folder, so this is its own.
    five_lines = clone / "five_lines.py"
    five_lines.write_text(first_code())
    assert script.count(STOP) == 1
    script = script.replace(STOP, f"python {five_lines.name}\n{STOP}")

    printed = bash(script)

    assert "019cb8a0-4711-7000-8000-000000000012" in printed
    assert "user, message.user: My card was charged twice" in printed


def test_the_two_commands_are_targets_of_make_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    commands = re.findall(r"^make (\w+) ", readme, re.MULTILINE)

    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in commands)
    assert (ROOT / ".ci/run").read_text(encoding="utf-8").rstrip().endswith("exec make test")
