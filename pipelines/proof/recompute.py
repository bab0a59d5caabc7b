"""What events of the ledger say, derived once more for verify; no vector is computed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from enrichment.features import Features, features
from enrichment.model_answers import with_answers
from enrichment.ports import Embedder, PayloadResolver
from enrichment.stage import Derived, EventKey
from pipelines.ledger.ledger import Entry, Ledger
from pipelines.models.llm import ChatModel
from pipelines.models.loaded import Models
from pipelines.work.enriching import Deriver
from pipelines.work.gather.enrichment import RememberedFeatures
from projections.errors import UndecodableEntry
from projections.events import Event, decode_event

DEAD = Mapping[int, Container[int]]
"""By partition the numbers of entries that the stage has passed without folding them."""


class Recomputed(NamedTuple):
    """An event, and what must follow from it.

    Attributes:
        derived: None: the stage could not fold it.
        features: None: as above, and they could not be made either.
        sure: False: its payload lies elsewhere and cannot be read now, or what a language model
            said of it is no longer cached. What follows is right if it was so before too.
        plain: without the language model, whose answers may have been missing: as right.
    """

    entry: Entry
    derived: Derived | None
    features: Features | None
    sure: bool = True
    plain: Derived | None = None


class NoVectors(Embedder):
    """Stands for the embedder where only its name matters: verify compares no vectors."""

    def __init__(self, named: Embedder) -> None:
        self.model: str = named.model
        self.revision: str = named.revision
        self.dimensions: int = named.dimensions

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """Nothing for each."""
        return [b""] * len(texts)


class WatchedResolver(PayloadResolver):
    """Remembers which payloads could not be read."""

    def __init__(self, resolver: PayloadResolver) -> None:
        self._resolver = resolver
        self.failed: set[str] = set()

    def resolve(self, reference: str) -> Any | None:
        """The payload behind a `payload_ref`, as the resolver finds it."""
        found = self._resolver.resolve(reference)
        if found is None:
            self.failed.add(reference)
        return found


class Recomputer:
    """Derives again what the ledger holds.

    Args:
        ledger: where the events are.
        models: with which the graph was derived; what they computed is cached.
        language_model: answers from its cache alone; None: there is none.
    """

    def __init__(
        self, ledger: Ledger, models: Models, language_model: ChatModel | None = None
    ) -> None:
        self._ledger = ledger
        self._language_model = language_model
        self._resolver = None if models.resolver is None else WatchedResolver(models.resolver)
        self._deriver = Deriver(NoVectors(models.embedder), models.recognizer, self._resolver)
        self.remembered = RememberedFeatures(ledger, self._resolver)
        self.unsure: set[EventKey] = set()
        """Events whose payload could be read when they were enriched, or perhaps, and not now:
        nobody can say whether what the graph holds of them is right."""

    def events(self, keys: Sequence[EventKey], dead: DEAD) -> dict[EventKey, Recomputed]:
        """The events of those keys that the ledger holds and that are events."""
        entries = self._ledger.find_many(keys) if keys else {}
        return {one.key: found for one, found in self.entries(entries.values(), dead)}

    def entries(self, entries: Iterable[Entry], dead: DEAD) -> list[tuple[Event, Recomputed]]:
        """What entries say, in their order.

        Raises:
            InvalidEvent: a statement breaks the rules of its payload.
        """
        placed: list[tuple[Entry, Event]] = []
        for entry in entries:
            try:
                placed.append((entry, decode_event(entry.data)))
            except UndecodableEntry:
                continue
        living = [
            (entry.position, event)
            for entry, event in placed
            if entry.seq not in dead.get(entry.partition, ())
        ]
        derived = self._deriver(living)
        self.remembered.remember(derived)
        plain = {one.event.key: one for one in derived}
        answered, unanswered = self._answered(derived)
        found = []
        for entry, event in placed:
            one = answered.get(event.key, plain.get(event.key))
            known = features(event) if one is None else one.features
            sure = event.key not in unanswered and not self._is_unread(event)
            other = plain[event.key] if event.key in answered else None
            found.append((event, Recomputed(entry, one, known, sure, other)))
        return found

    def _answered(
        self, derived: Sequence[Derived]
    ) -> tuple[dict[EventKey, Derived], frozenset[EventKey]]:
        """What the language model adds to events, and of which its answer is not at hand."""
        if self._language_model is None:
            return {}, frozenset()
        events = [one for one in derived if one.statement is None]
        answered, unanswered = with_answers(self._language_model, events)
        return {one.event.key: one for one in answered}, unanswered

    def _is_unread(self, event: Event) -> bool:
        if event.payload is not None or not event.payload_ref or self._resolver is None:
            return False
        return event.payload_ref in self._resolver.failed
