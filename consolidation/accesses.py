"""The payload of `memory.accessed`: what reads returned at its `occurred_at`, and how often.

- events: times by event id. entities: times by the hash of the entity id.
- facts: the keys of RELATES_TO edges that were traversed, each with its times.

At most MAX_NODES events and entities and MAX_FACTS facts, which is less than 128 KiB; what is more
goes into further chunks. It may carry run_id, chunk and chunks besides. What it does is told in
`access_counts`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice, zip_longest
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from consolidation.pruning import FactKey
from consolidation.pruning_payloads import (
    FACT_FIELDS,
    RUN_FIELDS,
    fact_key,
    fact_payload,
    is_event_id,
)
from enrichment.payload_fields import Fields
from projections.errors import InvalidEvent

ACCESSED_EVENT: Final = "memory.accessed"

MAX_NODES: Final = 1_000
"""Events and entities in one chunk."""
MAX_FACTS: Final = 150
"""In one chunk; a key has about 300 bytes."""
MAX_TIMES: Final = 100_000
"""That a chunk counts one node for."""

Times = Mapping[str, int]
"""How often, by id."""
NONE: Final[Times] = MappingProxyType({})
Item = TypeVar("Item")

_ENTITY_ID = re.compile(r"[0-9a-f]{16,64}")


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


def accessed_payloads(accessed: Accessed) -> list[dict[str, Any]]:
    """As many payloads as the limits ask for; none for nothing.

    What is counted more than MAX_TIMES times counts for that many.
    """
    nodes = [("events", one, n) for one, n in sorted(accessed.events.items())]
    nodes += [("entities", one, n) for one, n in sorted(accessed.entities.items())]
    facts = [
        {**fact_payload(key), "times": min(n, MAX_TIMES)}
        for key, n in sorted(accessed.facts.items())
    ]
    payloads = []
    for named, traversed in zip_longest(_chunks(nodes, MAX_NODES), _chunks(facts, MAX_FACTS)):
        payload: dict[str, Any] = {"facts": traversed} if traversed else {}
        for kind, one, n in named or ():
            payload.setdefault(kind, {})[one] = min(n, MAX_TIMES)
        payloads.append(payload)
    return payloads


def parse_accessed(payload: Any) -> Accessed:
    """What a `memory.accessed` says.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.facts[3].times`).
    """
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    if fields is None:
        raise InvalidEvent(tuple(errors))
    fields.refuse_others(f"{RUN_FIELDS} events entities facts")
    found = Accessed(
        _times(fields, "events", is_event_id, "UUIDs in lower case"),
        _times(fields, "entities", _is_entity_id, "ids of 16 to 64 hexadecimal digits"),
        _traversed(fields),
    )
    if not errors and not any(found):
        errors.append(("payload", "at least one of events, entities, facts"))
    if len(found.events) + len(found.entities) > MAX_NODES:
        errors.append(("payload", f"at most {MAX_NODES:,} events and entities"))
    if errors:
        raise InvalidEvent(tuple(errors))
    return found


def _is_entity_id(value: str) -> bool:
    return _ENTITY_ID.fullmatch(value) is not None


def _times(fields: Fields, field: str, is_id: Callable[[str], bool], ids: str) -> Times:
    value = fields.raw.get(field)
    if value is None:
        return NONE
    if not isinstance(value, Mapping) or len(value) > MAX_NODES:
        fields.refuse(field, f"an object of times by id, at most {MAX_NODES:,}")
        return NONE
    for one, times in value.items():
        if not is_id(one):
            fields.refuse(f"{field}.{one[:80]}", ids)
        elif type(times) is not int or not 1 <= times <= MAX_TIMES:
            fields.refuse(f"{field}.{one}", f"a whole number from 1 to {MAX_TIMES:,}")
    return dict(value)


def _traversed(fields: Fields) -> dict[FactKey, int]:
    found: dict[FactKey, int] = {}
    if fields.has("facts"):
        for one in fields.objects("facts", 1, MAX_FACTS):
            one.refuse_others(f"{FACT_FIELDS} times")
            key = fact_key(one)
            found[key] = found.get(key, 0) + one.whole("times", 1, MAX_TIMES)
    return found


def _chunks(items: Iterable[Item], most: int) -> Iterator[list[Item]]:
    left = iter(items)
    while chunk := list(islice(left, most)):
        yield chunk
