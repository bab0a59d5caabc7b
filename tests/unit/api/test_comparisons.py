"""Things side by side, and which is first: by the records that an answer shows."""

from __future__ import annotations

from typing import Any

import pytest

from api.comparisons import compared, foremost
from api.retrieval.planning import plan_of
from tests.unit.api.test_record_values import node, shown

BARK = "plot: PL-1\nmulch: bark\nharvest_kg: 31.5\nloss_kg: 4"
STRAW = "plot: PL-2\nmulch: straw\nharvest_kg: 44\nloss_kg: 2"
PLOTS = shown((node("one", tool="measure_plot"), BARK), (node("two", tool="measure_plot"), STRAW))


def told(question: str, given: Any = PLOTS) -> Any:
    plan = plan_of(question, 0)
    answer = compared(plan, ["one"], given) or foremost(plan, given)
    return answer and answer.value


def test_what_differs_is_told_and_what_is_the_same_is_not() -> None:
    same = shown(*((node(name, tool="measure_plot"), text) for name, text in _with_soil()))
    expected = [
        "mulch: PL-1 bark, PL-2 straw",
        "harvest_kg: PL-1 31.5, PL-2 44",
        "loss_kg: PL-1 4, PL-2 2",
    ]
    assert sorted(told("Compare PL-1 and PL-2.", same)) == sorted(expected)
    assert sorted(told("What changed between PL-1 and PL-2?", same)) == sorted(expected)


def _with_soil() -> list[tuple[str, str]]:
    return [("one", f"{BARK}\nsoil: clay"), ("two", f"{STRAW}\nsoil: clay")]


def test_what_only_refers_to_a_thing_does_not_tell_of_it() -> None:
    order = node("order", tool="order_tools", at="2026-01-09T00:00:00.000Z")
    given = shown(
        (node("one", tool="measure_plot"), BARK),
        (node("two", tool="measure_plot"), STRAW),
        (order, "order: OR-1\nplot: PL-1\nmulch: gravel"),
    )
    assert "mulch: PL-1 bark, PL-2 straw" in told("Compare PL-1 and PL-2.", given)


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("Which plot had the highest harvest?", "PL-2"),
        ("Which plot had the lowest harvest?", "PL-1"),
        ("Which mulch had the best harvest?", "straw"),
        ("Which plot had the best loss?", "PL-2"),  # of a loss the least is best
        ("Which plot had the first harvest?", None),
        ("Which gate had the highest harvest?", None),
        ("Compare PL-1 and PL-7.", None),
        ("What is PL-1?", None),
    ],
)
def test_the_first_of_several_is_named(question: str, value: str | None) -> None:
    assert told(question) == value
