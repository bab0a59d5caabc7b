"""Tools that read what is known: facts with their times, and the page of an entity."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, Field

from api.mcp.arguments import MaxTokens, Name, OfUser, Position, Text
from api.mcp.asking import WAIT_MS, Unanswered
from api.mcp.calling import Call
from api.mcp.recalling import (
    MAX_FOUND,
    QUERIES,
    Found,
    Reading,
    cut_line,
    event_line,
    fitting_lines,
    node_found,
    timeline_event,
)
from api.mcp.remembering import Told


class FactsAsked(Reading):
    """A recall of facts."""

    about: Text = Field(description="A question or names: facts about what it names are found.")
    at: str | None = Field(
        default=None, max_length=64, description="What held then, RFC 3339; default now."
    )
    limit: int = Field(default=20, ge=1, le=100)


class KnownFact(BaseModel):
    """What one entity is to another, and when."""

    fact: str
    subject: str
    relation: str
    object: str
    valid_from: str
    valid_to: str | None
    confidence: float
    event_id: str = Field(description="The first event that says so.")


class FactsAnswer(BaseModel):
    """Facts, the best first."""

    text: str
    facts: list[KnownFact]
    truncated: bool


async def facts(call: Call, given: FactsAsked) -> Told:
    """What is known of the entities that a text names."""
    body = {
        "query": given.about,
        "session_id": given.session_id or call.defaults.session_id,
        "agent_id": call.agent(given.agent_id),
        "user_id": call.user(given.user_id),
        "at_timestamp": given.at,
        "max_facts": given.limit,
        "min_position": given.min_position,
        "timeout_ms": WAIT_MS,
    }
    document = await call.api.post(f"{QUERIES}/facts", body)
    recalled = [_fact(item) for item in document["facts"]]
    lines, is_whole = fitting_lines(map(_fact_line, recalled), given.max_tokens)
    content = FactsAnswer(
        text="\n".join(lines) or "No fact about that is known.",
        facts=recalled[: len(lines)],
        truncated=document["meta"]["truncated"] or not is_whole,
    )
    return Told(content.text, content)


def _fact(item: Mapping[str, Any]) -> KnownFact:
    return KnownFact(
        fact=item["fact"],
        subject=item["source"]["name"],
        relation=item["relation"],
        object=item["target"]["name"],
        valid_from=item["valid_from"],
        valid_to=item["valid_to"],
        confidence=item["confidence"],
        event_id=item["provenance"]["event_id"],
    )


def _fact_line(fact: KnownFact) -> str:
    until = "" if fact.valid_to is None else f" until {fact.valid_to[:10]}"
    when = f"since {fact.valid_from[:10]}{until}"
    return f"- {cut_line(fact.fact)} ({when}, confidence {fact.confidence:.2f}) [{fact.event_id}]"


class EntityAsked(OfUser):
    """One entity."""

    name: Name = Field(description="A person, service, thing; or `entity:<hash>` of an answer.")
    max_tokens: MaxTokens = 2_000
    min_position: Position = None


class EntityAnswer(BaseModel):
    """What is known of one entity, or which there are by names like that."""

    text: str
    entity_id: str | None = Field(description="Null: none by that name; `similar` may help.")
    name: str
    type: str | None
    aliases: list[str]
    facts: list[KnownFact]
    events: list[Found] = Field(description="That mention it, the newest first.")
    similar: list[str] = Field(description="Names that have words of the one asked for.")


async def entity(call: Call, given: EntityAsked) -> Told:
    """What is known of one entity; if nothing, what has such a name."""
    reference = given.name if given.name.startswith("entity:") else f"entity:{given.name}"
    try:
        page = await call.api.read(
            f"/v1/entities/{quote(reference, safe='')}",
            user_id=call.user(given.user_id),
            limit=MAX_FOUND,
            min_position=given.min_position,
            timeout_ms=WAIT_MS,
        )
    except Unanswered as error:
        if error.kind != "not-found":
            raise
        return await _similar(call, given)
    content = EntityAnswer(
        text="",
        entity_id=page["entity"]["entity_id"],
        name=page["entity"]["name"],
        type=page["entity"]["type"],
        aliases=sorted({alias["name"] for alias in page["aliases"]}),
        facts=[_fact(item) for item in page["facts"]],
        events=[node_found(node) for node in page["events"]],
        similar=[],
    )
    told = _entity_text(page, content, given.max_tokens)
    return Told(told, content.model_copy(update={"text": told}))


def _entity_text(page: Mapping[str, Any], content: EntityAnswer, max_tokens: int) -> str:
    mentions = page["entity"]["mention_count"]
    lines = [f"{content.name} ({content.type or 'unknown'}), in {mentions} events"]
    if content.aliases:
        lines.append(f"Also known as: {', '.join(content.aliases)}")
    lines += map(_fact_line, content.facts)
    lines.append("Events, the newest first:")
    lines += [event_line(timeline_event(node)) for node in page["events"]]
    return "\n".join(fitting_lines(lines, max_tokens)[0])


async def _similar(call: Call, given: EntityAsked) -> Told:
    document = await call.api.read(
        "/v1/entities",
        query=given.name.removeprefix("entity:"),
        user_id=call.user(given.user_id),
        limit=MAX_FOUND,
        timeout_ms=WAIT_MS,
        record_access=False,
    )
    names = [f"{item['name']} ({item['type']})" for item in document["entities"]]
    text = f"No entity by the name {given.name} is known."
    if names:
        text += f" Similar names: {', '.join(names)}."
    content = EntityAnswer(
        text=text,
        entity_id=None,
        name=given.name,
        type=None,
        aliases=[],
        facts=[],
        events=[],
        similar=names,
    )
    return Told(text, content)
