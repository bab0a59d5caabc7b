"""`recollect up` and `down`: the embedded services; `targets`: the graphs of a ledger."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import replace
from typing import Annotated, Any

import typer
from rich.console import Console

from pipelines.cli.invocation import Invocation, command, settings_of
from pipelines.cli.outcome import FAILED, OK
from pipelines.cli.rendering import show_difference_of
from pipelines.graph.client import connect_neo4j
from pipelines.local import services as supervised
from pipelines.local import workers
from pipelines.local.data_folder import LocalState, columns_copy, read_state
from pipelines.local.private_files import delete_database
from pipelines.proof.report import Scope
from pipelines.proof.targets import difference_of
from pipelines.work.services import Services, require_edition
from pipelines.work.settings import Settings
from projections.errors import KeysUnavailable, OperationFailed

app = typer.Typer()
targets = typer.Typer(
    help="List, compare, activate, move and drop the graphs that are folded from this ledger."
)
app.add_typer(targets, name="targets", no_args_is_help=True)
Name = Annotated[str, typer.Argument(help="name of the target", metavar="NAME")]


@command(app, "up", example="recollect up --detach --data ./memory")
def up(
    invocation: Invocation,
    detach: Annotated[
        bool,
        typer.Option(
            "--detach", help="return once everything is healthy; `recollect down` stops it"
        ),
    ] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="start a worker of each stage and the API, too")
    ] = False,
    small: Annotated[
        bool,
        typer.Option(
            "--small",
            help="Valkey, and one process that holds the graph in memory and serves the API: no "
            "Java, no Neo4j",
        ),
    ] = False,
) -> int:
    """Start Redis (Valkey) and Neo4j on this machine, without Docker or root.

    Prints their URLs, and which files hold the passwords that they ask for. They run in the
    foreground until Ctrl-C, or with --detach until `recollect down`. The data stays in the data
    folder, which nobody else can read.
    """
    data_dir = invocation.settings.data_dir
    require_embedded(invocation)
    people = not invocation.json and sys.stderr.isatty()
    with ExitStack() as stack:
        beside = Beside(invocation, stack, everything=everything, small=small, detach=detach)
        targets: list[str] | None = [] if small else None
        if ran := read_state(data_dir) is not None:
            beside.require_edition()
        if not detach:
            supervised.up(
                data_dir,
                False,
                targets,
                progress=people,
                on_ledger=beside.start,
                on_ready=beside.announce,
            )
            return OK
        with invocation.progress() as progress, progress.waiting("starting everything"):
            try:
                state = supervised.up(data_dir, True, targets, on_ledger=beside.start)
            except (OperationFailed, KeysUnavailable):
                if not ran:  # another edition's ledger, or one without keys: nothing is left behind
                    supervised.down(data_dir)
                raise
            beside.announce(state)
    return OK


class Beside:
    """What `up --all` runs beside the services: begun while the graph starts, told when ready.

    Args:
        invocation: of the command.
        stack: left when the services have stopped.
        everything: whether there is anything beside them.
        small: whether that is one process, which holds the graph, too.
        detach: whether a holder of their own has them.
    """

    def __init__(
        self,
        invocation: Invocation,
        stack: ExitStack,
        *,
        everything: bool,
        small: bool,
        detach: bool,
    ) -> None:
        self._invocation = invocation
        self._stack = stack
        self._everything = everything or small
        self._small = small
        self._detach = detach
        self._held: workers.Processes | workers.HolderStart | None = None

    def start(self, state: LocalState) -> None:
        """The ledger answers: begin.

        Raises:
            OperationFailed: it is of the other edition.
            KeysUnavailable: the graph is folded here, tenants are sealed, and there are no keys.
        """
        follow_ports(self._invocation, state)
        self.require_edition()
        settings = fresh_settings(self._invocation)
        if not self._everything:
            return
        if self._detach:
            self._held = workers.HolderStart(state.data_dir, small=self._small)
            self._stack.push(self._end_unless_ready)
        else:
            held = workers.Processes(settings, small=self._small)
            self._held = self._stack.enter_context(held)
            workers.stop_before_services(self._held.stop)

    def require_edition(self) -> None:
        """See that the ledger that runs is of the edition that is asked for, and can be folded.

        Raises:
            OperationFailed: it is of the other one.
            KeysUnavailable: the graph is folded here, tenants are sealed, and there are no keys.
        """
        with Services(fresh_settings(self._invocation)) as services:
            require_edition(services.targets, small=self._small)
            if self._small:
                # Without them there never is a graph, and nobody would be told why.
                services.ledger.vault.require_keys()

    def _end_unless_ready(self, kind: object, *_: object) -> None:
        """The services did not start, or Ctrl-C: what was begun here has nothing to work on."""
        if kind is not None and isinstance(self._held, workers.HolderStart):
            self._held.cancel()

    def announce(self, state: LocalState) -> None:
        """The services answer: wait for the rest, and print where things are."""
        document = urls(state)
        if isinstance(self._held, workers.HolderStart):
            document |= self._held.wait()
        elif self._held is not None:
            if not self._held.wait_ready():
                return
            document |= self._held.as_dict()
        self._invocation.answer(document, lambda out: show_urls(out, document))


def follow_ports(invocation: Invocation, state: LocalState) -> None:
    """Tell the registry where the embedded targets are: a port may have been taken meanwhile."""
    with Services(fresh_settings(invocation)) as services:
        for target in services.targets.all():
            url = state.neo4j_urls.get(target.name)
            if url is not None and url != target.uri:
                services.targets.register(replace(target, uri=url))


def fresh_settings(invocation: Invocation) -> Settings:
    """The settings once more: the embedded services run now, and did not before."""
    return settings_of(None, None, invocation.data)


def require_embedded(invocation: Invocation) -> None:
    """Refuse URLs where services are started.

    Raises:
        typer.BadParameter: --redis or --neo4j was given.
    """
    if invocation.redis or invocation.neo4j:
        raise typer.BadParameter("this starts services of its own", param_hint="--redis, --neo4j")


@command(app, "down", example="recollect down --data ./memory")
def down(invocation: Invocation) -> int:
    """Stop what `recollect up --detach` started on this data folder. The data stays."""
    data_dir = invocation.settings.data_dir
    with invocation.progress() as progress, progress.waiting("stopping"):
        stopped = workers.stop_holder(data_dir)
        stopped = read_state(data_dir) is not None or stopped
        supervised.down(data_dir)
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
    if "redis_password_file" in document:
        rows.append(("", f"password in {document['redis_password_file']}"))
    rows += [(f"neo4j {name}", url) for name, url in document["neo4j_urls"].items()]
    if document["neo4j_urls"] and "neo4j_user" in document:
        login = f"user {document['neo4j_user']}, password in {document['neo4j_password_file']}"
        rows.append(("", login))
    if "api_url" in document:
        rows.append(("api", document["api_url"]))
        if document["api_key_file"]:
            rows.append(("", f"key in {document['api_key_file']}"))
        rows.append(("explorer", f"{document['api_url']}/ui"))
    rows.append(("data", document["data_dir"]))
    for name, value in rows:
        out.print(f"[dim]{name:<12}[/dim] {value}", soft_wrap=True)


@command(targets, "list", example="recollect targets list")
def list_targets(invocation: Invocation) -> None:
    """List the registered targets, and show which one answers reads."""
    services = invocation.services
    active = services.active().name
    registered = services.targets.all()
    document = {
        "active": active,
        "targets": [
            {
                "name": target.name,
                "uri": target.uri,
                "database": target.database,
                "state": target.state,
                "active": target.name == active,
            }
            for target in registered
        ],
    }

    def show(out: Console) -> None:
        for target in registered:
            mark = "[green]●[/green]" if target.name == active else "[dim]○[/dim]"
            out.print(
                f"{mark} [bold]{target.name}[/bold] {target.state:<8} [dim]{target.uri}[/dim]"
            )

    invocation.answer(document, show)


@command(targets, "activate", example="recollect targets activate green")
def activate(invocation: Invocation, name: Name) -> None:
    """Answer reads from this target; the API follows once it has asked it what reads will ask.

    That takes seconds, a minute at most after its columns are loaded; `/health/ready` tells the
    target that is read from. A target that is away is left at once.
    """
    services = invocation.services
    services.active()  # registers the settings' target on a fresh ledger
    services.targets.get(name)
    generation = services.targets.activate(name)
    invocation.answer(
        {"active": name, "generation": generation},
        lambda out: out.print(f"[bold]{name}[/bold] is active: the API goes over to it"),
    )


@command(targets, "diff", example="recollect targets diff blue green")
def diff(
    invocation: Invocation,
    first: Annotated[str, typer.Argument(help="a target", metavar="FIRST")],
    second: Annotated[str, typer.Argument(help="another one", metavar="SECOND")],
    tenant: Annotated[
        str | None, typer.Option(help="compare what is of this tenant alone", show_default="all")
    ] = None,
) -> int:
    """Compare two graphs of this ledger: what one of them has alone, and what has other values.

    After a rebuild under other rules or with another model it tells what they changed; exit code 1
    says that something differs. Neither is judged: `recollect verify` does that. The explorer shows
    it for a week, without values.
    """
    services = invocation.services
    services.active()
    left, right = (services.graph(services.targets.get(name)) for name in (first, second))
    difference = difference_of(left, right, Scope(tenant=tenant))
    document, names = difference.as_dict(), (first, second)
    services.comparisons.put(names, difference.tenants, behind=difference.behind, tenant=tenant)
    invocation.answer(
        {"first": first, "second": second, **document},
        lambda out: show_difference_of(out, document, first, second),
    )
    return OK if document["same"] else FAILED


@command(targets, "drop", example="recollect targets drop blue")
def drop_target(invocation: Invocation, name: Name) -> None:
    """Forget a target, so that it is no longer kept up to date.

    If its graph is in an embedded Neo4j it is deleted; any other graph is left as it is.
    """
    services = invocation.services
    target = services.targets.get(name)
    services.targets.drop(name)
    data_dir = services.settings.data_dir
    state = read_state(data_dir)
    embedded = state is not None and state.neo4j_urls.get(name) == target.uri
    if embedded:
        supervised.drop_target(data_dir, name)
    if (copy := columns_copy(data_dir, target.uri, target.database)) is not None:
        delete_database(copy)
    invocation.answer(
        {"dropped": name, "deleted": embedded}, lambda out: out.print(f"{name} is dropped")
    )


@command(targets, "move", example="recollect targets move blue bolt://graph-2:7687")
def move(
    invocation: Invocation,
    name: Name,
    uri: Annotated[str, typer.Argument(help="bolt://HOST:PORT", metavar="URI")],
) -> None:
    """Tell where a target's server is now; the graph in it stays the same."""
    registry = invocation.services.targets
    moved = replace(registry.get(name), uri=uri)
    connect_neo4j(uri, invocation.settings).close()  # what is no address would stop every command
    registry.register(moved)
    invocation.answer({"name": name, "uri": uri}, lambda out: out.print(f"{name} is at {uri} now"))
