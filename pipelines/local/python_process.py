"""Processes that run our own code: starting one, talking to it, and what one sets about itself.

A child speaks in frames over its standard streams (length, then data) and ends with its input, and
so with its parent, however that ends. The model process speaks in the same frames over a socket.

A `ChildTask` does one piece of work beside its parent, which sees how far it is. What goes between
them is pickled: both run this program, and the pipes are nobody else's.
"""

from __future__ import annotations

import contextlib
import gc
import os
import selectors
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO, TypeVar

import orjson

_PACKAGES = Path(__file__).resolve().parents[2]
"""The folder that our packages are imported from."""
SHARED_METRICS = "PROMETHEUS_MULTIPROC_DIR"
"""Names the folder in which processes of one API count together: the library's own variable."""
_LOOK_EVERY_S = 0.5
"""Between two looks whether a child that is waited for was ended by another thread."""
_GC_THRESHOLD = 50_000
_MAX_REASON_CHARACTERS = 300

Result = TypeVar("Result")

# Starting one


def python_command(module: str, *arguments: str) -> list[str]:
    """The command line of a Python process that runs one of our modules.

    `-P` keeps the folder it starts in off its import path: a user's own `api/` or `pipelines/` in
    that folder must not be taken for ours, and must not even be executed.
    """
    return [sys.executable, "-P", "-m", module, *arguments]


def python_environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment of such a process: it finds our packages where this process found them.

    Relative entries of PYTHONPATH become absolute, because the child may start in another folder.
    A checkout that is neither installed nor named there, but which this process was started in
    (`python -m …`), is added. What this process is to its own parent is not inherited.

    Args:
        changes: further variables.
    """
    environment = {**os.environ, **(changes or {})}
    environment.pop(SHARED_METRICS, None)
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    paths = [str(Path(path).absolute()) for path in paths]
    if not sys.flags.safe_path and sys.path and Path(sys.path[0] or ".").resolve() == _PACKAGES:
        paths.append(str(_PACKAGES))
    if paths:
        environment["PYTHONPATH"] = os.pathsep.join(dict.fromkeys(paths))
    return environment


class ChildGone(Exception):
    """The child ended, or does not answer."""


class ChildLate(ChildGone):
    """The child runs and did not answer in time."""


class FramedChild:
    """A child that serves frames (`serve_frames`), seen from its parent.

    Args:
        command: its command line.
        descriptors: of this process, which it has too.
    """

    def __init__(self, command: Sequence[str], descriptors: Sequence[int] = ()) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            env=python_environment(),
            # Ctrl-C in the terminal reaches the parent, which finishes what is in hand first.
            start_new_session=True,
            pass_fds=descriptors,
        )
        self.pid = self._process.pid
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input = self._process.stdin
        self._output = self._process.stdout
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._output.fileno(), selectors.EVENT_READ)
        self._read = bytearray()

    def runs(self) -> bool:
        """Whether the process has not ended."""
        return self._process.poll() is None

    def wait_ready(self, timeout_s: float) -> str:
        """Why the child cannot serve, by its own account; empty when it is ready.

        Raises:
            ChildGone: it ended before it said either, or took longer.
        """
        return str(orjson.loads(self.receive(timeout_s)).get("error", ""))

    def send(self, data: bytes) -> None:
        """Send one frame.

        Raises:
            ChildGone: it does not read any more.
        """
        unsent = memoryview(framed(data))
        try:
            while unsent:
                unsent = unsent[self._input.write(unsent) :]
        except (OSError, ValueError) as error:  # ValueError: ended by another thread
            raise ChildGone from error

    def receive(self, timeout_s: float) -> bytes:
        """The next frame.

        Raises:
            ChildLate: it did not come in time; when it comes it must not be taken for the answer to
                the next question.
            ChildGone: it will not come.
        """
        deadline = time.monotonic() + timeout_s
        while True:
            if (frame := take_frame(self._read)) is not None:
                return frame
            try:
                left_s = max(0.0, deadline - time.monotonic())
                # What another thread closes meanwhile wakes nobody who waits for it.
                if not self._selector.select(min(left_s, _LOOK_EVERY_S)):
                    if left_s > _LOOK_EVERY_S:
                        continue
                    raise ChildLate
                data = os.read(self._output.fileno(), 1 << 18)
            except (OSError, ValueError) as error:
                raise ChildGone from error
            if not data:
                raise ChildGone
            self._read += data

    def stop(self, timeout_s: float) -> None:
        """Ask it to end in order (SIGTERM), and kill it if it has not in time."""
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.end()

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for stream in (self._input, self._output):
            with contextlib.suppress(OSError):
                stream.close()


def framed(data: bytes) -> bytes:
    """Length (4 bytes, little-endian) and data."""
    return len(data).to_bytes(4, "little") + data


def take_frame(received: bytearray) -> bytes | None:
    """The first frame of what was received, taken out of it; None: it has not come whole yet."""
    end = int.from_bytes(received[:4], "little") + 4
    if len(received) < end:  # a head that is not whole says less, and 4 at least
        return None
    frame = bytes(received[4:end])
    del received[:end]
    return frame


# The child's side

FrameHandler = Callable[[bytes], Iterable[bytes]]
"""The frames that answer one frame."""


class StartFailed(Exception):
    """The child cannot serve; the message says why."""


def write_frame(stream: BinaryIO, data: bytes) -> None:
    """Send one frame."""
    stream.write(framed(data))
    stream.flush()


def read_frame(stream: BinaryIO, limit: int = 2**32) -> bytes | None:
    """The data of one frame; None at the end of the stream, or before one beyond the limit."""
    head = stream.read(4)
    if len(head) < 4 or (size := int.from_bytes(head, "little")) > limit:
        return None
    data = stream.read(size)
    return data if len(data) == size else None


def take_standard_output() -> BinaryIO:
    """Where frames go: whatever a library prints must not come between them, and is shown."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return answers


def received_frames(descriptor: int) -> Iterator[bytes]:
    """The frames that come through a descriptor, until its end.

    It is read as it is: a thread that waits in a buffered stream of Python makes the interpreter
    abort at its end.
    """
    received = bytearray()
    while data := os.read(descriptor, 1 << 16):
        received += data
        while (frame := take_frame(received)) is not None:
            yield frame


def serve_frames(start: Callable[[], FrameHandler]) -> int:
    """Answer the frames on standard input until it ends; returns the exit code.

    The first frame that goes out is `{"ready": true}` or `{"error": reason}`.

    Args:
        start: loads what answers; raises StartFailed when that cannot be had.
    """
    answers = take_standard_output()
    try:
        answer = start()
    except StartFailed as error:
        write_frame(answers, orjson.dumps({"error": str(error)[:_MAX_REASON_CHARACTERS]}))
        return 1
    write_frame(answers, orjson.dumps({"ready": True}))
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        for data in answer(frame):
            write_frame(answers, data)
    return 0


def end_with_standard_input(end: Callable[[], None]) -> None:
    """Call `end` when standard input closes, that is when the parent that holds it is gone."""

    def watch() -> None:
        # Not through sys.stdin: its lock, held by a read, makes the interpreter abort at its end.
        while os.read(0, 4096):
            pass
        end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


# What a process sets about itself


def collect_rarely() -> None:
    """Look for cycles every 50,000 new objects instead of every 700.

    A block makes tens of thousands of tuples that all die with it and form no cycles; looking
    through them again and again was a fifth of Python's time in a fold, and the slowest queries of
    the API were those that waited for it.
    """
    gc.collect()
    gc.freeze()  # what was imported stays
    gc.set_threshold(_GC_THRESHOLD, 20, 50)


_unlowered = ThreadPoolExecutor(1, thread_name_prefix="unlowered")
"""A thread that keeps the priority of before `step_back`, for what is not to be lowered."""


def step_back(nice: int) -> None:
    """Lower the priority of every thread of this process to `nice`, and of what it will start.

    A higher one is left alone: only root may raise it again. Linux counts per thread, so threads
    that run already are lowered one by one; `at_first_priority` is not lowered.

    Args:
        nice: 0 (usual) to 19 (whatever the others leave).
    """
    tasks = Path("/proc/self/task")
    try:
        threads = {int(task.name) for task in tasks.iterdir()}
    except OSError:  # not Linux: the process has one priority
        threads = {0}
    else:
        threads.discard(_unlowered.submit(threading.get_native_id).result())
    for thread in threads:
        try:
            if os.getpriority(os.PRIO_PROCESS, thread) < nice:
                os.setpriority(os.PRIO_PROCESS, thread, nice)
        except ProcessLookupError:  # it ended meanwhile
            continue


def at_first_priority(start: Callable[[], Result]) -> Result:
    """Start a process with the priority that this one had before it stepped back.

    Args:
        start: starts it, and hands it back.

    Raises:
        OSError: it could not be started.
    """
    return _unlowered.submit(start).result()


def task_command(module: str) -> list[str]:
    """Of a child that calls the module's `main`.

    Not `-m`: what that module sends would be of a class that the parent does not know.
    """
    return [sys.executable, "-P", "-c", f"from {module} import main; main()"]


class ChildTask:
    """The parent's side; a context manager, whose end is the child's.

    Args:
        module: which the child imports, to call its `main`.
        task: what `take` returns there. May hold passwords: no argument, no variable has it.

    Raises:
        OSError: the child did not start.
    """

    def __init__(self, module: str, task: Any) -> None:
        self._process = subprocess.Popen(
            task_command(module),
            # Beside others of its kind, threads for one product of matrices only wait in circles.
            env=python_environment({"OPENBLAS_NUM_THREADS": "1"}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches this process, which ends it
        )
        assert self._process.stdin is not None
        sender = Connection(os.dup(self._process.stdin.fileno()), readable=False)
        try:
            sender.send(task)
        except OSError:
            self.end()
            raise
        finally:
            sender.close()

    def messages(self) -> Iterator[Any]:
        """What the child sends, until it ends, however it does."""
        assert self._process.stdout is not None
        receiver = Connection(os.dup(self._process.stdout.fileno()), writable=False)
        with contextlib.closing(receiver), contextlib.suppress(EOFError, OSError):
            while True:
                yield receiver.recv()

    def end(self) -> None:
        """Kill it, if it runs."""
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def __enter__(self) -> ChildTask:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()


def take() -> tuple[Any, Callable[[Any], None]]:
    """The child's side: its task, and how to send a message."""
    sender = Connection(os.dup(1), readable=False)
    os.dup2(2, 1)  # whatever prints must not come between the messages
    receiver = Connection(os.dup(0), writable=False)
    task = receiver.recv()
    end_with_standard_input(lambda: os._exit(1))
    return task, sender.send
