"""The event envelope: parse, validate, canonical form, upcast.

An event has one canonical form: RFC 8785 JSON of its fields, absent ones left out. The ledger
stores these bytes and nothing else, and two events are the same when their bytes are the same.

System events are what Recollect itself decided. They live under `memory.`, never become Event
nodes, and stay out of FOLLOWS and enrichment. A type in their table is applied by its owner and
passed by every other stage; a type that is not here is dead-lettered once, by the projection.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from hashlib import blake2b
from operator import itemgetter
from typing import Any, Final, NamedTuple

import orjson
import rfc8785

from projections.errors import InvalidEvent, UndecodableEntry
from projections.identity import partition_of
from projections.times import EPOCH, MILLISECOND
from projections.times import LAST_MS as LAST_MS
from projections.times import timestamp_ms as timestamp_ms
from projections.times import timestamp_text as timestamp_text

NAMESPACE = "memory."
PARTITION_KEY = "memory"
"""System events of a tenant go to the partition of (tenant, this)."""


class SystemEvent(NamedTuple):
    """One row: `owner` is the stage that applies it, `public` that producers may send it."""

    owner: str
    public: bool
    meaning: str


SYSTEM_EVENTS: dict[str, SystemEvent] = {
    "memory.accessed": SystemEvent("consolidation", False, "nodes were returned by a read"),
    "memory.feedback": SystemEvent("consolidation", True, "a reader judged an answer"),
    "memory.fact_asserted": SystemEvent("enrichment", True, "a producer states a fact"),
    "memory.fact_retracted": SystemEvent("enrichment", True, "a producer withdraws a fact"),
    "memory.entity_corrected": SystemEvent("enrichment", True, "a person corrected an entity"),
    "memory.same_as": SystemEvent("enrichment", False, "two entities were found to be the same"),
    "memory.consolidation_requested": SystemEvent("consolidation", True, "a pass is asked for"),
    "memory.consolidated": SystemEvent("consolidation", False, "a summary was written"),
    "memory.forgotten": SystemEvent("consolidation", False, "nodes left the graph"),
    "memory.recalled": SystemEvent("consolidation", False, "forgotten nodes came back"),
    "memory.erased": SystemEvent("consolidation", False, "a person's data was erased"),
    "memory.gap_recorded": SystemEvent("projection", False, "entries that Redis lost"),
    "memory.graph_cleared": SystemEvent("projection", False, "a graph was emptied"),
}


def is_system_event(event_type: str) -> bool:
    """Whether the type lies in Recollect's own namespace."""
    return event_type.startswith(NAMESPACE)


MAX_PAYLOAD_BYTES = 256 * 1024
MAX_PAYLOAD_DEPTH = 100
MAX_NAME_CHARACTERS = 512
MAX_PAYLOAD_REF_CHARACTERS = 2_048
MAX_FUTURE_MS = 300_000
MAX_SAFE_NUMBER = 2**53 - 1
DEFAULT_TENANT = "default"
EVERYONE: Final = "*"
"""Named as the user of a read, an operator's view: over all users, and what mixes them."""
STATUSES = ("pending", "running", "completed", "failed", "timeout")
DIGEST_BYTES = 16

_EVENT_TYPE = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)+")
TENANT = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


class Event(NamedTuple):
    """A validated event. Times are milliseconds since the epoch, UTC."""

    tenant: str
    event_id: str
    event_type: str
    occurred_at_ms: int
    session_id: str
    agent_id: str
    trace_id: str
    schema_version: int = 1
    tool_name: str | None = None
    parent_event_id: str | None = None
    ended_at_ms: int | None = None
    status: str | None = None
    importance_hint: int | None = None
    user_id: str | None = None
    consent_ref: str | None = None
    payload_ref: str | None = None
    payload: Any = None

    @property
    def key(self) -> tuple[str, str]:
        """What identifies the event: (tenant, event_id)."""
        return (self.tenant, self.event_id)

    @property
    def tool(self) -> str | None:
        """The tool that it is of: `tool_name`, else what the payload of a tool's event names."""
        if self.tool_name is not None or not is_tool_type(self.event_type):
            return self.tool_name
        return _tool_named(self.payload)


class EventKind(StrEnum):
    """What an event is, as `enrichment.event_kinds` decides; stored as `kind` of its node."""

    MESSAGE = "message"
    """Words from one participant to another."""
    INSTRUCTION = "instruction"
    """What an agent must keep to: a system or developer message."""
    THOUGHT = "thought"
    """Reasoning, a plan: an agent's words to itself."""
    DECISION = "decision"
    """What an agent, or a person, settled on."""
    CALL = "call"
    """A tool is asked for something. It may hold what came of it, and fail (its status tells)."""
    RESULT = "result"
    """What a tool, or another operation, returned."""
    FAILURE = "failure"
    """A tool, or another operation, did not do what it was to do."""
    OTHER = "other"
    """Any other thing that happened."""


TOOL_USE: Final = frozenset((EventKind.CALL, EventKind.RESULT, EventKind.FAILURE))
"""Kinds whose payload is arguments, values returned or errors, and not language."""


def is_tool_type(event_type: str) -> bool:
    """Whether a type has the word `tool` or `function`."""
    return _OF_TOOL.search(event_type) is not None


_OF_TOOL = re.compile(r"(?:^|[._])(?:tool|function)(?:[._]|$)")
TOOL_KEYS = ("tool_name", "tool", "name")
"""Where the payload of a call or a result names its tool; `name` is often that of a thing."""
_BESIDE_NAME = frozenset(
    ("arguments", "args", "input", "parameters", "result", "output", "error", "tool_call_id")
)
"""What makes the `name` beside it that of a tool."""


def _tool_named(payload: Any) -> str | None:
    if not isinstance(payload, dict):
        return None
    for key in TOOL_KEYS:
        value = payload.get(key)
        if not isinstance(value, str) or not 1 <= len(value) <= MAX_NAME_CHARACTERS:
            continue
        if CONTROL.search(value) is None and (
            key != "name" or not _BESIDE_NAME.isdisjoint(payload)
        ):
            return value
    return None


FIELDS = frozenset(
    name.removesuffix("_ms") if name.endswith("_at_ms") else name for name in Event._fields
)
"""Names an envelope may carry; any other is rejected."""


def canonical_json(value: Any, deepest: int = MAX_PAYLOAD_DEPTH) -> bytes:
    """RFC 8785 bytes of a JSON value that is nested at most `deepest` levels.

    orjson with sorted keys writes the same bytes unless there is a float or a key beyond ASCII;
    those take the slower library (`tests/properties` compares the two on the rest).

    Raises:
        ValueError: naming the rule that the value breaks.
    """
    plain = True
    depth, level = 0, [value]
    while level:
        depth += 1
        if depth > deepest:
            raise ValueError(f"nested at most {deepest} levels deep")
        level, plain_level = _level_below(level)
        plain &= plain_level
    try:
        if plain:
            return orjson.dumps(value, option=orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER)
        return rfc8785.dumps(value)
    except (orjson.JSONEncodeError, rfc8785.CanonicalizationError, UnicodeError) as error:
        raise ValueError(_encoding_rule(error)) from error


def _level_below(level: Sequence[Any]) -> tuple[list[Any], bool]:
    """What values hold, and whether orjson writes them as RFC 8785 does."""
    below: list[Any] = []
    plain = True
    for item in level:
        kind = type(item)
        if kind is dict:
            for key in item:
                if type(key) is not str:
                    raise ValueError("object keys are strings")
                if not key.isascii():
                    plain = False
            below.extend(item.values())
        elif kind is list or kind is tuple:
            below.extend(item)
        elif kind is float:
            plain = False
            if not -MAX_SAFE_NUMBER <= item <= MAX_SAFE_NUMBER:  # NaN fails this too
                raise ValueError("numbers lie within ±(2^53 - 1); send others as strings")
    return below, plain


def _encoding_rule(error: Exception) -> str:
    text = str(error).lower()
    if "53" in text or "integer" in text or "range" in text:
        return "numbers lie within ±(2^53 - 1); send others as strings"
    if "utf" in text or "surrogate" in text or isinstance(error, UnicodeError):
        return "strings are valid Unicode (no lone surrogates)"
    return f"a JSON value ({error})"


def content_digest(canonical: bytes) -> bytes:
    """BLAKE2b-128 of the canonical form: equal digests, equal content."""
    return blake2b(canonical, digest_size=DIGEST_BYTES).digest()


def encode_event(event: Event) -> bytes:
    """The canonical form of an event, as the ledger stores it.

    Raises:
        ValueError: when the payload breaks a rule of canonical JSON.
    """
    return encode_fields(as_envelope(event), event.payload)


def encode_fields(fields: Mapping[str, Any], payload: Any = None) -> bytes:
    """Canonical JSON of fields of an envelope, of which only the payload has to be examined.

    Raises:
        ValueError: when the payload breaks a rule of canonical JSON.
    """
    if _is_plain(payload):
        # The other fields are checked strings and small integers: nothing is left to examine.
        try:
            return orjson.dumps(fields, option=_PLAIN)
        except orjson.JSONEncodeError as error:
            raise ValueError(_encoding_rule(error)) from error
    return canonical_json(fields, MAX_PAYLOAD_DEPTH + 1)  # the envelope is a level too


_PLAIN = orjson.OPT_SORT_KEYS | orjson.OPT_STRICT_INTEGER
_SIMPLE = frozenset((str, int, bool, type(None)))
_PLAIN_DEPTH = 20


def _is_plain(value: Any, depth: int = _PLAIN_DEPTH) -> bool:
    """Whether orjson writes the RFC 8785 form: no float, no key beyond ASCII, not deep."""
    kind = type(value)
    if kind in _SIMPLE:
        return True
    if depth == 0:
        return False
    if kind is dict:
        for key in value:
            if type(key) is not str or not key.isascii():
                return False
        value = value.values()
    elif kind is not list and kind is not tuple:
        return False
    for item in value:  # noqa: SIM110  # `all` of a generator takes twice as long
        if type(item) not in _SIMPLE and not _is_plain(item, depth - 1):
            return False
    return True


def as_envelope(event: Event) -> dict[str, Any]:
    """The event as an envelope: field names and types of the wire, absent fields left out."""
    return personal_fields(event, skeleton_fields(event))


def skeleton_fields(event: Event) -> dict[str, Any]:
    """The fields of an envelope that nobody is told by, which stay readable in a sealed entry."""
    # Written out, because every append does this for every event: a loop over the names takes
    # four times as long. A test compares the names with those of `Event`.
    fields: dict[str, Any] = {
        "tenant": event.tenant,
        "event_id": event.event_id,
        "event_type": event.event_type,
        "occurred_at": timestamp_text(event.occurred_at_ms),
        "session_id": event.session_id,
        "agent_id": event.agent_id,
        "trace_id": event.trace_id,
        "schema_version": event.schema_version,
    }
    if event.tool_name is not None:
        fields["tool_name"] = event.tool_name
    if event.parent_event_id is not None:
        fields["parent_event_id"] = event.parent_event_id
    if event.ended_at_ms is not None:
        fields["ended_at"] = timestamp_text(event.ended_at_ms)
    if event.status is not None:
        fields["status"] = event.status
    if event.importance_hint is not None:
        fields["importance_hint"] = event.importance_hint
    return fields


def personal_fields(event: Event, fields: dict[str, Any]) -> dict[str, Any]:
    """The given fields and the others of an envelope: what somebody gave, or is told by."""
    if event.user_id is not None:
        fields["user_id"] = event.user_id
    if event.consent_ref is not None:
        fields["consent_ref"] = event.consent_ref
    if event.payload_ref is not None:
        fields["payload_ref"] = event.payload_ref
    if event.payload is not None:
        fields["payload"] = event.payload
    return fields


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]
"""Takes an envelope of version n and returns it as version n + 1 (`schema_version` is set by the
caller). Pure; never changes event_id, tenant, session_id or occurred_at."""

UPCASTERS: Mapping[tuple[str, int], Upcaster] = {}
"""By (event_type, schema_version it upgrades from). The ledger keeps what was written."""


def upcast(
    envelope: dict[str, Any], upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS
) -> dict[str, Any]:
    """Bring an envelope to the newest version that is known for its type."""
    while True:
        version = envelope.get("schema_version", 1)
        step = upcasters.get((envelope.get("event_type", ""), version))
        if step is None:
            return envelope
        envelope = {**step(dict(envelope)), "schema_version": version + 1}


def decode_event(
    data: bytes,
    upcasters: Mapping[tuple[str, int], Upcaster] = UPCASTERS,
    *,
    partition: int = -1,
    position: str = "?",
) -> Event:
    """The event of a ledger entry, upcast. Trusts what `parse_event` once accepted.

    Raises:
        UndecodableEntry: when the bytes are no event.
    """
    try:
        raw = orjson.loads(data)
        if upcasters:
            raw = upcast(raw, upcasters)
        fields = {**_ABSENT, **raw}
        fields["occurred_at_ms"] = (
            datetime.fromisoformat(raw["occurred_at"]) - EPOCH
        ) // MILLISECOND
        if "ended_at" in raw:
            fields["ended_at_ms"] = (datetime.fromisoformat(raw["ended_at"]) - EPOCH) // MILLISECOND
        # by name; a call with 17 keywords would take a fifth of the whole longer
        event = tuple.__new__(Event, _by_name(fields))
        # keys are hashed and stored before anything else looks at them
        if not (
            type(event.tenant) is type(event.event_id) is type(event.event_type) is str
            and type(event.session_id) is str
        ):
            raise TypeError("a number or an object where a string belongs")
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
        reason = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise UndecodableEntry(partition=partition, position=position, reason=reason) from error
    return event


_ABSENT = Event._field_defaults
_by_name = itemgetter(*Event._fields)


def parse_event(raw: Any, *, now_ms: int, tenant: str | None = None) -> Event:
    """Validate an envelope as a producer sends it.

    Args:
        raw: decoded JSON.
        now_ms: the clock, for the limit on the future.
        tenant: the tenant of the caller's key; an envelope that names another is refused.
            None: the envelope's own, else `default`.

    Raises:
        InvalidEvent: with every broken rule, each by field.
    """
    if not isinstance(raw, Mapping):
        raise InvalidEvent((("(event)", "a JSON object"),))
    check = _Check(raw)
    for name in raw:
        if name not in FIELDS:
            check.refuse(str(name)[:80], "unknown field")
    event = Event(
        tenant=check.tenant(tenant),
        event_id=check.uuid("event_id", required=True) or "",
        event_type=check.event_type(),
        occurred_at_ms=check.time("occurred_at", required=True, latest=now_ms + MAX_FUTURE_MS) or 0,
        session_id=check.name("session_id", required=True) or "",
        agent_id=check.name("agent_id", required=True) or "",
        trace_id=check.name("trace_id", required=True) or "",
        schema_version=check.integer("schema_version", 1, 2**31 - 1) or 1,
        tool_name=check.name("tool_name"),
        parent_event_id=check.uuid("parent_event_id"),
        ended_at_ms=check.time("ended_at", latest=now_ms + MAX_FUTURE_MS),
        status=check.choice("status", STATUSES),
        importance_hint=check.integer("importance_hint", 1, 10),
        user_id=check.name("user_id"),
        consent_ref=check.name("consent_ref"),
        payload_ref=check.name("payload_ref", longest=MAX_PAYLOAD_REF_CHARACTERS),
        payload=check.payload(),
    )
    if event.parent_event_id and event.parent_event_id == event.event_id:
        check.refuse("parent_event_id", "differs from event_id")
    if event.user_id == EVERYONE:  # reads would take that user's view for an operator's
        check.refuse("user_id", f"not {EVERYONE}, which names everybody")
    if event.ended_at_ms is not None and event.ended_at_ms < event.occurred_at_ms:
        check.refuse("ended_at", "not before occurred_at")
    if check.errors:
        raise InvalidEvent(tuple(check.errors))
    return event


class _Check:
    """The rules of the envelope, one method a kind of field; collects what is broken."""

    def __init__(self, raw: Mapping[str, Any]) -> None:
        self.raw = raw
        self.errors: list[tuple[str, str]] = []

    def refuse(self, field: str, rule: str) -> None:
        self.errors.append((field, rule))

    def text(self, field: str, required: bool) -> str | None:
        value = self.raw.get(field)
        if value is None:
            if required:
                self.refuse(field, "required")
            return None
        if not isinstance(value, str):
            self.refuse(field, "a string")
            return None
        return value

    def name(
        self, field: str, *, required: bool = False, longest: int = MAX_NAME_CHARACTERS
    ) -> str | None:
        value = self.text(field, required)
        if value is None:
            return None
        if not 1 <= len(value) <= longest:
            self.refuse(field, f"1 to {longest:,} characters")
        elif CONTROL.search(value):
            self.refuse(field, "no control characters or lone surrogates")
        return value

    def tenant(self, owner: str | None) -> str:
        value = self.text("tenant", required=False)
        if value is None:
            return owner or DEFAULT_TENANT
        if TENANT.fullmatch(value) is None:
            self.refuse("tenant", f"matches ^{TENANT.pattern}$")
        elif owner is not None and value != owner:
            self.refuse("tenant", "the tenant of the caller")
        return value

    def uuid(self, field: str, *, required: bool = False) -> str | None:
        value = self.text(field, required)
        if value is None:
            return None
        value = value.lower()
        if _UUID.fullmatch(value) is None:
            self.refuse(field, "a UUID of 36 characters")
        return value

    def event_type(self) -> str:
        value = self.text("event_type", required=True)
        if value is None:
            return ""
        if len(value) > MAX_NAME_CHARACTERS:
            self.refuse("event_type", f"1 to {MAX_NAME_CHARACTERS} characters")
        elif _EVENT_TYPE.fullmatch(value) is None:
            self.refuse("event_type", f"dot-namespaced, ^{_EVENT_TYPE.pattern}$")
        return value

    def time(self, field: str, *, required: bool = False, latest: int | None = None) -> int | None:
        value = self.text(field, required)
        if value is None:
            return None
        try:
            ms = timestamp_ms(value)
        except ValueError as error:
            self.refuse(field, str(error))
            return None
        if latest is not None and ms > latest:
            self.refuse(field, f"at most {MAX_FUTURE_MS // 1000} s in the future")
        return ms

    def integer(self, field: str, least: int, most: int) -> int | None:
        value = self.raw.get(field)
        if value is None:
            return None
        if type(value) is not int or not least <= value <= most:
            self.refuse(field, f"an integer from {least} to {most}")
            return None
        return value

    def choice(self, field: str, allowed: Iterable[str]) -> str | None:
        value = self.raw.get(field)
        if value is not None and value not in allowed:
            self.refuse(field, f"one of {', '.join(allowed)}")
            return None
        return value

    def payload(self) -> Any:
        value = self.raw.get("payload")
        if value is None:
            return None
        try:
            size = len(canonical_json(value))
        except ValueError as error:
            self.refuse("payload", str(error))
            return None
        if size > MAX_PAYLOAD_BYTES:
            self.refuse("payload", f"at most {MAX_PAYLOAD_BYTES // 1024} KiB serialised")
        return value


def derived_event_id(*parts: str) -> str:
    """UUIDv5 of what an event is about, so that making it twice makes the same event."""
    return str(uuid.uuid5(_NAMESPACE, "\x1f".join(parts)))


_NAMESPACE = uuid.UUID("5f0c5f4e-6b1e-5c39-9d0a-6a0f5b3a7e21")


def event_partition(event: Event, partitions: int) -> int:
    """The partition an event is appended to: its session's, or the tenant's for a system event."""
    if event.event_type.startswith(NAMESPACE):
        return partition_of(event.tenant, PARTITION_KEY, partitions)
    return partition_of(event.tenant, event.session_id, partitions)
