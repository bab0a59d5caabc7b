"""Payloads of `memory.forgotten` and `memory.recalled`; `kind` says what they hold.

- forgotten `events`: summary_id, and event_ids by tier (cold, archive): members of one Summary.
- forgotten `similar`: pairs of event ids, smaller first; never made again.
- forgotten `entities`: entity_ids, archived.
- forgotten `facts`: the keys of RELATES_TO edges, expired.
- recalled `events`: event_ids, and accessed, false when nobody asked for them: then their age goes
  on as if they had never left. recalled `entities`: entity_ids.

Each may carry run_id, chunk and chunks besides. A chunk holds at most MAX_IDS ids, and with that
less than 128 KiB.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any, Final, NamedTuple, TypeVar, cast

from consolidation.pruning import FactKey
from consolidation.retention import Departure, Tier
from enrichment.payload_fields import Fields
from enrichment.relations import EDGE_TYPES, MAX_RELATION_CHARACTERS, EdgeType
from projections.errors import InvalidEvent
from projections.events import timestamp_text

FORGOTTEN_EVENT: Final = "memory.forgotten"
RECALLED_EVENT: Final = "memory.recalled"
RUN_FIELDS: Final = "run_id chunk chunks"
"""Of every decision: the pass that made it, and which of how many chunks it is."""

MAX_IDS: Final = 2_000
"""In one chunk."""
MAX_FACTS: Final = 300
"""In one chunk; a key has about 300 bytes."""
FACT_FIELDS: Final = "source_id relation edge_type target_id valid_from event_id"
LEAVING_TIERS: Final = (Tier.COLD, Tier.ARCHIVE)

Item = TypeVar("Item")


class EventsForgotten(NamedTuple):
    """Members of one Summary that left, with their tiers, by tier and event id."""

    summary_id: str
    events: tuple[tuple[str, Tier], ...]


class PairsDropped(NamedTuple):
    """Pairs that are no longer similar, smaller event id first."""

    pairs: tuple[tuple[str, str], ...]


class EntitiesArchived(NamedTuple):
    """Entities that were archived."""

    entity_ids: tuple[str, ...]


class FactsExpired(NamedTuple):
    """Facts that were expired."""

    keys: tuple[FactKey, ...]


class EventsRecalled(NamedTuple):
    """Events that come back; `accessed`: somebody asked for them, which counts as an access."""

    event_ids: tuple[str, ...]
    accessed: bool = True


class EntitiesRecalled(NamedTuple):
    """Entities that are active again."""

    entity_ids: tuple[str, ...]


Decided = (
    EventsForgotten
    | PairsDropped
    | EntitiesArchived
    | FactsExpired
    | EventsRecalled
    | EntitiesRecalled
)


def forgotten_payloads(leaving: Iterable[Departure]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for events, one or more a Summary, in a fixed order."""
    ordered = sorted(leaving, key=lambda one: (one.summary_id, one.tier, one.event_id))
    payloads = []
    for summary_id, members in groupby(ordered, key=lambda one: one.summary_id):
        for chunk in chunks(list(members), MAX_IDS):
            tiers: dict[str, list[str]] = {}
            for one in chunk:
                tiers.setdefault(one.tier.value, []).append(one.event_id)
            payloads.append({"kind": "events", "summary_id": summary_id, "event_ids": tiers})
    return payloads


def dropped_payloads(pairs: Iterable[tuple[str, str]]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for similar pairs."""
    return [
        {"kind": "similar", "pairs": [list(pair) for pair in chunk]}
        for chunk in chunks(sorted(pairs), MAX_IDS // 2)
    ]


def archived_payloads(entity_ids: Iterable[str]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for entities."""
    return [
        {"kind": "entities", "entity_ids": list(chunk)}
        for chunk in chunks(sorted(entity_ids), MAX_IDS)
    ]


def expired_payloads(keys: Iterable[FactKey]) -> list[dict[str, Any]]:
    """Payloads of `memory.forgotten` for facts."""
    return [
        {
            "kind": "facts",
            "facts": [fact_payload(key) for key in chunk],
        }
        for chunk in chunks(sorted(keys), MAX_FACTS)
    ]


def fact_payload(key: FactKey) -> dict[str, Any]:
    """The key of a fact, as payloads hold it."""
    return {
        "source_id": key.source_id,
        "relation": key.relation,
        "edge_type": key.edge_type,
        "target_id": key.target_id,
        "valid_from": timestamp_text(key.valid_from_ms),
        "event_id": key.event_id,
    }


def recalled_payloads(
    event_ids: Iterable[str] = (), entity_ids: Iterable[str] = (), *, accessed: bool = True
) -> list[dict[str, Any]]:
    """Payloads of `memory.recalled`, events before entities."""
    events: dict[str, Any] = {"kind": "events"} | ({} if accessed else {"accessed": False})
    return [
        {**head, name: list(chunk)}
        for head, name, ids in (
            (events, "event_ids", event_ids),
            ({"kind": "entities"}, "entity_ids", entity_ids),
        )
        for chunk in chunks(sorted(ids), MAX_IDS)
    ]


def parse_departure(event_type: str, payload: Any) -> Decided:
    """What a `memory.forgotten` or `memory.recalled` decided.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.pairs[3]`).
        KeyError: for another event type.
    """
    parsers = _PARSERS[event_type]
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    kind = fields.choice("kind", parsers, required=True) if fields is not None else None
    decided = None
    if fields is not None and kind is not None:
        parse, names = parsers[kind]
        fields.refuse_others(f"kind {RUN_FIELDS} {names}")
        decided = parse(fields)
    if errors or decided is None:
        raise InvalidEvent(tuple(errors))
    return decided


def _events_forgotten(fields: Fields) -> EventsForgotten:
    summary_id = hash_id(fields, "summary_id")
    within = fields.object("event_ids", "an object of lists of event ids, by tier")
    events: list[tuple[str, Tier]] = []
    if within is not None:
        within.refuse_others(" ".join(LEAVING_TIERS))
        for tier in LEAVING_TIERS:
            if within.has(tier):
                events.extend((one, tier) for one in event_ids(within, tier))
        ids = [one for one, _ in events]
        if not ids or len(ids) > MAX_IDS or len(set(ids)) < len(ids):
            fields.refuse("event_ids", f"1 to {MAX_IDS:,} different event ids in all")
    return EventsForgotten(summary_id, tuple(events))


def _pairs_dropped(fields: Fields) -> PairsDropped:
    rule = "two different event ids, the smaller first"
    pairs: list[tuple[str, str]] = []
    for place, item in enumerate(listed(fields, "pairs", MAX_IDS // 2, "pairs")):
        if (
            isinstance(item, list)
            and len(item) == 2
            and all(map(is_event_id, item))
            and item[0] < item[1]
        ):
            pairs.append((item[0], item[1]))
        else:
            fields.refuse(f"pairs[{place}]", rule)
    return PairsDropped(tuple(pairs))


def _facts_expired(fields: Fields) -> FactsExpired:
    keys = []
    for one in fields.objects("facts", 1, MAX_FACTS):
        one.refuse_others(FACT_FIELDS)
        keys.append(fact_key(one))
    return FactsExpired(tuple(keys))


def fact_key(fields: Fields) -> FactKey:
    """The key of a fact, all of its fields required."""
    for name in ("valid_from", "event_id"):
        if not fields.has(name):
            fields.refuse(name, "required")
    edge_type = fields.choice("edge_type", EDGE_TYPES, required=True)
    return FactKey(
        hash_id(fields, "source_id"),
        fields.text("relation", MAX_RELATION_CHARACTERS, required=True) or "",
        cast(EdgeType, edge_type or EDGE_TYPES[0]),
        hash_id(fields, "target_id"),
        fields.time("valid_from") or 0,
        fields.uuid("event_id") or "",
    )


def _events_recalled(fields: Fields) -> EventsRecalled:
    accessed = fields.flag("accessed")
    return EventsRecalled(event_ids(fields, "event_ids"), accessed is not False)


_PARSERS: Final[Mapping[str, Mapping[str, tuple[Callable[[Fields], Decided], str]]]] = {
    FORGOTTEN_EVENT: {
        "events": (_events_forgotten, "summary_id event_ids"),
        "similar": (_pairs_dropped, "pairs"),
        "entities": (
            lambda fields: EntitiesArchived(fields.entity_ids("entity_ids", 1, MAX_IDS)),
            "entity_ids",
        ),
        "facts": (_facts_expired, "facts"),
    },
    RECALLED_EVENT: {
        "events": (_events_recalled, "event_ids accessed"),
        "entities": (
            lambda fields: EntitiesRecalled(fields.entity_ids("entity_ids", 1, MAX_IDS)),
            "entity_ids",
        ),
    },
}

_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_HASH = re.compile(r"[0-9a-f]{16,64}")


def is_event_id(value: Any) -> bool:
    """Whether a value is an event id in its one form: a UUID in lower case."""
    return isinstance(value, str) and _UUID.fullmatch(value) is not None


def listed(fields: Fields, field: str, most: int, what: str) -> Sequence[Any]:
    """A list of 1 to `most` items, required; empty (and an error) when it is none."""
    value = fields.raw.get(field)
    if isinstance(value, list) and 1 <= len(value) <= most:
        return value
    fields.refuse(field, f"a list of 1 to {most:,} {what}")
    return ()


def event_ids(fields: Fields, field: str) -> tuple[str, ...]:
    """1 to MAX_IDS different event ids."""
    found = listed(fields, field, MAX_IDS, "event ids")
    for place, one in enumerate(found):
        if not is_event_id(one):
            fields.refuse(f"{field}[{place}]", "an event id: a UUID in lower case")
    ids = [one for one in found if is_event_id(one)]
    if len(set(ids)) < len(ids):
        fields.refuse(field, "different event ids")
    return tuple(ids)


def hash_id(fields: Fields, field: str) -> str:
    """The bare hash of an entity or a summary, required."""
    value = fields.raw.get(field)
    if isinstance(value, str) and _HASH.fullmatch(value):
        return value
    fields.refuse(field, "an id of 16 to 64 hexadecimal digits")
    return ""


def chunks(items: Sequence[Item], most: int) -> list[Sequence[Item]]:
    """Items in lists of at most so many, in their order."""
    return [items[first : first + most] for first in range(0, len(items), most)]
