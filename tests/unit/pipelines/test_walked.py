"""How far a walk goes, and what it says of what it met."""

from __future__ import annotations

from itertools import pairwise

import numpy
import pytest

from pipelines.columns.graph_scores import ActivationConfig
from pipelines.columns.reads import Walked
from pipelines.columns.walked import BEAM
from pipelines.graph.rows import StepEdge
from projections.schema import CAUSED_BY, FOLLOWS, INTENT_WEIGHTS, MAX_WEIGHT
from tests.steps import walk_asked, walked_over

FROM_A = walk_asked({"a": 1.0}, {"why": 1.0})
SHARE = INTENT_WEIGHTS["why"][CAUSED_BY.type] / MAX_WEIGHT


def edge(source: str, target: str, confidence: float = 1.0, *, closed: bool = False) -> StepEdge:
    said = {"confidence": confidence}
    return StepEdge(CAUSED_BY.type, source, target, "", said, target, closed, at_ms=None)


def worth(walk: Walked) -> dict[str, float]:
    told = zip(walk.ids, walk.worth.tolist(), strict=True)
    return {node_id: score for node_id, score in told if score == score}


def test_a_walk_ends_after_its_levels() -> None:
    chain = [edge(here, there) for here, there in pairwise("abcde")]
    found = walked_over(chain, FROM_A)
    assert dict(zip(found.ids, found.depths.tolist(), strict=True)) == dict(
        zip("abcd", range(4), strict=True)
    )
    assert worth(found) == pytest.approx({one: SHARE**n for n, one in enumerate("abcd")})
    assert walked_over(chain, FROM_A._replace(max_depth=1)).ids == ["a", "b"]


def test_nobody_walks_on_from_a_value_or_from_what_is_worth_next_to_nothing() -> None:
    edges = [edge("a", "value", closed=True), edge("a", "far", 1e-5)]
    beyond = [edge("value", "x"), edge("far", "y")]
    assert set(walked_over([*edges, *beyond], FROM_A).ids) == {"a", "value", "far"}


def test_the_most_promising_of_a_level_are_walked_on_from() -> None:
    level = [f"n{number:02}" for number in range(BEAM + 1)]
    edges = [edge("a", one, 0.9 if one == level[0] else 1.0) for one in level]
    found = walked_over([*edges, *(edge(one, f"behind {one}") for one in level)], FROM_A)
    assert set(found.ids) >= {f"behind {one}" for one in level[1:]}
    assert f"behind {level[0]}" not in found.ids[: 2 * BEAM + 2]


def test_what_is_met_from_both_ends_is_one_edge() -> None:
    there = edge("a", "b")
    back = there._replace(reached="a")
    found = walked_over([there, back], FROM_A._replace(beside=True))
    assert found.edges is not None
    assert (found.ids, found.edges.source.tolist(), found.edges.target.tolist()) == (
        ["a", "b"],
        [0],
        [1],
    )
    assert found.spread.size == 0
    assert walked_over([there, back], FROM_A).edges is None


def test_of_a_seed_that_leads_nowhere_its_own_worth_is_told() -> None:
    found = walked_over([], FROM_A._replace(seeds={"a": 0.5, "nobody": 0.0}))
    assert worth(found) == {"a": 0.5, "nobody": 0.0}
    assert not found.connected.any()
    ranked = walked_over([edge("a", "b")], FROM_A._replace(method="ppr"))
    assert worth(ranked)["a"] == 1.0 > worth(ranked)["b"] > 0.0


def test_an_activation_spreads_hop_by_hop() -> None:
    config = ActivationConfig(max_hops=1)
    asked = FROM_A._replace(method="activation", activation=config)
    chain = [edge("a", "b"), edge("b", "c")]
    assert set(worth(walked_over(chain, asked))) == {"a", "b"}
    further = asked._replace(activation=config._replace(max_hops=2))
    found = walked_over(chain, further)
    assert set(worth(found)) == {"a", "b", "c"}
    assert numpy.isfinite(found.worth).all()


def test_what_nobody_is_sure_of_weighs_as_its_type_says() -> None:
    unsure = StepEdge(FOLLOWS.type, "a", "b", "", {}, "b", closed=False, at_ms=None)
    asked = walk_asked({"a": 1.0}, {"why": 1.0, "when": 0.5})
    shares = [INTENT_WEIGHTS[intent][FOLLOWS.type] / MAX_WEIGHT for intent in ("why", "when")]
    best, other = sorted((shares[0], 0.5 * shares[1]), reverse=True)
    assert worth(walked_over([unsure], asked))["b"] == pytest.approx(best + 0.2 * other)
