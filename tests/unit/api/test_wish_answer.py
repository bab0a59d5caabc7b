"""Which wish took the place of which, and which one is asked for."""

from __future__ import annotations

from collections.abc import Sequence

import numpy

from api.retrieval.wish_answer import Stated, replaced
from pipelines.columns.reads import Wanted
from pipelines.columns.records import Array, Standings

REPORTS, REACHED = numpy.array([1.0, 0.0]), numpy.array([0.0, 1.0])


class Meaning:
    """What messages mean, by their ids."""

    def __init__(self, **vectors: Array) -> None:
        self._vectors = vectors

    def vectors(self, event_ids: Sequence[str], /) -> Array:
        return numpy.array([self._vectors[one] for one in event_ids])

    def standings(self, wanted: Wanted, /) -> Standings:
        raise AssertionError(wanted)


def wish(event_id: str, day: int, *, is_anew: bool = False) -> Stated:
    return Stated(event_id, event_id, from_ms=day, is_anew=is_anew)


def test_a_wish_takes_the_place_of_the_nearest_before_it() -> None:
    wishes = [wish("reports", 1), wish("reached", 2), wish("shorter", 3, is_anew=True)]
    meaning = Meaning(reports=REPORTS, reached=REACHED, shorter=0.9 * REPORTS)
    assert replaced(wishes, meaning) == {0: 2}
    assert replaced(wishes[:2], meaning) == {}


def test_who_changes_two_wishes_changes_each_once() -> None:
    wishes = [
        wish("reports", 1),
        wish("elsewhere", 2, is_anew=True),
        wish("shorter", 3, is_anew=True),
    ]
    meaning = Meaning(reports=REPORTS, elsewhere=0.3 * REPORTS + REACHED, shorter=0.9 * REPORTS)
    assert replaced(wishes, meaning) == {0: 2}


def test_a_wish_that_is_changed_twice_holds_as_it_was_told_last() -> None:
    wishes = [wish("first", 1), wish("second", 2, is_anew=True), wish("third", 3, is_anew=True)]
    meaning = Meaning(first=REPORTS, second=REPORTS, third=REPORTS)
    assert replaced(wishes, meaning) == {0: 1, 1: 2}
