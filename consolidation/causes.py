"""Causes in other sessions: what was changed, that a failure names.

Whoever meets a failure is seldom who caused it: a setting was switched in a session of somebody
else, days before. Nothing joins the two but a name: the change says what it replaced, set or took
away, and the failure says the same. So a change that names what a failure names, stands before it.

- A **change** is an event whose type says that something was changed (`config.changed`), or a call
  of a tool whose name says so (`set_carrier`), that did not fail. To make something new is none.
- Its **names** are the values that it gives, and the last part of a dotted key, as far as they are
  distinctive: not a plain word, not a small number, a date or an amount, at least MIN_CHARACTERS.
  A code, `DMA-74.9`, is one wherever it stands among the parts (`prv.night_sp.DMA-74.9`).
  A proper name is one where it is all that a changed setting had or has (`from: SkyBistro`).
- A failure names what it **says**. A code of a setting that the failed call was **given** counts,
  too, but less: the call was about it, and need not have failed because of it; nor did it, if it
  went through with it when it was tried again.
- The rarer a name is, the more it tells: what many sessions mention (the repository, the customer)
  names nothing.
- Only what happened at most MAX_DAYS before, and of several changes the most certain one alone.

The finding is recorded as a link of the failure's session (`links`), so it is seen by those who may
see both sessions, and is verified and rebuilt as every link is.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from math import exp
from typing import Final, NamedTuple

from consolidation.actions import answered_call, is_tool_result, solved
from consolidation.sources import SourceEvent
from enrichment.act_names import first_word
from enrichment.event_kinds import EventKind, is_failed
from enrichment.vocabulary import word_set

MAX_DAYS: Final = 30
"""Between a change and the failure that it explains."""
MIN_CHARACTERS: Final = 4
"""Of a name; shorter ones coincide."""
MAX_NAME: Final = 120
MAX_NAMES: Final = 40
"""Of one change, the first ones."""
MAX_CHANGES: Final = 100
"""Of one session, and failures likewise, the last ones."""
FAILURE_CHARACTERS: Final = 1_000
"""Of a failure's text, and of what its call was given."""
TYPE_CONFIDENCE: Final = 0.9
"""Of an event that says by its type that something changed."""
CALL_CONFIDENCE: Final = 0.8
"""Of a call of a tool that changes something by its name."""
TRACE_CONFIDENCE: Final = 0.97
"""Of either, in the trace of the failure."""
GIVEN_SHARE: Final = 0.85
"""Of the confidence, where a name is only among what the failed call was given."""
LEAST_CONFIDENCE: Final = 0.6
FEW_SESSIONS: Final = 5
"""That mention a name, up to which it counts in full."""
DECAY_DAYS: Final = 60.0
"""Days after which the confidence is e times less."""

CHANGED_WORDS: Final = word_set(
    "changed updated replaced rotated switched enabled disabled removed deleted revoked migrated "
    "upgraded downgraded deployed released renamed moved configured merged dropped"
)
"""In the type of an event."""
CHANGING_VERBS: Final = word_set(
    "set update change replace rotate swap switch enable disable remove delete revoke migrate "
    "upgrade downgrade deploy release rename move configure merge edit patch modify drop amend "
    "adjust alter reset repoint overwrite override restore revert resize rewrite"
)
"""First in the name of a tool, or in the part of it behind a dot, or last."""

_STATES: Final = word_set(
    "active inactive enabled disabled enable disable pending running stopped started paused open "
    "opened closed locked unlocked approved rejected valid invalid expired draft live true false "
    "none null default standard normal basic custom unknown other manual automatic always never "
    "high medium low full partial public private internal external global local primary secondary "
    "daily weekly monthly yearly hourly monday tuesday wednesday thursday friday saturday sunday"
)
"""Values that say no name, although they may be written with a capital letter."""

_DAY_MS = 86_400_000
_TELLING_DIGITS = 6
_TYPE_WORD = re.compile(r"[a-z0-9]+")
_NAME_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_TOKEN = re.compile(r"[A-Za-z0-9@](?:[\w.@/:+-]{0,118}[A-Za-z0-9])?")
_QUANTITY = re.compile(
    r"[+-]?[$€£]?\d[\d.,:/-]*\s?[A-Za-z%€$£]{0,7}|\d{4}-\d\d-\d\d[T ]?[\d:.]*Z?", re.ASCII
)
_JOINED = re.compile(r"[A-Za-z0-9][-_.@/:][A-Za-z0-9]")
_PROPER = re.compile(r"[A-Z][\w'-]+(?: [A-Z0-9][\w'-]*)+")
_PROPER_WORD = re.compile(r"[A-Z][a-z]{3,}")
_CAMEL = re.compile(r"[A-Z][a-z]+[A-Z][A-Za-z]+")
_PART = re.compile(r"[^./:+]+(?:\.\d+(?![^./:+]))*")
"""Of a dotted or slashed name; a number behind a dot goes on: `DMA-74.9`."""
_CODE_PART = re.compile(r"(?=.*[A-Za-z])(?=.*\d)(?:.*[A-Z]|.*[A-Za-z0-9][-_][A-Za-z0-9])")
_CODE = re.compile(r"[A-Z]+(?:-[A-Z]+)+")


class Change(NamedTuple):
    """Something was changed.

    Attributes:
        event_id: of the event that says so.
        occurred_at_ms: when.
        trace_id: of the event; empty: not known.
        names: what it names, folded, by how it spells them.
        confidence: with which it is a change.
    """

    event_id: str
    occurred_at_ms: int
    trace_id: str
    names: tuple[tuple[str, str], ...]
    confidence: float


class Failing(NamedTuple):
    """An event that tells of a failure.

    Attributes:
        event_id: of the event.
        occurred_at_ms: when.
        trace_id: of the event; empty: not known.
        text: what it says, folded.
        given: what the call that failed was given, folded; empty: it is of no call, that is not
            known, or it went through when it was tried again.
    """

    event_id: str
    occurred_at_ms: int
    trace_id: str
    text: str
    given: str = ""


class FoundCause(NamedTuple):
    """A change that a failure goes back to.

    Attributes:
        effect_event_id: of the failure.
        cause_event_id: of the change.
        occurred_at_ms: of the change.
        names: that both have, as the change spells them.
        confidence: 0 to 1, a multiple of 0.0001.
    """

    effect_event_id: str
    cause_event_id: str
    occurred_at_ms: int
    names: tuple[str, ...]
    confidence: float


def says_changed(event_type: str) -> bool:
    """Whether an event's type says that something was changed."""
    return not CHANGED_WORDS.isdisjoint(_TYPE_WORD.findall(event_type))


def changes_by_name(tool_name: str | None) -> bool:
    """Whether a tool changes something, by its name."""
    words = [word.lower() for word in _NAME_WORD.findall(tool_name or "")]
    telling = {*words[:1], *words[-1:], first_word(tool_name or "")}
    return not CHANGING_VERBS.isdisjoint(telling)


def may_change(event: SourceEvent) -> float:
    """With which confidence an event is a change; 0: it is none."""
    if is_failed(event.kind, event.status):
        return 0.0
    if event.kind is EventKind.CALL:
        return CALL_CONFIDENCE if changes_by_name(event.tool_name) else 0.0
    of_tool = event.tool_name is not None
    if event.kind is EventKind.OTHER and not of_tool and says_changed(event.event_type):
        return TYPE_CONFIDENCE
    return 0.0


def changes_of(events: Iterable[SourceEvent]) -> tuple[Change, ...]:
    """The changes that a session tells of, by time; those that name nothing are left out."""
    changes = []
    for event in events:
        confidence = may_change(event)
        text = event.text or event.summary
        names = names_in(text) if confidence else ()
        if confidence == TYPE_CONFIDENCE:
            names = (*names, *_proper_values(text))[:MAX_NAMES]
        if event.kind is EventKind.CALL:
            names = tuple(name for name in names if not _may_be_a_place(name[1]))
        if names:
            changes.append(
                Change(
                    event_id=event.event_id,
                    occurred_at_ms=event.occurred_at_ms,
                    trace_id=event.trace_id,
                    names=names,
                    confidence=confidence,
                )
            )
    return tuple(changes[-MAX_CHANGES:])


def failing_of(events: Iterable[SourceEvent]) -> tuple[Failing, ...]:
    """The failures that a session tells of, by time; those that say nothing are left out.

    Args:
        events: of the session, a failure with the call that it is the outcome of.
    """
    events = list(events)
    given = _given_to(events)
    failing = (
        Failing(
            event_id=event.event_id,
            occurred_at_ms=event.occurred_at_ms,
            trace_id=event.trace_id,
            text=_said_by(event),
            given=given.get(event.event_id, ""),
        )
        for event in events
        if is_failed(event.kind, event.status) and (event.text or event.summary)
    )
    return tuple(failing)[-MAX_CHANGES:]


def _given_to(events: Sequence[SourceEvent]) -> dict[str, str]:
    """What calls were given, folded, by the failure that came of them.

    Nothing of a call that went through when it was tried again: what it was about was no obstacle.
    """
    by_id = {event.event_id: event for event in events}
    calls = {
        event.event_id: call for event in events if (call := failed_call(event, by_id)) is not None
    }
    went_through = solved(events) if calls else ()
    return {
        event_id: _said_by(call) for event_id, call in calls.items() if event_id not in went_through
    }


def failed_call(event: SourceEvent, by_id: Mapping[str, SourceEvent]) -> SourceEvent | None:
    """The call whose outcome an event is that tells of a failure; of any other None.

    Args:
        event: of any kind.
        by_id: the events of its session.
    """
    if not is_failed(event.kind, event.status) or not is_tool_result(event):
        return None
    return answered_call(event, by_id)


def _said_by(event: SourceEvent) -> str:
    return folded((event.text or event.summary)[:FAILURE_CHARACTERS])


def _may_be_a_place(name: str) -> bool:
    """Whether a name may say where a call changed something, not what: `billing-service`.

    A code in capital letters, `R-OUT`, is what.
    """
    if "-" not in name or _CODE.fullmatch(name):
        return False
    return not any(letter.isdigit() for letter in name)


def names_in(text: str) -> tuple[tuple[str, str], ...]:
    """What a change names: its distinctive values, folded and as it spells them, in their order."""
    names: dict[str, str] = {}
    for _, value in _lines_of(text):
        for name in _distinctive(value.strip()):
            names.setdefault(folded(name), name)
    return tuple(names.items())[:MAX_NAMES]


def _lines_of(text: str) -> Iterator[tuple[bool, str]]:
    """Of each line whether it is a field, `name: value`, and the value, or else the line."""
    for line in text.split("\n"):
        _, colon, value = line.partition(": ")
        yield bool(colon), value if colon else line


def _proper_values(text: str) -> Iterator[tuple[str, str]]:
    """What a setting had or has that is called by one proper name, folded and as it is spelled."""
    for is_field, value in _lines_of(text):
        if is_field and _PROPER_WORD.fullmatch(value) and folded(value) not in _STATES:
            yield folded(value), value


def _distinctive(value: str) -> Iterator[str]:
    """A value as a whole, its tokens, the last part of a dotted one, and codes among the parts."""
    if _PROPER.fullmatch(value) and len(value) <= MAX_NAME:
        yield value
    for match in _TOKEN.finditer(value):
        token = match[0]
        for name in (token, token.rpartition(".")[2]):
            if _is_name(name, alone=name == value or name != token):
                yield name
        yield from _codes_in(token)


def _codes_in(token: str) -> Iterator[str]:
    """The codes among the parts of a dotted or slashed name: `DMA-74.9` of `prv.sp.DMA-74.9`.

    Without a digit, a part that is not the last one says where something is kept (`zone-north`),
    without a hyphen or a capital letter it is a word with a number (`oauth2`).
    """
    if "@" in token:
        return
    for match in _PART.finditer(token):
        if match[0] != token and _CODE_PART.search(match[0]) and _is_name(match[0], alone=True):
            yield match[0]


def _is_name(name: str, *, alone: bool) -> bool:
    """Whether nothing else is called so, by its form.

    Args:
        name: of one word.
        alone: it is all that a value says; in a sentence a word with a hyphen may be any word.
    """
    if not MIN_CHARACTERS <= len(name) <= MAX_NAME:
        return False
    if name.isdecimal():
        return len(name) >= _TELLING_DIGITS
    if _QUANTITY.fullmatch(name):
        return False
    digits = any(letter.isdigit() for letter in name)
    if not any(letter.isalpha() for letter in name):
        return False
    if digits or (alone and _CAMEL.fullmatch(name)):
        return True
    return _JOINED.search(name) is not None and (alone or "-" not in name)


def cause_of(
    failing: Iterable[Failing], changes: Collection[Change], rarity: Mapping[str, float]
) -> FoundCause | None:
    """The change in one other session that a failure of one session most likely goes back to.

    Args:
        failing: failures of the session.
        changes: of the other.
        rarity: how much a name counts, 0 to 1, by the name, folded; of others it is 1.
    """
    causes = [
        cause
        for failure in failing
        for change in changes
        if (cause := _caused(failure, change, rarity)) is not None
    ]
    return min(causes, key=_rank, default=None)


def _rank(cause: FoundCause) -> tuple[float, int, str, str]:
    """The most certain first, then the latest change, then the first failure."""
    return -cause.confidence, -cause.occurred_at_ms, cause.effect_event_id, cause.cause_event_id


def _caused(failure: Failing, change: Change, rarity: Mapping[str, float]) -> FoundCause | None:
    age_ms = failure.occurred_at_ms - change.occurred_at_ms
    if not 0 < age_ms <= MAX_DAYS * _DAY_MS:
        return None
    shared = {
        spelled: weight
        for name, spelled in change.names
        if (weight := rarity.get(name, 1.0) * _named_share(failure, change, spelled))
    }
    if not shared:
        return None
    same_trace = bool(failure.trace_id) and failure.trace_id == change.trace_id
    base = TRACE_CONFIDENCE if same_trace else change.confidence
    decay = exp(-age_ms / _DAY_MS / DECAY_DAYS)
    confidence = round(base * max(shared.values()) * decay, 4)
    if confidence < LEAST_CONFIDENCE:
        return None
    return FoundCause(
        effect_event_id=failure.event_id,
        cause_event_id=change.event_id,
        occurred_at_ms=change.occurred_at_ms,
        names=tuple(shared),
        confidence=confidence,
    )


def _named_share(failure: Failing, change: Change, spelled: str) -> float:
    """How much it counts that a failure has a name of a change; 0: it has not.

    Calls are given the same things again and again, and what another call did to one of them is
    seldom why the next fails. So only settings that changed, by the type of the event, are looked
    for there, and only codes: a proper name is what many calls choose (`carrier: Marten Post`).
    """
    name = folded(spelled)
    if says_name(failure.text, name):
        return 1.0
    is_code = " " not in name and any(letter.isdigit() for letter in name)
    may_be_given = is_code and change.confidence == TYPE_CONFIDENCE
    return GIVEN_SHARE if may_be_given and says_name(failure.given, name) else 0.0


def changing_sessions(
    failing: Collection[Failing], events: Iterable[SourceEvent], rarity: Mapping[str, float]
) -> list[str]:
    """The sessions that changed what a failure of a session names, each once.

    Args:
        failing: failures of the session.
        events: of any sessions, with their texts; those that are no changes are passed over.
        rarity: as `cause_of` takes it.
    """
    sessions = dict.fromkeys(
        event.session_id
        for event in events
        if cause_of(failing, changes_of((event,)), rarity) is not None
    )
    return list(sessions)


def rarities(
    names: Mapping[str, str], session_counts: Mapping[str, int], never: Iterable[str]
) -> dict[str, float]:
    """How much what a session mentions counts as a name, by the name, folded.

    Args:
        names: of its entities, by id.
        session_counts: by id, how many sessions mention one; of those that many do it is not known.
        never: names of users, agents and tools.
    """
    rarity = {
        folded(name): min(1.0, FEW_SESSIONS / session_counts[key]) if key in session_counts else 0.0
        for key, name in sorted(names.items())
    }
    return rarity | dict.fromkeys(map(folded, never), 0.0)


def says_name(text: str, name: str) -> bool:
    """Whether a text has a name, not as part of a longer one."""
    at = text.find(name)
    while at >= 0:
        end = at + len(name)
        following = text[end : end + 2]
        if " " in name and following[:1] == "/":
            following = ""  # `Hotel Astoria/SKG` are two names, `acme/shop` is one
        if not _continues(text[max(0, at - 1) : at]) and not _goes_on(following):
            return True
        at = text.find(name, at + 1)
    return False


def _continues(sign: str) -> bool:
    return sign.isalnum() or (sign in ("_", "-", ".", "/", "@") and sign != "")


def _goes_on(signs: str) -> bool:
    """A dot or a hyphen goes on only if something follows it."""
    return (
        signs[:1].isalnum()
        or signs[:1] == "_"
        or (len(signs) == 2 and signs[0] in "-./@" and signs[1].isalnum())
    )


def folded(text: str) -> str:
    """A text as names are compared."""
    return " ".join(text.casefold().split())
