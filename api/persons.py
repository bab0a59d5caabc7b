"""What is known of a user, sorted for whoever serves them; and as text for a prompt. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from api.browse_schemas import Person, SessionItem, TraitItem
from api.read_schemas import Fact, PageMeta
from api.retrieval.fact_words import WISHES
from api.retrieval.narrative import NO_ROOM, NOTICE, estimated_tokens, one_line
from enrichment.vocabulary import relation_words
from pipelines.graph.reader import GraphNode
from projections.events import timestamp_ms, timestamp_text

_WISHED: Final = ("### Do", "### Do not")
"""Headings of `WISHES`."""
_HABITS: Final = "### Seen in several sessions"
_TOLD_TRAITS: Final = 2
"""Of each kind."""
_NOTHING: Final = "Nothing is known of this user.\n"


def person_of(
    user_id: str,
    entity_id: str,
    names: list[str],
    facts: Sequence[Fact],
    *,
    now_ms: int,
    traits: Sequence[GraphNode],
    sessions: list[SessionItem],
    next_cursor: str | None,
    meta: PageMeta,
) -> Person:
    """A user as they are sent.

    Args:
        user_id: of the envelopes.
        entity_id: on the wire.
        names: that the user is known by.
        facts: of the user, whether they hold or not, the newest first.
        now_ms: the clock that a fact's end is compared with, and a trait's.
        traits: of the user, of all kinds, whether they hold or not.
        sessions: the newest ones.
        next_cursor: of the facts behind these.
        meta: of the page.
    """
    former = [fact for fact in facts if _has_ended(fact, now_ms)]
    holding = [fact for fact in facts if not _has_ended(fact, now_ms)]
    kinds: dict[str, list[TraitItem]] = {"pattern": [], "skill": [], "interest": []}
    held = [trait for trait in traits if trait.properties["holds_until"] > now_ms]
    names_of = {trait.node_id: trait.properties["name"] for trait in held}
    for trait in held:
        parent = names_of.get(trait.properties.get("parent_id", ""))
        kinds[trait.properties["kind"]].append(_trait_item(trait.properties, parent))
    return Person(
        user_id=user_id,
        entity_id=entity_id,
        names=names,
        facts=[fact for fact in holding if fact.relation not in WISHES],
        wishes=[fact for fact in holding if fact.relation in WISHES],
        former=former,
        patterns=kinds["pattern"],
        skills=kinds["skill"],
        interests=kinds["interest"],
        next_cursor=next_cursor,
        sessions=sessions,
        meta=meta,
    )


def _trait_item(values: Mapping[str, Any], parent: str | None) -> TraitItem:
    times = ("first_seen", "last_seen", "holds_until")
    return TraitItem(
        **{name: values[name] for name in ("name", "strength", "session_count", "event_ids")},
        **{name: timestamp_text(values[name]) for name in times},
        part_of=parent,
    )


def _has_ended(fact: Fact, now_ms: int) -> bool:
    ended = fact.valid_to is not None and timestamp_ms(fact.valid_to) <= now_ms
    return ended or fact.expired_at is not None


def person_markdown(person: Person, max_tokens: int) -> str:
    """A block for a prompt: what to do and what not, then what holds; each line with its proof.

    Args:
        person: that is served.
        max_tokens: estimated; what does not fit is left out from the end.
    """
    lines: list[str] = []
    room = max_tokens - estimated_tokens(NOTICE)
    told = list(_lines(person))
    for heading, line in told:
        cost = estimated_tokens(line) + (0 if heading in lines else estimated_tokens(heading))
        if cost > room:
            break
        room -= cost
        lines += [line] if heading in lines else [heading, line]
    if not lines:
        return f"{NO_ROOM}\n" if told else _NOTHING
    return "\n".join([NOTICE, *lines]) + "\n"


def _lines(person: Person) -> Iterator[tuple[str, str]]:
    """Lines, each with its heading, all of a heading in a row: what matters most first."""
    for heading, relation in zip(_WISHED, WISHES, strict=True):
        for fact in person.wishes:
            if fact.relation == relation:
                yield heading, f"- {one_line(fact.target.name)} {_proof(fact)}"
    heading = f"### {one_line(person.user_id)}"
    others = [name for name in person.names if name != person.user_id]
    if others:
        yield heading, f"- is {', '.join(map(one_line, others))}"
    for fact in person.facts:
        words = f"{relation_words(fact.relation)} {one_line(fact.target.name)}"
        yield heading, f"- {words}, since {fact.valid_from[:10]} {_proof(fact)}"
    for words, trait in _told(person):
        many = f"{trait.session_count} sessions, last {trait.last_seen[:10]}"
        yield _HABITS, f"- {words} ({many}) [{trait.event_ids[0]}]"


def _told(person: Person) -> Iterator[tuple[str, TraitItem]]:
    """The strongest habits and interests, in words; tools that work tell an agent nothing new."""
    for begin, traits in (
        ("usually", person.patterns),
        ("speaks of", person.interests),
    ):
        for trait in traits[:_TOLD_TRAITS]:
            yield f"{begin}: {one_line(trait.name)}", trait


def _proof(fact: Fact) -> str:
    return f"[{fact.provenance.event_id}]"
