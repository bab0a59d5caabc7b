"""Rows of any table: CSV, JSON lines or a JSON list, with a file that says which column is what.

The mapping file is TOML or JSON:

    [columns]                      # names in the rows; in JSON `a.b` is a field of an object
    time = "created"               # required
    text = "body"                  # required
    session = "ticket"             # required, here or as a constant; so are agent and kind
    agent = "author"
    user = "customer"
    kind = "type"
    id = "id"                      # without one, a row is told from others by what it holds
    tool = "tool"
    status = "state"
    [constants]
    kind = "message.user"
    [kinds]                        # what values of the column mean
    inbound = "message.user"
    [options]
    time_format = "%d.%m.%Y %H:%M" # else ISO 8601, or a number since the epoch
    delimiter = ";"                # of CSV; else the comma
    payload = ["subject"]          # further columns that are kept; without it all of them

All columns but these are in the payload, beside the words; with `payload` the others are told as
left out.
"""

from __future__ import annotations

import csv
import io
import json
import tomllib
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated, Any, Final, cast

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from pipelines.operations.formats.mapped import (
    NOT_MAPPED,
    Fields,
    Given,
    Mapped,
    Told,
    Unmapped,
    digest_of,
    moment_ms,
)
from pipelines.operations.sources import (
    MAX_LINE_BYTES,
    UNREADABLE,
    Record,
    beginning,
    records,
)
from projections.errors import InvalidInput
from projections.events import derived_event_id, timestamp_text
from projections.traces.drafts import fitting

FORM: Final = "rows"
MAX_COLUMNS: Final = 1_000
_SAYS_JSON: Final = (b"{", b"[")
_ROLES: Final = "message."

Name = Annotated[str, Field(min_length=1, max_length=200)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Constants(_Part):
    """What is the same for all rows."""

    session: Name | None = None
    agent: Name | None = None
    user: Name | None = None
    kind: Name | None = None
    tool: Name | None = None
    status: Name | None = None


class Columns(Constants):
    """Names of columns."""

    time: Name
    text: Name
    id: Name | None = None


class Options(_Part):
    """How rows are written."""

    time_format: Name | None = None
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] = ","
    payload: tuple[Name, ...] | None = None


class RowMapping(_Part):
    """A mapping file."""

    columns: Columns
    constants: Constants = Constants()
    kinds: dict[str, Name] = {}
    options: Options = Options()

    @model_validator(mode="after")
    def _complete(self) -> RowMapping:
        for name in ("session", "agent", "kind"):
            if getattr(self.columns, name) is None and getattr(self.constants, name) is None:
                raise ValueError(f"{name}: required, as a column or as a constant")
        return self


def read_mapping(path: Path) -> RowMapping:
    """The mapping that a file holds.

    Raises:
        InvalidInput: naming what of it is wrong.
        OSError: it cannot be read.
    """
    data = path.read_bytes()
    try:
        raw = json.loads(data) if path.suffix == ".json" else tomllib.loads(data.decode())
        return RowMapping.model_validate(raw)
    except ValidationError as error:
        rules = ((".".join(map(str, e["loc"])) or "(mapping)", e["msg"]) for e in error.errors())
        raise InvalidInput(
            tuple((f"{path.name}: {field}", rule) for field, rule in rules)
        ) from None
    except ValueError as error:
        raise InvalidInput(
            ((path.name, f"TOML, or JSON where it ends in .json: {error}"),)
        ) from None


def rows(stream: io.BufferedReader, mapping: RowMapping) -> Iterator[Record]:
    """The rows of a file, JSON or CSV by its first character."""
    if beginning(stream).startswith(_SAYS_JSON):
        yield from records(stream)
        return
    text = io.TextIOWrapper(cast(IO[bytes], stream), encoding="utf-8-sig", newline="")
    csv.field_size_limit(MAX_LINE_BYTES)
    reader = csv.reader(text, delimiter=mapping.options.delimiter, strict=True)
    try:
        names = next(reader, [])
        if len(names) > MAX_COLUMNS:
            raise ValueError(f"at most {MAX_COLUMNS:,} columns")
        for cells in reader:
            where = {"line": reader.line_num}
            if not cells:
                continue
            if len(cells) > len(names):
                rule = f"{len(names)} cells, as the first line names; it has {len(cells)}"
                yield where, InvalidInput((("(line)", rule),))
            else:
                yield where, dict(zip(names, cells, strict=False))
    except UNREADABLE as error:
        yield {"line": reader.line_num + 1}, InvalidInput((("(file)", f"gzip: {error}"),))
    except (csv.Error, ValueError) as error:
        yield {"line": reader.line_num}, InvalidInput((("(file)", f"CSV: {error}"),))


def events(record: Any, given: Given, mapping: RowMapping) -> Iterator[Told]:
    """The event of a row.

    Raises:
        InvalidInput: it has no time, no words, or a kind that means nothing.
    """
    row = _Row(record, mapping)
    at_ms = _moment_ms(row.needed("time"), mapping, given)
    text, kind, session = row.needed("text"), str(row.needed("kind")), str(row.needed("session"))
    kind, source_id = mapping.kinds.get(kind, kind), row.value("id")
    identity = (session, f"id:{source_id}") if source_id is not None else (digest_of(record),)
    envelope = {
        "event_id": derived_event_id(FORM, *identity),
        "event_type": kind,
        "occurred_at": timestamp_text(at_ms),
        "session_id": session,
        "trace_id": session,
        "agent_id": str(row.needed("agent")),
        "user_id": _text(row.value("user")) or given.user_id,
        "tool_name": _text(row.value("tool")),
        "status": _text(row.value("status")),
    }
    others = row.fields.others()
    wanted = others if mapping.options.payload is None else mapping.options.payload
    yield from (Unmapped(name, NOT_MAPPED) for name in others if name not in wanted)
    others = {name: value for name, value in others.items() if name in wanted}
    is_message = kind.startswith(_ROLES) and "." not in kind.removeprefix(_ROLES)
    role = {"role": kind.removeprefix(_ROLES)} if is_message else {}
    envelope["payload"] = fitting({**others, **role, "content" if role else "text": text})
    yield Mapped({name: value for name, value in envelope.items() if value is not None})


class _Row:
    """A row, and what its columns are."""

    def __init__(self, record: Any, mapping: RowMapping) -> None:
        self.fields = Fields(record)
        self._record = record
        self._mapping = mapping

    def value(self, name: str) -> Any:
        """Of the column that is so much, else the constant."""
        column = getattr(self._mapping.columns, name)
        value = None if column is None else self._at(column)
        return getattr(self._mapping.constants, name, None) if value is None else value

    def needed(self, name: str) -> Any:
        """As `value`.

        Raises:
            InvalidInput: there is none.
        """
        value = self.value(name)
        if value is None:
            raise InvalidInput(((getattr(self._mapping.columns, name) or name, "required"),))
        return value

    def _at(self, column: str) -> Any:
        """Of `a.b` the field of an object, unless a column is called so."""
        if column in self.fields or "." not in column:
            return self.fields.get(column)
        first, _, inside = column.partition(".")
        value: Any = self._record.get(first)
        if isinstance(value, Mapping) and len(value) == 1:
            self.fields.get(first)  # nothing else is in it
        for name in inside.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def _moment_ms(value: Any, mapping: RowMapping, given: Given) -> int:
    time_format = mapping.options.time_format
    try:
        if time_format is None:
            return moment_ms(value, given.zone)
        moment = datetime.strptime(str(value), time_format)  # noqa: DTZ007 - its zone follows
        return moment_ms(moment.isoformat(), given.zone)
    except ValueError as error:
        raise InvalidInput(((mapping.columns.time, str(error)),)) from None
