"""What events say as fields: names in words, values, and of which record of a list. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from api.schemas import Node
from enrichment.act_names import apart
from enrichment.event_kinds import EventKind
from enrichment.stems import stem_in, stems_of, words_in
from enrichment.vocabulary import STOP_WORDS, word_set

_LINE: Final = re.compile(r"(?P<path>[^\s:][^:\s]{0,120}):(?: (?P<value>.*))?")
_SHARED_LETTERS: Final = 3
"""Letters of a word that two names share the beginning of."""


_SEVERAL: Final = 2
_DECIMAL: Final = re.compile(r"\d+(?:\.\d+)?")
_UNITS_MS: Final = {
    name: ms
    for names, ms in (
        *(
            ("ms millis milliseconds", 1),
            ("s sec secs seconds", 1_000),
            ("min mins minutes", 60_000),
        ),
        *(("h hours", 3_600_000), ("days", 86_400_000), ("weeks", 604_800_000)),
    )
    for name in names.split()
}

_LENGTHS: Final = word_set("duration elapsed runtime took time total since")
"""Stand before a unit in the name of a field that says how long something took."""


_OUTCOMES: Final = (EventKind.RESULT, EventKind.FAILURE)

_BEFORE: Final = word_set("old previous prev before former prior was")
_SINCE: Final = word_set("new current after now is")
"""What a record calls the two values of a field that was changed, alone or beside its name."""
_ALONE: Final = word_set("before after was is now")
"""These are no more than words beside a name: `after_tax`."""
_VALUE: Final = word_set("value val")
_OF_MEASURE: Final = _VALUE | word_set("currency unit units iso")
"""Of an object with no other fields the value bears the object's name: `total: {value: 5}`."""
ENDS: Final = frozenset(("from", "to"))
"""These may also be the ends of a stretch: only a number that is no range is changed by them."""
_STRETCHES: Final = word_set(
    "range window period span interval slot hours days dates pages rows lines between stay route"
)
_STAGES: Final = word_set("status state stage phase priority severity")
"""In one of these something is, and then in another."""
_FIELD: Final = (*("field", "attribute", "setting", "parameter", "param", "option", "key"),)
"""Stand beside the two values and say which field was changed."""


class Shown(NamedTuple):
    """The events that an answer shows by id, the best first, and what they say as a whole."""

    events: Mapping[str, Node]
    texts: Mapping[str, str]


class Field(NamedTuple):
    """A field of what an event says.

    Attributes:
        node_id: of the event.
        words: of its name, at least one.
        value: of it.
        row: path and number of the record of a list that it is of; empty: of no list.
        former: its value until then, where the event tells of a change; empty: it does not.
    """

    node_id: str
    words: tuple[str, ...]
    value: str
    row: tuple[str, int] | tuple[()] = ()
    former: str = ""


class _Version(NamedTuple):
    """Which of two values of a field a name says that it is.

    Attributes:
        former: the one before.
        of: the words of the field's name; none, where the name is no more than `old`: no answer
            stands under that alone.
    """

    former: bool
    of: tuple[str, ...] = ()


_OF_NOTHING: Final = (_Version(former=True), _Version(former=False))


class _Line(NamedTuple):
    above: str
    name: str
    value: str
    former: str = ""


def summary_of(node: Node) -> str | None:
    """What an event says, in a sentence."""
    summary: str | None = node.attributes.get("summary")
    return summary


def said_by(node: Node, shown: Shown) -> str:
    """All that an event says, as far as it is known."""
    return shown.texts.get(node.node_id) or summary_of(node) or ""


def words_of(node: Node, shown: Shown) -> str:
    """What somebody says, without who says it."""
    return said_by(node, shown).removeprefix(f"{node.attributes.get('speaker')}: ")


def names_user(field: Field, shown: Shown) -> bool:
    """Whether the value of a field is the id of the user whose event it is of."""
    return field.value == shown.events[field.node_id].attributes.get("user_id")


def fields_of(node: Node, shown: Shown) -> list[Field]:
    """The fields of an event, those of the surface before nested ones.

    A field that was changed stands there once, as `limit: 9` for `limit: {old: 5, new: 9}`.
    """
    kind = node.attributes.get("kind")
    text = None if kind == EventKind.MESSAGE else shown.texts.get(node.node_id)
    if text is None:
        return _of_summary(node)
    return _of_text(node.node_id, text, may_ask=kind == EventKind.CALL)


def _of_summary(node: Node) -> list[Field]:
    """One line: a tool's name, then the first field of each name."""
    parts = [["", *part.split(": ")] for part in (summary_of(node) or "").split("; ")]
    return [
        Field(node.node_id, words, value.strip())
        for *_, name, value in parts
        if _version(name) not in _OF_NOTHING and (words := _words(name))
    ]


def _of_text(node_id: str, text: str, *, may_ask: bool) -> list[Field]:
    """A line a field; a name that comes again under the same path begins the next record."""
    numbers: dict[str, int] = {}
    names: dict[str, set[str]] = {}
    told: list[tuple[int, Field]] = []
    for above, name, value, former in _with_changes(_lines(text), may_ask=may_ask):
        met = names.setdefault(above, set())
        if name in met:
            met.clear()
            numbers[above] = numbers.get(above, 0) + 1
        met.add(name)
        row = (above, numbers.get(above, 0)) if above else ()
        if words := _words(name):
            field = Field(node_id, words, value, row=row, former=former)
            told.append((len(row), field))
    return [field for _, field in sorted(told, key=lambda each: each[0])]


def _lines(text: str) -> Iterator[_Line]:
    for line in text.split("\n"):
        if (match := _LINE.fullmatch(line)) is not None:
            above, _, name = match["path"].rpartition(".")
            yield _Line(above, name, (match["value"] or "").strip())


def _with_changes(lines: Iterable[_Line], *, may_ask: bool) -> Iterator[_Line]:
    """The lines, of those that tell what a field was and what it is one under the field's name.

    Args:
        lines: of a record.
        may_ask: whether `from` and `to` may be the bounds that something is asked for by.
    """
    record: list[_Line] = []
    for line in lines:
        if record and (line.above != record[0].above or line.name in {one.name for one in record}):
            yield from _changed(record, may_ask=may_ask)
            record = []
        record.append(line)
    yield from _changed(record, may_ask=may_ask)


def _changed(record: Sequence[_Line], *, may_ask: bool) -> Iterator[_Line]:
    values = {line.name: line.value for line in record}
    named = next((values[name] for name in _FIELD if values.get(name)), "")
    versions = {name: version for name in values if (version := _version(name)) is not None}
    above = record[0].above if record else ""
    if values.keys() >= ENDS and (named or _is_change(above, values, may_ask=may_ask)):
        versions |= {"from": _Version(former=True), "to": _Version(former=False)}
    former = {version.of: values[name] for name, version in versions.items() if version.former}
    # `size_gb` beside `previous_size_gb` is what it is now
    plain = {name: _words(name) for name in values if name not in versions}
    if named:  # `key: pool`, `value: 40`
        versions |= {name: _Version(False) for name in _VALUE if values.get(name)}
    versions |= {name: _Version(False, of) for name, of in plain.items() if of and of in former}
    present = {version.of for version in versions.values() if not version.former}
    is_measure = bool(above) and _OF_MEASURE.issuperset(values)
    for line in record:
        if is_measure and line.name in _VALUE:
            yield _under_its_name(line, _Version(False), named)
            continue
        version = versions.get(line.name)
        if version is None or (version.of and version.of not in former.keys() & present):
            yield line
        elif line.name in _VALUE and version.of not in former:
            yield _under_its_name(line, version, named)
        elif version.of in former and not version.former and (version.of or named or above):
            yield _under_its_name(line, version, named)._replace(former=former[version.of])


def _version(name: str) -> _Version | None:
    """Which value a name such as `old_price` is of; None: a name says nothing of that."""
    words = [word for word in _words(name) if word not in _VALUE]
    if not words or words[0] not in _BEFORE | _SINCE:
        return None
    of = (*words[1:],)
    return None if of and words[0] in _ALONE else _Version(words[0] in _BEFORE, of)


def _under_its_name(line: _Line, version: _Version, named: str) -> _Line:
    """The line of a value, under the name of the field that it is of."""
    if version.of or named:
        return line._replace(name="_".join(version.of) or named)
    above, _, name = line.above.rpartition(".")
    return line._replace(above=above, name=name)


def _is_change(above: str, values: Mapping[str, str], *, may_ask: bool) -> bool:
    """Whether `from` and `to` are of one field, one after the other, and no ends of a stretch."""
    words = _words(above.rpartition(".")[2])
    is_stretch = may_ask or not _STRETCHES.isdisjoint(words)
    is_state = not _STAGES.isdisjoint(words)
    return not is_stretch and (is_state or all(_DECIMAL.fullmatch(values[end]) for end in ENDS))


def _words(name: str) -> tuple[str, ...]:
    return tuple(words_in(apart(name).lower()))


def of_meant_row(fields: Iterable[Field], question: str) -> list[Field]:
    """The fields of the record of a list that a question names by one of its values, then others.

    Of `items` the one whose `item` is what the question speaks of; all, where it names none.
    """
    told = [*fields]
    stems = stems_of(question)
    named = {
        (field.node_id, *field.row)
        for field in told
        if field.row and not field.value.isdigit() and _is_said(field.value, stems)
    }
    if not named:
        return told
    paths = {key[:2] for key in named}
    inside = [field for field in told if (field.node_id, *field.row) in named]
    outside = [field for field in told if (field.node_id, *field.row)[:2] not in paths]
    return [*inside, *outside]


def is_one_of_several(field: Field, fields: Iterable[Field], question: str) -> bool:
    """Whether a field is of a list whose other records say another thing, none of them named."""
    if not field.row or field.value.isdigit():
        return False
    rows = [one for one in fields if one.node_id == field.node_id and one.row[:1] == field.row[:1]]
    others = {one.value for one in rows if one.words == field.words and one.row != field.row}
    if not others - {field.value}:
        return False
    stems = stems_of(question)
    return not any(_is_said(one.value, stems) for one in rows if one.row == field.row)


def is_echo(field: Field, question: str) -> bool:
    """Whether a question says the value itself: it asks for something else."""
    return _is_said(field.value, stems_of(question))


def _is_said(value: str, stems: frozenset[str]) -> bool:
    words = words_in(value.lower())
    telling = [word for word in words if word not in STOP_WORDS]
    if not telling and len(words) < _SEVERAL:  # `yes` is said by no question
        return False
    return all(stem_in(word) in stems for word in telling or words)


def is_record_of(node: Node, identifier: str, shown: Shown) -> bool:
    """Whether an event is a record of what an identifier names: its tool is called after it.

    `appointment: AP-1` is what `book_appointment` returned, and only a reference in an invoice.
    Under the name `id` it is always its own.
    """
    tool = words_in((node.attributes.get("tool_name") or "").lower())
    naming = [field for field in fields_of(node, shown) if field.value.lower() == identifier]
    keys = [word for field in naming if not field.row for word in field.words]
    return any(field.words == ("id",) for field in naming) or any(
        _begin_alike(key, word) for key in keys for word in tool
    )


def _begin_alike(word: str, other: str) -> bool:
    short, long = sorted((stem_in(word), stem_in(other)), key=len)
    return len(short) >= _SHARED_LETTERS and long.startswith(short)


def duration_ms(field: Field) -> float | None:
    """How long something took, by a field whose name is a unit, or ends with one; None: it is none.

    `minutes: 112`, `duration_ms: 300`, and not `retention_days: 30`.
    """
    *before, unit = field.words
    is_length = unit in _UNITS_MS and _LENGTHS.issuperset(before)
    if not is_length or not _DECIMAL.fullmatch(field.value):
        return None
    return float(field.value) * _UNITS_MS[unit]


_SPOKEN: Final = re.compile(
    r"(?<!\w)(?P<number>an?|one|\d{1,6})\s+(?P<unit>second|minute|hour|day|week)s?(?!\w)",
    re.IGNORECASE,
)


def durations_in(text: str) -> frozenset[str]:
    """Durations that a text names, as plain numbers of records: "a day" is 86400, or 86400000."""
    spoken: set[str] = set()
    for match in _SPOKEN.finditer(text):
        number = int(match["number"]) if match["number"].isdigit() else 1
        length_ms = number * _UNITS_MS[match["unit"].lower() + "s"]
        spoken |= {str(length_ms), str(length_ms // 1_000)}
    return frozenset(spoken)


def outcomes_of(events: Mapping[str, Node]) -> dict[Any, Node]:
    """What a tool returned, by the id of its call.

    Of a result that names no call it is the last one of the same tool and session before it.
    """
    outcomes: dict[Any, Node] = {}
    waiting: dict[Any, str] = {}
    for node in sorted(events.values(), key=occurred_at):
        kind, parent = (node.attributes.get(name) for name in ("kind", "parent_event_id"))
        of_tool = (node.provenance.session_id, node.attributes.get("tool_name"))
        if kind == EventKind.CALL:
            waiting[of_tool] = node.node_id
        elif kind in _OUTCOMES and (call := parent or waiting.pop(of_tool, None)) is not None:
            outcomes[call] = node
    return outcomes


def occurred_at(node: Node) -> str:
    """When an event happened, as a text that sorts by time; empty: nobody knows."""
    return node.provenance.occurred_at or ""


def identifiers_in(text: str) -> list[str]:
    """Words with letters and digits, in lower case."""
    words = (word.strip(".,;:?!'\"()").lower() for word in text.split())
    return [word for word in words if any(map(str.isdigit, word)) and any(map(str.isalpha, word))]


def holding(identifiers: Iterable[str], shown: Shown) -> Iterator[Node]:
    """The events that say all of some identifiers."""
    wanted = [*identifiers]
    for node in shown.events.values():
        text = said_by(node, shown).lower()
        if wanted and all(has_identifier(one, text) for one in wanted):
            yield node


def has_identifier(identifier: str, text: str) -> bool:
    """Whether a text says an identifier as a whole; both in lower case."""
    return re.search(rf"(?<![\w-]){re.escape(identifier)}(?![\w-])", text) is not None
