"""`recollect demo`."""

from __future__ import annotations

import shutil
import signal
import tempfile
import time
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
from pipelines.local.data_folder import LocalState
from pipelines.local.workers import Processes
from pipelines.operations import demo as scenario
from pipelines.operations.api import RunningApi
from pipelines.operations.demo import Happening, Lineage
from pipelines.operations.formats.table import event_items
from pipelines.operations.imports import import_events
from pipelines.operations.sources import Source
from pipelines.proof.verify import verify
from pipelines.work.services import Services
from pipelines.work.stages import ENRICHMENT

app = typer.Typer()

PATIENCE_S = 120.0
ENRICHED_PATIENCE_S = 300.0
"""Models have to be loaded first, on a machine that may be busy."""
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
        with Processes(settings) as processes:
            processes.wait_ready()
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
            show_answer(out, reply.question.text, reply.document, shown=SHOWN_NODES, why=reply.why)
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
