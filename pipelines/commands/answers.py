"""How the answer to a question looks to a person: what was found, why it counts, who says so."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from projections.schema import CAUSED_BY, ENTITY, EVENT

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.tree import Tree

SHOWN = 10
"""Events of an answer that a person wants to see."""
MAX_CAUSES = 12
_COLOURS = {"failed": "red", "timeout": "yellow", "completed": "green"}


def show_answer(out: Console, question: str, document: Mapping[str, Any], shown: int) -> None:
    """Print an answer: causes as a tree where the question asks for them, else a list."""
    from rich.markup import escape

    meta, nodes = document["meta"], document["nodes"]
    out.print(f"[bold]{escape(question)}[/bold]")
    out.print(f"[dim]{escape(_understood(meta))}[/dim]\n")
    events = [node for node in nodes if node["type"] == EVENT.label]
    if not nodes:
        out.print("[dim]nothing was found[/dim]")
    told: set[str] = set()
    if meta["intent"] == "why" and (tree := causes(events, document["edges"])) is not None:
        out.print(tree)
        out.print()
        told = {EVENT.label}
    for line in found(nodes, shown, without=told):
        out.print(line)
    for remark in meta.get("degraded", ()):
        out.print(f"[yellow]without {escape(remark)}[/yellow]")
    more = f", {meta['nodes_returned']} in all" if meta["nodes_returned"] > shown else ""
    out.print(
        f"\n[dim]{meta['query_ms']} ms{more}; sources: recollect graph, GET /v1/events/ID[/dim]"
    )


def _understood(meta: Mapping[str, Any]) -> str:
    """What the question was taken for."""
    intents = meta.get("inferred_intents") or {}
    asked = [f"{name} {score:.1f}" for name, score in sorted(intents.items(), key=lambda i: -i[1])]
    parts = [", ".join(asked) or str(meta["intent"])]
    if meta.get("seed_nodes"):
        names = [str(name) for name in meta["seed_nodes"][:4]]
        parts.append("from " + ", ".join(names))
    return "; ".join(parts)


def causes(events: Sequence[Mapping[str, Any]], edges: Iterable[Mapping[str, Any]]) -> Tree | None:
    """The best event that has causes among the answer's, and its causes below it."""
    from rich.tree import Tree

    known = {event["node_id"]: event for event in events}
    because: dict[str, list[str]] = {}
    for edge in edges:
        if edge["type"] == CAUSED_BY.type and {edge["source"], edge["target"]} <= set(known):
            because.setdefault(edge["source"], []).append(edge["target"])
    start = next((event["node_id"] for event in events if event["node_id"] in because), None)
    if start is None:
        return None
    # from the last effect that the answer holds: what was asked about is often in the middle
    effects = {cause: effect for effect, reasons in because.items() for cause in reasons}
    seen = {start}
    while (effect := effects.get(start)) is not None and effect not in seen:
        start = effect
        seen.add(effect)
    tree = Tree(event_lines(known[start]), guide_style="dim")
    _grow(tree, start, because, known, {start})
    return tree


def _grow(
    tree: Tree,
    effect: str,
    because: Mapping[str, Sequence[str]],
    known: Mapping[str, Mapping[str, Any]],
    told: set[str],
) -> None:
    """Add the causes; a chain without forks stays on one level, so that the tree stays narrow."""
    here = effect
    while here in because and len(told) <= MAX_CAUSES:
        reasons = [one for one in because[here] if one not in told]
        told.update(reasons)
        if len(reasons) == 1:
            tree.add(f"[dim]because[/dim] {event_lines(known[reasons[0]])}")
            here = reasons[0]
            continue
        for reason in reasons:
            branch = tree.add(f"[dim]because[/dim] {event_lines(known[reason])}")
            _grow(branch, reason, because, known, told)
        return


def found(
    nodes: Sequence[Mapping[str, Any]], shown: int, *, without: set[str]
) -> Iterable[RenderableType]:
    """The best nodes, each with its score and where it comes from."""
    from rich.markup import escape

    kept = [node for node in nodes if node["type"] not in without][:shown]
    for node in kept:
        score = f"[bold]{node['scores']['rank_score']:.2f}[/bold]"
        if node["type"] == EVENT.label:
            yield f"{score}  {event_lines(node, indent=6)}"
            continue
        attributes = node["attributes"]
        name = next((attributes[key] for key in _NAMES if attributes.get(key)), node["node_id"])
        kind = node["type"].lower()
        if node["type"] == ENTITY.label and attributes.get("entity_type"):
            kind = str(attributes["entity_type"])
        yield f"{score}  [cyan]{escape(kind)}[/cyan]  {escape(_cut(str(name)))}"
        yield f"      [dim]{escape(node['node_id'])}[/dim]"


_NAMES = ("display_name", "name", "canonical_name", "content", "summary")


def event_lines(node: Mapping[str, Any], *, indent: int = 0) -> str:
    """An event in two lines: what happened, and who says so."""
    from rich.markup import escape

    attributes, provenance = node["attributes"], node["provenance"]
    status = attributes.get("status") or ""
    name = attributes.get("event_type") or ""
    if attributes.get("tool_name"):
        name += f" {attributes['tool_name']}"
    colour = _COLOURS.get(status, "cyan")
    state = f" ({status})" if status in ("failed", "timeout") else ""
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
    said = f"  {escape(_cut(text))}" if text else ""
    origin = escape("  ".join(words))
    return (
        f"[{colour}]{escape(name)}[/{colour}]{state}{said}{note}\n{' ' * indent}[dim]{origin}[/dim]"
    )


def _cut(text: str, characters: int = 120) -> str:
    line = " ".join(text.split())
    return line if len(line) <= characters else line[: characters - 1] + "…"
