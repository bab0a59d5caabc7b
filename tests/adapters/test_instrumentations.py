"""Real instrumentations, which know nothing of the memory, with its address alone.

The agent of `tests/five_ways` is traced as its frameworks and OpenInference trace it; only what a
model answers is scripted.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import httpx2
import pytest
from agents import Agent as OpenAIAgent
from agents import (
    Model,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    set_trace_processors,
)
from agents.memory import SQLiteSession
from openai import AsyncOpenAI
from openinference.instrumentation import using_attributes
from openinference.instrumentation.langchain import LangChainInstrumentor
from openinference.instrumentation.openai_agents import OpenAIAgentsInstrumentor
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from pydantic_ai import Agent, ModelRetry, Tool
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.instrumented import InstrumentationSettings

from recollect import Memory
from recollect.answers import Answer
from tests.adapters.conftest import KEY, URL
from tests.five_ways import langgraph, openai_agents
from tests.five_ways.story import AGENT, SESSION, TURNS, USER, Call, calls

PATIENCE_S: Final = 30.0
SCRIPT: list[Call | str] = []
for _turn in TURNS:
    SCRIPT += [*_turn.calls, _turn.answer]


@pytest.fixture
def provider(tenant: str) -> Iterator[TracerProvider]:
    """Sends each span as it ends, so no request knows more than one."""
    headers = {"Authorization": f"Bearer {KEY}", "X-Tenant": tenant}
    exporter = OTLPSpanExporter(endpoint=f"{URL}/v1/traces", headers=headers)
    traces = TracerProvider()
    traces.add_span_processor(SimpleSpanProcessor(exporter))
    yield traces
    traces.shutdown()


def by_langchain(provider: TracerProvider) -> None:
    instrumentor = LangChainInstrumentor()
    instrumentor.instrument(tracer_provider=provider)
    try:
        messages: list[Any] = []
        graph = langgraph.agent().compile()
        for turn in TURNS:
            with using_attributes(session_id=SESSION, user_id=USER):
                state = graph.invoke({"messages": [*messages, ("user", turn.asked)]})
            messages = state["messages"]
            assert messages[-1].content == turn.answer
    finally:
        instrumentor.uninstrument()


def by_openai_agents(model: Callable[[AsyncOpenAI], Model]) -> Callable[[TracerProvider], None]:
    def tell(provider: TracerProvider) -> None:
        instrumentor = OpenAIAgentsInstrumentor()
        instrumentor.instrument(tracer_provider=provider)
        script = iter(SCRIPT)

        def answer(request: httpx2.Request) -> httpx2.Response:
            is_response = request.url.path.endswith("responses")
            return httpx2.Response(
                200, json=(response if is_response else completion)(next(script))
            )

        transport = httpx2.AsyncClient(transport=httpx2.MockTransport(answer))
        agent = OpenAIAgent(
            name=AGENT,
            model=model(AsyncOpenAI(api_key="none", http_client=transport)),
            tools=openai_agents.tools(),
        )
        session = SQLiteSession(SESSION)
        try:
            for turn in TURNS:
                with using_attributes(session_id=SESSION, user_id=USER):
                    result = Runner.run_sync(agent, turn.asked, session=session)
                assert result.final_output == turn.answer
        finally:
            instrumentor.uninstrument()
            set_trace_processors([])

    return tell


def response(item: Call | str) -> dict[str, Any]:
    """As the Responses API answers."""
    if isinstance(item, str):
        words = {"type": "output_text", "text": item, "annotations": []}
        told = {"type": "message", "role": "assistant", "content": [words]}
    else:
        arguments = json.dumps(item.arguments)
        told = {"type": "function_call", "name": item.tool, "arguments": arguments}
        told["call_id"] = item.call_id
    output = {**told, "id": "item", "status": "completed"}
    return {
        "id": "resp",
        "object": "response",
        "created_at": 1,
        "model": "gpt",
        "tools": [],
        "output": [output],
        "parallel_tool_calls": False,
        "tool_choice": "auto",
    }


def completion(item: Call | str) -> dict[str, Any]:
    """As the Chat Completions API answers."""
    message: dict[str, Any] = {"role": "assistant", "content": item}
    if not isinstance(item, str):
        function = {"name": item.tool, "arguments": json.dumps(item.arguments)}
        call = {"id": item.call_id, "type": "function", "function": function}
        message.update(content=None, tool_calls=[call])
    choice = {"index": 0, "finish_reason": "stop", "message": message}
    frame = {"id": "chat", "object": "chat.completion", "created": 1, "model": "gpt"}
    return {**frame, "choices": [choice]}


def by_pydantic_ai(provider: TracerProvider) -> None:
    script = iter(SCRIPT)

    def answer(*_: Any) -> ModelResponse:
        item = next(script)
        if isinstance(item, str):
            return ModelResponse([TextPart(item)])
        return ModelResponse([ToolCallPart(item.tool, item.arguments, tool_call_id=item.call_id)])

    agent = Agent(
        FunctionModel(answer),
        name=AGENT,
        tools=[pydantic_ai_tool(call) for call in calls().values()],
    )
    agent.instrument = InstrumentationSettings(tracer_provider=provider)
    history = None
    for turn in TURNS:
        result = agent.run_sync(turn.asked, message_history=history, conversation_id=SESSION)
        history = result.all_messages()
        assert result.output == turn.answer


def pydantic_ai_tool(call: Call) -> Tool[Any]:
    def carry_out(**arguments: Any) -> Any:
        try:
            return call.carry_out()
        except ConnectionError as error:
            raise ModelRetry(str(error)) from error

    schema = {"type": "object", "properties": {name: {} for name in call.arguments}}
    return Tool.from_schema(carry_out, name=call.tool, description=call.tool, json_schema=schema)


@pytest.mark.parametrize(
    ("tell", "user"),
    [
        (by_langchain, USER),
        (by_openai_agents(lambda client: OpenAIResponsesModel("gpt", client)), USER),
        (by_openai_agents(lambda client: OpenAIChatCompletionsModel("gpt", client)), USER),
        (by_pydantic_ai, None),
    ],
    ids=["langchain", "responses", "completions", "pydantic-ai"],
)
def test_what_a_framework_traces_is_a_memory(
    tell: Callable[[TracerProvider], None], user: str | None, provider: TracerProvider, tenant: str
) -> None:
    tell(provider)
    with Memory(URL, KEY, tenant=tenant, user=user) as memory:
        events = list(memory.changes(since="0", wait=False))
        events.sort(key=lambda event: event.occurred_at)
        assert [(event.event_type, event.tool_name, event.status) for event in events] == [
            ("message.user", None, None),
            ("tool.call", "refund_order", None),
            ("tool.result", "refund_order", "failed"),
            ("tool.call", "check_gateway", None),
            ("tool.result", "check_gateway", "completed"),
            ("message.assistant", None, "completed"),
            ("message.user", None, None),
            ("tool.call", "send_receipt", None),
            ("tool.result", "send_receipt", "completed"),
            ("message.assistant", None, "completed"),
        ]
        assert {event.session_id for event in events} == {SESSION}
        question = "Why did the refund of ORD-4711 fail?"
        eventually(lambda: evidence(memory.ask(question, session=SESSION)), [events[2].event_id])
        failed = "gateway timeout after 30 seconds"
        eventually(lambda: failed in memory.why(question, session=SESSION).text, True)


def evidence(answer: Answer) -> list[str]:
    """The events that prove it."""
    return [] if answer.value is None else list(answer.value.evidence)


def eventually(look: Callable[[], Any], wanted: Any) -> None:
    """The stages read events in a while; then it is so."""
    deadline = time.monotonic() + PATIENCE_S
    while (seen := look()) != wanted:
        assert time.monotonic() < deadline, seen
        time.sleep(0.2)
