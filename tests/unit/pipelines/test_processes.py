"""Processes: how many serve, how one steps back, and how each ends."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from pipelines.local import python_process
from pipelines.local.data_folder import exclusive_lock, is_locked
from pipelines.local.processes import is_alive, usable_cores, wait_until
from pipelines.local.python_process import at_first_priority, python_command, python_environment
from pipelines.operations import api
from pipelines.work.settings import Settings
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


STEPS = """
    import os, subprocess, sys, threading
    from pipelines.local.python_process import step_back

    stop, seen = threading.Event(), []

    def wait():
        stop.wait()
        seen.append(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))

    before = os.getpriority(os.PRIO_PROCESS, 0)
    thread = threading.Thread(target=wait)
    thread.start()
    step_back(before + 3)
    step_back(before + 1)
    stop.set()
    thread.join()
    child = subprocess.run(
        [sys.executable, "-c", "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"],
        capture_output=True,
        text=True,
    )
    found = (os.getpriority(os.PRIO_PROCESS, 0), *seen, int(child.stdout))
    print([nice - before for nice in found])
"""


def test_threads_and_children_step_back_together() -> None:
    code = textwrap.dedent(STEPS)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[3, 3, 3]\n"


def test_whatever_cannot_be_started_is_told() -> None:
    def fails() -> None:
        raise LookupError("no such program")

    with pytest.raises(LookupError, match="no such program"):
        at_first_priority(fails)
    assert at_first_priority(lambda: "the next is started") == "the next is started"


CORES = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@pytest.mark.parametrize(
    ("limit", "cores"),
    [
        ("max 100000\n", CORES),
        ("100000 100000\n", 1),
        ("10000 100000\n", 1),
        ("110000 100000\n", min(2, CORES)),
        ("6400000 100000\n", min(64, CORES)),
        ("nonsense\n", CORES),
        (None, CORES),
    ],
)
def test_the_limit_of_a_container_counts(tmp_path: Path, limit: str | None, cores: int) -> None:
    quota = tmp_path / "cpu.max"
    if limit is not None:
        quota.write_text(limit, encoding="ascii")
    assert usable_cores(quota) == cores


@pytest.mark.parametrize(
    ("wanted", "cores", "served"),
    [(None, 1, "main"), (None, 3, "processes 3"), (1, 3, "main"), (2, 1, "processes 2")],
)
def test_as_many_processes_serve_as_are_wanted(
    monkeypatch: pytest.MonkeyPatch, wanted: int | None, cores: int, served: str
) -> None:
    """One serves alone, without another that looks after it."""
    called: list[str] = []

    def serve_of(module: str, name: str) -> Callable[..., None]:
        assert name == "serve"
        return lambda _, *processes: called.append(" ".join(map(str, (module, *processes))))

    monkeypatch.setattr(api, "usable_cores", lambda: cores)
    monkeypatch.setattr(api, "_of_api", serve_of)
    api.serve_api(Settings(api_processes=wanted))
    assert called == [served]
