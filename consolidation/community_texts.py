"""What a community is called, what it is about, and where it lies among the vectors: no model.

The name lists the most central members. The summary says what they are and tells the strongest
facts among members, first those that bring in a member who was not told of yet, so that one hub
does not take all the room. Whole facts only: one that does not fit is left out.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from consolidation.communities import Community, Member
from consolidation.payloads import MAX_SUMMARY_CHARACTERS, CommunityText
from projections.schema import VECTOR_DIMENSIONS

NAMED_MEMBERS = 3
DESCRIBED_MEMBERS = 12
"""How many of the most central members are worth reading for a text."""
READ_FACTS = 40
"""How many of the strongest facts are worth reading for a text."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
_NOWHERE = 1e-6
_ANYTHING = "concept"
_SHOWN_NAME_CHARACTERS = 36
_SHOWN_KIND_CHARACTERS = 24
_SHOWN_FACT_CHARACTERS = 200


class Described(NamedTuple):
    """How a member is shown: its name, its type and the finer one, if known."""

    name: str
    entity_type: str
    subtype: str | None = None


class InnerFact(NamedTuple):
    """A fact whose ends are members, and which holds.

    Attributes:
        source_id: of the entity it is about.
        target_id: of the other; None: a literal.
        fact: in words.
        confidence: 0 to 1.
        support_count: how many events say so.
    """

    source_id: str
    target_id: str | None
    fact: str
    confidence: float
    support_count: int = 1


def community_text(
    community: Community, described: Mapping[str, Described], facts: Iterable[InnerFact]
) -> CommunityText:
    """Name and summary of a community.

    Args:
        community: whose they are.
        described: its most central members at least, by entity id; of what is the same the
            canonical one's name is shown. Those that are not described are counted.
        facts: the strongest among its members at least, in any order.
    """
    things = _things(community.members)
    shown = [described[one] for one in things if one in described and _short(described[one].name)]
    shown = shown[:NAMED_MEMBERS]
    name = begin = f"{len(things):,} entities"
    if shown:
        name = _listed([_short(one.name) for one in shown])
        begin = _listed([f"{_short(one.name)}{_kind(one)}" for one in shown])
        others = len(things) - len(shown)
        begin += f", with {others:,} more" if others else ""
    return CommunityText(name, _told(begin, community.members, facts))


def centroid(vectors: Iterable[bytes]) -> bytes | None:
    """The normalised mean of vectors.

    Args:
        vectors: of the members that have one, VECTOR_DIMENSIONS little-endian float32 each.

    Returns:
        A unit vector of the same form; None without vectors, or when they cancel out.

    Raises:
        ValueError: a vector has another length.
    """
    total = np.zeros(VECTOR_DIMENSIONS, dtype=np.float64)
    for vector in vectors:
        row = np.frombuffer(vector, dtype="<f4")
        if len(row) != VECTOR_DIMENSIONS:
            raise ValueError(f"vector of {len(row)} numbers, not {VECTOR_DIMENSIONS}")
        total += row
    length = float(np.linalg.norm(total))
    # what is left of vectors that cancel out is rounding, and points nowhere
    return (total / length).astype("<f4").tobytes() if length > _NOWHERE else None


def _things(members: Sequence[Member]) -> list[str]:
    """Canonical ids, most central first, each once."""
    return list(dict.fromkeys(member.canonical_id for member in members))


def _listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def _kind(entity: Described) -> str:
    """` (person)`; nothing for a concept, which could be anything."""
    kind = _short((entity.subtype or entity.entity_type).replace("_", " "), _SHOWN_KIND_CHARACTERS)
    return "" if kind == _ANYTHING else f" ({kind})"


def _short(text: str, longest: int = _SHOWN_NAME_CHARACTERS) -> str:
    """On one line, cut between words if that leaves enough."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    if len(line) <= longest:
        return line
    cut = line[: longest - 1]
    head = cut.rsplit(" ", 1)[0]
    return f"{(head if 2 * len(head) > longest else cut).rstrip(' ,;:.')}…"


def _told(begin: str, members: Sequence[Member], facts: Iterable[InnerFact]) -> str:
    """The beginning, then facts as far as there is room."""
    text = begin
    for fact in _in_order(members, facts):
        joint = ": " if text == begin else "; "
        if len(text) + len(joint) + len(fact) + 1 <= MAX_SUMMARY_CHARACTERS:
            text = f"{text}{joint}{fact}"
    return f"{text}."


def _in_order(members: Sequence[Member], facts: Iterable[InnerFact]) -> list[str]:
    """Facts in words, each once: those that bring in another member, then the others."""
    canonical = {member.entity_id: member.canonical_id for member in members}
    place = {own_id: number for number, own_id in enumerate(_things(members))}
    ranked: list[tuple[tuple[float, bool, int, int, str], set[str], str]] = []
    for fact in facts:
        named = [one for one in (fact.source_id, fact.target_id) if one is not None]
        ends = {canonical[one] for one in named if one in canonical}
        words = _short(fact.fact, _SHOWN_FACT_CHARACTERS).rstrip(" .;")
        if len(ends) == len(named) and words:
            central = sum(place[one] for one in ends)
            literal = fact.target_id is None
            rank = (-fact.confidence, literal, -fact.support_count, central, words)
            ranked.append((rank, ends, words))
    told: set[str] = set()
    first: list[str] = []
    later: list[str] = []
    for _, ends, words in sorted(ranked, key=lambda one: one[0]):
        (later if ends <= told else first).append(words)
        told |= ends
    by_words = {words.casefold(): words for words in reversed(first + later)}
    return list(dict.fromkeys(by_words[words.casefold()] for words in first + later))
