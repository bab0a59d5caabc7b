"""`recollect up`, `down`, `serve`, `worker`: the processes."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pipelines.cli.invocation import OK, STAGE_NAMES, Invocation, command, stage_named
from projections.errors import ConfigurationError, LedgerUnavailable

if TYPE_CHECKING:
    from rich.console import Console

    from pipelines.local import LocalState
    from pipelines.local.children import Companions
    from pipelines.work.settings import ApiKey, Settings

PANEL = "Running"


def register(app: typer.Typer) -> None:
    """Put the commands into the application."""
    command(app, "up", panel=PANEL, example="recollect up --detach --data ./memory")(up)
    command(app, "down", panel=PANEL, example="recollect down --data ./memory")(down)
    command(app, "worker", panel=PANEL, machine=False, example="recollect worker projection")(
        worker
    )
    command(app, "hold-processes", hidden=True, example="recollect up --detach --all")(
        hold_processes
    )
    command(app, "serve", panel=PANEL, machine=False, example="recollect serve --port 8080")(serve)


def worker(
    invocation: Invocation,
    stage: Annotated[
        str,
        typer.Argument(metavar="STAGE", help=STAGE_NAMES),
    ],
    target: Annotated[
        str | None,
        typer.Option(
            "--target",
            metavar="NAME",
            help="this one only; without, the active target, and every other one through a "
            "worker of its own",
        ),
    ] = None,
    concurrency: Annotated[
        int | None, typer.Option(min=1, max=32, help="blocks applied at once")
    ] = None,
    leash: Annotated[bool, typer.Option("--leash", hidden=True)] = False,
) -> int:
    """Run a worker of a stage until it is told to stop (SIGTERM, Ctrl-C).

    Start as many as you like, on as many machines: they share the partitions, and take over from
    the dead. Nothing is lost or done twice, however one ends.
    """
    row = stage_named(stage, "STAGE")
    if leash:
        from pipelines.local.parent_watch import end_with_standard_input

        end_with_standard_input(lambda: os.kill(os.getpid(), signal.SIGKILL))
    settings = invocation.settings
    if concurrency is not None:
        settings = settings.model_copy(update={"worker_concurrency": concurrency})
    from pipelines.work.app import run_worker  # Faust

    if target is not None:
        return run_worker(row, settings, target)
    served = active_target(invocation)
    dropped = threading.Event()
    companions = companions_of(invocation, stage, served, dropped, concurrency)
    companions.start()
    try:
        code = run_worker(row, settings, served)
    finally:
        companions.stop()
    if dropped.is_set():
        # This process' target is gone: the same command again, which serves the one active now.
        os.execv(sys.executable, [sys.executable, "-m", "pipelines.cli.main", *sys.argv[1:]])  # noqa: S606 - our own command line
    return code


def active_target(invocation: Invocation) -> str:
    """The target to serve; waits for a ledger that is away, as workers do."""
    pause = threading.Event()
    told = False
    while True:
        try:
            return invocation.services.active().name
        except LedgerUnavailable as error:
            if not told:
                invocation.note(f"waiting: {error}")
                told = True
            pause.wait(1.0)


def companions_of(
    invocation: Invocation,
    stage: str,
    served: str,
    dropped: threading.Event,
    concurrency: int | None,
) -> Companions:
    """Workers for the targets beside `served`; sets `dropped` and stops us when that is gone."""
    from pipelines.local.children import COMMAND, Companions

    def wanted() -> set[str] | None:
        try:
            targets = invocation.services.targets.all()
        except LedgerUnavailable:
            return None
        if targets and served not in {target.name for target in targets} and not dropped.is_set():
            dropped.set()
            os.kill(os.getpid(), signal.SIGTERM)
        return {t.name for t in targets if t.name != served and t.state != "building"}

    def command_of(name: str) -> list[str]:
        more = [] if concurrency is None else ["--concurrency", str(concurrency)]
        return [*COMMAND, "worker", stage, "--target", name, "--leash", *more, *shared(invocation)]

    return Companions(wanted, command_of)


def serve(
    invocation: Invocation,
    host: Annotated[str | None, typer.Option(help="address to listen on")] = None,
    port: Annotated[int | None, typer.Option(min=0, max=65_535, help="0: a free one")] = None,
    insecure_dev: Annotated[
        bool, typer.Option("--insecure-dev", help="without API keys; for a laptop only")
    ] = False,
    key_file: Annotated[
        Path | None,
        typer.Option(
            "--api-key-file",
            help="file of one admin key, for all tenants",
            exists=True,
            dir_okay=False,
            readable=True,
        ),
    ] = None,
) -> int:
    """Serve the API until it is told to stop (SIGTERM, Ctrl-C).

    Needs API keys (RECOLLECT_API_KEYS, a JSON list) unless --insecure-dev.
    """
    changes: dict[str, Any] = {"api_host": host, "api_port": port}
    if insecure_dev:
        changes["insecure_dev"] = True
    if key_file is not None:
        changes["api_keys"] = (admin_key(key_file),)
    given = {name: value for name, value in changes.items() if value is not None}
    # By name: the API stands on `pipelines`, so nothing here may depend on it.
    api = importlib.import_module("api.main")
    settings = invocation.settings.model_copy(update=given)
    try:
        api.serve(settings)
    except OSError as error:
        reason = f"{settings.api_host}:{settings.api_port}: {error.strerror or error}"
        raise ConfigurationError(reason=f"cannot listen on {reason}") from None
    return OK


def admin_key(path: Path) -> ApiKey:
    """The key in a file.

    Raises:
        ConfigurationError: it is too short to be one.
    """
    from pydantic import SecretStr, ValidationError

    from pipelines.work.settings import ALL_TENANTS, ApiKey

    secret = SecretStr(path.read_text(encoding="utf-8").strip())
    try:
        return ApiKey(name="file", key=secret, tenant=ALL_TENANTS, role="admin")
    except ValidationError:
        raise ConfigurationError(reason=f"{path}: a key of 16 characters or more") from None


def up(
    invocation: Invocation,
    detach: Annotated[
        bool, typer.Option("--detach", help="return when all is healthy; `recollect down` stops it")
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="a worker of each stage and the API, too")
    ] = False,
    auth: Annotated[
        bool,
        typer.Option(
            "--auth", help="Neo4j asks for a password; chosen at the folder's first start"
        ),
    ] = False,
) -> int:
    """Start Redis (Valkey) and Neo4j on this machine, without docker or root.

    Prints the URLs. In the foreground until Ctrl-C, or with --detach until `recollect down`. The
    data stay in the data folder.
    """
    from pipelines import local
    from pipelines.local import hosting

    data_dir = invocation.settings.data_dir
    require_embedded(invocation)
    people = not invocation.json and sys.stderr.isatty()
    if not detach:
        with ExitStack() as stack:
            local.up(
                data_dir,
                False,
                auth=auth,
                progress=people,
                on_ready=lambda state: announce(invocation, stack, state, everything),
            )
        return OK
    with invocation.progress() as progress, progress.waiting("starting Redis and Neo4j"):
        state = local.up(data_dir, True, auth=auth)
        follow_ports(invocation, state)
    document = urls(state)
    if everything:
        with invocation.progress() as progress, progress.waiting("starting workers and API"):
            document |= hosting.start_holder(data_dir)
    invocation.answer(document, lambda out: show_urls(out, document))
    return OK


def announce(invocation: Invocation, stack: ExitStack, state: LocalState, everything: bool) -> None:
    """The services run in the foreground: start the rest, print the URLs."""
    from pipelines.local import hosting

    document = urls(state)
    follow_ports(invocation, state)
    if everything:
        processes = stack.enter_context(hosting.Processes(fresh_settings(invocation)))
        hosting.stop_before_services(processes.stop)
        document |= processes.as_dict()
    invocation.answer(document, lambda out: show_urls(out, document))


def follow_ports(invocation: Invocation, state: LocalState) -> None:
    """Tell the registry where the embedded targets are: a port may have been taken meanwhile."""
    from pipelines.work.services import Services

    with Services(fresh_settings(invocation)) as services:
        for target in services.targets.all():
            url = state.neo4j_urls.get(target.name)
            if url is not None and url != target.uri:
                services.targets.register(replace(target, uri=url))


def fresh_settings(invocation: Invocation) -> Settings:
    """The settings once more: the embedded services run now, and did not before."""
    from pipelines.cli.invocation import settings_of

    return settings_of(None, None, invocation.data)


def require_embedded(invocation: Invocation) -> None:
    """Refuse URLs where services are started.

    Raises:
        typer.BadParameter: --redis or --neo4j was given.
    """
    if invocation.redis or invocation.neo4j:
        raise typer.BadParameter("this starts services of its own", param_hint="--redis, --neo4j")


def hold_processes(invocation: Invocation) -> int:
    """Hold workers and the API; `up --detach --all` starts this."""
    from pipelines.local import hosting

    hosting.hold(invocation.settings)
    return OK


def down(invocation: Invocation) -> int:
    """Stop what `recollect up --detach` started on this data folder. The data stay."""
    from pipelines import local
    from pipelines.local import hosting

    data_dir = invocation.settings.data_dir
    with invocation.progress() as progress, progress.waiting("stopping"):
        stopped = hosting.stop_holder(data_dir)
        stopped = local.read_state(data_dir) is not None or stopped
        local.down(data_dir)
    invocation.answer(
        {"stopped": stopped, "data_dir": str(data_dir)},
        lambda out: out.print("stopped" if stopped else "nothing was running"),
    )
    return OK


def urls(state: LocalState) -> dict[str, Any]:
    """Where things are, for a machine; `neo4j_url` is the first target's."""
    document = state.as_json()
    return {**document, "neo4j_url": next(iter(document["neo4j_urls"].values()), None)}


def show_urls(out: Console, document: dict[str, Any]) -> None:
    """For a person: where things are."""
    rows = [("redis", document["redis_url"])]
    rows += [(f"neo4j {name}", url) for name, url in document["neo4j_urls"].items()]
    if "neo4j_user" in document:
        login = f"user {document['neo4j_user']}, password in {document['neo4j_password_file']}"
        rows.append(("", login))
    if "api_url" in document:
        rows.append(("api", document["api_url"]))
        if document["api_key_file"]:
            rows.append(("", f"key in {document['api_key_file']}"))
    rows.append(("data", document["data_dir"]))
    for name, value in rows:
        out.print(f"[dim]{name:<12}[/dim] {value}", soft_wrap=True)


def shared(invocation: Invocation) -> list[str]:
    """The shared options again, for a child on the same services. Secrets go by environment."""
    options: list[str] = []
    for name, value in (
        ("--redis", invocation.redis),
        ("--neo4j", invocation.neo4j),
        ("--data", invocation.data),
    ):
        if value is not None:
            options += [name, str(value)]
    return options
