"""What somebody meets first: the version, a misspelt setting, services that do not run, Ctrl-C."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pipelines.work.settings import load_settings, refuse_unknown
from projections.errors import ConfigurationError, was_interrupted

COMMAND = [sys.executable, "-m", "pipelines.cli.main"]


def run(*arguments: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("RECOLLECT_")}
    return subprocess.run(
        [*COMMAND, *arguments],
        env={**clean, "RECOLLECT_DATA_DIR": str(folder), **variables},
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )


def test_the_version_is_told(tmp_path: Path) -> None:
    done = run("--version", folder=tmp_path)
    assert (done.returncode, done.stdout.split()[0]) == (0, "recollect")
    assert done.stdout.split()[1][0].isdigit()


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("RECOLLECT_REDIS_ULR", "RECOLLECT_REDIS_URL"),
        ("RECOLLECT_DECAY_LAMDA", "RECOLLECT_DECAY_LAMBDA"),
    ],
)
def test_a_misspelt_setting_refuses_to_start(
    monkeypatch: pytest.MonkeyPatch, name: str, nearest: str
) -> None:
    monkeypatch.setenv(name, "1")
    with pytest.raises(ConfigurationError, match=f"{name}: no such setting; {nearest} is one"):
        load_settings()


def test_what_is_no_setting_of_ours_is_let_pass() -> None:
    refuse_unknown(
        [
            *("PATH", "RECOLLECT_MAVEN_URL", "RECOLLECT_REDIS_URL"),
            *("RECOLLECT_SERVICE_HOST", "RECOLLECT_API_SERVICE_PORT_HTTP"),
            *("RECOLLECT_PORT_8080_TCP_ADDR", "RECOLLECT_API_PORT_8080_TCP"),
        ]
    )


@pytest.mark.parametrize("command", [("status",), ("verify",), ("ask", "Why?"), ("consolidate",)])
def test_services_that_do_not_run_are_named_with_what_to_do(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    begun_s = time.monotonic()
    done = run(*command, folder=tmp_path / "nothing")
    assert done.returncode == 3
    assert "Redis" in done.stderr
    assert "recollect up" in done.stderr
    assert "graph" not in done.stderr.lower()
    assert time.monotonic() - begun_s < 20, "not after the patience of every call in turn"


def test_an_error_on_the_way_out_of_an_interrupt_is_an_interrupt() -> None:
    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise BufferError("Existing exports of data: object cannot be re-sized")

    with pytest.raises(BufferError) as caught:
        interrupted()
    assert was_interrupted(caught.value)
    assert not was_interrupted(BufferError("of its own"))
