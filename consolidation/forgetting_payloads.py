"""What is forgotten, what comes back and what was accessed, as records of the ledger.

- `memory.forgotten`: members of one Summary by tier, similar pairs (smaller event id first, never
  made again), entities that are archived, or facts that expire.
- `memory.recalled`: events, or entities.
- `memory.accessed`: what reads returned at its `occurred_at`, and how often.

A chunk holds at most MAX_IDS ids, and with that less than 128 KiB.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import groupby, zip_longest
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar

from pydantic import AfterValidator, Field, Strict, model_validator, with_config

from consolidation.retention import Departure, Tier
from enrichment.vocabulary import MAX_RELATION_CHARACTERS, EdgeType
from projections.records import (
    PART,
    Different,
    EntityId,
    EventId,
    Flag,
    HashId,
    Items,
    Record,
    Text,
    Timestamp,
    Uuid,
    Whole,
    broken,
    parsed,
    parsed_by,
)

FORGOTTEN_EVENT: Final = "memory.forgotten"
RECALLED_EVENT: Final = "memory.recalled"
ACCESSED_EVENT: Final = "memory.accessed"

MAX_IDS: Final = 2_000
"""In one chunk."""
MAX_EXPIRED: Final = 300
"""Facts in one chunk; a key has about 300 bytes."""
MAX_NODES: Final = 1_000
"""Accessed events and entities in one chunk."""
MAX_TRAVERSED: Final = 150
"""Traversed facts in one chunk."""
MAX_TIMES: Final = 100_000
"""That a chunk counts one node for."""
MAX_RUN_ID_CHARACTERS: Final = 64

RunId = Annotated[str, Text(MAX_RUN_ID_CHARACTERS)]
Item = TypeVar("Item")


class Decided(Record):
    """What a decision may carry besides: the pass, and which of how many chunks it is."""

    run_id: RunId | None = None
    chunk: Whole | None = None
    chunks: Whole | None = None


@with_config(PART)
@dataclass(frozen=True, slots=True, order=True)
class FactKey:
    """What tells a RELATES_TO edge from every other of its tenant."""

    source_id: HashId
    relation: Annotated[str, Text(MAX_RELATION_CHARACTERS)]
    edge_type: EdgeType
    target_id: HashId
    valid_from_ms: Annotated[Timestamp, Field(alias="valid_from")]
    event_id: Uuid

    @property
    def parts(self) -> tuple[str | int, ...]:
        """The fields in their order, as the graph is asked for a fact."""
        return tuple(getattr(self, name) for name in _KEY_FIELDS)


# -- forgotten and recalled ------------------------------------------------------------------------

_Ids = Annotated[Different[EventId], Field(min_length=1, max_length=MAX_IDS)]
_EntityIds = Annotated[Different[EntityId], Field(min_length=1, max_length=MAX_IDS)]


def _smaller_first(pair: tuple[str, str]) -> tuple[str, str]:
    if pair[0] >= pair[1]:
        raise broken("", "two different event ids, the smaller first")
    return pair


_Pair = Annotated[tuple[EventId, EventId], Strict(False), AfterValidator(_smaller_first)]


class LeavingIds(Record):
    """Ids of events that leave, by tier."""

    cold: _Ids | None = None
    archive: _Ids | None = None


class EventsForgotten(Decided):
    """Members of one Summary that leave, or events of an expired class that none lists."""

    kind: Literal["events"] = "events"
    summary_id: HashId | None = None
    event_ids: LeavingIds

    @model_validator(mode="after")
    def _bounded(self) -> EventsForgotten:
        ids = [event_id for event_id, _ in self.events]
        if not 1 <= len(ids) <= MAX_IDS or len(set(ids)) < len(ids):
            raise broken("event_ids", f"1 to {MAX_IDS:,} different event ids in all")
        return self

    @property
    def events(self) -> tuple[tuple[str, Tier], ...]:
        """Event ids with their tiers, by tier."""
        return (
            *((event_id, Tier.COLD) for event_id in self.event_ids.cold or ()),
            *((event_id, Tier.ARCHIVE) for event_id in self.event_ids.archive or ()),
        )


class PairsDropped(Decided):
    """Pairs that are no longer similar, smaller event id first."""

    kind: Literal["similar"] = "similar"
    pairs: Annotated[Items[_Pair], Field(min_length=1, max_length=MAX_IDS // 2)]


class EntitiesArchived(Decided):
    """Entities that are archived."""

    kind: Literal["entities"] = "entities"
    entity_ids: _EntityIds


class FactsExpired(Decided):
    """Facts that expire."""

    kind: Literal["facts"] = "facts"
    facts: Annotated[Items[FactKey], Field(min_length=1, max_length=MAX_EXPIRED)]


class EventsRecalled(Decided):
    """Events that come back.

    Attributes:
        event_ids: of the events.
        accessed: somebody asked for them, which counts as an access; without it their age goes on
            as if they had never left.
    """

    kind: Literal["events"] = "events"
    event_ids: _Ids
    accessed: Flag = True

    def payload(self) -> dict[str, Any]:
        """The record as JSON values; an access, which is the rule, is not told."""
        told = super().payload()
        if self.accessed:
            del told["accessed"]
        return told


class EntitiesRecalled(Decided):
    """Entities that are active again."""

    kind: Literal["entities"] = "entities"
    entity_ids: _EntityIds


Departed = (
    EventsForgotten
    | PairsDropped
    | EntitiesArchived
    | FactsExpired
    | EventsRecalled
    | EntitiesRecalled
)
_FORGOTTEN: Final[Mapping[str, type[Departed]]] = {
    "events": EventsForgotten,
    "similar": PairsDropped,
    "entities": EntitiesArchived,
    "facts": FactsExpired,
}
_RECALLED: Final[Mapping[str, type[Departed]]] = {
    "events": EventsRecalled,
    "entities": EntitiesRecalled,
}


def parse_departure(event_type: str, payload: Any) -> Departed:
    """What a `memory.forgotten` or `memory.recalled` decided.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.pairs[3]`).
    """
    return parsed_by("kind", _FORGOTTEN if event_type == FORGOTTEN_EVENT else _RECALLED, payload)


def forgotten_payloads(leaving: Iterable[Departure]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for events, one or more a Summary, in a fixed order."""
    ordered = sorted(leaving, key=lambda left: (left.summary_id or "", left.tier, left.event_id))
    payloads = []
    for summary_id, members in groupby(ordered, key=lambda departure: departure.summary_id):
        for chunk in chunks(list(members), MAX_IDS):
            tiers: dict[Tier, list[str]] = {}
            for departure in chunk:
                tiers.setdefault(departure.tier, []).append(departure.event_id)
            ids = LeavingIds(**{tier.value: tuple(event_ids) for tier, event_ids in tiers.items()})
            payloads.append(EventsForgotten(summary_id=summary_id, event_ids=ids).payload())
    return payloads


def dropped_payloads(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for similar pairs."""
    return [
        PairsDropped(pairs=tuple(chunk)).payload() for chunk in chunks(sorted(pairs), MAX_IDS // 2)
    ]


def archived_payloads(entity_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for entities."""
    return [
        EntitiesArchived(entity_ids=tuple(chunk)).payload()
        for chunk in chunks(sorted(entity_ids), MAX_IDS)
    ]


def expired_payloads(keys: Iterable[FactKey]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for facts."""
    return [
        FactsExpired(facts=tuple(chunk)).payload() for chunk in chunks(sorted(keys), MAX_EXPIRED)
    ]


def recalled_payloads(
    event_ids: Iterable[str] = (), entity_ids: Iterable[str] = (), *, accessed: bool = True
) -> list[dict[str, Any]]:
    """Payloads of `memory.recalled`, events before entities."""
    events = [
        EventsRecalled(event_ids=tuple(chunk), accessed=accessed).payload()
        for chunk in chunks(sorted(event_ids), MAX_IDS)
    ]
    entities = [
        EntitiesRecalled(entity_ids=tuple(chunk)).payload()
        for chunk in chunks(sorted(entity_ids), MAX_IDS)
    ]
    return events + entities


def chunks(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    """Items in lists of at most so many, in their order."""
    return [items[first : first + most] for first in range(0, len(items), most)]


# -- accessed --------------------------------------------------------------------------------------

Times = Mapping[str, int]
"""How often, by id."""
NONE: Final[Times] = MappingProxyType({})
_Times = Annotated[Whole, Field(ge=1, le=MAX_TIMES)]


class Accessed(NamedTuple):
    """What reads returned, and how often.

    Attributes:
        events: by event id.
        entities: by the hash of the entity id.
        facts: that were traversed, by key.
    """

    events: Times = NONE
    entities: Times = NONE
    facts: Mapping[FactKey, int] = MappingProxyType({})


@with_config(PART)
@dataclass(frozen=True, slots=True)
class _Traversed(FactKey):
    """A fact that was traversed, and how often."""

    times: _Times


class _AccessedChunk(Decided):
    """The payload of `memory.accessed`."""

    events: dict[EventId, _Times] | None = None
    entities: dict[HashId, _Times] | None = None
    facts: Annotated[Items[_Traversed], Field(min_length=1, max_length=MAX_TRAVERSED)] | None = None

    @model_validator(mode="after")
    def _bounded(self) -> _AccessedChunk:
        nodes = len(self.events or ()) + len(self.entities or ())
        if nodes > MAX_NODES:
            raise broken("", f"at most {MAX_NODES:,} events and entities")
        if not nodes and not self.facts:
            raise broken("", "at least one of events, entities, facts")
        return self


def accessed_payloads(accessed: Accessed) -> list[dict[str, Any]]:
    """As many payloads as the limits ask for; none for nothing.

    What is counted more than MAX_TIMES times counts for that many.
    """
    nodes = [("events", key, n) for key, n in sorted(accessed.events.items())]
    nodes += [("entities", key, n) for key, n in sorted(accessed.entities.items())]
    facts = [
        _Traversed(**_fields_of(key), times=min(n, MAX_TIMES))
        for key, n in sorted(accessed.facts.items())
    ]
    payloads = []
    for named, traversed in zip_longest(chunks(nodes, MAX_NODES), chunks(facts, MAX_TRAVERSED)):
        counts: dict[str, dict[str, int]] = {}
        for kind, key, n in named or ():
            counts.setdefault(kind, {})[key] = min(n, MAX_TIMES)
        chunk = _AccessedChunk(
            events=counts.get("events"),
            entities=counts.get("entities"),
            facts=tuple(traversed) if traversed else None,
        )
        payloads.append(chunk.payload())
    return payloads


def parse_accessed(payload: Any) -> Accessed:
    """What a `memory.accessed` says.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.facts[3].times`).
    """
    chunk = parsed(_AccessedChunk, payload)
    facts: dict[FactKey, int] = {}
    for traversed in chunk.facts or ():
        key = FactKey(**_fields_of(traversed))
        facts[key] = facts.get(key, 0) + traversed.times
    return Accessed(chunk.events or {}, chunk.entities or {}, facts)


_KEY_FIELDS: Final = tuple(field.name for field in fields(FactKey))


def _fields_of(key: FactKey) -> dict[str, Any]:
    return {name: getattr(key, name) for name in _KEY_FIELDS}
