"""Facts of what a question names, each with the event that says so."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final

from pipelines.columns.story_records import StoryFact
from pipelines.columns.view import View

MAX_NAMED: Final = 24
"""Entities whose facts are told, those first that the question names best."""
MAX_OF_ONE: Final = 100
"""Facts of an entity, the newest first."""


def facts_named(view: View, words: Sequence[str]) -> list[StoryFact]:
    """Facts about the entities that have one of the words in their names, as a viewer sees them.

    What was found to be the same as a named entity is named, too.
    """
    entities = view.tenant.entities
    scored = entities.with_words(words)
    named = sorted(scored, key=lambda row: (-scored[row], entities.all[row].entity_id))
    told: dict[StoryFact, None] = {}
    for row in islice(filter(view.sees_entity, named), MAX_NAMED):
        name = entities.all[row].display_name or entities.all[row].canonical_name
        for same in _same(view, row):
            told |= dict.fromkeys(_facts(view, same, name))
    return list(told)


def _same(view: View, row: int) -> Iterable[int]:
    others = view.tenant.entities.all[row].same
    return [row, *(other for other in others if view.sees_entity(other))]


def _facts(view: View, row: int, name: str) -> Iterator[StoryFact]:
    entities, rows = view.tenant.entities.all, view.tenant.events.rows
    facts = [fact for fact in entities[row].facts if fact.source == row and view.sees_fact(fact)]
    for fact in sorted(facts, key=lambda fact: -fact.valid_from)[:MAX_OF_ONE]:
        event, target = rows.get(fact.event_id), entities[fact.target]
        if event is not None and view.seen[event] and target.stands:
            yield StoryFact(
                fact.event_id,
                source=name,
                relation=fact.relation,
                value=view.name_of(target),
                from_ms=fact.valid_from,
                until_ms=fact.until_ms,
            )
