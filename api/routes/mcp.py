"""`/mcp`: tools for models, over streamable HTTP; `api.mcp` says which."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlsplit

from fastapi import APIRouter, Depends, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from api.dependencies import Reader, no_query
from api.errors import ApiProblem
from api.mcp.mount import KEY_USER, Door
from pipelines.work.settings import Settings

LOOPBACK: Final = frozenset(("localhost", "127.0.0.1", "::1"))
"""What this machine is called by programs on it."""


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
