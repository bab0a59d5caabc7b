"""What a mapper is given, what it gives back, and how a record is read so that nothing goes unsaid.

A mapper is a pure function of one record: the same record gives the same bytes, whatever stands
before it, so that a file may be imported twice, in halves or in another order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime, tzinfo
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from projections.errors import InvalidInput
from projections.events import DEFAULT_TENANT, canonical_json

_MS_PER_S: Final = 1_000
_SECONDS_BELOW: Final = 100_000_000_000
"""Numbers below are seconds since the epoch (until the year 5138), and so on by thousands."""
_NUMBERS_BELOW: Final = 1e20
_TIME_RULE: Final = "a time: ISO 8601, or a number since the epoch"


class Given(NamedTuple):
    """What the command says of all records.

    Attributes:
        tenant: whose they become.
        user_id: of what names no user; None: nobody's.
        zone: of times that name none.
    """

    tenant: str = DEFAULT_TENANT
    user_id: str | None = None
    zone: tzinfo = UTC


class Mapped(NamedTuple):
    """An event of a record; `is_shared` and `own_id` as in `sources.Item`."""

    envelope: Mapping[str, Any]
    is_shared: bool = False
    own_id: str | None = None


class Unmapped(NamedTuple):
    """A part of a record that no event holds: where it is in it, and why."""

    field: str
    reason: str


Told = Mapped | Unmapped
MAX_PLACE_CHARACTERS: Final = 200
NOT_MAPPED: Final = "no event has a place for it"


class Fields:
    """The fields of an object; whoever asks for one maps it, and the others are told at the end.

    Args:
        raw: of the record.
        place: where it stands in the record, ending in a dot; empty for the record itself.

    Raises:
        InvalidInput: it is no object.
    """

    def __init__(self, raw: Any, place: str = "") -> None:
        if not isinstance(raw, Mapping):
            raise InvalidInput(((place.rstrip(".") or "(record)", "an object"),))
        self._raw = raw
        self._place = place
        self._read: set[str] = set()

    def place(self, name: str) -> str:
        """Where a field stands in the record."""
        return self._place + name

    def __contains__(self, name: str) -> bool:
        return self._raw.get(name) is not None

    def get(self, *names: str) -> Any:
        """The first of them that has a value."""
        self._read.update(names)
        return next((self._raw[n] for n in names if self._raw.get(n) not in (None, "")), None)

    def text(self, *names: str, required: bool = False) -> str | None:
        """As `get`, a text; a number is written out.

        Raises:
            InvalidInput: it is none, or is not there and required.
        """
        value = self.get(*names)
        if value is None and not required:
            return None
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise InvalidInput(((self.place(names[0]), "a text" + " (required)" * required),))
        return str(value)

    def ms(self, given: Given, *names: str, required: bool = False) -> int | None:
        """As `get`, a time: milliseconds since the epoch.

        Raises:
            InvalidInput: it is none, or is not there and required.
        """
        value = self.get(*names)
        if value is None and not required:
            return None
        try:
            return moment_ms(value, given.zone)
        except ValueError as error:
            raise InvalidInput(((self.place(names[0]), str(error)),)) from None

    def list(self, name: str) -> list[Any]:
        """A list, empty where there is none.

        Raises:
            InvalidInput: it is something else.
        """
        value = self.get(name)
        if value is None:
            return []
        if not isinstance(value, list):
            raise InvalidInput(((self.place(name), "a list"),))
        return value

    def inner(self, name: str) -> Fields:
        """The fields of an object in it, none where it is not there or something else."""
        value = self.get(name)
        return Fields(value if isinstance(value, Mapping) else {}, f"{self._place}{name}.")

    def unread(self, but: Collection[str] = ()) -> Iterator[Unmapped]:
        """What has a value and nobody asked for; `but`: fields that tell nothing that happened."""
        for name in filter(lambda name: name not in but, self.others()):
            yield Unmapped(f"{self._place}{name}"[:MAX_PLACE_CHARACTERS], NOT_MAPPED)

    def others(self) -> dict[str, Any]:
        """What has a value, and nobody asked for."""
        return {
            str(name): value
            for name, value in self._raw.items()
            if name not in self._read and value not in (None, "", [], {})
        }


def moment_ms(value: Any, zone: tzinfo = UTC) -> int:
    """Milliseconds since the epoch of a time in any of the common ways to write one.

    A number is seconds, or, by its size, milliseconds, microseconds or nanoseconds since the epoch.
    A text is ISO 8601, or such a number; without a zone it is a time of `zone`.

    Raises:
        ValueError: it is none.
    """
    seconds = _seconds(value, zone) if isinstance(value, str) else value
    if isinstance(seconds, bool) or not isinstance(seconds, int | float):
        raise ValueError(_TIME_RULE)
    if not 0 <= seconds < _NUMBERS_BELOW:  # what is no number fails this, too
        raise ValueError(_TIME_RULE)
    while seconds >= _SECONDS_BELOW:
        seconds /= _MS_PER_S
    return int(seconds * _MS_PER_S)


def _seconds(text: str, zone: tzinfo) -> float:
    """What a text says; at most the largest that is taken for seconds."""
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        try:
            return float(text)
        except ValueError:
            raise ValueError(_TIME_RULE) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=zone)
    try:
        seconds = moment.timestamp()
    except (OverflowError, ValueError):
        seconds = -1.0
    return seconds if seconds < _SECONDS_BELOW else -1.0


def digest_of(value: Any) -> str:
    """What tells a record without an id from every other: 32 hexadecimal digits.

    Raises:
        InvalidInput: it holds what JSON has not.
    """
    try:
        return blake2b(canonical_json(value), digest_size=16).hexdigest()
    except ValueError as error:
        raise InvalidInput((("(record)", str(error)),)) from None
