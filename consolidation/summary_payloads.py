"""Summaries as plain JSON values, as a decision in the ledger holds them, and back.

`as_payload` gives an object of strings, whole numbers, lists and objects; `from_payload` reads it
and names what is wrong with it. Times are milliseconds since the epoch. Bounds on counts and
lengths keep the largest one below MAX_SUMMARY_BYTES, and an episode's below MAX_EPISODE_BYTES, so
that its members fit beside it into one event of 128 KiB.

- scope: episode, session or agent.
- session_id, trace_id and number of an episode; session_id and episode_count of a session;
  agent_id and session_count of an agent.
- digest: 32 hexadecimal digits.
- content: at most 1,200 characters of an episode, 2,000 of the others.
- event_count, importance_total, failed_count, started_at_ms, ended_at_ms.
- highlights: kind, text, event_ids (1 to 20), importance (1 to 10), occurred_at_ms, agent_id, tool.
- participants: agent_id, name, events, messages, calls. tools: name, calls, failed.
- entities: entity_id, name, type, weight.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from consolidation.digests import DIGEST_BYTES
from consolidation.episode_acts import NAME_CHARACTERS
from consolidation.highlights import (
    HIGHLIGHT_CHARACTERS,
    KINDS,
    MAX_HIGHLIGHTS,
    MAX_PROOFS,
    Highlight,
)
from consolidation.summaries import (
    CONTENT_CHARACTERS,
    EPISODE_CHARACTERS,
    UPPER_HIGHLIGHTS,
    AgentSummary,
    EpisodeSummary,
    SessionSummary,
)
from consolidation.summary_content import (
    MAX_ENTITIES,
    MAX_PARTICIPANTS,
    MAX_TOOLS,
    Gist,
    KeyEntity,
    Participant,
    ToolUse,
)
from enrichment.payload_fields import MOST_WHOLE, Fields
from enrichment.payloads import ENTITY_TYPES
from projections.errors import InvalidEvent
from projections.events import MAX_NAME_CHARACTERS

MAX_EPISODE_BYTES: Final = 104 * 1024
"""Of an episode's canonical JSON; its members' ids take 20 KiB more."""
MAX_SUMMARY_BYTES: Final = 121 * 1024
"""Of any summary's canonical JSON."""

Summary = EpisodeSummary | SessionSummary | AgentSummary

_DIGEST = re.compile(rf"[0-9a-f]{{{2 * DIGEST_BYTES}}}")
_GIST = (
    "scope digest content highlights participants tools entities event_count importance_total "
    "failed_count started_at_ms ended_at_ms "
)


def as_payload(summary: Summary) -> dict[str, Any]:
    """The summary as a JSON object."""
    gist = summary.gist
    return {
        **_identity(summary),
        "digest": summary.digest,
        "content": gist.content,
        "highlights": [_highlight_payload(one) for one in gist.highlights],
        "participants": [one._asdict() for one in gist.participants],
        "tools": [one._asdict() for one in gist.tools],
        "entities": [
            {
                "entity_id": one.entity_id,
                "name": one.name,
                "type": one.entity_type,
                "weight": one.weight,
            }
            for one in gist.entities
        ],
        "event_count": gist.event_count,
        "importance_total": gist.importance_total,
        "failed_count": gist.failed_count,
        "started_at_ms": gist.started_at_ms,
        "ended_at_ms": gist.ended_at_ms,
    }


def _identity(summary: Summary) -> dict[str, Any]:
    match summary:
        case EpisodeSummary():
            return {
                "scope": "episode",
                "session_id": summary.session_id,
                "trace_id": summary.trace_id,
                "number": summary.number,
            }
        case SessionSummary():
            return {
                "scope": "session",
                "session_id": summary.session_id,
                "episode_count": summary.episode_count,
            }
        case AgentSummary():
            return {
                "scope": "agent",
                "agent_id": summary.agent_id,
                "session_count": summary.session_count,
            }


def _highlight_payload(one: Highlight) -> dict[str, Any]:
    payload = {**one._asdict(), "event_ids": list(one.event_ids)}
    if one.tool is None:
        del payload["tool"]
    return payload


# -- and back --------------------------------------------------------------------------------------


def from_payload(payload: Any, path: str = "payload") -> Summary:
    """The summary that an object holds.

    Args:
        payload: of `as_payload`.
        path: that leads to it, for the names of fields.

    Raises:
        InvalidEvent: with every broken rule, each by field (`payload.highlights[0].kind`).
    """
    errors: list[tuple[str, str]] = []
    fields = Fields.of(payload, path, errors)
    scope = fields.choice("scope", _READERS, required=True) if fields is not None else None
    summary = _READERS[scope](fields) if fields is not None and scope is not None else None
    if errors or summary is None:
        raise InvalidEvent(tuple(errors))
    return summary


def _episode(fields: Fields) -> EpisodeSummary:
    fields.refuse_others(_GIST + "session_id trace_id number")
    return EpisodeSummary(
        _name(fields, "session_id"),
        _name(fields, "trace_id"),
        fields.whole("number"),
        _gist(fields, EPISODE_CHARACTERS, MAX_HIGHLIGHTS),
        _digest(fields),
    )


def _session(fields: Fields) -> SessionSummary:
    fields.refuse_others(_GIST + "session_id episode_count")
    return SessionSummary(
        _name(fields, "session_id"),
        fields.whole("episode_count", 1),
        _gist(fields, CONTENT_CHARACTERS, UPPER_HIGHLIGHTS),
        _digest(fields),
    )


def _agent(fields: Fields) -> AgentSummary:
    fields.refuse_others(_GIST + "agent_id session_count")
    return AgentSummary(
        _name(fields, "agent_id"),
        fields.whole("session_count", 1),
        _gist(fields, CONTENT_CHARACTERS, UPPER_HIGHLIGHTS),
        _digest(fields),
    )


_READERS: Final[Mapping[str, Callable[[Fields], Summary]]] = {
    "episode": _episode,
    "session": _session,
    "agent": _agent,
}


def _gist(fields: Fields, characters: int, most: int) -> Gist:
    started_at_ms, ended_at_ms = _time(fields, "started_at_ms"), _time(fields, "ended_at_ms")
    if ended_at_ms < started_at_ms:
        fields.refuse("ended_at_ms", "not before started_at_ms")
    return Gist(
        fields.text("content", characters, required=True) or "",
        tuple(_highlights(fields, most)),
        tuple(
            Participant(
                _name(one, "agent_id"),
                _short_name(one, "name"),
                *(one.whole(count) for count in ("events", "messages", "calls")),
            )
            for one in _objects(fields, "participants", MAX_PARTICIPANTS, Participant._fields)
        ),
        tuple(
            ToolUse(_short_name(one, "name"), one.whole("calls"), one.whole("failed"))
            for one in _objects(fields, "tools", MAX_TOOLS, ToolUse._fields)
        ),
        tuple(_entities(fields)),
        fields.whole("event_count", 1),
        fields.whole("importance_total"),
        fields.whole("failed_count"),
        started_at_ms,
        ended_at_ms,
    )


def _highlights(fields: Fields, most: int) -> Iterator[Highlight]:
    for one in _objects(fields, "highlights", most, Highlight._fields):
        yield Highlight(
            one.choice("kind", KINDS, required=True) or "",  # type: ignore[arg-type]  # one of KINDS
            one.text("text", HIGHLIGHT_CHARACTERS, required=True) or "",
            tuple(_event_ids(one)),
            one.whole("importance", 1, 10),
            _time(one, "occurred_at_ms"),
            _name(one, "agent_id"),
            _short_name(one, "tool") if one.has("tool") else None,
        )


def _event_ids(fields: Fields) -> Iterator[str]:
    ids = fields.raw.get("event_ids")
    if not isinstance(ids, list) or not 1 <= len(ids) <= MAX_PROOFS:
        fields.refuse("event_ids", f"a list of 1 to {MAX_PROOFS} event ids")
        return
    inner = Fields({str(n): one for n, one in enumerate(ids)}, fields.path, [])
    for place in range(len(ids)):
        found = inner.uuid(str(place))
        if found is None:
            fields.refuse(f"event_ids[{place}]", "a UUID of 36 characters")
        else:
            yield found


def _entities(fields: Fields) -> Iterator[KeyEntity]:
    for one in _objects(fields, "entities", MAX_ENTITIES, ("entity_id", "name", "type", "weight")):
        yield KeyEntity(
            one.entity_id("entity_id") or "",
            _short_name(one, "name"),
            one.choice("type", ENTITY_TYPES, required=True) or "",
            one.whole("weight"),
        )


def _objects(fields: Fields, field: str, most: int, known: tuple[str, ...]) -> Iterator[Fields]:
    for one in fields.objects(field, 0, most):
        one.refuse_others(" ".join(known))
        yield one


def _name(fields: Fields, field: str) -> str:
    return fields.text(field, MAX_NAME_CHARACTERS, required=True) or ""


def _short_name(fields: Fields, field: str) -> str:
    return fields.text(field, NAME_CHARACTERS, required=True) or ""


def _time(fields: Fields, field: str) -> int:
    """Milliseconds since the epoch, or before it."""
    return fields.whole(field, -MOST_WHOLE)


def _digest(fields: Fields) -> str:
    value = fields.raw.get("digest")
    if not isinstance(value, str) or _DIGEST.fullmatch(value) is None:
        fields.refuse("digest", f"{2 * DIGEST_BYTES} hexadecimal digits")
        return ""
    return value
