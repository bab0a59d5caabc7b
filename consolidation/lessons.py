"""What was learned from a failure: what was different when it went through.

Between the last attempt that failed and the one that succeeded arguments were changed, added or
left out, and other things were done: something was looked up, somebody agreed. Only what lies
between the two counts; what was done before the failure did not help.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from consolidation.actions import (
    Action,
    Incident,
    argument_lines,
    body_of,
    happened,
    is_failure,
    is_tool_result,
)
from consolidation.sources import SourceEvent
from consolidation.summary_payloads import (
    ARGUMENT_CHARACTERS,
    ERROR_CHARACTERS,
    LESSON_CHARACTERS,
    MAX_DIFFERENCES,
    MAX_HELPING,
    NAME_CHARACTERS,
    VALUE_CHARACTERS,
    Difference,
    Lesson,
    fitting_lessons,
)
from enrichment.event_kinds import EventKind
from enrichment.vocabulary import cut

_TOLD_CHARACTERS = 40
"""Of a value in a sentence."""
_HELP_CHARACTERS = 80
_MAX_TOLD = 2
_MAX_NAMED = 3
_SHORTEST: Final = 3
"""Characters from which a value that comes up between the attempts came from there."""


class Changed(NamedTuple):
    """An argument that two calls give differently; None: it is not given."""

    name: str
    before: str | None
    after: str | None


def changed_arguments(before: SourceEvent, after: SourceEvent) -> list[Changed]:
    """What a second attempt was called with instead: first other values, then added, then left out.

    By the lines of the texts; of several lines with one name the first two that differ. An attempt
    of which no argument is known tells nothing.
    """
    old, new = argument_lines(before.text), argument_lines(after.text)
    if not new:
        return []
    changed = []
    for name, values in old.items():
        pairs = zip(values, new.get(name, ()), strict=False)
        different = next(((first, second) for first, second in pairs if first != second), None)
        if different is not None:
            changed.append(Changed(name, *different))
    changed += [Changed(name, None, values[0]) for name, values in new.items() if name not in old]
    changed += [Changed(name, values[0], None) for name, values in old.items() if name not in new]
    return changed


def changes_of(failed: Sequence[Action], solved_by: Action) -> list[Changed]:
    """The arguments that were different when it went through.

    None are where any attempt with the same arguments had failed: it was not these that helped.
    """
    last = failed[-1]
    if last.call is None or solved_by.call is None or last.name != solved_by.name:
        return []
    same = argument_lines(solved_by.call.text)
    if any(one.call is not None and argument_lines(one.call.text) == same for one in failed):
        return []
    return changed_arguments(last.call, solved_by.call)


def lessons_of(
    events: Sequence[SourceEvent], failing: Iterable[Incident]
) -> tuple[Lesson, ...] | None:
    """What was learned in an episode, by what was learned first; None: nothing.

    Args:
        events: of the episode, sorted.
        failing: its incidents.
    """
    places = {event.event_id: place for place, event in enumerate(events)}
    return fitting_lessons(
        _lesson(incident, solved_by, _between(events, places, incident.failed[-1], solved_by))
        for incident in failing
        if (solved_by := incident.solved_by) is not None
    )


def _between(
    events: Sequence[SourceEvent], places: Mapping[str, int], failed: Action, solved_by: Action
) -> Sequence[SourceEvent]:
    """The events between the last attempt that failed and the one that went through."""
    return events[places[failed.last.event_id] + 1 : places[solved_by.first.event_id]]


def _lesson(incident: Incident, solved_by: Action, between: Sequence[SourceEvent]) -> Lesson:
    failed = incident.failed[-1]
    changed = changes_of(incident.failed, solved_by)[:MAX_DIFFERENCES]
    sources = [_source_of(change, between) for change in changed]
    helping = list(_helping(failed, between))
    helped_by = dict.fromkeys(event.event_id for event in (*filter(None, sources), *helping))
    error = cut(_line(body_of(failed.last)), ERROR_CHARACTERS)
    told = f"{failed.name} failed: {error}" if error else f"{failed.name} failed"
    return Lesson(
        tool=cut(failed.name, NAME_CHARACTERS),
        error=error,
        attempts=len(incident.failed),
        failed_event_ids=failed.event_ids,
        solved_event_ids=solved_by.event_ids,
        differences=tuple(
            _difference(change, source) for change, source in zip(changed, sources, strict=True)
        ),
        helped_by=tuple(helped_by)[:MAX_HELPING],
        text=cut(
            _line(
                f"{told.rstrip('.')}; {solution(incident.failed, solved_by, between, helped=True)}"
            ),
            LESSON_CHARACTERS,
        ),
    )


def _difference(change: Changed, source: SourceEvent | None) -> Difference:
    return Difference(
        name=cut(change.name, ARGUMENT_CHARACTERS),
        before=_value(change.before, VALUE_CHARACTERS),
        after=_value(change.after, VALUE_CHARACTERS),
        source_event_id=None if source is None else source.event_id,
    )


def _source_of(change: Changed, between: Sequence[SourceEvent]) -> SourceEvent | None:
    """Where the value came from that it went through with: who said it first in between."""
    value = change.after
    if value is None or len(value) < _SHORTEST:
        return None
    return next(
        (
            event
            for event in between
            if value in event.text and event.kind is not EventKind.CALL and not is_failure(event)
        ),
        None,
    )


def _helping(failed: Action, between: Iterable[SourceEvent]) -> Iterator[SourceEvent]:
    """What was done in between, and succeeded: uses of other tools, and what else happened."""
    for event in between:
        done = (is_tool_result(event) and event.tool_name != failed.name) or happened(event)
        if done and event.kind is not EventKind.THOUGHT and not is_failure(event):
            yield event


def solution(
    attempts: Sequence[Action],
    solved_by: Action,
    between: Sequence[SourceEvent],
    *,
    helped: bool = False,
) -> str:
    """In words, what was different when it went through.

    Args:
        attempts: that failed, in their order, at least one.
        solved_by: the one that went through, or what says that it was resolved.
        between: the events between the last of them and it.
        helped: also what those say that helped.
    """
    failed = attempts[-1]
    if solved_by.name != failed.name:
        body = body_of(solved_by.last)
        return f"then {solved_by.name}: {body}" if body else f"then {solved_by.name}"
    after = _after(failed, between, helped=helped)
    changed = changes_of(attempts, solved_by)
    if changed:
        different = f"went through {listed([_told(change) for change in changed[:_MAX_TOLD]])}"
        return f"{different}, {after}" if after and helped else different
    if after:
        return f"went through {after}"
    same = failed.call is not None and solved_by.call is not None and failed.call.text
    return "went through when tried again" if same else "went through later"


def _told(change: Changed) -> str:
    """A difference as it is told after `went through`."""
    before, after = (_value(value, _TOLD_CHARACTERS) for value in (change.before, change.after))
    if after is None:
        return f"without {change.name} {before}"
    if before is None:
        return f"with {change.name} {after} added"
    return f"with {change.name} {after} instead of {before}"


def _after(failed: Action, between: Sequence[SourceEvent], *, helped: bool) -> str:
    helping = list(_helping(failed, between))
    names = dict.fromkeys(event.tool_name or event.event_type for event in helping)
    if not names:
        return ""
    after = f"after {listed(list(names)[:_MAX_NAMED])}"
    words = body_of(helping[-1])
    return f"{after}: {cut(words, _HELP_CHARACTERS)}" if helped and words else after


def listed(names: Sequence[str]) -> str:
    """Names as they are told: `a, b and c`."""
    return " and ".join([*([", ".join(names[:-1])] if len(names) > 1 else []), *names[-1:]])


def _value(value: str | None, characters: int) -> str | None:
    return None if value is None else cut(_line(value), characters) or '""'


def _line(text: str) -> str:
    return " ".join(text.split())
