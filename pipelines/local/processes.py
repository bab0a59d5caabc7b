"""Child processes: those that cannot outlive their parent, and those that are meant to.

What both kinds share is here: ports, logs, and the signals that stop whoever holds them.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from math import ceil
from pathlib import Path
from types import FrameType
from typing import Any, Final

from pipelines.local.private_files import open_private, private_folder
from pipelines.local.python_process import python_environment
from projections.errors import OperationFailed

START_TIMEOUT_S = 300.0
"""For a process to get ready: a few seconds, but on a machine ten times overcommitted minutes."""
STOP_TIMEOUT_S = 60.0
"""For a detached holder of processes to end after it was asked to."""
PRIVATE_UMASK = 0o077
"""Of processes in whose files is what events say, for nobody else to read."""
POLL_S = 0.1
"""Between two looks at processes, locks and state files."""

_PR_SET_PDEATHSIG = 1
# Below the ports that systems hand to outgoing connections: a client that knocks at a stopped
# server's port can then neither be given that port nor connect to itself.
_PORTS = range(20_000, 32_000)
_LOG_TAIL_BYTES = 4_000

# Waits for the end of its standard input, which its parent holds open, then kills the process
# named in its argument. A watched process that stopped in order has its watcher killed first.
_WATCHER = """
import os, signal, sys
sys.stdin.buffer.read()
try:
    os.kill(int(sys.argv[1]), signal.SIGKILL)
except ProcessLookupError:
    pass
"""


def port_is_free(port: int) -> bool:
    """Whether a server could listen on `port` of 127.0.0.1 now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def free_port(preferred: int | None = None, patience_s: float = 0.0) -> int:
    """A port of 127.0.0.1 nobody listens on: `preferred` if it is free within `patience_s`."""
    deadline = time.monotonic() + patience_s
    while preferred is not None:
        if port_is_free(preferred):
            return preferred
        if time.monotonic() >= deadline:
            break
        time.sleep(0.05)
    for _ in range(200):
        port = random.choice(_PORTS)
        if port_is_free(port):
            return port
    raise OperationFailed(reason="no free port between 20000 and 32000 on 127.0.0.1")


_THREADS = 17
"""Number of threads among the fields of /proc/PID/stat, from the state on."""


def is_alive(pid: int) -> bool:
    """Whether a process `pid` runs; one that ended but was not waited for does not.

    While one of its threads has not ended, it holds its files and their locks.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    stat = Path(f"/proc/{pid}/stat")
    try:
        fields = stat.read_text().rpartition(")")[2].split()
        return fields[0] not in ("Z", "X") or int(fields[_THREADS]) > 1
    except (OSError, IndexError):
        return not Path("/proc/self/stat").exists()


def log_tail(path: Path, lines: int = 15) -> str:
    """The last `lines` lines of the log at `path`, for an error message."""
    try:
        data = path.read_bytes()[-_LOG_TAIL_BYTES:]
    except FileNotFoundError:
        return "(no log)"
    return "\n".join(data.decode(errors="replace").splitlines()[-lines:])


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Wait until `condition` holds; whether it did within `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_S)
    return True


class StopSignal:
    """Whether a signal asked this process to stop; puts the earlier handlers back at the end.

    Attributes:
        number: of the first signal; None: there was none.
    """

    _SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)

    def __init__(self) -> None:
        self.number: int | None = None
        self._before: dict[signal.Signals, Any] = {}

    @property
    def received(self) -> bool:
        """Whether there was one."""
        return self.number is not None

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if self.number is None:
            self.number = number

    def __enter__(self) -> None:
        self._before = {number: signal.signal(number, self._receive) for number in self._SIGNALS}

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)


def spawn_detached(
    command: Sequence[str],
    log_path: Path,
    environment: Mapping[str, str] | None = None,
    descriptors: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    """Start a Python process that outlives this one; it prints to the end of its log.

    It runs in the folder above the one of its log, which is the data folder: the caller's folder
    may go away.

    Args:
        command: from `python_command`.
        log_path: in the log folder.
        environment: its environment; None: this process' own.
        descriptors: of this process, which it has too.
    """
    private_folder(log_path.parent)
    with open_private(log_path, "ab") as log:
        return subprocess.Popen(
            command,
            cwd=log_path.parent.parent,
            env=python_environment() if environment is None else environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            umask=PRIVATE_UMASK,
            pass_fds=descriptors,
        )


def wait_detached(
    process: subprocess.Popen[bytes],
    *,
    logs: Sequence[Path],
    is_ready: Callable[[], bool],
    timeout_s: float,
    what: str,
) -> None:
    """Return once a process of `spawn_detached` is ready; it is ended if that never comes.

    Args:
        process: just started.
        logs: the file it prints to, then others whose ends help to explain a failure.
        is_ready: asked again and again.
        timeout_s: for getting ready.
        what: for the error message, plural.

    Raises:
        OperationFailed: it ended, or was not ready in time; with the ends of the logs.
    """
    try:
        if not wait_until(lambda: is_ready() or process.poll() is not None, timeout_s):
            reason = f"{what} were not ready within {timeout_s:.0f} s"
        elif not is_ready():
            reason = f"{what} did not start"
        else:
            reason = ""
        if reason:
            raise OperationFailed(reason="\n".join([f"{reason}:", *map(log_tail, logs)]))
    except BaseException:
        process.terminate()
        process.wait()
        raise
    reap(process)


def reap(process: subprocess.Popen[bytes]) -> None:
    """Leave a process alone that outlives this one by intent; if it ends first, it is no zombie."""
    threading.Thread(target=process.wait, name="reaper", daemon=True).start()


class _Spawner:
    """Forks from one thread that lives as long as the process.

    Linux sends the parent-death signal when the *thread* that forked ends, so a child started by
    a thread of a pool would be killed when the pool is.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owner = 0
        self._tasks: queue.SimpleQueue[
            tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]
        ] = queue.SimpleQueue()

    def run(self, start: Callable[[], subprocess.Popen[bytes]]) -> subprocess.Popen[bytes]:
        """Call `start` on the spawning thread and hand back its process."""
        with self._lock:
            if self._owner != os.getpid():  # the first use, or the first after a fork
                self._owner = os.getpid()
                self._tasks = queue.SimpleQueue()
                threading.Thread(
                    target=self._serve, args=(self._tasks,), name="spawner", daemon=True
                ).start()
        future: Future[subprocess.Popen[bytes]] = Future()
        self._tasks.put((start, future))
        return future.result()

    @staticmethod
    def _serve(
        tasks: queue.SimpleQueue[
            tuple[Callable[[], subprocess.Popen[bytes]], Future[subprocess.Popen[bytes]]]
        ],
    ) -> None:
        while True:
            start, future = tasks.get()
            try:
                future.set_result(start())
            except (OSError, subprocess.SubprocessError) as error:
                future.set_exception(error)


_spawner = _Spawner()


def die_with_parent() -> Callable[[], None] | None:
    """What a child runs before its program so that the kernel kills it with us; Linux only."""
    if not sys.platform.startswith("linux"):
        return None
    # Loaded before the fork: between fork and exec no lock of this process may be needed.
    libc = ctypes.CDLL(None, use_errno=True)
    parent = os.getpid()

    def before_exec() -> None:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # it died before the call above
            os._exit(1)

    return before_exec


class ServerProcess(ABC):
    """A server on 127.0.0.1 as a child process; can be started again on its port and data.

    Its port is chosen once, so clients find a restarted server where it was. It dies with the
    process that started it, even when that is killed.

    Args:
        data_dir: folder of its data, configuration and log; created when missing.
        port: port to listen on; a free one when None.

    Attributes:
        name: for people.
        silence_s: without an answer, after which whoever supervises it takes it for hung.
    """

    name: str
    silence_s = 30.0

    def __init__(self, data_dir: Path, *, port: int | None = None) -> None:
        self.data_dir = Path(data_dir).absolute()
        self.port = port if port is not None else free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self._watcher: subprocess.Popen[bytes] | None = None
        self._use_watcher = not sys.platform.startswith("linux")

    @property
    @abstractmethod
    def url(self) -> str:
        """Where clients connect."""

    @property
    @abstractmethod
    def log_path(self) -> Path:
        """File that holds what the server prints."""

    @abstractmethod
    def answers(self) -> bool:
        """Whether the server does its work now."""

    @abstractmethod
    def _prepare(self) -> list[str]:
        """Write what the server reads on start and return its command line."""

    def _environment(self) -> Mapping[str, str] | None:
        """Its environment; None: this process' own."""
        return None

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        if self._process is None or self._process.poll() is not None:
            return None
        return self._process.pid

    def start(self) -> None:
        """Start the process; `wait_ready` tells when it can be used.

        Raises:
            OperationFailed: it runs already, or its program cannot be started.
        """
        if self.pid is not None:
            raise OperationFailed(reason=f"{self.name} runs already as process {self.pid}")
        private_folder(self.data_dir)
        command, environment = self._prepare(), self._environment()
        before_exec = None if self._use_watcher else die_with_parent()

        def start() -> subprocess.Popen[bytes]:
            with open_private(self.log_path, "ab") as log:
                return subprocess.Popen(
                    command,
                    cwd=self.data_dir,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    # Ctrl-C in the terminal reaches the parent, which then stops it in order.
                    start_new_session=True,
                    umask=PRIVATE_UMASK,
                    preexec_fn=before_exec,
                )

        try:
            self._process = _spawner.run(start)
        except (OSError, subprocess.SubprocessError) as error:
            raise OperationFailed(reason=f"{self.name} did not start: {error}") from error
        if self._use_watcher:
            self._watcher = subprocess.Popen(
                [sys.executable, "-I", "-c", _WATCHER, str(self._process.pid)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )

    def wait_ready(self, timeout_s: float = 240.0) -> None:
        """Return once the server answers.

        Raises:
            OperationFailed: it ended, or did not answer within `timeout_s`; with its log's end.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if self.pid is None:
                raise OperationFailed(
                    reason=f"{self.name} ended while starting:\n{log_tail(self.log_path)}"
                )
            if self.answers():
                return
            if time.monotonic() > deadline:
                raise OperationFailed(
                    reason=f"{self.name} did not answer within {timeout_s:.0f} s:\n"
                    f"{log_tail(self.log_path)}"
                )
            time.sleep(0.05)

    def stop(self, timeout_s: float = 30.0) -> None:
        """Ask it to end in order, and kill it if it has not after `timeout_s`."""
        process = self._process
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._forget()

    def kill(self) -> None:
        """Kill it at once (SIGKILL), as a crash would."""
        if self._process is None:
            return
        self._process.kill()
        self._process.wait()
        self._forget()

    def _forget(self) -> None:
        self._process = None
        if self._watcher is not None:
            self._watcher.kill()
            with contextlib.suppress(OSError):
                self._watcher.communicate()
            self._watcher = None


_QUOTA: Final = Path("/sys/fs/cgroup/cpu.max")
"""Microseconds of processor time, or `max`, and of the time in which they may be used."""


def usable_cores(quota: Path = _QUOTA) -> int:
    """Those that the system gives this process, or as many as a container's limit comes to.

    Args:
        quota: file of the limit; it may be missing.
    """
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:  # macOS
        cores = os.cpu_count() or 1
    try:
        used, within = quota.read_text(encoding="ascii").split()
        return max(1, min(cores, ceil(int(used) / int(within))))
    except (OSError, ValueError):  # another system, or `max`
        return cores
