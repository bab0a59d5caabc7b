"""Reading an object that somebody else wrote: a method a kind of field, each broken rule kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from projections.events import timestamp_ms

MOST_WHOLE = 2**53 - 1
"""Beyond it not every program reads the same number."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_ENTITY_ID = re.compile(r"(?:entity:)?([0-9a-f]{16,64})")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")


class Fields:
    """The fields of one object. `path` leads to it; what is broken is added to `errors`."""

    def __init__(self, raw: Mapping[str, Any], path: str, errors: list[tuple[str, str]]) -> None:
        self.raw = raw
        self.path = path
        self.errors = errors

    @classmethod
    def of(cls, raw: Any, path: str, errors: list[tuple[str, str]]) -> Fields | None:
        """The fields of `raw`, None (and an error) when it is no object."""
        if isinstance(raw, Mapping):
            return cls(raw, path, errors)
        errors.append((path, "a JSON object"))
        return None

    def refuse(self, field: str, rule: str) -> None:
        """Note a broken rule."""
        self.errors.append((f"{self.path}.{field}", rule))

    def refuse_others(self, known: str) -> None:
        """Refuse fields that are not among `known`, names with blanks between."""
        allowed = frozenset(known.split())
        for name in self.raw:
            if name not in allowed:
                self.refuse(str(name)[:80], "unknown field")

    def has(self, field: str) -> bool:
        """Whether the field is there; null is absent."""
        return self.raw.get(field) is not None

    def text(self, field: str, longest: int, *, required: bool = False) -> str | None:
        """A string of 1 to `longest` characters, line ends allowed."""
        value = self.raw.get(field)
        if value is None:
            if required:
                self.refuse(field, "required")
            return None
        if not isinstance(value, str):
            self.refuse(field, "a string")
        elif not 1 <= len(value) <= longest:
            self.refuse(field, f"1 to {longest:,} characters")
        elif _CONTROL.search(value):
            self.refuse(field, "no control characters or lone surrogates")
        else:
            return value
        return None

    def choice(self, field: str, allowed: Iterable[str], *, required: bool = False) -> str | None:
        """One of a few words, case and all."""
        value = self.raw.get(field)
        if value is None:
            if required:
                self.refuse(field, f"required: one of {', '.join(allowed)}")
            return None
        if not isinstance(value, str) or value not in allowed:
            self.refuse(field, f"one of {', '.join(allowed)}")
            return None
        return value

    def flag(self, field: str) -> bool | None:
        """True or false."""
        value = self.raw.get(field)
        if value is None or isinstance(value, bool):
            return value
        self.refuse(field, "true or false")
        return None

    def ten_thousandths(self, field: str, least: int, most: int) -> int | None:
        """A number between two others, as an integer times 10⁴."""
        value = self.raw.get(field)
        if value is None:
            return None
        # a NaN is not between anything
        if type(value) not in (int, float) or not least <= value <= most:
            self.refuse(field, f"a number from {least} to {most}")
            return None
        rounded: int = round(value * 10_000)
        return rounded

    def whole(self, field: str, least: int = 0, most: int = MOST_WHOLE) -> int:
        """A whole number, required; `least` where it is refused."""
        value = self.raw.get(field)
        if type(value) is int and least <= value <= most:
            return value
        self.refuse(field, f"a whole number from {least:,} to {most:,}")
        return least

    def time(self, field: str) -> int | None:
        """An RFC 3339 time, as milliseconds since the epoch."""
        value = self.raw.get(field)
        if value is None:
            return None
        if not isinstance(value, str):
            self.refuse(field, "a string")
            return None
        try:
            return timestamp_ms(value)
        except ValueError as error:
            self.refuse(field, str(error))
            return None

    def uuid(self, field: str) -> str | None:
        """A UUID, in lower case."""
        value = self.raw.get(field)
        if value is None:
            return None
        if isinstance(value, str) and _UUID.fullmatch(value.lower()):
            return value.lower()
        self.refuse(field, "a UUID of 36 characters")
        return None

    def entity_id(self, field: str) -> str | None:
        """The hash of an entity id."""
        found = _entity_id(self.raw.get(field))
        if found is None:
            self.refuse(field, "an entity id, entity:<hash>")
        return found

    def entity_ids(self, field: str, least: int, most: int) -> tuple[str, ...]:
        """Hashes of different entity ids."""
        value = self.raw.get(field)
        how_many = str(least) if least == most else f"{least} to {most}"
        if not isinstance(value, list) or not least <= len(value) <= most:
            self.refuse(field, f"a list of {how_many} entity ids")
            return ()
        found = [_entity_id(item) for item in value]
        for place, one in enumerate(found):
            if one is None:
                self.refuse(f"{field}[{place}]", "an entity id, entity:<hash>")
        ids = [one for one in found if one is not None]
        if len(set(ids)) < len(ids):
            self.refuse(field, "different entity ids")
        return tuple(ids)

    def object(self, field: str, rule: str) -> Fields | None:
        """An object within, required."""
        value = self.raw.get(field)
        if value is None:
            self.refuse(field, "required")
        elif not isinstance(value, Mapping):
            self.refuse(field, rule)
        else:
            return Fields(value, f"{self.path}.{field}", self.errors)
        return None

    def objects(self, field: str, least: int, most: int) -> Iterator[Fields]:
        """A list of objects."""
        value = self.raw.get(field)
        if not isinstance(value, list) or not least <= len(value) <= most:
            self.refuse(field, f"a list of {least} to {most} objects")
            return
        for place, item in enumerate(value):
            inner = Fields.of(item, f"{self.path}.{field}[{place}]", self.errors)
            if inner is not None:
                yield inner


def _entity_id(value: Any) -> str | None:
    match = _ENTITY_ID.fullmatch(value) if isinstance(value, str) else None
    return match[1] if match else None
