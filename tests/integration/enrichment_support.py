"""A stack whose ledger is enriched too: real models, shared by the tests of a process."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from pipelines.models.embedder import OnnxEmbedder
from pipelines.models.loaded import Models
from pipelines.models.nlp import SpacyRecognizer
from pipelines.work.enriching import enrichment_fold
from pipelines.work.folds import StageFold
from pipelines.work.runner import Runner
from pipelines.work.stages import ENRICHMENT
from projections.events import Event
from projections.schema import EDGES, ENTITY, EVENT, FACT_HISTORY, Certainty
from tests.factories import event
from tests.integration.stack import Stack


@cache
def embedder() -> OnnxEmbedder:
    """The model, loaded once."""
    return OnnxEmbedder()


@cache
def recognizer() -> SpacyRecognizer:
    """The child process, started once; it ends with the tests."""
    return SpacyRecognizer()


class Enriched:
    """Stage 2 of a stack."""

    def __init__(self, stack: Stack, **options: Any) -> None:
        self.stack = stack
        services = stack.services
        # The models of the tests' process, also for what verify and rebuild do in it.
        services.__dict__["models"] = Models(
            services.settings, services.redis, embedder(), recognizer()
        )
        self.stage = self.new_stage()
        self.runner = self.new_runner(**options)
        self.runner.prepare(stack.ledger.partitions)

    def new_stage(self, **models: Any) -> StageFold:
        """The stage with models of its own memory, as a worker that has just started."""
        chosen = {"embedder": embedder(), "recognizer": recognizer(), **models}
        services = self.stack.services
        loaded = Models(services.settings, services.redis, **chosen)
        return enrichment_fold(ENRICHMENT, services, self.stack.target, loaded)

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

    def event(self, made: Event | str) -> dict[str, Any]:
        """The properties of an event's node."""
        event_id = made if isinstance(made, str) else made.event_id
        (found,) = self.stack.cypher(
            "MATCH (e:Event {event_id: $id}) RETURN properties(e)", id=event_id
        )
        return dict(found)

    def causes(self, made: Event) -> dict[str, str]:
        """Inferred causes of an event: cause → rule."""
        rows = self.stack.cypher(
            "MATCH (:Event {event_id: $id})-[r]->(c:Event) WHERE r.mechanism = 'inferred' "
            "RETURN c.event_id, r.rule",
            id=made.event_id,
        )
        return dict(rows)

    def facts(self, relation: str) -> list[list[Any]]:
        """Of a relation: source, target, valid from and to in ms after START_MS, sorted."""
        return sorted(
            self.stack.cypher(
                "MATCH (a:Entity)-[r {relation: $relation}]->(b:Entity) "
                "RETURN a.name, b.name, r.valid_from.epochMillis, r.valid_to.epochMillis",
                relation=relation,
            ),
            key=lambda row: row[2],
        )

    def folded(self) -> list[str]:
        """All that is an exact function of the events, in an order of its own."""
        found = []
        for row in (EVENT, ENTITY, FACT_HISTORY):
            names = [*row.key] + [
                p.name
                for p in row.properties
                if p.stage == "enrichment" and p.certainty is Certainty.FOLDED
            ]
            values = self.stack.cypher(
                f"MATCH (n:{row.label}) RETURN [{', '.join(f'n.{name}' for name in names)}]"
            )
            found += [f"{row.label} {_without_positions(row.label, value)}" for value in values]
        for edge in EDGES.values():
            if not edge.written_by("enrichment") or edge.certainty is not Certainty.FOLDED:
                continue
            names = [p.name for p in edge.carried("enrichment") if p.certainty is Certainty.FOLDED]
            where = " WHERE r.mechanism = 'inferred'" if edge.shared_by else ""
            rows = self.stack.cypher(
                f"MATCH (a)-[r:{edge.type}]->(b){where} RETURN "
                f"[coalesce(a.event_id, a.entity_id), coalesce(b.event_id, b.entity_id), "
                f"{', '.join(f'r.{name}' for name in names)}]"
            )
            found += [f"{edge.type} {row}" for row in rows]
        return sorted(found)


def _without_positions(label: str, values: Sequence[Any]) -> Sequence[Any]:
    """Entries of histories hold the position time at index 6, which another ledger has its own."""
    if label != FACT_HISTORY.label:
        return values
    import orjson

    entries = [orjson.loads(entry) for entry in values[-1]]
    return [*values[:-1], [entry[:6] + entry[7:] for entry in entries]]


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
