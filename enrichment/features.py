"""What the causal rules need to know of one event: a small value, made from the event alone.

The distinctive values of its payload are what can be followed from one event to another. A value is
one string in its normal form, and its form tells its kind:

- identifier: ids, e-mails, URLs, paths, dotted keys (case folded), numbers of six digits and
  more, and codes of five capital letters and more (HATHAT);
- number: three to five digits, or a decimal fraction; thousands separators, currency signs and
  noughts at the end of a fraction are dropped;
- word: letters only, written with a capital (names, short codes such as JFK).

Left out because they coincide too easily: booleans, null, numbers below 100, round numbers
(one digit and noughts), years, dates and times, ordinals and quantities with a unit (20th, 30s),
lower-case words (economy, one_way), days, months, currencies and the like, sentences as such,
and tokens longer than 128 characters.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from hashlib import blake2b
from itertools import islice
from typing import Any, Final, Literal, NamedTuple

from enrichment.event_kinds import (
    ARGUMENT_FIELDS,
    OUTCOME_FIELDS,
    EventKind,
    calls_in,
    content_parts,
    event_kind,
    is_chat_message,
    is_failed,
    parsed_json,
)
from enrichment.writes import UNDECLARED, Claim, Tools, claims_of, is_confirmed_by_itself
from projections.events import Event

MAX_IDENTIFIERS = 300
MAX_NUMBERS = 150
MAX_WORDS = 150
"""In sentences; as many outside."""
MAX_VALUES = MAX_IDENTIFIERS + MAX_NUMBERS + 2 * MAX_WORDS
"""Values kept of one content, the first of each kind in the order of the text. Long numbers and
codes are identifiers by kind, but codes count as words here."""
MAX_CHARACTERS = 32_768
"""Characters of one content that are looked at."""
MAX_LEAVES = 2_000
"""Scalars and keys of one content that are looked at."""
MAX_TOKENS = 4_000
"""Tokens of one content that are looked at, and as many numbers in its strings."""
MAX_VALUE_CHARACTERS = 128

ValueKind = Literal["identifier", "number", "word"]

_TOKEN = re.compile(r"""[^\s,;()\[\]{}<>"'`|*\u2018\u2019\u201c\u201d]+""")
_PARTS = re.compile(r"[/\\=:#&?@]+")
_MAX_PARTS = 16
_MAX_TOKEN_CHARACTERS = 512
_BEFORE = ".:!?-\u2013\u2014\u2026#$€£%&=+@"
_AFTER = _BEFORE + "/\\"
# not a part of an identifier: neither of u-77312 nor of 10.20.30.41
_NUMBER = re.compile(
    r"(?<![\w.,])(?<!\w-)(?:\d{1,3}(?:,\d{3})+|\d{1,40})(?:\.\d{1,12})?(?!\w|\.\d|-\w)"
)
_DATE = re.compile(
    r"""\d{1,4}([-/.])\d{1,2}\1\d{1,4}(t.*)?    # 2024-05-20, 20.5.2024, 2024-05-20T15:00:00
      | \d{1,2}[-/]\d{1,2}
      | t?\d{1,2}:\d\d(:\d\d(\.\d+)?)?(z|[ap]m|[+-]\d{1,2}(:?\d\d)?)?
      | (\d{1,2}[-/.]?)?(jan(uary)?|feb(ruary)?|mar(ch)?|apr(il)?|may|june?|july?|aug(ust)?
          |sept?(ember)?|oct(ober)?|nov(ember)?|dec(ember)?)[-/.]?\d{0,4}
    """,
    re.VERBOSE,
)
_COMPACT_DATE = re.compile(r"(19|20)\d\d(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])")
_YEAR = re.compile(r"(19|20)\d\d")
_QUANTITY = re.compile(
    r"[+-]?\d{1,6}(\.\d+)?[-_]?([a-z%°]{1,3}|years?|months?|weeks?|days?|hours?|minutes?|seconds?)"
)
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_URL = re.compile(r"[a-z][a-z0-9+.-]*://.+")
_PATH = re.compile(r"(?:~|\.{1,2}|[a-z]:)?[/\\][^/\\]+[/\\].*|[^/\\]+(?:[/\\][^/\\]+){2,}")
_DOTTED = re.compile(r"[a-z_][\w-]*(?:\.[a-z_][\w-]*){2,}")
_FILE = re.compile(r"(?:[\w.-]+[/\\])*[\w-]{2,}\.[a-z]{2,4}")
_NUMERIC = re.compile(r"\d+(\.\d+)?")
_LONG_NUMBER = 6
_LONG_CODE = 5

_PLAIN_WORDS = frozenset(
    (
        *("yes", "not", "true", "false", "none", "null", "nil", "nan", "the", "and", "for", "all"),
        *("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        *("january", "february", "march", "april", "may", "june", "july", "august"),
        *("september", "october", "november", "december"),
        *("usd", "eur", "gbp", "chf", "jpy", "cny", "inr", "aud", "cad", "utc", "gmt", "usa"),
        *("get", "put", "post", "error", "pending", "running", "completed", "failed", "timeout"),
    )
)


def value_kind(value: str) -> ValueKind:
    """The kind of a value in its normal form."""
    if value.isalpha():
        return "identifier" if len(value) >= _LONG_CODE and value.isupper() else "word"
    if _NUMERIC.fullmatch(value) and ("." in value or len(value) < _LONG_NUMBER):
        return "number"
    return "identifier"


class Values(NamedTuple):
    """The distinctive values of a content.

    Attributes:
        stated: all of them.
        followed: without words that stand in sentences: what an input is looked up by. A string
            that is a single word is kept, and so are long codes wherever they stand.
    """

    stated: frozenset[str]
    followed: frozenset[str]


def values_in(content: Any) -> Values:
    """The distinctive values of any JSON content, strings that hold JSON looked into."""
    values = _Found()
    left = MAX_CHARACTERS
    for leaf in islice(_leaves(content), MAX_LEAVES):
        if isinstance(leaf, str):
            if left <= 0:
                break
            text = leaf[:left]
            left -= len(text)
            values.read(text)
        else:
            values.add_number(_number_text(leaf))
    followed = frozenset((*values.identifiers, *values.numbers, *values.words))
    return Values(followed | frozenset(values.prose), followed)


def _leaves(content: Any) -> Iterator[Any]:
    """Strings (keys too) and numbers, in the order of the text."""
    stack: list[Iterator[Any]] = [iter((content,))]
    while stack:
        item = next(stack[-1], stack)
        if item is stack:
            stack.pop()
            continue
        item = parsed_json(item)
        if isinstance(item, Mapping):
            stack.append(part for pair in item.items() for part in pair)
        elif isinstance(item, list | tuple):
            stack.append(iter(item))
        elif isinstance(item, str | int | float) and not isinstance(item, bool):
            yield item


def _number_text(number: int | float) -> str:
    if not math.isfinite(number) or abs(number) >= 1e18:
        return ""
    if number == int(number):
        return str(abs(int(number)))
    return f"{abs(number):.12f}"


class _Found:
    """Values of each kind, in order, up to its limit."""

    def __init__(self) -> None:
        self.identifiers: dict[str, None] = {}
        self.numbers: dict[str, None] = {}
        self.words: dict[str, None] = {}
        self.prose: dict[str, None] = {}
        self.tokens_left = MAX_TOKENS
        self.numbers_left = MAX_TOKENS

    def read(self, text: str) -> None:
        first = text.split(None, 1)
        single = len(first) == 1
        if single and first[0].isalnum():
            # nothing to take apart: most strings in objects are so
            if first[0].isdecimal():
                self.add_number(first[0][:MAX_VALUE_CHARACTERS])
            else:
                self.add_token(first[0], single)
            return
        if single:
            # a string without spaces is a value as a whole, brackets and commas included
            self.add_token(first[0], single)
        for match in islice(_TOKEN.finditer(text), self.tokens_left):
            self.tokens_left -= 1
            token = match[0]
            if len(token) > _MAX_TOKEN_CHARACTERS:
                continue
            token = token.lstrip(_BEFORE).rstrip(_AFTER)
            self.add_token(token, single)
            parts = _PARTS.split(token, _MAX_PARTS)
            if len(parts) > 1:
                for part in parts:
                    self.add_token(part.strip("."), single)
        for match in islice(_NUMBER.finditer(text), self.numbers_left):
            self.numbers_left -= 1
            self.add_number(match[0])

    def add_token(self, token: str, single: bool) -> None:
        """Keep a token that is a word or an identifier; `single`: it is not in a sentence."""
        if not 3 <= len(token) <= MAX_VALUE_CHARACTERS:
            return
        if token.isalpha():
            words = self.words if single or value_kind(token) == "identifier" else self.prose
            room = len(words) < MAX_WORDS
            if room and token[0].isupper() and token.casefold() not in _PLAIN_WORDS:
                words[token] = None
        elif len(self.identifiers) < MAX_IDENTIFIERS:
            folded = token.casefold()
            # no control, bidi or zero-width characters and no lone surrogates in the evidence
            if folded.isprintable() and is_identifier(folded):
                self.identifiers[folded] = None

    def add_number(self, digits: str) -> None:
        number = digits.replace(",", "")
        if "." in number:
            number = number.rstrip("0").rstrip(".")
        bare = number.replace(".", "").lstrip("0")
        if len(bare) < 3 or len(bare.rstrip("0")) < 2 or _YEAR.fullmatch(number):
            return
        if value_kind(number) == "identifier":
            if len(self.identifiers) < MAX_IDENTIFIERS and not _COMPACT_DATE.fullmatch(number):
                self.identifiers[number] = None
        elif len(self.numbers) < MAX_NUMBERS:
            self.numbers[number] = None


def is_identifier(token: str) -> bool:
    """Whether a token, case folded and without spaces, has the form of an identifier.

    Plain numbers are not asked about here, they have a rule of their own.
    """
    if len(token) < 4 or _DATE.fullmatch(token):
        return False
    digits = sum(map(str.isdigit, token))
    letters = any(map(str.isalpha, token))
    if not letters:
        # telephone numbers, IP addresses, numbers with dashes
        return digits >= 7 and not _NUMERIC.fullmatch(token) and _groups(token)
    if digits and _QUANTITY.fullmatch(token) is None:
        return len(token) >= 5 or "_" in token or "-" in token
    if digits:
        return False
    return any(form.fullmatch(token) is not None for form in (_EMAIL, _URL, _PATH, _DOTTED, _FILE))


def _groups(token: str) -> bool:
    """Digits in groups, not an expression: 555-0100-222, 10.20.30.41, not 305*250."""
    return all(character.isdigit() or character in "-.+" for character in token)


# -- features --------------------------------------------------------------------------------------

MAX_CONSUMED: Final = 200
"""Values of one event's input that are followed, the first in alphabetical order."""
MAX_ARGUMENTS: Final = 64
"""Arguments of a call that are compared with those of another, the first in its order."""
MAX_CALL_IDS: Final = 32
MAX_ID_CHARACTERS: Final = 200
"""Of a call id or a recipient; a longer one, or one that cannot be printed, is none."""

_CALL_IDS = ("tool_call_id", "call_id", "tool_use_id")
_RECIPIENT = ("to", "recipient", "recipient_id")
_FORM = frozenset(("role", "type", "name", *_CALL_IDS, *_RECIPIENT))
"""Fields that say what a payload is, not what it holds."""
_NOT_OUTPUT = _FORM.union(ARGUMENT_FIELDS, OUTCOME_FIELDS, ("tool_calls", "function_call"))
_NOTHING = Values(frozenset(), frozenset())


class Features(NamedTuple):
    """What the causal rules need of one event.

    Attributes:
        event_id: of the event.
        occurred_at_ms: milliseconds since the epoch, UTC.
        kind: of the event.
        agent_id: who did it.
        trace_id: its trace.
        parent_event_id: the cause that its producer named.
        tool_name: of a call or a result.
        failed: whether it tells of a failure.
        call_ids: those a call gives, or the one a result answers; at most MAX_CALL_IDS.
        recipient: to whom a message goes, when it says so.
        produced: values of its output; at most MAX_VALUES.
        stated: values of its input, and of what a call's agent says beside it; twice as many.
        consumed: values of its input that are looked for in earlier outputs; at most
            MAX_CONSUMED.
        arguments: digests of a call's arguments with their places; at most MAX_ARGUMENTS. A
            failure has those that it repeats.
        user_id: whose event it is.
        claims: what its calls would bring about.
        confirmed: it holds what came of its call.
        position_ms: when the ledger took it in; 0 where nobody asks.
    """

    event_id: str
    occurred_at_ms: int
    kind: EventKind
    agent_id: str
    trace_id: str
    parent_event_id: str | None = None
    tool_name: str | None = None
    failed: bool = False
    call_ids: tuple[str, ...] = ()
    recipient: str | None = None
    produced: frozenset[str] = frozenset()
    stated: frozenset[str] = frozenset()
    consumed: frozenset[str] = frozenset()
    arguments: frozenset[bytes] = frozenset()
    user_id: str | None = None
    claims: tuple[Claim, ...] = ()
    confirmed: bool = False
    position_ms: int = 0


class _Parts(NamedTuple):
    """A payload taken apart.

    Attributes:
        inputs: what is asked of a tool or an agent, one for each call.
        output: what came of it, or what a message says; None when there is none.
        beside: what stands next to the inputs and is no output.
        call_ids: see `Features`.
    """

    inputs: list[Any]
    output: Any
    beside: Any
    call_ids: list[str]


def features(
    event: Event, content: Any = None, *, position_ms: int = 0, tools: Tools = UNDECLARED
) -> Features:
    """What the rules that look at several events need of one.

    Args:
        event: any event.
        content: the payload behind `payload_ref`, used instead of `event.payload`.
        position_ms: when the ledger took it in.
        tools: that are declared to write, or not to.
    """
    payload = parsed_json(event.payload if content is None else content)
    fields: Mapping[str, Any] = payload if isinstance(payload, Mapping) else {}
    parts = _parts(payload)
    kind = event_kind(event, content)
    inputs, output, beside = parts.inputs, parts.output, parts.beside
    if kind is EventKind.CALL:
        if not inputs and output is None and beside is not None:
            inputs, beside = [beside], None
    elif output is None:
        output, beside = beside, None
    else:
        output, beside = [output, beside], None
    input_values = values_in(inputs) if inputs else _NOTHING
    stated = (
        input_values.stated if beside is None else input_values.stated | values_in(beside).stated
    )
    # a result that repeats what its call asked for took in nothing itself
    repeats = kind is EventKind.RESULT and (event.parent_event_id is not None or parts.call_ids)
    claims = claims_of(event, kind, payload, tools)
    asks = kind is EventKind.CALL or (kind is EventKind.FAILURE and bool(inputs))
    return Features(
        event_id=event.event_id,
        occurred_at_ms=event.occurred_at_ms,
        kind=kind,
        agent_id=event.agent_id,
        trace_id=event.trace_id,
        parent_event_id=event.parent_event_id,
        tool_name=event.tool,
        failed=is_failed(kind, event.status),
        call_ids=tuple(dict.fromkeys(parts.call_ids))[:MAX_CALL_IDS],
        recipient=next(_names(fields, _RECIPIENT), None),
        produced=values_in(output).stated if output is not None else frozenset(),
        stated=stated,
        consumed=frozenset(() if repeats else sorted(input_values.followed)[:MAX_CONSUMED]),
        arguments=_arguments(inputs) if asks else frozenset(),
        user_id=event.user_id,
        claims=claims,
        confirmed=bool(claims) and is_confirmed_by_itself(event, kind, payload),
        position_ms=position_ms,
    )


def _parts(payload: Any) -> _Parts:
    if not isinstance(payload, Mapping):
        return _Parts([], None, payload, [])
    call_ids = list(_names(payload, _CALL_IDS))
    inputs: list[Any] = []
    for call in calls_in(payload):
        inputs.append(_input_of(call))
        call_ids.extend(_names(call, ("id", *_CALL_IDS)))
    if is_chat_message(payload):
        content = payload.get("content")
        if isinstance(content, list):
            content = _said(content)
            for part in content_parts(payload, "tool_result"):
                call_ids.extend(_names(part, _CALL_IDS))
        return _Parts(inputs, None, content, call_ids)
    inputs.extend(payload[name] for name in ARGUMENT_FIELDS if name in payload)
    outputs = {name: payload[name] for name in OUTCOME_FIELDS if name in payload}
    left = {name: value for name, value in payload.items() if name not in _NOT_OUTPUT}
    return _Parts(inputs, outputs or None, left or None, call_ids)


def _said(content: list[Any]) -> list[Any]:
    """What the blocks of a message hold, calls left out."""
    contents: list[Any] = []
    for block in content:
        if not isinstance(block, Mapping):
            contents.append(block)
        elif block.get("type") != "tool_use":
            contents.append({name: value for name, value in block.items() if name not in _FORM})
    return contents


def _input_of(call: Mapping[str, Any]) -> Any:
    function = call.get("function")
    holder = function if isinstance(function, Mapping) else call
    return [parsed_json(holder[name]) for name in ARGUMENT_FIELDS if name in holder]


def _names(fields: Mapping[str, Any], names: Iterable[str]) -> Iterator[str]:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and 0 < len(value) <= MAX_ID_CHARACTERS and value.isprintable():
            yield value


def _arguments(inputs: list[Any]) -> frozenset[bytes]:
    """A digest of each argument (scalar or empty container) with its place in the input."""
    digests: set[bytes] = set()
    stack: list[tuple[str, Any]] = [("", inputs)]
    while stack and len(digests) < MAX_ARGUMENTS:
        path, item = stack.pop()
        item = parsed_json(item)
        inner: list[tuple[str, Any]] = []
        if isinstance(item, Mapping):
            names = sorted(item)[:MAX_ARGUMENTS]
            inner = [(f"{path}.{name}", item[name]) for name in names]
        elif isinstance(item, list | tuple):
            inner = [(f"{path}[{place}]", part) for place, part in enumerate(item[:MAX_ARGUMENTS])]
        if inner:
            stack.extend(reversed(inner))
            continue
        text = f"{path}\x1f{type(item).__name__}\x1f{item}"
        digests.add(blake2b(text.encode("utf-8", "replace"), digest_size=8).digest())
    return frozenset(digests)
