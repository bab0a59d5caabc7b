"""`recollect ask`: a question to the memory, answered for a person."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console, RenderableType
from rich.markup import escape
from rich.tree import Tree

from pipelines.cli.invocation import Invocation, command, log_to_stderr
from pipelines.cli.outcome import FAILED, OK
from pipelines.operations.api import (
    FAILURES,
    MARKDOWN,
    SUBGRAPH,
    TIMEOUT_MS,
    ApiClient,
    InProcessApi,
    Place,
    RunningApi,
    read_key,
    running_place,
)
from projections.events import DEFAULT_TENANT
from projections.schema import ENTITY, EVENT, INTENTS, SUMMARY

EXAMPLE = 'recollect ask "Why was order 4711 charged twice?" --session checkout-4711'
NO_SESSION = "ask"
HINT = "to see what belongs to a user, give --user or one of the user's sessions with --session"
SHOWN = 10
"""Events of an answer that a person wants to see."""
MAX_CAUSES = 15
_MAX_THINGS = 6
_TOLD = (EVENT.label, SUMMARY.label)
Api = Annotated[
    str | None, typer.Option("--api", metavar="URL", help="ask this API instead of the services")
]
KeyFile = Annotated[
    Path | None,
    typer.Option(
        "--api-key-file",
        help="file that holds the key for --api",
        exists=True,
        dir_okay=False,
        readable=True,
    ),
]
COLOURS = {"failed": "red", "timeout": "yellow", "completed": "green"}

app = typer.Typer()


@command(app, "ask", example=EXAMPLE)
def ask(
    invocation: Invocation,
    question: Annotated[
        str, typer.Argument(metavar="QUESTION", help="the question, in plain words")
    ],
    session: Annotated[
        str,
        typer.Option(
            "--session", help="session in which it is asked, on behalf of that session's user"
        ),
    ] = NO_SESSION,
    agent: Annotated[str, typer.Option("--agent", help="agent that asks")] = "ask",
    user: Annotated[
        str | None,
        typer.Option("--user", help="see what is of this user, and of nobody; *: of all users"),
    ] = None,
    tenant: Annotated[
        str, typer.Option("--tenant", help="tenant whose memory is asked")
    ] = DEFAULT_TENANT,
    intent: Annotated[str | None, typer.Option("--intent", help=", ".join(INTENTS))] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, max=100, help="how many events to show at most")
    ] = SHOWN,
    max_tokens: Annotated[
        int | None,
        typer.Option(
            "--max-tokens",
            min=50,
            help="print text for a language model instead, of at most so many tokens",
        ),
    ] = None,
    api: Api = None,
    key_file: KeyFile = None,
) -> int:
    """Ask the memory a question, and see the answer with its sources.

    The API of the embedded services answers if it is running. Otherwise this command answers from
    the services themselves, which takes a few seconds while the query model loads. Nothing that is
    shown here counts as an access.
    """
    if intent is not None and intent not in INTENTS:
        raise typer.BadParameter(f"one of {', '.join(INTENTS)}", param_hint="--intent")
    body: dict[str, Any] = {
        "query": question,
        "session_id": session,
        "agent_id": agent,
        "timeout_ms": TIMEOUT_MS,
        "record_access": False,
    }
    body |= {name: value for name, value in (("intent", intent), ("user_id", user)) if value}
    with closing(client_for(invocation, api, key_file)) as client:
        if max_tokens is not None:
            body["max_tokens"] = max_tokens
            text = client.ask(SUBGRAPH, body, tenant, accept=MARKDOWN).text
            invocation.answer({"text": text}, lambda out: out.print(text, markup=False, end=""))
            return OK
        document = client.ask(SUBGRAPH, body, tenant).document
        why = client.why(body, document, tenant)
    if session == NO_SESSION and user is None and not invocation.json:
        invocation.note(HINT)
    invocation.answer(
        document if why is None else {**document, "why": why},
        lambda out: show_answer(out, question, document, shown=limit, why=why),
    )
    return OK if document["nodes"] else FAILED


def api_place(invocation: Invocation, url: str | None, key_file: Path | None) -> Place | None:
    """The API that is named, else that of the data folder; None: no API runs there.

    Nor is one taken that may have another ledger or another graph than the services that are named.
    """
    if url is not None:
        return Place(url, None if key_file is None else read_key(key_file))
    if invocation.redis is None and invocation.neo4j is None:
        return running_place(invocation.settings.data_dir)
    return None


def client_for(invocation: Invocation, url: str | None, key_file: Path | None) -> ApiClient:
    """Who answers: the API that is named, the one of the data folder, else one of our own."""
    place = api_place(invocation, url, key_file)
    if place is not None:
        return RunningApi(*place)
    log_to_stderr(invocation.settings, debug=invocation.debug)
    invocation.require_ledger()
    return InProcessApi(invocation.settings)


def show_answer(
    out: Console,
    question: str,
    document: Mapping[str, Any],
    *,
    shown: int,
    why: Mapping[str, Any] | None = None,
) -> None:
    """Print an answer: causes as a tree where the question asks for them, and what was found.

    Args:
        out: where to.
        question: as it was asked.
        document: the answer.
        shown: nodes at most.
        why: the answer to the question for causes, when it was one.
    """
    meta, nodes = document["meta"], document["nodes"]
    out.print(f"[bold]{escape(question)}[/bold]")
    out.print(f"[dim]{escape(_understood(meta, nodes))}[/dim]\n")
    if not nodes:
        out.print("[dim]nothing was found[/dim]")
    for words in answer_lines(document, has_tree=why is not None):
        out.print(words)
    if why is not None:
        show_why(out, why)
        out.print("\n[dim]and what else was found[/dim]")
    told = () if why is None else {step["node_id"] for step in why["answer"]["tree"]}
    for line in found_lines(nodes, shown, without=told):
        out.print(line)
    for remark in meta.get("degraded", ()):
        out.print(f"[yellow]without {escape(remark)}[/yellow]")
    withheld = f", {meta['withheld']} of other users withheld" if meta.get("withheld") else ""
    out.print(f"\n[dim]{len(nodes)} found in {meta['query_ms']} ms{withheld}[/dim]")


def answer_lines(document: Mapping[str, Any], *, has_tree: bool) -> Iterable[str]:
    """What answers the question in a few words, or that it is not known.

    Args:
        document: the answer.
        has_tree: its causes are shown, which say more than the words would.
    """
    answer, nodes = document.get("answer"), document["nodes"]
    if answer is None or not nodes:
        return
    if not document["meta"]["answered"]:
        yield "[yellow]not known; the nearest that is recorded:[/yellow]"
        return
    value = answer["value"]
    first = nodes[0]["attributes"].get("summary") if nodes else None
    if has_tree or value is None or value == first:
        return
    parts = value if isinstance(value, list) else str(value).splitlines()
    for part in parts:
        yield f"[bold green]{escape(str(part))}[/bold green]"
    yield ""


def _understood(meta: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """What the question was taken for, and which of its words are known."""
    intents = meta.get("inferred_intents") or {}
    weighed = [
        f"{name} {score:.1f}" for name, score in sorted(intents.items(), key=lambda i: -i[1])
    ]
    parts = [", ".join(weighed) or str(meta["intent"])]
    names = {node["node_id"]: _name(node) for node in nodes if node["type"] == ENTITY.label}
    seeds = [names[node_id] for node_id in meta.get("seed_nodes", ()) if node_id in names]
    if seeds:
        parts.append("about " + ", ".join(seeds[:_MAX_THINGS]))
    return "; ".join(parts)


def show_why(out: Console, why: Mapping[str, Any]) -> None:
    """Print the causes as a tree, whether that is what was asked about, and what helped."""
    answer = why["answer"]
    out.print(causes(why))
    if answer["doubtful"]:
        out.print("[yellow]something else is as likely what was asked about[/yellow]")
    if answer["helped"]:
        out.print("\n[dim]what helped[/dim]")
    for lesson in answer["helped"]:
        where = "" if lesson["same_story"] else f"  (a similar failure, in {lesson['session_id']})"
        out.print(f"[green]{escape(lesson['text'])}[/green]{escape(where)}")
        out.print(f"      [dim]{escape('  '.join(lesson['solved_event_ids']))}[/dim]")


def causes(why: Mapping[str, Any]) -> Tree:
    """An event, and its causes below it, MAX_CAUSES at most."""
    nodes = {node["node_id"]: node for node in why["nodes"]}
    below: dict[str | None, list[Mapping[str, Any]]] = {}
    for step in why["answer"]["tree"][: MAX_CAUSES + 1]:
        below.setdefault(step["cause_of"], []).append(step)
    (head,) = below[None]
    tree = Tree(event_lines(nodes[head["node_id"]]), guide_style="dim")
    _grow(tree, below, nodes, head["node_id"])
    return tree


def _grow(
    tree: Tree,
    below: Mapping[str | None, Sequence[Mapping[str, Any]]],
    nodes: Mapping[str, Mapping[str, Any]],
    effect: str,
) -> None:
    """Add causes; a chain without forks stays on one level, so that the tree stays narrow."""
    while reasons := below.get(effect, ()):
        branches = [(reason, tree.add(_because(reason, nodes))) for reason in reasons]
        if len(branches) > 1:
            for reason, branch in branches:
                _grow(branch, below, nodes, reason["node_id"])
            return
        effect = reasons[0]["node_id"]


def _because(step: Mapping[str, Any], nodes: Mapping[str, Mapping[str, Any]]) -> str:
    names = ", ".join(step["evidence"]) if step["decided_by"] else ""
    note = f" [magenta](both name {escape(names)})[/magenta]" if names else ""
    return f"[dim]because[/dim]{note} {event_lines(nodes[step['node_id']])}"


def found_lines(
    nodes: Sequence[Mapping[str, Any]], shown: int, *, without: Container[str]
) -> Iterable[RenderableType]:
    """The best events and summaries, each with its score and source; then what they are about."""
    others = [node for node in nodes if node["node_id"] not in without]
    told = [node for node in others if node["type"] in _TOLD]
    for node in told[:shown]:
        score = f"[bold]{node['scores']['rank_score']:.2f}[/bold]"
        if node["type"] == EVENT.label:
            yield f"{score}  {event_lines(node, indent=6)}"
        else:
            yield f"{score}  [cyan]summary[/cyan]  {escape(cut(_name(node)))}"
            yield f"      [dim]{escape(node['node_id'])}[/dim]"
    things = [_thing(node) for node in others if node["type"] not in _TOLD]
    if things:
        yield f"[dim]about[/dim] {escape(', '.join(dict.fromkeys(things[:_MAX_THINGS])))}"


def _thing(node: Mapping[str, Any]) -> str:
    """An entity or a community by its name and kind."""
    kind = node["attributes"].get("entity_type") or node["type"].lower()
    return f"{_name(node)} ({kind})"


_NAMES = ("display_name", "name", "canonical_name", "content", "summary")


def _name(node: Mapping[str, Any]) -> str:
    attributes = node["attributes"]
    return next(
        (str(attributes[key]) for key in _NAMES if attributes.get(key)), str(node["node_id"])
    )


def event_lines(node: Mapping[str, Any], *, indent: int = 0) -> str:
    """An event in two lines: what happened, and who says so."""
    attributes, provenance = node["attributes"], node["provenance"]
    status = attributes.get("status") or ""
    name = attributes.get("event_type") or ""
    if attributes.get("tool_name"):
        name += f" {attributes['tool_name']}"
    colour = COLOURS.get(status, "cyan")
    state = f" ({status})" if status in FAILURES else ""
    text = attributes.get("summary") or ""
    note = ""
    if node.get("retrieval_reason") == "proactive":
        signal = str(node.get("proactive_signal") or "").replace("_", " ")
        note = f"  [magenta]{escape(signal)}[/magenta]"
    words = (
        (provenance.get("occurred_at") or "")[:19].replace("T", " "),
        provenance.get("session_id") or "",
        provenance.get("agent_id") or "",
        node["node_id"],
    )
    content = f"  {escape(cut(text))}" if text else ""
    origin = escape("  ".join(words))
    first = f"[{colour}]{escape(name)}[/{colour}]{state}{content}{note}"
    return f"{first}\n{' ' * indent}[dim]{origin}[/dim]"


def cut(text: str, characters: int = 120) -> str:
    """The beginning of a text, on one line."""
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"
