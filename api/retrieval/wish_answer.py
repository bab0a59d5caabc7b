"""Which of a person's wishes a question asks for; columns tell of their events.

A wish is asked for by what the message that states it says, and by what that means: who says "not
so wide, please" names no margin, and the message does. A wish that was told in the place of another
("scrap that: …") answers whatever the other one would have, which stands behind all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, Protocol

import numpy

from api.retrieval.fact_words import WISHES
from api.retrieval.facts import RecalledFact
from api.retrieval.plan import Plan
from api.retrieval.story_terms import StoryTerms, story_terms
from enrichment.stems import same_root, stems_of, telling_stems_of
from enrichment.wishes import ANEW
from pipelines.columns.reads import Wanted
from pipelines.columns.records import Array, Standings, with_joined
from pipelines.graph.rows import FactRow

OVERRULED: Final = 0.15
"""So much more than a wish a remark must be asked for to be told instead."""
_AS_NEAR: Final = 0.1
"""So much less than the best, and a wish is asked for as much: of those the newest counts."""


class WishReads(Protocol):
    """What columns say of the events that state wishes."""

    def standings(self, wanted: Wanted, /) -> Standings:
        """How much of what is asked each of them says."""
        ...

    def vectors(self, event_ids: Sequence[str], /) -> Array:
        """What they mean."""
        ...


class Stated(NamedTuple):
    """A wish.

    Attributes:
        text: of it.
        event_id: of the message that states it.
        from_ms: since when it holds.
        is_anew: it was told in the place of another one.
        is_known: as a wish, and not as something that its person told by the way.
    """

    text: str
    event_id: str
    from_ms: int
    is_anew: bool
    is_known: bool = True


class Wished(NamedTuple):
    """A wish, as far as a question asks for it.

    Attributes:
        place: among the wishes.
        match: how much it is asked for: 0 to 2 and OVERRULED.
        said: share of the words of the question that it says, or one that it takes the place of.
        is_former: another one has taken its place.
    """

    place: int
    match: float
    said: float
    is_former: bool


def is_anew(fact: str, relation: str) -> bool:
    """Whether the words of a fact say that it takes the place of another."""
    return f" {ANEW} {relation} " in fact


def stated(facts: Iterable[FactRow | RecalledFact]) -> list[Stated]:
    """The wishes among facts, in their order."""
    return [
        Stated(
            text=fact.target.name,
            event_id=fact.properties["event_id"],
            from_ms=fact.properties["valid_from"],
            is_anew=is_anew(fact.properties["fact"], fact.properties["relation"]),
        )
        for fact in facts
        if fact.properties["relation"] in WISHES
    ]


def wishes_first(
    facts: Sequence[RecalledFact],
    reads: WishReads,
    query: str,
    *,
    plan: Plan,
    vector: Sequence[float] | None,
) -> list[RecalledFact]:
    """Facts with the wishes of the first one who has any in front, by how much they are asked for.

    Args:
        facts: the best first.
        reads: of the columns.
        query: that asks for a wish.
        plan: of it.
        vector: of the query; None: it has none.
    """
    whose = next((fact.source for fact in facts if fact.properties["relation"] in WISHES), None)
    if whose is None:
        return list(facts)
    of_them = [
        fact for fact in facts if fact.properties["relation"] in WISHES and fact.source == whose
    ]
    # what is to be done stands before what is not, where one message says both
    of_them.sort(key=lambda fact: WISHES.index(fact.properties["relation"]))
    terms = story_terms(query, plan)
    names = stems_of(whose.name)
    ranked = wished(stated(of_them), reads, terms, names=names, vector=vector)
    chosen = {fact.key for fact in of_them}
    return [
        *(of_them[one.place] for one in ranked),
        *(fact for fact in facts if fact.key not in chosen),
    ]


def wished(
    wishes: Sequence[Stated],
    reads: WishReads,
    terms: StoryTerms,
    *,
    names: frozenset[str],
    vector: Sequence[float] | None,
) -> list[Wished]:
    """The wishes that a question asks for, the best first, those that hold no more behind.

    Args:
        wishes: of one person.
        reads: of the columns.
        terms: of the question.
        names: stems of the person's names.
        vector: of the question; None: it has none.
    """
    if not wishes:
        return []
    shares, near = asked_of(wishes, reads, terms, names=names, vector=vector)
    by_others = replaced(wishes, reads)
    for former, by in sorted(by_others.items(), key=lambda pair: wishes[pair[0]].from_ms):
        shares[by], near[by] = max(shares[by], shares[former]), max(near[by], near[former])
    match = [
        share + cosine + (OVERRULED if wish.is_known else 0.0)
        for wish, share, cosine in zip(wishes, shares, near, strict=True)
    ]
    current = [place for place in range(len(wishes)) if place not in by_others]
    best = max((match[place] for place in current), default=0.0)

    def order(place: int) -> tuple[bool, bool, float, float, int]:
        is_near = match[place] >= best - (_AS_NEAR if wishes[place].is_known else 0.0)
        newest = -float(wishes[place].from_ms) if wishes[place].is_known else 0.0
        return place in by_others, not is_near, newest if is_near else 0.0, -match[place], place

    return [
        Wished(place, match[place], shares[place], place in by_others)
        for place in sorted(range(len(wishes)), key=order)
    ]


def asked_of(
    wishes: Sequence[Stated],
    reads: WishReads,
    terms: StoryTerms,
    *,
    names: frozenset[str],
    vector: Sequence[float] | None,
) -> tuple[list[float], list[float]]:
    """Of each wish the share of the question's words that its message says, and its cosine."""
    places = [
        place
        for place, stem in enumerate(terms.stems)
        if stem not in names and not terms.is_asking[place]
    ]
    ids = list(dict.fromkeys(wish.event_id for wish in wishes))
    stems = (*terms.stems, *(pair.stem for pair in terms.joined))
    standings = reads.standings(Wanted((), ids, (), 0, stems=stems, vector=vector))
    rows = {own_id: row for row, own_id in enumerate(standings.ids)}
    holding = with_joined(standings.counts, terms.joined) > 0
    shares, near = [], []
    for wish in wishes:
        row = rows.get(wish.event_id)
        words = telling_stems_of(wish.text)
        holds = [
            (row is not None and bool(holding[row, place])) or _has(words, terms.stems[place])
            for place in places
        ]
        shares.append(sum(holds) / len(holds) if holds else 0.0)
        cosine = 0.0 if row is None else float(numpy.nan_to_num(standings.cosines[row]))
        near.append(max(0.0, cosine))
    return shares, near


def _has(words: frozenset[str], stem: str) -> bool:
    return stem in words or any(same_root(stem, other) for other in words)


def replaced(wishes: Sequence[Stated], reads: WishReads) -> dict[int, int]:
    """Of each wish that another one took the place of, that other: the nearest before it.

    Not where a third that was told anew is nearer to the former than to this one: who changes two
    wishes changes each once.
    """
    anew = [place for place, wish in enumerate(wishes) if wish.is_anew]
    if not anew:
        return {}
    vectors = numpy.asarray(reads.vectors([wish.event_id for wish in wishes]))
    near = vectors @ vectors.T
    by_time = sorted(range(len(wishes)), key=lambda place: (wishes[place].from_ms, place))
    by_others: dict[int, int] = {}
    for place in by_time:
        wish = wishes[place]
        earlier = [
            other
            for other in by_time
            if wishes[other].from_ms < wish.from_ms and other not in by_others
        ]
        if not (wish.is_anew and earlier):
            continue
        former = max(earlier, key=lambda other: float(near[other, place]))
        least = max(near[former, place], 0.0)
        if not any(
            near[other, former] > max(least, near[other, place])
            for other in anew
            if other not in (former, place) and wishes[other].from_ms > wishes[former].from_ms
        ):
            by_others[former] = place
    return by_others
