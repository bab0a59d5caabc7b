"""What a world has instead of clocks, models, servers and luck; all of it follows from the seed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from types import SimpleNamespace
from typing import Any
from zlib import crc32

import numpy

from enrichment.ports import Analysis, Span, Token
from enrichment.vectors import pack, unpack
from pipelines.graph.memory import MemoryTransaction
from pipelines.graph.tables import Pair, StoredNode, Tables, Values
from pipelines.ledger.command_notes import Rebuilding
from pipelines.ledger.registry import Target
from pipelines.models.derivations import Derivations
from pipelines.work.settings import Settings
from projections.errors import GraphUnavailable
from projections.operations import Checkpoint, Key
from tests.faulty_graph import FaultyGraph

DIMENSIONS = 384
PATIENCE_S = 2.0
"""Virtual seconds that a step may wait: nobody else moves meanwhile, so more would not help."""


class Killed(BaseException):
    """The process is gone: nothing that it runs may catch this."""


class BrokenProperty(AssertionError):
    """Something that must always hold does not."""


# -- time ------------------------------------------------------------------------------------------


class Clock:
    """Stands in for the module `time` where waits are counted."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def monotonic(self) -> float:
        """Virtual seconds since the start."""
        return self.now_s

    def time(self) -> float:
        """The same."""
        return self.now_s


class Stop(threading.Event):
    """A runner's stop whose waits take no time, and end when patience is over."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.until_s = PATIENCE_S

    def wait(self, timeout: float | None = None) -> bool:
        """Move the clock instead."""
        self._clock.now_s += timeout or 0.0
        if self._clock.now_s > self.until_s:
            self.set()
        return self.is_set()

    def renew(self) -> None:
        """A new step may wait again."""
        self.clear()
        self.until_s = self._clock.now_s + PATIENCE_S


# -- models ----------------------------------------------------------------------------------------


class AtOnce(Executor):
    """Runs what it is given when it is given it, in the same thread."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """The result, or the error, is there already."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


@lru_cache(maxsize=4_096)
def _vector(text: str) -> bytes:
    vector = numpy.zeros(DIMENSIONS, numpy.float32)
    for word in text.lower().split():
        vector[crc32(word.encode()) % DIMENSIONS] += 1.0
    norm = float(numpy.linalg.norm(vector)) or 1.0
    (kept,) = unpack(pack([(vector / numpy.float32(norm)).astype("<f4").tobytes()]))
    return kept


@lru_cache(maxsize=4_096)
def _analysis(text: str) -> Analysis:
    tokens: list[Token] = []
    entities: list[Span] = []
    place = 0
    for number, word in enumerate(text.split()):
        start = text.index(word, place)
        is_name = word[:1].isupper()
        pos = "PROPN" if is_name else "NOUN"
        tokens.append(Token(word, word.lower(), pos, start, number, "dep"))
        if is_name:
            entities.append(Span(start, start + len(word), "PERSON"))
        place = start + len(word)
    sentences = (0,) if tokens else ()
    return Analysis(tuple(tokens), sentences, tuple(entities), tuple(entities))


class WordEmbedder:
    """A bag of hashed words: equal words are near, and nothing is learnt."""

    model = "words"
    revision = "1"
    dimensions = DIMENSIONS

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text."""
        return [_vector(text) for text in texts]


class WordRecognizer:
    """Every capital letter begins a person."""

    model = "capitals"
    revision = "1"

    def analyze(self, texts: Sequence[str]) -> list[Analysis]:
        """One analysis for each text."""
        return [_analysis(text) for text in texts]


def make_models() -> Any:
    """As `pipelines.models.loaded.Models`, with what the enrichment uses of it."""
    return SimpleNamespace(
        load=lambda: None,
        embedder=WordEmbedder(),
        recognizer=WordRecognizer(),
        resolver=None,
        language_model=None,
        derivations=Derivations(None),
        names="words@1+capitals@1",
    )


# -- the store -------------------------------------------------------------------------------------


class _CountedTables(Tables):
    """Tables that break at a change of one's choice."""

    def __init__(self) -> None:
        super().__init__()
        self.changes_left: int | None = None

    def put_node(self, label: str, key: Key, node: StoredNode | None) -> None:
        self._count()
        super().put_node(label, key, node)

    def put_pair(self, type_: str, pair: Pair, copies: tuple[Values, ...]) -> None:
        self._count()
        super().put_pair(type_, pair, copies)

    def _count(self) -> None:
        if self.changes_left is not None:
            self.changes_left -= 1
            if self.changes_left <= 0:
                self.changes_left = None
                raise Killed


@dataclass(frozen=True)
class Fate:
    """What happens at a commit: `kind` of FATES, `changes` after which a worker is killed in it."""

    kind: str
    changes: int = 0


FATES = (
    "done",
    "killed_before",
    "killed_within",
    "killed_after",
    "refused_before",
    "lost_answer",
)


class SimulatedGraph(FaultyGraph):
    """The store in memory; every commit is watched."""

    def __init__(self) -> None:
        super().__init__()
        self._tables: Any = _CountedTables()
        self._reached: dict[tuple[str, int], tuple[int, int]] = {}

    def arm(self, fate: Fate) -> None:
        """Let the next commit end like this."""
        if fate.kind == "killed_before":
            self.before_commit = self._raising(Killed())
        elif fate.kind == "killed_within":
            self._tables.changes_left = 1 + fate.changes
        elif fate.kind == "killed_after":
            self.after_commit = self._raising(Killed())
        elif fate.kind == "refused_before":
            self.before_commit = self._raising(GraphUnavailable(reason="simulated"))
        elif fate.kind == "lost_answer":
            self.after_commit = self._raising(GraphUnavailable(reason="simulated"))

    def disarm(self) -> None:
        """All goes well again."""
        self.before_commit = self.after_commit = lambda: None
        self._tables.changes_left = None

    def _raising(self, error: BaseException) -> Callable[[], None]:
        def once() -> None:
            self.disarm()
            raise error

        return once

    @contextmanager
    def transaction(self) -> Iterator[MemoryTransaction]:
        try:
            with super().transaction() as transaction:
                yield transaction
        finally:
            self._watch()

    def _watch(self) -> None:
        for checkpoint in self.checkpoints():
            place = (checkpoint.stage, checkpoint.partition)
            now = (checkpoint.generation, checkpoint.seq)
            before = self._reached.get(place, now)
            if now < before:
                raise BrokenProperty(f"checkpoint {place} went from {before} back to {now}")
            self._reached[place] = now


# -- services --------------------------------------------------------------------------------------

_SETTINGS = Settings()


class _Unheard:
    """Takes what a rebuild says of itself; nobody listens."""

    def tell(self, rebuilding: Rebuilding) -> None:
        pass

    def end(self, target: str) -> None:
        pass


@dataclass
class SimulatedServices:
    """As `pipelines.work.services.Services`, with what stages and commands use of it."""

    ledger: Any
    partitions: int
    models: Any = field(default_factory=make_models)
    graphs: dict[str, SimulatedGraph] = field(default_factory=dict)
    rebuilds: Any = field(default_factory=_Unheard)
    active_name: str = "blue"
    loads_models: bool = True

    def __post_init__(self) -> None:
        self.settings = _SETTINGS.model_copy(update={"partitions": self.partitions})

    def active(self) -> Target:
        """The target that decides."""
        return self.target(self.active_name)

    def target(self, name: str) -> Target:
        """By name; nobody connects to it."""
        return Target(name, f"memory://{name}", "neo4j", "active")

    def graph(self, target: Target) -> SimulatedGraph:
        """Of a target."""
        return self.graphs[target.name]

    def checkpoints(self) -> dict[str, list[Checkpoint]]:
        """By target, as admission of the ledger asks for them."""
        return {name: graph.checkpoints() for name, graph in self.graphs.items()}
