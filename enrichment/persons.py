"""One person, one entity: who a name or an address belongs to, as events show it.

A person is met under several names: the `user_id` of the envelope, the agent who speaks for them,
the full name and the e-mail address of their record. One of these *belongs* to a user

- `speaks_for_user`: the agent speaks as the user (a message of the role user) in events of that
  `user_id`;
- `record_of_user`: a record, or a write, of the event's own user says that it is their name (two
  words at least) or e-mail address;

as long as it is one user's only. Belonging is decided once and recorded as `memory.same_as`; when
the same name turns out to be a second user's, what was decided so is taken back and never decided
again (two people of one name, a kiosk that many use). What a person decided, or a correction split,
stays as it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from enrichment.event_kinds import EventKind, parsed_json, type_words
from enrichment.facts import Assertion, Party, fact_in_words, literal, named, party_id
from enrichment.names import canonical_name
from enrichment.patterns import identifiers
from enrichment.payloads import (
    MAX_PAIRS,
    SameAsPair,
    same_as_event,
)
from enrichment.ports import EventText
from enrichment.vocabulary import USERS, VOICELESS, edge_type_of, is_functional
from projections.events import Event
from projections.identity import Position

Rule = Literal["speaks_for_user", "record_of_user"]
RULES: Final[tuple[str, ...]] = ("speaks_for_user", "record_of_user")
_CONFIDENCE = 9_000
USER_ROLES = ("user", "human", "customer")
_PLAIN = frozenset((*USERS, *VOICELESS))

EntityKey = tuple[str, str]


class Belonging(NamedTuple):
    """That an event shows a name to be its user's; entities by (tenant, id)."""

    name: EntityKey
    user: EntityKey
    rule: Rule
    event: Event
    position: Position


class Bond(NamedTuple):
    """A SAME_AS of the graph between a name and a user; `rule` is its justification."""

    user: EntityKey
    holds: bool
    rule: str


def speaks_as_user(event: Event, kind: EventKind, content: Any = None) -> bool:
    """Whether an event is a message of its user: by the role, else by the type's words."""
    if event.user_id is None or kind is not EventKind.MESSAGE:
        return False
    payload = parsed_json(event.payload if content is None else content)
    role = payload.get("role") if isinstance(payload, Mapping) else None
    if isinstance(role, str):
        return role.lower() in USER_ROLES
    return not type_words(event.event_type).isdisjoint(USER_ROLES)


def speaker_of(event: Event, text: EventText) -> Party | None:
    """The user whose own words a text is; None: nobody's, or what somebody else says."""
    says = text.kind is EventKind.MESSAGE and text.spoken and speaks_as_user(event, text.kind)
    return named(str(event.user_id), "user", exact=True) if says else None


def spoken_fact(
    event: Event,
    source: Party,
    relation: str,
    target: Party,
    *,
    position_ms: int,
    confidence: int,
    functional: bool,
    ordinal: int = 0,
) -> Assertion:
    """A fact that a message states.

    Args:
        event: that states it.
        source: whose it is.
        relation: of the fact.
        target: of the fact.
        position_ms: when the ledger took the event in.
        confidence: that it was meant so, of 10,000.
        functional: a newer one ends it.
        ordinal: of the fact among those of its rule and event.
    """
    return Assertion(
        tenant=event.tenant,
        source=source,
        relation=relation,
        edge_type=edge_type_of(relation),
        target=target,
        valid_from_ms=event.occurred_at_ms,
        valid_to_ms=None,
        confidence=confidence,
        fact=fact_in_words(source, relation, target),
        source_kind="conversation",
        status="staged",
        user_id=event.user_id,
        event_id=event.event_id,
        ordinal=ordinal,
        position_ms=position_ms,
        functional=functional,
    )


def belongings(
    event: Event, position: Position, *, spoken: bool, assertions: Iterable[Assertion]
) -> list[Belonging]:
    """What an event shows to be its user's.

    Args:
        event: any event.
        position: where the ledger keeps it.
        spoken: its agent speaks as the user.
        assertions: facts that came about by it.
    """
    user = named(event.user_id, "user", exact=True) if event.user_id else None
    if user is None:
        return []
    shown: dict[tuple[EntityKey, Rule], None] = {}
    for party, rule in _names_of(event, user, spoken, assertions):
        if party.canonical_name != user.canonical_name:
            shown[(event.tenant, party_id(event.tenant, party)), rule] = None
    key = (event.tenant, party_id(event.tenant, user))
    return [
        Belonging(name=name, user=key, rule=rule, event=event, position=position)
        for name, rule in shown
    ]


def _names_of(
    event: Event, user: Party, spoken: bool, assertions: Iterable[Assertion]
) -> Iterator[tuple[Party, Rule]]:
    if spoken and canonical_name(event.agent_id) not in _PLAIN:
        agent = named(event.agent_id, "agent")
        if agent is not None:
            yield agent, "speaks_for_user"
    for fact in assertions:
        same = fact.source.canonical_name == user.canonical_name
        if not same or fact.source.entity_type != "user":
            continue
        name = fact.target.name
        if fact.relation == "has_email" and "@" in name and " " not in name:
            party = named(name, "resource", "email", exact=True)
        elif fact.relation == "has_name" and " " in name.strip():
            party = named(name, "concept", "person")
        else:
            continue
        if party is not None:
            yield party, "record_of_user"


def persons_decided(
    shown: Sequence[Belonging], bonds: Mapping[EntityKey, Sequence[Bond]]
) -> list[Event]:
    """The `memory.same_as` events that the belongings of a batch come to.

    Args:
        shown: of the batch.
        bonds: of each name, the users that the graph joins it with, or has parted it from.
    """
    by_name: dict[EntityKey, list[Belonging]] = {}
    for belonging in shown:
        by_name.setdefault(belonging.name, []).append(belonging)
    decided = []
    for name in sorted(by_name):
        several = sorted(by_name[name], key=lambda belonging: belonging.position)
        pairs = _pairs(name, several, bonds.get(name, ()))
        if pairs:
            decided.append(
                same_as_event(name[1], several[0].event, several[0].position, pairs, chunk="person")
            )
    return decided


def _pairs(name: EntityKey, shown: Sequence[Belonging], bonds: Sequence[Bond]) -> list[SameAsPair]:
    before = {bond.user: bond for bond in bonds}
    new = {one.user: one.rule for one in shown if one.user not in before}
    theirs = [bond for bond in bonds if bond.holds or bond.rule in RULES]
    # Two partitions that decide at once each know one user: whoever reads both takes them back.
    if not new and len(theirs) < 2:
        return []
    if len(before) + len(new) == 1:
        user, rule = next(iter(new.items()))
        return [_pair(name, user, rule, same=True)]
    undone = [b for b in bonds if b.holds and b.rule in RULES]
    pairs = [_pair(name, bond.user, bond.rule, same=False) for bond in undone]
    if not before:  # it is remembered that they are several
        pairs += [_pair(name, user, rule, same=False) for user, rule in sorted(new.items())[:2]]
    return pairs[:MAX_PAIRS]


def _pair(name: EntityKey, user: EntityKey, rule: str, *, same: bool) -> SameAsPair:
    ids = (min(name[1], user[1]), max(name[1], user[1]))
    return SameAsPair(
        entity_ids=ids, same=same, confidence=_CONFIDENCE, method="exact", justification=rule
    )


# What a user puts right of how they are reached: "no, it is ada@example.com". A message that takes
# something back, or says that it was mistyped, and gives one address or number by which people are
# reached gives the user's own: that is what was asked for, or was read wrongly. Precision is worth
# more than recall: without both there is no fact.
CORRECTED_CONFIDENCE: Final = 8_000
_REACHED_BY: Final = {"email": "has_email", "phone": "has_phone"}
_WRONG: Final = re.compile(
    r"\b(?:no|nope|wrong|incorrect|typo|mistyped|misspell(?:ed|t)|mistake|not right|correction"
    r"|i meant|outdated|old one)\b",
    re.IGNORECASE,
)
_IT_IS: Final = re.compile(
    r"\b(?:it(?:'s|\u2019s| is| should be| must be| ought to be| reads)"
    r"|(?:that|this|mine|the (?:right|correct|new|current) one)(?:'s|\u2019s| is| should be)"
    r"|i meant|i mean|correct is|right is|(?:e-?mail|address|number) is)\s+$",
    re.IGNORECASE,
)


def corrected_facts(event: Event, text: EventText, *, position_ms: int) -> list[Assertion]:
    """By what the user says that they are reached instead.

    Args:
        event: that says it.
        text: of the event.
        position_ms: when the ledger took the event in.
    """
    user = speaker_of(event, text)
    if user is None or "?" in text.text or _WRONG.search(text.text) is None:
        return []
    spans = [span for span in identifiers(text.text) if span.label in _REACHED_BY]
    if len(spans) != 1 or _IT_IS.search(text.text[: spans[0].start]) is None:
        return []
    relation = _REACHED_BY[spans[0].label]
    target = literal(text.text[spans[0].start : spans[0].end])
    if target is None:
        return []
    return [
        spoken_fact(
            event,
            user,
            relation,
            target,
            position_ms=position_ms,
            confidence=CORRECTED_CONFIDENCE,
            functional=is_functional(relation),
        )
    ]
