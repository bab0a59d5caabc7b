"""Logs of children and of detached holders: bounded, however much is printed."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from pipelines.local import companions, private_files
from pipelines.local.data_folder import run_dir
from pipelines.local.private_files import LOG_BYTES, LOGS_KEPT
from pipelines.local.processes import ServerProcess
from pipelines.local.supervision import Supervision
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
FLOOD_BYTES = (LOGS_KEPT + 4) * LOG_BYTES
OVERSHOOT = 1.5
"""What may be printed between two looks, on a machine under load, as a share of the limit."""
# Prints numbered lines in pieces of 64 kB, as fast as a process full of tracebacks.
_FLOOD = """
import sys, time
line, size = 0, int(sys.argv[1])
while size > 0:
    piece = "".join(f"line {line + n} {'x' * 100}\\n" for n in range(600))
    line += 600
    size -= len(piece)
    sys.stdout.write(piece)
    sys.stdout.flush()
    time.sleep(0.005)
print("done", flush=True)
time.sleep(600)
"""


class Flooding(ServerProcess):
    """A child that prints without an end."""

    name = "flooding"

    @property
    def url(self) -> str:
        return ""

    @property
    def log_path(self) -> Path:
        return self.data_dir / "flooding.log"

    def answers(self) -> bool:
        return True

    def _prepare(self) -> list[str]:
        return [sys.executable, "-c", _FLOOD, str(FLOOD_BYTES)]


def numbers(log: Path) -> list[int]:
    """Of the lines that are whole."""
    lines = log.read_bytes().split(b"\n")[:-1]
    whole = [line.split() for line in lines if line.startswith(b"line ") and line.endswith(b"x")]
    return [int(words[1]) for words in whole if len(words) == 3]


def test_the_logs_of_a_child_that_prints_without_an_end_are_bounded(tmp_path: Path) -> None:
    child = Flooding(tmp_path)
    with Supervision([("flooding", child)]) as held:
        wait_until(lambda: held.is_up("flooding"), "the child", 60)
        pid = child.pid
        wait_until(lambda: child.log_path.read_bytes()[-5:] == b"done\n", "its last line", 240)
        assert child.pid == pid
    logs = sorted(tmp_path.glob("flooding.log*"))
    assert len(logs) == LOGS_KEPT + 1
    assert sum(log.stat().st_size for log in logs) <= OVERSHOOT * (LOGS_KEPT + 1) * LOG_BYTES
    assert [log.name for log in logs if log.stat().st_mode & 0o077] == []
    oldest_first = [*reversed(logs[1:]), logs[0]]
    told = [number for log in oldest_first for number in numbers(log)]
    assert told == sorted(set(told)), "lines stand twice or in another order"
    for log in oldest_first:
        inside = numbers(log)
        assert inside == list(range(inside[0], inside[0] + len(inside)))


def test_a_detached_holder_keeps_its_own_log_small(tmp_path: Path) -> None:
    log = tmp_path / "log" / "supervisor-main.log"
    run_dir(tmp_path)
    log.parent.mkdir()
    with log.open("ab") as out, companions.watched(tmp_path, "main", log):
        out.write(b"x" * LOG_BYTES + b"\n")
        out.flush()
        wait_until(lambda: log.stat().st_size < LOG_BYTES, "a new log")
        out.write(b"and on\n")
        out.flush()
    assert log.read_bytes() == b"and on\n"
    assert log.with_name("supervisor-main.log.1").stat().st_size == LOG_BYTES + 1


def test_on_a_full_disk_a_log_is_begun_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "api.log"
    log.write_bytes(b"x" * LOG_BYTES)
    with Path("/dev/full").open("wb") as full:
        monkeypatch.setattr(private_files, "open_private", lambda *_: full)
        private_files.keep_small(log)
    assert log.read_bytes() == b""
