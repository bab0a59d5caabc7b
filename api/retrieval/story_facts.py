"""Which of the facts that were found a question asks for without a doubt. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from api.retrieval.fact_words import asked_share, has_words, question_stems
from api.retrieval.operators import Operator
from api.retrieval.plan import Plan
from api.retrieval.story_terms import StoryTerms
from enrichment.stems import stem_in, words_in
from pipelines.columns.story_records import StoryFact

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
    stems = question_stems(terms.text)
    before = plan.operator is Operator.VALUE_BEFORE
    chosen = _last_ended(facts, at_ms) if before else [fact for fact in facts if fact.holds(at_ms)]
    worth = {fact: _worth(fact, stems) for fact in chosen}
    sure = [fact for fact in worth if worth[fact] >= SURE]
    return sorted(sure, key=lambda fact: (-worth[fact], -fact.from_ms, fact.event_id))


def _last_ended(facts: Sequence[StoryFact], at_ms: int) -> Iterable[StoryFact]:
    """Of each relation of each thing the fact that ended last before the moment."""
    ended: dict[tuple[str, str], tuple[int, int, StoryFact]] = {}
    for fact in facts:
        if fact.until_ms is not None and fact.until_ms <= at_ms:
            key, last = (fact.source, fact.relation), (fact.until_ms, fact.from_ms, fact)
            ended[key] = max(ended.get(key, last), last)
    return [fact for *_, fact in ended.values()]


def _worth(fact: StoryFact, stems: frozenset[str]) -> float:
    """How much of a fact's name and of its relation is asked for, 0 to 1."""
    source = {stem_in(word) for word in words_in(fact.source.lower())}
    named = len(source & stems) / len(source) if source else 0.0
    if not has_words(fact.relation):  # what is called so has one value
        return named
    return named * asked_share(stems, fact.relation, (fact.source, fact.value))
