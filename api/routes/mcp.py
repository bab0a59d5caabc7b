"""`/mcp`: tools for models, over streamable HTTP; `api.mcp` says which.

The server is loaded when somebody comes, and asks the app that it is in. Its SDK takes half a
second and 30 MB, which an API that no model comes to does not pay.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import anyio
import anyio.to_thread
from fastapi import APIRouter, Depends, Request
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from api.dependencies import ADMITTED, KEY_HEADER, TENANT_HEADER, Reader, no_query
from api.errors import REQUEST_ID_HEADER, ApiProblem
from pipelines.work.settings import Settings

if TYPE_CHECKING:
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

AGENT_HEADER: Final = "X-Agent"
USER_HEADER: Final = "X-User"
SESSION_HEADER: Final = "X-Session"
"""Who asks, and where, by the configuration of a client."""
KEY_USER: Final = "key_user"
"""In the state of a request: the user whom its key is bound to. What comes with it is theirs."""
_PASSED_ON: Final = ("authorization", KEY_HEADER, TENANT_HEADER)
LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
"""What this machine is called by programs on it."""


class Door:
    """The protocol in front of an app.

    Args:
        app: that is asked, and asks for keys.
        max_bytes: the largest body.
    """

    def __init__(self, app: ASGIApp, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._manager: StreamableHTTPSessionManager | None = None

    @asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """While the app runs; it may be left in another task than the one that came in."""
        self._wanted, self._loaded = asyncio.Event(), asyncio.Event()
        serving = asyncio.create_task(self._run())
        try:
            yield
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving

    async def _run(self) -> None:
        """The server, from the first request on; in one task, as its SDK wants it."""
        await self._wanted.wait()
        manager = await anyio.to_thread.run_sync(_made, self._app, self._max_bytes)
        async with manager.run():
            self._manager = manager
            self._loaded.set()
            await anyio.sleep_forever()

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request of a caller who was let in."""
        self._wanted.set()
        await self._loaded.wait()
        assert self._manager is not None
        # Blanks around a value are no part of it (RFC 9110, 5.5), and our HTTP server leaves them.
        headers = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await self._manager.handle_request({**scope, "headers": headers}, receive, send)


def _made(app: ASGIApp, max_bytes: int) -> StreamableHTTPSessionManager:
    """The server; every request is answered by itself, as JSON."""
    import httpx2
    from mcp.server.streamable_http_manager import StreamableHTTPSessionManager

    from api.mcp.server import client_name, make_server
    from api.mcp.tool_call import TIMEOUTS, Asking, Call, Defaults

    async def admitted(scope: Scope, receive: Receive, send: Send) -> None:
        # The request that this is part of was counted.
        await app({**scope, "state": {ADMITTED: True}}, receive, send)

    transport = httpx2.ASGITransport(app=admitted, raise_app_exceptions=False)
    client = httpx2.AsyncClient(
        transport=transport, base_url="http://recollect", timeout=TIMEOUTS, trust_env=False
    )

    def call_of(context: Any) -> Call:
        headers: Headers = context.request.headers
        passed_on = {name: headers[name] for name in _PASSED_ON if name in headers}
        passed_on[REQUEST_ID_HEADER] = context.request.state.request_id
        defaults = Defaults(
            _named_by(headers, AGENT_HEADER),
            _named_by(headers, USER_HEADER) or getattr(context.request.state, KEY_USER),
            _named_by(headers, SESSION_HEADER),
        )
        return Call(Asking(client, passed_on), defaults, client_name(context))

    return StreamableHTTPSessionManager(
        make_server(call_of),
        json_response=True,
        stateless=True,
        # The app refuses earlier, and in the words of all routes.
        max_request_body_size=2 * max_bytes,
    )


def _named_by(headers: Headers, header: str) -> str | None:
    """A name in a header; bytes that are read as Latin-1 (RFC 9110, 5.5) were meant as UTF-8."""
    value: str = headers.get(header, "")
    with suppress(UnicodeDecodeError):
        value = value.encode("latin-1").decode()
    return value or None


async def named_as_this_server(request: Request) -> None:
    """Refuse what a page in somebody's browser sends here under a name that is not ours.

    A page may have its own name lead to this machine, and is then no stranger to the browser. The
    name stays in Host and Origin. Where the API listens beyond this machine and asks for a key,
    which no page has, Host may be any name until the settings say which.
    """
    settings: Settings = request.app.state.settings
    names = LOOPBACK | {name.lower() for name in settings.mcp_hosts}
    is_any = bool(settings.api_keys) and settings.api_host not in LOOPBACK
    takes_any = is_any and not settings.mcp_hosts
    if not takes_any and _name(f"//{_header(request, 'host')}") not in names:
        raise _foreign("Host")
    origin = _header(request, "origin")
    if origin and _name(origin) not in names:
        raise _foreign("Origin")


def _header(request: Request, name: str) -> str:
    return str(request.headers.get(name, ""))


def _name(url: str) -> str:
    """The host of a URL; empty: it has none."""
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _foreign(header: str) -> ApiProblem:
    detail = f"{header} names a server that this is not: RECOLLECT_MCP_HOSTS says which it is."
    return ApiProblem("forbidden", detail)


router = APIRouter(dependencies=[Depends(named_as_this_server), Depends(no_query)])


class _Handed(Response):
    """Leaves a request to the door."""

    def __init__(self, door: Door) -> None:
        super().__init__()
        self._door = door

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._door.handle(scope, receive, send)


@router.post("/mcp", include_in_schema=False)
async def serve_tools(request: Request, caller: Reader) -> Response:
    """Answer one message of the protocol, for whoever has a key of the API."""
    setattr(request.state, KEY_USER, caller.user_id)
    return _Handed(request.app.state.mcp)
