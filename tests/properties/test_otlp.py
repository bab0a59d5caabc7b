"""Whatever the order in which spans of a trace come, and in however many requests: the same events.

The ledger keeps the first account of an event, so where several spans tell of one, its words may be
those of either; which events there are, and what they are about, is always the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from projections.traces.spans import Span
from tests.otlp_factories import asks, chat, mapped, returns, span, text, tool

WORDS = st.sampled_from(["yes", "no", "Refund order 4711", "Which gateway?", "Try again"])
SESSION = {"session.id": "s-1", "user.id": "maya"}
STABLE = ("event_type", "session_id", "trace_id", "user_id", "tool_name", "status")
"""Fields of an event that all accounts agree on."""


@st.composite
def traces(draw: st.DrawFn) -> list[Span]:
    """An agent's turns: a model that is asked, again at times, tools that fail at times."""
    history: list[dict[str, Any]] = [text("system", "Be brief.")]
    scope = {"gen_ai.operation.name": "invoke_agent", **SESSION}
    spans = [span("run", scope, lasts=1_000), span("GET /", {"http.route": "/"}, parent="run")]
    for turn in range(draw(st.integers(1, 4))):
        at = turn * 10
        history.append(text("user", draw(WORDS)))
        for step in range(draw(st.integers(1, 3))):
            name = f"{turn}.{step}"
            call_id = f"call_{turn:05}{step:05}"
            calls = draw(st.booleans())
            answer = (
                asks(call_id, "refund", {"order": step}, draw(st.sampled_from(["", "I refund."])))
                if calls
                else text("assistant", draw(WORDS))
            )
            for again in range(draw(st.integers(1, 2))):
                told = [answer] if again == 0 else []
                spans.append(_chat(f"{name} {again}", history, told, at + step + again / 8))
            if history[-1]["role"] == "user" and draw(st.booleans()):
                spans.append(_chat(f"{name} router", history[-1:], [], at + step))
            history.append(answer)
            if calls:
                spans.extend(_executed(draw, name, call_id, step, at + step + 0.5))
                failed = draw(st.booleans())
                spans[-1] = _ended(spans[-1], failed=failed)
                history.append(returns(call_id, "Error: no answer" if failed else {"ok": True}))
    return spans


def _chat(name: str, sent: Sequence[Any], answers: list[Any], at: float) -> Span:
    return chat(name, sent, answers, at=at, lasts=0.1, parent="run", attributes=SESSION)


def _executed(draw: st.DrawFn, name: str, call_id: str, step: int, at: float) -> list[Span]:
    spans = []
    if draw(st.booleans()):
        inner = [text("user", f"Look at {name}")]
        spans.append(
            chat(f"{name} inner", inner, [], at=at, parent=f"{name} tool", attributes=SESSION)
        )
    arguments = {"order": step}
    executed = tool(
        f"{name} tool", call_id, arguments, at=at, tool="refund", parent="run", attributes=SESSION
    )
    return [*spans, executed]


def _ended(executed: Span, *, failed: bool) -> Span:
    told = {"error.type": "no answer"} if failed else {"gen_ai.tool.call.result": '{"ok": true}'}
    return executed._replace(attributes={**executed.attributes, **told})


def stored(requests: Sequence[Sequence[Span]]) -> dict[str, dict[str, Any]]:
    """Envelopes by id, as a ledger that keeps the first account has them."""
    kept: dict[str, dict[str, Any]] = {}
    for spans in requests:
        for draft in mapped(spans).drafts:
            kept.setdefault(draft.event_id, dict(draft.envelope))
    return kept


def about(events: dict[str, dict[str, Any]]) -> dict[str, list[Any]]:
    """What events are about, by id."""
    return {event_id: [event.get(name) for name in STABLE] for event_id, event in events.items()}


@given(traces(), st.data())
def test_any_order_in_one_request_is_the_same_envelopes(spans: list[Span], data: Any) -> None:
    shuffled = data.draw(st.permutations(spans))
    assert stored([shuffled]) == stored([spans])


@given(traces(), st.data())
def test_any_order_and_any_split_is_the_same_events(spans: list[Span], data: Any) -> None:
    shuffled = data.draw(st.permutations(spans))
    cuts = sorted(data.draw(st.sets(st.integers(0, len(spans)), max_size=4)))
    bounds = [0, *cuts, len(spans)]
    requests = [shuffled[start:end] for start, end in pairwise(bounds)]
    assert about(stored(requests)) == about(stored([spans]))


@given(traces(), st.data())
def test_what_is_sent_again_adds_nothing(spans: list[Span], data: Any) -> None:
    again = data.draw(st.lists(st.sampled_from(spans)))
    assert stored([spans, again]) == stored([spans])


@given(traces())
def test_a_parent_is_an_event_of_the_whole_trace(spans: list[Span]) -> None:
    events = stored([spans])
    parents = {event.get("parent_event_id") for event in events.values()} - {None}
    assert parents <= events.keys()


@given(traces(), st.data())
def test_parents_named_by_half_a_trace_are_events_of_the_whole(
    spans: list[Span], data: Any
) -> None:
    half = data.draw(st.lists(st.sampled_from(spans), unique_by=lambda item: item.span_id))
    parents = {event.get("parent_event_id") for event in stored([half]).values()} - {None}
    assert parents <= stored([spans]).keys()
