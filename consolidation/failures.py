"""What failed in a session, as a signature that equal failures share, and what resolved it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from consolidation.sources import SourceEvent
from enrichment.event_kinds import FAILED
from enrichment.patterns import identifiers
from enrichment.words import STOP_WORDS

SIGNATURE_CHARACTERS: Final = 200
MAX_FAILURES: Final = 50
"""Of a session, the first ones; a tool that fails a thousand times fails in few ways."""
PLACEHOLDER: Final = "<value>"

_READ_CHARACTERS = 1_000
_TRACEBACK = re.compile(r"^\s*(?:Traceback \(most recent call last\)|Stack trace)", re.IGNORECASE)
_FRAME = re.compile(r"\s*(?:at |File |in |\.\.\. |\^|~)")
_QUOTED = re.compile(r"(?<!\w)(['\"`])(?!\1)[^\n]{1,200}?\1(?!\w)|“[^”\n]{1,200}”|«[^»\n]{1,200}»")
_NUMBER = re.compile(
    r"(?P<code>(?<![A-Za-z])(?:http|status|code|error|errno|exit)\W{1,3}\d{1,3}(?![\w.,]?\d))"
    r"|(?<![A-Za-z_<])[-+]?\d+(?:[.,:]\d+)*",
    re.IGNORECASE,
)
_LISTED = re.compile(rf"{PLACEHOLDER}(?:[\s,;|/]+{PLACEHOLDER})+")
_BLANKS = re.compile(r"\s+")
_WORD = re.compile(r"[^\W\d_]{2,}|\d+")
_EDGES = " .:;,!-"
_NAMED = "key"
"""Label of identifiers that tell what failed rather than for whom: settings, modules."""


class Failure(NamedTuple):
    """A way in which a tool failed in a session.

    Attributes:
        tool: that failed.
        signature: of what it said; never empty.
        event_id: the first such failure.
        resolution_event_id: the outcome of its retry, when that succeeded.
    """

    tool: str
    signature: str
    event_id: str
    resolution_event_id: str | None = None


@lru_cache(maxsize=8_192)  # a tool says the same again and again, and so is asked for it
def failure_signature(text: str) -> str:
    """What an error text says, without whom and what it says it about.

    The first line, of a traceback the last; quoted values, identifiers and numbers become
    PLACEHOLDER, lists of those one; lower case. Up to three digits after `status`,
    `code`, `error`, `http`, `errno` or `exit` stay: 404 is another failure than 503.

    Returns:
        At most SIGNATURE_CHARACTERS; empty when the text says nothing.
    """
    line = _telling_line(text[:_READ_CHARACTERS])
    line = _QUOTED.sub(PLACEHOLDER, line)
    pieces, last = [], 0
    for span in identifiers(line):
        if span.label != _NAMED:
            pieces += [line[last : span.start], PLACEHOLDER]
            last = span.end
    line = "".join(pieces) + line[last:]
    line = _NUMBER.sub(lambda match: match["code"] or PLACEHOLDER, line)
    line = _LISTED.sub(PLACEHOLDER, line)
    line = _BLANKS.sub(" ", line.lower()).strip(_EDGES)
    return line[:SIGNATURE_CHARACTERS].rstrip(_EDGES) if words_of(line) else ""


def _telling_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    if not lines:
        return ""
    if _TRACEBACK.match(lines[0]):
        messages = [line for line in lines[1:] if not line[0].isspace() and not _FRAME.match(line)]
        return messages[-1] if messages else lines[0]
    return lines[0]


@lru_cache(maxsize=4_096)
def words_of(signature: str) -> frozenset[str]:
    """The words that two signatures are compared by."""
    words = _WORD.findall(signature.replace(PLACEHOLDER, " "))
    return frozenset(word for word in words if word not in STOP_WORDS)


def failures_of(events: Iterable[SourceEvent]) -> tuple[Failure, ...]:
    """The ways in which tools failed in one session, by tool and signature.

    An event failed when its status says so, or when a later call is a retry of it. Of equal
    failures the first, with the first resolution that one of them found.
    """
    ordered = sorted(events, key=lambda event: (event.occurred_at_ms, event.event_id))
    effects = _effects(ordered)
    failures: dict[tuple[str, str], Failure] = {}
    for event in ordered:
        if event.tool_name is None or not (
            event.status in FAILED or _retries(event.event_id, effects)
        ):
            continue
        signature = failure_signature(event.text or event.summary)
        if not signature:
            continue
        resolution = _resolution(event, effects)
        key = (event.tool_name, signature)
        before = failures.get(key)
        if before is None:
            if len(failures) < MAX_FAILURES:
                failures[key] = Failure(*key, event.event_id, resolution)
        elif before.resolution_event_id is None and resolution is not None:
            failures[key] = before._replace(resolution_event_id=resolution)
    return tuple(failures[key] for key in sorted(failures))


class _Effect(NamedTuple):
    """An event that goes back to another, by which rule."""

    event: SourceEvent
    rule: str | None


_Effects = Mapping[str, list[_Effect]]


def _effects(ordered: Iterable[SourceEvent]) -> _Effects:
    effects: dict[str, list[_Effect]] = {}
    for event in ordered:
        for cause in event.causes:
            effects.setdefault(cause.event_id, []).append(_Effect(event, cause.rule))
    return effects


def _retries(event_id: str, effects: _Effects) -> list[SourceEvent]:
    return [effect.event for effect in effects.get(event_id, ()) if effect.rule == "retry"]


def _resolution(failed: SourceEvent, effects: _Effects) -> str | None:
    """The outcome that ended a chain of retries well; None: given up, or nobody knows."""
    seen = {failed.event_id}
    waiting = [failed]
    while waiting:
        for call in _retries(waiting.pop(0).event_id, effects):
            if call.event_id in seen:
                continue
            seen.add(call.event_id)
            for outcome in _outcomes(call, effects):
                if outcome.status not in FAILED and not _retries(outcome.event_id, effects):
                    return outcome.event_id
                waiting.append(outcome)
    return None


def _outcomes(call: SourceEvent, effects: _Effects) -> list[SourceEvent]:
    """What a call returned, by rule or as the producer named its parent; else its own status."""
    results = [
        effect.event
        for effect in effects.get(call.event_id, ())
        if effect.event.tool_name == call.tool_name
        and (effect.rule == "tool_result" or (effect.rule is None and _ended(effect.event)))
    ]
    return results or ([call] if _ended(call) else [])


def _ended(event: SourceEvent) -> bool:
    return event.status == "completed" or event.status in FAILED
