"""`recollect` from outside, and no interpreter that starts: a process forked where all is loaded.

To start Python and to import a command takes ten times the processor's time of most commands. So
one process imports them all and forks another for each call, with arguments, environment, folder
and standard streams of its own, and an end of its own. That a command starts by itself, and what
it imports, is shown by tests that start it.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from pipelines.cli.main import COMMANDS, load, main

_ROOT = Path(__file__).parents[1]
_MOST_BYTES = 1 << 20
"""Of a call: its arguments and environment."""
_NUMBER_BYTES = 4
"""Of a process id and of an exit code."""


def run(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    stdin: bytes = b"",
    timeout_s: float = 120.0,
) -> subprocess.CompletedProcess[bytes]:
    """Run a command in a process of its own, in this folder; what it printed, and its exit code.

    Raises:
        subprocess.TimeoutExpired: it was killed after `timeout_s`.
    """
    folder = str(Path.cwd())
    call = {"arguments": list(arguments), "environment": dict(environment), "folder": folder}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        reading, writing = os.pipe()
        feeding = threading.Thread(target=_feed, args=(writing, stdin))
        with _forking() as connection:
            descriptors = [reading, out.fileno(), errors.fileno()]
            socket.send_fds(connection, [json.dumps(call).encode()], descriptors)
            os.close(reading)
            feeding.start()
            pid = _number(connection)
            connection.settimeout(timeout_s)
            try:
                code = _number(connection)
            except TimeoutError:
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(arguments), timeout_s) from None
            finally:
                feeding.join()
        printed = []
        for file in (out, errors):
            file.seek(0)
            printed.append(file.read())
    return subprocess.CompletedProcess(list(arguments), code, *printed)


def _feed(writing: int, stdin: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(writing, "wb") as pipe:
        pipe.write(stdin)


def _number(connection: socket.socket) -> int:
    data = connection.recv(_NUMBER_BYTES)
    if not data:
        raise ConnectionResetError("the process that forks is gone")
    return int.from_bytes(data, "big", signed=True)


def _forking() -> socket.socket:
    """A connection for one call to the process that forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        socket.send_fds(_started(), [b"call"], [theirs.fileno()])
    return ours


@cache
def _started() -> socket.socket:
    """To the process that forks; it ends with the last who holds the connection."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.forked_cli", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            cwd=_ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def _serve(calls: socket.socket) -> dict[str, Any] | None:
    """Fork for each call; None at the end, in a forked process what to run."""
    while True:
        _, descriptors, _, _ = socket.recv_fds(calls, 16, 1)
        if not descriptors:
            return None
        with socket.socket(fileno=descriptors[0]) as caller:
            data, streams, _, _ = socket.recv_fds(caller, _MOST_BYTES, 3)
            pid = os.fork()
            if not pid:
                for number, stream in enumerate(streams):
                    os.dup2(stream, number)
            for stream in streams:
                os.close(stream)
            if not pid:
                calls.close()
                call: dict[str, Any] = json.loads(data)
                return call
            with suppress(BrokenPipeError):
                caller.send(pid.to_bytes(_NUMBER_BYTES, "big", signed=True))
                code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                caller.send(code.to_bytes(_NUMBER_BYTES, "big", signed=True))


def _run_forked(number: int) -> None:
    for name in COMMANDS:
        load(name)
    gc.freeze()
    call = _serve(socket.socket(fileno=number))
    if call is None:
        return
    os.environ.clear()
    os.environ.update(call["environment"])
    os.chdir(call["folder"])
    random.seed()
    main(call["arguments"])


if __name__ == "__main__":
    _run_forked(int(sys.argv[1]))
