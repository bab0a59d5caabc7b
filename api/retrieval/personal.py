"""What of a person matters for a question: lines, each with the event that proves it. Pure.

A line is reached from the person along one edge, so it is worth what a path is worth: the weight of
the edge's type for the intent times how sure it is, times how much it has to do with the question.
Wishes stand first: those whose condition the question meets, then those that hold in any case, what
the question is about before the rest and the newer before the older, then those for other cases.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy

from api.retrieval.fact_words import WISHES
from api.retrieval.narrative import one_line
from api.retrieval.plan import READ_OFF, Operator, Plan, StoryAnswer
from api.retrieval.story_roles import roles_of
from api.retrieval.story_terms import StoryTerms
from consolidation.habits import THEN
from consolidation.traits import WITH
from enrichment.names import canonical_name
from enrichment.stems import same_root, stem_in, telling_stems_of, words_in
from enrichment.vocabulary import relation_words
from pipelines.columns.records import Array, Stories
from pipelines.graph.rows import FactRow
from projections.events import timestamp_text
from projections.schema import MAX_WEIGHT, PARENT_SKILL, RELATES_TO, TRAIT_EDGES

MAX_WISHES: Final = 10
MAX_OTHERS: Final = 8
"""Facts, habits, skills and interests, together."""
MAX_STEPS: Final = 8
MAX_DERIVED: Final = 2
"""Habits, skills and interests in a profile."""
_CASE: Final = re.compile(
    r"(?<!\w)(?P<word>when(?:ever)?|if|unless|while|in\s+case)\s+(?P<case>[^,;]+)", re.IGNORECASE
)
_UNLESS: Final = "unless"
_MET: Final = 0.5
"""Share of the words of a wish's case that a question which meets it has."""
_FITS: Final = 0.5
"""Share of the words of a question that an episode has which shows how it is done."""
_NEGATED: Final = re.compile(
    r"^(?:stop|avoid|do\s+not|don['\u2019]t|never|no|not)\s+(?:ever\s+)?", re.IGNORECASE
)
_AVOIDS: Final = WISHES[1]
_CALLED: Final = "has_name"
_SAYING: Final[Mapping[str, str]] = {
    "pattern": "usually",
    "skill": "carries through",
    "interest": "speaks of",
}
_PRACTISED: Final = ("pattern", "skill")


class Line(NamedTuple):
    """One thing that is told, and the event that says so."""

    text: str
    event_id: str


class Trait(NamedTuple):
    """What is derived of a person.

    Attributes:
        kind: pattern, skill or interest.
        strength: of it, above 0 to 1.
        session_count: sessions that show it.
        last_ms: when it was seen last, milliseconds since the epoch.
        event_id: of the newest event that proves it.
        own_id: of it.
        parent_id: of the skill that it is a part of.
    """

    kind: str
    name: str
    strength: float
    session_count: int
    last_ms: int
    event_id: str
    own_id: str = ""
    parent_id: str | None = None


class Known(NamedTuple):
    """What is known of a person now, as one viewer sees it.

    Attributes:
        names: of the person, in their normal form.
        facts: that hold, of which the person is the source.
        traits: that hold.
        name: as it is shown.
        former: ids of the events that state wishes in whose place the person told others.
        of_others: facts that hold of others and lead to the person: "Mia has sister Ana".
    """

    names: frozenset[str]
    facts: Sequence[FactRow]
    traits: Sequence[Trait]
    name: str
    former: frozenset[str] = frozenset()
    of_others: Sequence[FactRow] = ()

    @property
    def proofs(self) -> list[str]:
        """Ids of the events that prove it, the first of each."""
        of_facts = (fact.properties["event_id"] for fact in self.facts)
        of_traits = (trait.event_id for trait in self.traits)
        return list(dict.fromkeys([*of_facts, *of_traits]))


class Topic(NamedTuple):
    """What a question is about, besides the person.

    Attributes:
        stems: of its words.
        cosines: of the question and the event that proves something, by its id.
        weights: of the intent, by edge type, 0 to 5.
    """

    stems: frozenset[str]
    cosines: Mapping[str, float]
    weights: Mapping[str, float]

    def share(self, text: str) -> float:
        """How much of the question something says, 0 to 1."""
        words = telling_stems_of(text)
        return (
            sum(_says(stem, words) for stem in self.stems) / len(self.stems) if self.stems else 0.0
        )

    def cosine(self, event_id: str) -> float:
        """How near the question is to an event, 0 to 1."""
        value = self.cosines.get(event_id, 0.0)
        return max(0.0, value) if value == value else 0.0


def topic_stems(terms: StoryTerms, person: Known) -> frozenset[str]:
    """Stems of what a question is about, without the person's names."""
    named = {stem_in(word) for name in person.names for word in words_in(name)}
    telling = zip(terms.stems, terms.is_asking, strict=True)
    return frozenset(one for one, is_asking in telling if not is_asking and one not in named)


def _says(stem: str, words: Iterable[str]) -> bool:
    return stem in words or any(same_root(stem, other) for other in words)


# -- what to heed ----------------------------------------------------------------------------------


def heeded(person: Known, topic: Topic) -> list[Line]:
    """What to heed for a person in what is at hand: wishes, then what else matters most."""
    others = [*_facts(person, topic), *_traits(person, topic)]
    return [*_wishes(person, topic)[:MAX_WISHES], *_best(others)[:MAX_OTHERS]]


def _best(weighed: Iterable[tuple[float, Line]]) -> list[Line]:
    ranked = sorted(weighed, key=lambda item: (-item[0], item[1]))
    return [line for worth, line in ranked if worth > 0]


def _wishes(person: Known, topic: Topic) -> list[Line]:
    """Wishes, those first that hold for the question."""
    if not topic.weights[RELATES_TO.type]:
        return []
    wishes = [fact for fact in person.facts if fact.properties["relation"] in WISHES]
    wishes.sort(key=lambda fact: _wish_order(fact, topic, person.former))
    return [_dated(_wish_line(fact), fact) for fact in wishes]


def _wish_order(fact: FactRow, topic: Topic, former: frozenset[str]) -> tuple[float, ...]:
    text, event_id = fact.target.name, fact.properties["event_id"]
    holds, general = _holds(text, topic), _CASE.sub(" ", text)
    share = topic.share(general)
    near = 0.0 if share else round(topic.cosine(event_id), 1)
    # what holds in any case, and is about it, counts more than what is about something else
    place = {True: 0, None: 1 if share else 2, False: 3}[holds]
    return event_id in former, place, -share, -near, -fact.properties["valid_from"]


def _holds(wish: str, topic: Topic) -> bool | None:
    """Whether a question meets the case that a wish is for; None: it is for any."""
    case = _CASE.search(wish)
    if case is None or not (wanted := telling_stems_of(case["case"])):
        return None
    met = sum(_says(one, topic.stems) for one in wanted) / len(wanted) >= _MET
    if case["word"].lower() == _UNLESS:
        return False if met else None
    return met


def _wish_line(fact: FactRow) -> Line:
    text = one_line(fact.target.name)
    if fact.properties["relation"] == _AVOIDS:
        text = f"avoid: {_NEGATED.sub('', text)}"
    else:
        text = f"wants: {text}"
    return Line(text, fact.properties["event_id"])


def _fact_line(fact: FactRow) -> Line:
    words = f"{relation_words(fact.properties['relation'])} {one_line(fact.target.name)}"
    return Line(words, fact.properties["event_id"])


def _dated(line: Line, fact: FactRow) -> Line:
    since = timestamp_text(fact.properties["valid_from"])[:10]
    return line._replace(text=f"{line.text} (since {since})")


def _facts(person: Known, topic: Topic) -> Iterator[tuple[float, Line]]:
    weight = topic.weights[RELATES_TO.type] / MAX_WEIGHT
    for fact in person.facts:
        if fact.properties["relation"] not in WISHES:
            line = _dated(_fact_line(fact), fact)
            yield weight * fact.properties["confidence"] * _matters(line, topic), line


def _matters(line: Line, topic: Topic) -> float:
    """How much something has to do with the question, above 0 and at most 1."""
    return (1 + topic.share(line.text) + topic.cosine(line.event_id)) / 3


def _traits(person: Known, topic: Topic) -> Iterator[tuple[float, Line]]:
    for trait in person.traits:
        line = trait_line(trait)
        weight = topic.weights[TRAIT_EDGES[trait.kind].type] / MAX_WEIGHT
        yield weight * trait.strength * _matters(line, topic), line


def trait_line(trait: Trait) -> Line:
    """What is derived of a person, in words."""
    seen = f"{trait.session_count} sessions, last {timestamp_text(trait.last_ms)[:10]}"
    return Line(f"{_SAYING[trait.kind]}: {one_line(trait.name)} ({seen})", trait.event_id)


# -- how somebody does something -------------------------------------------------------------------


def practised(person: Known, topic: Topic, episode: Episode | None) -> list[Line]:
    """Habits and skills that have to do with a question, the strongest first, then wishes."""
    tools = frozenset() if episode is None else episode.tools
    concerning = [trait for trait in person.traits if _concerns(trait, topic, tools)]
    if topic.weights[PARENT_SKILL.type]:
        concerning = _grouped(person, concerning)
    weighed = _traits(person._replace(traits=concerning), topic)
    wishes = [fact for fact in person.facts if topic.share(fact.target.name)]
    wanted = _wishes(person._replace(facts=wishes), topic)
    return [*_best(weighed)[:MAX_OTHERS], *wanted[:MAX_WISHES]]


def _grouped(person: Known, traits: Sequence[Trait]) -> list[Trait]:
    """Traits, each skill by the one that it is a part of, with all parts of that by name."""
    parents = {trait.own_id: trait for trait in person.traits if trait.kind in _PRACTISED}
    told = dict.fromkeys(parents.get(trait.parent_id or "", trait) for trait in traits)
    return [_with_parts(one, person.traits) for one in told]


def _with_parts(trait: Trait, traits: Iterable[Trait]) -> Trait:
    parts = [one.name for one in traits if one.parent_id == trait.own_id]
    if not parts or WITH in trait.name:  # whose name tells them
        return trait
    return trait._replace(name=f"{trait.name}: {', '.join(parts)}")


def _concerns(trait: Trait, topic: Topic, tools: frozenset[str]) -> bool:
    """Whether a habit or a skill is of what is asked about: by its words, or by what it was done.

    All are where nothing is named.
    """
    if trait.kind not in _PRACTISED:
        return False
    by_tools = tools.issuperset(one for part in trait.name.split(WITH) for one in part.split(THEN))
    return not topic.stems or by_tools or topic.share(trait.name) > 0


class Episode(NamedTuple):
    """How something was done once, with success.

    Attributes:
        steps: ids of the calls, in order.
        event_ids: of all its events.
        tools: by which it was done.
    """

    steps: list[str]
    tools: frozenset[str]
    event_ids: frozenset[str]


def episode_of(
    stories: Stories, terms: StoryTerms, *, person: Known, wanted: frozenset[str]
) -> Episode | None:
    """The newest of the episodes of a person that have most to do with a question and worked.

    Args:
        stories: that were found.
        terms: of the question.
        person: whose episodes.
        wanted: stems of what is asked about.
    """
    if not stories.ids:
        return None
    roles = roles_of(stories)
    theirs = _of_names(stories.users, stories.user, person)
    theirs |= _of_names(stories.agents, stories.agent, person)
    columns = [place for place, one in enumerate(terms.stems) if one in wanted]
    holds = (stories.counts[:, columns] > 0) | (stories.labels[:, columns] > 0)
    best: tuple[float, int] | None = None
    chosen: Array | None = None
    for number in numpy.unique(stories.story[theirs]).tolist():
        story = stories.story == number
        ended = numpy.flatnonzero(story & (roles.worked | stories.failed))
        done = story & roles.call & ~roles.failed_call
        if not done.any():
            done = story & roles.worked
        if not len(ended) or stories.failed[ended[-1]] or not done.any():
            continue
        share = float(holds[story].any(axis=0).mean()) if columns else 1.0
        place = (round(share, 2), int(stories.occurred_ms[ended[-1]]))
        if share >= _FITS and (best is None or place > best):
            best, chosen = place, story
    if chosen is None:
        return None
    calls = numpy.flatnonzero(chosen & roles.call & ~roles.failed_call)
    if not len(calls):
        calls = numpy.flatnonzero(chosen & roles.worked)
    events = (stories.ids[place] for place in numpy.flatnonzero(chosen).tolist())
    tools = (stories.tools[stories.tool[place]] for place in calls.tolist())
    return Episode(
        [stories.ids[place] for place in calls.tolist()][:MAX_STEPS],
        frozenset(tools),
        frozenset(events),
    )


def _of_names(names: Sequence[str], column: Array, person: Known) -> Array:
    """Which events are of somebody of the person's names."""
    numbers = [place for place, name in enumerate(names) if canonical_name(name) in person.names]
    return numpy.asarray(numpy.isin(column, numbers))


# -- the answer ------------------------------------------------------------------------------------


def lines_answer(plan: Plan, lines: Sequence[Line]) -> StoryAnswer:
    """The answer of lines, at least one: the n-th event proves the n-th line."""
    evidence = [line.event_id for line in lines]
    order = list(dict.fromkeys(evidence))
    plan = plan._replace(confidence=max(plan.confidence, READ_OFF))
    return StoryAnswer(
        plan=plan,
        confidence=plan.confidence,
        order=order,
        relevance={one: plan.confidence / (1 + place) for place, one in enumerate(order)},
        type="list",
        value=[line.text for line in lines],
        evidence=evidence,
        decides=True,
        explained={},
    )


def others_lines(person: Known) -> list[Line]:
    """Who somebody is to others, the newest first."""
    newest = sorted(person.of_others, key=lambda fact: (-fact.properties["valid_from"], fact.key))
    return [
        line._replace(text=f"{one_line(fact.source.name)} {line.text}")
        for fact, line in zip(newest, map(_fact_line, newest), strict=True)
    ]


def telling_of(person: Known) -> list[FactRow]:
    """The facts that say more of a person than what they are called."""
    return [
        fact
        for fact in person.facts
        if fact.properties["relation"] != _CALLED
        or canonical_name(fact.target.name) not in person.names
    ]


def profile_lines(person: Known, topic: Topic) -> list[Line]:
    """All that is known of a person: facts, then wishes, the newest first, then what is derived.

    Wishes in whose place the person told others come last.
    """
    newest = _newest(person)
    facts = (fact for fact in newest if fact.properties["relation"] not in WISHES)
    wishes = [fact for fact in newest if fact.properties["relation"] in WISHES]
    ended = (_wish_line(fact) for fact in wishes if _is_former(fact, person))
    derived = _best(_traits(person, topic))[:MAX_DERIVED]
    before = (line._replace(text=f"before that {line.text}") for line in ended)
    return [
        *others_lines(person),
        *map(_fact_line, facts),
        *wish_lines(person),
        *derived,
        *before,
    ]


def wish_lines(person: Known) -> list[Line]:
    """The wishes of a person that hold, the newest first."""
    return [
        _wish_line(fact)
        for fact in _newest(person)
        if fact.properties["relation"] in WISHES and not _is_former(fact, person)
    ]


def _newest(person: Known) -> list[FactRow]:
    return sorted(telling_of(person), key=lambda fact: (-fact.properties["valid_from"], fact.key))


def _is_former(fact: FactRow, person: Known) -> bool:
    return fact.properties["event_id"] in person.former


OF_LINES: Final = frozenset((Operator.HOW_DOES, Operator.PERSONALIZE))
"""Operators whose answers are lines."""
