"""What is known of one event's text, and what Stage 2 needs from models: plain values, Protocols.

The pure modules know these values only; `pipelines.models` holds what fills them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from projections.events import TOOL_USE, EventKind


class Token(NamedTuple):
    """A word or punctuation mark.

    Attributes:
        text: as written.
        lemma: its base form, lower case.
        pos: universal part of speech (NOUN, PROPN, VERB, ADJ, PUNCT …).
        start: offset of its first character in the text.
        head: index of the token it depends on; its own for the root of a sentence.
        relation: dependency label (nsubj, dobj, prep, pobj, ROOT …).
    """

    text: str
    lemma: str
    pos: str
    start: int
    head: int
    relation: str


class Span(NamedTuple):
    """A stretch of the text, characters `start` up to and without `end`."""

    start: int
    end: int
    label: str


class Analysis(NamedTuple):
    """What a language model of the small kind says about one text.

    Attributes:
        tokens: in order.
        sentences: index of the first token of each sentence.
        entities: named entities with the recogniser's label (PERSON, ORG, GPE, DATE …).
        noun_phrases: base noun phrases, label `NP`.
    """

    tokens: tuple[Token, ...] = ()
    sentences: tuple[int, ...] = ()
    entities: tuple[Span, ...] = ()
    noun_phrases: tuple[Span, ...] = ()


class Embedder(Protocol):
    """Texts to vectors of one space.

    Attributes:
        model: name of the model.
        revision: of its weights; vectors of different revisions are never compared.
        dimensions: length of a vector.
    """

    model: str
    revision: str
    dimensions: int

    def embed(self, texts: Sequence[str]) -> list[bytes]:
        """One vector of unit length for each text: little-endian float32, `dimensions` long."""


class EntityRecognizer(Protocol):
    """Tokens, named entities, noun phrases and dependencies of texts.

    The analysis of a text depends on the text alone, not on its neighbours in the batch.
    """

    model: str
    revision: str

    def analyze(self, texts: Sequence[str]) -> list[Analysis]:
        """One analysis for each text."""


class LanguageModel(Protocol):
    """Structured answers of a large model; None: degraded, the caller goes on without."""

    model: str

    def answer(self, task: str, question: dict[str, Any]) -> dict[str, Any] | None:
        """The validated answer to a task of `enrichment.prompts`."""


class PayloadResolver(Protocol):
    """Reads payloads that live elsewhere."""

    def resolve(self, reference: str) -> Any | None:
        """The payload behind a `payload_ref`; None when it cannot be had (counted, not fatal)."""


class EventText(NamedTuple):
    """The text of an event.

    Attributes:
        kind: of the event.
        text: what was said, asked for or returned, bounded; empty for an event without content.
        speaker: who or what it comes from (role, agent or tool), kept apart from what was said.
        only_fields: of another kind than TOOL_USE, that nothing in the payload is language.
    """

    kind: EventKind
    text: str
    speaker: str | None = None
    only_fields: bool = False

    @property
    def structured(self) -> bool:
        """Whether it is lines of fields rather than language."""
        return self.only_fields or self.kind in TOOL_USE

    @property
    def spoken(self) -> bool:
        """Whether it is language."""
        return bool(self.text) and not self.structured
