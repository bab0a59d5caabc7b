"""The formats that an import reads: a row each, with what tells it from the others.

Whatever a file holds, one pipeline takes it (`pipelines/operations/imports.py`): streamed, each
event judged as over HTTP, a problem told with its place while the rest goes on.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum
from functools import partial
from typing import IO, Any, Final, NamedTuple, cast

from pipelines.operations.formats import rows
from pipelines.operations.formats.chat import (
    MESSAGES,
    SWE_AGENT,
    conversation_events,
    is_swe_agent,
    swe_agent_events,
)
from pipelines.operations.formats.mapped import Given, Mapped, Told
from pipelines.operations.formats.memory_services import (
    GRAPHITI,
    MEM0,
    ZEP,
    graphiti_events,
    is_graphiti,
    is_mem0,
    is_zep,
    mem0_events,
    zep_events,
)
from pipelines.operations.formats.model_calls import (
    ANTHROPIC,
    OPENAI,
    anthropic_events,
    is_anthropic,
    is_openai,
    openai_events,
)
from pipelines.operations.formats.spans import (
    LANGFUSE,
    LANGSMITH,
    is_langfuse,
    is_langsmith,
    langfuse_events,
    langsmith_events,
)
from pipelines.operations.sources import (
    TELLING_BYTES,
    Item,
    Note,
    Record,
    beginning,
    elements,
    first_record,
    is_document,
    json_lines,
    records,
)
from projections.errors import InvalidInput
from projections.events import MAX_PAYLOAD_DEPTH
from projections.traces.messages import is_shallow


class Format(StrEnum):
    """What a file holds."""

    EVENTS = "events"
    CHAT = "chat"
    OPENAI = OPENAI
    ANTHROPIC = ANTHROPIC
    LANGSMITH = LANGSMITH
    LANGFUSE = LANGFUSE
    SWE_AGENT = SWE_AGENT
    GRAPHITI = GRAPHITI
    MEM0 = MEM0
    ZEP = ZEP
    ROWS = rows.FORM


Items = Iterator[Item | Note]


class Form(NamedTuple):
    """A format.

    Attributes:
        meaning: for people.
        sniff: whether the first record of a file is one of it.
        items: what a file of it holds.
    """

    meaning: str
    sniff: Callable[[Any], bool]
    items: Callable[[io.BufferedReader, Given], Items]


def event_items(stream: IO[bytes]) -> Iterator[Item]:
    """JSON lines of envelopes; blank lines are passed over."""
    for where, value in json_lines(stream):
        if isinstance(value, InvalidInput):
            yield Item(where, None, value)
        else:
            yield Item(where, value)


def chat_items(stream: IO[bytes]) -> Iterator[Item]:
    """Events of a JSON list of trajectories; a single trajectory is a list of one.

    A conversation or a message that breaks a rule is refused alone. Broken JSON ends the file,
    for nobody can say where the next conversation would begin.
    """
    for number, trajectory in enumerate(elements(stream, _is_message_list), start=1):
        where = {"conversation": number}
        if isinstance(trajectory, InvalidInput):
            yield Item(where, None, trajectory)
            return
        try:
            for mapped in conversation_events(trajectory):
                place = {**where, "message": mapped.place + 1}
                yield Item(place, mapped.envelope, mapped.error)
        except InvalidInput as error:
            yield Item(where, None, error)


def _is_message_list(after_bracket: str) -> bool:
    """Whether a list holds messages rather than trajectories: its first element has a role."""
    try:
        first, _ = json.JSONDecoder().raw_decode(after_bracket.lstrip())
    except ValueError:
        return False
    return isinstance(first, dict) and "role" in first


def record_items(
    map_record: Callable[[Any, Given], Iterator[Told]], *lists: str
) -> Callable[[io.BufferedReader, Given], Items]:
    """What a file of records holds.

    Args:
        map_record: a format's mapper; what it refuses is told, and the next record read.
        lists: fields that hold records, where a file is a page of an API, beside `data`.
    """
    named = (*lists, "data")
    return lambda stream, given: _mapped(records(stream, named), map_record, given)


def row_items(stream: io.BufferedReader, given: Given, mapping: rows.RowMapping) -> Items:
    """What a file of rows holds, by a mapping of its columns."""
    return _mapped(rows.rows(stream, mapping), partial(rows.events, mapping=mapping), given)


def _mapped(
    of_file: Iterable[Record], map_record: Callable[[Any, Given], Iterator[Told]], given: Given
) -> Items:
    for where, value in of_file:
        if isinstance(value, InvalidInput):
            yield Item(where, None, value)
            continue
        if isinstance(value, Note):
            yield value
            continue
        if not is_shallow(value, MAX_PAYLOAD_DEPTH):
            rule = f"nested at most {MAX_PAYLOAD_DEPTH} levels deep"
            yield Item(where, None, InvalidInput((("(record)", rule),)))
            continue
        try:
            # all of it at once: a record is whole in the ledger, or not at all
            told = list(map_record(value, given))
        except InvalidInput as error:
            yield Item(where, None, error)
            continue
        if not told:
            yield Note(where, "(record)", "nothing is said in it")
        for part in told:
            if isinstance(part, Mapped):
                yield Item(where, part.envelope, is_shared=part.is_shared, own_id=part.own_id)
            else:
                yield Note(where, part.field, part.reason)


def _is_event(record: Any) -> bool:
    return isinstance(record, dict) and "event_type" in record


def _is_chat(record: Any) -> bool:
    fields = record if isinstance(record, dict) else {}
    return "role" in fields or any(isinstance(fields.get(name), list) for name in MESSAGES)


def _no_mapping(stream: io.BufferedReader, given: Given) -> Items:
    raise InvalidInput((("--mapping", "required with --format rows"),))


FORMS: Final[Mapping[Format, Form]] = {
    Format.EVENTS: Form(
        "envelopes, as `recollect export` writes them",
        _is_event,
        lambda stream, given: event_items(cast(IO[bytes], stream)),
    ),
    Format.LANGSMITH: Form(
        "runs of LangSmith", is_langsmith, record_items(langsmith_events, "runs")
    ),
    Format.LANGFUSE: Form(
        "traces or observations of Langfuse", is_langfuse, record_items(langfuse_events)
    ),
    Format.SWE_AGENT: Form(
        "a trajectory of SWE-agent (.traj)", is_swe_agent, record_items(swe_agent_events)
    ),
    Format.OPENAI: Form(
        "chat completions and responses of OpenAI, with their times",
        is_openai,
        record_items(openai_events),
    ),
    Format.ANTHROPIC: Form(
        "messages of Anthropic with a time beside them, or an export of claude.ai",
        is_anthropic,
        record_items(anthropic_events),
    ),
    Format.GRAPHITI: Form(
        "episodes of Graphiti", is_graphiti, record_items(graphiti_events, "episodes")
    ),
    Format.ZEP: Form(
        "threads, messages or episodes of Zep",
        is_zep,
        record_items(zep_events, "episodes", "threads", "sessions"),
    ),
    Format.MEM0: Form(
        "memories of mem0", is_mem0, record_items(mem0_events, "results", "memories")
    ),
    Format.CHAT: Form(
        "conversations in the OpenAI shape without times, which are invented",
        _is_chat,
        lambda stream, given: chat_items(cast(IO[bytes], stream)),
    ),
    Format.ROWS: Form(
        "CSV or JSON of any kind, by a --mapping of its columns", lambda record: False, _no_mapping
    ),
}


def sniffed(stream: io.BufferedReader) -> Format:
    """The format of a file, by its first record; events where that tells nothing.

    Raises:
        InvalidInput: the record is too long to be looked at.
    """
    record = first_record(stream)
    start = beginning(stream)
    is_cut = b"\n" not in start or is_document(start)
    if record is None and is_cut and len(start) >= TELLING_BYTES:
        rule = "required: the first record is too long to tell it by"
        raise InvalidInput((("--format", rule),))
    page = record if isinstance(record, dict) else {}
    lists = [value for value in page.values() if isinstance(value, list) and value]
    inside = [value[0] for value in lists if isinstance(value[0], dict)]
    for candidate in (record, *inside):
        for name, row in FORMS.items():
            if row.sniff(candidate):
                return name
    return Format.EVENTS
