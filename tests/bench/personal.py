"""`python -m tests.bench.personal`: ten tasks of a small agent, with and without `personalize`.

The agent has no language model. For each task it chooses one of two or three ways, and by default
the first. It reads the block that it is given line by line, by fixed rules (`read`): what somebody
wants chooses a way that the line names, what is to be avoided rules it out, and a line with a case
counts if the task has a word of it. It is given nothing; the block that the task as a plain
question gives; the block of intent `personalize`. Printed is which choices respect the wishes.
"""

from __future__ import annotations

import re
import sys
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from tests.bench.small import Edition, own_edition

ARMS: Final[Mapping[str, Mapping[str, Any] | None]] = {
    "no memory": None,
    "plain question": {},
    "personalize": {"intent": "personalize"},
}
MAX_TOKENS: Final = 250
_MONDAY: Final = datetime(2026, 11, 2, 9, 10, tzinfo=UTC)
_CASE: Final = re.compile(r"(?<!\w)(?:when|if|unless)\s+([^,]+)", re.IGNORECASE)
_FORBIDS: Final = re.compile(r"^(?:never|no|do not|don't)\b", re.IGNORECASE)
_SAID: Final = re.compile(r"message\.user: (?P<text>.*)$")
_NOT: Final = re.compile(r"\bnot (?:as |in |by )?$")
_LEAST: Final = 4
"""Letters that a word of a case shares with a word of the task."""


class Task(NamedTuple):
    """Something to do for somebody, the ways to do it, and the way that respects their wishes."""

    user: str
    words: str
    ways: tuple[str, ...]
    right: str


TASKS: Final = (
    Task("mara", "Send Mara the invoice for the lavender.", ("PDF", "plain text"), "plain text"),
    Task("mara", "Call Mara about the hose.", ("in the morning", "afternoon"), "afternoon"),
    Task(
        "mara", "Plan the delivery for Mara, it rains on Monday.", ("Monday", "dry day"), "dry day"
    ),
    Task("mara", "Plan a day for the birches of Mara.", ("Wednesday", "Thursday"), "Thursday"),
    Task("mara", "The juniper for Mara is sold out.", ("refund", "native one"), "native one"),
    Task("mara", "Offer Mara a hedge, we have juniper.", ("juniper", "native one"), "juniper"),
    Task("jon", "Write to Jon that his order is ready.", ("English", "Swedish"), "Swedish"),
    Task("jon", "Send Jon the invoice.", ("plain text", "PDF"), "PDF"),
    Task("jon", "Pack the order of Jon, it is a gift.", ("price tag", "ribbon"), "ribbon"),
    Task("tove", "Send Tove the invoice.", ("PDF", "plain text"), "PDF"),
)
SAID: Final = (
    ("mara", 0, "I prefer invoices as PDF."),
    ("mara", 0, "Never call me in the morning, I sleep late."),
    ("mara", 0, "When it rains, move the delivery to the next dry day."),
    ("mara", 0, "I live in Uppsala."),
    ("mara", 2, "From now on send invoices as plain text, not as PDF."),
    ("mara", 2, "Do not deliver on Wednesdays, the gate is closed."),
    ("mara", 2, "If a plant is sold out, offer me a native one instead."),
    ("mara", 2, "The hose that I bought leaks."),
    ("jon", 1, "Always write to me in Swedish."),
    ("jon", 1, "Never send invoices as plain text."),
    ("jon", 1, "When it is a gift, put a ribbon around the box."),
    ("tove", 1, "I need 30 lavender seedlings for the terrace."),
)
"""Who said what, days after the first Monday."""
TALK: Final = (
    "Where is the invoice for the last order?",
    "The invoice for the lavender came today, thank you.",
    "Did the driver call about the delivery?",
    "The delivery came on Monday, all boxes were there.",
    "It rains here all the time, the birches like that.",
    "Is the juniper in stock again?",
    "My order is complete, the gift was a success.",
    "Can you write to the nursery about the hedge?",
)
"""What everybody says between these, week after week: it has the words of the tasks."""
WEEKS: Final = 6
ORDERS: Final = ("check_stock", "reserve_plants", "plan_delivery")
"""Tools of an order, of which Mara has placed four."""


def events() -> Iterator[dict[str, Any]]:
    """What is recorded before the tasks."""
    for number, (user, day, text) in enumerate(SAID):
        at = _MONDAY + timedelta(days=day, minutes=number)
        yield _event(at, f"talk-{user}-{day}", user, user, type_="message.user", text=text)
    for number in range(WEEKS * len(TALK)):
        user = ("mara", "jon", "tove")[number % 3]
        at = _MONDAY + timedelta(days=number % 12, hours=2, minutes=number)
        talk = TALK[number % len(TALK)]
        yield _event(at, f"chat-{number}", user, user, type_="message.user", text=talk)
    for order in range(4):
        at = _MONDAY + timedelta(days=3 * order + 1)
        session = f"order-{order}"
        text = f"I need {10 + order} lavender seedlings for the terrace."
        yield _event(at, session, "mara", "mara", type_="message.user", text=text)
        for step, tool in enumerate(ORDERS, 1):
            then = at + timedelta(seconds=20 * step)
            arguments: dict[str, Any] = {"arguments": {"plant": "lavender", "count": 10 + order}}
            call = _event(then, session, "desk", "mara", type_="tool.call", tool=tool, **arguments)
            yield call
            worked: dict[str, Any] = {"result": {"state": "done"}, "parent": call["event_id"]}
            then += timedelta(seconds=2)
            yield _event(then, session, "desk", "mara", type_="tool.result", tool=tool, **worked)


def _event(
    at: datetime, session: str, agent: str, user: str, *, type_: str, **more: Any
) -> dict[str, Any]:
    name = f"{at.isoformat()} {session} {agent} {type_} {more.get('tool')}"
    envelope: dict[str, Any] = {
        "event_id": str(uuid.uuid5(uuid.NAMESPACE_URL, name)),
        "event_type": type_,
        "occurred_at": f"{at:%Y-%m-%dT%H:%M:%S}.000Z",
        "session_id": session,
        "agent_id": agent,
        "trace_id": session,
        "user_id": user,
    }
    if type_ == "message.user":
        return {**envelope, "payload": {"role": "user", "content": more["text"]}}
    payload = {name: more[name] for name in ("arguments", "result") if name in more}
    envelope |= {"tool_name": more["tool"], "payload": payload}
    if "parent" in more:
        envelope |= {"parent_event_id": more["parent"], "status": "completed"}
    return envelope


# -- the agent -------------------------------------------------------------------------------------


def chosen(task: Task, block: str) -> str:
    """The way that the agent takes."""
    out: set[str] = set()
    for is_wanted, text in read(block):
        case = _CASE.search(text)
        if case is not None and not _meets(case[1], task.words):
            continue
        for way in task.ways:
            place = text.lower().find(way.lower())
            if place < 0:
                continue
            is_ruled_out = not is_wanted or _NOT.search(text[:place].lower()) is not None
            if is_ruled_out:
                out.add(way)
            elif way not in out:
                return way
    return next((way for way in task.ways if way not in out), task.ways[0])


def read(block: str) -> Iterator[tuple[bool, str]]:
    """What a block says that somebody wants (True) or does not, in its order."""
    for line in block.splitlines():
        text = line.removeprefix("- ").rpartition(" [")[0]
        said = _SAID.search(text)
        if text.startswith("wants: "):
            yield True, text.removeprefix("wants: ")
        elif text.startswith("avoid: "):
            yield False, text.removeprefix("avoid: ")
        elif said is not None:
            yield _FORBIDS.search(said["text"]) is None, said["text"]


def _meets(case: str, words: str) -> bool:
    beginnings = {word[:_LEAST].lower() for word in re.findall(r"\w{4,}", words)}
    return any(word[:_LEAST].lower() in beginnings for word in re.findall(r"\w{4,}", case))


def compared(edition: Edition) -> dict[str, list[str]]:
    """What the agent chooses for each task, by what it is given."""
    choices: dict[str, list[str]] = {}
    for arm, fields in ARMS.items():
        blocks = ("" if fields is None else _block(edition, task, fields) for task in TASKS)
        choices[arm] = [chosen(task, block) for task, block in zip(TASKS, blocks, strict=True)]
    return choices


def _block(edition: Edition, task: Task, fields: Mapping[str, Any]) -> str:
    body = {"user_id": task.user, "max_tokens": MAX_TOKENS, **fields}
    return edition.text(task.words, **body)


def share(choices: Sequence[str]) -> float:
    """Of the tasks that are done as the person wishes."""
    right = sum(way == task.right for way, task in zip(choices, TASKS, strict=True))
    return right / len(TASKS)


def fill(edition: Edition) -> None:
    """Start an edition with all that was recorded, and one pass behind it."""
    edition.fill(events())
    edition.run("consolidate")


def main() -> None:
    with own_edition("personal") as edition:
        fill(edition)
        choices = compared(edition)
    for place, task in enumerate(TASKS):
        told = "  ".join(f"{arm}: {ways[place]}" for arm, ways in choices.items())
        sys.stdout.write(f"{task.words:52} right: {task.right:11} {told}\n")
    for arm, ways in choices.items():
        sys.stdout.write(f"{arm:15} {share(ways):.0%} of {len(TASKS)} tasks as wished\n")


if __name__ == "__main__":
    main()
