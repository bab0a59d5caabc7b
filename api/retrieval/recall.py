"""A recall of facts from its query to its answer: seeds, walk, scores (S2, Graph Recall).

Names are asked of the columns, facts of the graph (`FactReads`); clock, settings and the embedder
are arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from api.read_schemas import SeedChannel
from api.retrieval.fact_words import WISHES, asked_as, question_stems
from api.retrieval.facts import (
    FactWalk,
    RecalledFact,
    activated,
    age_days,
    confidence_of,
    recalled,
)
from api.retrieval.intent import (
    MAX_RECALL_SEEDS,
    Seed,
    SeedRules,
    Structure,
    capped_by_community,
    match_score,
    scored_seeds,
)
from api.retrieval.query_terms import name_forms, name_terms
from api.retrieval.ranking import MAX_RANKING
from enrichment.names import canonical_name, components, user_entity_id
from enrichment.stems import words_in
from enrichment.vocabulary import EdgeType, word_set
from pipelines.columns.graph_scores import ActivationConfig, Link, activation
from pipelines.columns.reads import NameReads
from pipelines.graph.reads.entities import EntityGroup, group_of
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.scope import Scope
from pipelines.graph.rows import ENTITY_PREFIX, EntityName, EntitySurroundings

MAX_NAMED_CANDIDATES: Final = 50
MAX_BY_NAME: Final = 1_000
"""Entities of one name, among which the one that is mentioned most is looked for."""
MAX_KINDS: Final = 5
"""Relations whose former values are looked for, where no word says which of them is asked for."""
MIN_COSINE: Final = 0.4
"""Of a name and a query of which the text names nothing: below, they have nothing in common."""

Embed = Callable[[str], Sequence[float] | None]
"""The vector of a text; None: not in time."""


class Recall(NamedTuple):
    """What is recalled, and how.

    Attributes:
        query: whose words name entities.
        given: references to begin at instead, `entity:<hash>` or `entity:<name>`.
        at_ms: the facts count that were valid then.
        now_ms: the clock, for ages and boosts.
        max_facts: of a page.
        scope: who recalls.
    """

    query: str
    scope: Scope
    at_ms: int
    now_ms: int
    max_depth: int
    max_facts: int
    given: Sequence[str] = ()
    edge_types: Sequence[EdgeType] = ()

    @property
    def wanted(self) -> FactFilter:
        """Which facts count."""
        return FactFilter(self.at_ms, self.edge_types)


class RecallSeeds(NamedTuple):
    """Seeds, the best first, and what found them.

    Attributes:
        unknown: references that were given, and lead to nothing that the viewer sees.
    """

    seeds: list[Seed]
    channel: SeedChannel
    unknown: tuple[str, ...] = ()


def seeds_of(reads: NameReads, recall: Recall, rules: SeedRules, embed: Embed) -> RecallSeeds:
    """Where the recall begins; embeddings are asked only when the text names nothing (S2)."""
    if recall.given:
        return _given(reads, recall.given, rules)
    terms = name_terms(recall.query)
    candidates = reads.found(terms.words, terms.names, MAX_NAMED_CANDIDATES)
    matches = {
        candidate.entity_id: match_score(terms.words, candidate.names) for candidate in candidates
    }
    for user in _own_user(reads, recall):
        candidates = [*candidates, user]
        matches[user.entity_id] = 1.0
    seeds = _seeds(reads, candidates, matches, rules)
    if seeds:
        return RecallSeeds(seeds, "text")
    vector = embed(recall.query)
    if vector is None:
        return RecallSeeds([], "none")
    near = [pair for pair in reads.found_near(vector, MAX_RECALL_SEEDS) if pair[1] >= MIN_COSINE]
    cosines = {entity.entity_id: cosine for entity, cosine in near}
    seeds = _seeds(reads, [entity for entity, _ in near], cosines, rules)
    return RecallSeeds(seeds, "embedding" if seeds else "none")


_OF_ONESELF: Final = word_set("i me my mine we us our ours")


def _own_user(reads: NameReads, recall: Recall) -> list[EntityName]:
    """The user who asks, when the question is about them: "what is my plan"."""
    user_id = recall.scope.user_id
    if user_id is None or _OF_ONESELF.isdisjoint(words_in(recall.query.lower())):
        return []
    own_id = user_entity_id(recall.scope.tenant, user_id)
    return reads.found_by_id([own_id])


def entity_named(reads: NameReads, name: str) -> EntityGroup | None:
    """The entity of an id or a name; of several by one name the one that is mentioned most."""
    return next(entities_named(reads, name), None)


def entities_named(reads: NameReads, name: str) -> Iterator[EntityGroup]:
    """The entities of an id or a name, what is mentioned most first."""
    named = reads.found_by_id([name]) or reads.found_by_name(name_forms(name), MAX_BY_NAME)
    ids = [entity.entity_id for entity in named]
    while (group := group_of(reads, ids)) is not None:
        yield group
        ids = [own_id for own_id in ids if own_id not in group.ids]


def node_named(reads: NameReads, node_id: str) -> str:
    """The wire id of what a request names by id, or an entity by name."""
    if not node_id.startswith(ENTITY_PREFIX):
        return node_id
    group = entity_named(reads, node_id.removeprefix(ENTITY_PREFIX))
    return node_id if group is None else ENTITY_PREFIX + group.canonical


def _given(reads: NameReads, references: Sequence[str], rules: SeedRules) -> RecallSeeds:
    """The entities that a caller names; those that nobody knows are left out, and told."""
    named = {reference: reference.removeprefix(ENTITY_PREFIX) for reference in references}
    forms = {reference: name_forms(name) for reference, name in named.items()}
    every_form = list(dict.fromkeys(form for several in forms.values() for form in several))
    entities = [
        *reads.found_by_id(list(named.values())),
        *reads.found_by_name(every_form, MAX_NAMED_CANDIDATES),
    ]
    matches = {entity.entity_id: 1.0 for entity in entities}
    called = {canonical_name(name) for entity in entities for name in entity.names} | matches.keys()
    unknown = tuple(
        reference
        for reference, name in named.items()
        if called.isdisjoint({name, *map(canonical_name, forms[reference])})
    )
    seeds = _seeds(reads, entities, matches, rules, capped=False)
    return RecallSeeds(seeds, "given", unknown)


def _seeds(
    reads: NameReads,
    candidates: Iterable[EntityName],
    matches: Mapping[str, float],
    rules: SeedRules,
    *,
    capped: bool = True,
) -> list[Seed]:
    """One seed for each component of what is the same, scored, at most as many as are walked."""
    met = {entity.entity_id: entity for entity in candidates if matches[entity.entity_id] > 0}
    if not met:
        return []
    around = reads.surroundings(met)
    pairs = reads.same_as([own_id for own_id, entity in around.items() if entity.is_same])
    others = {own_id for pair in pairs for own_id in pair} - set(met)
    if others:
        around |= reads.surroundings(others)
    canonical = components(pairs)
    members: dict[str, set[str]] = {}
    for own_id in {*met, *others}:
        members.setdefault(canonical.get(own_id, own_id), set()).add(own_id)
    names = {
        entity.entity_id: entity.name
        for entity in reads.found_by_id(sorted(set(members) - set(met)))
    }
    names |= {own_id: entity.name for own_id, entity in met.items()}
    structures = _structures(around, members)
    seeds = []
    for own_id, group in members.items():
        best = max((matches[member], member) for member in group if member in met)
        seeds.append(Seed(own_id, names.get(own_id) or names[best[1]], best[0]))
    scored = scored_seeds(seeds, structures, structural_weight=rules.structural_weight)
    return capped_by_community(scored, rules.community_cap) if capped else scored[:MAX_RECALL_SEEDS]


def _structures(
    around: Mapping[str, EntitySurroundings], members: Mapping[str, set[str]]
) -> dict[str, Structure]:
    """What surrounds a component: its members' surroundings together."""
    structures = {}
    for own_id, group in members.items():
        each = [around[member] for member in sorted(group) if member in around]
        structures[own_id] = Structure(
            degree=sum(structure.degree for structure in each),
            edge_types=max((structure.edge_types for structure in each), default=0),
            community_id=next(
                (structure.community_id for structure in each if structure.community_id), None
            ),
        )
    return structures


def by_activation(
    reads: FactReads,
    recall: Recall,
    seeds: Sequence[Seed],
    *,
    walk: FactWalk,
    config: ActivationConfig,
) -> list[RecalledFact]:
    """SYNAPSE: what spreading activation reaches.

    Raises:
        QueryTimeout: the time was over.
    """
    walk.walk(reads, [seed.entity_id for seed in seeds])
    links = [
        Link(
            link,
            other,
            confidence_of(row.properties, recall.now_ms),
            age_days(row.properties, recall.now_ms),
        )
        for link, other, row in walk.links()
    ]
    reached = activation({seed.entity_id: seed.score for seed in seeds}, links, config)
    return activated(walk, seeds, reached, now_ms=recall.now_ms, limit=MAX_RANKING)


def ranked_facts(
    walk: FactWalk, recall: Recall, seeds: Sequence[Seed], *, decay_rate: float
) -> list[RecalledFact]:
    """What a walk breadth first has met, the best first."""
    return recalled(
        walk,
        seeds,
        now_ms=recall.now_ms,
        decay_rate=decay_rate,
        limit=MAX_RANKING,
        query=recall.query,
    )


def former_first(
    reads: FactReads,
    recall: Recall,
    seeds: Sequence[Seed],
    facts: Sequence[RecalledFact],
    *,
    decay_rate: float,
) -> list[RecalledFact]:
    """What held before the fact that is asked for most, then what else holds now.

    Where no word of the question says which fact that is, it is the first of a few that had another
    value before; wishes had none, they stand side by side. Where no fact says what was before, what
    is so now is left out: it is no answer.

    Raises:
        QueryTimeout: the time was over.
    """
    if not facts:
        return []
    first = facts[0]
    named = not asked_as(first.properties["relation"]).isdisjoint(question_stems(recall.query))
    kinds = [first] if named else _of_each_kind(facts)[:MAX_KINDS]
    before = (_former(reads, recall, seeds, facts, now=now, decay_rate=decay_rate) for now in kinds)
    front = {fact.key: fact for fact in next(filter(None, before), [])}
    beside = () if front else (fact.key for fact in facts if _is_of(fact, first))
    left_out = {*front, *beside}
    return [*front.values(), *(fact for fact in facts if fact.key not in left_out)]


def _of_each_kind(facts: Iterable[RecalledFact]) -> list[RecalledFact]:
    """The first fact of each relation of each source, but for wishes."""
    kinds: dict[tuple[str, str], RecalledFact] = {}
    for fact in facts:
        relation = fact.properties["relation"]
        if relation not in WISHES:
            kinds.setdefault((fact.source.entity_id, relation), fact)
    return list(kinds.values())


def _former(
    reads: FactReads,
    recall: Recall,
    seeds: Sequence[Seed],
    facts: Sequence[RecalledFact],
    *,
    now: RecalledFact,
    decay_rate: float,
) -> list[RecalledFact]:
    """What was so before a fact of those that hold now.

    Where values stand side by side, as tools add them, the older ones were there before the newest.
    """
    before = recall._replace(at_ms=now.properties["valid_from"] - 1)
    walk = FactWalk(wanted=before.wanted, max_depth=1)
    walk.walk(reads, [seed.entity_id for seed in seeds])
    shown = {fact.key for fact in facts}
    ended = ranked_facts(walk, before, seeds, decay_rate=decay_rate)
    former = [fact for fact in ended if _is_of(fact, now) and fact.key not in shown]
    beside = [fact for fact in facts if _is_of(fact, now)]
    newest_ms = max(map(_since_ms, beside))
    older = sorted((fact for fact in beside if _since_ms(fact) < newest_ms), key=_since_ms)[::-1]
    return [*former, *older]


def _is_of(fact: RecalledFact, other: RecalledFact) -> bool:
    """Whether it is the same of the same that two facts tell."""
    same_source = fact.source.entity_id == other.source.entity_id
    return same_source and fact.properties["relation"] == other.properties["relation"]


def _since_ms(fact: RecalledFact) -> int:
    return int(fact.properties["valid_from"])
