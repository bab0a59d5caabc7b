"""The first two stages on a ledger, with real models that compute each text once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Any, Generic, TypeVar, cast

import orjson

from enrichment.ports import Analysis
from pipelines.graph.rows import FoundEdge
from pipelines.models.derivations import Derivations
from pipelines.models.loaded import KeptEmbedder
from pipelines.models.model_client import SharedEmbedder
from pipelines.models.nlp import SpacyRecognizer
from pipelines.work.enriching import enrichment_fold
from pipelines.work.folds import StageFold
from pipelines.work.runner import Runner
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT
from projections.events import Event
from projections.schema import (
    CAUSED_BY,
    EDGES,
    ENTITY,
    EVENT,
    FACT_HISTORY,
    INFERRED,
    RELATES_TO,
    Certainty,
)
from tests.factories import event
from tests.memory_stack import LedgerStack

S = TypeVar("S", bound=LedgerStack)
Answer = TypeVar("Answer")


@cache
def embedder() -> SharedEmbedder:
    """The machine's, for all processes of the tests; it ends after the last of them."""
    return SharedEmbedder(Settings())


@cache
def recognizer() -> SpacyRecognizer:
    """The child process, started once; it ends with the tests."""
    return SpacyRecognizer()


class _Once(Generic[Answer]):
    """What a model said of a text, for as long as the tests run."""

    def __init__(self, ask: Callable[[Sequence[str]], list[Answer]]) -> None:
        self._ask = ask
        self._answers: dict[str, Answer] = {}

    def __call__(self, texts: Sequence[str]) -> list[Answer]:
        new = [text for text in dict.fromkeys(texts) if text not in self._answers]
        if new:
            self._answers |= dict(zip(new, self._ask(new), strict=True))
        return [self._answers[text] for text in texts]


class OnceEmbedder:
    """The real one, asked once about a text."""

    def __init__(self) -> None:
        real = KeptEmbedder(embedder(), Derivations(None))
        self.model, self.revision, self.dimensions = real.model, real.revision, real.dimensions
        self.embed: Callable[[Sequence[str]], list[bytes]] = _Once(real.embed)


class OnceRecognizer:
    """The real one, asked once about a text."""

    def __init__(self) -> None:
        real = recognizer()
        self.model, self.revision = real.model, real.revision
        self.analyze: Callable[[Sequence[str]], list[Analysis]] = _Once(real.analyze)


@cache
def models_once() -> dict[str, Any]:
    """Both, by the names that a stack's `models` takes."""
    return {"embedder": OnceEmbedder(), "recognizer": OnceRecognizer()}


class EnrichedLedger(Generic[S]):
    """Stage 2 of a stack.

    Args:
        stack: with Stage 1.
        models: embedder and recognizer, by these names.
        options: of the runner.
    """

    def __init__(self, stack: S, models: dict[str, Any] | None = None, **options: Any) -> None:
        self.stack = stack
        self._models = models_once() if models is None else models
        self.stage = self.new_stage()
        self.runner = self.new_runner(**options)
        self.runner.prepare(stack.ledger.partitions)

    def new_stage(self, **models: Any) -> StageFold:
        """The stage with models of its own memory, as a worker that has just started."""
        loaded = self.stack.models(**self._models | models)
        return enrichment_fold(ENRICHMENT, self.stack.services, self.stack.target, loaded)

    def new_runner(self, **options: Any) -> Runner:
        return self.stack.new_runner(options.pop("stage", self.stage), **options)

    def fold(self, size: int = 500, runner: Runner | None = None) -> None:
        """Enrich what the projection has folded."""
        self.stack.fold(size, runner or self.runner)

    def take_in(self, *events: Event, size: int = 500) -> None:
        """Append, project, enrich."""
        self.stack.append(*events)
        self.stack.fold(size)
        self.fold(size)

    def refold(self) -> None:
        """Fold all entries once more, as a worker that has just started."""
        runner = self.new_runner(stage=self.new_stage())
        for partition in range(self.stack.ledger.partitions):
            for entries in self.stack.ledger.scan(partition):
                assert runner.refold(partition, entries) == []

    def event(self, made: Event | str) -> dict[str, Any]:
        """The properties of an event's node."""
        event_id = made if isinstance(made, str) else made.event_id
        names = [one.name for one in EVENT.stored()]
        values = self.stack.nodes(EVENT.label, *names)[event_id]
        return {name: value for name, value in values.items() if value is not None}

    def texts(self) -> int:
        """Events that have a text."""
        values = self.stack.nodes(EVENT.label, "text").values()
        return sum(one["text"] is not None for one in values)

    def causes(self, made: Event) -> dict[str, str]:
        """Inferred causes of an event: cause → rule."""
        return {
            cause: rule
            for effect, cause, rule, mechanism in self.stack.edges(
                CAUSED_BY.type, "rule", "mechanism"
            )
            if (effect, mechanism) == (made.event_id, INFERRED)
        }

    def facts(self, relation: str) -> list[list[Any]]:
        """Of a relation: source, target, valid from and to in ms since the epoch, by begin."""
        names = {key: one["name"] for key, one in self.stack.nodes(ENTITY.label, "name").items()}
        edges = self.stack.edges(RELATES_TO.type, "relation", "valid_from", "valid_to")
        return sorted(
            (
                [names[source], names[target], since, until]
                for source, target, called, since, until in edges
                if called == relation
            ),
            key=lambda row: row[2],
        )

    def folded(self) -> list[str]:
        """All that is an exact function of the events, in an order of its own."""
        rows = []
        for row in (EVENT, ENTITY, FACT_HISTORY):
            names = [
                p.name
                for p in row.properties
                if p.stage == "enrichment" and p.certainty is Certainty.FOLDED
            ]
            for key, values in self.stack.nodes(row.label, *names).items():
                rows.append(f"{row.label} {key} {_without_positions(row.label, values)}")
        for edge in EDGES.values():
            if not edge.written_by("enrichment") or edge.certainty is not Certainty.FOLDED:
                continue
            names = [p.name for p in edge.carried("enrichment") if p.certainty is Certainty.FOLDED]
            edges = cast(Iterator[FoundEdge], self.stack.graph.stream(edge.type, names))
            rows += [
                f"{edge.type} {one.source} {one.target} {one.values}"
                for one in edges
                if not edge.shared_by or one.values["mechanism"] == INFERRED
            ]
        return sorted(rows)


def _without_positions(label: str, values: dict[str, Any]) -> Any:
    """Entries of histories hold the position time at index 6, which another ledger has its own."""
    if label != FACT_HISTORY.label:
        return values
    entries = [orjson.loads(entry) for entry in values["entries"]]
    return [entry[:6] + entry[7:] for entry in entries]


def said(number: int, text: str, who: str = "Ann", **fields: Any) -> Event:
    """A message."""
    return event(
        number, agent_id=who, payload={"role": "user", "content": text, "speaker": who}, **fields
    )


def called(number: int, tool: str, arguments: dict[str, Any], **fields: Any) -> Event:
    """A call of a tool."""
    return event(
        number,
        event_type="tool.call.started",
        tool_name=tool,
        payload={"name": tool, "arguments": arguments},
        **fields,
    )


def returned(number: int, tool: str, result: Any, **fields: Any) -> Event:
    """What a tool returned."""
    return event(
        number,
        event_type="tool.call.completed",
        tool_name=tool,
        payload={"name": tool, "result": result},
        **{"status": "completed", **fields},
    )


def stated(number: int, event_type: str, payload: dict[str, Any], **fields: Any) -> Event:
    """A system event of a producer."""
    return event(number, event_type=event_type, session_id="memory", payload=payload, **fields)
