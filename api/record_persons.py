"""Who did something, as the records of an answer and what people said tell it. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice
from operator import itemgetter
from typing import Final

from api.deed_persons import handed_to, told_by_deed
from api.record_fields import (
    Field,
    Shown,
    fields_of,
    holding,
    identifiers_in,
    is_echo,
    occurred_at,
    outcomes_of,
    said_by,
    words_of,
)
from api.record_history import has_failed, settled
from api.record_reading import (
    BY,
    FIRST_EVENTS,
    WHOEVER,
    Value,
    of_its_session,
    of_what,
    with_outcome,
    with_outcomes,
)
from api.retrieval.plan import Plan
from api.retrieval.story_terms import GIVING_LEAVE
from api.schemas import Node
from api.spoken_answers import is_said
from enrichment.act_names import is_reader
from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in, stems_of, telling_stems_of, words_in
from enrichment.vocabulary import STOP_WORDS, word_set

_NAMED: Final = re.compile(r"(?=.*[^\W\d_]).{1,80}", re.DOTALL)


def who(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who, as `approved_by: Marta Oss` says more of who approved than whose call it was."""
    if (told := told_by_deed(plan, evidence, shown)) is not None:
        return told
    named = of_what(plan, evidence, shown, marks=BY, form=_NAMED)
    if named is not None:
        return Value(named.value, [named.node_id, *evidence])
    return (
        _said_by_a_person(plan, shown)
        or _by_role(plan, evidence, shown)
        or _on_duty(plan, shown)
        or _handed_to(plan, evidence, shown)
        or _agreed(plan, evidence, shown)
        or _which_agent(plan, shown)
    )


_STATES: Final = word_set("state status decision outcome result verdict")

_CARES: Final = re.compile(
    r"(?<!\w)(?:work(?:s|ing)?\s+on|responsible|in\s+charge|handl(?:es|ing)|tak(?:es|ing)\s+care|"
    r"look(?:s|ing)\s+after|deal(?:s|ing)\s+with|on\s+call|belongs?(?:\s+to)?|"
    r"(?:is|was)\s+\S+(?:\s+\S+)?\s+(?:assigned|issued|lent|given\s+out)(?:\s+(?:out|to))*\W*$)(?!\w)",
    re.IGNORECASE,
)

_CARING: Final = word_set("assignee assigned owner responsible handler")
"""Stand in the name of a field that says who has something in hand."""


_ANSWERS: Final = (
    (
        re.compile(
            r"(?<!\w)(?:turn(?:ed|s|ing)?\s+(?:\S+\s+)?down|sa(?:id|ys?)\s+no|refus\w+|reject\w+|"
            r"declin\w+|den(?:y|ied)|veto\w*|forb\w+|disapprov\w+)(?!\w)",
            re.IGNORECASE,
        ),
        word_set("refused rejected declined denied vetoed disapproved forbidden refuse reject no"),
    ),
    (
        re.compile(
            r"(?<!\w)(?:approv\w+|sa(?:id|ys?)\s+(?:yes|ok(?:ay)?)|sign(?:ed)?\s+(?:\S+\s+)?off|"
            rf"{GIVING_LEAVE.pattern}|"
            r"allow\w*|permit\w*|authori[sz]\w+|agreed|granted|ok(?:ay)?(?:ed|'d)|green-?lit)(?!\w)",
            re.IGNORECASE,
        ),
        word_set("approved granted authorised authorized accepted agreed permitted approve yes"),
    ),
)
"""How a question calls an answer that somebody gave, and how records do."""


_NUMBER_NAME: Final = re.compile(r"(?<![\w.])\d+(?:\.\d+)+(?![\w.]*\w)")
"""A version names what an answer is about, as an identifier does."""


def _by_role(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who, by a record of what is asked about which names one person.

    Where its state is what the question says was done (`state: declined`, `decided_by`), or where
    the question asks who has it in hand.
    """
    identifiers = identifiers_in(plan.timeless)
    first = [] if identifiers else with_outcome(evidence, shown)
    states = [states for asked, states in _ANSWERS if asked.search(plan.timeless)]
    beside = of_its_session(evidence, shown) if states and not identifiers else []
    named = identifiers or (_NUMBER_NAME.findall(plan.timeless) if states else [])
    held = with_outcomes(holding(named, shown), outcomes_of(shown.events))
    for node in (*held, *first, *beside):
        fields = [] if has_failed(node) else fields_of(node, shown)
        if _CARES.search(plan.timeless):
            who = [
                field
                for field in fields
                if not _CARING.isdisjoint((*field.words, *_of_its_record(field)))
            ]
        elif any(_is_state_asked(field, plan, states) for field in fields):
            who = [field for field in fields if field.words[-1] in BY and field.words != ("to",)]
        else:
            continue
        if len({field.value for field in who}) == 1 and _NAMED.fullmatch(who[0].value):
            return Value(who[0].value, [node.node_id, *evidence])
    return _said_of_somebody(plan, beside, shown)


def _said_of_somebody(plan: Plan, beside: Iterable[Node], shown: Shown) -> Value | None:
    """Who gave the answer that is asked for, as somebody tells it: "Ines said no"."""
    question = stems_of(plan.timeless)
    for pattern in [asked for asked, _ in _ANSWERS if asked.search(plan.timeless)]:
        for node in beside:
            if not is_said(node):
                continue
            match = _ANSWERED.search(words_of(node, shown))
            if match is None or pattern.search(match[0]) is None:
                continue
            if _NO_NAMES.union(question).isdisjoint(stems_of(match["name"])):
                return Value(match["name"], [node.node_id])
    return None


_NO_NAMES: Final = word_set("i he she they we you it nobody somebody who everybody the a this that")
_ANSWERED: Final = re.compile(
    r"(?<!\w)(?P<name>[^\W\d_a-z]\w+(?:\s[^\W\d_a-z]\w+)?)\s+(?:has\s+)?"
    r"(?:said\s+(?:no|yes)|turned\s+(?:\S+\s+)?down|(?:refus|approv|agre|veto|declin|reject|allow|"
    r"permitt|authoris|authoriz|deni)e?e?d|signed\s+(?:\S+\s+)?off|gave\s+(?:\S+\s+){0,2}?"
    r"(?:ok|OK|okay|go-?ahead|nod|permission|approval))(?!\w)"
)
"""How somebody tells that somebody else answered a wish."""


def _is_state_asked(field: Field, plan: Plan, states: list[frozenset[str]]) -> bool:
    """Whether a field says that it was decided as the question says: declined is turned down."""
    if not _STATES.issuperset(field.words):
        return False
    return is_echo(field, plan.timeless) or any(field.value.lower() in one for one in states)


_WHO_IS_NOW: Final = re.compile(r"^\W*(?:and\s+)?who(?:\s+is|['\u2019]?s)\s", re.IGNORECASE)
_NOW: Final = word_set("now current currently present")


def _on_duty(plan: Plan, shown: Shown) -> Value | None:
    """Who is it now, by the newest record with a field that the question names: `on_call_now`."""
    if _WHO_IS_NOW.match(plan.timeless) is None:
        return None
    words = {*words_in(plan.timeless.lower().replace("-", " "))}
    named = [
        (occurred_at(node), field.value, node.node_id)
        for node in settled(shown)
        for field in fields_of(node, shown)
        if words.issuperset(role := {*field.words} - _NOW)
        and not role <= STOP_WORDS
        and len(role) > 1
        and _CALLED.fullmatch(field.value)
    ]
    if not named:
        return None
    _, value, node_id = max(named)
    return Value(value, [node_id])


_WHICH_AGENT: Final = re.compile(
    r"^\W*(?:and\s+)?(?:which|what)\s+(?:agent|bot|assistant)\s", re.IGNORECASE
)


def _which_agent(plan: Plan, shown: Shown) -> Value | None:
    """The agent whose act has all numbers that are asked for: "which agent set it to 12"."""
    numbers = {word for word in words_in(plan.timeless.lower()) if any(map(str.isdigit, word))}
    if not numbers or _WHICH_AGENT.match(plan.timeless) is None:
        return None
    topic = telling_stems_of(plan.timeless)
    acts: list[tuple[int, Node]] = []
    for node in settled(shown):
        tool = node.attributes.get("tool_name")
        values = {field.value.lower() for field in fields_of(node, shown)}
        if tool and not is_reader(tool) and numbers <= values:
            acts.append((len(topic & stems_of(said_by(node, shown))), node))
    best = max(acts, key=itemgetter(0), default=None)
    return best and Value(best[1].provenance.agent_id, [best[1].node_id])


_HANDED: Final = re.compile(
    r"(?<!\w)(?:hand(?:ed|over|ing)?|pass(?:ed|ing)?|gave|given|gives?|transferred|escalated|took|"
    r"taken|takes|picked|landed?|ended|saw|dealt|finish(?:ed)?|clos(?:ed|es)|charge|first\s+agent|got|"
    r"hold(?:s|ing)?|sit(?:s|ting)?|has\s+(?:it|this|that)|who(?:['\u2019]?s|\s+is)\s+on(?=\s))(?!\w)",
    re.IGNORECASE,
)
_HANDING: Final = re.compile(
    r"(?<!\w)who\s+(?:has\s+|had\s+)?(?:handed|passed|gave|given|transferred|escalated)(?!\w)",
    re.IGNORECASE,
)


_HANDED_OVER: Final = re.compile(
    r"(?<!\w)who\s+(?:has\s+|had\s+)?(?:handed|passed|transferred|escalated)\s.*(?<!\w)(?:over|on|to)"
    r"(?!\w)",
    re.IGNORECASE,
)
_I_HANDED: Final = re.compile(
    r"^\W*(?:I(?:['\u2019]ve|\s+have)?\s+)?(?:handed|passed|transferred|escalated)\s+"
    r"(?:\S+\s+){0,5}?to(?!\w)",
    re.IGNORECASE,
)
"""How somebody says that they handed something over."""


def _handed_to(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who got it, by a record in the session of the first event that says from whom to whom.

    Who gave it, where that is asked, is the only one who says so.
    """
    if _HANDED_OVER.search(plan.timeless) is not None:
        return _handed_by(shown)
    if _HANDED.search(plan.timeless) is None or _HANDING.search(plan.timeless) is not None:
        return None
    for node in of_its_session(evidence, shown):
        if node.attributes.get("tool_name"):
            continue
        if taker := handed_to(node, shown):
            return Value(taker, [node.node_id, *evidence])
    return None


def _handed_by(shown: Shown) -> Value | None:
    told = [
        node
        for node in shown.events.values()
        if is_said(node) and _I_HANDED.match(words_of(node, shown))
    ]
    givers = {node.attributes.get("speaker") for node in told}
    return Value(givers.pop(), [told[0].node_id]) if len(givers) == 1 else None


_AGREEING: Final = frozenset(
    stem_in(word)
    for word in word_set(
        "approve authorise authorize sign cosign countersign grant allow permit clear okay waive "
        "release accept agree concur assent endorse consent confirm declare override "
        "vouch sanction certify"
    )
)
"""To say yes to what was refused without it."""

_AGREED: Final = BY | word_set("signatory approver")
_NAMES: Final = word_set("name nick nickname alias login user username account email handle")
_NOBODY: Final = word_set(
    "order number error door server folder letter color carrier container provider parameter "
    "customer user owner member buyer passenger caller reporter author holder"
)
"""Ends as a word for who decides does, and means a thing, or whom it is decided for."""
_CALLED: Final = re.compile(r"(?=.*[^\W\d_]{2})[^\d]{2,60}")
"""A name has no digit."""


_CONSENTS: Final = re.compile(
    r"(?:^|[.!]\s+)\W*(?:approved|agreed|granted|ok(?:ay)?|yes|sure|fine|go\s+ahead|do\s+it|"
    r"signed\s+off|confirmed|authori[sz]ed|permission\s+granted|you\s+have\s+my\s+\w+|"
    r"i\s+(?:approve|agree|allow|confirm))(?!\w)",
    re.IGNORECASE,
)
"""How somebody says yes, at the beginning of what they say."""


def _agreed(plan: Plan, evidence: list[str], shown: Shown) -> Value | None:
    """Who said yes, by what was said between a refusal and what then went through.

    The outcome of another tool, in the session of the first event, names one person: `granted_by`,
    `signatory`, or a role such as `approver`. Or somebody says yes in their own words.
    """
    agreed = stems_of(plan.topic.replace("-", ""))
    if _AGREEING.isdisjoint(agreed) and not _ANSWERS[-1][0].search(plan.timeless):
        return None
    told = of_its_session(evidence, shown)
    refusals = [node for node in told if has_failed(node)]
    refusing = {node.attributes.get("tool_name") for node in refusals}
    since = min((occurred_at(node) for node in refusals), default="")
    for node in told:
        tool = node.attributes.get("tool_name")
        if node.attributes.get("kind") != EventKind.RESULT or tool in refusing or has_failed(node):
            continue
        if occurred_at(node) < since:
            continue  # what was looked up before tells nothing of who said yes
        who = {
            field.value
            for field in fields_of(node, shown)
            if _says_who(field) and _CALLED.fullmatch(field.value)
        }
        if refusing and len(who) == 1:
            return Value(who.pop(), [node.node_id, *evidence])
    return _said_yes(evidence, told, shown)


def _said_yes(evidence: list[str], told: list[Node], shown: Shown) -> Value | None:
    """Who said yes last between the refusal of a call and its success, and is no agent."""
    told = sorted(told, key=occurred_at)
    agents = {
        node.provenance.agent_id for node in told if node.attributes.get("kind") == EventKind.CALL
    }
    refused: set[str] = set()
    yes: Node | None = None
    for node in told:
        kind, tool = (node.attributes.get(name) for name in ("kind", "tool_name"))
        if tool and has_failed(node):
            refused.add(tool)
        elif yes is not None and kind == EventKind.RESULT and tool in refused:
            return Value(yes.attributes.get("speaker"), [yes.node_id, *evidence])
        elif is_said(node) and refused and node.provenance.agent_id not in agents:
            yes = node if _CONSENTS.search(words_of(node, shown)) else yes
    return None


def _of_its_record(field: Field) -> list[str]:
    """Of a field called `name` or the like the last word of what its record is called."""
    within = words_in(field.row[0].lower()) if field.row and field.words[-1] in _NAMES else []
    return within[-1:]


def _says_who(field: Field) -> bool:
    """Whether a field names a person, by its name or by that of the record that it stands in."""
    return any(
        word in _AGREED or (WHOEVER.fullmatch(word) is not None and word not in _NOBODY)
        for word in (field.words[-1], *_of_its_record(field))
    )


def _said_by_a_person(plan: Plan, shown: Shown) -> Value | None:
    """Who did it, by somebody's own words: "I replaced the fan"."""
    verb, *_ = [*plan.topic.split(), ""]
    stems = telling_stems_of(plan.topic)
    for node in islice(shown.events.values(), FIRST_EVENTS):
        text = said_by(node, shown)
        if not is_said(node) or not text or not verb:
            continue
        says = re.search(rf"\b(?:I|[Ww]e)(?:'ve|\s+\w+)?\s+{re.escape(verb)}\b", text)
        if says and stems <= stems_of(text):
            return Value(node.attributes.get("speaker"), [node.node_id])
    return None
