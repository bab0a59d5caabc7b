"""Records that are calls of models and tools, told as the traces are that come by OpenTelemetry.

So an imported run gives the same events as a traced one: `docs/how-to/opentelemetry.md` is the
table. What is new in a conversation that every call repeats is seen in one record alone.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import UUID

from pipelines.operations.formats.mapped import Given, Mapped, Told, Unmapped
from projections.errors import InvalidInput
from projections.traces.drafts import NS_PER_MS
from projections.traces.mapping import map_spans
from projections.traces.messages import MODEL, USER, message_of
from projections.traces.spans import SPAN_ID_CHARACTERS, STATUS_ERROR, Span

NOTHING_OF_ITS_OWN: Final = "a step of the machinery (a chain, an embedding): no event of its own"


SHORTEST_MS: Final = 2
"""Of a call whose end nobody tells: what was asked, thought and answered have an order."""


class Step(NamedTuple):
    """One call, as a record tells it.

    Attributes:
        form: name of the format; ids are made of it.
        trace: what the call belongs to, by the id of the source.
        step: the call itself.
        parent: the call that it is a part of; empty for none.
        name: of it.
        start_ms, end_ms: since the epoch.
        attributes: as OpenTelemetry, OpenInference or Langfuse name them; None: not there.
        error: what went wrong; None: nothing.
    """

    form: str
    trace: str
    step: str
    name: str
    start_ms: int
    end_ms: int
    attributes: Mapping[str, Any]
    parent: str = ""
    error: str | None = None

    def span(self) -> Span:
        """As a span."""
        return Span(
            trace_id=_hex(self.form, self.trace),
            span_id=_hex(self.form, self.step)[:SPAN_ID_CHARACTERS],
            parent_id=_hex(self.form, self.parent)[:SPAN_ID_CHARACTERS] if self.parent else "",
            name=self.name,
            start_ns=self.start_ms * NS_PER_MS,
            end_ns=max(self.end_ms, self.start_ms + SHORTEST_MS) * NS_PER_MS,
            attributes={k: v for k, v in self.attributes.items() if v is not None},
            resource={},
            status_code=STATUS_ERROR if self.error is not None else 0,
            status_message=self.error or "",
        )


def told(steps: Sequence[Step], given: Given) -> Iterator[Told]:
    """The events of calls that stand in one record.

    Raises:
        InvalidInput: a call has no time.
    """
    mapped = map_spans([step.span() for step in steps], given.tenant, given.user_id)
    for _, rule in mapped.refused:
        raise InvalidInput((("(time)", rule),))
    for draft in mapped.drafts:
        yield Mapped(draft.envelope, draft.is_shared, draft.own_id)
    if mapped.scopes or mapped.ignored:
        yield Unmapped("(record)", NOTHING_OF_ITS_OWN)


SESSION_NAMES: Final = ("session_id", "thread_id", "conversation_id")
"""What those who write metadata call a conversation."""
SETTINGS: Final = (
    *("model", "temperature", "top_p", "top_k", "n", "seed", "stream", "stream_options", "stop"),
    *("tools", "tool_choice", "parallel_tool_calls", "response_format", "service_tier", "store"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "frequency_penalty"),
    *("presence_penalty", "logprobs", "top_logprobs", "reasoning", "reasoning_effort"),
    *("thinking", "stop_sequences", "verbosity", "text", "truncation", "system_fingerprint"),
)
"""What a call of a model is set up with; it says nothing of what happened."""
INPUT: Final = "gen_ai.input.messages"
OUTPUT: Final = "gen_ai.output.messages"
_OF_THE_LAST: Final = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
TURN_MS: Final = 1_000
"""How long before the next answer one of the past is taken to have been given, if nobody says."""


def told_with_past(call: Step, given: Given) -> Iterator[Told]:
    """The events of a call of a model, and of all that was said before it.

    A call repeats the conversation so far, and nobody knows whether the file holds the earlier
    calls, too. So each answer of the past is told as well, under an id of its trace, its words and
    how many equal ones stand before it: the record of that answer tells of the same event. The
    first account stays, with its time; so files are best imported in the order of time.
    """
    sent, answers = call.attributes.get(INPUT) or [], call.attributes.get(OUTPUT) or []
    counts: Counter[str] = Counter()
    steps: list[Step] = []
    for place, item in enumerate([*sent, *answers]):
        is_past = place < len(sent)
        message = message_of(item, USER)
        if message.role != MODEL and is_past:
            continue
        digest = message.digest()
        own_id = f"{digest}-{counts[digest]}"
        counts[digest] += 1
        if is_past:
            steps.append(_past(call, own_id, sent[:place], item))
        elif place == len(sent):
            steps.append(call._replace(step=own_id))
    if not answers:
        steps.append(call)
    first_ms = call.start_ms - TURN_MS * (len(steps) - 1)
    for number, step in enumerate(steps[:-1]):
        begin_ms = max(first_ms + TURN_MS * number, 1)
        steps[number] = step._replace(start_ms=begin_ms, end_ms=begin_ms)
    for part in told(steps, given):
        yield part._replace(is_shared=True) if isinstance(part, Mapped) else part


def _past(call: Step, own_id: str, sent: Sequence[Any], answer: Any) -> Step:
    attributes = {k: v for k, v in call.attributes.items() if k not in _OF_THE_LAST}
    attributes = {**attributes, INPUT: list(sent) or None, OUTPUT: [answer]}
    return call._replace(step=own_id, attributes=attributes, error=None)


def _hex(form: str, source_id: str) -> str:
    """An id of a trace: that of the source where it is a UUID, else made of it."""
    try:
        return UUID(source_id).hex
    except ValueError:
        return blake2b(
            f"{form}\x1f{source_id}".encode("utf-8", "replace"), digest_size=16
        ).hexdigest()
