"""How the answer to a question looks to a person: what was found, why it counts, who says so."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from projections.schema import CAUSED_BY, ENTITY, EVENT, SUMMARY

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.tree import Tree

SHOWN = 10
"""Events of an answer that a person wants to see."""
MAX_CAUSES = 15
_MAX_KNOWN = 6
_TOLD = (EVENT.label, SUMMARY.label)
_FAILURES = ("failed", "timeout")
_COLOURS = {"failed": "red", "timeout": "yellow", "completed": "green"}


def show_answer(
    out: Console,
    question: str,
    document: Mapping[str, Any],
    shown: int,
    lineage: Mapping[str, Any] | None = None,
) -> None:
    """Print an answer: causes as a tree where the question asks for them, and what was found.

    Args:
        out: where to.
        question: as it was asked.
        document: the answer.
        shown: nodes at most.
        lineage: of `explained(document)`, when the question was why.
    """
    from rich.markup import escape

    meta, nodes = document["meta"], document["nodes"]
    out.print(f"[bold]{escape(question)}[/bold]")
    out.print(f"[dim]{escape(_understood(meta, nodes))}[/dim]\n")
    if not nodes:
        out.print("[dim]nothing was found[/dim]")
    if lineage is not None:
        out.print(causes(lineage))
        out.print("\n[dim]and what else was found[/dim]")
    told = () if lineage is None else {node["node_id"] for node in lineage["nodes"]}
    for line in found(nodes, shown, without=told):
        out.print(line)
    for remark in meta.get("degraded", ()):
        out.print(f"[yellow]without {escape(remark)}[/yellow]")
    out.print(f"\n[dim]{len(nodes)} found in {meta['query_ms']} ms[/dim]")


def _understood(meta: Mapping[str, Any], nodes: Sequence[Mapping[str, Any]]) -> str:
    """What the question was taken for, and which of its words are known."""
    intents = meta.get("inferred_intents") or {}
    asked = [f"{name} {score:.1f}" for name, score in sorted(intents.items(), key=lambda i: -i[1])]
    parts = [", ".join(asked) or str(meta["intent"])]
    names = {node["node_id"]: _name(node) for node in nodes if node["type"] == ENTITY.label}
    known = [names[one] for one in meta.get("seed_nodes", ()) if one in names]
    if known:
        parts.append("about " + ", ".join(known[:_MAX_KNOWN]))
    return "; ".join(parts)


def explained(document: Mapping[str, Any]) -> str | None:
    """The event that a question for causes is about: the best that failed, else the best."""
    if document["meta"]["intent"] != "why":
        return None
    events = [node for node in document["nodes"] if node["type"] == EVENT.label]
    failed = [node for node in events if node["attributes"].get("status") in _FAILURES]
    return next((str(node["node_id"]) for node in (*failed, *events)), None)


def causes(lineage: Mapping[str, Any]) -> Tree:
    """An event, and its causes below it."""
    from rich.tree import Tree

    known = {node["node_id"]: node for node in lineage["nodes"]}
    because: dict[str, list[str]] = {}
    for edge in lineage["edges"]:
        if edge["type"] == CAUSED_BY.type and edge["target"] not in because.get(edge["source"], ()):
            because.setdefault(edge["source"], []).append(edge["target"])
    (start, *_) = lineage["meta"]["seed_nodes"]
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
    nodes: Sequence[Mapping[str, Any]], shown: int, *, without: Container[str]
) -> Iterable[RenderableType]:
    """The best events and summaries, each with its score and source; then what they are about."""
    from rich.markup import escape

    kept = [node for node in nodes if node["node_id"] not in without]
    told = [node for node in kept if node["type"] in _TOLD]
    for node in told[:shown]:
        score = f"[bold]{node['scores']['rank_score']:.2f}[/bold]"
        if node["type"] == EVENT.label:
            yield f"{score}  {event_lines(node, indent=6)}"
        else:
            yield f"{score}  [cyan]summary[/cyan]  {escape(_cut(_name(node)))}"
            yield f"      [dim]{escape(node['node_id'])}[/dim]"
    things = [_thing(node) for node in kept if node["type"] not in _TOLD]
    if things:
        yield f"[dim]about[/dim] {escape(', '.join(dict.fromkeys(things[:_MAX_KNOWN])))}"


def _thing(node: Mapping[str, Any]) -> str:
    """An entity or a community by its name and kind."""
    kind = node["attributes"].get("entity_type") or node["type"].lower()
    return f"{_name(node)} ({kind})"


_NAMES = ("display_name", "name", "canonical_name", "content", "summary")


def _name(node: Mapping[str, Any]) -> str:
    known = node["attributes"]
    return next((str(known[key]) for key in _NAMES if known.get(key)), str(node["node_id"]))


def event_lines(node: Mapping[str, Any], *, indent: int = 0) -> str:
    """An event in two lines: what happened, and who says so."""
    from rich.markup import escape

    attributes, provenance = node["attributes"], node["provenance"]
    status = attributes.get("status") or ""
    name = attributes.get("event_type") or ""
    if attributes.get("tool_name"):
        name += f" {attributes['tool_name']}"
    colour = _COLOURS.get(status, "cyan")
    state = f" ({status})" if status in _FAILURES else ""
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
