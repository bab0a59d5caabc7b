"""From entities, facts, sessions, summaries and communities to what is sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from api.answers import atlas_edges, atlas_node
from api.browse_schemas import SessionItem
from api.read_schemas import (
    CommunityItem,
    EntityAlias,
    EntityDetails,
    EntityItem,
    EntityProvenance,
    EntityResponse,
    Fact,
    FactEntity,
    FactProvenance,
    FactScores,
    FactSeed,
    FactsMeta,
    FactsResponse,
    PageMeta,
    RecallMode,
    SessionLinkItem,
    SummaryItem,
)
from api.retrieval.facts import (
    MAX_SOURCES,
    FactScore,
    FactWalk,
    RecalledFact,
    confidence_of,
    recalled_fact,
    retrievals,
)
from api.retrieval.narrative import (
    NARRATIVE_ANCHORS,
    FactLine,
    chosen_facts,
    fact_score,
    facts_markdown,
)
from api.retrieval.recall import Recall, RecallSeeds
from api.schemas import Bound, Node
from consolidation.decay import NEUTRAL_RELEVANCE
from enrichment.names import ACTIVE, canonical_name
from pipelines.columns.reads import SessionLine
from pipelines.graph.reader import GraphEdge, GraphNode
from pipelines.graph.reads.entities import (
    EntityGroup,
    EntityNode,
    Link,
    community_of,
    shown_name,
    shown_type,
)
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.rows import (
    COMMUNITY_PREFIX,
    ENTITY_PREFIX,
    SUMMARY_PREFIX,
    EntityName,
    FactEnd,
    wire_id,
)
from projections.events import timestamp_text


def moment(time_ms: int | None) -> str | None:
    """A time on the wire."""
    return None if time_ms is None else timestamp_text(time_ms)


def entity_item(entity: EntityName, score: float | None) -> EntityItem:
    """An entity of a list."""
    return EntityItem(
        entity_id=ENTITY_PREFIX + entity.entity_id,
        name=entity.name,
        type=entity.entity_type,
        subtype=entity.subtype,
        match_score=score,
    )


class EntityPage(NamedTuple):
    """One entity with its facts, a page of its events, and the edges between all nodes.

    Attributes:
        members: of the group, as the graph has those that the viewer knows, by id.
        around: the entity, what is the same, and its community, as nodes.
        next_cursor: of the page of events behind this one; None: there is none.
    """

    group: EntityGroup
    members: Mapping[str, EntityNode]
    facts: Sequence[RecalledFact]
    around: Sequence[GraphNode]
    events: Sequence[GraphNode]
    edges: Sequence[GraphEdge]
    withheld: int | None
    next_cursor: str | None


def nodes_around(group: EntityGroup, members: Mapping[str, EntityNode]) -> list[GraphNode]:
    """The canonical entity, those that are the same, and their community, by wire ids."""
    ids = sorted(members, key=lambda own_id: (own_id != group.canonical, own_id))
    community = community_of(members)
    nodes = [members[own_id].node for own_id in ids]
    return [wired(node) for node in (*nodes, *([] if community is None else [community]))]


def wired(node: GraphNode) -> GraphNode:
    """The same by its wire id."""
    return node._replace(node_id=wire_id(node.label, node.node_id))


def shown_nodes(nodes: Iterable[GraphNode], now_ms: int) -> list[Node]:
    """Nodes of a page, to which nothing was asked."""
    return [atlas_node(node, now_ms=now_ms, relevance=NEUTRAL_RELEVANCE) for node in nodes]


def entity_response(page: EntityPage, nodes: list[Node], meta: PageMeta) -> EntityResponse:
    """One entity with all that belongs to it.

    Args:
        page: what was read.
        nodes: of it, the events last.
        meta: how it came about.
    """
    community = community_of(page.members)
    aliases = sorted(own_id for own_id in page.members if own_id != page.group.canonical)
    return EntityResponse(
        entity=_details(page),
        aliases=[_alias(page, own_id) for own_id in aliases],
        community=None if community is None else community_item(community),
        facts=[fact_of(fact) for fact in page.facts],
        events=nodes[len(page.around) :],
        nodes=nodes,
        edges=atlas_edges(page.edges),
        next_cursor=meta.next_cursor,
        meta=meta,
    )


def _details(page: EntityPage) -> EntityDetails:
    group = page.group
    properties = page.members[group.canonical].node.properties
    members = [member.node.properties for member in page.members.values()]
    seen = [member for member in members if "first_seen" in member]
    first = min(seen, key=lambda member: int(member["first_seen"]), default={})
    last = max((member["last_seen"] for member in seen if "last_seen" in member), default=None)
    return EntityDetails(
        entity_id=ENTITY_PREFIX + group.canonical,
        name=shown_name(properties),
        canonical_name=properties.get("canonical_name"),
        type=shown_type(properties),
        subtype=properties.get("subtype"),
        status=properties.get("status") or ACTIVE,
        first_seen=moment(first.get("first_seen")),
        last_seen=moment(last),
        mention_count=group.mention_count,
        provenance=EntityProvenance(
            event_id=first.get("first_event_id"),
            supporting_event_ids=[event.node_id for event in page.events[:MAX_SOURCES]],
        ),
    )


def _alias(page: EntityPage, own_id: str) -> EntityAlias:
    """A member; what is said of its pair with the canonical one, else of its strongest pair."""
    group, member = page.group, page.members[own_id]
    properties = member.node.properties
    _, confidence, justification = min(
        member.same,
        key=lambda pair: (pair[0] != group.canonical, -(pair[1] or 0.0), pair[0]),
        default=("", None, None),
    )
    return EntityAlias(
        entity_id=ENTITY_PREFIX + own_id,
        name=shown_name(properties),
        type=shown_type(properties),
        mention_count=group.mentions.get(own_id, 0),
        confidence=confidence,
        justification=justification,
    )


def community_item(node: GraphNode) -> CommunityItem:
    """A community."""
    properties = node.properties
    return CommunityItem(
        community_id=COMMUNITY_PREFIX + node.node_id,
        name=properties.get("name"),
        summary=properties.get("summary"),
        member_count=properties.get("member_count"),
        updated_at=moment(properties.get("updated_at")),
        event_id=properties.get("event_id"),
    )


def member_item(node: GraphNode) -> EntityItem:
    """An entity of a community."""
    return EntityItem(
        entity_id=ENTITY_PREFIX + node.node_id,
        name=shown_name(node.properties),
        type=shown_type(node.properties),
        subtype=node.properties.get("subtype"),
        match_score=None,
    )


def summary_item(node: GraphNode) -> SummaryItem:
    """A summary."""
    properties = node.properties
    times = properties.get("time_range")
    return SummaryItem(
        summary_id=SUMMARY_PREFIX + node.node_id,
        scope=properties["scope"],
        scope_id=properties["scope_id"],
        session_id=properties.get("session_id"),
        content=properties.get("content"),
        level=properties.get("level"),
        event_count=properties.get("event_count"),
        importance_total=properties.get("importance_total"),
        failed_count=properties.get("failed_count"),
        time_range=None if times is None else [timestamp_text(time) for time in times],
        created_at=moment(properties.get("created_at")),
        source_event_ids=properties.get("source_event_ids") or [],
        event_id=properties.get("event_id"),
        user_ids=properties.get("user_ids"),
    )


def link_item(link: Link) -> SessionLinkItem:
    """A link to another session."""
    return SessionLinkItem.model_validate(
        {
            **link._asdict(),
            "summary_id": SUMMARY_PREFIX + link.summary_id,
            "evidence": list(link.evidence),
        }
    )


def fact_entity(end: FactEnd) -> FactEntity:
    """One end of a fact."""
    return FactEntity(
        entity_id=ENTITY_PREFIX + end.entity_id,
        name=end.name,
        type=end.entity_type,
        subtype=end.subtype,
    )


def fact_of(recalled: RecalledFact) -> Fact:
    """A fact as it is sent."""
    properties, scores = recalled.properties, recalled.scores
    return Fact(
        source=fact_entity(recalled.source),
        relation=properties["relation"],
        edge_type=properties["edge_type"],
        target=fact_entity(recalled.target),
        fact=properties["fact"],
        confidence=properties["confidence"],
        valid_from=timestamp_text(properties["valid_from"]),
        valid_to=moment(properties.get("valid_to")),
        expired_at=moment(properties.get("expired_at")),
        source_kind=properties["source"],
        status=properties["status"],
        user_id=properties.get("user_id"),
        hop_distance=scores.hop,
        scores=FactScores(
            composite_score=scores.composite,
            entity_match_score=scores.match,
            effective_confidence=scores.confidence,
            rank_score=scores.score,
        ),
        provenance=FactProvenance(
            event_id=properties["event_id"],
            supporting_event_ids=list(recalled.sources),
            support_count=properties.get("support_count") or len(recalled.sources),
        ),
    )


def fact_lines(facts: Iterable[RecalledFact], now_ms: int) -> list[FactLine]:
    """Facts as a narrative takes them, by S1's score."""
    return [
        FactLine(
            subject_id=fact.source.entity_id,
            subject=fact.source.name,
            relation=fact.properties["relation"],
            target=fact.target.name,
            hop=fact.scores.hop,
            score=fact_score(
                confidence=fact.properties["confidence"],
                source_kind=fact.properties["source"],
                status=fact.properties["status"],
                used_at_ms=fact.properties.get("last_retrieved_at")
                or fact.properties["valid_from"],
                now_ms=now_ms,
                retrieval_count=retrievals(fact.properties, now_ms),
            ),
            event_id=fact.properties["event_id"],
        )
        for fact in facts
    ]


class FactsAnswer(NamedTuple):
    """What was recalled, and how; never changed, for it may be given again.

    Attributes:
        facts: of the page.
        more: there are facts behind them.
        next_cursor: of the page behind this one.
        complete: nothing was left out for want of time or of the embedder.
    """

    recall: Recall
    seeds: RecallSeeds
    facts: Sequence[RecalledFact]
    cut_by: frozenset[Bound] = frozenset()
    more: bool = False
    next_cursor: str | None = None
    timed_out: bool = False
    complete: bool = True
    withheld: int | None = None


def facts_narrative(answer: FactsAnswer, max_tokens: int) -> str:
    """S1's narrative of the facts around the three best seeds."""
    recall = answer.recall
    anchors = [seed.entity_id for seed in answer.seeds.seeds[:NARRATIVE_ANCHORS]]
    lines = fact_lines(answer.facts, recall.now_ms)
    users = [
        fact.source.entity_id
        for fact in answer.facts
        if recall.scope.user_id is not None
        and fact.source.entity_type == "user"
        and canonical_name(fact.source.name) == canonical_name(recall.scope.user_id)
    ]
    return facts_markdown(
        chosen_facts(lines, anchors), max_tokens=max_tokens, user=next(iter(users), None)
    )


def facts_response(
    answer: FactsAnswer, *, mode: RecallMode, query_ms: int, cached: bool
) -> FactsResponse:
    """The whole answer."""
    recall, seeds = answer.recall, answer.seeds.seeds
    bounds = [str(bound) for bound in sorted(answer.cut_by)]
    if answer.more:
        bounds.append("max_facts")
    return FactsResponse(
        facts=[fact_of(fact) for fact in answer.facts],
        seeds=[
            FactSeed(
                entity_id=ENTITY_PREFIX + seed.entity_id,
                name=seed.name,
                match_score=seed.match,
                structural_score=seed.structural,
                score=seed.score,
                community_id=seed.community_id and COMMUNITY_PREFIX + seed.community_id,
            )
            for seed in seeds
        ],
        meta=FactsMeta(
            query_ms=query_ms,
            mode=mode,
            facts_returned=len(answer.facts),
            truncated=bool(bounds) or answer.timed_out,
            truncated_by=bounds,
            timed_out=answer.timed_out,
            seed_nodes=[ENTITY_PREFIX + seed.entity_id for seed in seeds],
            unknown_seeds=list(answer.seeds.unknown),
            seed_channel=answer.seeds.channel,
            edge_types=list(recall.edge_types),
            at_timestamp=timestamp_text(recall.at_ms),
            user_id=recall.scope.viewer,
            withheld=answer.withheld,
            max_depth=recall.max_depth,
            max_facts=recall.max_facts,
            cached=cached,
            next_cursor=answer.next_cursor,
        ),
    )


def named_events(sessions: Iterable[SessionLine]) -> list[str]:
    """The events that a list of sessions quotes."""
    ids = {one for line in sessions for one in (line.first_event_id, line.failed_event_id) if one}
    return sorted(ids)


def session_item(line: SessionLine, events: Mapping[str, GraphNode]) -> SessionItem:
    """A session as it is sent.

    Args:
        line: what columns say of it.
        events: by id, its first one and its last failure among them.
    """
    return SessionItem(
        session_id=line.session_id,
        first_at=timestamp_text(line.first_ms),
        last_at=timestamp_text(line.last_ms),
        event_count=line.events,
        failed_count=line.failed,
        agents=line.agents,
        user_ids=line.users,
        begins=_quoted(events, line.first_event_id),
        failure=_quoted(events, line.failed_event_id),
        failed_event_id=line.failed_event_id,
    )


def _quoted(events: Mapping[str, GraphNode], event_id: str | None) -> str | None:
    """What an event says, once a stage has read it; before that, its type."""
    if event_id is None or event_id not in events:
        return None
    properties = events[event_id].properties
    return properties.get("summary") or properties.get("event_type")


def fact_history(
    reads: FactReads,
    ids: Iterable[str],
    *,
    behind: tuple[int, str] | None,
    limit: int,
    now_ms: int,
) -> list[tuple[tuple[int, str], RecalledFact]]:
    """Facts of entities as they are told, each with its place; as `FactReads.history`."""
    rows = reads.history(ids, behind, limit)
    walk = FactWalk(wanted=FactFilter(now_ms), max_depth=1)
    walk.take(reads, [row for _, row in rows])
    return [
        (place, recalled_fact(walk, row, _unsought(row.properties, now_ms))) for place, row in rows
    ]


def _unsought(properties: Mapping[str, Any], now_ms: int) -> FactScore:
    """Of a fact that nobody searched for: how sure it is."""
    sure = confidence_of(properties, now_ms)
    return FactScore(confidence=sure, match=1.0, hop=0, composite=sure, score=sure)
