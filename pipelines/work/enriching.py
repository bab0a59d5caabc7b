"""Stage 2 with its models: what runs before a transaction, its fold, and what is counted of it."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import structlog

from enrichment.derived import Derived
from enrichment.model_answers import same_by_model, with_answers
from enrichment.ports import Embedder, EntityRecognizer, EventText, PayloadResolver
from enrichment.resolution import Comparison, answered, open_cases
from enrichment.stage import (
    EventKey,
    derive_event,
    derive_statement,
    enrich,
    is_ours,
    wanted_names,
)
from enrichment.text import event_text
from enrichment.writes import UNDECLARED, Tool, Tools
from pipelines.ledger.registry import Target
from pipelines.models.installed import SAMENESS
from pipelines.models.llm import ChatModel
from pipelines.models.loaded import Memory, Models
from pipelines.observe import metrics
from pipelines.work.event_derivations import EventDerivations, Source
from pipelines.work.folds import Placed, StageFold
from pipelines.work.gather.enrichment import EnrichmentFacts, RememberedFeatures
from pipelines.work.services import Services
from pipelines.work.stages import Stage
from projections.errors import ModelFailed
from projections.events import Event, is_system_event
from projections.operations import Operations
from projections.schema import (
    CAUSED_BY,
    ENTITY,
    EVENT,
    INFERRED,
    REFERENCES,
    RELATES_TO,
    SAME_AS,
    SIMILAR_TO,
)

logger = structlog.get_logger(__name__)

REMEMBERED = 5_000
"""Events whose derivation is kept, so that a transaction that is tried again costs no model."""


class Deriver:
    """Texts, analyses and vectors of a batch; its call is the stage's `derive`.

    Args:
        embedder: of texts and names.
        recognizer: of tokens, entities and dependencies.
        resolver: reads payloads behind `payload_ref`.
        language_model: adds to what the rules find in messages; None: off.
        events: what the rules found before; None: it is derived anew.
        tools: that are declared to write, or not to.
        memory: of a process that asks nobody; gives None in one that does.
        withdrawals: of the vault: another number once the key of an event may have gone.
    """

    def __init__(
        self,
        embedder: Embedder,
        recognizer: EntityRecognizer,
        resolver: PayloadResolver | None = None,
        language_model: ChatModel | None = None,
        events: EventDerivations | None = None,
        tools: Tools = UNDECLARED,
        memory: Callable[[], Memory | None] = lambda: None,
        withdrawals: Callable[[], int] = lambda: 0,
    ) -> None:
        self._memory = memory
        self._withdrawals = withdrawals
        self._withdrawn = withdrawals()
        self._embedder = embedder
        self._recognizer = recognizer
        self._resolver = resolver
        self._language_model = language_model
        self._kept = events
        self._tools = tools
        self._model = f"{embedder.model}@{embedder.revision}"
        self._cache: OrderedDict[EventKey, Derived] = OrderedDict()
        self._lacking: set[EventKey] = set()
        self._guard = Lock()
        self._beside = ThreadPoolExecutor(2, thread_name_prefix="embed")

    def __call__(self, batch: Sequence[Placed]) -> list[Derived]:
        """What the events say; those that no rule of this stage is about are left out.

        Raises:
            InvalidEvent: a system event of this stage breaks the rules of its payload.
        """
        ours = [
            (position, event)
            for position, event in batch
            if is_ours(event) or not is_system_event(event.event_type)
        ]
        withdrawn = self._withdrawals()
        with self._guard:
            if withdrawn != self._withdrawn:
                self._withdrawn = withdrawn
                self._cache.clear()
            # Elsewhere it may be another: the ledger lost the first, and its id was free again.
            cached = {
                event.key: before
                for position, event in ours
                if (before := self._cache.get(event.key)) is not None
                and before.position == position
            }
        new = [(position, event) for position, event in ours if event.key not in cached]
        unkept = self._kept.unkept if self._kept is not None else 0
        with self._guard:
            self._lacking.difference_update(event.key for _, event in new)
        derived = cached | {one.event.key: one for one in self._derive(new)}
        if self._kept is not None and self._kept.unkept != unkept:
            self._note_lacking(event.key for _, event in new)
        with self._guard:
            self._cache.update(derived)
            while len(self._cache) > REMEMBERED:
                gone, _ = self._cache.popitem(last=False)
                self._lacking.discard(gone)
        return [derived[event.key] for _, event in ours]

    def note(self, entries: Sequence[tuple[int, int, Event]]) -> None:
        """Mark the entries that have all that is derived from them, and those that need nothing.

        Args:
            entries: partition, number within it and event of each, whose batch was just derived.
        """
        if self._kept is None:
            return
        passed = {event.key for *_, event in entries if is_system_event(event.event_type)}
        with self._guard:
            whole = {event.key for *_, event in entries if event.key in self._cache}
            whole -= passed | self._lacking
        self._kept.mark(entries, whole, passed)

    def _derive(self, batch: Sequence[Placed]) -> list[Derived]:
        statements = [
            derive_statement(position, event)
            for position, event in batch
            if is_system_event(event.event_type)
        ]
        events = [placed for placed in batch if not is_system_event(placed[1].event_type)]
        sources = [Source((position, event), self._content(event)) for position, event in events]
        held = self._kept.read(sources) if self._kept is not None else {}
        texts = {
            event.key: held[event.key].text if event.key in held else event_text(event, content)
            for (_, event), content in sources
        }
        # The recognizer runs in a process of its own, so the two models use two cores.
        spoken = list(texts.values())
        vectors = self._beside.submit(self._embed, [text.text for text in spoken])
        missing = [source for source in sources if source.placed[1].key not in held]
        by_rules = held | self._by_rules(missing, texts)
        by_key = dict(zip(texts, vectors.result(), strict=True))
        derived = [
            by_rules[event.key]._replace(
                embedding=by_key[event.key],
                model=None if by_key[event.key] is None else self._model,
            )
            for _, event in events
        ]
        self._note_lacking(one.event.key for one in derived if _lacks_vector(one))
        if self._language_model is not None:
            derived = self._with_answers(self._language_model, derived)
        return statements + self._with_names(derived)

    def _by_rules(
        self, sources: Sequence[Source], texts: Mapping[EventKey, EventText]
    ) -> dict[EventKey, Derived]:
        """What the rules find in events, without vectors; kept unless an analysis is missing."""
        read = [texts[event.key] for (_, event), _ in sources]
        analyses = self._recognizer.analyze([text.text for text in read])
        derived = {
            event.key: derive_event(
                position, event, text, analysis, content=content, tools=self._tools
            )
            for ((position, event), content), text, analysis in zip(
                sources, read, analyses, strict=True
            )
        }
        # a text that says something has a token, unless its analysis had to be left out
        without = {
            event.key
            for ((_, event), _), text, analysis in zip(sources, read, analyses, strict=True)
            if text.text and not analysis.tokens
        }
        self._note_lacking(without)
        if self._kept is not None:
            whole = {key: one for key, one in derived.items() if key not in without}
            derived |= self._kept.write(sources, whole)
        return derived

    def _note_lacking(self, keys: Iterable[EventKey]) -> None:
        with self._guard:
            self._lacking.update(keys)

    def _with_answers(self, model: ChatModel, derived: Sequence[Derived]) -> list[Derived]:
        answers, unanswered = with_answers(model, derived)
        self._note_lacking(unanswered)
        memory = self._memory()
        if memory is None:
            return answers
        memory.unread |= unanswered
        pairs = list(zip(derived, answers, strict=True))
        memory.answered |= {one.event.key for one, answer in pairs if answer != one}
        return [one if one.event.key in memory.ignored else answer for one, answer in pairs]

    def _content(self, event: Event) -> Any:
        if event.payload is not None or not event.payload_ref or self._resolver is None:
            return None
        content = self._resolver.resolve(event.payload_ref)
        memory = self._memory()
        if content is None and memory is not None:
            memory.unread.add(event.key)
        return content

    def _embed(self, texts: Sequence[str]) -> list[bytes | None]:
        """A vector for each text that says something; without, when the model gives up on it."""
        spoken = [(n, text) for n, text in enumerate(texts) if text]
        vectors: list[bytes | None] = [None] * len(texts)
        try:
            embedded = self._embedder.embed([text for _, text in spoken])
        except ModelFailed:
            return self._embed_one_by_one(texts)
        for (n, _), vector in zip(spoken, embedded, strict=True):
            vectors[n] = vector
        return vectors

    def _embed_one_by_one(self, texts: Sequence[str]) -> list[bytes | None]:
        vectors: list[bytes | None] = []
        for text in texts:
            try:
                vectors.append(self._embedder.embed([text])[0] if text else None)
            except ModelFailed as error:
                vectors.append(None)
                metrics.DEGRADED.labels(kind="embedding").inc()
                logger.warning("not embedded", reason=str(error))
        return vectors

    def _with_names(self, derived: Sequence[Derived]) -> list[Derived]:
        """Add the vectors of the names by which entities may be found to be the same."""
        wanted = [wanted_names(one) for one in derived]
        names = sorted({name for ids in wanted for name in ids.values()})
        vectors = dict(zip(names, self._embed(names), strict=True)) if names else {}
        self._note_lacking(
            one.event.key
            for one, ids in zip(derived, wanted, strict=True)
            if any(vectors[name] is None for name in ids.values())
        )
        return [
            one._replace(
                names={
                    own_id: vector
                    for own_id, name in ids.items()
                    if (vector := vectors[name]) is not None
                }
            )
            for one, ids in zip(derived, wanted, strict=True)
        ]


def _lacks_vector(derived: Derived) -> bool:
    return derived.embedding is None and bool(derived.text.text)


def enrichment_fold(
    stage: Stage, services: Services, target: Target, models: Models | None = None
) -> StageFold:
    """The enrichment as it runs on a target, with the process' models unless told otherwise.

    Raises:
        GraphUnavailable: the target is away.
        ModelUnavailable: a model is not installed.
    """
    models = models or services.models
    if services.loads_models:
        models.load()
    vault = services.ledger.vault
    tools = {name: Tool(one.writes, one.about) for name, one in services.settings.tools.items()}
    remembered = RememberedFeatures(
        services.ledger, models.resolver, tools=tools, withdrawals=lambda: vault.withdrawals
    )
    language_model = models.language_model
    recognizer = models.recognizer
    events = None
    if models.derivations.keeps:
        events = EventDerivations(
            models.derivations,
            recognizer=f"{recognizer.model}@{recognizer.revision}",
            ledger=services.ledger.identity,
            models=models.names,
        )
    deriver = Deriver(
        models.embedder,
        recognizer,
        models.resolver,
        language_model,
        events=events,
        tools=tools,
        memory=lambda: models.memory,
        withdrawals=lambda: vault.withdrawals,
    )
    facts = EnrichmentFacts(
        remembered, partitions=services.settings.partitions, upstream=str(stage.upstream)
    )
    return StageFold(
        stage,
        facts.to_apply,
        enrich,
        deriver,
        gather_to_decide=facts.to_decide,
        models=models.names,
        answer=_answers_of(language_model),
        interrupt=None if language_model is None else language_model.close,
        count=count_derived,
        note=deriver.note,
    )


def _answers_of(
    language_model: ChatModel | None,
) -> Callable[[Sequence[Comparison]], list[Event]] | None:
    """What decides the cases that the rules of sameness leave open."""
    if language_model is None or SAMENESS not in language_model.tasks:
        return None

    def answer(compared: Sequence[Comparison]) -> list[Event]:
        cases = open_cases(compared)
        candidates = [candidate for case in cases for candidate in case.candidates]
        return answered(cases, same_by_model(language_model, candidates))

    return answer


_OF_EDGES = {
    REFERENCES.type: "mention",
    RELATES_TO.type: "fact",
    SIMILAR_TO.type: "similar",
    SAME_AS.type: "same_as",
}


def derived_counts(operations: Operations) -> Counter[str]:
    """Items of a batch of enrichment by `metrics.Derivation`; those without any are missing."""
    counts: Counter[str] = Counter()
    for edge in operations.merge_edges.values():
        if edge.type in _OF_EDGES:
            counts[_OF_EDGES[edge.type]] += 1
        elif edge.type == CAUSED_BY.type and edge.values["mechanism"] == INFERRED:
            counts[f"cause_{edge.values['rule']}"] += 1
    for node in operations.set_nodes.values():
        if node.label == EVENT.label:
            counts["text"] += node.values["text"] is not None
            counts["embedding"] += node.values["embedding"] is not None
            counts["keyword"] += len(node.values["keywords"] or ())
    counts["entity"] += sum(label == ENTITY.label for label, _ in operations.merge_nodes)
    return +counts


def count_derived(target: str, operations: Operations) -> None:
    """Count what a batch has derived, by kind."""
    for kind, number in derived_counts(operations).items():
        metrics.DERIVED.labels(target=target, kind=kind).inc(number)
