"""Tools that write: each appends one event to the ledger, and changes nothing that is there."""

from __future__ import annotations

from typing import Any, Final, Literal, NamedTuple
from urllib.parse import quote

from pydantic import BaseModel, Field, JsonValue, model_validator

from api.mcp.tool_call import WAIT_MS, Call, EventId, InSession, Name, Unanswered, required_user
from enrichment.names import EntityType
from enrichment.payloads import ENTITY_CORRECTED, FACT_ASSERTED, FACT_RETRACTED
from pipelines.ledger.erasing import ERASURE_REQUESTED
from projections.events import MAX_NAME_CHARACTERS
from projections.records import MAX_REASON_CHARACTERS

MAX_CONTENT_CHARACTERS = 200_000
"""Of a text to remember: with its envelope it stays below what an event may hold."""
MAX_JUDGED_AT_ONCE = 100


_OF_USER: Final = "message.user"
_SPEAKERS: Final = {_OF_USER: "user", "message.system": "system"}
"""By type: whose words an event holds that are not the agent's own. "I" in them is the user, by
whose id they are said where it is known, as at every door; or nobody."""


class Told(NamedTuple):
    """What a tool answers: text for a model, and the same for a program."""

    text: str
    content: BaseModel


class Remembered(BaseModel):
    """Where it stands in the ledger."""

    event_id: str
    session_id: str | None
    position: str = Field(description="Give it to a read, and that read knows the event.")
    duplicate: bool = Field(description="It was there already: nothing was added.")


class Writing(InSession):
    """Of a tool that appends an event."""

    event_id: EventId | None = Field(
        default=None,
        description="A UUID. With one, calling again with the same arguments adds nothing.",
    )


class Remember(Writing):
    """One thing that happened."""

    kind: Literal["message", "tool_call", "tool_result", "decision", "note"] = "message"
    text: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_CONTENT_CHARACTERS,
        description="The words, as they are. Required, but for a tool_call or tool_result.",
    )
    role: Literal["user", "assistant", "system"] = Field(
        default="user", description="Of a message: who said it."
    )
    tool_name: Name | None = Field(default=None, description="Of a tool_call or tool_result.")
    arguments: JsonValue = Field(default=None, description="Of a tool_call.")
    result: JsonValue = Field(default=None, description="Of a tool_result; an error's as well.")
    status: Literal["pending", "running", "completed", "failed", "timeout"] | None = Field(
        default=None, description="How a tool ended: failed and timeout are asked for most."
    )
    parent_event_id: EventId | None = Field(
        default=None, description="The event that caused this one, when you know it."
    )
    occurred_at: str | None = Field(
        default=None, max_length=64, description="RFC 3339 with zone; default now."
    )
    importance: int | None = Field(default=None, ge=1, le=10)

    @model_validator(mode="after")
    def _says_something(self) -> Remember:
        if self.kind in ("tool_call", "tool_result"):
            if self.tool_name is None:
                raise ValueError(f"tool_name: required of a {self.kind}")
        elif self.text is None:
            raise ValueError(f"text: required of a {self.kind}")
        return self

    def event(self) -> tuple[str, JsonValue]:
        """Type and payload of the event."""
        match self.kind:
            case "message":
                return f"message.{self.role}", {"role": self.role, "content": self.text}
            case "tool_call":
                return "tool.call", {"arguments": self.arguments, **self._words()}
            case "tool_result" if self.status in ("failed", "timeout"):
                error = self.text if self.result is None else self.result
                return "tool.result", {"error": error, **self._words()}
            case "tool_result":
                return "tool.result", {"result": self.result, **self._words()}
        return f"agent.{self.kind}", {"text": self.text}

    def _words(self) -> dict[str, JsonValue]:
        return {} if self.text is None else {"text": self.text}


async def remember(call: Call, given: Remember) -> Told:
    """Append an event of an agent."""
    event_type, payload = given.event()
    fields = {
        "tool_name": given.tool_name,
        "status": given.status,
        "parent_event_id": given.parent_event_id,
        "occurred_at": given.occurred_at,
        "importance_hint": given.importance,
    }
    return await _append(call, given, event_type, payload=payload, effect="Remembered", **fields)


async def _append(
    call: Call, given: Writing, event_type: str, *, payload: JsonValue, effect: str, **fields: Any
) -> Told:
    agent_id, user_id = call.agent(given.agent_id), call.user(given.user_id)
    session_id = call.session(given.session_id, agent_id, user_id)
    envelope = {
        "event_type": event_type,
        "session_id": session_id,
        "agent_id": (event_type == _OF_USER and user_id) or _SPEAKERS.get(event_type, agent_id),
        "trace_id": session_id,
        "user_id": user_id,
        "payload": payload,
        **fields,
    }
    accepted = await call.append(envelope, given.event_id)
    content = Remembered(
        event_id=accepted["event_id"],
        session_id=session_id,
        position=accepted["global_position"],
        duplicate=accepted["duplicate"],
    )
    if content.duplicate:
        effect = "It was there already"
    return Told(f"{effect}: event {content.event_id} in session {session_id}.", content)


class Correct(Writing):
    """A statement about the world that outranks what was concluded, or about an answer."""

    action: Literal["state_fact", "retract_fact", "rename_entity", "useful", "not_useful"]
    subject: Name | None = Field(
        default=None, description="The entity by name, or `entity:<hash>` as answers have it."
    )
    relation: str | None = Field(
        default=None, max_length=256, description="Of a fact, as `works_at`, `owns`, `lives_in`."
    )
    object: Name | None = Field(
        default=None,
        description="Of a fact: the other entity by name. To retract what holds one value at a "
        "time it may be left out.",
    )
    new_name: Name | None = Field(default=None, description="Of rename_entity.")
    node_ids: list[str] = Field(
        default_factory=list,
        max_length=MAX_JUDGED_AT_ONCE,
        description="Of useful and not_useful: which nodes of an answer were.",
    )
    subject_type: EntityType | None = Field(default=None, description="Default: as it is known.")
    object_type: EntityType | None = Field(default=None, description="Default: as it is known.")
    reason: str | None = Field(default=None, min_length=1, max_length=MAX_REASON_CHARACTERS)

    @model_validator(mode="after")
    def _says_something(self) -> Correct:
        needed = {
            "state_fact": ("subject", "relation", "object"),
            "retract_fact": ("subject", "relation"),
            "rename_entity": ("subject", "new_name"),
        }.get(self.action, ("node_ids",))
        missing = [name for name in needed if getattr(self, name) in (None, [])]
        if missing:
            raise ValueError(f"{', '.join(missing)}: required to {self.action}")
        return self


async def correct(call: Call, given: Correct) -> Told:
    """Append a correction; the graph follows when the enrichment has read it."""
    if given.subject is None or given.action in ("useful", "not_useful"):
        return await _judged(call, given)
    user_id = call.user(given.user_id)
    subject = await _named(call, given.subject, given.subject_type, user_id)
    if given.action == "rename_entity":
        if "entity_id" not in subject:
            raise Unanswered("not-found", f"No entity by the name {given.subject!r} is known.")
        renamed: dict[str, Any] = {"entity_id": subject["entity_id"], "correction": "rename"}
        renamed |= {"name": given.new_name} | _reason(given)
        return await _append(call, given, ENTITY_CORRECTED, payload=renamed, effect="Renamed")
    fact: dict[str, Any] = {"source": _party(subject), "relation": given.relation}
    if given.object is not None:
        fact["target"] = _party(await _named(call, given.object, given.object_type, user_id))
    if given.action == "retract_fact":
        fact |= _reason(given)
        return await _append(call, given, FACT_RETRACTED, payload=fact, effect="Retracted")
    fact["source_kind"] = "user_edit"
    return await _append(call, given, FACT_ASSERTED, payload=fact, effect="Stated")


def _reason(given: Correct) -> dict[str, Any]:
    return {} if given.reason is None else {"reason": given.reason}


async def _named(
    call: Call, name: str, entity_type: str | None, user_id: str | None
) -> dict[str, Any]:
    """An entity by name or id, as it is known; one that is not is a concept by that name."""
    reference = name if name.startswith("entity:") else f"entity:{name}"
    entity: dict[str, Any] = {}
    if len(reference) <= MAX_NAME_CHARACTERS:
        path = f"/v1/entities/{quote(reference, safe='')}"
        try:
            page = await call.api.read(
                path,
                user_id=user_id,
                limit=1,
                max_facts=0,
                timeout_ms=WAIT_MS,
                record_access=False,
            )
            entity = page["entity"]
        except Unanswered as error:
            if error.kind != "not-found" or name.startswith("entity:"):
                raise
    if not entity or entity_type not in (None, entity["type"]):
        return {"name": name, "type": entity_type or "concept"}
    return entity


def _party(entity: dict[str, Any]) -> dict[str, Any]:
    names = ("name", "type", "subtype")
    return {name: entity[name] for name in names if entity.get(name) is not None}


async def _judged(call: Call, given: Correct) -> Told:
    fields = {given.action: given.node_ids, "comment": given.reason, "event_id": given.event_id}
    accepted = await call.api.post("/v1/feedback", fields)
    content = Remembered(
        event_id=accepted["event_id"],
        session_id=None,
        position=accepted["global_position"],
        duplicate=accepted["duplicate"],
    )
    return Told(f"Noted: event {content.event_id}.", content)


class ForgetMe(Writing):
    """The wish of a user to be forgotten."""

    reason: str | None = Field(default=None, min_length=1, max_length=MAX_REASON_CHARACTERS)


async def forget_me(call: Call, given: ForgetMe) -> Told:
    """Record that the user wants to be forgotten; people decide, and erase."""
    required_user(call, given.user_id, "whose memory is to be erased")
    words = given.reason or "The user wants to be forgotten."
    told = await _append(
        call, given, ERASURE_REQUESTED, payload={"text": words}, effect="The wish is recorded"
    )
    text = f"{told.text} Nothing is erased yet: an operator does that, and it cannot be undone."
    return Told(text, told.content)
