"""What `recollect up` starts and nobody else: a holder of processes, and the small edition's one.

It loads little: a holder lives as long as what it holds.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
from pydantic import SecretStr, ValidationError

from pipelines.cli.invocation import Invocation, command
from pipelines.cli.outcome import OK
from pipelines.local import workers
from pipelines.work.settings import ALL_TENANTS, ApiKey
from pipelines.work.stages import load
from projections.errors import ConfigurationError

app = typer.Typer()


@command(app, "hold-processes", example="recollect up --detach --all")
def hold_processes(
    invocation: Invocation,
    small: Annotated[bool, typer.Option("--small", help="as one process")] = False,
) -> int:
    """Hold workers and the API; `up --detach` with --all or --small starts this."""
    workers.hold(invocation.settings, small=small)
    return OK


@command(app, "hold-graph", machine=False, example="recollect up --small")
def hold_graph(
    invocation: Invocation,
    port: Annotated[int, typer.Option(min=0, max=65_535, help="of the API; 0 takes a free one")],
    key_file: Annotated[
        Path | None,
        typer.Option("--api-key-file", help="file that holds one admin key, for all tenants"),
    ] = None,
) -> int:
    """Hold the graph in memory, fold into it and serve the API; `up --small` starts this."""
    changes: dict[str, Any] = {"api_port": port}
    if key_file is not None:
        changes["api_keys"] = (admin_key(key_file),)
    load("pipelines.operations.small:run_small")(invocation.settings.model_copy(update=changes))
    return OK


def admin_key(path: Path) -> ApiKey:
    """The key in a file.

    Raises:
        ConfigurationError: it is too short to be one.
    """
    secret = SecretStr(path.read_text(encoding="utf-8").strip())
    try:
        return ApiKey(name="file", key=secret, tenant=ALL_TENANTS, role="admin")
    except ValidationError:
        raise ConfigurationError(reason=f"{path}: a key of 16 characters or more") from None
