"""One of the processes that serve an API, started and asked by `api.processes`.

Its first frame says what it serves and where; settings come so, and through nothing that others can
look at. Every further frame asks whether it serves, and is answered by the event loop: one that
hangs is silent. At the end of its input nobody looks after it any more, and it ends at once, so
that the port is free for whoever takes its parent's place.
"""

from __future__ import annotations

import os
import pickle
import shutil
import signal
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from api.preflight import Share
from pipelines.local.python_process import framed, received_frames, take_standard_output
from pipelines.observe import shared_metrics
from pipelines.work.settings import Settings

if TYPE_CHECKING:
    import uvicorn


class Assignment(NamedTuple):
    """What a process is to do.

    Attributes:
        settings: of the deployment.
        share: its place.
        folder: of `share`.
        listener: descriptor of the port.
    """

    settings: Settings
    share: Share
    folder: Path
    listener: int


class Lifeline:
    """Answers the parent, on a thread of its own, and ends the process with it.

    Args:
        frames: that the parent sends.
        answers: descriptor that the answers go to.
        folder: removed at the end, which the parent has not come to.
    """

    def __init__(self, frames: Iterator[bytes], answers: int, folder: Path) -> None:
        self._frames = frames
        self._answers = answers
        self._folder = folder
        self._server: uvicorn.Server | None = None
        threading.Thread(target=self._run, name="lifeline", daemon=True).start()

    def watch(self, server: uvicorn.Server) -> None:
        """This server is asked about from now on."""
        self._server = server

    def _run(self) -> None:
        for frame in self._frames:
            number, server = orjson.loads(frame), self._server
            if server is None or not server.started:
                self._answer(number, is_serving=False)
            else:
                loop: Any = server.servers[0].get_loop()
                # RuntimeError: it has stopped, and so does the process
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._answer_serving, number)
        shutil.rmtree(self._folder, ignore_errors=True)
        os.kill(os.getpid(), signal.SIGKILL)

    def _answer_serving(self, number: int) -> None:
        self._answer(number, is_serving=True)

    def _answer(self, number: int, *, is_serving: bool) -> None:
        # One write of a few bytes is not cut by another one. BrokenPipeError: the parent is gone,
        # and so is its end of the input.
        with suppress(BrokenPipeError):
            os.write(self._answers, framed(orjson.dumps([number, is_serving])))


def main() -> int:
    """Serve until a signal, or until the parent is gone."""
    answers, frames = take_standard_output(), received_frames(0)
    sent = next(frames, None)
    if sent is None:
        return 1
    assignment: Assignment = pickle.loads(sent)  # noqa: S301 - from our own parent
    lifeline = Lifeline(frames, answers.fileno(), assignment.folder)
    shared_metrics.join(assignment.folder, assignment.share.number)
    from api.main import serve_on  # declares metrics, so it comes after that

    with socket.socket(fileno=assignment.listener) as listener:
        serve_on(listener, assignment.settings, assignment.share, lifeline.watch)
    return 0


if __name__ == "__main__":
    sys.exit(main())
