"""The numbers that decide what is retrieved: intent weights, thresholds, shares, their version.

Pure. They change answers and never the graph, so they may be set without a rebuild. Every answer
says the version of those that it was made with: two answers can only be compared under one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Final

import orjson

from pipelines.graph.rows import LEAST, Least
from projections.schema import EDGE_CAPS, INTENT_WEIGHTS

VERSIONED: Final = (
    *("intent_threshold", "other_intents_share", "proactive_share"),
    *("proactive_min_score", "proactive_min_importance", "proactive_min_accesses"),
    *("recency_weight", "importance_weight", "relevance_weight"),
    *("spreading_activation", "max_hops", "decay_lambda", "activation_threshold"),
    *("inhibition_threshold", "max_activated_nodes", "temporal_decay_rate"),
    *("seed_structural_weight", "seed_community_cap", "query_sensitive_cost"),
)
"""Settings that decide, beside weights and caps of edge types, what is retrieved in which order."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What one deployment retrieves by.

    Attributes:
        weights: of an edge type for an intent, 0 to 5.
        edge_caps: edges of a type that are followed at one node, at most.
        intent_threshold: confidence from which on an intent has a traversal of its own.
        other_intents_share: of what further intents add to the best one's score.
        proactive_share: of the nodes of a page, at most, that nobody asked for.
        proactive: how sure the graph must be of them.
        version: of all that decides an answer, 12 hexadecimal digits.
    """

    weights: Mapping[str, Mapping[str, float]] = field(default_factory=lambda: INTENT_WEIGHTS)
    edge_caps: Mapping[str, int] = field(default_factory=lambda: EDGE_CAPS)
    intent_threshold: float = 0.3
    other_intents_share: float = 0.2
    proactive_share: float = 0.2
    proactive: Least = LEAST
    version: str = ""


DEFAULT_POLICY: Final = Policy()


def policy_of(settings: Mapping[str, Any]) -> Policy:
    """The policy that settings make.

    Args:
        settings: by name; of `intent_weights` and `edge_caps` those that are other than the
            schema's.
    """
    changed = settings["intent_weights"]
    weights = {intent: {**row, **changed.get(intent, {})} for intent, row in INTENT_WEIGHTS.items()}
    caps = {**EDGE_CAPS, **settings["edge_caps"]}
    versioned = {name: settings[name] for name in VERSIONED}
    content = orjson.dumps([weights, caps, versioned], option=orjson.OPT_SORT_KEYS)
    return Policy(
        weights=weights,
        edge_caps=caps,
        intent_threshold=settings["intent_threshold"],
        other_intents_share=settings["other_intents_share"],
        proactive_share=settings["proactive_share"],
        proactive=Least(
            score=settings["proactive_min_score"],
            importance=settings["proactive_min_importance"],
            accesses=settings["proactive_min_accesses"],
        ),
        version=blake2b(content, digest_size=6).hexdigest(),
    )
