"""Payloads as records: what a system event says, read strictly, each broken rule named by its path.

A payload is a `Record`: unknown fields are refused, null is absent, types are not converted. What
JSON writes otherwise than Python holds it (a time, bytes) is `Coded`; `parsed` reads the wire's
form alone, a constructor takes Python's. Small objects of which there are many, or that are keys,
are frozen dataclasses `with_config(PART)`: built unchecked, read as strictly.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)
from pydantic_core import CoreSchema, ErrorDetails, PydanticCustomError, core_schema

from projections.errors import InvalidEvent
from projections.times import timestamp_ms, timestamp_text

# What people write of a correction or a judgement; the models of the API have the same bounds.
MAX_REASON_CHARACTERS: Final = 500
MAX_REQUEST_REASON_CHARACTERS: Final = 1_000
MAX_COMMENT_CHARACTERS: Final = 1_000
MAX_SPLIT: Final = 100
MAX_JUDGED: Final = 100
"""Nodes that one feedback names."""


MOST_WHOLE: Final = 2**53 - 1
"""Beyond it not every program reads the same number."""

_WIRE: Final = object()
"""The context of `parsed`."""
_PRINTABLE: Final = r"^[^\x00-\x08\x0b-\x1f\x7f-\x9f]*$"
_NAME_CHARACTERS: Final = 80
"""Of an unknown field in an error."""


class Record(BaseModel):
    """A payload, or an object in one."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        allow_inf_nan=False,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        defer_build=True,
    )

    @model_validator(mode="before")
    @classmethod
    def _as_wire(cls, raw: Any, info: ValidationInfo) -> Any:
        """Null is absent; a field that has one value only (a kind) is required in JSON."""
        if info.context is not _WIRE or not isinstance(raw, Mapping):
            return raw
        names = {field.alias or name for name, field in cls.model_fields.items()}
        fields = {key: value for key, value in raw.items() if value is not None or key not in names}
        for name, field in cls.model_fields.items():
            if get_origin(field.annotation) is Literal and len(get_args(field.annotation)) == 1:
                fields.setdefault(name, "")  # refused by what it should be
        return fields

    def payload(self) -> dict[str, Any]:
        """The record as JSON values; what is None is left out."""
        return self.model_dump(mode="json", exclude_none=True)


PART: Final = ConfigDict(extra="forbid", validate_by_alias=True, serialize_by_alias=True)
"""Of a dataclass in a record; the types of its fields are to be strict by themselves."""

R = TypeVar("R", bound=Record)
T = TypeVar("T")
H = TypeVar("H", bound=Hashable)


def parsed(record: type[R], payload: Any, path: str = "payload") -> R:
    """The record that a payload holds.

    Args:
        record: what the payload should be.
        payload: decoded JSON.
        path: that leads to it, for the names of fields.

    Raises:
        InvalidEvent: with every broken rule by field (`payload.links[0].reason`): the record's in
            their order, then unknown ones.
    """
    try:
        return record.model_validate(payload, by_alias=True, by_name=False, context=_WIRE)
    except ValidationError as error:
        details = error.errors(include_url=False, include_input=False)
        told = (detail for detail in details if not _follows(detail, details))
        raise InvalidEvent(tuple((_path(path, detail), _rule(detail)) for detail in told)) from None


def parsed_by(field: str, records: Mapping[str, type[R]], payload: Any) -> R:
    """The record that a payload holds, where one of its fields says which.

    Args:
        field: that says it (`kind`).
        records: by what the field says.
        payload: decoded JSON.

    Raises:
        InvalidEvent: with every broken rule, each by field.
    """
    if not isinstance(payload, Mapping):
        raise InvalidEvent((("payload", "a JSON object"),))
    word = payload.get(field)
    record = records.get(word) if isinstance(word, str) else None
    if record is None:
        needed = "required: " if word is None else ""
        raise InvalidEvent(((f"payload.{field}", f"{needed}one of {', '.join(records)}"),))
    return parsed(record, payload)


def broken(field: str, rule: str) -> PydanticCustomError:
    """A rule between fields that is broken, for a validator of a whole record to raise.

    Args:
        field: the path from the record to what is refused; empty: the record itself.
        rule: in words, as in "not before started_at_ms".
    """
    return PydanticCustomError("rule", "{rule}", {"rule": rule, "field": field})


_RULES: Final[Mapping[str, str]] = {
    "bool_type": "true or false",
    "dataclass_type": "a JSON object",
    "dict_type": "a JSON object",
    "extra_forbidden": "unknown field",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number from {ge} on",
    "int_type": "a whole number",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number up to {le}",
    "literal_error": "one of {expected}",
    "missing": "required",
    "missing_argument": "required",
    "model_attributes_type": "a JSON object",
    "model_type": "a JSON object",
    "string_pattern_mismatch": "no control characters or lone surrogates",
    "string_too_long": "at most {max_length:,} characters",
    "string_too_short": "at least {min_length:,} characters",
    "string_type": "a string",
    "string_unicode": "no control characters or lone surrogates",
    "too_long": "at most {max_length:,} items",
    "too_short": "at least {min_length:,} items",
    "tuple_type": "a list",
    "unexpected_keyword_argument": "unknown field",
}
"""In our words; what is not here is said in pydantic's."""


def _follows(error: ErrorDetails, errors: Sequence[ErrorDetails]) -> bool:
    """Whether a list is too short because its items were refused, which is told of them."""
    loc = error["loc"]
    return error["type"] == "too_short" and any(
        len(other["loc"]) > len(loc) and other["loc"][: len(loc)] == loc for other in errors
    )


def _rule(error: ErrorDetails) -> str:
    rule = _RULES.get(error["type"])
    return error["msg"] if rule is None else rule.format(**error.get("ctx", {}))


def _path(path: str, error: ErrorDetails) -> str:
    for part in error["loc"]:
        if type(part) is int:
            path += f"[{part}]"
        elif part != "[key]":
            path += f".{str(part)[:_NAME_CHARACTERS]}"
    field = error.get("ctx", {}).get("field", "")
    return f"{path}.{field}" if field else path


# -- types of fields -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Text:
    """A string of 1 to `most` characters, line ends and tabs allowed."""

    most: int

    def __get_pydantic_core_schema__(self, _source: Any, _: GetCoreSchemaHandler) -> CoreSchema:
        """For pydantic."""
        return core_schema.str_schema(
            strict=True, min_length=1, max_length=self.most, pattern=_PRINTABLE
        )


@dataclass(frozen=True)
class Matching:
    """A string that a pattern matches wholly; its last group is the value, without one all of it.

    Attributes:
        pattern: a regular expression.
        rule: in words, for errors.
    """

    pattern: str
    rule: str

    def __get_pydantic_core_schema__(self, _source: Any, _: GetCoreSchemaHandler) -> CoreSchema:
        """For pydantic."""
        compiled = re.compile(self.pattern)
        error = PydanticCustomError("rule", "{rule}", {"rule": self.rule})

        def matched(value: Any) -> Any:
            match = compiled.fullmatch(value) if isinstance(value, str) else None
            if match is None:
                raise error
            return match[compiled.groups]

        return core_schema.no_info_plain_validator_function(matched)


@dataclass(frozen=True)
class Coded:
    """A value that JSON writes otherwise than Python holds it.

    Attributes:
        decode: reads a JSON value; a ValueError's words are the broken rule.
        encode: writes it.
    """

    decode: Callable[[Any], Any]
    encode: Callable[[Any], Any]

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        """For pydantic."""

        def decoded(value: Any, info: ValidationInfo) -> Any:
            if info.context is not _WIRE:
                return value
            try:
                return self.decode(value)
            except ValueError as error:
                raise broken("", str(error)) from error

        return core_schema.with_info_before_validator_function(
            decoded,
            handler(source),
            serialization=core_schema.plain_serializer_function_ser_schema(
                self.encode, when_used="json"
            ),
        )


def _timestamp_ms(value: Any) -> int:
    if not isinstance(value, str):
        raise ValueError("a string")
    return timestamp_ms(value)


def _different(items: tuple[H, ...]) -> tuple[H, ...]:
    if len(set(items)) < len(items):
        raise broken("", "different items")
    return items


Items = Annotated[tuple[T, ...], Strict(False)]
"""A list; its bounds by `Field(min_length=…, max_length=…)`."""
Different = Annotated[tuple[H, ...], Strict(False), AfterValidator(_different)]
"""A list of which no item stands twice."""
Flag = Annotated[bool, Strict()]
Whole = Annotated[int, Strict(), Field(ge=0, le=MOST_WHOLE)]
Milliseconds = Annotated[int, Strict(), Field(ge=-MOST_WHOLE, le=MOST_WHOLE)]
"""Since the epoch, or before it; a number on the wire, too."""
Timestamp = Annotated[int, Strict(), Coded(_timestamp_ms, timestamp_text)]
"""Milliseconds since the epoch; on the wire an RFC 3339 time with zone."""
EventId = Annotated[
    str,
    Matching(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "an event id: a UUID in lower case"),
]
Uuid = Annotated[
    str,
    Matching(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", "a UUID of 36 characters"),
    BeforeValidator(lambda value: value.lower() if isinstance(value, str) else value),
]
"""In either case; the value is in lower case."""
EntityId = Annotated[str, Matching(r"(?:entity:)?([0-9a-f]{16,64})", "an entity id, entity:<hash>")]
"""On the wire with or without `entity:`; the value is the bare hash."""
HashId = Annotated[str, Matching(r"[0-9a-f]{16,64}", "an id of 16 to 64 hexadecimal digits")]
"""The bare hash of an entity or a summary."""
