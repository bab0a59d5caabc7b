"""What is derived from one event alone, before anything is asked of the graph."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

FOLD_VERSION: Final = 2
"""Of Stage 2; rises when its rules change what the graph holds."""

EntityType = Literal["agent", "tool", "user", "service", "resource", "concept"]
Role = Literal["subject", "object", "tool", "target", "participant"]
TextKind = Literal["message", "call", "result", "error", "text", "json", "none"]


class EventText(NamedTuple):
    """The text of an event.

    Attributes:
        kind: which rule made it.
        text: what was said, asked for or returned, bounded; empty for an event without content.
        speaker: who or what it comes from (role, agent or tool), kept apart from what was said.
    """

    kind: TextKind
    text: str
    speaker: str | None = None


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
