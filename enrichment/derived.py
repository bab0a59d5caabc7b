"""What one event says by itself, and as bytes what the rules found in it.

The bytes lack what the event says itself. They are JSON, read back strictly: anything that `encode`
would not have written is a ValueError. Vectors are kept by what they are of, so they are not in it,
nor is what a language model adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import orjson
from pydantic import ConfigDict, TypeAdapter

from enrichment.event_kinds import EventKind
from enrichment.facts import Assertion, Mention, Party, Retraction
from enrichment.features import Features
from enrichment.names import EntityType, Role
from enrichment.payloads import Statement
from enrichment.ports import EventText
from enrichment.vocabulary import EdgeType
from enrichment.writes import Claim
from projections.events import Event
from projections.identity import Position


class Derived(NamedTuple):
    """What one event says, before anything is asked of the graph.

    Attributes:
        embedding: of the text; None when there is no text or the model failed.
        names: vectors of the names whose entities may be the same as others, by entity id.
        by_user: it is a message of its user.
        statement: of a system event of this stage; all else is empty then.
    """

    position: Position
    event: Event
    text: EventText
    keywords: tuple[str, ...] = ()
    summary: str = ""
    importance: int = 0
    embedding: bytes | None = None
    model: str | None = None
    mentions: tuple[Mention, ...] = ()
    names: Mapping[str, bytes] = {}
    assertions: tuple[Assertion, ...] = ()
    retractions: tuple[Retraction, ...] = ()
    by_user: bool = False
    features: Features | None = None
    statement: Statement | None = None


_Texts = tuple[str, ...]
_Text = tuple[EventKind, str, str | None, bool]
_Mention = tuple[str, str, EntityType, str | None, Role, bool]
_Party = tuple[str, str, EntityType, str | None, bool]
# relation … status, and whether it is functional; the rest is the event's
_Said = tuple[_Party, str, EdgeType, _Party, int, int | None, int, str, str, str, bool]
_Values = frozenset[str]
_Claim = tuple[_Party, str, _Party, bool, str | None]
# failed … arguments, those as hexadecimal digits; claims, and whether they are confirmed
_Found = tuple[
    bool, _Texts, str | None, _Values, _Values, _Values, _Values, tuple[_Claim, ...], bool
]
_KEPT: TypeAdapter[
    tuple[_Text, _Texts, str, int, tuple[_Mention, ...], tuple[_Said, ...], _Found, bool]
] = TypeAdapter(
    tuple[_Text, _Texts, str, int, tuple[_Mention, ...], tuple[_Said, ...], _Found, bool],
    config=ConfigDict(strict=True),
)


def encode(derived: Derived) -> bytes:
    """What `derive_event` found, without vectors; 0.5 to 5 kB.

    Args:
        derived: of no statement, with features.
    """
    features = derived.features
    if features is None or derived.statement is not None:
        raise ValueError("no derivation of an event")
    return orjson.dumps(
        (
            (derived.text.kind.value, *derived.text[1:]),
            derived.keywords,
            derived.summary,
            derived.importance,
            [tuple(mention) for mention in derived.mentions],
            [
                (
                    *(
                        tuple(assertion.source),
                        assertion.relation,
                        assertion.edge_type,
                        tuple(assertion.target),
                    ),
                    *(
                        assertion.valid_from_ms,
                        assertion.valid_to_ms,
                        assertion.confidence,
                        assertion.fact,
                    ),
                    *(assertion.source_kind, assertion.status, assertion.functional),
                )
                for assertion in derived.assertions
            ],
            (
                *(features.failed, features.call_ids, features.recipient),
                *map(sorted, (features.produced, features.stated, features.consumed)),
                sorted(digest.hex() for digest in features.arguments),
                [
                    (tuple(c.source), c.relation, tuple(c.target), c.functional, c.call_id)
                    for c in features.claims
                ],
                features.confirmed,
            ),
            derived.by_user,
        )
    )


def decode(data: bytes, position: Position, event: Event) -> Derived:
    """The derivation of an event, as `derive_event` gave it, without vectors.

    Args:
        data: of `encode`.
        position: where the ledger keeps the event.
        event: the one that it was derived from.

    Raises:
        ValueError: it is no derivation.
    """
    text, keywords, summary, importance, mentions, facts, values, by_user = _KEPT.validate_json(
        data
    )
    return Derived(
        position=position,
        event=event,
        text=EventText._make(text),
        keywords=keywords,
        summary=summary,
        importance=importance,
        mentions=tuple(map(Mention._make, mentions)),
        assertions=tuple(
            Assertion(
                tenant=event.tenant,
                source=Party._make(one[0]),
                relation=one[1],
                edge_type=one[2],
                target=Party._make(one[3]),
                valid_from_ms=one[4],
                valid_to_ms=one[5],
                confidence=one[6],
                fact=one[7],
                source_kind=one[8],
                status=one[9],
                user_id=event.user_id,
                event_id=event.event_id,
                ordinal=ordinal,
                position_ms=position.ms,
                functional=one[10],
            )
            for ordinal, one in enumerate(facts)
        ),
        by_user=by_user,
        features=Features(
            event_id=event.event_id,
            occurred_at_ms=event.occurred_at_ms,
            kind=text[0],
            agent_id=event.agent_id,
            trace_id=event.trace_id,
            parent_event_id=event.parent_event_id,
            tool_name=event.tool,
            failed=values[0],
            call_ids=values[1],
            recipient=values[2],
            produced=values[3],
            stated=values[4],
            consumed=values[5],
            arguments=frozenset(map(bytes.fromhex, values[6])),
            user_id=event.user_id,
            claims=tuple(
                Claim(Party._make(one[0]), one[1], Party._make(one[2]), *one[3:])
                for one in values[7]
            ),
            confirmed=values[8],
            position_ms=position.ms,
        ),
    )
