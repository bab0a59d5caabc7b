"""Payloads of the system events that Stage 2 applies: what producers, persons and Recollect state.

Every payload is an object; unknown fields are refused, every broken rule is named by its field.
An entity is `{name, type, subtype}`: name of 1 to 512 characters; type agent, tool, user, service,
resource or concept (default); subtype optional, finer, snake_case. An entity id is `entity:<hash>`
or the bare hash. Times are RFC 3339 with zone. A reason has at most 500 characters.

`memory.fact_asserted`, a fact:

- source: the entity it is about, required.
- relation: required, up to 64 characters of snake_case; `Works At` and `worksAt` are `works_at`.
- target: required, an entity, or a literal: a string of 1 to 512 characters, a number, a boolean.
- edge_type: semantic, temporal, causal or entity, in lower case; default: the relation's, else
  semantic.
- fact: in words, at most 500 characters; default: source, relation and target.
- confidence: 0 to 1, default 1.
- valid_from, valid_to: default `occurred_at` and open; to is exclusive and after from.
- source_kind: user_edit, file, system (default) or conversation.
- status: staged or confirmed; default: confirmed for user_edit, else staged.
- functional: true or false, whether there is one target at a time; of a relation in the table of
  relations the table says that, whatever stands here.

`memory.fact_retracted`, the withdrawal of facts of the same user, source and relation:

- source, relation, edge_type: as asserted.
- target: as asserted; without it, whatever the target of a functional relation, or of one that was
  asserted as functional; required when the table says that there are several at a time.
- event_id: only what this event asserted.
- at: no longer true since then; default `occurred_at`; with event_id and no `at`: never true.
- reason.

`memory.entity_corrected`, a person's correction of one entity:

- entity_id: required. correction: rename, retype, alias or split. reason.
- rename: name, the one to display.
- retype: type, subtype or both: what it is shown as; its id stays.
- alias: name and type under which the same was seen elsewhere, subtype: declared the same.
- split: from, 1 to 100 ids of entities it is not the same as.

`memory.same_as`, what the resolver decided, recorded:

- pairs: 1 to 200 of
    - entity_ids: two, different.
    - same: default true; false retracts.
    - confidence: 0 to 1, default 1. cosine: -1 to 1.
    - method: exact (default), cosine, model or person.
    - justification: at most 200 characters.
"""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple, get_args

from enrichment.derived import EntityType
from enrichment.entities import canonical_name, entity_id
from enrichment.facts import (
    MAX_FACT_CHARACTERS,
    SOURCE_KINDS,
    STATUSES,
    WHOLE_CONFIDENCE,
    Assertion,
    Party,
    fact_in_words,
    literal,
    named,
    party_id,
)
from enrichment.histories import Retraction
from enrichment.payload_fields import Fields
from enrichment.relations import (
    EDGE_TYPES,
    MAX_RELATION_CHARACTERS,
    EdgeType,
    edge_type_of,
    is_functional,
    relation_name,
)
from projections.errors import InvalidEvent
from projections.events import MAX_NAME_CHARACTERS, Event

FACT_ASSERTED: Final = "memory.fact_asserted"
FACT_RETRACTED: Final = "memory.fact_retracted"
ENTITY_CORRECTED: Final = "memory.entity_corrected"
SAME_AS_FOUND: Final = "memory.same_as"

ENTITY_TYPES: Final[tuple[str, ...]] = get_args(EntityType)
Correction = Literal["rename", "retype", "alias", "split"]
CORRECTIONS: Final[tuple[str, ...]] = get_args(Correction)
Method = Literal["exact", "cosine", "model", "person"]
METHODS: Final[tuple[str, ...]] = get_args(Method)

MAX_REASON_CHARACTERS = 500
MAX_JUSTIFICATION_CHARACTERS = 200
MAX_SPLIT = 100
MAX_PAIRS = 200
"""So that a payload stays below 128 KiB."""


class FactAsserted(NamedTuple):
    """A fact as stated; None: the default that depends on the event."""

    source: Party
    relation: str
    edge_type: EdgeType
    target: Party
    fact: str
    confidence: int
    valid_from_ms: int | None
    valid_to_ms: int | None
    source_kind: str
    status: str
    functional: bool


class FactRetracted(NamedTuple):
    """The withdrawal of a fact."""

    source: Party
    relation: str
    edge_type: EdgeType
    target: Party | None
    asserted_by: str | None
    at_ms: int | None
    reason: str | None


class EntityCorrected(NamedTuple):
    """A correction of one entity; fields that its kind does not have are None or empty."""

    entity_id: str
    correction: Correction
    name: str | None = None
    entity_type: EntityType | None = None
    subtype: str | None = None
    apart_from: tuple[str, ...] = ()
    reason: str | None = None


class Pair(NamedTuple):
    """Whether two entities are the same; `entity_ids` sorted, numbers times 10⁴."""

    entity_ids: tuple[str, str]
    same: bool = True
    confidence: int = WHOLE_CONFIDENCE
    cosine: int | None = None
    method: Method = "exact"
    justification: str | None = None


class SameAsFound(NamedTuple):
    """Decisions about pairs of entities."""

    pairs: tuple[Pair, ...]


Statement = FactAsserted | FactRetracted | EntityCorrected | SameAsFound


def parse_statement(event_type: str, payload: Any) -> Statement:
    """The statement of a system event.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.source.name`).
        KeyError: for an event type that states nothing to Stage 2.
    """
    parse = _PARSERS[event_type]
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    statement = parse(fields) if fields is not None else None
    if errors or statement is None:
        raise InvalidEvent(tuple(errors))
    return statement


def _fact_asserted(fields: Fields) -> FactAsserted | None:
    fields.refuse_others(
        "source relation target edge_type fact confidence valid_from valid_to source_kind status "
        "functional"
    )
    source = _party(fields, "source", literals=False)
    target = _party(fields, "target", literals=True)
    relation = _relation(fields)
    edge_type = _edge_type(fields, relation)
    fact = fields.text("fact", MAX_FACT_CHARACTERS)
    confidence = fields.ten_thousandths("confidence", 0, 1)
    valid_from_ms, valid_to_ms = fields.time("valid_from"), fields.time("valid_to")
    if valid_from_ms is not None and valid_to_ms is not None and valid_to_ms <= valid_from_ms:
        fields.refuse("valid_to", "after valid_from")
    source_kind = fields.choice("source_kind", SOURCE_KINDS) or "system"
    status = fields.choice("status", STATUSES)
    functional = fields.flag("functional")
    if source is None or target is None or relation is None:
        return None
    return FactAsserted(
        source,
        relation,
        edge_type,
        target,
        fact or fact_in_words(source, relation, target),
        WHOLE_CONFIDENCE if confidence is None else confidence,
        valid_from_ms,
        valid_to_ms,
        source_kind,
        status or ("confirmed" if source_kind == "user_edit" else "staged"),
        is_functional(relation, bool(functional)),
    )


def _fact_retracted(fields: Fields) -> FactRetracted | None:
    fields.refuse_others("source relation target edge_type event_id at reason")
    source = _party(fields, "source", literals=False)
    relation = _relation(fields)
    edge_type = _edge_type(fields, relation)
    target = _party(fields, "target", literals=True) if fields.has("target") else None
    if relation and not fields.has("target") and not is_functional(relation, True):
        fields.refuse("target", f"required: {relation} has several targets at a time")
    asserted_by, at_ms = fields.uuid("event_id"), fields.time("at")
    reason = fields.text("reason", MAX_REASON_CHARACTERS)
    if source is None or relation is None:
        return None
    return FactRetracted(source, relation, edge_type, target, asserted_by, at_ms, reason)


def _entity_corrected(fields: Fields) -> EntityCorrected | None:
    corrected = fields.entity_id("entity_id")
    kind = fields.choice("correction", CORRECTIONS, required=True)
    own = {"rename": "name", "retype": "type subtype", "alias": "name type subtype"}
    fields.refuse_others(f"entity_id correction reason {own.get(kind or '', 'from')}")
    name: str | None = None
    entity_type: str | None = None
    subtype: str | None = None
    apart: tuple[str, ...] = ()
    if kind in ("rename", "alias"):
        name = _name(fields, "name")
    if kind in ("retype", "alias"):
        entity_type = fields.choice("type", ENTITY_TYPES, required=kind == "alias")
        subtype = _subtype(fields)
    if kind == "retype" and not fields.has("type") and not fields.has("subtype"):
        fields.refuse("type", "required, or subtype")
    if kind == "split":
        apart = fields.entity_ids("from", 1, MAX_SPLIT)
        if corrected in apart:
            fields.refuse("from", "other entities than entity_id")
    reason = fields.text("reason", MAX_REASON_CHARACTERS)
    if corrected is None or kind is None:
        return None
    return EntityCorrected(
        corrected,
        kind,  # type: ignore[arg-type]  # one of CORRECTIONS, as `choice` has checked
        name,
        entity_type,  # type: ignore[arg-type]  # one of ENTITY_TYPES
        subtype,
        apart,
        reason,
    )


def _same_as_found(fields: Fields) -> SameAsFound:
    fields.refuse_others("pairs")
    pairs = [pair for item in fields.objects("pairs", 1, MAX_PAIRS) if (pair := _pair(item))]
    return SameAsFound(tuple(pairs))


def _pair(fields: Fields) -> Pair | None:
    fields.refuse_others("entity_ids same confidence cosine method justification")
    ids = fields.entity_ids("entity_ids", 2, 2)
    same = fields.flag("same")
    confidence = fields.ten_thousandths("confidence", 0, 1)
    cosine = fields.ten_thousandths("cosine", -1, 1)
    method = fields.choice("method", METHODS) or "exact"
    justification = fields.text("justification", MAX_JUSTIFICATION_CHARACTERS)
    if len(ids) != 2:
        return None
    return Pair(
        (min(ids), max(ids)),
        same is not False,
        WHOLE_CONFIDENCE if confidence is None else confidence,
        cosine,
        method,  # type: ignore[arg-type]  # one of METHODS
        justification,
    )


_PARSERS: Final = {
    FACT_ASSERTED: _fact_asserted,
    FACT_RETRACTED: _fact_retracted,
    ENTITY_CORRECTED: _entity_corrected,
    SAME_AS_FOUND: _same_as_found,
}


def _party(fields: Fields, name: str, *, literals: bool) -> Party | None:
    value = fields.raw.get(name)
    if literals and isinstance(value, str | int | float):
        if isinstance(value, str) and fields.text(name, MAX_NAME_CHARACTERS) is None:
            return None
        party = literal(value)
        if party is None:
            fields.refuse(name, "more than blanks and invisible characters")
        return party
    inner = fields.object(name, "an entity {name, type}" + (" or a literal" if literals else ""))
    if inner is None:
        return None
    inner.refuse_others("name type subtype")
    entity_type = inner.choice("type", ENTITY_TYPES) or "concept"
    subtype = _subtype(inner)
    text = _name(inner, "name")
    # the types are the Literal's own values
    return named(text, entity_type, subtype) if text else None  # type: ignore[arg-type]


def _name(fields: Fields, name: str) -> str | None:
    text = fields.text(name, MAX_NAME_CHARACTERS, required=True)
    if text is not None and not canonical_name(text):
        fields.refuse(name, "more than blanks and invisible characters")
        return None
    return text


def _subtype(fields: Fields) -> str | None:
    text = fields.text("subtype", MAX_RELATION_CHARACTERS)
    if text is not None and relation_name(text) != text:
        fields.refuse("subtype", f"snake_case, at most {MAX_RELATION_CHARACTERS} characters")
    return text


def _relation(fields: Fields) -> str | None:
    text = fields.text("relation", 4 * MAX_RELATION_CHARACTERS, required=True)
    if text is None:
        return None
    relation = relation_name(text)
    if relation is None:
        fields.refuse(
            "relation", f"snake_case, a letter first, at most {MAX_RELATION_CHARACTERS} characters"
        )
    return relation


def _edge_type(fields: Fields, relation: str | None) -> EdgeType:
    chosen: Any = fields.choice("edge_type", EDGE_TYPES)
    return chosen or edge_type_of(relation or "")


def stated_fact(event: Event, said: FactAsserted, *, position_ms: int) -> Assertion:
    """The assertion that a `memory.fact_asserted` event makes.

    Raises:
        InvalidEvent: when `valid_to` is not after `occurred_at`, which stands for `valid_from`.
    """
    begins_ms = event.occurred_at_ms if said.valid_from_ms is None else said.valid_from_ms
    if said.valid_to_ms is not None and said.valid_to_ms <= begins_ms:
        raise InvalidEvent((("payload.valid_to", "after valid_from (default occurred_at)"),))
    return Assertion(
        tenant=event.tenant,
        source=said.source,
        relation=said.relation,
        edge_type=said.edge_type,
        target=said.target,
        valid_from_ms=begins_ms,
        valid_to_ms=said.valid_to_ms,
        confidence=said.confidence,
        fact=said.fact,
        source_kind=said.source_kind,
        status=said.status,
        user_id=event.user_id,
        event_id=event.event_id,
        ordinal=0,
        position_ms=position_ms,
        functional=said.functional,
    )


def stated_retraction(event: Event, said: FactRetracted, *, position_ms: int) -> Retraction:
    """The retraction that a `memory.fact_retracted` event makes."""
    at_ms = said.at_ms
    if at_ms is None and said.asserted_by is None:
        at_ms = event.occurred_at_ms
    return Retraction(
        tenant=event.tenant,
        user_id=event.user_id,
        source_id=party_id(event.tenant, said.source),
        relation=said.relation,
        edge_type=said.edge_type,
        target_id=None if said.target is None else party_id(event.tenant, said.target),
        asserted_by=said.asserted_by,
        at_ms=at_ms,
        event_id=event.event_id,
        ordinal=0,
        position_ms=position_ms,
    )


def stated_pairs(tenant: str, said: EntityCorrected | SameAsFound) -> tuple[Pair, ...]:
    """What a statement says of pairs of entities; of two about one pair the later position wins.

    A declared alias is the entity that the other name has of itself; a split keeps pairs apart.
    """
    if isinstance(said, SameAsFound):
        return said.pairs
    if said.correction == "split":
        others, same = said.apart_from, False
    elif said.correction == "alias":
        alias = entity_id(tenant, canonical_name(said.name or ""), said.entity_type or "concept")
        others, same = (alias,), True
    else:
        return ()
    return tuple(
        Pair(
            (min(said.entity_id, other), max(said.entity_id, other)),
            same,
            method="person",
            justification=(said.reason or said.correction)[:MAX_JUSTIFICATION_CHARACTERS],
        )
        for other in others
        if other != said.entity_id
    )
