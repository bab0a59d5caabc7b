"""The entities of one tenant: names, mentions, facts, who is the same, and the words they have."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy
from sortedcontainers import SortedDict  # type: ignore[import-untyped]  # it has no types

from enrichment.stems import name_words
from enrichment.vocabulary import STOP_WORDS
from pipelines.columns.tables import Array, Rows, ranks_of
from pipelines.columns.texts import Vectors
from pipelines.graph.fulltext import MIN_PREFIX_CHARACTERS, folded
from projections.schema import VECTOR_DIMENSIONS

PROPERTIES: Final = (
    *("canonical_name", "entity_type", "name", "subtype", "first_user_id", "display_name"),
    *("corrected_type", "embedding"),
)
"""Of an entity, that are read from the graph."""
_PREFIX_WEIGHT: Final = 0.5
_BEHIND: Final = "\U0010ffff"


class Fact(NamedTuple):
    """What tells which facts count, and how much; times are milliseconds since the epoch."""

    source: int
    target: int
    relation: str
    edge_type: str
    valid_from: int
    event_id: str
    confidence: float
    valid_to: int | None
    expired_at: int | None
    user_id: str | None

    @property
    def until_ms(self) -> int | None:
        """Up to when it was so, by what ended it; None: it is so."""
        return self.valid_to if self.valid_to is not None else self.expired_at

    def holds(self, at_ms: int) -> bool:
        """Whether it is so at a moment."""
        until = self.until_ms
        return self.valid_from <= at_ms and (until is None or until > at_ms)


class Entity:
    """One entity; `mentions` are rows of events in their order of time."""

    __slots__ = (
        *("canonical_name", "communities", "corrected_type", "display_name", "entity_id"),
        *("entity_type", "facts", "first_user_id", "mentions", "name", "same", "stands", "subtype"),
        "word_count",
    )

    def __init__(self, entity_id: str) -> None:
        self.entity_id = entity_id
        self.stands = False
        self.canonical_name = ""
        self.entity_type: str | None = None
        self.name: str | None = None
        self.subtype: str | None = None
        self.first_user_id: str | None = None
        self.display_name: str | None = None
        self.corrected_type: str | None = None
        self.word_count = 0
        """Of all that it is called, as long as it stands."""
        self.mentions = array("i")
        self.facts: list[Fact] = []
        self.same: dict[int, float | None] = {}
        """How sure it is that it is the same as another, by row."""
        self.communities: set[str] = set()

    @property
    def spellings(self) -> frozenset[str]:
        """What it is called, by whomever."""
        given = (self.canonical_name, self.name, self.display_name)
        return frozenset(name for name in given if name)

    def mentioned_in(self) -> Rows:
        """Rows of the events that mention it, in their order of time."""
        return numpy.array(self.mentions, dtype=numpy.int32)


class Entities:
    """The entities of one tenant, by row.

    Attributes:
        by_name: rows of those that stand, by canonical name.
        by_word: likewise by each word of their names.
    """

    def __init__(self) -> None:
        self.all: list[Entity] = []
        self.rows: dict[str, int] = {}
        self.vectors = Vectors(VECTOR_DIMENSIONS)
        self.by_name: dict[str, list[int]] = {}
        self.by_word: SortedDict[str, set[int]] = SortedDict()
        self._standing = 0

    def row(self, entity_id: str) -> int:
        """The row of an entity, a new one if need be, which nobody sees yet."""
        row = self.rows.get(entity_id)
        if row is None:
            row = self.rows[entity_id] = len(self.all)
            self.all.append(Entity(entity_id))
        return row

    def put(self, entity_id: str, values: Mapping[str, Any]) -> None:
        """Set everything of an entity that is in the graph, values by PROPERTIES."""
        row = self.row(entity_id)
        entity = self.all[row]
        self._unname(row)
        for name in PROPERTIES:
            if name != "embedding":
                setattr(entity, name, values[name])
        entity.stands = True
        self._name(row)
        self.vectors.put(row, values["embedding"])

    def remove(self, entity_id: str) -> None:
        """An entity is not in the graph, or as a placeholder alone."""
        row = self.rows.get(entity_id)
        if row is not None and self.all[row].stands:
            self._unname(row)
            self.all[row].stands = False
            self.vectors.put(row, None)

    def mention(self, row: int, event: int, place: Callable[[int], tuple[int, str]]) -> None:
        """An event mentions an entity; `place` says where an event stands in time."""
        mentions = self.all[row].mentions
        at = bisect_left(mentions, place(event), key=place)
        if at == len(mentions) or mentions[at] != event:
            mentions.insert(at, event)

    def unmention(self, row: int, event: int) -> None:
        """It does no more."""
        mentions = self.all[row].mentions
        if event in mentions:
            mentions.remove(event)

    def named(self, names: Iterable[str]) -> list[int]:
        """Rows of the entities with one of the canonical names, by id."""
        rows = {row for name in names for row in self.by_name.get(name, ())}
        return sorted(rows, key=lambda row: self.all[row].entity_id)

    def ranks(self, rows: Rows) -> Array:
        """The place of each of some rows in the order of their ids."""
        ids = [self.all[row].entity_id for row in rows.tolist()]
        return ranks_of(numpy.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=numpy.intp))

    def with_words(self, words: Sequence[str]) -> dict[int, float]:
        """Entities with a name that has a word beginning with one of the words, and how well.

        Args:
            words: in lower case; a rare one counts more, a beginning half, a long name less.
        """
        scores: dict[int, float] = {}
        apart = (name_word for word in words for name_word in name_words(folded(word)))
        for word in dict.fromkeys(apart):
            for held, weight in self._like(word):
                rarity = weight * float(numpy.log1p(self._standing / len(held)))
                for row in held:
                    scores[row] = scores.get(row, 0.0) + rarity
        return {row: score / (1 + self.all[row].word_count) for row, score in scores.items()}

    def _like(self, word: str) -> Iterable[tuple[set[int], float]]:
        exact = self.by_word.get(word)
        if exact is not None:
            yield exact, 1.0
        if len(word) >= MIN_PREFIX_CHARACTERS and word.isalnum():
            for longer in self.by_word.irange(word, word + _BEHIND):
                yield self.by_word[longer], _PREFIX_WEIGHT

    def _name(self, row: int) -> None:
        entity = self.all[row]
        self._standing += 1
        self.by_name.setdefault(entity.canonical_name, []).append(row)
        words = _words(entity.spellings)
        entity.word_count = len(words)
        for word in words:
            self.by_word.setdefault(word, set()).add(row)

    def _unname(self, row: int) -> None:
        entity = self.all[row]
        if not entity.stands:
            return
        self._standing -= 1
        self.by_name[entity.canonical_name].remove(row)
        for word in _words(entity.spellings):
            held = self.by_word[word]
            held.discard(row)
            if not held:
                del self.by_word[word]


def _words(names: Iterable[str]) -> set[str]:
    """Words of names as they are searched: without accents, and without those that say little."""
    words = (word for name in names for word in name_words(folded(name)))
    return {word for word in words if word not in STOP_WORDS}
