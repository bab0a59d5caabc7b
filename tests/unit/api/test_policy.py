"""What is retrieved is decided by settings, and every other policy has another version."""

from __future__ import annotations

from typing import Any

import pytest

from api.retrieval.policy import VERSIONED, Policy, policy_of
from api.retrieval.ranking import with_proactive
from api.retrieval.walk import Lineage
from pipelines.columns.graph_scores import type_weights
from pipelines.columns.walked import Met
from pipelines.graph.rows import Signalled, StepEdge
from pipelines.work.settings import Settings, load_settings
from projections.errors import ConfigurationError
from projections.schema import CAUSED_BY, EDGE_CAPS, FOLLOWS, INTENT_WEIGHTS
from tests.steps import steps, walk_asked, walked_over

CHANGED: dict[str, Any] = {
    "intent_weights": {"why": {CAUSED_BY.type: 0.5}},
    "edge_caps": {CAUSED_BY.type: 11},
    "intent_threshold": 0.31,
    "other_intents_share": 0.3,
    "proactive_share": 0.0,
    "proactive_min_score": 0.7,
    "proactive_min_importance": 9,
    "proactive_min_accesses": 4,
    "recency_weight": 0.5,
    "importance_weight": 0.5,
    "relevance_weight": 0.5,
    "spreading_activation": True,
    "max_hops": 2,
    "decay_lambda": 0.5,
    "activation_threshold": 0.2,
    "inhibition_threshold": 0.9,
    "max_activated_nodes": 40,
    "temporal_decay_rate": 0.02,
    "seed_structural_weight": 0.2,
    "seed_community_cap": 2,
    "query_sensitive_cost": True,
}


def of(**changed: Any) -> Policy:
    settings = Settings(**changed)
    return policy_of(settings.model_dump())


def test_each_setting_that_decides_an_answer_changes_the_version() -> None:
    assert set(CHANGED) == {*VERSIONED, "intent_weights", "edge_caps"}
    versions = {of(**{name: value}).version for name, value in CHANGED.items()}
    versions.add(of().version)
    assert len(versions) == len(CHANGED) + 1
    assert of().version == of().version


def test_what_is_set_to_its_default_is_no_other_policy() -> None:
    weights = {"why": {CAUSED_BY.type: INTENT_WEIGHTS["why"][CAUSED_BY.type]}}
    caps = {CAUSED_BY.type: EDGE_CAPS[CAUSED_BY.type]}
    assert of(intent_weights=weights, edge_caps=caps).version == of().version


def test_a_weight_that_is_set_counts_and_the_others_stay() -> None:
    policy = of(intent_weights={"why": {CAUSED_BY.type: 0.5}})
    edge = StepEdge(CAUSED_BY.type, "a", "b", "", {}, "b", closed=False, at_ms=None)
    assert Met(2, steps([edge])).weights(type_weights(["why"], policy.weights)).tolist() == [[0.1]]
    assert policy.weights["why"][FOLLOWS.type] == INTENT_WEIGHTS["why"][FOLLOWS.type]
    assert policy.weights["when"] == INTENT_WEIGHTS["when"]


def test_a_walk_goes_by_the_weights_that_are_set() -> None:
    edge = StepEdge(CAUSED_BY.type, "a", "b", "", {}, "b", closed=False, at_ms=None)

    def worth(**changed: Any) -> float:
        asked = walk_asked({"a": 1.0}, {"why": 1.0}, of(**changed).weights)
        found = walked_over([edge], asked)
        return float(found.worth[found.ids.index("b")])

    assert worth(intent_weights={"why": {CAUSED_BY.type: 2.5}}) == 0.5 < worth()


def test_nothing_that_nobody_asked_for_when_its_share_is_none() -> None:
    signalled = [Signalled("a", "entity_context", 0.9)]
    assert with_proactive([], signalled, 10, 0.0) == []
    assert with_proactive([], signalled, 10, 0.2)


def test_lineage_goes_by_them_too() -> None:
    policy = of(intent_weights={"why": {CAUSED_BY.type: 1.0}})
    walk = Lineage(
        node_id="a",
        intent="why",
        direction="causes",  # type: ignore[arg-type]  # not walked
        max_depth=1,
        max_nodes=5,
        policy=policy,
    )
    walk.depths["b"] = 1
    assert walk.scores()["b"] == 0.2


@pytest.mark.parametrize(
    ("caps", "named"), [({"CAUSES": 1}, "CAUSES"), ({CAUSED_BY.type: 0}, "edge_caps.CAUSED_BY")]
)
def test_a_cap_of_nothing_that_is_there_refuses_to_start(caps: dict[str, int], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load_settings(edge_caps=caps)


@pytest.mark.parametrize(
    ("weights", "named"),
    [
        ({"who": {CAUSED_BY.type: 1}}, "who"),
        ({"why": {"CAUSES": 1}}, "why.CAUSES"),
        ({"why": {CAUSED_BY.type: 6}}, "intent_weights.why.CAUSED_BY"),
    ],
)
def test_a_weight_of_nothing_that_is_there_refuses_to_start(
    weights: dict[str, Any], named: str
) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load_settings(intent_weights=weights)
