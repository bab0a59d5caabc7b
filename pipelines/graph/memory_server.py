"""A graph in the memory of this process, served to other processes of the user over a Unix socket.

A client asks one question after the other and is answered each time, or begins a transaction, whose
questions this side asks within one of its own: it is committed when the client says so, and taken
back when the client errs, goes away, or says nothing for too long. So a command works on the graph
as on any other. What is said is in `wire`, and only processes of the same user are heard.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final

from pipelines.graph.port import Graph, Transaction
from pipelines.graph.wire import decoded, encoded, error_parts
from pipelines.local.python_process import ChildGone, ChildLate
from pipelines.local.shared_process import Connection, make_socket_folder
from pipelines.local.shared_server import is_ours
from pipelines.observe import logs

BEGIN: Final = "begin"
COMMIT: Final = "commit"
ROLL_BACK: Final = "rollback"
STREAM: Final = "stream"
MORE: Final = "more"
ANSWER: Final = "answer"
ERROR: Final = "error"
QUESTIONS: Final = frozenset(
    (
        *("nodes", "find", "scan", "edges", "between", "degrees", "across", "stretch", "nearest"),
        *("ensure_schema", "ensure_checkpoints", "checkpoints", "dead_letters", "clear"),
        *("renew_feed", "feed", "changes", "store_id", "counts", "census"),
    )
)
WRITES: Final = frozenset(
    (
        *("advance", "lock", "reset", "lock_nodes", "apply", "dead_letters_of", "add_dead_letter"),
        *("drop_dead_letters", "drop_later_dead_letters", "restore_nodes", "restore_edges"),
        *("restore_values", "remove_foreign", "hold"),
    )
)
"""In a transaction, beside the questions that are reads."""
STREAMED: Final = 500
"""Nodes or edges a frame."""
_IDLE_S: Final = 3_600.0
"""A client that says nothing for longer, outside of a transaction, is let go."""
_SEND_S: Final = 60.0
_BACKLOG: Final = 16

_log = logs.get_logger(__name__)


class _GoneAway(Exception):
    """The client went, or fell silent, within a transaction."""


class _TakenBack(Exception):
    """The client asked for it."""


class GraphServer:
    """Serves a graph until it is stopped.

    Args:
        graph: that other processes ask for.
        path: of the socket, in a folder that is the user's alone.
        transaction_s: a client that says nothing for so long within a transaction loses it.
    """

    def __init__(self, graph: Graph, path: Path, *, transaction_s: float) -> None:
        self._graph = graph
        self._path = path
        self._transaction_s = transaction_s
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._stopped = False

    def start(self) -> None:
        """Listen from now on. A socket at the path was left by a process that was killed.

        Raises:
            ProcessUnavailable: the folder is somebody else's.
        """
        make_socket_folder(self._path.parent)
        self._path.unlink(missing_ok=True)
        self._listener.bind(str(self._path))
        self._listener.listen(_BACKLOG)
        threading.Thread(target=self._accept, name="graph-server", daemon=True).start()

    def stop(self) -> None:
        """Listen no more, and take the socket away."""
        self._stopped = True
        self._path.unlink(missing_ok=True)
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while not self._stopped:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if not is_ours(client):
                client.close()
                continue
            threading.Thread(
                target=self._attend, args=(Connection(client),), name="graph-client", daemon=True
            ).start()

    def _attend(self, client: Connection) -> None:
        try:
            while True:
                self._answer(client, *_asked(client, _IDLE_S))
        except (ChildGone, _GoneAway):
            pass
        except (ValueError, TypeError) as error:
            _log.warning("not a question to the graph", reason=str(error))
        finally:
            client.close()

    def _answer(self, client: Connection, name: str, given: Any, named: Any) -> None:
        if name == BEGIN:
            self._transact(client)
        elif name == STREAM:
            _stream(client, self._graph.stream(*given, **named))
        elif name in QUESTIONS:
            _say(client, self._graph, (name, given, named))
        else:
            raise ValueError(name)

    def _transact(self, client: Connection) -> None:
        """Answer within a transaction until its end, which the client is told."""
        try:
            with self._graph.transaction() as transaction:
                _tell(client, ANSWER, None)
                while True:
                    name, given, named = _asked(client, self._transaction_s)
                    if name == COMMIT:
                        break
                    if name == ROLL_BACK:
                        raise _TakenBack
                    if name == STREAM:
                        _stream(client, transaction.stream(*given, **named))
                    elif name in WRITES or name in QUESTIONS:
                        on = transaction if hasattr(transaction, name) else self._graph
                        _say(client, on, (name, given, named))
                    else:
                        raise ValueError(name)
        except _TakenBack:
            pass
        except ChildLate as error:
            _log.warning("a transaction is taken back: its process says nothing")
            raise _GoneAway from error
        _tell(client, ANSWER, None)


def _asked(client: Connection, timeout_s: float) -> tuple[str, Any, Any]:
    name, given, named = decoded(client.receive(timeout_s))
    return str(name), given, named


def _say(client: Connection, on: Graph | Transaction, question: tuple[str, Any, Any]) -> None:
    """Answer one question; what it says of the transaction goes with the answer."""
    name, given, named = question
    try:
        answer = getattr(on, name)(*given, **named)
    except Exception as error:  # noqa: BLE001  it is the client's
        _tell(client, ERROR, error_parts(error))
        return
    _tell(client, ANSWER, (answer, *_facts(on)))


def _facts(on: Any) -> tuple[bool, int, bool] | tuple[()]:
    if not hasattr(on, "advanced"):
        return ()
    return on.advanced, on.dead_letters, on.has_tombstones


def _stream(client: Connection, items: Iterator[Any]) -> None:
    while some := list(islice(items, STREAMED)):
        _tell(client, MORE, some)
    _tell(client, ANSWER, None)


def _tell(client: Connection, kind: str, value: Any) -> None:
    client.send(encoded((kind, value)), _SEND_S)
