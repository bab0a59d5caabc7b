"""`recollect mcp`: the memory as tools, for a program that starts it beside a model."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from pipelines.cli.invocation import Invocation, command, log_to_stderr
from pipelines.cli.outcome import OK
from pipelines.operations.api import Place, read_key, running_place, serve_tools
from pipelines.work.settings import API_KEY, API_URL
from projections.errors import ConfigurationError

app = typer.Typer()


@command(app, "mcp", machine=False, example="recollect mcp --user ana")
def mcp(
    invocation: Invocation,
    api: Annotated[
        str | None,
        typer.Option(
            "--api", metavar="URL", help=f"the API that is asked (or {API_URL} in the environment)"
        ),
    ] = None,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            help=f"file that holds the key for it (or {API_KEY} in the environment)",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option("--tenant", help="whose memory, for a key of all tenants")
    ] = None,
    user: Annotated[
        str | None,
        typer.Option("--user", help="the person concerned: what is remembered is theirs"),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", help="agent that asks; default: the client's name")
    ] = None,
    session: Annotated[
        str | None,
        typer.Option("--session", help="session of all calls; default: one for each day"),
    ] = None,
) -> int:
    """Serve the memory to a model: tools over standard input and output (MCP).

    For Claude Desktop, an editor, or whatever speaks the Model Context Protocol: it starts this
    command. Without --api the API of the embedded services is asked (`recollect up --detach
    --all`). A running API serves the same tools at /mcp.
    """
    log_to_stderr(invocation.settings, debug=invocation.debug)
    place = _place(invocation, api or os.environ.get(API_URL), key_file)
    serve_tools(place, tenant=tenant, agent_id=agent, user_id=user, session_id=session)
    return OK


def _place(invocation: Invocation, url: str | None, key_file: Path | None) -> Place:
    """Where the API is: as named, else on the data folder.

    Raises:
        ConfigurationError: nowhere, or it is no URL.
    """
    key = os.environ.get(API_KEY) if key_file is None else read_key(key_file)
    if url is not None:
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(reason="--api: starts with http:// or https://")
        return Place(url, key or None)
    folder = invocation.settings.data_dir
    place = running_place(folder)
    if place is None:
        raise ConfigurationError(
            reason=f"no API runs on {folder}: start one with `recollect up --detach --all --data "
            f"{folder}`, or say where it is with --api"
        )
    return place if key is None else Place(place.url, key)
