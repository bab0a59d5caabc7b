"""What stands beside the events that say it: causes and neighbours that share no word with it."""

from __future__ import annotations

import numpy
import pytest

from api.retrieval.intent import path_intents
from api.retrieval.query_terms import query_terms
from api.retrieval.ranking import HOP_SHARE, Pool, anchors, coverage, holding, led_to, ranking
from consolidation.decay import DecayWeights
from pipelines.graph.rows import StepEdge
from projections.schema import CAUSED_BY, FOLLOWS
from tests.standings import Said, standings
from tests.steps import steps
from tests.unit.api.test_ranking import own, row


def edge(kind: str, source: int, target: int, **properties: float) -> StepEdge:
    return StepEdge(kind, own(source), own(target), "", properties, own(target), False, None)


CALL = row(1, "cancel order W1234", tool_name="cancel_reservation")
REPLY = row(2, "Yes, please.")
BEFORE = row(3, "Shall I go on?")
OTHER = row(4, "the order has arrived, and the order is paid, as every order")


def covered_by(query: str, rows: list[Said]) -> list[float]:
    terms = query_terms(query)
    found: list[float] = coverage(terms, standings(rows, terms)).tolist()
    return found


def holders(query: str, rows: list[Said]) -> list[bool]:
    terms = query_terms(query)
    found: list[bool] = holding(terms, standings(rows, terms)).tolist()
    return found


def order_of(pool: Pool, rows: list[Said], query: str) -> list[str]:
    terms = query_terms(query)
    ranked = ranking(pool, standings(rows, terms), DecayWeights(0, 0, 1), 0, terms=terms)
    return [one.node_id for one in ranked]


def test_an_event_is_covered_by_its_own_words_and_its_tools() -> None:
    found = covered_by("cancel reservation", [CALL, REPLY, BEFORE, OTHER])
    assert found == [1.0, 0.0, 0.0, 0.0]
    found = covered_by("order cancel", [CALL, REPLY, BEFORE, OTHER])
    assert found[0] == 1.0 > found[3] > 0
    assert covered_by("quokka", [CALL]) == [0.0]
    assert covered_by("quokka", []) == []


def test_only_what_holds_the_identifiers_is_an_anchor_if_anything_does() -> None:
    rows = [CALL, REPLY, OTHER]
    assert holders("what of W1234", rows) == [True, False, False]
    nobody = [False] * 3
    assert holders("W1234 and W1235", rows) == holders("what", rows) == nobody
    assert holders("W123", rows) == nobody
    covered = numpy.array([0.4, 0.0, 1.0])
    first, second = numpy.array([True, False, False]), numpy.array([False, True, False])
    assert anchors(covered, first).tolist() == [1.0, 0.0, 0.0]
    assert anchors(covered, second).tolist() == covered.tolist()


def test_what_holds_the_identifier_comes_before_what_says_more() -> None:
    rows = [row(1, "a note about the refund of a booking, and the booking", 0.9), row(2, "3RK2T9")]
    pool = Pool(depths={one.event_id: 0 for one in rows})

    def best(query: str) -> str:
        return order_of(pool, rows, query)[0]

    assert best("What was the refund of booking 3RK2T9?") == own(2)
    assert best("What was the refund of booking 3RK2T0?") == own(1)


def test_paths_lead_along_the_edges_of_the_intent() -> None:
    edges = steps(
        [edge(CAUSED_BY.type, 1, 2, confidence=0.9), edge(FOLLOWS.type, 3, 2, delta_ms=0)]
    )
    why = led_to({own(1): 1.0}, edges, {"why": 1.0})
    assert why[own(2)] == pytest.approx(0.9 * HOP_SHARE)
    assert why[own(2)] > why[own(3)]
    assert own(1) not in why
    half = led_to({own(1): 1.0}, edges, {"why": 0.5})
    assert half[own(2)] == pytest.approx(why[own(2)] / 2)
    assert led_to({own(4): 1.0}, edges, {"why": 1.0}) == {}  # the walk did not meet it


def test_the_cause_of_what_is_asked_about_ranks_above_what_shares_words() -> None:
    rows = [CALL, REPLY, BEFORE, OTHER]
    query = "Why did the agent cancel the order?"
    pool = Pool(
        depths={one.event_id: 0 for one in rows},
        met=steps([edge(CAUSED_BY.type, 1, 2, confidence=0.9)]),
        path_intents=path_intents(query, {"why": 0.7}),
    )
    order = order_of(pool, rows, query)
    assert order.index(own(2)) < order.index(own(4))
    plain = Pool(depths=pool.depths)
    order = order_of(plain, rows, query)
    assert order.index(own(2)) > order.index(own(4))


@pytest.mark.parametrize(
    ("query", "intents", "expected"),
    [
        ("Why did it fail?", {"why": 0.7}, {"why"}),
        ("When did Ann arrive?", {"when": 0.7}, set()),
        ("What happened right before the call?", {"when": 0.5}, {"when"}),
        ("Find events similar to this one", {"related": 0.7}, {"related"}),
        ("What did Ann paint?", {"what": 0.7}, set()),
        ("the reason", {"why": 0.5}, set()),
    ],
)
def test_some_questions_ask_for_what_is_beside(
    query: str, intents: dict[str, float], expected: set[str]
) -> None:
    assert set(path_intents(query, intents)) == expected  # type: ignore[arg-type]  # intents by name
