"""Ground truth of value flow in tau-bench conversations, made without the rule under test.

Nothing here imports from `enrichment` or `pipelines`: values are found by searching the text of
messages for the arguments of calls, where the rule takes values out of texts by their form.

Definition. A *use* is a value in the arguments of a tool call:

- a leaf of the arguments (string or number) as a whole, when it has no spaces;
- of a leaf with spaces (an expression, a thought, a summary) each part that holds a digit and
  each code in capitals (HATHAT, JFK).

A message *mentions* a value when its text holds it with no letter, digit or underscore on either
side; letter case matters for letters only (LAS is not in "Las Vegas"); a number also when written
with a trailing `.0`, or with commas between thousands. Text of a message: its content, and its
tool calls with their arguments.

The *origin* of a use is the first message of the conversation that mentions the value. If that
message is a tool's result or the user's, the use has a *source*, that message. If it is the
assistant's, in words or in the arguments of a call, the assistant brought the value up itself
(New York to JFK) and a result that echoes it is no source. If it is the system's, the value is
part of the instructions. Neither has a source.

*Trivial* uses are not labelled, whatever their origin: true, false, null; numbers below 100;
dates, months with a day, times of day and years; strings in lower-case letters, spaces, hyphens
and underscores only (economy, round_trip, yes); parts of fewer than three characters.

`lenient` drops the condition on who came first: any earlier result or user message that mentions
the value is a source, the first of them the first source.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

Message = Mapping[str, Any]

_DATE_OR_TIME = re.compile(
    r"""(?ix) (?: \d{4}-\d{1,2}(-\d{1,2})? | \d{1,2}/\d{1,2}(/\d{2,4})? )
              (?: [T ]? \d{1,2}:\d{2}(:\d{2})? )? Z?
          | \d{1,2}:\d{2}(:\d{2})?(\+\d)? (am|pm)?
          | \d{1,2} (st|nd|rd|th|am|pm|h|hrs?|hours?|days?)
          | (19|20)\d\d"""
)
_LOWER_CASE = re.compile(r"[a-z _-]*")
NUMBER = re.compile(r"-?\d+(\.\d+)?")
_PART = re.compile(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|[A-Za-z0-9_@./:-]+")
_CODE = re.compile(r"[A-Z]{3,}")
SOURCES = ("tool", "user")


class Use(NamedTuple):
    """A value in the arguments of a call.

    Attributes:
        call: place of the message that makes the call.
        argument: where in the arguments (`flights[].flight_number`).
        value: as in the arguments; a part of it when the argument has spaces.
    """

    call: int
    argument: str
    value: str


class Label(NamedTuple):
    """What is true of a use.

    Attributes:
        use: the use.
        source: place of the message the value comes from; None: from no result and no user.
        lenient: places of all earlier results and user messages that mention the value.
    """

    use: Use
    source: int | None
    lenient: tuple[int, ...]


def labels(messages: Sequence[Message]) -> list[Label]:
    """The labels of a conversation, in its order."""
    texts = [message_text(message) for message in messages]
    found = []
    for use in uses(messages):
        if trivial(use.value):
            continue
        places = mentions(use.value, texts[: use.call])
        origin = places[0] if places else None
        source = origin if origin is not None and is_source(messages[origin]) else None
        lenient = tuple(place for place in places if is_source(messages[place]))
        found.append(Label(use, source, lenient))
    return found


def is_source(message: Message) -> bool:
    """Whether the message is a tool's result or the user's."""
    return message["role"] in SOURCES


def uses(messages: Sequence[Message]) -> Iterator[Use]:
    """Every value in the arguments of calls, trivial ones too, each once for a call."""
    for place, message in enumerate(messages):
        seen = set()
        for call in message.get("tool_calls") or ():
            for argument, leaf in leaves(json.loads(call["function"]["arguments"])):
                for value in parts(leaf):
                    use = Use(place, argument, value)
                    if use not in seen:
                        seen.add(use)
                        yield use


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, scalar) of each leaf of an object."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from leaves(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list):
        for inner in value:
            yield from leaves(inner, f"{name}[]")
    else:
        yield name, value


def parts(leaf: Any) -> Iterator[str]:
    """The values of a leaf."""
    if isinstance(leaf, bool) or leaf is None:
        return
    text = str(leaf)
    if len(text.split()) == 1:
        yield text.strip()
        return
    for match in _PART.finditer(text):
        part = match[0].replace(",", "").strip("./:-")
        if any(character.isdigit() for character in part) or _CODE.fullmatch(part):
            yield part


def trivial(value: str) -> bool:
    """Whether a value says nothing by itself; see the definition."""
    if len(value) < 3 or _LOWER_CASE.fullmatch(value) or _DATE_OR_TIME.fullmatch(value):
        return True
    return NUMBER.fullmatch(value) is not None and abs(float(value)) < 100


def mentions(value: str, texts: Sequence[str], *, any_case: bool = False) -> list[int]:
    """Places of the texts that mention a value; `any_case` also of words."""
    pattern = mention_pattern(value, any_case=any_case)
    return [place for place, text in enumerate(texts) if pattern.search(text)]


def mention_pattern(value: str, *, any_case: bool = False) -> re.Pattern[str]:
    """What to search a text for."""
    if NUMBER.fullmatch(value):
        number = float(value)
        whole = f"{abs(number):,.10f}".rstrip("0").rstrip(".")
        plain = whole.replace(",", "")
        choices = "|".join(re.escape(text) for text in {whole, plain})
        # not inside a longer number: 250 is neither in 1,250 nor in 250.75
        return re.compile(rf"(?<![\w.,])(?:{choices})(?:\.0+)?(?!\w|[.,]\d)")
    case = 0 if value.isalpha() and not any_case else re.IGNORECASE
    return re.compile(rf"(?<!\w){re.escape(value)}(?!\w)", case)


def message_text(message: Message) -> str:
    """What a message says, and what it asks of tools."""
    said = message.get("content") or ""
    asked = [call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return "\n".join([said if isinstance(said, str) else json.dumps(said), *asked])
