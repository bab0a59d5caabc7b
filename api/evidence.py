"""A subgraph answer as text: its events as evidence within a number of tokens."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from api.retrieval.narrative import Evidence, evidence_markdown
from api.schemas import Node
from projections.events import timestamp_ms
from projections.schema import EVENT


def subgraph_markdown(nodes: Iterable[Node], texts: Mapping[str, str], max_tokens: int) -> str:
    """The events of an answer in reading order, the best of them if not all fit.

    Args:
        nodes: the best first.
        texts: what events say, by id; without it what they are.
        max_tokens: estimated, see `estimated_tokens`.
    """
    events = [evidence for node in nodes if (evidence := _evidence(node, texts)) is not None]
    return evidence_markdown(events, max_tokens=max_tokens)


def _evidence(node: Node, texts: Mapping[str, str]) -> Evidence | None:
    """An event of an answer; None for other nodes."""
    known, origin = node.attributes, node.provenance
    if node.type != EVENT.label or origin.occurred_at is None:
        return None

    def said(name: str) -> str | None:
        value = known.get(name)
        return value if isinstance(value, str) else None

    return Evidence(
        event_id=node.node_id,
        occurred_at_ms=timestamp_ms(origin.occurred_at),
        session_id=origin.session_id or "",
        agent_id=origin.agent_id or "",
        event_type=said("event_type") or "",
        text=texts.get(node.node_id) or said("summary") or "",
        speaker=said("speaker"),
        tool_name=said("tool_name"),
        status=said("status"),
        note=(node.proactive_signal or "").replace("_", " ") or None,
    )
