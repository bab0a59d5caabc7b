"""The process that holds the columns of a graph: `python -P -m pipelines.columns.service`.

Whoever asks first starts it (`client`); it ends by itself some seconds after its last client has
gone (`pipelines.local.shared_server`). It follows the graph on a thread of its own, and answers
each client on another, from what it holds, whether the graph is there or away.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, TypeVar

from pydantic import SecretStr

from pipelines.columns.follow import Columns
from pipelines.columns.follower import SWITCH_S, Follower
from pipelines.columns.wire import (
    MAX_QUESTION_BYTES,
    Login,
    Question,
)
from pipelines.graph.client import connect_neo4j
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.local.python_process import collect_rarely, read_frame, write_frame
from pipelines.local.shared_server import CLIENT_THREAD, SharedServer, end_broken
from pipelines.observe import logs
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError

Frame = TypeVar("Frame")

_log = logs.get_logger(__name__)


class ColumnsService:
    """Answers the clients of one graph, which the first of them names."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._follower: Follower | None = None

    def talk(self, stream: BinaryIO) -> None:
        """Answer a client until it has gone, or says what is no question."""
        login = _read(stream, Login.decode)
        if login is None:
            return
        try:
            follower = self._following(login)
        except ConfigurationError as error:
            _log.error("columns cannot follow the graph", reason=str(error))
            return
        while (question := _read(stream, Question.decode)) is not None:
            write_frame(stream, follower.answer(question))

    def _following(self, login: Login) -> Follower:
        """What follows the graph. All clients mean the same: the path of the socket says so."""
        with self._guard:
            if self._follower is None:
                password = None if login.password is None else SecretStr(login.password)
                settings = Settings(neo4j_user=login.user, neo4j_password=password)
                logs.configure_logging(settings)
                driver = connect_neo4j(login.uri, settings)
                copy = None if login.copy is None else Path(login.copy)
                graph = Neo4jGraph(driver, login.database)
                self._follower = Follower(Columns(graph, copy), login.ledger)
            return self._follower


def _read(stream: BinaryIO, decode: Callable[[bytes], Frame]) -> Frame | None:
    """What a client says next; None: he has gone, or says nothing that a client of ours says."""
    frame = read_frame(stream, MAX_QUESTION_BYTES)
    try:
        return None if frame is None else decode(frame)
    except ValueError:
        return None


def _end_unless_client(problem: threading.ExceptHookArgs) -> None:
    """A question that we cannot answer is told to whoever asked: his connection ends, we do not."""
    if problem.thread is not None and problem.thread.name == CLIENT_THREAD:
        threading.__excepthook__(problem)
    else:
        end_broken(problem)


def main(descriptor: str, path: str, linger_s: str, _: str) -> None:
    """Serve until nobody is left.

    Args:
        descriptor: of the listening socket.
        path: of the socket.
        linger_s: seconds after the last client.
    """
    threading.excepthook = _end_unless_client
    collect_rarely()
    # A question must not wait 5 ms, as is usual, whenever changes are being taken in.
    sys.setswitchinterval(SWITCH_S)
    SharedServer(ColumnsService().talk, linger_s=float(linger_s)).serve(descriptor, Path(path))


if __name__ == "__main__":
    main(*sys.argv[1:])
