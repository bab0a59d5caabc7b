"""A process steps back with all its threads and children, and never forward."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

from pipelines.local.python_process import at_first_priority

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
