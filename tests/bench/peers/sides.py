"""Those that are asked, behind one interface: Recollect over HTTP, and each peer."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from pipelines.models.model_client import QueryEmbedder
from pipelines.work.settings import Settings
from tests.bench.peers.peer import Record, Vector
from tests.bench.peers.process import PeerProcess
from tests.bench.query.__main__ import DEFAULT_METHOD, Deployment, processes, subgraph, used
from tests.bench.query.newest import Wait, waits_for_new, waits_of_api
from tests.bench.stack import cpu_seconds, resident_mb

K = 100
"""Answers to a question: what Recollect gives by default."""
RECOLLECT = "Recollect"
_EMBEDDING_MS = 60_000


class Cost(NamedTuple):
    """Processor time so far, s: of the side's processes, and of the embedder that all share."""

    alone: float
    embedder: float


class Side(Protocol):
    """One that is asked.

    Attributes:
        name: in the table.
    """

    @property
    def name(self) -> str: ...

    def asks(self, questions: Sequence[str]) -> Callable[[int], bool]:
        """A question of each number; whether it was answered."""
        ...

    def cost(self) -> Cost:
        """Of all that was asked."""
        ...

    def waits(self, count: int) -> list[Wait]:
        """How long new events take to be found."""
        ...

    def memory_mb(self) -> float:
        """Of its processes, without the embedder."""
        ...

    def disk_mb(self) -> float:
        """Of its files."""
        ...


class Embedder:
    """The process that Recollect has its questions embedded by, for peers too.

    Args:
        settings: that lead to it.
    """

    def __init__(self, settings: Settings) -> None:
        self._embedder = QueryEmbedder(settings)
        self.embed("the first loads the model")

    def embed(self, text: str) -> Vector:
        """The vector of a question."""
        vector = self._embedder.embed(text, timeout_ms=_EMBEDDING_MS)
        if vector is None:
            raise TimeoutError("a question was not embedded in time")
        return np.asarray(vector, np.float32)

    def cpu_s(self) -> float:
        """Of its process, so far."""
        pid = self._embedder.pid
        return 0.0 if pid is None else cpu_seconds(pid)

    def close(self) -> None:
        """Hang up."""
        self._embedder.close()


@contextmanager
def embedding() -> Iterator[Embedder]:
    """The embedder of the deployment that the environment leads to; nothing is remembered."""
    embedder = Embedder(Settings(query_embedding_cache=0))
    try:
        yield embedder
    finally:
        embedder.close()


class RecollectSide:
    """Over HTTP, by the default method, as `make bench-query` asks.

    Args:
        served: filled.
    """

    name = RECOLLECT

    def __init__(self, served: Deployment) -> None:
        self._served = served

    def asks(self, questions: Sequence[str]) -> Callable[[int], bool]:
        return subgraph(self._served.client, questions, DEFAULT_METHOD)

    def cost(self) -> Cost:
        spent = used(self._served)
        return Cost(sum(spent) - spent.embedder, spent.embedder)

    def waits(self, count: int) -> list[Wait]:
        return waits_of_api(self._served.client, count)

    def memory_mb(self) -> float:
        ids = processes(self._served)
        return sum(resident_mb(pid) for name in ids if name != "embedder" for pid in ids[name])

    def disk_mb(self) -> float:
        return folder_mb(self._served.folder)


class PeerSide:
    """A peer's process, asked with vectors of Recollect's embedder, which are computed anew.

    Args:
        process: entered.
        folder: of its data.
        embedder: of all.
    """

    def __init__(self, process: PeerProcess, folder: Path, embedder: Embedder) -> None:
        self._process = process
        self._folder = folder
        self._embedder = embedder

    @property
    def name(self) -> str:
        return self._process.name

    def asks(self, questions: Sequence[str]) -> Callable[[int], bool]:
        return lambda number: bool(self._ask(questions[number]))

    def cost(self) -> Cost:
        return Cost(self._process.spent().cpu_s, self._embedder.cpu_s())

    def waits(self, count: int) -> list[Wait]:
        return waits_for_new(self._add, self._ask, count)

    def memory_mb(self) -> float:
        return self._process.spent().memory_mb

    def disk_mb(self) -> float:
        return folder_mb(self._folder)

    def version(self) -> str:
        """Its package, and which version of it."""
        return self._process.version()

    def _ask(self, question: str) -> list[str]:
        return self._process.ask(question, self._embedder.embed(question), K)

    def _add(self, event_id: str, text: str) -> None:
        now_ms = time.time_ns() // 1_000_000
        record = Record(event_id, text, f"new-{event_id}", "agent-0", now_ms)
        self._process.add(record, self._embedder.embed(text))


def folder_mb(folder: Path) -> float:
    """What its files take on disk, logs of programs aside."""
    files = (file for file in folder.rglob("*") if file.is_file() and file.suffix != ".log")
    return sum(file.stat().st_blocks * 512 for file in files) / 2**20
