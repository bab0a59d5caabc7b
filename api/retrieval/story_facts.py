"""Which of the facts that were found a question asks for without a doubt. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from api.retrieval.fact_words import asked_share, has_words, question_stems
from api.retrieval.operators import Operator
from api.retrieval.plan import Plan
from api.retrieval.story_terms import VALUES, StoryTerms
from enrichment.stems import stem_in, words_in
from enrichment.vocabulary import relation_words
from pipelines.columns.story_records import StoryFact

MAX_PROFILE: Final = 20
"""Facts of somebody of whom all is asked."""
SURE: Final = 0.75
"""Of the words of a fact's name and relation, so much is asked for: less may be another fact."""


def facts_asked(
    facts: Sequence[StoryFact], terms: StoryTerms, plan: Plan, at_ms: int
) -> list[StoryFact]:
    """Those that are asked for, the best first: what holds, or what held last before that.

    Args:
        facts: about what the question names.
        terms: of the question.
        plan: of it.
        at_ms: the moment that is asked about.
    """
    if plan.operator not in VALUES:
        return []
    stems = question_stems(terms.text)
    before = plan.operator is Operator.VALUE_BEFORE
    chosen = _last_ended(facts, at_ms) if before else [fact for fact in facts if fact.holds(at_ms)]
    worth = {fact: _worth(fact, stems) for fact in chosen}
    sure = [fact for fact in worth if worth[fact] >= SURE] or _only(chosen, stems)
    return sorted(sure, key=lambda fact: (-worth[fact], -fact.from_ms, fact.event_id))


def _only(facts: Sequence[StoryFact], stems: frozenset[str]) -> list[StoryFact]:
    """The facts that have all words of a question, if all are of one relation of one thing.

    "What is the timeout?" names `payments.gateway.timeout_s` where nothing else is a timeout.
    """
    holding = [
        fact
        for fact in facts
        if stems and stems <= {*_stems_of(fact.source), *_stems_of(relation_words(fact.relation))}
    ]
    return holding if len({(fact.source, fact.relation) for fact in holding}) == 1 else []


def facts_of_named(
    facts: Sequence[StoryFact], terms: StoryTerms, plan: Plan, at_ms: int
) -> list[StoryFact]:
    """The facts that hold of what a question names, where it asks for all that is known of it."""
    if plan.operator is not Operator.PROFILE:
        return []
    stems = question_stems(terms.text)
    held = [fact for fact in facts if fact.holds(at_ms) and _stems_of(fact.source) <= stems]
    held.sort(key=lambda fact: (-fact.from_ms, fact.relation, fact.value))
    return held[:MAX_PROFILE]


def _last_ended(facts: Sequence[StoryFact], at_ms: int) -> list[StoryFact]:
    """Of each relation of each thing the fact that ended last before the moment."""
    ended: dict[tuple[str, str], tuple[int, int, StoryFact]] = {}
    for fact in facts:
        if fact.until_ms is not None and fact.until_ms <= at_ms:
            key, last = (fact.source, fact.relation), (fact.until_ms, fact.from_ms, fact)
            ended[key] = max(ended.get(key, last), last)
    return [fact for *_, fact in ended.values()]


def _worth(fact: StoryFact, stems: frozenset[str]) -> float:
    """How much of a fact's name and of its relation is asked for, 0 to 1."""
    source = _stems_of(fact.source)
    named = len(source & stems) / len(source) if source else 0.0
    if not has_words(fact.relation):  # what is called so has one value
        return named
    return named * asked_share(stems, fact.relation, (fact.source, fact.value))


def _stems_of(text: str) -> frozenset[str]:
    return frozenset(stem_in(word) for word in words_in(text.lower()))
