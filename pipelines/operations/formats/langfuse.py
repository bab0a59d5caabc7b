"""Langfuse: traces with their observations, or observations one by one.

Shapes (langfuse/langfuse, `fern/apis/server/definition/commons.yml`: `Trace`,
`TraceWithFullDetails`, `ObservationsView`; exports to a bucket name the same fields in snake_case):
a trace has `id`, `timestamp`, `sessionId`, `userId`, `input`, `output`, `observations[]`; an
observation `id`, `traceId`, `parentObservationId`, `type` (GENERATION, SPAN, EVENT, TOOL, AGENT …),
`startTime`, `endTime`, `model`, `input`, `output`, `level`, `statusMessage`, `usageDetails`.

A trace whose observations are in it is told by them. One without any is told as a call of a model:
its input and its output. Of one that only names its observations they stand elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipelines.operations.formats.mapped import Fields, Given, Told, Unmapped
from pipelines.operations.formats.spans import Step, told

FORM: Final = "langfuse"
_NO_KINDS: Final = ("span", "event")
_BOOKKEEPING: Final = (
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


def sniff(record: Any) -> bool:
    """Whether it is an observation, or a trace."""
    if not isinstance(record, dict):
        return False
    names = record.keys()
    return (
        {"startTime", "traceId"} <= names
        or {"start_time", "trace_id", "type"} <= names
        or ({"timestamp", "id"} <= names and not names.isdisjoint(("observations", "sessionId")))
    )


def events(record: Any, given: Given) -> Iterator[Told]:
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
        yield from fields.unread(_BOOKKEEPING)


def _observations(trace: Fields, observations: list[Fields], given: Given) -> Iterator[Told]:
    """Observations of one trace; `trace` is the trace, or the only observation."""
    session = trace.text("sessionId", "session_id")
    user = trace.text("userId", "user_id")
    trace_id = trace.text("traceId", "trace_id", "id", required=True) or ""
    steps = [_step(fields, trace_id, given, (session, user)) for fields in observations]
    yield from told(steps, given)
    for fields in observations:
        yield from fields.unread(_BOOKKEEPING)


def _step(
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
        form=FORM,
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
