"""How an answer looks: causes as a tree, nodes with scores and sources, nothing that breaks out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from pipelines.cli.ask import show_answer


def node(own_id: str, **fields: Any) -> dict[str, Any]:
    attributes = {"event_type": "tool.call", "status": None, "summary": f"said {own_id}", **fields}
    provenance = {
        "occurred_at": "2026-03-04T09:11:05.000Z",
        "session_id": "checkout",
        "agent_id": "cashier",
    }
    return {
        "node_id": own_id,
        "type": "Event",
        "attributes": attributes,
        "provenance": provenance,
        "scores": {"rank_score": 0.5},
        "retrieval_reason": "direct",
    }


def because(effect: str | None, cause: str, **fields: Any) -> dict[str, Any]:
    step: dict[str, Any] = {
        "node_id": cause,
        "cause_of": effect,
        "evidence": [],
        "decided_by": None,
    }
    return {**step, **fields}


def why(nodes: Sequence[dict[str, Any]], *steps: dict[str, Any], **fields: Any) -> dict[str, Any]:
    told = {"tree": list(steps), "doubtful": False, "helped": [], **fields}
    return {"nodes": list(nodes), "answer": told}


def answer(nodes: Sequence[dict[str, Any]], intent: str = "why", **meta: Any) -> dict[str, Any]:
    said = {
        "intent": intent,
        "inferred_intents": {intent: 0.7},
        "seed_nodes": [],
        "nodes_returned": len(nodes),
        "query_ms": 12,
        **meta,
    }
    return {"nodes": list(nodes), "edges": [], "meta": said}


def printed(document: dict[str, Any], shown: int, why: dict[str, Any] | None = None) -> str:
    console = Console(width=200, highlight=False)
    with console.capture() as captured:
        show_answer(console, "Why?", document, shown=shown, why=why)
    return captured.get()


def test_causes_stand_below_what_they_caused_and_are_told_once() -> None:
    nodes = [node(own_id) for own_id in "abcd"]
    steps = because(None, "a"), because("a", "b"), because("b", "c")
    text = printed(answer(nodes), 5, why(nodes[:3], *steps))
    tree, _, rest = text.partition("and what else was found")
    assert [tree.count(f"said {own_id}") for own_id in "abcd"] == [1, 1, 1, 0]
    assert tree.index("said a") < tree.index("said b") < tree.index("said c")
    assert "said d" in rest
    assert "said a" not in rest


def test_what_helped_and_what_joins_sessions_is_told() -> None:
    nodes = [node("a"), node("b")]
    lesson = {"text": "with [x] added", "session_id": "s-2", "solved_event_ids": ["e"]}
    recorded = because("a", "b", evidence=["tok-1", "tok-2"], decided_by="d")
    told = why(
        nodes,
        *(because(None, "a"), recorded),
        doubtful=True,
        helped=[lesson | {"same_story": True}, lesson | {"same_story": False}],
    )
    text = printed(answer(nodes), 5, told)
    assert "because (both name tok-1, tok-2) tool.call" in text
    assert "something else is as likely" in text
    assert text.count("with [x] added") == 2
    assert text.count("(a similar failure, in s-2)") == 1


def test_nodes_are_shown_with_their_score_and_source() -> None:
    text = printed(answer([node("a", tool_name="charge", status="timeout")], intent="what"), 5)
    assert "0.50  tool.call charge (timeout)  said a" in text
    assert "2026-03-04 09:11:05  checkout  cashier  a" in text
    assert "what 0.7" in text
    assert "1 found in 12 ms" in text


def test_markup_in_what_was_said_is_only_text() -> None:
    text = printed(answer([node("a", summary="[red]x[/red] [/nonsense]")], intent="what"), 5)
    assert "[red]x[/red] [/nonsense]" in text


def test_nothing_found_is_said_and_so_is_what_was_missing() -> None:
    text = printed(answer([], degraded=["embeddings: no vector in time"]), 5)
    assert "nothing was found" in text
    assert "without embeddings: no vector in time" in text


def test_entities_are_shown_by_name() -> None:
    made = {
        **node("entity:0f"),
        "type": "Entity",
        "attributes": {"name": "Order 4711", "entity_type": "resource"},
    }
    text = printed(answer([made], intent="what", seed_nodes=["entity:0f"]), 5)
    assert "about Order 4711 (resource)" in text
    assert "what 0.7; about Order 4711" in text


def judged(value: Any, *, answered: bool = True) -> dict[str, Any]:
    document = answer([node("a"), node("b")], intent="what", answered=answered)
    return {**document, "answer": {"type": "value", "value": value, "evidence": ["a"]}}


def test_a_value_stands_above_what_proves_it() -> None:
    text = printed(judged("30 [s]"), 5)
    assert text.index("30 [s]") < text.index("said a")
    lines = printed(judged(["lives in Oslo", "prefers tea"]), 5).splitlines()
    assert {"lives in Oslo", "prefers tea"} <= set(lines)


def test_the_words_of_the_first_event_are_not_said_twice() -> None:
    assert printed(judged("said a"), 5).count("said a") == 1


def test_what_is_not_known_is_said_before_what_is_nearest() -> None:
    text = printed(judged(None, answered=False), 5)
    assert text.index("not known") < text.index("said a")
