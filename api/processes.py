"""Several processes that serve one API on one port, and whoever keeps them up.

The port is opened once, and every process takes connections from it: while one is started again
the others take what comes. `Supervision` keeps them up, as it does the children of `recollect up`:
one that ended is started at once, one that ends again and again after longer and longer pauses, one
that does not answer for half a minute is killed. Nothing of the API is loaded here.

The first process takes connections at once and says itself whether it is ready, as a single one
does. Those that come beside one that does take them when they are warm, so that nobody is answered
slowly, or told that the API is not ready, by one that has just been started.
"""

from __future__ import annotations

import pickle
import socket
import threading
import time
from collections.abc import Callable
from pathlib import Path
from signal import SIGINT
from tempfile import TemporaryDirectory
from typing import Final

import orjson

from api.preflight import Share, check_settings, listening
from api.process import Assignment
from pipelines.local.processes import POLL_S, StopSignal
from pipelines.local.python_process import ChildGone, FramedChild, python_command
from pipelines.local.supervision import ANSWERS, Supervision
from pipelines.observe import logs
from pipelines.work.settings import Settings
from projections.errors import OperationFailed

_COMMAND: Final = python_command("api.process")
_ANSWER_S: Final = 1.0
"""For an answer of a process; a loop that has more to do answers a later question."""
_STOP_S: Final = 45.0
"""For a process to end: requests under way have 35 s, connections and threads the rest."""

_log = logs.get_logger(__name__)


class ApiChild:
    """One place among those that serve; the process in it may end and be started again.

    Args:
        siblings: all places, this one included.
        assignment: what its process is told.
    """

    silence_s = 30.0
    log_path = None

    def __init__(self, siblings: Siblings, assignment: Assignment) -> None:
        self.name = f"api-{assignment.share.number}"
        self._siblings = siblings
        self._assignment = assignment
        self._process: FramedChild | None = None
        self._waits = False
        self._serves = False
        self._asked = 0

    @property
    def pid(self) -> int | None:
        """Process id while it runs."""
        process = self._process
        return process.pid if process is not None and process.runs() else None

    @property
    def takes_connections(self) -> bool:
        """Whether it does, or will without waiting for anything."""
        return self.pid is not None and (self._serves or not self._waits)

    def start(self) -> None:
        """Start it.

        Raises:
            OperationFailed: it ended at once.
        """
        with self._siblings.starting:
            if self._process is not None:
                self._process.end()
            self._waits, self._serves = self._siblings.take_connections(but=self), False
            told = self._assignment
            share = Share(told.share.processes, told.share.number, told.folder, waits=self._waits)
            self._process = FramedChild(_COMMAND, descriptors=[told.listener])
        try:
            self._process.send(pickle.dumps(told._replace(share=share)))
        except ChildGone:
            raise OperationFailed(reason="it ended at once") from None

    def answers(self) -> bool:
        """Whether it takes connections now."""
        process, until_s = self._process, time.monotonic() + _ANSWER_S
        if process is None:
            return False
        self._asked += 1
        try:
            process.send(orjson.dumps(self._asked))
            number = 0
            while number != self._asked:  # what comes first may answer what was asked before
                left_s = max(0.0, until_s - time.monotonic())
                number, self._serves = orjson.loads(process.receive(left_s))
        except ChildGone:
            return False
        return self._serves

    def kill(self) -> None:
        """Kill it at once."""
        if self._process is not None:
            self._process.end()

    def stop(self) -> None:
        """Have it finish the requests under way, if it has any, and end."""
        if self._process is None:
            return
        if self._serves:
            self._process.stop(_STOP_S)
        else:
            self._process.end()


class Siblings:
    """All places of an API.

    Args:
        settings: of the deployment.
        processes: how many, at least 1.
        listener: listens.
        folder: private; they count there.

    Attributes:
        starting: held while one is started.
    """

    def __init__(
        self, settings: Settings, processes: int, listener: socket.socket, folder: Path
    ) -> None:
        self.starting = threading.Lock()
        self.children = [
            ApiChild(
                self, Assignment(settings, Share(processes, number), folder, listener.fileno())
            )
            for number in range(processes)
        ]

    def take_connections(self, *, but: ApiChild) -> bool:
        """Whether another one takes connections."""
        return any(child.takes_connections for child in self.children if child is not but)


def serve(
    settings: Settings, processes: int, *, ready: Callable[[str], None] | None = None
) -> None:
    """Run the API in several processes until SIGTERM, SIGINT or SIGHUP, from the main thread.

    Requests under way are finished.

    Args:
        settings: `api_port` 0 takes a free port.
        processes: how many, at least 1.
        ready: called with the URL once the port is open.

    Raises:
        ConfigurationError: there is no API key and `insecure_dev` is not set.
        OSError: the port is taken.
        OperationFailed: a process does not start; why stands in the log.
        KeyboardInterrupt: SIGINT, once all have ended.
    """
    check_settings(settings)
    logs.configure_logging(settings)
    stop = StopSignal()
    with (
        stop,
        TemporaryDirectory(prefix="recollect-api-") as folder,
        listening(settings) as (listener, url),
    ):
        _log.info("listening", url=url, processes=processes)
        if ready is not None:
            ready(url)
        children = Siblings(settings, processes, listener, Path(folder)).children
        supervision = Supervision(((child.name, child) for child in children), tell=_tell)
        supervision.start()
        try:
            supervision.wait_up(supervision.children, is_over=lambda: stop.received)
            while not stop.received:
                time.sleep(POLL_S)
        finally:
            listener.close()
            supervision.stop(together=True)
    if stop.number == SIGINT:
        raise KeyboardInterrupt


def _tell(name: str, what: str) -> None:
    tell = _log.info if what == ANSWERS else _log.warning
    tell("api process", process=name, what=what)
