"""One call of a tool: whom it asks, for whom, and with which arguments.

The HTTP API is asked by one client, whether it is elsewhere or this very app. A model of arguments
refuses what it does not know.
"""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Annotated, Any, Final, NamedTuple
from uuid import uuid4

import httpx2
import orjson
from pydantic import BaseModel, ConfigDict, Field
from pydantic.json_schema import GenerateJsonSchema

from projections.events import MAX_NAME_CHARACTERS, timestamp_text

JSON_TYPE: Final = "application/json"
MARKDOWN_TYPE: Final = "text/markdown"
TIMEOUTS: Final = httpx2.Timeout(45.0, connect=5.0)
"""Seconds; a read may ask for 30 of them, and the API has some to say that it was too long."""
WAIT_MS: Final = 20_000
"""That a read may take, be it the first of its kind: a model waits longer than a program, and has
no use for half an answer."""
MAX_RULES: Final = 10
"""Broken rules that a model is told of at once."""


class Unanswered(Exception):
    """The API did not do what a tool was called for.

    Args:
        kind: of the problem, as the API names it (`not-found`); empty: it said nothing.
        text: what a model, or a person, needs to know to do better.
    """

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(text)
        self.kind = kind
        self.text = text


class Asking:
    """Requests to the API, as one caller.

    Args:
        client: with the address of the API.
        headers: of every request: the caller's key and tenant.
    """

    def __init__(
        self, client: httpx2.AsyncClient, headers: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self._client = client
        self._headers = headers

    async def read(self, path: str, **parameters: Any) -> dict[str, Any]:
        """What a route answers to GET; parameters that are None are left out.

        Raises:
            Unanswered: it does not.
        """
        return _document(await self._send("GET", path, _queried(parameters)))

    async def read_text(self, path: str, **parameters: Any) -> str:
        """As `read`, in Markdown."""
        return (await self._send("GET", path, _queried(parameters), accept=MARKDOWN_TYPE)).text

    async def post(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """What a route answers to a body; fields that are None are left out.

        Raises:
            Unanswered: it does not.
        """
        return _document(await self._send("POST", path, body=_encoded(body)))

    async def post_for_text(self, path: str, body: Mapping[str, Any]) -> str:
        """As `post`, in Markdown."""
        return (await self._send("POST", path, body=_encoded(body), accept=MARKDOWN_TYPE)).text

    async def readiness(self) -> dict[str, Any]:
        """How the API is, ready or not.

        Raises:
            Unanswered: it does not say.
        """
        response = await self._request("GET", "/health/ready")
        document = _document(response)
        if "checks" not in document:
            raise _unanswered(response)
        return document

    async def _send(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] = MappingProxyType({}),
        *,
        body: bytes | None = None,
        accept: str = JSON_TYPE,
    ) -> httpx2.Response:
        response = await self._request(method, path, parameters, body=body, accept=accept)
        if not response.is_success:
            raise _unanswered(response)
        return response

    async def _request(
        self,
        method: str,
        path: str,
        parameters: Mapping[str, Any] = MappingProxyType({}),
        *,
        body: bytes | None = None,
        accept: str = JSON_TYPE,
    ) -> httpx2.Response:
        headers = {**self._headers, "accept": accept}
        if body is not None:
            headers["content-type"] = JSON_TYPE
        try:
            return await self._client.request(
                method, path, params=dict(parameters), content=body, headers=headers
            )
        except httpx2.TimeoutException:
            raise Unanswered("", "The memory did not answer in time; try again.") from None
        except httpx2.TransportError as error:
            where = self._client.base_url
            raise Unanswered("", f"The memory is not reached at {where}: {error}") from None


def _queried(parameters: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in parameters.items() if value is not None}


def _encoded(body: Mapping[str, Any]) -> bytes:
    try:
        return orjson.dumps(_queried(body))
    except TypeError as error:  # an integer beyond 64 bits, half a character
        raise Unanswered("invalid-input", f"This cannot be sent as JSON: {error}") from None


def _document(response: httpx2.Response) -> dict[str, Any]:
    try:
        document = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        document = None
    if not isinstance(document, dict):
        raise _unanswered(response)
    return document


def _unanswered(response: httpx2.Response) -> Unanswered:
    """A problem (RFC 9457) in words."""
    try:
        problem = orjson.loads(response.content)
    except orjson.JSONDecodeError:
        problem = None
    if not isinstance(problem, dict) or "title" not in problem:
        return Unanswered("", f"Status {response.status_code}, and no word of Recollect.")
    kind = str(problem.get("type", "")).rpartition(":")[2]
    lines = [f"{problem['title']}. {problem.get('detail') or ''}".strip()]
    rules = problem.get("errors") or []
    lines += [f"- {rule['field']}: {rule['rule']}" for rule in rules[:MAX_RULES]]
    wait_s = response.headers.get("retry-after")
    if wait_s is not None:
        lines.append(f"Try again in {wait_s} s.")
    return Unanswered(kind, "\n".join(lines))


class Defaults(NamedTuple):
    """Who calls and where, unless a call says so itself."""

    agent_id: str | None = None
    user_id: str | None = None
    session_id: str | None = None


UNNAMED_AGENT: Final = "mcp"
"""Of a client that does not say what it is."""
EVENTS: Final = "/v1/events"
_NO_NAME: Final = re.compile(r"[^a-z0-9._-]+")
_MAX_CLIENT_CHARACTERS: Final = 64


@dataclass(frozen=True, slots=True)
class Call:
    """What a tool works with.

    Attributes:
        api: asked as the caller.
        defaults: who and where, by the configuration of the client.
        client: what the program calls itself that calls for the model.
    """

    api: Asking
    defaults: Defaults
    client: str = ""

    def agent(self, named: str | None) -> str:
        """The agent: as the call names it, as the client is configured, or the client itself."""
        own_name = _NO_NAME.sub("-", self.client.lower()).strip("-")[:_MAX_CLIENT_CHARACTERS]
        return named or self.defaults.agent_id or own_name or UNNAMED_AGENT

    def user(self, named: str | None) -> str | None:
        """The person concerned; None: nobody in particular."""
        return named or self.defaults.user_id

    def session(self, named: str | None, agent_id: str, user_id: str | None) -> str:
        """The session: as named, or as configured, or one for each agent, user and day.

        The protocol knows no sessions. Those of a day are one, so that what belongs together stays
        together however often a client is started; users never share one.
        """
        day = timestamp_text(time.time_ns() // 1_000_000)[:10]
        parts = (agent_id, day) if user_id is None else (agent_id, user_id, day)
        return named or self.defaults.session_id or "-".join(parts)

    async def append(self, envelope: dict[str, Any], event_id: str | None) -> dict[str, Any]:
        """Append an event; sent again with the same id it is a duplicate, whenever that was.

        Args:
            envelope: without id; without `occurred_at` it happened now.
            event_id: chosen by the caller; None: a new one.

        Raises:
            Unanswered: it is refused, or the id is taken by another event.
        """
        now = timestamp_text(time.time_ns() // 1_000_000)
        sent = {
            **{name: value for name, value in envelope.items() if value is not None},
            "event_id": event_id.lower() if event_id else str(uuid4()),
        }
        try:
            return await self.api.post(EVENTS, {"occurred_at": now, **sent})
        except Unanswered as error:
            if error.kind != "event-conflict" or "occurred_at" in sent:
                raise
            stored = await self._stored(sent["event_id"], sent.get("user_id"))
            if any(stored.get(name) != value for name, value in sent.items()):
                raise
            position = stored["global_position"]
            return {**sent, "global_position": position, "duplicate": True}

    async def _stored(self, event_id: str, user_id: str | None) -> dict[str, Any]:
        try:
            return await self.api.read(f"{EVENTS}/{event_id}", user_id=user_id, record_access=False)
        except Unanswered:
            return {}


def required_user(call: Call, named: str | None, what_for: str) -> str:
    """The person concerned, where a tool is about one.

    Raises:
        Unanswered: neither the call nor the client names one.
    """
    user_id = call.user(named)
    if user_id is None:
        raise Unanswered("invalid-input", f"- user_id: required: {what_for}")
    return user_id


Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARACTERS)]
MAX_TEXT_CHARACTERS = 8_192
Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT_CHARACTERS)]
EventId = Annotated[str, Field(min_length=36, max_length=36)]
Position = Annotated[
    str | None,
    Field(description="`position` that `remember` gave: the answer waits until it knows that."),
]
MaxTokens = Annotated[
    int, Field(ge=50, le=32_000, description="Of the text, at most; it is estimated.")
]


class Untitled(GenerateJsonSchema):
    """Schemas without a title for each field: a model reads them, and pays for each word."""

    def field_title_should_be_set(self, schema: object) -> bool:
        """Whether a field has its name for a title, too."""
        return False


class Arguments(BaseModel):
    """Of one tool."""

    model_config = ConfigDict(extra="forbid")


class OfUser(Arguments):
    """Of a tool that reads or writes in somebody's view."""

    user_id: Name | None = Field(
        default=None, description="The person concerned, if not the one this client is set up for."
    )


class InSession(OfUser):
    """Of a tool that is called by an agent in a session."""

    session_id: Name | None = Field(
        default=None,
        description="The conversation or run. Default: the agent's session of today.",
    )
    agent_id: Name | None = Field(default=None, description="Default: this client.")
