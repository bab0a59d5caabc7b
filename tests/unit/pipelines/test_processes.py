"""How children are started, and who holds a lock."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pipelines.local import python_process
from pipelines.local.data_folder import exclusive_lock, is_locked
from pipelines.local.processes import is_alive, wait_until
from pipelines.local.python_process import python_command, python_environment
from projections.errors import OperationFailed

CHECKOUT = Path(python_process.__file__).parents[2]


def test_a_child_does_not_look_for_modules_in_its_folder(tmp_path: Path) -> None:
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "__init__.py").write_text("raise SystemExit('of the user')")
    done = subprocess.run(
        python_command("pipelines.cli.main", "--help"),
        cwd=tmp_path,
        env=python_environment(),
        capture_output=True,
        check=False,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_the_import_path_of_a_child_does_not_depend_on_its_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["lib", "", "/opt/lib"]))
    assert python_environment()["PYTHONPATH"].split(os.pathsep) == [
        str(tmp_path / "lib"),
        "/opt/lib",
    ]


def test_a_checkout_that_a_process_was_started_in_is_found_by_its_children(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(sys, "path", ["/elsewhere"])
    assert "PYTHONPATH" not in python_environment()
    monkeypatch.setattr(sys, "path", [str(CHECKOUT)])
    assert python_environment()["PYTHONPATH"] == str(CHECKOUT)
    assert python_environment({"A": "b"})["A"] == "b"


def test_a_lock_says_that_its_holder_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipelines.local.data_folder._LOOK_S", 0.0)
    lock = tmp_path / "a.lock"
    assert not is_locked(lock)
    with exclusive_lock(lock, "another runs"):
        assert is_locked(lock)
        with (
            pytest.raises(OperationFailed, match="another runs"),
            exclusive_lock(lock, "another runs"),
        ):
            pass
    assert not is_locked(lock)


def test_waiting_ends_when_the_condition_holds_or_time_is_up() -> None:
    answers = iter([False, True])
    assert wait_until(lambda: next(answers), 5.0)
    assert not wait_until(lambda: False, 0.0)


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="threads are not told here")
def test_a_process_lives_until_its_last_thread_has_ended() -> None:
    """Its locks are held as long, although its first thread is gone and waits to be reaped."""
    first_thread_ends = (
        "import ctypes, sys, threading\n"
        "threading.Thread(target=sys.stdin.read).start()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    child = subprocess.Popen([sys.executable, "-c", first_thread_ends], stdin=subprocess.PIPE)
    stat = Path(f"/proc/{child.pid}/stat")
    try:
        assert wait_until(lambda: ") Z " in stat.read_text(), 10)
        assert is_alive(child.pid)
        assert child.stdin is not None
        child.stdin.close()
        assert wait_until(lambda: not is_alive(child.pid), 10)
    finally:
        child.kill()
        child.wait()
