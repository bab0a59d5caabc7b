"""Which fact a question means that asks for it in words which no record has.

Somebody asks for a parking bay, and `garage.assign` knows of a `stall`. What the question asks for,
without names, is compared with each relation of what it names: with the words of the relation and
of the tool that set it, and with the event that states the fact.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import pairwise, takewhile
from typing import Final, NamedTuple

import numpy

from api.retrieval.fact_words import WISHES, has_words
from api.retrieval.plan import VALUES, Operator, Plan, StoryAnswer
from api.retrieval.story_roles import Roles, roles_of
from api.retrieval.story_terms import StoryTerms
from enrichment.stems import plain, stem, stem_in, stems_of, words_in
from enrichment.vocabulary import CAMEL, STOP_WORDS, relation_words
from pipelines.columns.reads import ColumnReads, Wanted
from pipelines.columns.records import Stories, StoryFact

Embed = Callable[[str], Sequence[float] | None]
"""The vector of a text, of unit length; None: not in time."""
LIKE: Final = 0.56
"""Sum of two cosines from which on a relation may be what is asked for.

Below it is what nobody knows: somebody's telephone number is 0.53 of their seat.
"""
LIKE_CHANGED: Final = 0.45
"""The same of what was so before, or at another time, for a relation that had several values."""
LIKER: Final = 1.4
"""So many times as near as any other record must it be."""
MEANT_SURELY: Final = 0.75
"""Likeness from which on nothing else is asked for."""
_MORE_THAN_ONE: Final = 2
"""Words of what is asked for, by which alone nothing else is meant."""
MAX_TELLING: Final = 40
"""Of the events that were found, those that may tell a fact in the words of the question."""
MAX_RELATIONS: Final = 4
"""Of one thing, those whose events are nearest: each takes two embeddings, which are remembered."""
_ASKED: Final = {
    Operator.VALUE: "what is the {} of {}",
    Operator.VALUE_BEFORE: "what was the {} of {} before",
    Operator.VALUE_AT: "what was the {} of {}",
}
_OF: Final = frozenset(("of", "for"))
_VERB: Final = re.compile(
    r"(?<!\w)(?:wh\w+|how|is|are|was|were|do|does|did|has|have|had|can|could|will|would|\w+n['\u2019]t|"
    r"if|not|no|any)(?!\w)",
    re.IGNORECASE,
)
"""By which a question says more than what it asks for."""
_WHAT_IS: Final = re.compile(
    r"^\W*(?:who|what)(?:\s+(?:is|are|was|were)|['\u2019]s)(?!\w)", re.IGNORECASE
)
_MAY_ASK_VALUE: Final = frozenset((Operator.SEARCH, Operator.ACTOR))
"""Operators of "the deputy of Ann Lee?" and "who is the deputy of Ann Lee?"."""
_YES_OR_NO: Final = re.compile(r"^\W*(?:is|are|was|were|does|did|has|had)(?!\w)", re.IGNORECASE)


class Meant(NamedTuple):
    """A question in the words of a fact.

    Attributes:
        query: in these words.
        operator: what it asks for.
        topic: stems of what was asked for, as it was put.
        likeness: of what was asked for and the relation, LIKE_CHANGED to 1.
    """

    query: str
    operator: Operator
    topic: frozenset[str]
    likeness: float

    def answers(
        self, other: StoryAnswer, answer: StoryAnswer, stories: Stories, terms: StoryTerms
    ) -> bool:
        """Whether the other answer, in these words, is given instead of one in those of the asker.

        Args:
            other: the answer in these words.
            answer: in the words of the asker.
            stories: that this is read from.
            terms: of the question as it was put.
        """
        if other.value is None:
            return False
        is_beside = self.topic.isdisjoint(_shared_with_first(stories, terms, answer))
        is_known = is_beside and other.confidence >= self.likeness
        # what was so at another time is told by facts; an event that has the words may be of any
        is_now = self.operator is Operator.VALUE
        sure = (self.limited(other) if is_now else other).confidence
        return self.likeness >= MEANT_SURELY or is_known or sure > answer.confidence

    def planned(self, plan: Plan) -> Plan:
        """The plan of the question as it was put, with these words in place of its own."""
        return plan._replace(operator=self.operator, topic=self.query, timeless=self.query)

    def limited(self, answer: StoryAnswer) -> StoryAnswer:
        """An answer to it, no surer than that it was meant."""
        most = min(answer.confidence, (1 + self.likeness) / 2)
        worth = {own_id: min(most, share) for own_id, share in answer.relevance.items()}
        return answer._replace(confidence=most, relevance=worth)


def in_words_of_facts(
    reads: ColumnReads,
    stories: Stories,
    terms: StoryTerms,
    plan: Plan,
    *,
    answer: StoryAnswer,
    embed: Embed,
) -> Iterator[Meant]:
    """The question in the words of the facts that it may mean, the likeliest first.

    Args:
        reads: of the viewer.
        stories: that were found, with the facts about what the question names.
        terms: of the question.
        plan: of it.
        answer: to it, in its own words.
        embed: gives vectors of texts.

    Raises:
        QueryTimeout: there was no answer in time.
        GraphUnavailable: nobody holds the columns.
    """
    operator = None if terms.identifiers else asks_value(plan)  # a record is found by its number
    facts = [] if operator is None else _of_named(stories.facts, terms)
    if operator is None or not facts:
        return
    roles, stems = roles_of(stories), frozenset(terms.stems)
    topic = _asked_for(terms, (fact.source for fact in facts))
    if (fact := _told_first(stories, roles, facts, answer)) is not None:
        yield Meant(_put(fact, operator, plan), operator, stems, answer.confidence)
    if (fact := _spoken_of(stories, roles, facts, answer, terms=terms, topic=topic)) is not None:
        yield Meant(_put(fact, operator, plan), operator, stems, MEANT_SURELY)
    least = LIKE
    if operator is not Operator.VALUE and (changed := _with_history(facts)):
        facts, least = changed, LIKE_CHANGED
    nearest = _nearest(reads, stories, roles, facts, topic=topic, embed=embed, least=least)
    if nearest is not None:
        fact, likeness = nearest
        of_topic = frozenset(map(stem, map(plain, topic)))
        yield Meant(_put(fact, operator, plan), operator, of_topic, min(1.0, likeness))


def _nearest(
    reads: ColumnReads,
    stories: Stories,
    roles: Roles,
    facts: Sequence[StoryFact],
    *,
    topic: Sequence[str],
    embed: Embed,
    least: float,
) -> tuple[StoryFact, float] | None:
    """The fact that means most of what is asked for, and how much; None: none means enough."""
    vector = embed(" ".join(topic)) if topic else None
    if vector is None:
        return None
    story_of = _records(stories, roles)
    ids = list(dict.fromkeys([*(fact.event_id for fact in facts), *story_of]))
    standings = reads.standings(Wanted((), ids, (), 0, stems=(), vector=vector))
    near = dict(zip(standings.ids, numpy.nan_to_num(standings.cosines).tolist(), strict=True))
    likeness = _likeness(facts, near, _tools(stories), vector=vector, embed=embed)
    if not likeness:
        return None
    chosen = max(likeness, key=likeness.__getitem__)
    stating = {fact.event_id for fact in facts if fact.relation == chosen.relation}
    same = {story for own_id, story in story_of.items() if own_id in stating}
    others = (near.get(own_id, 0.0) for own_id, story in story_of.items() if story not in same)
    if likeness[chosen] < max(least, LIKER * max(others, default=0.0)):
        return None
    return chosen, likeness[chosen]


def _told_first(
    stories: Stories, roles: Roles, facts: Sequence[StoryFact], answer: StoryAnswer
) -> StoryFact | None:
    """The fact that the first event of the answer tells; None: it tells none.

    Itself or by what was done at once for it: the one fact that had another value before, or has
    since. What is so now, or was at another time, may be told in words that the question has not.
    """
    if answer.confidence < MEANT_SURELY:
        return None  # it has the name of somebody, and may have no word of what is asked
    told = _told_with(stories, roles, stories.ids.index(answer.order[0]))
    return _changed(stories, facts, told)


def _spoken_of(
    stories: Stories,
    roles: Roles,
    facts: Sequence[StoryFact],
    answer: StoryAnswer,
    *,
    terms: StoryTerms,
    topic: Sequence[str],
) -> StoryFact | None:
    """The fact of which somebody spoke in all words of what is asked for; None: nobody did.

    "What do you show as my office hour?" was answered by `consultation`: what they said and what
    was done at once for it hold the words together, and the first event one of them, perhaps.
    """
    words = words_in(" ".join(topic))
    spoken = [place for place, word in enumerate(terms.words) if word in words]
    if len(spoken) < _MORE_THAN_ONE:
        return None
    for place in map(stories.ids.index, answer.order[:MAX_TELLING]):
        told = _told_with(stories, roles, place) if stories.person[place] else []
        if not told or not stories.counts[told][:, spoken].any(axis=0).all():
            continue
        if (fact := _changed(stories, facts, told)) is not None:
            return fact
    return None


def _changed(
    stories: Stories, facts: Sequence[StoryFact], places: Sequence[int]
) -> StoryFact | None:
    """The one fact that some events tell which has had more than one value; None: none, or more."""
    told = {stories.ids[place] for place in places}
    relations = {fact.relation for fact in facts if fact.event_id in told}
    changed = [fact for fact in _with_history(facts) if fact.relation in relations]
    return changed[0] if len({fact.relation for fact in changed}) == 1 else None


def _with_history(facts: Sequence[StoryFact]) -> list[StoryFact]:
    """Those whose relation has had more than one value."""
    values: dict[str, set[str]] = {}
    for fact in facts:
        values.setdefault(fact.relation, set()).add(fact.value)
    return [fact for fact in facts if len(values[fact.relation]) > 1]


def _put(fact: StoryFact, operator: Operator, plan: Plan) -> str:
    """A question for what a fact tells, in its words."""
    words = relation_words(fact.relation).removeprefix("has ")
    return _ASKED[operator].format(words, as_put(fact.source, plan.timeless))


def _told_with(stories: Stories, roles: Roles, place: int) -> list[int]:
    """An event, its call, and what was done in its session until a person says something again."""
    apart = (stories.story != stories.story[place]) | stories.person
    behind = takewhile(lambda after: not apart[after], range(place + 1, len(stories.ids)))
    call = int(roles.call_of[place])
    return [place, *behind, *([call] if call >= 0 else ())]


def as_put(name: str, question: str) -> str:
    """A name as a question spells it: by capitals it is known there to be one."""
    parts = r"[\W_]+".join(map(re.escape, words_in(name)))  # `ann.lee` is put as "Ann Lee"
    spelled = re.search(rf"(?<!\w){parts}(?!\w)", question, re.IGNORECASE) if parts else None
    return spelled[0] if spelled else name


def asks_value(plan: Plan) -> Operator | None:
    """What a question asks for that asks for a value, or says no more than what it is of."""
    if plan.operator in VALUES:
        return None if _YES_OR_NO.match(plan.timeless) else plan.operator
    if plan.operator not in _MAY_ASK_VALUE or _VERB.search(_WHAT_IS.sub("", plan.timeless)):
        return None
    return Operator.VALUE_AT if plan.spans else Operator.VALUE


def _shared_with_first(stories: Stories, terms: StoryTerms, answer: StoryAnswer) -> frozenset[str]:
    """Stems of a question that the first event of its answer has."""
    if not answer.order:
        return frozenset()
    counts = stories.counts[stories.ids.index(answer.order[0])]
    return frozenset(stem for stem, count in zip(terms.stems, counts, strict=True) if count)


def _of_named(facts: Iterable[StoryFact], terms: StoryTerms) -> list[StoryFact]:
    """The facts about what a question names best, whose relation says something.

    Where a value is in the question, the record is found by it, and another one is asked for. Of
    several who are called so nobody is meant.
    """
    stems = frozenset(map(stem_in, words_in(terms.text)))
    by_value = {fact.event_id for fact in facts if stems_of(fact.value) <= stems}
    named: dict[int, list[StoryFact]] = {}
    for fact in facts:
        tells = fact.relation not in WISHES and has_words(fact.relation)
        if tells and fact.event_id not in by_value:
            named.setdefault(len(stems_of(fact.source) & stems), []).append(fact)
    most = max(named, default=0)
    facts = named[most] if most else []
    return facts if len({frozenset(stems_of(fact.source)) for fact in facts}) == 1 else []


def _asked_for(terms: StoryTerms, sources: Iterable[str]) -> list[str]:
    """The words that say what is asked for of somebody or something.

    Those right before "of" and a name; where there are none, all but the names.
    """
    names = {stem_in(word) for source in sources for word in words_in(source.lower())}
    text = terms.text.split()
    for place, (word, behind) in enumerate(pairwise(text)):
        if word in _OF and _names(behind, names):
            before = takewhile(lambda part: part not in STOP_WORDS, reversed(text[:place]))
            if words := list(before)[::-1]:
                return words
    telling = zip(terms.words, terms.is_asking, strict=True)
    unnamed = (word for word, asks in telling if not asks and word not in terms.capitalised)
    return [word for word in unnamed if not _names(word, names)]


def _names(word: str, names: AbstractSet[str]) -> bool:
    return any(stem_in(part) in names for part in words_in(word))


def _records(stories: Stories, roles: Roles) -> dict[str, int]:
    """The calls that were made for whom a question names, and what they returned: story by id."""
    places = numpy.flatnonzero(stories.theirs & (roles.call | roles.worked))
    return {stories.ids[place]: int(stories.story[place]) for place in places.tolist()}


def _tools(stories: Stories) -> dict[str, str]:
    """The tool of each event, in words."""
    spoken = [" ".join(words_in(CAMEL.sub(" ", tool))) for tool in stories.tools]
    tools = zip(stories.ids, stories.tool.tolist(), strict=True)
    return {own_id: spoken[number] for own_id, number in tools if number >= 0}


def _likeness(
    facts: Iterable[StoryFact],
    near: Mapping[str, float],
    tools: Mapping[str, str],
    *,
    vector: Sequence[float],
    embed: Embed,
) -> dict[StoryFact, float]:
    """How near what is asked for is to each relation, by the fact whose event is nearest to it."""
    nearest: dict[str, StoryFact] = {}
    for fact in sorted(facts, key=lambda fact: -near.get(fact.event_id, 0.0)):
        nearest.setdefault(fact.relation, fact)
    likeness = {}
    for fact in list(nearest.values())[:MAX_RELATIONS]:
        words = relation_words(fact.relation)
        ways = (embed(words), embed(f"{words} {tools.get(fact.event_id, '')}"))
        cosines = [float(numpy.dot(vector, way)) for way in ways if way is not None]
        if cosines:
            likeness[fact] = near.get(fact.event_id, 0.0) + max(cosines)
    return likeness
