"""Facts that records state: the structured results of tools.

Structured results (the JSON a tool returned) follow these rules; what no rule names gives nothing:

1. Only results count: not the arguments of a call, not errors, not what people write.
2. A *record* is an object with an id of its own: `id`; else its only `<noun>_id` or
   `<noun>_number`; else, of several, the only one whose noun is in the name of the tool
   (`cancel_reservation` returns `reservation_id` and `user_id`: a reservation). An object without
   one is the event's user when the tool is about users and the object's e-mail or name is found in
   the `user_id`, else the user of its e-mail when the tool is about users; else nothing.
3. A short single value `key: v` says `record has_key v`: functional, because a record has one
   value of a field at a time. Texts of several lines, paging and the like are left out.
4. A key `<noun>_id` of another record says `record has_noun that`; when the noun is a person, the
   other way round: `user has_reservation record`, and not functional.
5. A list of ids or short values, and a list or map of records, says `record has_<singular> each`
   (`has_<noun>` when they have a `<noun>_id`).
   What an inner record holds is not read: a price inside a booking is the booking's. Of one without
   an id, alone under its key, the name says `record has_<key>_name that`.
6. What says nothing about the thing gives nothing (`is_bookkeeping`): when and by whom a record
   was touched; of people also sums, counts, versions, codes, and the state of what they asked for.
7. What a record calls otherwise than a sentence does is one relation, of people (`SAME_RELATION`):
   `city: Lyon` says `lives_in Lyon`.
8. A list of records at the top (search results) gives each one's strongest fields only.
9. A tool that takes something from what the record is about (`TAKING_VERBS`: `remove_label`,
   `cancel_item` of an order) states nothing: what it names is gone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from enrichment.act_names import first_word
from enrichment.event_kinds import EventKind, is_failed, parsed_json
from enrichment.facts import Assertion, Party, fact_in_words, literal, named
from enrichment.names import MAX_FACTS, EntityType
from enrichment.ports import EventText
from enrichment.vocabulary import (
    TAKING_VERBS,
    edge_type_of,
    is_functional,
    person_relation,
    relation_name,
    singular,
    word_set,
)
from projections.events import Event

STRUCTURED_CONFIDENCE = 9_500
MAX_VALUE_CHARACTERS = 80
MAX_LISTED = 10
MAX_RECORDS = 10


class StatedFact(NamedTuple):
    """A fact as a record's field states it; `rank` tells which come first when there are many."""

    source: Party
    relation: str
    target: Party
    rank: int
    functional: bool = False


def structured_facts(
    event: Event, text: EventText, content: Any = None, *, position_ms: int
) -> list[Assertion]:
    """Facts that a tool's result states, the strongest first, at most 20.

    Args:
        event: whose result it is.
        text: of the event; its kind says whether this is a result.
        content: the payload, when it was read from `payload_ref`.
        position_ms: when the ledger took the event in.
    """
    stated = text.kind is EventKind.RESULT or text.only_fields
    if not stated or is_failed(text.kind, event.status):
        return []
    value = _result(event.payload if content is None else content)
    once: dict[tuple[object, ...], StatedFact] = {}
    for fact in _facts_of(value, event):
        # an event says a fact once, or it would be two edges of one key
        once.setdefault((*fact.source[1:3], fact.relation, *fact.target[1:3]), fact)
    ranked = sorted(once.values(), key=lambda fact: fact.rank)
    return [
        Assertion(
            tenant=event.tenant,
            source=fact.source,
            relation=fact.relation,
            edge_type=edge_type_of(fact.relation),
            target=fact.target,
            valid_from_ms=event.occurred_at_ms,
            valid_to_ms=None,
            confidence=STRUCTURED_CONFIDENCE,
            fact=fact_in_words(fact.source, fact.relation, fact.target),
            source_kind="system",
            status="staged",
            user_id=event.user_id,
            event_id=event.event_id,
            ordinal=index,
            position_ms=position_ms,
            functional=is_functional(fact.relation, fact.functional),
        )
        for index, fact in enumerate(ranked[:MAX_FACTS])
    ]


_WRAPPERS = ("content", "result", "output", "data", "response")
_MAX_WRAPS = 3


def _result(value: Any) -> Any:
    """What a tool returned: out of the message around it, and out of the JSON text it came as."""
    for _ in range(_MAX_WRAPS):
        value = parsed_json(value)
        if isinstance(value, str):
            return None
        if not isinstance(value, Mapping):
            return value
        if "role" in value and "content" in value:  # a message is never the record itself
            value = value["content"]
            continue
        wrapped = [name for name in _WRAPPERS if isinstance(value.get(name), str | dict | list)]
        if len(wrapped) != 1 or _own_id(value, frozenset()) is not None:
            return value
        value = value[wrapped[0]]
    return value


def _facts_of(value: Any, event: Event) -> Iterator[StatedFact]:
    nouns = _nouns(event.tool or "")
    if isinstance(value, Mapping):
        record = _record(value, nouns, None) or _user_record(value, nouns, event)
        if record is not None and not _is_taken_from(record, event.tool or "", nouns):
            yield from record_facts(record, value, nouns)
    elif isinstance(value, list) and len(value) <= MAX_RECORDS:
        for item in value:
            if isinstance(item, Mapping):
                record = _record(item, nouns, None)
                if record is not None:
                    yield from (f for f in record_facts(record, item, nouns) if f.rank == _STRONG)


def _is_taken_from(record: Record, tool: str, nouns: frozenset[str]) -> bool:
    """Whether a tool took something from what a record is about: what it says of it is gone."""
    noun = (record.noun or "").rsplit("_", 1)[-1]
    return first_word(tool) in TAKING_VERBS and noun not in nouns


# Names that say who a record is, what state it is in: they come first when 20 are not enough.
_STRONG_KEYS = word_set("status state name title email type")
_STRONG, _LINK, _PLAIN = range(3)
_INNER_NAMES = ("name", "label", "title")
_LEFT_OUT = word_set(
    "page pages page_size offset limit cursor next previous total count took ok success "
    "message error errors code token hash checksum etag raw html url self href"
)
_PLUMBING = word_set(
    "tool_call call request trace span session message conversation correlation run thread event"
)
"""`<noun>_id` of how a result came, not of what it is about."""
_OWN_ID = re.compile(r"([a-z][a-z0-9_]{0,38})_(?:id|number)")
_ID_VALUE = re.compile(r"[^\s]{2,64}")
PEOPLE = word_set("user customer client person passenger member employee owner")
USER_NOUNS = PEOPLE | {"account", "profile"}
_SERVICES = word_set("service host server cluster database instance")


_SIGNS = re.compile(r"[^\w-]+")


def name_words(tool_name: str) -> list[str]:
    """The words of a tool's name, in order: `crm.updateContact` has crm, update and contact."""
    name = relation_name(_SIGNS.sub("_", tool_name))
    return [word for word in (name or "").split("_") if word]


def _nouns(tool_name: str) -> frozenset[str]:
    return frozenset(map(singular, name_words(tool_name)))


def thing(noun: str | None, value: Any) -> Party | None:
    """The entity that an id stands for."""
    text = str(value)
    if noun is None:
        return named(text, "resource", exact=True)
    last = noun.rsplit("_", 1)[-1]
    if last in PEOPLE:
        return named(text, "user", exact=True)
    if last in ("agent", "tool"):
        return named(text, "agent" if last == "agent" else "tool", exact=True)
    kind: EntityType = "service" if last in _SERVICES else "resource"
    return named(text, kind, noun, exact=True)


def is_id(value: Any) -> bool:
    """Whether a value has the form of an id: a number, or a text without blanks."""
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value >= 0
    return isinstance(value, str) and _ID_VALUE.fullmatch(value) is not None


def id_keys(value: Mapping[str, Any]) -> list[tuple[str, str | None]]:
    """(key, noun) of the ids in an object, `id` alone when it has one."""
    if is_id(value.get("id")):
        return [("id", None)]
    keys: list[tuple[str, str | None]] = []
    for key, item in value.items():
        match = _OWN_ID.fullmatch(key) if is_id(item) else None
        if match and match[1] not in _PLUMBING:
            keys.append((key, match[1]))
    return keys


def _own_id(value: Mapping[str, Any], nouns: frozenset[str]) -> tuple[str, str | None] | None:
    """(key, noun) of the id of the object itself; None when none or several could be it."""
    candidates = id_keys(value)
    if len(candidates) > 1:
        candidates = [
            (key, noun) for key, noun in candidates if noun and noun.split("_")[-1] in nouns
        ]
    return candidates[0] if len(candidates) == 1 else None


class Record(NamedTuple):
    """What an object is about: the entity, the key that names it, the noun of that key."""

    party: Party
    key: str
    noun: str | None


def _record(
    value: Mapping[str, Any], nouns: frozenset[str], container: str | None
) -> Record | None:
    identity = _own_id(value, nouns)
    if identity is None:
        return None
    key, noun = identity
    if noun is None:
        kind = next((value[n] for n in ("object", "kind") if isinstance(value.get(n), str)), None)
        noun = relation_name(kind) if kind else container
    party = thing(noun, value[key])
    return Record(party, key, noun) if party else None


def _user_record(value: Mapping[str, Any], nouns: frozenset[str], event: Event) -> Record | None:
    """The user that an object without an id is about, when that can be told."""
    for key in sorted(value):
        if key in USER_NOUNS and is_user(event, value[key]):
            party = named(str(event.user_id), "user", exact=True)
            return Record(party, key, "user") if party else None
    if not nouns & USER_NOUNS:
        return None
    email = value.get("email")
    email = email if isinstance(email, str) and "@" in email else None
    if event.user_id:
        parts = set(re.split(r"[^a-z0-9]+", event.user_id.lower()))
        name = set(re.split(r"[^a-z0-9]+", (_person_name(value.get("name")) or "").lower())) - {""}
        if (email and email.lower() == event.user_id.lower()) or (name and name <= parts):
            party = named(event.user_id, "user", exact=True)
            return Record(party, "", "user") if party else None
    party = named(email, "user", "email", exact=True) if email else None
    return Record(party, "email", "user") if party else None


def is_user(event: Event, value: Any) -> bool:
    """Whether a value is the id of the event's user."""
    if event.user_id is None or not isinstance(value, str | int) or isinstance(value, bool):
        return False
    return str(value).strip().lower() == event.user_id.strip().lower()


def _person_name(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        parts = [value.get("first_name"), value.get("last_name")]
        if all(isinstance(part, str) and part for part in parts):
            return f"{parts[0]} {parts[1]}"
    return None


_BOOKKEEPING = re.compile(
    r"(.*_)?(created|updated|modified|deleted|synced|fetched|cached|indexed|inserted)"
    r"(_(at|on|by|date|time|ts))?|(.*_)?(timestamp|ts|etag|checksum)|schema_version|row_version"
)
"""Of anything: when and by whom a record was touched."""
SUM: Final = re.compile(
    r"(?:.*_)?(?:price|amount|total|subtotal|cost|fee|tax|discount|quantity|qty|sum|refund|charge)"
)
"""Names of fields that hold a sum."""
_NOT_OF_PEOPLE = re.compile(
    rf"{SUM.pattern}|(.*_)?(currency|version|revision|rev|object|kind|seen|login|read|accessed)"
    r"|((fiscal|billing|pay)_)?(period|quarter|year|month|week)"
    r"|(status|error|response|reason|result|exit)_code|http_status|(is|was|has)_(new|valid|ok)"
)
"""Sums, counts, times, states of a transaction are of what was bought or asked, not of who did."""
_STATES = word_set("status state type")
"""Of people only where the tool is about people: a refund's state is not its receiver's."""


def is_bookkeeping(record: Record, key: str, nouns: frozenset[str], *, sums: bool = False) -> bool:
    """Whether a field says nothing about what its record is about.

    Args:
        record: whose field it is.
        key: of the field.
        nouns: of the tool that returned it, or is called with it.
        sums: whether a sum that is called by what it is of (`rate_amount`) was set for a person.
    """
    if key in _LEFT_OUT or _BOOKKEEPING.fullmatch(key):
        return True
    if record.party.entity_type != "user":
        return False
    if _NOT_OF_PEOPLE.fullmatch(key):
        return not (sums and "_" in key and SUM.fullmatch(key))
    return key in _STATES and not nouns & USER_NOUNS


def record_facts(
    record: Record,
    value: Mapping[str, Any],
    nouns: frozenset[str] = USER_NOUNS,
    *,
    sums: bool = False,
) -> Iterator[StatedFact]:
    """What the fields of a record say; keys in order.

    Args:
        record: what the object is about.
        value: the object.
        nouns: of the tool.
        sums: as of `is_bookkeeping`.
    """
    for fact in _fields(record, value, nouns, sums=sums):
        if fact.source.entity_type == "user":
            yield fact._replace(relation=person_relation(fact.relation))
        else:
            yield fact


def _fields(
    record: Record, value: Mapping[str, Any], nouns: frozenset[str], *, sums: bool
) -> Iterator[StatedFact]:
    for key in sorted(value):
        relation = relation_name(f"has_{key}")
        if key == record.key or relation is None:
            continue
        if is_bookkeeping(record, key, nouns, sums=sums):
            continue
        item = only_record(value[key])
        if key == "name":
            item = _person_name(item)
        if isinstance(item, list):
            yield from _listed(record, key, item)
        elif isinstance(item, Mapping):
            if item and all(isinstance(i, Mapping) and i.get("id") == k for k, i in item.items()):
                yield from _listed(record, key, list(item.values()))
            elif not id_keys(item):
                yield from _named_within(record, key, item)
        else:
            yield from _single(record, key, relation, item)


def only_record(value: Any) -> Any:
    """Of a list of one object without an id that object, else the value as it is."""
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], Mapping):
        return value
    return value if id_keys(value[0]) else value[0]


def _named_within(record: Record, key: str, item: Mapping[str, Any]) -> Iterator[StatedFact]:
    """What an object without an id is called, as a field of the record that it is in."""
    inner = next((name for name in _INNER_NAMES if isinstance(item.get(name), str)), None)
    joined = f"{key}_{inner}"
    relation = relation_name(f"has_{joined}")
    if inner is not None and relation is not None:
        yield from _single(record, joined, relation, item[inner])


def _single(record: Record, key: str, relation: str, item: Any) -> Iterator[StatedFact]:
    match = _OWN_ID.fullmatch(key)
    if match and match[1] in _PLUMBING:
        return
    if match and key.endswith("_id") and is_id(item):
        other = thing(match[1], item)
        if other is None:
            return
        if match[1].rsplit("_", 1)[-1] in PEOPLE and record.noun:
            back = relation_name(f"has_{record.noun}")
            if back:
                yield StatedFact(other, back, record.party, _LINK)
            return
        link = relation_name(f"has_{match[1]}")
        if link:
            yield StatedFact(record.party, link, other, _LINK, functional=True)
        return
    if item is None or not isinstance(item, str | int | float | bool):
        return
    if isinstance(item, str) and (
        not 1 <= len(item.strip()) <= MAX_VALUE_CHARACTERS or "\n" in item
    ):
        return
    target = literal(item)
    if target is not None:
        rank = _STRONG if key in _STRONG_KEYS else _PLAIN
        yield StatedFact(record.party, relation, target, rank, functional=True)


def _listed(record: Record, key: str, items: Sequence[Any]) -> Iterator[StatedFact]:
    noun = singular(key)
    relation = relation_name(f"has_{noun}")
    if relation is None or len(items) > MAX_LISTED or is_functional(relation):
        return
    # one id with a digit tells what the others are, `HATHAT` among `NO6JO3` and `AIXC49`
    ids = all(map(is_id, items)) and any(any(map(str.isdigit, str(i))) for i in items)
    for item in items:
        target: Party | None = None
        link = relation
        if isinstance(item, Mapping):
            inner = _record(item, frozenset((noun.rsplit("_", 1)[-1],)), noun)
            target = inner.party if inner else None
            if inner and inner.key != "id":  # a history of `payment_id`s is of payments
                link = relation_name(f"has_{inner.noun}") or relation
        elif ids:
            target = thing(noun, item)
        elif isinstance(item, str) and 1 <= len(item.strip()) <= MAX_VALUE_CHARACTERS:
            target = literal(item)
        if target is not None:
            yield StatedFact(record.party, link, target, _LINK)


# -- events that say what was changed --------------------------------------------------------------

NAMING_KEYS = word_set("field key name attribute property setting option parameter path")
VALUE_KEYS = ("value", "new_value", "to", "new", "after")
OLD_VALUE_KEYS = ("from", "old_value", "old", "before", "previous", "previous_value")


def changed_facts(
    event: Event, text: EventText, content: Any = None, *, position_ms: int
) -> list[Assertion]:
    """The facts of an event that says what was changed: `{"setting": …, "from": …, "to": …}`.

    The new value holds from then on, the old one held until then (at least in the moment before).

    Args:
        event: of any kind.
        text: of the event.
        content: the payload, when it was read from `payload_ref`.
        position_ms: when the ledger took the event in.
    """
    value = _result(event.payload if content is None else content)
    if text.kind in (EventKind.CALL, EventKind.FAILURE) or not isinstance(value, Mapping):
        return []
    names = [k for k in NAMING_KEYS if k != "path" and isinstance(value.get(k), str)]
    old = next((key for key in OLD_VALUE_KEYS if _is_scalar(value.get(key))), None)
    new = next((key for key in VALUE_KEYS if _is_scalar(value.get(key))), None)
    if is_failed(text.kind, event.status) or len(names) != 1 or old is None or new is None:
        return []
    source = named(value[names[0]], "resource", names[0], exact=True)
    if source is None or not is_id(value[names[0]]):
        return []
    at_ms = event.occurred_at_ms
    spans = ((value[old], at_ms - 1, at_ms), (value[new], at_ms, None))
    return [
        Assertion(
            tenant=event.tenant,
            source=source,
            relation="has_value",
            edge_type=edge_type_of("has_value"),
            target=target,
            valid_from_ms=begins_ms,
            valid_to_ms=ends_ms,
            confidence=STRUCTURED_CONFIDENCE,
            fact=fact_in_words(source, "has_value", target),
            source_kind="system",
            status="staged",
            user_id=event.user_id,
            event_id=event.event_id,
            ordinal=index,
            position_ms=position_ms,
            functional=True,
        )
        for index, (stated, begins_ms, ends_ms) in enumerate(spans)
        if (target := literal(stated)) is not None
    ]


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float | bool) and value != ""
