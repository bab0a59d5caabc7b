"""What enrichment derives is counted by kind."""

from __future__ import annotations

from typing import get_args

from enrichment.causality import RULES
from pipelines.observe import metrics as telemetry
from pipelines.work.enriching import count_derived, derived_counts
from projections.operations import MergeEdge, MergeNode, Operations, SetNode
from projections.schema import CAUSED_BY, DIRECT, ENTITY, EVENT, INFERRED, REFERENCES, SIMILAR_TO

ONE, OTHER, NAME = ("acme", "e-1"), ("acme", "e-2"), ("acme", "n-1")


def operations() -> Operations:
    made = Operations()
    made.extend(
        [
            SetNode(EVENT.label, ONE, ("text", "user", ["refund", "card"], "short", 5, b"", "m@1")),
            SetNode(EVENT.label, OTHER, (None, None, [], None, 4, None, None)),
            MergeEdge(REFERENCES.type, ONE, NAME, ("object",)),
            MergeEdge(CAUSED_BY.type, OTHER, ONE, (INFERRED, "value_flow", 0.95, "id")),
            MergeEdge(CAUSED_BY.type, ONE, OTHER, (DIRECT, None, None, None)),
            MergeEdge(SIMILAR_TO.type, ONE, OTHER, (0.9,)),
            MergeNode(ENTITY.label, NAME, ()),
        ]
    )
    return made


def test_items_are_counted_by_kind_and_causes_by_rule() -> None:
    assert derived_counts(operations()) == {
        "text": 1,
        "embedding": 1,
        "keyword": 2,
        "mention": 1,
        "entity": 1,
        "similar": 1,
        "cause_value_flow": 1,
    }


def test_what_is_derived_is_counted_for_the_target() -> None:
    count_derived("counted", operations())
    counted = telemetry.DERIVED.labels(target="counted", kind="keyword")
    assert [sample.value for family in counted.collect() for sample in family.samples] == [2.0]


def test_every_rule_of_causality_has_its_kind() -> None:
    kinds = {kind for kind in get_args(telemetry.Derivation) if kind.startswith("cause_")}
    assert kinds == {f"cause_{rule.name}" for rule in RULES}
