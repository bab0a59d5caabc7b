"""Value flow on two hundred real conversations: as right and as complete as is claimed."""

from __future__ import annotations

import pytest

from tests.acceptance.value_flow import evaluate

LEAST_PRECISION = 0.95
LEAST_RECALL = 0.85
LEAST_NEGATIVES = 100
MOST_WRONG_NEGATIVES = 0

pytestmark = [
    pytest.mark.acceptance,
    pytest.mark.skipif(not evaluate.CONVERSATIONS.exists(), reason="the shared data are not here"),
]


@pytest.fixture(scope="module")
def conversations() -> list[evaluate.Conversation]:
    return list(evaluate.conversations())


@pytest.mark.parametrize("parity", [1, 0], ids=["tuned on", "held out"])
def test_value_flow_agrees_with_the_labels(
    conversations: list[evaluate.Conversation], parity: int
) -> None:
    found = evaluate.score([c for c in conversations if c.number % 2 == parity])

    assert found.precision >= LEAST_PRECISION
    assert found.recall >= LEAST_RECALL


def test_value_flow_keeps_silent_where_a_reader_saw_another_origin(
    conversations: list[evaluate.Conversation],
) -> None:
    judged = evaluate.negatives()
    wrong = evaluate.wrong_negatives(conversations, judged)

    assert sum(item["verdict"] == "negative" for item in judged) >= LEAST_NEGATIVES
    assert len(wrong) <= MOST_WRONG_NEGATIVES, wrong
