"""Resources: what an id of an answer stands for, as `recollect://kind/id`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

import orjson

from api.mcp.api_client import JSON_TYPE, MARKDOWN_TYPE, WAIT_MS, Unanswered
from api.mcp.tool_call import EVENTS, Call

SCHEME: Final = "recollect://"
MAX_ID_CHARACTERS: Final = 1_600
"""Percent-encoded: three for each of the characters that the longest name has."""


class Kind(NamedTuple):
    """What has resources of its own.

    Attributes:
        title: for people.
        text: what reading one gives.
        media_type: of that.
        read: reads one by its id.
    """

    title: str
    text: str
    media_type: str
    read: Callable[[Call, str], Awaitable[str]]


async def _event(call: Call, own_id: str) -> str:
    document = await call.api.read(
        f"{EVENTS}/{quote(own_id, safe='')}", user_id=call.defaults.user_id
    )
    return orjson.dumps(document, option=orjson.OPT_INDENT_2).decode()


def _read_as(call: Call) -> dict[str, Any]:
    return {"user_id": call.defaults.user_id, "timeout_ms": WAIT_MS}


async def _session(call: Call, own_id: str) -> str:
    return await call.api.read_text(f"/v1/context/{quote(own_id, safe='')}", **_read_as(call))


async def _entity(call: Call, own_id: str) -> str:
    reference = quote(f"entity:{own_id.removeprefix('entity:')}", safe="")
    document = await call.api.read(f"/v1/entities/{reference}", **_read_as(call))
    shown = {name: document[name] for name in ("entity", "aliases", "community", "facts", "events")}
    return orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()


_SCOPES: Final = ("session", "episode", "agent")


async def _summary(call: Call, own_id: str) -> str:
    """The id does not tell what it sums up, and the route wants to know."""
    reference = quote(f"summary:{own_id.removeprefix('summary:')}", safe="")
    for scope in _SCOPES:
        try:
            document = await call.api.read(f"/v1/summaries/{scope}/{reference}", **_read_as(call))
        except Unanswered as error:
            if error.kind != "not-found" or scope == _SCOPES[-1]:
                raise
            continue
        break
    shown = {name: document[name] for name in ("summary", "children", "links")}
    return orjson.dumps(shown, option=orjson.OPT_INDENT_2).decode()


KINDS: Final[dict[str, Kind]] = {
    "entity": Kind(
        "An entity", "Its names, the facts about it and events that mention it.", JSON_TYPE, _entity
    ),
    "event": Kind("An event", "As the ledger has it, with its payload.", JSON_TYPE, _event),
    "session": Kind(
        "A session", "Its best events in reading order, with their ids.", MARKDOWN_TYPE, _session
    ),
    "summary": Kind(
        "A summary",
        "Of a session, an episode or an agent, and what it is made from.",
        JSON_TYPE,
        _summary,
    ),
}
"""By the word behind the scheme, in the order in which they are listed."""


class NoSuchResource(Exception):
    """Nothing stands behind an address, for this caller."""


async def read(call: Call, uri: str) -> tuple[str, str]:
    """Media type and text of a resource.

    Raises:
        NoSuchResource: there is none of that address.
        Unanswered: the memory does not say.
    """
    word, _, own_id = uri.removeprefix(SCHEME).partition("/")
    kind = KINDS.get(word)
    if not uri.startswith(SCHEME) or kind is None or not 0 < len(own_id) <= MAX_ID_CHARACTERS:
        raise NoSuchResource
    try:
        return kind.media_type, await kind.read(call, unquote(own_id))
    except Unanswered as error:
        if error.kind == "not-found":
            raise NoSuchResource from None
        raise
