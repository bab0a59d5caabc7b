"""LangSmith: exported runs, one JSON object a line, in any order.

Shape (langchain-ai/langsmith-sdk, `python/langsmith/schemas.py`, `RunBase` and `Run`): `id`,
`trace_id`, `parent_run_id`, `run_type` (llm, tool, retriever, chain, prompt, parser, embedding),
`start_time`, `end_time` (without a zone they are UTC), `inputs`, `outputs`, `error`,
`extra.metadata`. `session_id` is LangSmith's project: the conversation is in the metadata
(`session_id`, `thread_id`, `conversation_id`), else the trace.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pipelines.operations.formats.mapped import Fields, Given, Told
from pipelines.operations.formats.spans import INPUT, OUTPUT, SESSION_NAMES, SETTINGS, Step, told

FORM: Final = "langsmith"
_QUESTIONS: Final = ("messages", "prompts", "prompt", "input")
_ANSWERS: Final = ("generations", "choices", "messages", "message", "output")
_OF_LANGCHAIN: Final = ("extra.metadata.ls_", "extra.metadata.lang", "extra.metadata.LANG")
"""What LangChain itself writes down beside a run."""
_KINDS: Final = {"llm": "llm", "tool": "tool", "retriever": "retriever", "embedding": "embedding"}
_BOOKKEEPING: Final = (
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


def sniff(record: Any) -> bool:
    """Whether it is a run."""
    return isinstance(record, dict) and {"run_type", "start_time", "id"} <= record.keys()


def events(record: Any, given: Given) -> Iterator[Told]:
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
        form=FORM,
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
    yield from run.unread(_BOOKKEEPING)
    yield from extra.unread(("runtime", "invocation_params", "batch_size", "options"))
    for part in metadata.unread(("revision_id", "thread_id", "checkpoint_ns")):
        if not part.field.startswith(_OF_LANGCHAIN):
            yield part
