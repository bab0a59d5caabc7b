"""Questions about a person: who is meant, and what is known of them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import tzinfo
from typing import Final, NamedTuple, Protocol, TypeVar

from api.retrieval.fact_meaning import Embed
from api.retrieval.intent import PERSONAL, Seed
from api.retrieval.personal import (
    Known,
    Topic,
    Trait,
    topic_stems,
)
from api.retrieval.plan import Intent, Operator, Plan
from api.retrieval.story_terms import StoryTerms, stories_asked, story_terms
from api.retrieval.wish_answer import replaced, stated
from consolidation.habits import PERSON
from enrichment.names import canonical_name, components, user_entity_id
from enrichment.stems import words_in
from enrichment.vocabulary import KEPT, word_set
from pipelines.columns.reads import ColumnReads, Wanted
from pipelines.columns.records import Stories
from pipelines.graph.reader import GraphNode, GraphRead
from pipelines.graph.reads.entities import EntityReads
from pipelines.graph.reads.facts import FactFilter, FactReads
from pipelines.graph.reads.scope import Scope, Within
from pipelines.graph.rows import EntityName

MAX_MEANT: Final = 8
"""Entities that a question names, among which the person is looked for."""
_PERSONS: Final = frozenset(("user", "agent"))
WHO_ASKS: Final = word_set(
    "i me my mine we us our ours he him his she her hers they them their user customer client "
    "caller person"
)
"""Words for somebody who is not named: whose session it is."""
_THEMSELVES: Final = word_set("i me my mine we us our ours")
"""By which whoever asks speaks of themselves."""
_MY: Final = re.compile(r"(?<!\w)(?:my|mine)(?!\w)", re.IGNORECASE)
_TO_ME: Final = re.compile(
    r"\b(?:give|tell|show|remind|let|brief|catch|fill|bring|get|find|send|help)\s+(?:me|us)\b|"
    r"\bdescribe\s+(?:me|us)\s+(?=(?-i:[A-Z]))|\bintroduce\s+(?:\S+\s+){1,3}to\s+(?:me|us)\b|"
    r"\b(?:i|we)(?:['\u2019]d|\s+would|\s+should)\s+(?:\w+\s+)?(?:like|love|want|need)\b|"
    r"\b(?:i|we)\s+(?:need|want|wish|have)\s+(?:the|what|to\s+(?:know|see|hear|find|check|ask))\b|"
    r"\b(?:may|can|could|might)\s+(?:i|we)\s+(?:\w+\s+)?(?:ask|know|(?:have|see|get)\s+the)\b",
    re.IGNORECASE,
)
"""To whom something shall be told, which says nothing of whom it is about."""
_UNNAMED: Final = (Operator.PERSONALIZE, Operator.PREFERENCE)
"""Operators that are about whoever asks, where nobody is named."""
T = TypeVar("T")


class AskGraph(Protocol):
    """Asks the graph, within the time that is left."""

    def __call__(self, work: Callable[[GraphRead], T], /) -> T:
        """What it answers."""
        ...


class Persons(NamedTuple):
    """What questions about a person are answered from.

    Attributes:
        reads: columns, as the viewer sees them.
        graph: that knows facts, traits and words of events.
        scope: who looks.
        seeds: entities that the question names, the best first.
        weights: of edge types, by intent.
        threshold: the confidence from which on something is known.
        embed: gives vectors of texts.
    """

    reads: ColumnReads
    graph: AskGraph
    scope: Scope
    seeds: Sequence[Seed]
    weights: Mapping[str, Mapping[str, float]]
    threshold: float
    embed: Embed


class Asking(NamedTuple):
    """A question as it was put.

    Attributes:
        query: in words.
        now_ms: when.
        zone: of the days that it means.
        session_id: in which it is asked.
        within: what was given beside it; None: nothing.
        intent: what the caller says it is; None: nothing.
    """

    query: str
    now_ms: int
    zone: tzinfo
    session_id: str
    within: Within | None
    intent: Intent | None = None


class PersonAsked(NamedTuple):
    """A question about a person.

    Attributes:
        asking: as it was put.
        plan: of it; its operator is one of PERSONAL.
        hits: ids of events that the channels found, the best first.
        vector: of the question; None: it has none.
    """

    asking: Asking
    plan: Plan
    hits: Sequence[str]
    vector: Sequence[float] | None


def known_of(persons: Persons, question: PersonAsked) -> Known | None:
    """What is known of the person whom a question means; None: it means nobody."""
    members = meant_by(persons, question)
    if not members:
        return None
    ids = sorted(member.entity_id for member in members)
    now_ms, scope = question.asking.now_ms, persons.scope

    def ask(graph: GraphRead) -> Known:
        facts = FactReads(graph, scope).facts_of(ids, FactFilter(now_ms))
        traits = EntityReads(graph, scope).traits(ids)
        return Known(
            names=frozenset(canonical_name(name) for member in members for name in member.names),
            facts=[fact for fact in facts if fact.source.entity_id in ids],
            traits=[_trait(trait) for trait in traits if trait.properties["holds_until"] > now_ms],
            name=", ".join(dict.fromkeys(member.name for member in members)),
            of_others=[
                fact
                for fact in facts
                if fact.source.entity_id not in ids and _has_whom(fact.properties["relation"])
            ],
        )

    person = persons.graph(ask)
    wishes = stated(person.facts)
    former = (wishes[place].event_id for place in replaced(wishes, persons.reads))
    return person._replace(former=frozenset(former))


def _has_whom(relation: str) -> bool:
    """Whether a relation says who somebody is to another: `has_sister`."""
    return relation.startswith("has_") and relation.removeprefix("has_") in KEPT


def _trait(node: GraphNode) -> Trait:
    values = node.properties
    return Trait(
        own_id=node.node_id,
        parent_id=values.get("parent_id"),
        kind=values["kind"],
        name=values["name"],
        strength=values["strength"],
        session_count=values["session_count"],
        last_ms=values["last_seen"],
        event_id=values["event_ids"][0],
    )


def meant_by(persons: Persons, question: PersonAsked) -> list[EntityName]:
    """The entities of the person whom a question names, else of whose session it is.

    Who asks about themselves writes another's name as one: "my doctor" is not somebody called so.
    """
    query = question.asking.query
    reads, words = persons.reads, set(words_in(query.lower()))
    naming = set(words_in(_as_names(query).lower())) if is_of_who_asks(query) else words
    ids = [seed.entity_id for seed in persons.seeds[:MAX_MEANT]]
    user_id = persons.scope.user_id
    own_id = None if user_id is None else user_entity_id(persons.scope.tenant, user_id)
    groups = _groups(reads, ids if own_id is None else [*ids, own_id])
    best: tuple[tuple[int, bool], list[EntityName]] = ((0, False), [])
    for members in groups.values():
        named = max((_named(member, naming) for member in members), default=0)
        # of several who are called so it is the one in whose view it is asked
        score = (named, own_id is not None and _has(members, own_id))
        if named and score > best[0] and any(map(_is_person, members)):
            best = score, members
    is_unnamed = not best[1] and (
        question.asking.intent is not None
        or question.plan.operator in _UNNAMED
        or not words.isdisjoint(WHO_ASKS)
    )
    if is_unnamed and own_id is not None:
        return next((all_ for all_ in groups.values() if _has(all_, own_id)), [])
    return best[1]


def is_of_who_asks(query: str) -> bool:
    """Whether a question speaks of whoever puts it, in so many words."""
    return not _THEMSELVES.isdisjoint(words_in(_TO_ME.sub(" ", query).lower()))


def by_name(persons: Persons, question: PersonAsked) -> PersonAsked | None:
    """A question of whoever asks, as another would put it: "Ann Lee's desk" for "my desk".

    None: it does not ask so, or who asks has no name but an identifier.
    """
    query, plan = question.asking.query, question.plan
    if _MY.search(query) is None:
        return None
    names = (name for member in meant_by(persons, question) for name in member.names)
    spoken = [name for name in names if not any(map(str.isdigit, name))]
    if not spoken:
        return None
    whose = f"{max(spoken, key=len)}'s"
    return question._replace(
        asking=question.asking._replace(query=_MY.sub(whose, query)),
        plan=plan._replace(
            topic=_MY.sub(whose, plan.topic), timeless=_MY.sub(whose, plan.timeless)
        ),
    )


def _as_names(query: str) -> str:
    """The words of a question that are written as names or identifiers."""
    _, *words = (word.strip(".,;:?!'\"()") for word in query.split())
    return " ".join(word for word in words if not word.islower() or not word.isalpha())


def _has(members: Iterable[EntityName], own_id: str) -> bool:
    return any(member.entity_id == own_id for member in members)


def _groups(reads: ColumnReads, ids: Sequence[str]) -> dict[str, list[EntityName]]:
    """What is the same as each of some entities, as far as the viewer knows it."""
    if not ids:
        return {}
    pairs = reads.same_as(ids)
    canonical = components(pairs)
    every = dict.fromkeys([*ids, *(own_id for pair in pairs for own_id in pair)])
    groups: dict[str, list[EntityName]] = {}
    for entity in reads.found_by_id(list(every)):
        own_id = entity.entity_id
        groups.setdefault(canonical.get(own_id, own_id), []).append(entity)
    return groups


def _is_person(entity: EntityName) -> bool:
    return entity.entity_type in _PERSONS or entity.subtype == PERSON


def _named(entity: EntityName, words: set[str]) -> int:
    """How many words of a question are of a name; of an identifier all must be there."""
    best = 0
    for name in entity.names:
        parts = set(words_in(name.lower()))
        lacks_part = any(map(str.isdigit, name)) and not parts <= words
        best = max(best, 0 if lacks_part else len(parts & words))
    return best


def topic_of(persons: Persons, question: PersonAsked, person: Known) -> Topic:
    """What a question is about, besides the person."""
    terms = story_terms(question.asking.query, question.plan)
    weights = persons.weights[PERSONAL[question.plan.operator]]
    stems = topic_stems(terms, person)
    if not person.proofs:
        return Topic(stems, {}, weights)
    wanted = Wanted((), person.proofs, (), 0, stems=terms.stems, vector=question.vector)
    standings = persons.reads.standings(wanted)
    cosines = dict(zip(standings.ids, standings.cosines.tolist(), strict=True))
    return Topic(stems, cosines, weights)


def stories_of_person(
    persons: Persons, question: PersonAsked, terms: StoryTerms, plan: Plan
) -> Stories:
    """The stories that a question may be answered from."""
    wanted = stories_asked(
        terms,
        plan,
        hits=question.hits,
        vector=question.vector,
        session_id=question.asking.session_id,
    )
    return persons.reads.stories(wanted)
