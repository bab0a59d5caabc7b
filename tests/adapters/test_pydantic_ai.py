"""The message history and the toolset of Pydantic AI, with its own scripted model."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel

from recollect import AsyncMemory, Memory
from recollect.pydantic_ai import MessageHistory, memory_toolset


def scripted(*answers: ModelResponse) -> FunctionModel:
    left = list(answers)

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        return left.pop(0)

    return FunctionModel(answer)


def calls(tool: str, **arguments: Any) -> ModelResponse:
    return ModelResponse([ToolCallPart(tool, arguments)])


def says(words: str) -> ModelResponse:
    return ModelResponse([TextPart(words)])


async def test_runs_go_on_where_they_were_and_are_events(memory: Memory, name: str) -> None:
    def charge(order: str) -> dict[str, str]:
        return {"error": "the gateway is away"}

    thinks = ModelResponse([ThinkingPart("It may fail."), *calls("charge", order="4711").parts])
    agent = Agent(
        scripted(thinks, says("It failed."), says("The gateway was away.")), tools=[charge]
    )
    history = MessageHistory(name, memory, user=name)
    first = await agent.run("Charge order 4711", message_history=await history.load())
    await history.add(first.new_messages())
    second = await agent.run("Why?", message_history=await history.load())
    await history.add(second.new_messages())

    again = MessageHistory(name, memory, user=name)
    assert await again.load() == second.all_messages()
    assert await again.load(2) == second.all_messages()[-2:]
    memory.wait()
    context = memory.context(name, user=name)
    order = sorted(context.nodes, key=lambda node: node.provenance.occurred_at or "")
    told = [(node.attributes["event_type"], node.attributes["status"]) for node in order]
    assert told == [
        ("message.user", None),
        ("agent.thought", None),
        ("tool.call", None),
        ("tool.result", "failed"),
        ("message.assistant", None),
        ("message.user", None),
        ("message.assistant", None),
    ]
    causes = {(e.source, e.target) for e in context.edges if e.type == "CAUSED_BY"}
    ids = [node.node_id for node in order]
    assert causes >= set(pairwise(reversed(ids)))
    await again.clear()
    assert await history.load() == []


async def test_a_model_remembers_and_asks_by_tools(awaiting: AsyncMemory, name: str) -> None:
    toolset = memory_toolset(awaiting, session=name, user=name)
    model = scripted(
        calls("remember", text="Ana prefers the courier Envialia."),
        calls("ask", question="Which courier does Ana prefer?"),
        calls("why", question="Why was the parcel lost?"),
        calls("facts", question="What is known of Envialia?"),
        says("Envialia."),
    )
    result = await Agent(model, toolsets=[toolset]).run("Which courier?")
    returned = {
        part.tool_name: str(part.content)
        for message in result.all_messages()
        for part in message.parts
        if isinstance(part, ToolReturnPart)
    }
    assert result.output == "Envialia."
    assert returned["remember"] == "remembered"
    assert "Ana prefers the courier Envialia." in returned["ask"]
    assert set(returned) == {"remember", "ask", "why", "facts"}
    assert all(returned.values())
    assert awaiting.counts.accepted == 1


async def test_tools_tell_a_model_what_they_want(memory: Memory) -> None:
    seen: list[AgentInfo] = []

    def answer(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        seen.append(info)
        return says("done")

    await Agent(FunctionModel(answer), toolsets=[memory_toolset(memory)]).run("Hello")
    tools = {tool.name: tool for tool in seen[0].function_tools}
    assert set(tools) == {"remember", "ask", "why", "facts"}
    schema = tools["ask"].parameters_json_schema
    assert schema["required"] == ["question"]
    assert schema["properties"]["question"]["description"] == "as the user put it."
