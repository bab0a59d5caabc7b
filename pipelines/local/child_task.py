"""A child that does one piece of work beside its parent, which sees how far it is.

What goes between them is pickled: both run this program, and the pipes are nobody else's. A child
whose parent was killed ends by itself, for its standard input closes.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from pipelines.local.python_process import end_with_standard_input, python_environment


def command(module: str) -> list[str]:
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
            command(module),
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
