"""The agent over MCP: its model remembers by the tool `remember`, and says what caused what."""

from __future__ import annotations

from typing import Any

import httpx2
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from tests.five_ways.story import AGENT, SESSION, TURNS, USER, Call, Door, told


async def run(door: Door) -> None:
    """Tell the story."""
    headers = {
        "Authorization": f"Bearer {door.key}",
        "X-Tenant": door.tenant,
        "X-Agent": AGENT,
        "X-Session": SESSION,
        "X-User": USER,
    }
    async with (
        httpx2.AsyncClient(headers=headers, timeout=60) as http,
        Client(streamable_http_client(f"{door.url}/mcp", http_client=http)) as client,
    ):
        cause = None
        for turn in TURNS:
            cause = await _remember(client, cause, text=turn.asked)
            for call in turn.calls:
                named = {"tool_name": call.tool, "kind": "tool_call"}
                cause = await _remember(client, cause, **named, arguments=call.arguments)
                named["kind"] = "tool_result"
                cause = await _remember(client, cause, **named, **_outcome(call))
            cause = await _remember(client, cause, text=turn.answer, role="assistant")


async def _remember(client: Client, cause: str | None, **arguments: Any) -> str:
    parent = {} if cause is None else {"parent_event_id": cause}
    told = await client.call_tool("remember", {**arguments, **parent})
    assert not told.is_error, told.content
    assert told.structured_content is not None
    return str(told.structured_content["event_id"])


def _outcome(call: Call) -> dict[str, Any]:
    try:
        return {"status": "completed", "result": call.carry_out()}
    except ConnectionError as error:
        return {"status": "failed", "result": told(error)}
