"""Records that are calls of models and tools, told as the traces are that come by OpenTelemetry.

So an imported run gives the same events as a traced one: `docs/how-to/opentelemetry.md` is the
table. What is new in a conversation that every call repeats is seen in one record alone.

Langfuse gives traces with their observations, or observations one by one. Shapes
(langfuse/langfuse, `fern/apis/server/definition/commons.yml`: `Trace`, `TraceWithFullDetails`,
`ObservationsView`; exports to a bucket name the same fields in snake_case): a trace has `id`,
`timestamp`, `sessionId`, `userId`, `input`, `output`, `observations[]`; an observation `id`,
`traceId`, `parentObservationId`, `type` (GENERATION, SPAN, EVENT, TOOL, AGENT …), `startTime`,
`endTime`, `model`, `input`, `output`, `level`, `statusMessage`, `usageDetails`. A trace whose
observations are in it is told by them. One without any is told as a call of a model: its input and
its output. Of one that only names its observations they stand elsewhere.

LangSmith gives exported runs, one JSON object a line, in any order. Shape
(langchain-ai/langsmith-sdk, `python/langsmith/schemas.py`, `RunBase` and `Run`): `id`, `trace_id`,
`parent_run_id`, `run_type` (llm, tool, retriever, chain, prompt, parser, embedding), `start_time`,
`end_time` (without a zone they are UTC), `inputs`, `outputs`, `error`, `extra.metadata`.
`session_id` is LangSmith's project: the conversation is in the metadata (`session_id`, `thread_id`,
`conversation_id`), else the trace.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple
from uuid import UUID

from pipelines.operations.formats.mapped import Fields, Given, Mapped, Told, Unmapped
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


LANGFUSE: Final = "langfuse"
_NO_KINDS: Final = ("span", "event")
_OF_LANGFUSE: Final = (
    *("id", "projectId", "project_id", "htmlPath", "latency", "totalCost", "total_cost", "public"),
    *("release", "version", "environment", "createdAt", "created_at", "updatedAt", "updated_at"),
    *("completionStartTime", "completion_start_time", "timeToFirstToken", "time_to_first_token"),
    *("modelParameters", "model_parameters", "modelId", "model_id", "unit", "costDetails"),
    *("cost_details", "inputPrice", "outputPrice", "totalPrice", "calculatedInputCost"),
    *("calculatedOutputCost", "calculatedTotalCost", "promptId", "promptName", "promptVersion"),
    *("prompt_id", "prompt_name", "prompt_version", "externalId", "bookmarked", "totalTokens"),
    *("inputUsage", "outputUsage", "totalUsage", "inputCost", "outputCost", "scores"),
    *("provided_usage_details", "provided_cost_details", "is_deleted", "event_ts"),
)


def is_langfuse(record: Any) -> bool:
    """Whether it is an observation, or a trace."""
    if not isinstance(record, dict):
        return False
    names = record.keys()
    return (
        {"startTime", "traceId"} <= names
        or {"start_time", "trace_id", "type"} <= names
        or ({"timestamp", "id"} <= names and not names.isdisjoint(("observations", "sessionId")))
    )


def langfuse_events(record: Any, given: Given) -> Iterator[Told]:
    """The events of one trace, or of one observation.

    Raises:
        InvalidInput: it has no id or no time.
    """
    fields = Fields(record)
    if "startTime" in fields or "start_time" in fields:
        yield from _observations(fields, [fields], given)
        return
    listed = fields.list("observations")
    if any(isinstance(item, str) for item in listed):
        yield Unmapped("(record)", "its observations are only named: export them, too")
        return
    inside = [Fields(item, f"observations[{n}].") for n, item in enumerate(listed)]
    if inside:
        for name in ("timestamp", "name", "input", "output"):
            fields.get(name)  # the observations say the same
    yield from _observations(fields, inside or [fields], given)
    if inside:
        yield from fields.unread(_OF_LANGFUSE)


def _observations(trace: Fields, observations: list[Fields], given: Given) -> Iterator[Told]:
    """Observations of one trace; `trace` is the trace, or the only observation."""
    session = trace.text("sessionId", "session_id")
    user = trace.text("userId", "user_id")
    trace_id = trace.text("traceId", "trace_id", "id", required=True) or ""
    steps = [_observed(fields, trace_id, given, (session, user)) for fields in observations]
    yield from told(steps, given)
    for fields in observations:
        yield from fields.unread(_OF_LANGFUSE)


def _observed(
    fields: Fields, trace_id: str, given: Given, whose: tuple[str | None, str | None]
) -> Step:
    own_id = fields.text("id", required=True) or ""
    kind = (fields.text("type") or "generation").lower()
    failed = fields.text("level") == "ERROR"
    begin_ms = fields.ms(given, "startTime", "start_time", "timestamp", required=True) or 0
    names = ("usageDetails", "usage_details", "usage")
    usage = fields.inner(next(filter(fields.__contains__, names), names[0]))
    fields.get(*names)
    return Step(
        form=LANGFUSE,
        trace=fields.text("traceId", "trace_id") or trace_id,
        step=own_id,
        parent=fields.text("parentObservationId", "parent_observation_id") or "",
        name=fields.text("name") or kind,
        start_ms=begin_ms,
        end_ms=fields.ms(given, "endTime", "end_time") or begin_ms,
        attributes={
            "langfuse.observation.type": "chain" if kind in _NO_KINDS and not failed else kind,
            "openinference.span.kind": "agent" if kind in _NO_KINDS and failed else None,
            "langfuse.observation.input": fields.get("input"),
            "langfuse.observation.output": fields.get("output"),
            "langfuse.observation.level": "ERROR" if failed else None,
            "langfuse.observation.status_message": fields.text("statusMessage", "status_message"),
            "langfuse.observation.model.name": fields.text("model", "provided_model_name"),
            "gen_ai.usage.input_tokens": usage.get("input", "promptTokens"),
            "gen_ai.usage.output_tokens": usage.get("output", "completionTokens"),
            "tool.name": fields.text("name"),
            "session.id": fields.text("sessionId", "session_id") or whose[0],
            "user.id": fields.text("userId", "user_id") or whose[1],
        },
    )


LANGSMITH: Final = "langsmith"
_QUESTIONS: Final = ("messages", "prompts", "prompt", "input")
_ANSWERS: Final = ("generations", "choices", "messages", "message", "output")
_OF_LANGCHAIN: Final = ("extra.metadata.ls_", "extra.metadata.lang", "extra.metadata.LANG")
"""What LangChain itself writes down beside a run."""
_KINDS: Final = {"llm": "llm", "tool": "tool", "retriever": "retriever", "embedding": "embedding"}
_OF_LANGSMITH: Final = (
    *("id", "session_id", "app_path", "manifest_id", "status", "dotted_order", "serialized"),
    *("parent_run_id", "parent_run_ids", "child_run_ids", "reference_example_id", "in_dataset"),
    *("total_tokens", "total_cost", "prompt_cost", "completion_cost", "first_token_time"),
    *("prompt_token_details", "completion_token_details", "prompt_cost_details"),
    *("completion_cost_details", "inputs_preview", "outputs_preview", "replicas", "events"),
    *("execution_order", "last_queued_at", "share_token", "trace_tier", "trace_upgrade"),
    *("ttl_seconds", "trace_first_received_at", "trace_min_start_time", "trace_max_start_time"),
    *("inputs_s3_urls", "outputs_s3_urls", "s3_urls", "session_name", "tenant_id"),
    *("child_runs", "direct_child_run_ids", "price_model_id", "messages", "latency"),
)


def is_langsmith(record: Any) -> bool:
    """Whether it is a run."""
    return isinstance(record, dict) and {"run_type", "start_time", "id"} <= record.keys()


def langsmith_events(record: Any, given: Given) -> Iterator[Told]:
    """The events of one run.

    Raises:
        InvalidInput: it has no id, no type or no time.
    """
    run = Fields(record)
    run_id = run.text("id", required=True) or ""
    trace = run.text("trace_id") or run_id
    begin_ms = run.ms(given, "start_time", required=True) or 0
    kind = _KINDS.get(run.text("run_type", required=True) or "", "")
    error = run.text("error")
    inputs, outputs = run.inner("inputs"), run.inner("outputs")
    extra = run.inner("extra")
    metadata = extra.inner("metadata")
    session = metadata.text(*SESSION_NAMES) or trace
    attributes: dict[str, Any] = {
        # a chain says nothing but that it failed, as an agent does
        "openinference.span.kind": kind or ("agent" if error else "chain"),
        "session.id": session,
        "user.id": metadata.text("user_id"),
        "gen_ai.agent.name": metadata.text("agent_name", "langgraph_node"),
        "gen_ai.request.model": metadata.text("ls_model_name"),
        "gen_ai.usage.input_tokens": run.get("prompt_tokens"),
        "gen_ai.usage.output_tokens": run.get("completion_tokens"),
    }
    if kind == "llm":
        attributes[INPUT] = inputs.get(*_QUESTIONS)
        attributes[OUTPUT] = outputs.get(*_ANSWERS) or run.get("outputs")
        yield from inputs.unread(SETTINGS)
    else:
        attributes["input.value"] = run.get("inputs")
        attributes["output.value"] = outputs.get("documents") or run.get("outputs")
        attributes["tool.name"] = run.text("name")
    step = Step(
        form=LANGSMITH,
        trace=trace,
        step=run_id,
        parent=run.text("parent_run_id") or "",
        name=run.text("name") or kind,
        start_ms=begin_ms,
        end_ms=run.ms(given, "end_time") or begin_ms,
        attributes=attributes,
        error=error,
    )
    yield from told([step], given)
    yield from run.unread(_OF_LANGSMITH)
    yield from extra.unread(("runtime", "invocation_params", "batch_size", "options"))
    for part in metadata.unread(("revision_id", "thread_id", "checkpoint_ns")):
        if not part.field.startswith(_OF_LANGCHAIN):
            yield part
