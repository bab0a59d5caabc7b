"""Columns in this process, of a graph that it holds or is alone to ask."""

from __future__ import annotations

from threading import Lock
from typing import Any, Final

from pipelines.columns.access import ColumnsAccess, ledger_login
from pipelines.columns.follow import Columns
from pipelines.columns.follower import Follower
from pipelines.columns.records import Array
from pipelines.columns.wire import Question, decoded
from pipelines.graph.port import Graph
from pipelines.work.settings import Settings

_held: Final[dict[str, LocalColumns]] = {}
_guard: Final = Lock()


class LocalColumns(ColumnsAccess):
    """Columns that follow a graph on threads of this process, for as long as it lives.

    Args:
        graph: that they follow.
        settings: with the ledger whose tail they hold beside it.
    """

    def __init__(self, graph: Graph, settings: Settings) -> None:
        self._follower = Follower(Columns(graph), ledger_login(settings))

    def close(self) -> None:
        """They stay, for whoever asks next."""

    def _asked(
        self, question: Question, *, start: bool = True
    ) -> tuple[Any, list[Array], str | None]:
        return decoded(self._follower.answer(question))


def local_columns(uri: str, graph: Graph, settings: Settings) -> LocalColumns:
    """The columns of the graph at a URI, made when first asked for."""
    with _guard:
        if uri not in _held:
            _held[uri] = LocalColumns(graph, settings)
        return _held[uri]
