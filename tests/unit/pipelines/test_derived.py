"""What enrichment derives is counted by kind."""

from __future__ import annotations

from typing import Any, get_args

from enrichment.causality import RULES
from pipelines.observe import metrics
from pipelines.work.enriching import count_derived, derived_counts
from projections.operations import MergeEdge, MergeNode, Operations, SetNode
from projections.schema import CAUSED_BY, DIRECT, ENTITY, EVENT, INFERRED, REFERENCES, SIMILAR_TO

ONE, OTHER, NAME = ("acme", "e-1"), ("acme", "e-2"), ("acme", "n-1")


def operations() -> Operations:
    inferred = {
        "mechanism": INFERRED,
        "rule": "value_flow",
        "confidence": 0.95,
        "evidence": "id",
    }
    named = {p.name: None for p in ENTITY.owned("enrichment")}
    made = Operations()
    made.extend(
        [
            enriched(ONE, text="text", keywords=["refund", "card"], embedding=[0.5]),
            enriched(OTHER, keywords=[]),
            MergeEdge(
                type=REFERENCES.type,
                source=ONE,
                target=NAME,
                values={"role": "object", "name": None},
            ),
            MergeEdge(type=CAUSED_BY.type, source=OTHER, target=ONE, values=inferred),
            MergeEdge(type=SIMILAR_TO.type, source=ONE, target=OTHER, values={"score": 0.9}),
            MergeNode(label=ENTITY.label, key=NAME, values=named),
        ]
    )
    made.on_behalf_of("projection").add(
        MergeEdge(type=CAUSED_BY.type, source=ONE, target=OTHER, values={"mechanism": DIRECT})
    )
    return made


def enriched(key: tuple[str, str], **values: Any) -> SetNode:
    nothing = {p.name: None for p in EVENT.owned("enrichment")}
    return SetNode(label=EVENT.label, key=key, values=nothing | values)


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
    counted = metrics.DERIVED.labels(target="counted", kind="keyword")
    assert [sample.value for family in counted.collect() for sample in family.samples] == [2.0]


def test_every_rule_of_causality_has_its_kind() -> None:
    kinds = {kind for kind in get_args(metrics.Derivation) if kind.startswith("cause_")}
    assert kinds == {f"cause_{rule.name}" for rule in RULES}
