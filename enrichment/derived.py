"""What is derived from one event alone, before anything is asked of the graph."""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from enrichment.event_kinds import TOOL_USE, EventKind

FOLD_VERSION: Final = 3
"""Of Stage 2; rises when its rules change what the graph holds."""

EntityType = Literal["agent", "tool", "user", "service", "resource", "concept"]
Role = Literal["subject", "object", "tool", "target", "participant"]


class EventText(NamedTuple):
    """The text of an event.

    Attributes:
        kind: of the event.
        text: what was said, asked for or returned, bounded; empty for an event without content.
        speaker: who or what it comes from (role, agent or tool), kept apart from what was said.
        only_fields: of another kind than TOOL_USE, that nothing in the payload is language.
    """

    kind: EventKind
    text: str
    speaker: str | None = None
    only_fields: bool = False

    @property
    def structured(self) -> bool:
        """Whether it is lines of fields rather than language."""
        return self.only_fields or self.kind in TOOL_USE

    @property
    def spoken(self) -> bool:
        """Whether it is language."""
        return bool(self.text) and not self.structured


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
