"""Forgetting: what leaves a tenant's graph, by its policy, and what the dry run says of it.

Events first; then, once those are gone, what hangs on who is left: similar pairs, entities, facts.
But for classes that expire, only what a recorded Summary lists leaves, so a pass that had no time
for summaries forgets less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from math import floor
from typing import Any

from consolidation.decay import HOUR_MS
from consolidation.forgetting import (
    SimilarEdge,
    archived_entities,
    expiring_facts,
    returning_entities,
    similar_departures,
)
from consolidation.forgetting_payloads import (
    FORGOTTEN_EVENT,
    RECALLED_EVENT,
    archived_payloads,
    dropped_payloads,
    expired_payloads,
    forgotten_payloads,
    recalled_payloads,
)
from consolidation.retention import (
    ExplainedRow,
    Judging,
    RetentionPolicy,
    Tier,
    Verdict,
    departures,
    explain,
    tier_of,
)
from enrichment.similarity import THRESHOLD
from pipelines.graph.port import Reads
from pipelines.operations.passes.deciding import Deciding, PassReport
from pipelines.operations.passes.retained import (
    Aged,
    Alike,
    alike_events,
    retained_events,
    shown_entities,
    tombstones,
)
from projections.events import Event, canonical_json
from projections.identity import Position

PolicyOf = Callable[[str], RetentionPolicy]
"""The policy of a tenant."""


def forgetting_plan(
    graph: Reads,
    tenant: str,
    policy: RetentionPolicy,
    now_ms: int,
    *,
    leaves: Callable[[str], object] = lambda event_id: None,
) -> list[ExplainedRow]:
    """What a pass would forget of a tenant's events and what not, and why; nothing is decided.

    All events that occurred until now are read, page by page.

    Args:
        graph: that is read.
        tenant: whose events.
        policy: of the tenant.
        now_ms: the clock.
        leaves: told the id of each event that would be forgotten.
    """

    def noticed() -> Iterator[Verdict]:
        for judgement in _verdicts(graph, tenant, policy, now_ms, until_ms=now_ms):
            if judgement.leaves:
                leaves(judgement.event_id)
            yield judgement

    return explain(noticed())


def _verdicts(
    graph: Reads, tenant: str, policy: RetentionPolicy, now_ms: int, *, until_ms: int
) -> Iterator[Verdict]:
    judging = Judging(policy, now_ms)
    for page in retained_events(
        graph, tenant, until_ms=until_ms, protected=policy.protected_in_degree
    ):
        yield from judging.judge(page)
    yield from judging.rest()


# -- events ----------------------------------------------------------------------------------------


def decide_events(deciding: Deciding, policy_of: PolicyOf, tenant: str, report: PassReport) -> None:
    """Forget the events of a tenant that are old enough, and that nothing keeps."""
    policy, now_ms = policy_of(tenant), deciding.now_ms
    ages_h = [24 * days for days in policy.expire_after_days.values()]
    if policy.enabled:
        ages_h.append(policy.cold_after_h)
    if not ages_h:
        return
    judging = Judging(policy, now_ms)
    for page in retained_events(
        deciding.graph,
        tenant,
        until_ms=_moment_ms(now_ms, min(ages_h)),
        protected=policy.protected_in_degree,
    ):
        if not deciding.in_time():
            report.complete = False
            return
        _forget(deciding, tenant, judging.judge(page), report=report)
    _forget(deciding, tenant, judging.rest(), report=report)


def _forget(
    deciding: Deciding,
    tenant: str,
    judged: Iterable[Verdict],
    *,
    report: PassReport,
) -> None:
    leaving = departures(judged)
    if not leaving:
        return
    decided_at = tombstones(deciding.graph, tenant, (one.event_id for one in leaving))
    decided = []
    for payload in forgotten_payloads(leaving):
        ids = [one for tier in payload["event_ids"].values() for one in tier]
        # what came back, and is forgotten again, is another decision than the first
        newest = max((decided_at[own_id] for own_id in ids if own_id in decided_at), default=None)
        decided.append(_decision(deciding, tenant, payload, FORGOTTEN_EVENT, before=newest))
        for tier, members in payload["event_ids"].items():
            report.events_forgotten[tier] = report.events_forgotten.get(tier, 0) + len(members)
    deciding.append(decided)


# -- what hangs on who is left ---------------------------------------------------------------------


def decide_others(deciding: Deciding, policy_of: PolicyOf, tenant: str, report: PassReport) -> None:
    """Drop similar pairs from warm on, archive entities without edges, let ended facts fade."""
    policy = policy_of(tenant)
    if policy.enabled:
        _drop_pairs(deciding, tenant, policy, report)
    _decide_entities(deciding, tenant, policy, report)


def _drop_pairs(
    deciding: Deciding, tenant: str, policy: RetentionPolicy, report: PassReport
) -> None:
    # an event with no more edges than it keeps loses one to the score alone
    least = 1 if policy.similar_score > THRESHOLD else policy.similar_keep + 1
    until_ms = _moment_ms(deciding.now_ms, policy.warm_after_h)
    for page in alike_events(deciding.graph, tenant, until_ms=until_ms, least=least):
        if not deciding.in_time():
            report.complete = False
            return
        edges = similar_edges(page, policy, deciding.now_ms)
        dropped = similar_departures(edges, policy)
        deciding.append(
            [
                _decision(deciding, tenant, payload, FORGOTTEN_EVENT)
                for payload in dropped_payloads(dropped)
            ]
        )
        report.pairs_dropped += len(dropped)


def similar_edges(page: Iterable[Alike], policy: RetentionPolicy, now_ms: int) -> list[SimilarEdge]:
    """Of each of some events the edges at which it stands first, and those to rank them against.

    So every edge is judged once, on whichever page its first end stands. What is there to be ranked
    against counts as hot and stays: dropping what is among the best of neither end changes no rank.
    """
    judged: dict[tuple[str, str], SimilarEdge] = {}
    others: dict[tuple[str, str], SimilarEdge] = {}

    def is_hot(aged: Aged) -> bool:
        times = aged.occurred_at_ms, aged.arrived_ms, aged.last_access_ms
        return tier_of(now_ms, *times, policy=policy) is Tier.HOT

    def rank(event_id: str, other: str, score: float) -> None:
        first, second = sorted((event_id, other))
        others[first, second] = SimilarEdge(first, second, score, hot=True)

    for alike in page:
        event_id, hot = alike.aged.event_id, is_hot(alike.aged)
        for neighbour in alike.near:
            second = neighbour.aged.event_id
            if event_id < second:
                stays = hot or is_hot(neighbour.aged)
                judged[event_id, second] = SimilarEdge(event_id, second, neighbour.score, stays)
            else:
                rank(event_id, second, neighbour.score)
            for other, score in neighbour.near.items():
                rank(second, other, score)
    return list((others | judged).values())


def _decide_entities(
    deciding: Deciding, tenant: str, policy: RetentionPolicy, report: PassReport
) -> None:
    for page in shown_entities(
        deciding.graph,
        tenant,
        now_ms=deciding.now_ms,
        confidence=policy.fact_min_confidence,
    ):
        if not deciding.in_time():
            report.complete = False
            return
        decided_at = {one.entity.entity_id: one.decided_at for one in page}
        entities = [one.entity for one in page]
        leaving = archived_entities(entities, policy)
        back = returning_entities(entities)
        facts = (fact for one in page for fact in one.facts)
        expiring = expiring_facts(facts, policy, deciding.now_ms)
        decided = [(FORGOTTEN_EVENT, payload) for payload in archived_payloads(leaving)]
        decided += [(RECALLED_EVENT, payload) for payload in recalled_payloads(entity_ids=back)]
        decided += [(FORGOTTEN_EVENT, payload) for payload in expired_payloads(expiring)]
        deciding.append(
            [
                _decision(
                    deciding,
                    tenant,
                    payload,
                    event_type,
                    before=_newest(decided_at, payload.get("entity_ids", ())),
                )
                for event_type, payload in decided
            ]
        )
        report.entities_archived += len(leaving)
        report.entities_returned += len(back)
        report.facts_expired += len(expiring)


def _newest(decided_at: Mapping[str, Position | None], ids: Iterable[str]) -> Position | None:
    positions = (decided_at[own_id] for own_id in ids)
    return max((at for at in positions if at is not None), default=None)


def _decision(
    deciding: Deciding,
    tenant: str,
    payload: Mapping[str, Any],
    event_type: str,
    *,
    before: Position | None = None,
) -> Event:
    grounds = canonical_json(payload).decode()
    return deciding.decision(tenant, payload, grounds, before, event_type=event_type)


def _moment_ms(now_ms: int, age_h: float) -> int:
    """The latest moment that is that long ago."""
    return floor(now_ms - age_h * HOUR_MS)
