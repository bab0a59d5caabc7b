"""A graph in the memory of one process, asked by others of the user over a Unix socket: both ends.

A client asks one question after the other and is answered each time, or begins a transaction, whose
questions the server asks within one of its own: it is committed when the client says so, and taken
back when the client errs, goes away, or says nothing for too long. So a command works on the graph
as on any other (`port.Graph`). What is said is in `wire`, and only processes of the same user are
heard.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, Final, cast

from pipelines.graph.memory_graphs import SMALL_URI, graph_socket, held
from pipelines.graph.port import Graph, Transaction
from pipelines.graph.wire import decoded, encoded, error_of, error_parts
from pipelines.local.python_process import ChildGone, ChildLate
from pipelines.local.shared_process import Connection, make_socket_folder
from pipelines.local.shared_server import is_ours
from pipelines.observe import logs
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable

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
        *("ensure_schema", "ensure_checkpoints", "checkpoints", "settle", "dead_letters"),
        *("clear", "renew_feed", "feed", "changes", "store_id", "counts", "census"),
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


NOT_THERE: Final = "no process holds the graph of the small edition: `recollect up --small`"
_CONNECT_S: Final = 5.0


class _Line:
    """One connection: a question, its answer, and so on."""

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.settimeout(_CONNECT_S)
            client.connect(str(path))
        except OSError as error:
            client.close()
            raise GraphUnavailable(reason=NOT_THERE) from error
        self._connection = Connection(client)

    def ask(self, name: str, *given: Any, **named: Any) -> Any:
        """The answer to a question.

        Raises:
            GraphUnavailable: the process has gone, or does not answer.
            Exception: what the question raised there.
        """
        self._send(name, given, named)
        _, value = self._received()
        return value

    def stream(self, *given: Any, **named: Any) -> Iterator[Any]:
        """What a stream yields there."""
        self._send(STREAM, given, named)
        while True:
            kind, value = self._received()
            if kind != MORE:
                return
            yield from value

    def close(self) -> None:
        """Hang up."""
        self._connection.close()

    def _send(self, name: str, given: Any, named: Any) -> None:
        frame = encoded((name, given, named))
        try:
            self._connection.send(frame, self._timeout_s)
        except ChildGone as error:
            raise GraphUnavailable(reason=NOT_THERE) from error

    def _received(self) -> tuple[str, Any]:
        try:
            kind, value = decoded(self._connection.receive(self._timeout_s))
        except (ChildGone, ValueError) as error:
            raise GraphUnavailable(reason="its process has gone, or does not answer") from error
        if kind == ERROR:
            raise error_of(*value)
        assert kind in (ANSWER, MORE)
        return kind, value


class _Asking:
    """The methods of the port that are questions: each is asked there by its name."""

    _names: frozenset[str] = QUESTIONS

    def _ask(self, name: str, *given: Any, **named: Any) -> Any:
        raise NotImplementedError

    def __getattr__(self, name: str) -> Any:
        if name not in self._names:
            raise AttributeError(name)

        def ask(*given: Any, **named: Any) -> Any:
            return self._ask(name, *map(_whole, given), **{n: _whole(v) for n, v in named.items()})

        return ask


def _whole(value: Any) -> Any:
    """What is only run through, as a list: it is to be sent."""
    return list(value) if isinstance(value, (Iterator, range)) or _is_view(value) else value


def _is_view(value: Any) -> bool:
    return isinstance(value, (type({}.keys()), type({}.values()), type({}.items())))


class _RemoteTransaction(_Asking):
    """`port.Transaction`, open in the other process."""

    _names = QUESTIONS | WRITES

    def __init__(self, line: _Line, graph: _RemoteGraph) -> None:
        self.graph = graph
        self.advanced = False
        self.dead_letters = 0
        self.has_tombstones = False
        self._line = line

    def stream(self, *given: Any, **named: Any) -> Iterator[Any]:
        """See `port.Reads`; at once, for the line is the transaction's."""
        return iter(list(self._line.stream(*given, **named)))

    def _ask(self, name: str, *given: Any, **named: Any) -> Any:
        answer, *facts = self._line.ask(name, *given, **named)
        self.advanced, self.dead_letters, self.has_tombstones = facts
        return answer


class _RemoteGraph(_Asking):
    """`port.Graph` by questions to the process that holds it; threads may share it.

    What a thread asks while it has a transaction open goes the way of the transaction, as in one
    process: on another it would wait for its end.
    """

    def __init__(self, path: Path, timeout_s: float) -> None:
        self._path = path
        self._timeout_s = timeout_s
        self._mine = threading.local()

    def stream(self, *given: Any, **named: Any) -> Iterator[Any]:
        """See `port.Reads`."""
        if (open_line := self._open_line()) is not None:
            yield from list(open_line.stream(*given, **named))
            return
        line = _Line(self._path, self._timeout_s)
        try:
            yield from line.stream(*given, **named)
        finally:
            line.close()

    @contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """See `port.Graph`."""
        line = _Line(self._path, self._timeout_s)
        try:
            line.ask(BEGIN)
            self._mine.line = line
            try:
                yield cast(Transaction, _RemoteTransaction(line, self))
            except BaseException:
                with suppress(GraphUnavailable):
                    line.ask(ROLL_BACK)
                raise
            finally:
                self._mine.line = None
            line.ask(COMMIT)
        finally:
            line.close()

    def _open_line(self) -> _Line | None:
        line: _Line | None = getattr(self._mine, "line", None)
        return line

    def _ask(self, name: str, *given: Any, **named: Any) -> Any:
        if (open_line := self._open_line()) is not None:
            return open_line.ask(name, *given, **named)[0]
        line = _Line(self._path, self._timeout_s)
        try:
            (answer,) = line.ask(name, *given, **named)
            return answer
        finally:
            line.close()


def remote_graph(path: Path, timeout_s: float) -> Graph:
    """The graph that is served at a socket.

    Args:
        path: of the socket.
        timeout_s: of one answer.
    """
    return cast(Graph, _RemoteGraph(path, timeout_s))


def memory_graph(uri: str, settings: Settings) -> Graph:
    """The graph of a target in memory, here or in the process of the small edition.

    Raises:
        GraphUnavailable: it is another process' own.
    """
    if (here := held(uri)) is not None:
        return here
    if uri != SMALL_URI:
        raise GraphUnavailable(reason=f"{uri} is in the memory of another process")
    return remote_graph(graph_socket(settings), settings.transaction_timeout_s)
