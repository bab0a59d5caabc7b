"""The graph that another process holds in its memory (`memory_server`), as `port.Graph`."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, cast

from pipelines.graph.memory_graphs import SMALL_URI, graph_socket, held
from pipelines.graph.memory_server import (
    ANSWER,
    BEGIN,
    COMMIT,
    ERROR,
    MORE,
    QUESTIONS,
    ROLL_BACK,
    STREAM,
    WRITES,
)
from pipelines.graph.port import Graph, Transaction
from pipelines.graph.wire import decoded, encoded, error_of
from pipelines.local.python_process import ChildGone
from pipelines.local.shared_process import Connection
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable

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
    return list(value) if isinstance(value, Iterator) or _is_view(value) else value


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
