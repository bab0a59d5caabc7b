"""The HTTP API as tools ask it: one client, whether it is elsewhere or this very app."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import httpx2
import orjson

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
