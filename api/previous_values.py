"""What something was set to before: by a sentence that says so, or by an earlier record. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from api.record_fields import Field, Shown, fields_of, said_by
from api.schemas import Node
from enrichment.event_kinds import FAILED
from enrichment.stems import telling_stems_of
from enrichment.vocabulary import word_set

_FROM_TO: Final = re.compile(
    r"(?<!\w)from\s+(?P<old>\S+(?:\s\S+){0,3}?)\s+to\s+(?P<new>\S+(?:\s\S+){0,3}?)(?=[\s.,;:!?)]|$)",
    re.IGNORECASE,
)
_PREVIOUS: Final = word_set("previous old former prior before original earlier")
"""Stand in the name of a field that says what something was before."""
_LOOKED_AT: Final = 10
"""Events at the head of an answer that may tell."""


def previous_value(current: Field, question: str, shown: Shown) -> Field | None:
    """What stood where a value stands now; None: nothing tells.

    Args:
        current: the field that says what it is now.
        question: that asks for it.
        shown: what is shown.
    """
    events = [*islice(shown.events.values(), _LOOKED_AT)]
    beside = next((node for node in events if node.node_id == current.node_id), None)
    if beside is None:
        return None
    return (
        _called_previous(current, _fields_with_call(beside, shown))
        or _in_a_sentence(current, question, events, shown)
        or _in_a_record(current, beside, events, shown)
    )


def _called_previous(current: Field, fields: Iterable[Field]) -> Field | None:
    """`previous_rent: 1450` stands beside `rent: 1510`."""
    for field in fields:
        words = set(field.words)
        if words & _PREVIOUS and words - _PREVIOUS <= {*current.words}:
            return field if field.value != current.value else None
    return None


def _in_a_sentence(
    current: Field, question: str, events: Iterable[Node], shown: Shown
) -> Field | None:
    """What a sentence says, as "the rent goes from 1450 to 1510" does where it is 1510 now."""
    asked_for = telling_stems_of(question)
    for node in events:
        text = said_by(node, shown)
        for match in _FROM_TO.finditer(text):
            told = match["old"], match["new"].rstrip(".,;:!?)")
            if told[1].lower() == current.value.lower() and asked_for & telling_stems_of(text):
                return current._replace(node_id=node.node_id, value=told[0])
    return None


def _in_a_record(
    current: Field, record: Node, events: Iterable[Node], shown: Shown
) -> Field | None:
    """The newest earlier record of the same thing in which that field says something else."""
    same = {(field.words, field.value) for field in _fields_with_call(record, shown)}
    since = record.provenance.occurred_at or ""
    best: tuple[str, Field] | None = None
    for node in events:
        at = node.provenance.occurred_at or ""
        if at >= since or node.attributes.get("status") in FAILED or (best and at <= best[0]):
            continue
        fields = _fields_with_call(node, shown)
        is_of_it = any((field.words, field.value) in same for field in fields) or (
            len(fields) == 1 and _tool(node) == _tool(record)
        )
        other = (f for f in fields if f.words == current.words and f.value != current.value)
        if is_of_it and (older := next(other, None)) is not None:
            best = at, older
    return None if best is None else best[1]


def _fields_with_call(node: Node, shown: Shown) -> list[Field]:
    """The fields of an event, and of the call that it is the outcome of."""
    return [field for one in _with_call(node, shown) for field in fields_of(one, shown)]


def _with_call(node: Node, shown: Shown) -> Iterator[Node]:
    yield node
    call = shown.events.get(node.attributes.get("parent_event_id") or "")
    if call is not None and _tool(call) == _tool(node):
        yield call


def _tool(node: Node) -> str | None:
    name: str | None = node.attributes.get("tool_name")
    return name
