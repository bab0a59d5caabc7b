"""The tools that read what is known: facts with their times, and a person."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from pydantic import BaseModel, Field

from api.mcp.api_client import WAIT_MS, Unanswered
from api.mcp.arguments import MaxTokens, OfUser, Position, Text
from api.mcp.read_tools import MAX_FOUND, QUERIES, Reading, cut_line, fitting_lines
from api.mcp.tool_call import Call, required_user
from api.mcp.write_tools import Told


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
    similar: list[str] = Field(description="Names with words of what was asked, if no fact is.")
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
    names = [] if recalled else await _similar(call, given)
    nothing = "No fact about that is known."
    if names:
        nothing += f" Known names like that: {', '.join(names)}."
    content = FactsAnswer(
        text="\n".join(lines) or nothing,
        facts=recalled[: len(lines)],
        similar=names,
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


class PersonAsked(OfUser):
    """Whom it is asked about: `user_id`."""

    max_tokens: MaxTokens = 500
    min_position: Position = None


class PersonAnswer(BaseModel):
    """What is known of a user."""

    text: str = Field(description="What to do, what not, and what holds, each with its event.")
    names: list[str]
    wishes: list[KnownFact] = Field(description="What the user prefers and avoids.")
    facts: list[KnownFact] = Field(description="What else holds, the newest first.")


async def person(call: Call, given: PersonAsked) -> Told:
    """What is known of the user, for whoever serves them."""
    user_id = required_user(call, given.user_id, "whom it is asked about")
    path = f"/v1/users/{quote(user_id, safe='')}"
    parameters = {"min_position": given.min_position, "timeout_ms": WAIT_MS}
    try:
        document = await call.api.read(path, **parameters)
    except Unanswered as error:
        if error.kind != "not-found":
            raise
        unknown = PersonAnswer(text="Nothing is known of this user.", names=[], wishes=[], facts=[])
        return Told(unknown.text, unknown)
    text = await call.api.read_text(
        f"{path}/context", **parameters, max_tokens=given.max_tokens, record_access=False
    )
    content = PersonAnswer(
        text=text,
        names=document["names"],
        wishes=list(map(_fact, document["wishes"])),
        facts=list(map(_fact, document["facts"])),
    )
    return Told(text, content)


async def _similar(call: Call, given: FactsAsked) -> list[str]:
    """Names of entities that have words of a text."""
    document = await call.api.read(
        "/v1/entities",
        query=given.about,
        user_id=call.user(given.user_id),
        limit=MAX_FOUND,
        timeout_ms=WAIT_MS,
        record_access=False,
    )
    return [f"{item['name']} ({item['type']})" for item in document["entities"]]
