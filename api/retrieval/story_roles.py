"""What part an event has in its story: a call that failed, what helped, the call that worked. Pure.

Found by order and by tool alone: a result belongs to the last call of its tool, a call that works
after one of the same tool has failed is what was done differently, and what stands between helped.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy

from enrichment.act_names import is_reader
from enrichment.event_kinds import EventKind
from pipelines.columns.records import KINDS, MESSAGE, Array, Stories

CALL: Final = KINDS.index(EventKind.CALL)
_RESULT: Final = KINDS.index(EventKind.RESULT)


class Roles(NamedTuple):
    """An array each, a place an event.

    Attributes:
        starts: place of the first event of its story.
        place: within its story, from 0.
        length: of its story.
        call_of: place of the call of an outcome of a tool; -1: it has none.
        says, call, worked, other: a message; a call that is not known to have failed; a result;
            neither of these nor a failure.
        first_failure: of its story.
        failed_call: a call whose result is a failure.
        fixing_call, fixing_result: of a tool that failed before.
        retried: a failure after which the same tool worked.
        between: behind such a failure and before the call that worked.
        has_failure, has_fix: of its story.
    """

    starts: Array
    place: Array
    length: Array
    call_of: Array
    says: Array
    call: Array
    worked: Array
    other: Array
    first_failure: Array
    failed_call: Array
    fixing_call: Array
    fixing_result: Array
    retried: Array
    between: Array
    has_failure: Array
    has_fix: Array


def roles_of(stories: Stories) -> Roles:
    """The roles of the events of stories."""
    count = len(stories.ids)
    begins = numpy.flatnonzero(numpy.diff(stories.story, prepend=-1)) if count else _none()
    lengths = numpy.diff(numpy.append(begins, count))
    starts = numpy.repeat(begins, lengths)
    ordered = _Found(stories)
    failing = _any(stories.failed, begins)  # without a failure no event has such a role
    for begin, length in zip(begins[failing].tolist(), lengths[failing].tolist(), strict=True):
        ordered.read(begin, begin + length)
    says, call = stories.kind == MESSAGE, (stories.kind == CALL) & ~stories.failed
    worked = (stories.kind == _RESULT) & ~stories.failed
    failed_call = ordered.arrays["failed_call"]
    return Roles(
        starts=starts,
        place=numpy.arange(count) - starts,
        length=numpy.repeat(lengths, lengths),
        call_of=_call_of(stories, call | failed_call, worked | stories.failed),
        says=says,
        call=call,
        worked=worked,
        other=~(says | call | worked | stories.failed),
        **{name: numpy.asarray(array) for name, array in ordered.arrays.items()},
        has_failure=numpy.repeat(failing, lengths),
        has_fix=numpy.repeat(_any(ordered.arrays["fixing_result"], begins), lengths),
    )


def said_by_agents(stories: Stories) -> Array:
    """Which events are words of agents that ask nothing."""
    return numpy.asarray((stories.kind == MESSAGE) & ~stories.person & ~stories.asks)


FOUND_FIRST: Final = 3
"""Among so many events an agent's words may tell what was done later."""


def words_of_agent(stories: Stories, order: Array) -> int | None:
    """The words of an agent that were found first, or soon and say more than what was; None: none.

    Args:
        stories: that were found.
        order: places of the events, the best first.
    """
    spoken = said_by_agents(stories)
    first, *others = order[:FOUND_FIRST].tolist()
    if spoken[first]:
        return int(first)
    says = (stories.counts > 0).sum(axis=1)
    return next((place for place in others if spoken[place] and says[place] > says[first]), None)


def only_looks(stories: Stories) -> Array:
    """Which events are of a tool that only looks, by its name."""
    return numpy.array([*map(is_reader, stories.tools), False], dtype=bool)[stories.tool]


def in_order(stories: Stories, places: Array) -> Array:
    """Places in the order of time."""
    return places[numpy.argsort(stories.occurred_ms[places], kind="stable")]


def _call_of(stories: Stories, is_call: Array, is_outcome: Array) -> Array:
    """Of each outcome of a tool the place of its last call before, in the same story."""
    calls = numpy.full(len(stories.ids), -1)
    last: dict[tuple[int, int], int] = {}
    places = numpy.flatnonzero((is_call | is_outcome) & (stories.tool >= 0)).tolist()
    for place in places:
        key = int(stories.story[place]), int(stories.tool[place])
        if is_call[place]:
            last[key] = place
        else:
            calls[place] = last.get(key, -1)
    return calls


def _none() -> Array:
    return numpy.zeros(0, dtype=numpy.int64)


def _any(flags: Array, begins: Array) -> Array:
    """Of each story whether any of its events has the flag."""
    return numpy.asarray(numpy.logical_or.reduceat(flags, begins)) if len(begins) else flags


class _Found:
    """Roles that need the order of a story; `read` goes through one."""

    def __init__(self, stories: Stories) -> None:
        names = (
            *("first_failure", "failed_call", "fixing_call", "fixing_result", "retried"),
            "between",
        )
        self.arrays = {name: numpy.zeros(len(stories.ids), dtype=bool) for name in names}
        self._kinds = stories.kind.tolist()
        self._tools = stories.tool.tolist()
        self._failed = stories.failed.tolist()

    def read(self, begin: int, end: int) -> None:
        called: dict[int, int] = {}
        failures: dict[int, int] = {}
        for place in range(begin, end):
            tool = self._tools[place]
            if self._failed[place]:
                if not failures and not self.arrays["first_failure"][begin:end].any():
                    self.arrays["first_failure"][place] = True
                if (call := called.get(tool)) is not None:
                    self.arrays["failed_call"][call] = True
                failures[tool] = place
            elif self._kinds[place] == CALL:
                called[tool] = place
            elif self._kinds[place] == _RESULT and tool in failures:
                self._fixed(failures.pop(tool), called.get(tool), place)

    def _fixed(self, failure: int, call: int | None, result: int) -> None:
        if call is not None and call > failure:
            self.arrays["fixing_call"][call] = True
            self.arrays["fixing_result"][result] = True
            self.arrays["retried"][failure] = True
            self.arrays["between"][failure + 1 : call] = True
