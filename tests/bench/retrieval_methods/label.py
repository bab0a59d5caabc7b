"""Questions over tau-bench conversations and what answers them, by the data's own structure.

Nothing here imports from `api`, `enrichment` or `pipelines`: what an answer is follows from roles,
call ids, the order of messages and ids in arguments and results, never from how it is found.

An *action* is a tool call that changes something (book, cancel, update, send, transfer). Its
*thing* is the reservation it names, where it names one. The same task is tried several times, so
an action on a thing may stand in several conversations of one customer; they count as one subject.

- why: "Why did the agent cancel reservation X?" What led to the action: the customer's last words
  before it, the customer's first words that name X, the last result before it that holds X.
- when: "What happened right before (after) the agent cancelled reservation X?" The two messages
  next to the action on that side (a call's own result counts as after).
- what: "What are the details of reservation X?" Every result that is the record of X. "What is in
  the profile of customer U?" Every result that is the record of U.
- related: "Find events similar to the cancellation of reservation X." Calls of the same tool on X
  in the customer's other conversations, and their results.

A question is asked in the conversation of its first action; what that action is, is left out of
what counts as right or wrong, except for `what`.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Place = tuple[int, int]
"""(conversation, message)."""

ACTIONS: Mapping[str, tuple[str, str, str]] = {
    "cancel_reservation": ("cancel", "cancelled", "cancellation"),
    "book_reservation": ("book a flight", "booked a flight", "booking"),
    "update_reservation_flights": ("change the flights of", "changed the flights of", "change"),
    "update_reservation_baggages": ("change the bags of", "changed the bags of", "change of bags"),
    "update_reservation_passengers": (
        "change the passengers of",
        "changed the passengers of",
        "change of passengers",
    ),
    "send_certificate": ("send a certificate to", "sent a certificate to", "certificate"),
    "transfer_to_human_agents": (
        "transfer the customer to a human",
        "transferred the customer to a human",
        "transfer to a human",
    ),
}
"""Tool → base form, past form, noun."""
INTENTS = ("why", "when", "what", "related")
WHEN_REACH = 2


class Question(NamedTuple):
    """A labelled question.

    Attributes:
        conversation: in which it is asked.
        gold: places of what answers it.
        ignored: places that are neither right nor wrong.
    """

    intent: str
    text: str
    conversation: int
    gold: frozenset[Place]
    ignored: frozenset[Place]


class _Action(NamedTuple):
    place: Place
    tool: str
    thing: str | None
    user: str


def _calls(message: Mapping[str, Any]) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """(call id, tool, arguments) of each call of a message."""
    for call in message.get("tool_calls") or ():
        try:
            arguments = json.loads(call["function"]["arguments"])
        except ValueError:
            arguments = {}
        yield call.get("id", ""), call["function"]["name"], arguments


def _record(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a tool returned, as an object; empty for anything else."""
    if message["role"] != "tool":
        return {}
    try:
        value = json.loads(message.get("content") or "")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _user(conversation: Mapping[str, Any]) -> str:
    return str(conversation["info"]["task"]["user_id"])


def actions(conversations: Sequence[Mapping[str, Any]]) -> list[_Action]:
    """All actions, in order."""
    found = []
    for number, conversation in enumerate(conversations):
        for index, message in enumerate(conversation["traj"]):
            for _, tool, arguments in _calls(message):
                if tool in ACTIONS:
                    thing = arguments.get("reservation_id")
                    found.append(_Action((number, index), tool, thing, _user(conversation)))
    return found


def _result_of(messages: Sequence[Mapping[str, Any]], index: int) -> int | None:
    """The place of the result of the call at `index`: the tool message that follows."""
    following = index + 1
    if following < len(messages) and messages[following]["role"] == "tool":
        return following
    return None


def _subject(action: _Action) -> tuple[str, str | None, str]:
    return action.tool, action.thing, action.user


def questions(conversations: Sequence[Mapping[str, Any]]) -> list[Question]:
    """Every question that the conversations allow, sorted."""
    groups: dict[tuple[str, str | None, str], list[_Action]] = {}
    for action in actions(conversations):
        groups.setdefault(_subject(action), []).append(action)
    found: list[Question] = []
    for group in groups.values():
        found += [_why(conversations, group), *_when(conversations, group)]
        found += _related(conversations, group)
    found += _records(conversations)
    kept = [question for question in found if question.gold]
    return sorted(kept, key=lambda q: (INTENTS.index(q.intent), q.conversation, q.text))


def sampled(
    conversations: Sequence[Mapping[str, Any]], per_intent: int, seed: int = 1
) -> list[Question]:
    """So many questions of each intent, the same ones for the same seed."""
    chosen = random.Random(seed)
    found = []
    for intent in INTENTS:
        known = [question for question in questions(conversations) if question.intent == intent]
        found += sorted(chosen.sample(known, min(per_intent, len(known))))
    return found


def _of(action: _Action) -> str:
    return f" reservation {action.thing}" if action.thing else ""


def _marked(
    conversations: Sequence[Mapping[str, Any]], group: Sequence[_Action]
) -> frozenset[Place]:
    """The actions themselves and their results."""
    places = set()
    for action in group:
        number, index = action.place
        places.add(action.place)
        result = _result_of(conversations[number]["traj"], index)
        if result is not None:
            places.add((number, result))
    return frozenset(places)


def _why(conversations: Sequence[Mapping[str, Any]], group: Sequence[_Action]) -> Question:
    gold: set[Place] = set()
    for action in group:
        number, index = action.place
        before = list(enumerate(conversations[number]["traj"]))[:index]
        said = [at for at, message in before if message["role"] == "user"]
        gold |= {(number, at) for at in said[-1:]}
        if action.thing:
            named = [at for at in said if action.thing in str(before[at][1].get("content"))]
            shown = [
                at
                for at, message in before
                if message["role"] == "tool" and action.thing in str(message.get("content"))
            ]
            gold |= {(number, at) for at in (*named[:1], *shown[-1:])}
    base = ACTIONS[group[0].tool][0]
    return Question(
        "why",
        f"Why did the agent {base}{_of(group[0])}?",
        group[0].place[0],
        frozenset(gold),
        _marked(conversations, group),
    )


def _when(
    conversations: Sequence[Mapping[str, Any]], group: Sequence[_Action]
) -> Iterator[Question]:
    past = ACTIONS[group[0].tool][1]
    own = frozenset(action.place for action in group)
    for side, step in (("before", -1), ("after", 1)):
        gold = set()
        for number, index in own:
            messages = conversations[number]["traj"]
            for distance in range(1, WHEN_REACH + 1):
                at = index + step * distance
                if 0 <= at < len(messages) and messages[at]["role"] != "system":
                    gold.add((number, at))
        yield Question(
            "when",
            f"What happened right {side} the agent {past}{_of(group[0])}?",
            group[0].place[0],
            frozenset(gold),
            own,
        )


def _related(
    conversations: Sequence[Mapping[str, Any]], group: Sequence[_Action]
) -> Iterator[Question]:
    first, *others = group
    elsewhere = [action for action in others if action.place[0] != first.place[0]]
    if elsewhere and first.thing:
        yield Question(
            "related",
            f"Find events similar to the {ACTIONS[first.tool][2]} of reservation {first.thing}",
            first.place[0],
            _marked(conversations, elsewhere),
            _marked(conversations, [first]),
        )


def _records(conversations: Sequence[Mapping[str, Any]]) -> Iterator[Question]:
    reservations: dict[tuple[str, str], list[Place]] = {}
    profiles: dict[str, list[Place]] = {}
    for number, conversation in enumerate(conversations):
        tools: dict[str, str] = {}
        for index, message in enumerate(conversation["traj"]):
            for call_id, tool, _ in _calls(message):
                tools[call_id] = tool
            record = _record(message)
            user = _user(conversation)
            if "reservation_id" in record:
                key = (str(record["reservation_id"]), user)
                reservations.setdefault(key, []).append((number, index))
            elif tools.get(message.get("tool_call_id") or "") == "get_user_details" and record:
                profiles.setdefault(user, []).append((number, index))
    for (own_id, _), places in reservations.items():
        text = f"What are the details of reservation {own_id}?"
        yield Question("what", text, places[0][0], frozenset(places), frozenset())
    for user, places in profiles.items():
        text = f"What is in the profile of customer {user}?"
        yield Question("what", text, places[0][0], frozenset(places), frozenset())
