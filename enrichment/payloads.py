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

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainValidator,
    Strict,
    TypeAdapter,
    model_validator,
)

from enrichment.facts import (
    WHOLE_CONFIDENCE,
    Assertion,
    Party,
    Retraction,
    SourceKind,
    Status,
    fact_in_words,
    literal,
    named,
    party_id,
)
from enrichment.names import MAX_FACT_CHARACTERS, EntityType, canonical_name, entity_id
from enrichment.vocabulary import (
    MAX_RELATION_CHARACTERS,
    EdgeType,
    edge_type_of,
    is_functional,
    relation_name,
)
from projections.errors import InvalidEvent
from projections.events import (
    MAX_NAME_CHARACTERS,
    PARTITION_KEY,
    SYSTEM_EVENTS,
    Event,
    derived_event_id,
    is_system_event,
    parse_event,
)
from projections.identity import Position
from projections.records import (
    MAX_COMMENT_CHARACTERS,
    MAX_JUDGED,
    MAX_REASON_CHARACTERS,
    MAX_REQUEST_REASON_CHARACTERS,
    MAX_SPLIT,
    Coded,
    Different,
    EntityId,
    EventId,
    Items,
    Matching,
    Record,
    Text,
    Timestamp,
    broken,
    parsed,
)

DECIDER = "recollect"
"""`agent_id` of what Recollect itself decides."""


FACT_ASSERTED: Final = "memory.fact_asserted"
FACT_RETRACTED: Final = "memory.fact_retracted"
ENTITY_CORRECTED: Final = "memory.entity_corrected"
SAME_AS_FOUND: Final = "memory.same_as"
FEEDBACK_EVENT: Final = "memory.feedback"
REQUESTED_EVENT: Final = "memory.consolidation_requested"

STATEMENTS: Final = (FACT_ASSERTED, FACT_RETRACTED, ENTITY_CORRECTED)
"""What producers may state about the world."""
PUBLIC: Final = tuple(name for name, row in SYSTEM_EVENTS.items() if row.public)
"""System events that producers may send."""
OF_ALL_USERS: Final = (ENTITY_CORRECTED, REQUESTED_EVENT)
"""Those of them that change what all users of a tenant see."""
WITH_RULES: Final = (*STATEMENTS, FEEDBACK_EVENT, REQUESTED_EVENT)
"""Those whose payload has rules."""

MAX_JUSTIFICATION_CHARACTERS: Final = 200
MAX_PAIRS: Final = 200
"""So that a payload stays below 128 KiB."""
MAX_ERRORS: Final = 100
"""Of one event: a payload of 256 KiB has room for 30,000 unknown fields, and a batch for a thousand
such payloads."""


# -- types of fields -------------------------------------------------------------------------------


def _visible(name: str) -> str:
    if not canonical_name(name):
        raise broken("", "more than blanks and invisible characters")
    return name


def _relation(text: str) -> str:
    relation = relation_name(text)
    if relation is None:
        rule = f"snake_case, a letter first, at most {MAX_RELATION_CHARACTERS} characters"
        raise broken("", rule)
    return relation


def _snake_case(text: str) -> str:
    if relation_name(text) != text:
        raise broken("", f"snake_case, at most {MAX_RELATION_CHARACTERS} characters")
    return text


def _ten_thousandths(least: int) -> Coded:
    def decode(value: Any) -> int:
        # a NaN is not between anything
        if type(value) not in (int, float) or not least <= value <= 1:
            raise ValueError(f"a number from {least} to 1")
        rounded: int = round(value * WHOLE_CONFIDENCE)
        return rounded

    return Coded(decode, lambda number: number / WHOLE_CONFIDENCE)


def _lower_case(value: Any) -> Any:
    return value.lower() if isinstance(value, str) else value


def _not_empty(items: tuple[Any, ...]) -> tuple[Any, ...]:
    # pydantic's `min_length` would count the items that are not refused
    if not items:
        raise broken("", "at least 1 item")
    return items


Name = Annotated[str, Text(MAX_NAME_CHARACTERS), AfterValidator(_visible)]
Subtype = Annotated[str, Text(MAX_RELATION_CHARACTERS), AfterValidator(_snake_case)]
RelationName = Annotated[str, Text(4 * MAX_RELATION_CHARACTERS), AfterValidator(_relation)]
Reason = Annotated[str, Text(MAX_REASON_CHARACTERS)]
Confidence = Annotated[int, _ten_thousandths(0)]
"""Integer times 10⁴; 0 to 1 on the wire."""
Cosine = Annotated[int, _ten_thousandths(-1)]
"""Integer times 10⁴; -1 to 1 on the wire."""
_NAME: TypeAdapter[str] = TypeAdapter(Name)


class StatedEntity(Record):
    """An entity as a producer names it."""

    name: Name
    type: EntityType = "concept"
    subtype: Subtype | None = None


def _entity(value: Any) -> Party:
    stated = StatedEntity.model_validate(value)
    party = named(stated.name, stated.type, stated.subtype)
    assert party is not None  # something of the name can be seen
    return party


def _entity_or_literal(value: Any) -> Party:
    if not isinstance(value, str | int | float):
        return _entity(value)
    party = literal(_NAME.validate_python(value) if isinstance(value, str) else value)
    assert party is not None
    return party


Source = Annotated[Party, PlainValidator(_entity)]
Target = Annotated[Party, PlainValidator(_entity_or_literal)]


# -- what is stated --------------------------------------------------------------------------------


class FactAsserted(Record):
    """A fact as stated; None: the default that depends on the rest, or on the event."""

    source: Source
    relation: RelationName
    target: Target
    edge_type: EdgeType | None = None
    fact: Annotated[str, Text(MAX_FACT_CHARACTERS)] | None = None
    confidence: Confidence = WHOLE_CONFIDENCE
    valid_from_ms: Timestamp | None = Field(default=None, alias="valid_from")
    valid_to_ms: Timestamp | None = Field(default=None, alias="valid_to")
    source_kind: SourceKind = "system"
    status: Status | None = None
    functional: bool = False

    @model_validator(mode="after")
    def _ends_after_it_begins(self) -> FactAsserted:
        begins, ends = self.valid_from_ms, self.valid_to_ms
        if begins is not None and ends is not None and ends <= begins:
            raise broken("valid_to", "after valid_from")
        return self


class FactRetracted(Record):
    """The withdrawal of a fact."""

    source: Source
    relation: RelationName
    target: Target | None = None
    edge_type: EdgeType | None = None
    asserted_by: Annotated[EventId, BeforeValidator(_lower_case)] | None = Field(
        default=None, alias="event_id"
    )
    at_ms: Timestamp | None = Field(default=None, alias="at")
    reason: Reason | None = None

    @model_validator(mode="after")
    def _names_one_of_several(self) -> FactRetracted:
        if self.target is None and not is_functional(self.relation, True):
            raise broken("target", f"required: {self.relation} has several targets at a time")
        return self


class EntityCorrected(Record):
    """A correction of one entity."""

    entity_id: EntityId
    correction: Literal["rename", "retype", "alias", "split"]
    reason: Reason | None = None


class EntityRenamed(EntityCorrected):
    """The name to display."""

    name: Name


class EntityRetyped(EntityCorrected):
    """What it is shown as."""

    type: EntityType | None = None
    subtype: Subtype | None = None

    @model_validator(mode="after")
    def _says_something(self) -> EntityRetyped:
        if self.type is None and self.subtype is None:
            raise broken("type", "required, or subtype")
        return self


class AliasDeclared(EntityCorrected):
    """Another name of the same."""

    name: Name
    type: EntityType
    subtype: Subtype | None = None


class EntitySplit(EntityCorrected):
    """Entities that it is not the same as."""

    apart_from: Annotated[
        Different[EntityId], Field(max_length=MAX_SPLIT), AfterValidator(_not_empty)
    ] = Field(alias="from")

    @model_validator(mode="after")
    def _names_others(self) -> EntitySplit:
        if self.entity_id in self.apart_from:
            raise broken("from", "other entities than entity_id")
        return self


_CORRECTIONS: Final[Mapping[Any, type[EntityCorrected]]] = {
    "rename": EntityRenamed,
    "retype": EntityRetyped,
    "alias": AliasDeclared,
    "split": EntitySplit,
}


def _sorted_pair(ids: tuple[str, str]) -> tuple[str, str]:
    if ids[0] == ids[1]:
        raise broken("", "different items")
    return (min(ids), max(ids))


class SameAsPair(Record):
    """Whether two entities are the same; `entity_ids` sorted."""

    entity_ids: Annotated[tuple[EntityId, EntityId], Strict(False), AfterValidator(_sorted_pair)]
    same: bool = True
    confidence: Confidence = WHOLE_CONFIDENCE
    cosine: Cosine | None = None
    method: Literal["exact", "cosine", "model", "person"] = "exact"
    justification: Annotated[str, Text(MAX_JUSTIFICATION_CHARACTERS)] | None = None


class SameAsFound(Record):
    """Decisions about pairs of entities."""

    pairs: Annotated[Items[SameAsPair], Field(max_length=MAX_PAIRS), AfterValidator(_not_empty)]


def same_as_event(
    own_id: str, trigger: Event, position: Position, pairs: Sequence[SameAsPair], chunk: str
) -> Event:
    """The decision that pairs are the same, or are not after all.

    Every field follows from its trigger, so deciding twice is deciding once.

    Args:
        own_id: of the entity that the pairs are of.
        trigger: the event that shows it.
        position: of the trigger.
        pairs: at most MAX_PAIRS.
        chunk: tells it from the other decisions of the same trigger and entity.
    """
    identity = (SAME_AS_FOUND, trigger.tenant, str(position), own_id, chunk)
    return Event(
        tenant=trigger.tenant,
        event_id=derived_event_id(*identity),
        event_type=SAME_AS_FOUND,
        occurred_at_ms=trigger.occurred_at_ms,
        session_id=PARTITION_KEY,
        agent_id=DECIDER,
        trace_id=trigger.trace_id,
        payload=SameAsFound(pairs=tuple(pairs)).payload(),
    )


Statement = FactAsserted | FactRetracted | EntityCorrected | SameAsFound


def parse_statement(event_type: str, payload: Any) -> Statement:
    """The statement of a system event.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.source.name`).
        KeyError: for an event type that states nothing to Stage 2.
    """
    record = _RECORDS[event_type]
    if record is EntityCorrected and isinstance(payload, Mapping):
        correction = payload.get("correction")
        if isinstance(correction, str):
            record = _CORRECTIONS.get(correction, EntityCorrected)
    return parsed(record, payload)


_RECORDS: Final[
    Mapping[str, type[FactAsserted | FactRetracted | EntityCorrected | SameAsFound]]
] = {
    FACT_ASSERTED: FactAsserted,
    FACT_RETRACTED: FactRetracted,
    ENTITY_CORRECTED: EntityCorrected,
    SAME_AS_FOUND: SameAsFound,
}


# -- what readers and operators say ----------------------------------------------------------------

NodeId = Annotated[
    str,
    Matching(
        r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?:entity|summary|community):[0-9a-f]{16,64}",
        "a node id: a UUID in lower case, entity:<hash>, summary:<hash> or community:<hash>",
    ),
]
NodeIds = Annotated[Items[NodeId], Field(max_length=MAX_JUDGED)]


class Feedback(Record):
    """The payload of `memory.feedback`: what a reader says of the nodes of an answer.

    `useful` and `not_useful` name together 1 to MAX_JUDGED different nodes by their ids as they are
    on the wire; `comment` is for people, nothing reads it.
    """

    useful: NodeIds = ()
    not_useful: NodeIds = ()
    comment: Annotated[str, Text(MAX_COMMENT_CHARACTERS)] | None = None

    @model_validator(mode="after")
    def _names_different_nodes(self) -> Feedback:
        nodes = (*self.useful, *self.not_useful)
        if not 1 <= len(nodes) <= MAX_JUDGED:
            raise broken("", f"1 to {MAX_JUDGED} node ids in useful and not_useful")
        if len(set(nodes)) < len(nodes):
            raise broken("", "different node ids in useful and not_useful")
        return self

    @property
    def events(self) -> dict[str, bool]:
        """By event id, whether it was useful."""
        return {node: useful for node, useful in self._judged() if ":" not in node}

    @property
    def entities(self) -> dict[str, bool]:
        """By the hash of the entity id, whether it was useful."""
        return {
            node.removeprefix("entity:"): useful
            for node, useful in self._judged()
            if node.startswith("entity:")
        }

    def _judged(self) -> list[tuple[str, bool]]:
        return [*((node, True) for node in self.useful), *((n, False) for n in self.not_useful)]


def parse_feedback(payload: Any) -> Feedback:
    """What a `memory.feedback` says.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.useful[3]`).
    """
    return parsed(Feedback, payload)


class PassRequest(Record):
    """The payload of `memory.consolidation_requested`: what a pass is to look at.

    `session_id` or `agent_id` names one session or one agent; without either the whole tenant is
    meant, as it is without a payload. `reason` is for people, nothing reads it.
    """

    session_id: Annotated[str, Text(MAX_NAME_CHARACTERS)] | None = None
    agent_id: Annotated[str, Text(MAX_NAME_CHARACTERS)] | None = None
    reason: Annotated[str, Text(MAX_REQUEST_REASON_CHARACTERS)] | None = None

    @model_validator(mode="after")
    def _names_one(self) -> PassRequest:
        if self.session_id is not None and self.agent_id is not None:
            raise broken("agent_id", "not together with session_id")
        return self


class RequestedScope(NamedTuple):
    """What a pass is to look at; with neither the whole tenant."""

    session_id: str | None = None
    agent_id: str | None = None


def parse_request(payload: Any) -> RequestedScope:
    """What is asked for.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.agent_id`).
    """
    request = PassRequest() if payload is None else parsed(PassRequest, payload)
    return RequestedScope(request.session_id, request.agent_id)


# -- what producers may send -----------------------------------------------------------------------


def offered_event(
    raw: Any, *, now_ms: int, tenant: str | None = None, user_id: str | None = None
) -> Event:
    """The event of an envelope that a producer may send.

    The one place of these rules, for the API and for import. A statement that the ledger took in
    and that no stage can apply would be a dead letter, told to an operator days later; refused
    here, it is told to who made the mistake, field by field.

    Args:
        raw: the decoded JSON of the envelope.
        now_ms: the receiver's clock, for the rule on events of the future.
        tenant: the caller's; None: the envelope's own, or the default.
        user_id: the caller's, whose event it becomes; None: the envelope's own, or nobody's.

    Raises:
        InvalidEvent: with every broken rule, each by field; at most MAX_ERRORS of them.
    """
    try:
        event = parse_event(raw, now_ms=now_ms, tenant=tenant)
        if user_id is not None:
            event = _of_user(event, user_id)
        if is_system_event(event.event_type) and event.event_type not in PUBLIC:
            rule = f"of the types under memory. producers may send {', '.join(PUBLIC)}"
            raise InvalidEvent((("event_type", rule),))
    except InvalidEvent as error:
        raise _bounded((*error.errors, *_payload_errors(raw))) from None
    try:
        if event.event_type in WITH_RULES:
            statement = _parse(event.event_type, event.payload)
            if isinstance(statement, FactAsserted):
                stated_fact(event, statement, position_ms=0)
    except InvalidEvent as error:
        raise _bounded(error.errors) from None
    return event


def _of_user(event: Event, user_id: str) -> Event:
    """The event as that of a user, who speaks for nobody else.

    Raises:
        InvalidEvent: it is another user's, or would change what is not this user's alone.
    """
    errors = []
    if event.user_id not in (None, user_id):
        errors.append(("user_id", "the user of the key, or none"))
    if event.event_type in OF_ALL_USERS:
        errors.append(("event_type", f"a key of a user sends none of {', '.join(OF_ALL_USERS)}"))
    if errors:
        raise InvalidEvent(tuple(errors))
    return event._replace(user_id=user_id)


def _parse(event_type: str, payload: Any) -> Statement | Feedback | RequestedScope:
    if event_type == FEEDBACK_EVENT:
        return parse_feedback(payload)
    if event_type == REQUESTED_EVENT:
        return parse_request(payload)
    return parse_statement(event_type, payload)


def _payload_errors(raw: Any) -> tuple[tuple[str, str], ...]:
    """Of a statement in an envelope that is refused anyway, so that one answer names them all."""
    if isinstance(raw, Mapping) and raw.get("event_type") in WITH_RULES:
        try:
            _parse(raw["event_type"], raw.get("payload"))
        except InvalidEvent as error:
            return error.errors
    return ()


def _bounded(errors: tuple[tuple[str, str], ...]) -> InvalidEvent:
    # the payload may be refused as a whole by both
    told = tuple(dict.fromkeys(errors))
    if len(told) > MAX_ERRORS:
        more = len(told) - MAX_ERRORS + 1
        told = (*told[: MAX_ERRORS - 1], ("(more)", f"{more:,} more rules broken"))
    return InvalidEvent(told)


# -- what statements mean --------------------------------------------------------------------------


def stated_fact(event: Event, statement: FactAsserted, *, position_ms: int) -> Assertion:
    """The assertion that a `memory.fact_asserted` event makes.

    Raises:
        InvalidEvent: when `valid_to` is not after `occurred_at`, which stands for `valid_from`.
    """
    begins_ms = statement.valid_from_ms
    if begins_ms is None:
        begins_ms = event.occurred_at_ms
    if statement.valid_to_ms is not None and statement.valid_to_ms <= begins_ms:
        raise InvalidEvent((("payload.valid_to", "after valid_from (default occurred_at)"),))
    source, relation, target = statement.source, statement.relation, statement.target
    status = "confirmed" if statement.source_kind == "user_edit" else "staged"
    return Assertion(
        tenant=event.tenant,
        source=source,
        relation=relation,
        edge_type=statement.edge_type or edge_type_of(relation),
        target=target,
        valid_from_ms=begins_ms,
        valid_to_ms=statement.valid_to_ms,
        confidence=statement.confidence,
        fact=statement.fact or fact_in_words(source, relation, target),
        source_kind=statement.source_kind,
        status=statement.status or status,
        user_id=event.user_id,
        event_id=event.event_id,
        ordinal=0,
        position_ms=position_ms,
        functional=is_functional(relation, statement.functional),
    )


def stated_retraction(event: Event, statement: FactRetracted, *, position_ms: int) -> Retraction:
    """The retraction that a `memory.fact_retracted` event makes."""
    at_ms, target = statement.at_ms, statement.target
    if at_ms is None and statement.asserted_by is None:
        at_ms = event.occurred_at_ms
    return Retraction(
        tenant=event.tenant,
        user_id=event.user_id,
        source_id=party_id(event.tenant, statement.source),
        relation=statement.relation,
        edge_type=statement.edge_type or edge_type_of(statement.relation),
        target_id=None if target is None else party_id(event.tenant, target),
        asserted_by=statement.asserted_by,
        at_ms=at_ms,
        event_id=event.event_id,
        ordinal=0,
        position_ms=position_ms,
    )


def stated_pairs(tenant: str, statement: EntityCorrected | SameAsFound) -> tuple[SameAsPair, ...]:
    """What a statement says of pairs of entities; of two about one pair the later position wins.

    A declared alias is the entity that the other name has of itself; a split keeps pairs apart.
    """
    if isinstance(statement, SameAsFound):
        return statement.pairs
    if isinstance(statement, EntitySplit):
        others, same = statement.apart_from, False
    elif isinstance(statement, AliasDeclared):
        others = (entity_id(tenant, canonical_name(statement.name), statement.type),)
        same = True
    else:
        return ()
    reason = statement.reason or statement.correction
    return tuple(
        SameAsPair(
            entity_ids=(statement.entity_id, other),
            same=same,
            method="person",
            justification=reason[:MAX_JUSTIFICATION_CHARACTERS],
        )
        for other in others
        if other != statement.entity_id
    )
