"""What the memory answers: text for a prompt, and what it was made from."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from pydantic import Field

from recollect.calls import Call
from recollect.models import (
    Answered,
    AtlasResponse,
    Edge,
    EntityItem,
    EntityList,
    Fact,
    FactSeed,
    FactsMeta,
    FactsResponse,
    Meta,
    Node,
    PageMeta,
)
from recollect.models import Person as PersonResponse

ResponseT = TypeVar(
    "ResponseT", bound="AtlasResponse | FactsResponse | EntityList | PersonResponse"
)


class Value(Answered):
    """The answer itself, where the memory has one: a name, a number, a time.

    Attributes:
        type: what kind of thing it is.
        value: the thing.
        evidence: what says so.
    """

    type: str
    value: Any = None
    evidence: list[Any] = Field(default_factory=list)


@dataclass(frozen=True)
class Page(Generic[ResponseT]):
    """An answer of which there may be more behind it.

    Attributes:
        response: all that the API answered.
        text: for a prompt, within `max_tokens`; empty where none was asked for.
    """

    response: ResponseT = field(repr=False)
    text: str
    call: Call[ResponseT] = field(repr=False)

    def __str__(self) -> str:
        """The text."""
        return self.text

    @property
    def next_cursor(self) -> str | None:
        """What the next page is asked for with; None: this is the last one."""
        if isinstance(self.response, (EntityList, PersonResponse)):
            return self.response.next_cursor
        return self.response.meta.next_cursor


@dataclass(frozen=True)
class Answer(Page[AtlasResponse]):
    """Nodes of the memory that help with a question, the best first."""

    @property
    def nodes(self) -> Sequence[Node]:
        """What was found, the best first."""
        return self.response.nodes

    @property
    def edges(self) -> Sequence[Edge]:
        """What connects the nodes."""
        return self.response.edges

    @property
    def meta(self) -> Meta:
        """How the answer came about."""
        return self.response.meta

    @property
    def value(self) -> Value | None:
        """The answer itself; None: the memory has none, or the API is older than this."""
        told = getattr(self.response, "answer", None)
        return None if told is None else Value.model_validate(_plain(told))

    @property
    def is_answered(self) -> bool:
        """Whether the memory holds an answer; an older API only tells whether it found anything."""
        told = getattr(self.meta, "answered", None)
        return bool(self.nodes) if told is None else bool(told)

    @property
    def confidence(self) -> float | None:
        """From 0 to 1; None: the API does not say."""
        return getattr(self.meta, "confidence", None)

    @property
    def count(self) -> int | None:
        """Of a question how many; None: it was none, or the API does not say."""
        return getattr(self.meta, "count", None)


@dataclass(frozen=True)
class Facts(Page[FactsResponse]):
    """Facts about what a question names, the best first."""

    def __iter__(self) -> Iterator[Fact]:
        """The facts of this page."""
        return iter(self.response.facts)

    def __len__(self) -> int:
        """How many are on this page."""
        return len(self.response.facts)

    @property
    def facts(self) -> Sequence[Fact]:
        """The facts, the best first."""
        return self.response.facts

    @property
    def seeds(self) -> Sequence[FactSeed]:
        """Entities that the recall began at."""
        return self.response.seeds

    @property
    def meta(self) -> FactsMeta:
        """How the answer came about."""
        return self.response.meta


@dataclass(frozen=True)
class Entities(Page[EntityList]):
    """Entities that the memory knows, by name."""

    def __iter__(self) -> Iterator[EntityItem]:
        """The entities of this page."""
        return iter(self.response.entities)

    def __len__(self) -> int:
        """How many are on this page."""
        return len(self.response.entities)

    @property
    def meta(self) -> PageMeta:
        """How the answer came about."""
        return self.response.meta


@dataclass(frozen=True)
class Person(Page[PersonResponse]):
    """What is known of a user; the text says what to do, what not, and what holds."""

    @property
    def wishes(self) -> Sequence[Fact]:
        """What the user prefers and avoids, the newest first."""
        return self.response.wishes

    @property
    def facts(self) -> Sequence[Fact]:
        """What else holds, the newest first."""
        return self.response.facts

    @property
    def former(self) -> Sequence[Fact]:
        """What ended or was contradicted."""
        return self.response.former

    @property
    def meta(self) -> PageMeta:
        """How the answer came about."""
        return self.response.meta


def _plain(told: Any) -> Any:
    return told.model_dump() if isinstance(told, Answered) else told
