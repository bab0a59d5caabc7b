"""In which order events tell of a person of whom all is asked. Pure.

What they wish, what they said of themselves, and what was written of them with the words that asked
for it, in turn, of the last what was done or said before what was looked up; then what else was
found. What was asked for and done at once tells nothing of whom it was done for, and neither do
thanks.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Final, NamedTuple

import numpy

from api.retrieval.story_roles import CALL
from pipelines.columns.records import MESSAGE, Stories

CHATTER: Final = 3
"""Importance up to which a message tells nothing."""
MAX_TURNS: Final = 8
"""Of each sort, told in turn."""


class Proofs(NamedTuple):
    """Ids of the events by which something is known of a person, the newest first.

    Attributes:
        wishes: that hold.
        former: wishes in whose place others stand.
        facts: that hold.
    """

    wishes: Sequence[str]
    former: Sequence[str]
    facts: Sequence[str]


def messages_of(stories: Stories) -> list[str]:
    """Ids of what persons say and do not ask."""
    says = (stories.kind == MESSAGE) & stories.person & ~stories.asks
    return [stories.ids[place] for place in numpy.flatnonzero(says).tolist()]


def profile_order(
    stories: Stories,
    order: Sequence[str],
    proofs: Proofs,
    importances: Mapping[str, float],
) -> list[str]:
    """Ids in their order.

    Args:
        stories: of the person.
        order: that is learned.
        proofs: of what is known.
        importances: of messages, by id.
    """
    places = {own_id: place for place, own_id in enumerate(stories.ids)}
    done: list[list[str]] = []
    looked_up: list[list[str]] = []  # tells least
    for fact in proofs.facts:
        place = places.get(fact)
        is_done = place is not None and stories.kind[place] in (CALL, MESSAGE)
        (done if is_done else looked_up).append(_with_request(stories, places, fact))
    facts = [*done, *looked_up]
    telling = {*proofs.wishes, *proofs.former, *chain.from_iterable(done)}
    proving = telling.union(*looked_up)
    remarks = remarks_in(stories, order, importances, besides=proving)
    sorts: tuple[list[list[str]], ...] = (
        facts,
        [[wish] for wish in proofs.wishes],
        [[remark] for remark in remarks],
    )
    first = order[:1] if telling.union([] if facts else remarks).intersection(order[:1]) else []
    in_turn = (
        one
        for turn in zip_longest(*(sort[:MAX_TURNS] for sort in sorts), fillvalue=[])
        for told in turn
        for one in told
    )
    front = list(dict.fromkeys([*first, *in_turn]))
    return list(dict.fromkeys([*_without(front, proofs.former), *order]))


def remarks_in(
    stories: Stories,
    order: Sequence[str],
    importances: Mapping[str, float],
    *,
    besides: Collection[str] = (),
) -> list[str]:
    """What persons told by the way: they ask nothing by it, and nothing was done upon it."""
    places = {own_id: place for place, own_id in enumerate(stories.ids)}
    messages = set(messages_of(stories))
    return [
        one
        for one in order
        if one in messages
        and one not in besides
        and importances.get(one, 0) > CHATTER
        and not _is_done_at_once(stories, places[one])
    ]


def _without(ids: Iterable[str], others: Iterable[str]) -> list[str]:
    left_out = set(others)
    return [own_id for own_id in ids if own_id not in left_out]


def _with_request(stories: Stories, places: Mapping[str, int], event_id: str) -> list[str]:
    """What was written, behind the words of a person that asked for it."""
    place = places.get(event_id)
    if place is None or stories.kind[place] != CALL:
        return [event_id]
    for before in range(place - 1, -1, -1):
        if stories.story[before] != stories.story[place]:
            break
        if stories.person[before] and stories.kind[before] == MESSAGE:
            return [stories.ids[before], event_id]
    return [event_id]


def _is_done_at_once(stories: Stories, place: int) -> bool:
    """Whether a call follows a message, or an agent's answer to it."""
    for after in range(place + 1, min(place + 3, len(stories.ids))):
        if stories.story[after] != stories.story[place]:
            return False
        if stories.kind[after] == CALL:
            return True
        if stories.person[after] or stories.kind[after] != MESSAGE:
            return False
    return False
