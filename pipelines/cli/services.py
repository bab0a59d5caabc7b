"""`recollect up`, `down` and `demo`: the embedded services; `targets`: the graphs of a ledger."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
import time
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.markup import escape
from rich.tree import Tree

from pipelines.cli.ask import show_answer
from pipelines.cli.imports import wait_until_passed
from pipelines.cli.invocation import Invocation, command, log_to_stderr, settings_of
from pipelines.cli.outcome import FAILED, OK
from pipelines.local import services as local
from pipelines.local import services as supervised
from pipelines.local import workers
from pipelines.local.data_folder import LocalState, read_state
from pipelines.local.workers import Processes
from pipelines.operations import demo as scenario
from pipelines.operations.api import RunningApi
from pipelines.operations.demo import Happening, Lineage
from pipelines.operations.imports import Source, event_items, import_events
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT

app = typer.Typer()
targets = typer.Typer(
    help="List, activate, move and drop the graphs that are folded from this ledger."
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
    auth: Annotated[
        bool,
        typer.Option(
            "--auth", help="make Neo4j ask for a password; set when the folder is first used"
        ),
    ] = False,
) -> int:
    """Start Redis (Valkey) and Neo4j on this machine, without Docker or root.

    Prints their URLs. They run in the foreground until Ctrl-C, or with --detach until
    `recollect down`. The data stays in the data folder.
    """
    data_dir = invocation.settings.data_dir
    require_embedded(invocation)
    people = not invocation.json and sys.stderr.isatty()
    if not detach:
        with ExitStack() as stack:
            supervised.up(
                data_dir,
                False,
                auth=auth,
                progress=people,
                on_ready=lambda state: announce(invocation, stack, state, everything),
            )
        return OK
    with invocation.progress() as progress, progress.waiting("starting Redis and Neo4j"):
        state = supervised.up(data_dir, True, auth=auth)
        follow_ports(invocation, state)
    document = urls(state)
    if everything:
        with invocation.progress() as progress, progress.waiting("starting workers and API"):
            document |= workers.start_holder(data_dir)
    invocation.answer(document, lambda out: show_urls(out, document))
    return OK


def announce(invocation: Invocation, stack: ExitStack, state: LocalState, everything: bool) -> None:
    """The services run in the foreground: start the rest, print the URLs."""
    document = urls(state)
    follow_ports(invocation, state)
    if everything:
        processes = stack.enter_context(workers.Processes(fresh_settings(invocation)))
        workers.stop_before_services(processes.stop)
        document |= processes.as_dict()
    invocation.answer(document, lambda out: show_urls(out, document))


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


@command(app, "hold-processes", example="recollect up --detach --all")
def hold_processes(invocation: Invocation) -> int:
    """Hold workers and the API; `up --detach --all` starts this."""
    workers.hold(invocation.settings)
    return OK


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
    """Answer reads from this target from now on; the API follows within a second."""
    services = invocation.services
    services.active()  # registers the settings' target on a fresh ledger
    services.targets.get(name)
    generation = services.targets.activate(name)
    invocation.answer(
        {"active": name, "generation": generation},
        lambda out: out.print(f"reads are answered from [bold]{name}[/bold] now"),
    )


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
    registry.register(replace(registry.get(name), uri=uri))
    invocation.answer({"name": name, "uri": uri}, lambda out: out.print(f"{name} is at {uri} now"))


PATIENCE_S = 60.0
ENRICHED_PATIENCE_S = 120.0
"""Models have to be loaded first, on a machine that may be busy."""
CHANNEL_TIMEOUT_MS = "10000"
SHOWN_NODES = 5


@command(app, "demo", example="recollect demo")
def demo(
    invocation: Invocation,
    keep: Annotated[
        bool, typer.Option("--keep", help="keep the data folder, for a closer look")
    ] = False,
) -> int:
    """Start everything, import a payment agent's incident, ask why, and stop.

    Uses a data folder of its own, which is deleted at the end unless --keep or --data is given.
    """
    if invocation.redis or invocation.neo4j:
        raise typer.BadParameter("this starts services of its own", param_hint="--redis, --neo4j")
    folder = invocation.data or Path(tempfile.mkdtemp(prefix="recollect-demo-"))
    ours = invocation.data is None and not keep
    try:
        return _run(invocation, folder, people=not invocation.json)
    finally:
        if ours:
            shutil.rmtree(folder, ignore_errors=True)
        elif not invocation.json:
            invocation.note(f"the data stay in {folder}: recollect up --data {folder}")


def _run(invocation: Invocation, folder: Path, *, people: bool) -> int:
    out, codes = invocation.out, []
    begun = time.monotonic()
    if people:
        out.print("[bold]A payment agent charged a customer twice. Why?[/bold]\n")
    progress = invocation.progress()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def ready(state: LocalState) -> None:
        # Until now a signal was the supervisor's, which looks at it between two steps; ours are
        # long, so they are interrupted, and the services stop on the way out.
        before = signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, interrupt)
        settings = settings_of(None, None, folder)
        log_to_stderr(settings, debug=invocation.debug)
        # Everything is new to this database: what it has to plan first is waited for, not left out.
        os.environ.setdefault("RECOLLECT_CHANNEL_TIMEOUT_MS", CHANNEL_TIMEOUT_MS)
        with Processes(settings) as processes:
            progress.__exit__(None, None, None)
            if people:
                _line(out, begun, "Valkey, Neo4j, a worker of each stage and the API are running")
            codes.append(_story(invocation, folder, processes, begun))
        signal.signal(signal.SIGTERM, before)
        signal.signal(signal.SIGINT, before)
        signal.raise_signal(signal.SIGTERM)  # the supervisor's word for: stop the services

    with progress, progress.waiting("starting Valkey, Neo4j, workers and the API"):
        local.up(folder, False, on_ready=ready)
    if people:
        _line(out, begun, "everything is stopped")
    return codes[0] if codes else FAILED


def _story(invocation: Invocation, folder: Path, processes: Processes, begun: float) -> int:
    out, people = invocation.out, not invocation.json
    with Services(settings_of(None, None, folder)) as services, invocation.progress() as progress:
        fresh = not any(tail.seq for tail in services.ledger.tails())
        reports = []
        for _ in range(2):
            source = Source(scenario.scenario_path())
            with source.stream:
                reports.append(import_events(services.ledger, event_items(source.stream)))
        imported, again = reports
        passed = wait_until_passed(services, imported.last, progress, PATIENCE_S)
        if people:
            _line(
                out,
                begun,
                f"{imported.read} events imported and projected: six sessions interleaved, late "
                "reports, two effects before their causes",
            )
        passed = passed and wait_until_passed(
            services,
            imported.last,
            progress,
            ENRICHED_PATIENCE_S,
            stage=ENRICHMENT.name,
            doing="enriching",
        )
        if people:
            _line(out, begun, "enriched: keywords, entities, facts, embeddings, inferred causes")
        story = scenario.lineage(services, scenario.FAILURE)
        answered = scenario.replies(_api(processes))
        counts = services.reader(services.active()).counts()
        verified = verify(services)
        results = scenario.checks(
            imported=imported,
            again=again,
            story=story,
            answered=answered,
            verified=verified,
            fresh=fresh,
            placeholders=counts.placeholders,
        )
    ok = passed and all(check.ok for check in results)
    document: dict[str, Any] = {
        "ok": ok,
        "events": verified.events,
        "digest": verified.digest,
        "checks": [{"ok": check.ok, "what": check.what} for check in results],
        "causes": [cause.event_id for cause in story.causes],
        "api_url": processes.api.url,
        "answers": [
            {"question": answer.question.text, "node_ids": answer.node_ids} for answer in answered
        ],
    }

    def show(out: Console) -> None:
        out.print()
        out.print(why(story))
        out.print("[dim]time, session, agent, position in the ledger, event id[/dim]\n")
        out.print(what_came_of_it(story))
        out.print("\n[bold]Three questions, as an agent would ask them[/bold]\n")
        for reply in answered:
            show_answer(
                out, reply.question.text, reply.document, shown=SHOWN_NODES, lineage=reply.lineage
            )
            out.print()
        for check in results:
            mark = "[green]✓[/green]" if check.ok else "[red]✗[/red]"
            out.print(f"{mark} {check.what}")
        out.print(f"\n  {verified.events} events, digest [bold]{verified.digest}[/bold]\n")

    invocation.answer(document, show)
    return OK if ok else FAILED


def _api(processes: Processes) -> RunningApi:
    """The API of the demonstration."""
    path = processes.key_path
    key = None if path is None else path.read_text(encoding="utf-8").strip()
    return RunningApi(processes.api.url, key)


def why(story: Lineage) -> Tree:
    """The failure and, nearest first, what it goes back to, each with where that is written."""
    tree = Tree(f"[bold]Why?[/bold]  {_title(story.event)}\n{_provenance(story.event)}")
    tree.guide_style = "dim"
    for cause in story.causes:
        tree.add(f"[dim]because[/dim] {_title(cause)}\n{_provenance(cause)}")
    return tree


def what_came_of_it(story: Lineage) -> Tree:
    """The failure, and below it everything that it caused, an event a line."""
    tree = Tree(f"[bold]And then?[/bold]  {_title(story.event)}", guide_style="dim")
    _grow(tree, story.event)
    return tree


def _grow(tree: Tree, event: Happening) -> None:
    """Add the effects; a chain without forks stays on one level, so that the tree stays narrow."""
    for effect in event.effects:
        branch = tree.add(_short(effect))
        while len(effect.effects) == 1:
            effect = effect.effects[0]
            branch.add(f"[dim]then[/dim] {_short(effect)}")
        _grow(branch, effect)


def _short(event: Happening) -> str:
    return f"{_title(event)}  [dim]{event.at[11:19]} {escape(event.agent_id)}[/dim]"


def _title(event: Happening) -> str:
    colour = {"failed": "red", "timeout": "yellow", "completed": "green"}.get(event.status or "")
    name = event.event_type + (f" {event.tool_name}" if event.tool_name else "")
    name = f"[{colour}]{name}[/{colour}]" if colour else f"[cyan]{name}[/cyan]"
    status = f" ({event.status})" if event.status in ("failed", "timeout") else ""
    return f"{name}{status}  {escape(event.text)}"


def _provenance(event: Happening) -> str:
    """Who says so: when, in which session, by whom, where in the ledger, under which id."""
    words = (event.at[11:-1], event.session_id, event.agent_id, event.position, event.event_id)
    return f"[dim]{escape('  '.join(words))}[/dim]"


def _line(out: Console, begun: float, text: str) -> None:
    """A step that is done, and when."""
    out.print(f"[dim]{time.monotonic() - begun:5.1f} s[/dim]  {text}")
