"""From recalled facts to what is sent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from api.fact_schemas import (
    Fact,
    FactEntity,
    FactProvenance,
    FactScores,
    FactSeed,
    FactsMeta,
    FactsResponse,
    RecallMode,
)
from api.retrieval.facts import RecalledFact, retrievals
from api.retrieval.narrative import (
    MAX_ANCHORS,
    FactLine,
    chosen_facts,
    fact_score,
    facts_markdown,
)
from api.retrieval.recall import ENTITY_PREFIX, Found, Recall
from api.retrieval.traverse import Bound
from enrichment.entities import canonical_name
from pipelines.graph.reads.facts import End
from projections.events import timestamp_text

COMMUNITY_PREFIX = "community:"


def fact_entity(end: End) -> FactEntity:
    """One end of a fact."""
    return FactEntity(
        entity_id=ENTITY_PREFIX + end.entity_id,
        name=end.name,
        type=end.entity_type,
        subtype=end.subtype,
    )


def _moment(time_ms: int | None) -> str | None:
    return None if time_ms is None else timestamp_text(time_ms)


def fact_of(recalled: RecalledFact) -> Fact:
    """A fact as it is sent."""
    known = recalled.properties
    return Fact(
        source=fact_entity(recalled.source),
        relation=known["relation"],
        edge_type=known["edge_type"],
        target=fact_entity(recalled.target),
        fact=known["fact"],
        confidence=known["confidence"],
        valid_from=timestamp_text(known["valid_from"]),
        valid_to=_moment(known.get("valid_to")),
        expired_at=_moment(known.get("expired_at")),
        source_kind=known["source"],
        status=known["status"],
        user_id=known.get("user_id"),
        hop_distance=recalled.hop,
        scores=FactScores(
            composite_score=recalled.composite,
            entity_match_score=recalled.match,
            effective_confidence=recalled.confidence,
            rank_score=recalled.score,
        ),
        provenance=FactProvenance(
            event_id=known["event_id"],
            supporting_event_ids=list(recalled.sources),
            support_count=known.get("support_count") or len(recalled.sources),
        ),
    )


def fact_lines(facts: Iterable[RecalledFact], now_ms: int) -> list[FactLine]:
    """Facts as a narrative takes them, by S1's score."""
    return [
        FactLine(
            subject_id=one.source.entity_id,
            subject=one.source.name,
            relation=one.properties["relation"],
            target=one.target.name,
            hop=one.hop,
            score=fact_score(
                confidence=one.properties["confidence"],
                source_kind=one.properties["source"],
                status=one.properties["status"],
                used_at_ms=one.properties.get("last_retrieved_at") or one.properties["valid_from"],
                now_ms=now_ms,
                retrieval_count=retrievals(one.properties, now_ms),
            ),
            event_id=one.properties["event_id"],
        )
        for one in facts
    ]


def facts_narrative(
    recall: Recall, found: Found, facts: Sequence[RecalledFact], max_tokens: int
) -> str:
    """S1's narrative of the facts around the three best seeds."""
    anchors = [seed.entity_id for seed in found.seeds[:MAX_ANCHORS]]
    lines = fact_lines(facts, recall.now_ms)
    users = [
        one.source.entity_id
        for one in facts
        if recall.user_id is not None
        and one.source.entity_type == "user"
        and canonical_name(one.source.name) == canonical_name(recall.user_id)
    ]
    return facts_markdown(
        chosen_facts(lines, anchors), max_tokens=max_tokens, user=next(iter(users), None)
    )


def facts_response(
    recall: Recall,
    found: Found,
    facts: Sequence[RecalledFact],
    *,
    mode: RecallMode,
    cut_by: Iterable[Bound],
    timed_out: bool,
    query_ms: int,
    more: bool,
    next_cursor: str | None,
    cached: bool,
) -> FactsResponse:
    """The whole answer; `more`: there are facts behind those of this page."""
    bounds = [str(bound) for bound in sorted(cut_by)]
    if more:
        bounds.append("max_facts")
    return FactsResponse(
        facts=[fact_of(one) for one in facts],
        seeds=[
            FactSeed(
                entity_id=ENTITY_PREFIX + seed.entity_id,
                name=seed.name,
                match_score=seed.match,
                structural_score=seed.structural,
                score=seed.score,
                community_id=seed.community_id and COMMUNITY_PREFIX + seed.community_id,
            )
            for seed in found.seeds
        ],
        meta=FactsMeta(
            query_ms=query_ms,
            mode=mode,
            facts_returned=len(facts),
            truncated=bool(bounds) or timed_out,
            truncated_by=bounds,
            timed_out=timed_out,
            seed_nodes=[ENTITY_PREFIX + seed.entity_id for seed in found.seeds],
            seed_channel=found.channel,
            edge_types=list(recall.edge_types),
            at_timestamp=timestamp_text(recall.at_ms),
            user_id=recall.user_id,
            max_depth=recall.max_depth,
            max_facts=recall.max_facts,
            cached=cached,
            next_cursor=next_cursor,
        ),
    )
