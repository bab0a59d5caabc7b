"""Reads of a graph that knows no Cypher: the questions of `reads`, answered through its port."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final, TypeVar

from pipelines.graph.answers import entities, events, facts, walk
from pipelines.graph.answers.seen import Answer, Row, Seen
from pipelines.graph.port import Graph
from pipelines.graph.reader import DeadLetter, Deadline, GraphRead, GraphReader, LettersAsked
from pipelines.graph.reads.scope import QUESTION, in_scope
from pipelines.graph.rows import Counts
from projections.operations import Checkpoint
from projections.schema import DROPPED

T = TypeVar("T")

ANSWERS: Final[Mapping[str, Answer]] = {
    **events.ANSWERS,
    **walk.ANSWERS,
    **facts.ANSWERS,
    **entities.ANSWERS,
}
"""By the text of the question."""


@cache
def _by_text_asked() -> dict[str, Answer]:
    """By the text as it is asked: of the graph as it is, or as of a position."""
    return {
        in_scope(text, then=then): answer
        for text, answer in ANSWERS.items()
        for then in (False, True)
    }


class PortRead(GraphRead):
    """Questions of one read."""

    def __init__(self, graph: Graph, deadline: Deadline) -> None:
        self._graph = graph
        self._deadline = deadline

    def rows(self, text: str, **parameters: Any) -> list[Row]:
        """See `GraphRead`."""
        self._deadline.remaining_s()
        return _by_text_asked()[text](Seen(self._graph, parameters[QUESTION]))

    def counts(self) -> Counts:
        """See `GraphRead`."""
        self._deadline.remaining_s()
        return self._graph.counts()

    def checkpoints(self, stage: str | None = None) -> list[Checkpoint]:
        """See `GraphRead`."""
        self._deadline.remaining_s()
        return self._graph.checkpoints(stage)

    def dead_letters(self, wanted: LettersAsked) -> list[DeadLetter]:
        """See `GraphRead`."""
        self._deadline.remaining_s()
        every = (
            DeadLetter._make(values.get(name) for name in DeadLetter._fields)
            for values in self._graph.dead_letters(wanted.stage, wanted.partition)
        )
        letters = [
            one
            for one in every
            if wanted.seq in (None, one.seq) and wanted.tenant in (None, one.tenant)
        ]
        return letters[wanted.skip : wanted.skip + wanted.limit]

    def dead_letter_counts(self) -> dict[str, int]:
        """See `GraphRead`."""
        self._deadline.remaining_s()
        counts: dict[str, int] = {}
        for letter in self._graph.dead_letters():
            if letter["kind"] != DROPPED:
                counts[letter["stage"]] = counts.get(letter["stage"], 0) + 1
        return counts


class PortReader(GraphReader):
    """Reads one graph through its port."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph

    def read(self, work: Callable[[GraphRead], T], *, timeout_ms: int) -> T:
        """See `GraphReader`."""
        return work(PortRead(self._graph, Deadline(timeout_ms)))

    def settle(
        self, stage: str, partitions: Iterable[int], *, timeout_ms: int | None = None
    ) -> None:
        """See `GraphReader`."""
        self._graph.settle(stage, partitions)
