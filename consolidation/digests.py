"""What summaries are called, and digests that tell whether there is anything to say anew."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import Literal

from consolidation.sources import SourceEvent
from consolidation.summary_payloads import DIGEST_BYTES
from projections.events import canonical_json

Scope = Literal["episode", "session", "agent"]

_SEPARATOR = "\x1f"


def episode_scope_id(session_id: str, trace_id: str, number: int) -> str:
    """What tells an episode from every other of its tenant.

    None of the parts can hold the separator (names have no control characters), so no two
    episodes are joined to the same text.
    """
    return _SEPARATOR.join((session_id, trace_id, str(number)))


def summary_id(tenant: str, scope: Scope, scope_id: str) -> str:
    """BLAKE2b-128 of (tenant, scope, scope id), 32 hexadecimal digits.

    Part of the stored format: it never changes.

    Args:
        tenant: of the events.
        scope: of the summary.
        scope_id: of `episode_scope_id`, a session's or an agent's id.
    """
    text = _SEPARATOR.join(("summary", tenant, scope, scope_id))
    return blake2b(text.encode(), digest_size=DIGEST_BYTES).hexdigest()


def events_digest(events: Iterable[SourceEvent], version: int) -> str:
    """A digest of everything an episode's summary is made from, whatever the order of the events.

    Args:
        events: of one episode.
        version: of the rules that make the summary; other rules have something else to say.

    Returns:
        32 hexadecimal digits.
    """
    rows = [_source(event) for event in sorted(events, key=lambda event: event.event_id)]
    return _digest(["events", version, rows])


def summaries_digest(below: Iterable[tuple[str, str]], version: int) -> str:
    """A digest of what a summary of summaries is made from: pairs of (id, digest), any order."""
    return _digest(["summaries", version, sorted(map(list, below))])


def _source(event: SourceEvent) -> dict[str, object]:
    """An event as a JSON value without floats, whose canonical form is the slow one to write."""
    entities = sorted(
        [one.entity_id, one.role, one.name, one.entity_type, one.subtype or ""]
        for one in event.entities
    )
    causes = sorted(
        [one.event_id, one.rule or "", round(one.confidence * 10_000)] for one in event.causes
    )
    return {**event._asdict(), "entities": entities, "causes": causes}


def _digest(value: object) -> str:
    return blake2b(canonical_json(value), digest_size=DIGEST_BYTES).hexdigest()
