"""The payload of `memory.feedback`: what a reader says of the nodes of an answer.

`useful` and `not_useful` are lists of node ids as they are on the wire, together 1 to MAX_JUDGED
different ones; `comment` is for people, nothing reads it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from enrichment.payload_fields import Fields
from projections.errors import InvalidEvent

FEEDBACK_EVENT: Final = "memory.feedback"
MAX_JUDGED: Final = 100
"""Nodes that one feedback names."""
MAX_COMMENT_CHARACTERS: Final = 1_000

_NODE_ID = re.compile(
    r"(?P<event>[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})"
    r"|entity:(?P<entity>[0-9a-f]{16,64})|(?:summary|community):[0-9a-f]{16,64}"
)
_RULE = "a node id: a UUID in lower case, entity:<hash>, summary:<hash> or community:<hash>"

Judged = Mapping[str, bool]
NOBODY: Final[Judged] = MappingProxyType({})


class Feedback(NamedTuple):
    """What a reader says of nodes: whether each was useful.

    Attributes:
        events: by event id.
        entities: by the hash of the entity id.
    """

    events: Judged = NOBODY
    entities: Judged = NOBODY


def feedback_payload(
    useful: Iterable[str] = (), not_useful: Iterable[str] = (), comment: str | None = None
) -> dict[str, Any]:
    """The payload; ids as on the wire."""
    payload: dict[str, Any] = {"useful": list(useful), "not_useful": list(not_useful)}
    return payload if comment is None else {**payload, "comment": comment}


def parse_feedback(payload: Any) -> Feedback:
    """What a `memory.feedback` says; summaries and communities are left out.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.useful[3]`).
    """
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, "payload", errors)
    if fields is None:
        raise InvalidEvent(tuple(errors))
    fields.refuse_others("useful not_useful comment")
    fields.text("comment", MAX_COMMENT_CHARACTERS)
    useful, useless = _nodes(fields, "useful"), _nodes(fields, "not_useful")
    named = [match[0] for match in (*useful, *useless)]
    if not errors and not 1 <= len(named) <= MAX_JUDGED:
        errors.append(("payload", f"1 to {MAX_JUDGED} node ids in useful and not_useful"))
    if len(set(named)) < len(named):
        errors.append(("payload", "different node ids in useful and not_useful"))
    if errors:
        raise InvalidEvent(tuple(errors))
    judged = [*((match, True) for match in useful), *((match, False) for match in useless)]
    return Feedback(
        {match["event"]: good for match, good in judged if match["event"]},
        {match["entity"]: good for match, good in judged if match["entity"]},
    )


def _nodes(fields: Fields, field: str) -> list[re.Match[str]]:
    value = fields.raw.get(field)
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MAX_JUDGED:
        fields.refuse(field, f"a list of at most {MAX_JUDGED} node ids")
        return []
    found = []
    for place, one in enumerate(value):
        match = _NODE_ID.fullmatch(one) if isinstance(one, str) else None
        if match is None:
            fields.refuse(f"{field}[{place}]", _RULE)
        else:
            found.append(match)
    return found
