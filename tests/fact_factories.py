"""Builders of facts and of links between entities: what a test does not name matters not to it."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import combinations
from typing import Any

from consolidation.label_propagation import EntityLink, link_id
from enrichment.facts import Assertion, Party, Retraction, named
from enrichment.histories import Fact, Group, entry_of, group_of, intervals
from tests.factories import START_MS, event_id

DAY_MS = 86_400_000


def party(name: str, **fields: Any) -> Party:
    made = named(name, "concept")
    assert made is not None
    return made._replace(**fields)


def assertion(number: int, target: str, at: int, **fields: Any) -> Assertion:
    """Event `number` says that Caroline lives in `target` since `at` days after the start."""
    until = fields.pop("until", None)
    made = Assertion(
        tenant="default",
        source=party("Caroline"),
        relation="lives_in",
        edge_type="semantic",
        target=party(target),
        valid_from_ms=START_MS + at * DAY_MS,
        valid_to_ms=None if until is None else START_MS + until * DAY_MS,
        confidence=8_000,
        fact=f"Caroline lives in {target}",
        source_kind="conversation",
        status="staged",
        user_id=None,
        event_id=event_id(number),
        ordinal=0,
        position_ms=number,
        functional=False,
    )
    return made._replace(**fields)


def retraction(number: int, **fields: Any) -> Retraction:
    """Event `number` withdraws where Caroline lives: `target` a name, `at` a day, `of` a number."""
    at, target, of = (fields.pop(name, None) for name in ("at", "target", "of"))
    said = assertion(number, target or "nowhere", 0)
    made = Retraction(
        tenant="default",
        user_id=None,
        source_id=said.source_id,
        relation="lives_in",
        edge_type="semantic",
        target_id=said.target_id if target else None,
        asserted_by=None if of is None else event_id(of),
        at_ms=None if at is None else START_MS + at * DAY_MS,
        event_id=event_id(number),
        ordinal=0,
        position_ms=number,
    )
    return made._replace(**fields)


GROUP = group_of(assertion(1, "Oslo", 0))


def facts(*said: Assertion | Retraction, group: Group = GROUP) -> list[Fact]:
    return intervals(group, [entry_of(one) for one in said])


def spans(*said: Assertion | Retraction, group: Group = GROUP) -> list[tuple[str, int, int | None]]:
    """(target, first day, last day) of every edge; the target by its name."""
    names = {one.target_id: one.target.name for one in said if isinstance(one, Assertion)}
    return [
        (
            names[fact.target_id],
            (fact.valid_from_ms - START_MS) // DAY_MS,
            None if fact.valid_to_ms is None else (fact.valid_to_ms - START_MS) // DAY_MS,
        )
        for fact in facts(*said, group=group)
    ]


def feedback_payload(
    useful: Iterable[str] = (), not_useful: Iterable[str] = (), comment: str | None = None
) -> dict[str, Any]:
    """The payload of `memory.feedback`, judged by nobody; ids as on the wire."""
    payload: dict[str, Any] = {"useful": list(useful), "not_useful": list(not_useful)}
    return payload if comment is None else {**payload, "comment": comment}


def link(
    one: str, other: str, weight: float = 1.0, number: int = 0, *, same: bool = False
) -> EntityLink:
    """A link; `number` tells those of one pair apart."""
    return EntityLink(one, other, weight, link_id("T", one, other, str(number)), same)


def clique(names: Iterable[str]) -> list[EntityLink]:
    """A link between any two of these; a text names entities of one letter."""
    return [link(one, other) for one, other in combinations(names, 2)]
