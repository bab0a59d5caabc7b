"""Facts: what an event says of two entities, and the facts that structured results state.

A fact is `source —relation→ target`. A target is an entity or a literal value ("dark mode",
`cancelled`); a value becomes an entity of type concept, subtype `value`, and is never resolved.

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
   What an inner record holds is not read: a price inside a booking is the booking's.
6. A list of records at the top (search results) gives each one's strongest fields only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, get_args

import orjson

from enrichment.event_kinds import EventKind, is_failed, parsed_json
from enrichment.names import (
    MAX_FACT_CHARACTERS,
    MAX_FACTS,
    VALUE,
    EntityType,
    canonical_name,
    entity_id,
)
from enrichment.ports import EventText, Mention
from enrichment.vocabulary import (
    EdgeType,
    edge_type_of,
    is_functional,
    relation_name,
    relation_words,
    singular,
    word_set,
)
from projections.events import Event

WHOLE_CONFIDENCE = 10_000
"""Confidence is an integer times 10⁴, so that it may be in the digest."""
STRUCTURED_CONFIDENCE = 9_500
MAX_VALUE_CHARACTERS = 80
MAX_LISTED = 10
MAX_RECORDS = 10


SourceKind = Literal["user_edit", "file", "system", "conversation"]
Status = Literal["staged", "confirmed"]
SOURCE_KINDS: Final[tuple[str, ...]] = get_args(SourceKind)
FACT_STATUSES: Final[tuple[str, ...]] = get_args(Status)


class Party(NamedTuple):
    """One end of a fact; `exact` as in `Mention`: the same only as itself or by declared alias."""

    name: str
    canonical_name: str
    entity_type: EntityType
    subtype: str | None = None
    exact: bool = False


class Assertion(NamedTuple):
    """One statement of a fact by one event.

    Attributes:
        valid_from_ms: since when it holds.
        valid_to_ms: until when, exclusive; None: as long as nothing says otherwise.
        confidence: integer times 10⁴.
        fact: in words, at most 500 characters.
        source_kind: where it comes from, one of S1's four.
        status: staged or confirmed.
        user_id: the person whose facts these are; None: shared within the tenant.
        ordinal: tells the assertions of one event apart.
        position_ms: when the ledger took the event in; the transaction time of what it ends.
        functional: the relation has one target at a time.
    """

    tenant: str
    source: Party
    relation: str
    edge_type: EdgeType
    target: Party
    valid_from_ms: int
    valid_to_ms: int | None
    confidence: int
    fact: str
    source_kind: str
    status: str
    user_id: str | None
    event_id: str
    ordinal: int
    position_ms: int
    functional: bool

    @property
    def source_id(self) -> str:
        """The entity it is about."""
        return party_id(self.tenant, self.source)

    @property
    def target_id(self) -> str:
        """The entity it leads to."""
        return party_id(self.tenant, self.target)


def party_id(tenant: str, party: Party) -> str:
    """The id of the entity that a party is."""
    return entity_id(tenant, party.canonical_name, party.entity_type)


def named(
    name: str, entity_type: EntityType, subtype: str | None = None, *, exact: bool = False
) -> Party | None:
    """A party of that name; a digit makes it exact. None: nothing is left of the name."""
    canonical = canonical_name(name)
    if not canonical:
        return None
    exact = exact or any(letter.isdigit() for letter in canonical)
    return Party(
        name=name,
        canonical_name=canonical,
        entity_type=entity_type,
        subtype=subtype,
        exact=exact,
    )


def party_of(mention: Mention, name: str | None = None) -> Party:
    """The party that a mention is, under another name if one is given."""
    return Party(
        name=mention.name if name is None else name,
        canonical_name=mention.canonical_name,
        entity_type=mention.entity_type,
        subtype=mention.subtype,
        exact=mention.exact,
    )


def literal(value: str | int | float | bool) -> Party | None:
    """The concept that a literal value becomes. None: nothing is left of it."""
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return named(text.strip(), "concept", VALUE, exact=True)


def fact_in_words(source: Party, relation: str, target: Party) -> str:
    """`reservation JG7FMM has status cancelled`, cut to length."""
    kind = source.subtype if source.exact and source.subtype not in (None, VALUE) else None
    subject = f"{kind} {source.name}" if kind else source.name
    return f"{subject} {relation_words(relation)} {target.name}"[:MAX_FACT_CHARACTERS]


class _StatedFact(NamedTuple):
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
    once: dict[tuple[object, ...], _StatedFact] = {}
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


def _facts_of(value: Any, event: Event) -> Iterator[_StatedFact]:
    nouns = _nouns(event.tool_name or "")
    if isinstance(value, Mapping):
        record = _record(value, nouns, None) or _user_record(value, nouns, event)
        if record is not None:
            yield from _record_facts(record, value)
    elif isinstance(value, list) and len(value) <= MAX_RECORDS:
        for item in value:
            if isinstance(item, Mapping):
                record = _record(item, nouns, None)
                if record is not None:
                    yield from (f for f in _record_facts(record, item) if f.rank == _STRONG)


# Names that say who a record is, what state it is in: they come first when 20 are not enough.
_STRONG_KEYS = word_set("status state name title email type")
_STRONG, _LINK, _PLAIN = range(3)
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
_PEOPLE = word_set("user customer client person passenger member employee owner")
_USER_NOUNS = _PEOPLE | {"account", "profile"}
_SERVICES = word_set("service host server cluster database instance")


def _nouns(tool_name: str) -> frozenset[str]:
    name = relation_name(tool_name) or ""
    return frozenset(singular(word) for word in name.split("_"))


def _thing(noun: str | None, value: Any) -> Party | None:
    """The entity that an id stands for."""
    text = str(value)
    if noun is None:
        return named(text, "resource", exact=True)
    last = noun.rsplit("_", 1)[-1]
    if last in _PEOPLE:
        return named(text, "user", exact=True)
    if last in ("agent", "tool"):
        return named(text, "agent" if last == "agent" else "tool", exact=True)
    kind: EntityType = "service" if last in _SERVICES else "resource"
    return named(text, kind, noun, exact=True)


def _is_id(value: Any) -> bool:
    if isinstance(value, bool):
        return False
    if isinstance(value, int):
        return value >= 0
    return isinstance(value, str) and _ID_VALUE.fullmatch(value) is not None


def _own_id(value: Mapping[str, Any], nouns: frozenset[str]) -> tuple[str, str | None] | None:
    """(key, noun) of the id of the object itself; None when none or several could be it."""
    if _is_id(value.get("id")):
        return ("id", None)
    candidates = []
    for key, item in value.items():
        match = _OWN_ID.fullmatch(key) if _is_id(item) else None
        if match and match[1] not in _PLUMBING:
            candidates.append((key, match[1]))
    if len(candidates) > 1:
        candidates = [(key, noun) for key, noun in candidates if noun.split("_")[-1] in nouns]
    return candidates[0] if len(candidates) == 1 else None


class _Record(NamedTuple):
    party: Party
    key: str
    noun: str | None


def _record(
    value: Mapping[str, Any], nouns: frozenset[str], container: str | None
) -> _Record | None:
    identity = _own_id(value, nouns)
    if identity is None:
        return None
    key, noun = identity
    if noun is None:
        kind = next((value[n] for n in ("object", "kind") if isinstance(value.get(n), str)), None)
        noun = relation_name(kind) if kind else container
    party = _thing(noun, value[key])
    return _Record(party, key, noun) if party else None


def _user_record(value: Mapping[str, Any], nouns: frozenset[str], event: Event) -> _Record | None:
    """The user that an object without an id is about, when that can be told."""
    if not nouns & _USER_NOUNS:
        return None
    email = value.get("email")
    email = email if isinstance(email, str) and "@" in email else None
    if event.user_id:
        parts = set(re.split(r"[^a-z0-9]+", event.user_id.lower()))
        name = set(re.split(r"[^a-z0-9]+", (_person_name(value.get("name")) or "").lower())) - {""}
        if (email and email.lower() == event.user_id.lower()) or (name and name <= parts):
            party = named(event.user_id, "user", exact=True)
            return _Record(party, "", "user") if party else None
    party = named(email, "user", "email", exact=True) if email else None
    return _Record(party, "email", "user") if party else None


def _person_name(value: Any) -> str | None:
    if isinstance(value, str):
        return value
    if isinstance(value, Mapping):
        parts = [value.get("first_name"), value.get("last_name")]
        if all(isinstance(part, str) and part for part in parts):
            return f"{parts[0]} {parts[1]}"
    return None


def _record_facts(record: _Record, value: Mapping[str, Any]) -> Iterator[_StatedFact]:
    for key in sorted(value):
        relation = relation_name(f"has_{key}")
        if key == record.key or relation is None or key in _LEFT_OUT:
            continue
        item = value[key]
        if key == "name":
            item = _person_name(item)
        if isinstance(item, list):
            yield from _listed(record, key, item)
        elif isinstance(item, Mapping):
            if item and all(isinstance(i, Mapping) and i.get("id") == k for k, i in item.items()):
                yield from _listed(record, key, list(item.values()))
        else:
            yield from _single(record, key, relation, item)


def _single(record: _Record, key: str, relation: str, item: Any) -> Iterator[_StatedFact]:
    match = _OWN_ID.fullmatch(key)
    if match and match[1] in _PLUMBING:
        return
    if match and key.endswith("_id") and _is_id(item):
        other = _thing(match[1], item)
        if other is None:
            return
        if match[1].rsplit("_", 1)[-1] in _PEOPLE and record.noun:
            back = relation_name(f"has_{record.noun}")
            if back:
                yield _StatedFact(other, back, record.party, _LINK)
            return
        link = relation_name(f"has_{match[1]}")
        if link:
            yield _StatedFact(record.party, link, other, _LINK, functional=True)
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
        yield _StatedFact(record.party, relation, target, rank, functional=True)


def _listed(record: _Record, key: str, items: Sequence[Any]) -> Iterator[_StatedFact]:
    noun = singular(key)
    relation = relation_name(f"has_{noun}")
    if relation is None or len(items) > MAX_LISTED or is_functional(relation):
        return
    # one id with a digit tells what the others are, `HATHAT` among `NO6JO3` and `AIXC49`
    ids = all(map(_is_id, items)) and any(any(map(str.isdigit, str(i))) for i in items)
    for item in items:
        target: Party | None = None
        link = relation
        if isinstance(item, Mapping):
            inner = _record(item, frozenset((noun.rsplit("_", 1)[-1],)), noun)
            target = inner.party if inner else None
            if inner and inner.key != "id":  # a history of `payment_id`s is of payments
                link = relation_name(f"has_{inner.noun}") or relation
        elif ids:
            target = _thing(noun, item)
        elif isinstance(item, str) and 1 <= len(item.strip()) <= MAX_VALUE_CHARACTERS:
            target = literal(item)
        if target is not None:
            yield _StatedFact(record.party, link, target, _LINK)


class Retraction(NamedTuple):
    """What withdraws facts.

    Attributes:
        target_id: only facts with this target; None: whatever the target of a functional group.
        asserted_by: only what this event asserted.
        at_ms: since when it no longer holds; None, with `asserted_by`: it never held.
        event_id: of the retraction.
        position_ms: when the ledger took it in.
    """

    tenant: str
    user_id: str | None
    source_id: str
    relation: str
    edge_type: EdgeType
    target_id: str | None
    asserted_by: str | None
    at_ms: int | None
    event_id: str
    ordinal: int
    position_ms: int
