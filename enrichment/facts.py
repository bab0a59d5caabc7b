"""Facts: what an event says of two entities.

A fact is `source —relation→ target`. A target is an entity or a literal value ("dark mode",
`cancelled`); a value becomes an entity of type concept, subtype `value`, and is never resolved.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple, get_args

import orjson

from enrichment.names import (
    MAX_FACT_CHARACTERS,
    VALUE,
    EntityType,
    Role,
    canonical_name,
    entity_id,
)
from enrichment.vocabulary import EdgeType, relation_words

WHOLE_CONFIDENCE = 10_000
"""Confidence is an integer times 10⁴, so that it may be in the digest."""

SourceKind = Literal["user_edit", "file", "system", "conversation"]
Status = Literal["staged", "confirmed"]
SOURCE_KINDS: Final[tuple[str, ...]] = get_args(SourceKind)
FACT_STATUSES: Final[tuple[str, ...]] = get_args(Status)


class Mention(NamedTuple):
    """A name that an event mentions.

    Attributes:
        name: as written, for display.
        canonical_name: its normalised form, part of the entity's identity.
        entity_type: one of six.
        subtype: finer (person, organization, email, amount …); None when nothing is known.
        role: of the entity in the event.
        exact: the name has a digit or comes from a pattern: the same only as itself, or by a
            declared alias, never by similarity.
    """

    name: str
    canonical_name: str
    entity_type: EntityType
    subtype: str | None
    role: Role
    exact: bool


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
        confirmed_by: the event that says that it came about, when that is another one.
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
    confirmed_by: str | None = None

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
