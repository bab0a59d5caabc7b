"""Several things side by side, as their records tell: what differs, and which is first. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from api.record_fields import (
    Field,
    Shown,
    duration_ms,
    fields_of,
    identifiers_in,
    is_record_of,
    occurred_at,
    said_by,
    summary_of,
)
from api.record_history import settled
from api.retrieval.plan import Plan
from api.schemas import Answer
from enrichment.stems import stem_in, telling_stems_of
from enrichment.vocabulary import word_set

_MOST: Final = re.compile(
    r"^\W*(?:and\s+)?(?:which|what)\s+(?P<noun>\w+)\s+(?:has|had|got|have|reached|showed|shows|with|"
    r"gave|gives|made)\s+(?:the\s+)?(?P<how>\w+)\s+(?P<attribute>[\w ]+?)\W*$",
    re.IGNORECASE,
)
_LARGEST: Final = word_set("highest largest biggest greatest most longest")
_SMALLEST: Final = word_set("lowest smallest least shortest fewest")
_BEST: Final = "best"
_LESS_IS_BETTER: Final = frozenset(
    map(stem_in, word_set("loss error cost price latency delay time duration fee"))
)
_DURATION: Final = frozenset(("duration",))
_AMOUNT: Final = frozenset(
    map(stem_in, word_set("amount price cost total fee sum fare premium rate rent"))
)
_BY_ADJECTIVE: Final = {
    word: (names, least)
    for words, names, least in (
        ("cheapest cheaper", _AMOUNT, True),
        ("dearest dearer costliest", _AMOUNT, False),
        ("longest longer slowest slower", _DURATION, False),
        ("shortest shorter fastest faster quickest quicker", _DURATION, True),
    )
    for word in words.split()
}
"""What is compared by an adjective, and whether the least of it is meant."""
_ADJECTIVE: Final = re.compile(
    rf"^\W*(?:and\s+)?(?:which|what)\s+(?P<noun>\w+)\s+(?:is|was|took|ran|were|are)\s+(?:the\s+)?"
    rf"(?P<how>{'|'.join(_BY_ADJECTIVE)})\W*$",
    re.IGNORECASE,
)
_NUMBER: Final = re.compile(r"-?\d+(?:\.\d+)?")
_MOST_LINES: Final = 20
_LOOKED_AT: Final = 40
_AT_LEAST: Final = 2


def compared(plan: Plan, evidence: Sequence[str], shown: Shown) -> Answer | None:
    """What a comparison tells, a line a difference; None: none is asked for, or not of two things.

    Things are named by identifiers; where none is, the records of the tool that was found are
    told, one beside the other.
    """
    if not plan.compares:
        return None
    names = list(dict.fromkeys(identifiers_in(plan.timeless)))
    if len(names) < _AT_LEAST:
        return None if names else _alike(evidence, shown)
    told = [_told_of(name, names, shown) for name in names]
    fields = [{field.words: field for field in reversed(each)} for each in told]
    lines: list[str] = []
    proofs: dict[str, None] = {}
    for words in fields[0]:
        sides = [each[words] for each in fields if words in each]
        if len(sides) == len(names) and len({field.value for field in sides}) > 1:
            values = (
                f"{_as_put(name, plan)} {field.value}"
                for name, field in zip(names, sides, strict=True)
            )
            lines.append(f"{'_'.join(words)}: {', '.join(values)}")
            proofs |= dict.fromkeys(field.node_id for field in sides)
    if not lines:
        return None
    return Answer(type="list", value=lines[:_MOST_LINES], evidence=[*proofs])


def _as_put(name: str, plan: Plan) -> str:
    """An identifier as the question writes it."""
    match = re.search(re.escape(name), plan.timeless, re.IGNORECASE)
    return match[0] if match else name


def _told_of(name: str, names: Sequence[str], shown: Shown) -> list[Field]:
    """What its own records say of a thing, the newest first; of none of the others.

    What only refers to it is of something else, unless there is nothing beside.
    """
    others = set(names) - {name}
    nodes = [
        node
        for node in settled(shown)
        if any(field.value.lower() == name for field in fields_of(node, shown))
        and not any(other in said_by(node, shown).lower() for other in others)
    ]
    by_own_tool = [
        node
        for node in nodes
        if not node.attributes.get("tool_name") or is_record_of(node, name, shown)
    ]
    nodes = by_own_tool or nodes
    nodes.sort(key=occurred_at, reverse=True)
    fields = (field for node in nodes for field in fields_of(node, shown))
    return [field for field in fields if field.value.lower() != name]


def _alike(evidence: Sequence[str], shown: Shown) -> Answer | None:
    first = shown.events.get(evidence[0]) if evidence else None
    if first is None or not first.attributes.get("tool_name"):
        return None
    alike = {
        node.node_id: summary
        for node in islice(shown.events.values(), _LOOKED_AT)
        if node.attributes.get("tool_name") == first.attributes["tool_name"]
        and node.attributes.get("kind") == first.attributes.get("kind")
        and node.provenance.session_id == first.provenance.session_id
        and (summary := summary_of(node))
    }
    if len(alike) < _AT_LEAST:
        return None
    return Answer(type="list", value=[*alike.values()], evidence=[*alike])


def asks_for_more(plan: Plan) -> bool:
    """Whether a question asks which of several has more or less of something."""
    if _ADJECTIVE.match(plan.timeless):
        return True
    match = _MOST.match(plan.timeless)
    return match is not None and match["how"].lower() in _LARGEST | _SMALLEST | {_BEST}


def foremost(plan: Plan, shown: Shown) -> Answer | None:
    """Which of several has the most or the least of something; None: that is not asked for.

    "Which route had the lowest fare?" is the `route` of the record with the lowest `fare`.
    """
    if not asks_for_more(plan):
        return None
    match = _ADJECTIVE.match(plan.timeless)
    if match is not None:
        names, least = _BY_ADJECTIVE[match["how"].lower()]
        wanted = [names]
    elif (match := _MOST.match(plan.timeless)) is not None:
        how, attribute = match["how"].lower(), telling_stems_of(match["attribute"])
        least = how in _SMALLEST or (how == _BEST and not attribute.isdisjoint(_LESS_IS_BETTER))
        wanted = [frozenset((stem,)) for stem in attribute]
    noun = frozenset((stem_in(match["noun"].lower()),)) if match else frozenset()
    numbered = [
        (number, name, node.node_id)
        for node in settled(shown)
        for name, number in _measured(fields_of(node, shown), noun, wanted)
    ]
    if len({name for _, name, _ in numbered}) < _AT_LEAST:
        return None
    number, name, node_id = min(numbered) if least else max(numbered)
    if len({other for value, other, _ in numbered if value == number}) > 1:
        return None  # several are as good
    return Answer(type="value", value=name, evidence=[node_id])


def _measured(
    fields: Sequence[Field], noun: frozenset[str], wanted: Sequence[frozenset[str]]
) -> Iterator[tuple[str, float]]:
    """Names and numbers, as the rows of a record have both, or its surface has one of them.

    Args:
        fields: of a record.
        noun: what it calls the thing by.
        wanted: each set has a word of the name of the number; of a duration any unit.
    """
    called = {field.row: field.value for field in fields if _stems(field) == noun}
    for field in fields:
        name = called.get(field.row, called.get(()))
        if name is None or not wanted or not _NUMBER.fullmatch(field.value):
            continue
        if wanted == [_DURATION]:
            if (ms := duration_ms(field)) is not None:
                yield name, ms
        elif all(not words.isdisjoint(_stems(field)) for words in wanted):
            yield name, float(field.value)


def _stems(field: Field) -> frozenset[str]:
    return frozenset(map(stem_in, field.words))
