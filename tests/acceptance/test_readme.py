"""The README's commands, run as they stand there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.local.processes import free_port

ROOT = Path(__file__).parents[2]
TOUR = "## A five-minute tour"


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


@pytest.mark.acceptance
@pytest.mark.skipif(shutil.which("curl") is None, reason="the tour asks the API with curl")
def test_the_tour_works_as_printed(tmp_path: Path) -> None:
    port, data = free_port(), tmp_path / "data"
    script = tour()
    assert ". .venv/bin/activate" in script
    script = script.replace(". .venv/bin/activate", f'PATH="{Path(sys.executable).parent}:$PATH"')
    script = script.replace("localhost:8080", f"127.0.0.1:{port}")
    script = script.replace(".recollect/", f"{data}/")
    # The first code joins what the tour has started: it names no folder, so this is its own.
    five_lines = tmp_path / "five_lines.py"
    five_lines.write_text(first_code().replace("Memory.local()", f"Memory.local({str(data)!r})"))
    assert script.count("recollect down") == 1
    client = f"PYTHONPATH={ROOT / 'clients/python/src'} python {five_lines}"
    script = script.replace("recollect down", f"{client}\nrecollect down")
    environment = {
        **{name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")},
        "RECOLLECT_DATA_DIR": str(data),
        "RECOLLECT_API_PORT": str(port),
    }
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            timeout=1_500,
            check=False,
        )
    finally:
        subprocess.run(
            [sys.executable, "-m", "pipelines.cli.main", "down", "--data", str(data)],
            check=False,
            capture_output=True,
            timeout=300,
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "019cb8a0-4711-7000-8000-000000000012" in done.stdout
    assert "user, message.user: My card was charged twice" in done.stdout


def test_the_two_commands_are_targets_of_make_and_ci_runs_the_second() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")

    commands = re.findall(r"^make (\w+) ", readme, re.MULTILINE)

    assert commands == ["demo", "test"]
    assert all(re.search(rf"^{name}:", makefile, re.MULTILINE) for name in commands)
    assert (ROOT / ".ci/run").read_text(encoding="utf-8").rstrip().endswith("exec make test")
