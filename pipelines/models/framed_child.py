"""A model's process as a child: frames to its standard input, frames back from its output."""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Sequence


class ChildGone(Exception):
    """The child ended, or does not answer."""


class ChildLate(ChildGone):
    """The child runs and did not answer in time."""


class FramedChild:
    """The process, and frames to and from it: length (4 bytes, little-endian) and data.

    It is expected to end with its input, and so with its parent.

    Args:
        command: its command line.
    """

    def __init__(self, command: Sequence[str]) -> None:
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
            # Ctrl-C in the terminal reaches the parent, which finishes what is in hand first.
            start_new_session=True,
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

    def send(self, data: bytes) -> None:
        """Send one frame.

        Raises:
            ChildGone: it does not read any more.
        """
        rest = memoryview(len(data).to_bytes(4, "little") + data)
        try:
            while rest:
                rest = rest[self._input.write(rest) :]
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
            size = int.from_bytes(self._read[:4], "little") + 4
            if len(self._read) >= max(size, 4):
                frame = bytes(self._read[4:size])
                del self._read[:size]
                return frame
            try:
                if not self._selector.select(max(0.0, deadline - time.monotonic())):
                    raise ChildLate
                data = os.read(self._output.fileno(), 1 << 18)
            except (OSError, ValueError) as error:
                raise ChildGone from error
            if not data:
                raise ChildGone
            self._read += data

    def end(self) -> None:
        """Kill it, and wait until it is gone."""
        self._process.kill()
        self._process.wait()
        self._selector.close()
        for stream in (self._input, self._output):
            with contextlib.suppress(OSError):
                stream.close()
