"""Who and what an event mentions: names in normal form, ids, and at most ten mentions an event.

Where a name comes from decides how far it is trusted, and that is the order in which the ten
places are given away:

1. the envelope: agent, tools, user;
2. keys of arguments and results, by the table FIELDS;
3. identifiers in the text (`patterns`);
4. named entities, as far as LABELS has a place for them;
5. salient noun phrases, as concepts;
6. amounts and dates: they are found again by value, so they only fill what is left.

A person named in a text is a concept of subtype person: who a user is, only an envelope or a key
says. The event's own agent and user are recognised by their names.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from enrichment.event_kinds import EventKind
from enrichment.facts import Mention
from enrichment.names import (
    LABELS,
    MAX_MENTIONS,
    MAX_NAME_BYTES,
    MIN_NAME_CHARACTERS,
    EntityType,
    Role,
    _visible,
    canonical_name,
)
from enrichment.patterns import identifiers
from enrichment.phrases import (
    addressed_names,
    salient_phrases,
    stated_identifiers,
    trimmed_entity,
)
from enrichment.ports import Analysis, EventText, Span
from enrichment.text import Shape, key_spans, language_spans, shape
from enrichment.vocabulary import CAMEL, singular
from projections.events import Event

_ROLE_STRENGTH: Final[tuple[Role, ...]] = ("subject", "tool", "target", "participant", "object")
_SPEAKER_ROLES = frozenset(("user", "human", "tool", "function"))
"""Agent ids that are no agent's name but the role of the user or tool which the event names."""


PATTERN_TYPES: Final[dict[str, EntityType]] = {
    "url": "resource",
    "email": "resource",
    "uuid": "resource",
    "path": "resource",
    "ip": "service",
    "host": "service",
    "version": "concept",
    "phone": "resource",
    "handle": "concept",
    "key": "resource",
    "id": "resource",
    "code": "resource",
    "hex": "resource",
    "number": "resource",
    "amount": "concept",
    "date": "concept",
}
"""Labels of the patterns → type; the label is the subtype. `time` is not here: an hour of the day
is nobody's name."""
_LAST = ("amount", "date")


class _Candidate(NamedTuple):
    name: str
    entity_type: EntityType
    subtype: str | None = None
    role: Role = "object"
    exact: bool = False
    envelope: bool = False


def mentions(
    event: Event, text: EventText, analysis: Analysis, content: Any = None
) -> tuple[Mention, ...]:
    """What an event mentions, most trusted first, at most MAX_MENTIONS.

    One mention for each (canonical name, type): the first source's spelling and subtype, the
    strongest role. A name that the envelope or a key gives a type keeps it when the text names it
    again.

    Args:
        event: whose mentions they are.
        text: of the event.
        analysis: of that text; an empty one leaves out named entities and noun phrases.
        content: used instead of the payload: what `payload_ref` points to.
    """
    merged: dict[tuple[str, EntityType], Mention] = {}
    typed: dict[str, EntityType] = {}
    for candidate in _candidates(shape(event, content), event, text, analysis):
        canonical = canonical_name(candidate.name)
        if not canonical or (len(canonical) < MIN_NAME_CHARACTERS and not candidate.envelope):
            continue
        entity_type = typed.setdefault(canonical, candidate.entity_type)
        if candidate.envelope:
            entity_type = candidate.entity_type
        key = (canonical, entity_type)
        earlier = merged.get(key)
        if earlier is not None:
            role = min(earlier.role, candidate.role, key=_ROLE_STRENGTH.index)
            merged[key] = earlier._replace(
                role=role,
                subtype=earlier.subtype
                or (None if entity_type != candidate.entity_type else candidate.subtype),
                exact=earlier.exact or candidate.exact,
            )
        elif len(merged) < MAX_MENTIONS:
            merged[key] = Mention(
                name=_display(candidate.name),
                canonical_name=canonical,
                entity_type=entity_type,
                subtype=candidate.subtype,
                role=candidate.role,
                exact=candidate.exact or any(c.isdigit() for c in canonical),
            )
    return tuple(merged.values())


def _display(name: str) -> str:
    shown = " ".join("".join(map(_visible, name)).split())
    return shown.encode(errors="ignore")[:MAX_NAME_BYTES].decode(errors="ignore").rstrip()


def _candidates(
    parts: Shape, event: Event, text: EventText, analysis: Analysis
) -> Iterator[_Candidate]:
    yield from _envelope(event, parts)
    # what a call acts on is the value of an argument; a code in a note is only spoken of
    role: Role = "target" if parts.kind is EventKind.CALL else "object"
    # codes first: of a listing they tell more than its places and names
    for named in sorted(named_values(parts.fields), key=lambda named: not named.exact):
        yield _Candidate(named.name, named.entity_type, named.subtype, role=role, exact=named.exact)
    plumbing = _plumbing_spans(text)
    spans = [s for s in stated_identifiers(text) if not _meets(s.start, s.end, plumbing)]
    yield from _identified(text.text, [s for s in spans if s.label not in _LAST])
    taken = [(start, end) for start, end, _ in spans]
    language = language_spans(text)
    if parts.kind is EventKind.MESSAGE:
        for start, end, name in addressed_names(text.text):
            taken.append((start, end))
            yield _Candidate(name, "concept", "person", role="participant")
    yield from _recognised(text.text, analysis, language, taken)
    for start, end, name in salient_phrases(text.text, analysis):
        if _within(start, end, language) and not _meets(start, end, taken):
            yield _Candidate(name, "concept")
    yield from _identified(text.text, [s for s in spans if s.label in _LAST])


def _identified(words: str, spans: Iterable[Span]) -> Iterator[_Candidate]:
    for start, end, label in spans:
        entity_type = PATTERN_TYPES.get(label)
        if entity_type is None:
            continue
        subtype: str | None = label
        if _USER_CUE.search(words[max(0, start - _CUE_REACH) : start]) and label in _USER_LABELS:
            entity_type, subtype = "user", None
        yield _Candidate(words[start:end], entity_type, subtype, exact=True)


def _recognised(
    words: str, analysis: Analysis, language: list[tuple[int, int]], taken: list[tuple[int, int]]
) -> Iterator[_Candidate]:
    """Named entities within what is language; their places are added to `taken`."""
    for start, end, label in analysis.entities:
        if label not in LABELS or not _within(start, end, language) or _meets(start, end, taken):
            continue
        trimmed = trimmed_entity(words, start, end, analysis)
        if trimmed is not None:
            taken.append((start, end))
            entity_type, subtype = LABELS[label]
            if trimmed.isupper() and len(trimmed) <= _ACRONYM_CHARACTERS:
                yield _Candidate(trimmed, entity_type)  # a guess: JFK a person, DEN a company
            else:
                role: Role = "participant" if subtype == "person" else "object"
                yield _Candidate(trimmed, entity_type, subtype, role=role)


def _plumbing_spans(text: EventText) -> list[tuple[int, int]]:
    """Lines of fields whose values name nothing: ids of calls, traces, sessions."""
    lines: list[tuple[int, int]] = []
    for start, end in key_spans(text):
        if is_plumbing(text.text[start:end].rstrip(": ").rpartition(".")[2]):
            stop = text.text.find("\n", end)
            lines.append((start, stop if stop >= 0 else len(text.text)))
    return lines


_ACRONYM_CHARACTERS = 4
_CUE_REACH = 24
_USER_CUE = re.compile(r"\b(?:user|customer|member)(?:[ _-]?(?:id|name))?(?: is)?\W{0,4}$", re.I)
_USER_LABELS = frozenset(("id", "code", "handle", "uuid", "number"))


def _envelope(event: Event, parts: Shape) -> Iterator[_Candidate]:
    """Agent, tools and user; who speaks is the subject."""
    agent = event.agent_id.lower()
    role = agent in _SPEAKER_ROLES
    by_user = role and agent in ("user", "human") and event.user_id is not None
    by_tool = role and agent in ("tool", "function") and bool(parts.tools)
    if not by_user and not by_tool:
        yield _Candidate(event.agent_id, "agent", role="subject", envelope=True)
    for tool in parts.tools:
        yield _Candidate(tool, "tool", role="tool", envelope=True)
    if event.user_id is not None:
        user_role: Role = "subject" if by_user else "participant"
        yield _Candidate(event.user_id, "user", role=user_role, envelope=True)


def _within(start: int, end: int, spans: list[tuple[int, int]]) -> bool:
    return any(first <= start and end <= last for first, last in spans)


def _meets(start: int, end: int, spans: list[tuple[int, int]]) -> bool:
    return any(start < last and first < end for first, last in spans)


# -- what the keys of arguments and results say about their values --------------------------------
# A key is a better witness than a recogniser: `reservation_id: 4WQ150` is a reservation, `city:
# Austin` a place, whatever the values look like.

MAX_FIELD_VALUES = 500
"""Values looked at in one payload, nearest to the surface first."""
MAX_FIELD_CHARACTERS = 200
"""A longer value is a text, not a name."""
MAX_NAME_WORDS = 8
MIN_DIGITS = 3
"""Shorter numbers count something, whatever their key."""


class Field(NamedTuple):
    """A rule about keys.

    Attributes:
        keys: what the key, lower case and in snake case, matches in full.
        entity_type: of the value; None: the value is no entity, whatever it looks like.
        subtype: of the value; None: what the key or the value's own prefix says.
        exact: a code that is the same only as itself.
    """

    keys: re.Pattern[str]
    entity_type: EntityType | None
    subtype: str | None
    exact: bool


class Named(NamedTuple):
    """A value that a key names as an entity."""

    name: str
    entity_type: EntityType
    subtype: str | None
    exact: bool


def _row(keys: str, entity_type: EntityType | None, subtype: str | None, exact: bool) -> Field:
    return Field(re.compile(keys), entity_type, subtype, exact)


FIELDS: tuple[Field, ...] = (
    # plumbing: true of one request only, and never what anybody asks about
    _row(
        r"(tool_)?call_id|(x_(.*_)?|(https?|api|rpc|web|client|server|proxy|gateway|upstream|parent"
        r"|original|retry)_)?request(_id)?|(.*_)?(trace|span|correlation|message|event|run|thread"
        r"|session|parent|etag|cursor|page|checksum|digest|embedding)(_id)?|role|index|type|kind",
        None,
        None,
        False,
    ),
    _row(r"(user|customer|client|member|employee|patient|guest)(_?id|name)?", "user", None, True),
    _row(r"(agent|assistant|bot)(_id|_name)?", "agent", None, False),
    _row(r"(tool|function)(_name)?", "tool", None, False),
    _row(r"(service|api|server|queue|topic|database|cluster)(_name|_id)?", "service", None, False),
    _row(r"(host|hostname|endpoint|base_url|ip|ip_address)", "service", "host", True),
    _row(r"(.*_)?e?_?mail(_address)?", "resource", "email", True),
    _row(r"(.*_)?(url|uri|link|href)", "resource", "url", True),
    _row(r"(.*_)?(file|filename|file_name|path|directory|folder)", "resource", "file", True),
    _row(r"(.*_)?(phone|telephone|mobile)(_number)?", "resource", "phone", True),
    _row(r"(repo|repository|branch|bucket|table|dataset|model)(_name)?", "resource", None, False),
    _row(
        r"(.*_)?(full_name|passenger|recipient|owner|author|assignee)", "concept", "person", False
    ),
    _row(
        r"(.*_)?(city|country|location|place|airport|origin|destination|region)(_name)?",
        "concept",
        "location",
        False,
    ),
    _row(r"(company|organi[sz]ation|vendor|employer|airline|bank)(_name)?", "concept", None, False),
    _row(r"(project|product|library|framework|language)(_name)?", "concept", None, False),
    _row(
        r"id|uuid|guid|(.*_)(id|ids|key|number|no|code|ref|reference|token|uuid|sku)|revision"
        r"|commit|sha|sku|version|reference|order|invoice|ticket|issue|charge|refund|transfer"
        r"|reservation|booking|shipment",
        "resource",
        None,
        True,
    ),
)

_ID_ENDING = re.compile(r"_?(ids?|number|no|code|ref|reference|name|uuid)$")
_VALUE_PREFIX = re.compile(r"([A-Za-z]{2,}(?:_[A-Za-z]+)*)[_-]\w*\d")
_LETTER_OR_DIGIT = re.compile(r"\w")


def named_values(fields: Any) -> Iterator[Named]:
    """Entities that the keys of a structure name, nearest to the surface first, keys in order.

    First and last name side by side are one person; a list of codes under `reservations` is
    several reservations. Stops after MAX_FIELD_VALUES values.
    """
    queue: deque[tuple[str, str, Any, bool]] = deque([("", "", fields, False)])
    seen = 0
    while queue and seen < MAX_FIELD_VALUES:
        parent, key, value, listed = queue.popleft()
        seen += 1
        if isinstance(value, Mapping):
            yield from _person(value)
            queue.extend(
                (key, str(k), value[k], False) for k in sorted(value, key=str)[:MAX_FIELD_VALUES]
            )
        elif isinstance(value, list | tuple):
            noun = singular(key)
            queue.extend((parent, noun, item, noun != key) for item in value[:MAX_FIELD_VALUES])
        elif isinstance(value, str | int) and not isinstance(value, bool) and key:
            yield from _named(_snake(key), _snake(parent), str(value), listed)


def is_plumbing(key: str) -> bool:
    """Whether the values under a key are true of one request only, whatever they look like."""
    return FIELDS[0].keys.fullmatch(_snake(key)) is not None


def _named(key: str, parent: str, value: str, listed: bool) -> Iterator[Named]:
    value = value.strip()
    if len(value) > MAX_FIELD_CHARACTERS or len(value.split()) > MAX_NAME_WORDS:
        return
    if not _LETTER_OR_DIGIT.search(value):
        return
    row = next((row for row in FIELDS if row.keys.fullmatch(key)), None)
    if row is None:
        # a list of codes under a noun: `reservations: [NO6JO3, …]`
        spans = identifiers(value)
        whole = len(spans) == 1 and (spans[0].start, spans[0].end) == (0, len(value))
        if whole and spans[0].label in ("code", "id", "uuid"):
            subtype = _subtype(key, parent, value) if listed else spans[0].label
            yield Named(value, "resource", subtype, True)
        return
    if row.entity_type is None or not _fits(row, value):
        return
    subtype = row.subtype or _subtype(key, parent, value)
    if subtype == row.entity_type:
        subtype = None  # it says nothing finer
    yield Named(value, row.entity_type, subtype, row.exact)


def _fits(row: Field, value: str) -> bool:
    """Whether a value may be what a row says of its key."""
    if row.exact and row.subtype is None:
        plain = value.islower() and not any(c.isdigit() for c in value)
        if " " in value or (plain and row.entity_type != "user"):
            return False  # words where a code belongs: `order: all since 09:03`, `key: name`
    if value.isdigit() and (not row.exact or len(value) < MIN_DIGITS):
        return False
    return row.subtype != "person" or value[0].isupper()  # not `owner: payments`


def _person(value: Mapping[str, Any]) -> Iterator[Named]:
    first, last = value.get("first_name"), value.get("last_name")
    if isinstance(first, str) and isinstance(last, str) and first.strip() and last.strip():
        name = f"{first.strip()} {last.strip()}"
        if len(name) <= MAX_FIELD_CHARACTERS:
            yield Named(name, "concept", "person", False)


def _subtype(key: str, parent: str, value: str) -> str | None:
    """What a code is a code of: its own prefix (`credit_card_44`), the key, or what it is in."""
    stem = _ID_ENDING.sub("", key)
    if stem in ("", "id", "uuid", "guid", "payment", "reference", "method"):
        prefix = _VALUE_PREFIX.match(value)
        if prefix:
            return prefix[1].lower()[:40]
    if stem in ("", "id", "uuid", "guid"):
        stem = singular(parent)
    return stem[:40] or None


def _snake(key: str) -> str:
    return re.sub(r"[\s.-]+", "_", CAMEL.sub("_", key[:MAX_FIELD_CHARACTERS]).lower())
