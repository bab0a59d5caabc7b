"""The agent with the OpenAI Agents SDK: its runner keeps the conversation in the session."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

from agents import Agent, FunctionTool, RunContextWrapper, Runner, set_tracing_disabled
from agents.items import ModelResponse
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from recollect import Memory
from recollect.openai_agents import RecollectSession
from tests.five_ways.story import (
    AGENT,
    SESSION,
    TURNS,
    USER,
    Call,
    Door,
    calls,
    door_of_environment,
    told,
)


class Scripted(Model):
    """A model that says what the story says."""

    def __init__(self) -> None:
        self._outputs = self._script()

    def _script(self) -> Iterator[Any]:
        for turn in TURNS:
            for call in turn.calls:
                yield ResponseFunctionToolCall(
                    type="function_call",
                    call_id=call.call_id,
                    name=call.tool,
                    arguments=json.dumps(call.arguments),
                    id=f"fc_{call.call_id}",
                    status="completed",
                )
            text = ResponseOutputText(type="output_text", text=turn.answer, annotations=[])
            yield ResponseOutputMessage(
                type="message", id="msg", role="assistant", status="completed", content=[text]
            )

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        """The next output."""
        return ModelResponse(output=[next(self._outputs)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        """Nobody streams here."""
        raise NotImplementedError


def _tool(call: Call) -> FunctionTool:
    async def invoke(context: RunContextWrapper[Any], arguments: str) -> str:
        try:
            return json.dumps(call.carry_out())
        except ConnectionError as error:
            return json.dumps({"error": told(error)})

    schema = {"type": "object", "properties": {name: {} for name in call.arguments}}
    return FunctionTool(
        name=call.tool,
        description=call.tool,
        params_json_schema=schema,
        on_invoke_tool=invoke,
        strict_json_schema=False,
    )


def tools() -> list[FunctionTool]:
    """All that it may call."""
    return [_tool(call) for call in calls().values()]


async def run(door: Door) -> None:
    """Tell the story."""
    set_tracing_disabled(True)
    agent = Agent(name=AGENT, model=Scripted(), tools=tools())
    with Memory(door.url, door.key, tenant=door.tenant, agent=AGENT, user=USER) as memory:
        session = RecollectSession(SESSION, memory)
        for turn in TURNS:
            result = await Runner.run(agent, turn.asked, session=session)
            assert result.final_output == turn.answer


if __name__ == "__main__":
    asyncio.run(run(door_of_environment()))
