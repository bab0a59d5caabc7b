"""Who did what an event tells of, where its record does not say so by a name of a field. Pure.

1. What was handed over is in the hands of whom it was handed to.
2. What was refused at first was let through by the one person whom the record of that names in any
   field: its number or code is what the call that went through was given.
3. What an agent changed is what a person had asked for in whose words the new value stands: both
   are told.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from api.record_fields import (
    Field,
    Shown,
    fields_of,
    has_identifier,
    occurred_at,
    outcomes_of,
    said_by,
)
from api.record_history import FLAGS, has_failed
from api.record_reading import Value, of_its_session
from api.retrieval.plan import Plan
from api.schemas import Node
from api.spoken_answers import is_said
from enrichment.act_names import is_reader
from enrichment.event_kinds import EventKind

_GAVE: Final = re.compile(
    r"(?<!\w)(?:(?:who|which\s+\w+)\s+(?:has\s+|had\s+)?(?:handed|passed|gave|given|transferred|"
    r"escalated)|(?:hand(?:ed|ing)|pass(?:ed|ing))\s+(?:\S+\s+){0,6}?by\s+who\w*|had\s+it\s+(?:at\s+)?first|"
    r"(?:at\s+first|initially|originally|before))(?!\w)",
    re.IGNORECASE,
)
"""Who had it before is asked."""
_OF_AGENTS: Final = re.compile(r"(?<!\w)(?:agents?|bots?|assistants?|tools?)(?!\w)", re.IGNORECASE)
_LOGIN: Final = re.compile(
    r"[^\W\d_]+(?:[._-][^\W\d_]+)+\d{0,3}|"
    r"[^\W\d_a-z][^\W\d_]+(?:\s[^\W\d_a-z][\w.'\u2019-]*)+"
)
"""What nothing but a person is called: `marta.oss`, "Marta Oss"."""
_CODE: Final = re.compile(r"(?=.*\d)\S{4,}")
_SHORT: Final = 3
_SET_TO: Final = frozenset(("to", "value", "new"))
"""Ends the name of a field that says what something is since."""


def told_by_deed(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who did what the first event tells of; None: nothing of the kind is told."""
    head = shown.events.get(evidence[0]) if evidence else None
    if head is None or is_said(head) or has_failed(head):
        return None
    return (
        _handed_over(plan, head, shown)
        or _let_through(head, shown)
        or _wanted(plan, head, evidence, shown)
    )


def _handed_over(plan: Plan, head: Node, shown: Shown) -> Value | None:
    if head.attributes.get("tool_name") or _GAVE.search(plan.timeless) is not None:
        return None
    taker = handed_to(head, shown)
    return Value(taker, [head.node_id]) if taker else None


def handed_to(node: Node, shown: Shown) -> str | None:
    """Whom an agent handed something to, as its record says from whom to whom; None: of no such."""
    values = {field.words: field.value for field in fields_of(node, shown)}
    giver = values.get(("from",))
    return values.get(("to",)) if giver and giver == node.provenance.agent_id else None


def _let_through(head: Node, shown: Shown) -> Value | None:
    """By whom a call was let through that was refused before, as the record of that says."""
    record = outcomes_of(shown.events).get(head.node_id, head)
    if record.attributes.get("kind") != EventKind.RESULT or has_failed(record):
        return None
    fields = fields_of(record, shown)
    named = {one.value for one in fields if _LOGIN.fullmatch(one.value)}
    codes = {one.value for one in fields if _CODE.fullmatch(one.value)} - named
    given = {
        field.value for call in _calls_behind(record, shown) for field in fields_of(call, shown)
    }
    if len(named) != 1 or codes.isdisjoint(given):
        return None
    return Value(named.pop(), [record.node_id])


def _calls_behind(record: Node, shown: Shown) -> Iterator[Node]:
    """The later calls of the session of a record, of another tool that had been refused before."""
    session = of_its_session([record.node_id], shown)
    refused = {
        node.attributes.get("tool_name")
        for node in session
        if has_failed(node) and occurred_at(node) < occurred_at(record)
    }
    for node in session:
        tool = node.attributes.get("tool_name")
        is_later = occurred_at(node) > occurred_at(record)
        if node.attributes.get("kind") == EventKind.CALL and is_later and tool in refused:
            yield node


def _wanted(plan: Plan, head: Node, evidence: list[str], shown: Shown) -> Value | None:
    """Who asked for a change, in whose words its new value stands, and who made it."""
    tool, question = head.attributes.get("tool_name"), plan.timeless.lower()
    if (tool and is_reader(tool)) or _OF_AGENTS.search(question):
        return None
    values = [one.value.lower() for one in fields_of(head, shown) if _is_new(one, question)]
    session = (node for node in of_its_session([head.node_id], shown) if is_said(node))
    before = [node for node in session if occurred_at(node) < occurred_at(head)]
    for node in sorted(before, key=occurred_at, reverse=True) if values else ():
        person, text = node.attributes.get("speaker"), said_by(node, shown).lower()
        if not any(has_identifier(one, text) for one in values):
            continue
        agent = head.provenance.agent_id
        if person and agent and person != agent:
            proofs = dict.fromkeys((head.node_id, *evidence, node.node_id))
            return Value(f"{person}, through {agent}", [*proofs])
    return None


def _is_new(field: Field, question: str) -> bool:
    """Whether a value is what something was changed to, and not what a question calls it by."""
    value = field.value.lower()
    tells = value not in FLAGS and len(value) >= _SHORT and field.words != ("from",)
    is_change = bool(field.former) or field.words[-1] in _SET_TO
    return tells and (is_change or not has_identifier(value, question))
