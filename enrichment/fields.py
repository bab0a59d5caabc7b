"""Entities in structure: what the keys of arguments and results say about their values.

A key is a better witness than a recogniser: `reservation_id: 4WQ150` is a reservation, `city:
Austin` a place, whatever the values look like. `FIELDS` is the table; the first row that fits a
key wins, and a key that fits none gives nothing.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from enrichment.derived import EntityType
from enrichment.patterns import identifiers

MAX_VALUES = 500
"""Values looked at in one payload, nearest to the surface first."""
MAX_NAME_CHARACTERS = 200
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
        r"(tool_)?call_id|(.*_)?(trace|span|request|correlation|message|event|run|thread|session"
        r"|parent|etag|cursor|page|checksum|digest|embedding)(_id)?|role|index|type|kind",
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
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_VALUE_PREFIX = re.compile(r"([A-Za-z]{2,}(?:_[A-Za-z]+)*)[_-]\w*\d")
_LETTER_OR_DIGIT = re.compile(r"\w")


def named_values(fields: Any) -> Iterator[Named]:
    """Entities that the keys of a structure name, nearest to the surface first, keys in order.

    First and last name side by side are one person; a list of codes under `reservations` is
    several reservations. Stops after MAX_VALUES values.
    """
    queue: deque[tuple[str, str, Any, bool]] = deque([("", "", fields, False)])
    seen = 0
    while queue and seen < MAX_VALUES:
        parent, key, value, listed = queue.popleft()
        seen += 1
        if isinstance(value, Mapping):
            yield from _person(value)
            queue.extend(
                (key, str(k), value[k], False) for k in sorted(value, key=str)[:MAX_VALUES]
            )
        elif isinstance(value, list | tuple):
            singular = _singular(key)
            queue.extend((parent, singular, item, singular != key) for item in value[:MAX_VALUES])
        elif isinstance(value, str | int) and not isinstance(value, bool) and key:
            yield from _named(_snake(key), _snake(parent), str(value), listed)


def is_plumbing(key: str) -> bool:
    """Whether the values under a key are true of one request only, whatever they look like."""
    return FIELDS[0].keys.fullmatch(_snake(key)) is not None


def _named(key: str, parent: str, value: str, listed: bool) -> Iterator[Named]:
    value = value.strip()
    if not value or len(value) > MAX_NAME_CHARACTERS or len(value.split()) > MAX_NAME_WORDS:
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
    if row.entity_type is None:
        return
    if row.exact and row.subtype is None:
        plain = value.islower() and not any(c.isdigit() for c in value)
        if " " in value or (plain and row.entity_type != "user"):
            return  # words where a code belongs: `order: all since 09:03`, `key: name`
    if value.isdigit() and (not row.exact or len(value) < MIN_DIGITS):
        return
    if row.subtype == "person" and not value[0].isupper():
        return  # `owner: payments`
    subtype = row.subtype or _subtype(key, parent, value)
    if subtype == row.entity_type:
        subtype = None  # it says nothing finer
    yield Named(value, row.entity_type, subtype, row.exact)


def _person(value: Mapping[str, Any]) -> Iterator[Named]:
    first, last = value.get("first_name"), value.get("last_name")
    if isinstance(first, str) and isinstance(last, str) and first.strip() and last.strip():
        name = f"{first.strip()} {last.strip()}"
        if len(name) <= MAX_NAME_CHARACTERS:
            yield Named(name, "concept", "person", False)


def _subtype(key: str, parent: str, value: str) -> str | None:
    """What a code is a code of: its own prefix (`credit_card_44`), the key, or what it is in."""
    stem = _ID_ENDING.sub("", key)
    if stem in ("", "id", "uuid", "guid", "payment", "reference", "method"):
        prefix = _VALUE_PREFIX.match(value)
        if prefix:
            return prefix[1].lower()[:40]
    if stem in ("", "id", "uuid", "guid"):
        stem = _singular(parent)
    return stem[:40] or None


def _snake(key: str) -> str:
    return re.sub(r"[\s.-]+", "_", _CAMEL.sub("_", key[:MAX_NAME_CHARACTERS]).lower())


def _singular(key: str) -> str:
    if key.endswith("ies"):
        return key[:-3] + "y"
    return key[:-1] if key.endswith("s") and not key.endswith(("ss", "us", "is")) else key
