"""The server over standard input and output, for a client that starts it: `recollect mcp`.

It asks a running API. Nothing but the protocol is written to standard output; it ends with its
input.
"""

from __future__ import annotations

from functools import partial

import anyio
import httpx2
from mcp.server.stdio import stdio_server

from api.dependencies import TENANT_HEADER
from api.mcp.server import Context, make_server
from api.mcp.tool_call import TIMEOUTS, Asking, Call, Defaults


def serve(url: str, key: str | None, tenant: str | None, defaults: Defaults) -> None:
    """Serve until the input ends.

    Args:
        url: of the API.
        key: sent as a bearer token; None: none is needed.
        tenant: that a key of all tenants is used for; None: the key's.
        defaults: who asks, and where.
    """
    anyio.run(partial(_serve, url, key, tenant, defaults=defaults))


async def _serve(url: str, key: str | None, tenant: str | None, defaults: Defaults) -> None:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    if tenant is not None:
        headers[TENANT_HEADER] = tenant
    async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=TIMEOUTS) as client:
        api = Asking(client)

        def call_of(context: Context) -> Call:
            return Call(api, defaults, client_name(context))

        server = make_server(call_of)
        async with stdio_server() as (read_stream, write_stream):
            await server.run(read_stream, write_stream, server.create_initialization_options())


def client_name(context: Context) -> str:
    """What the program calls itself that calls; empty: it does not say."""
    told = context.session.client_params
    return "" if told is None else told.client_info.name
