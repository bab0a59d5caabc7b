"""The session of the OpenAI Agents SDK, beside the SDK's own one in SQLite."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise
from typing import Any

import pytest
from agents import Agent, RunConfig, Runner, Session, SQLiteSession, function_tool
from agents.items import ModelResponse
from agents.memory import SessionSettings
from agents.models.interface import Model
from agents.usage import Usage
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
)

from recollect import AsyncMemory, InvalidInput, Memory
from recollect.openai_agents import RecollectSession

QUIET = RunConfig(tracing_disabled=True)
CALLED = {"type": "function_call", "call_id": "c1", "name": "refund", "arguments": '{"order": 4}'}
RETURNED = {"type": "function_call_output", "call_id": "c1", "output": '{"done": true}'}
EVERY_KIND: list[Any] = [
    {"role": "developer", "content": "Be brief"},
    {"role": "user", "content": "Refund order 4711", "history": "a field of one's own"},
    {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "See the picture"},
            {"type": "input_image", "image_url": "https://example.org/a.png", "detail": "auto"},
        ],
    },
    {
        "type": "reasoning",
        "id": "rs_1",
        "summary": [{"type": "summary_text", "text": "A refund is wanted"}],
        "encrypted_content": "Zm9v",
    },
    {**CALLED, "id": "fc_1", "status": "completed"},
    {**CALLED, "call_id": "c2", "arguments": "{broken"},
    {**RETURNED, "output": [{"type": "input_text", "text": "half of it"}]},
    {**RETURNED, "call_id": "c2", "output": ""},
    {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "Done.", "annotations": [], "logprobs": []}],
    },
    {"type": "reasoning", "id": "rs_2", "summary": []},
]


class Scripted(Model):
    """Says one output after the other."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs = list(outputs)
        self.inputs: list[Any] = []

    async def get_response(
        self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any
    ) -> ModelResponse:
        self.inputs.append(input)
        return ModelResponse(output=[self.outputs.pop(0)], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def says(words: str) -> ResponseOutputMessage:
    text = ResponseOutputText(type="output_text", text=words, annotations=[])
    return ResponseOutputMessage(
        type="message", id="msg", role="assistant", status="completed", content=[text]
    )


async def test_items_come_back_as_they_were_and_to_whom_names_the_session(
    memory: Memory, name: str
) -> None:
    session = RecollectSession(name, memory, user="ana")
    assert isinstance(session, Session)
    assert await session.get_items() == []
    for item in EVERY_KIND:
        await session.add_items([item])
    await session.add_items(EVERY_KIND)

    other = RecollectSession(name, memory, user="ana")
    assert await other.get_items() == EVERY_KIND * 2
    assert await other.get_items(3) == EVERY_KIND[-3:]
    assert await session.get_items() == EVERY_KIND * 2
    assert await RecollectSession(name, memory, user="ben").get_items() == []


async def test_what_is_given_back_may_be_changed(memory: Memory, name: str) -> None:
    session = RecollectSession(name, memory)
    await session.add_items([{"role": "user", "content": [{"type": "input_text", "text": "a"}]}])
    (item,) = await session.get_items()
    item["content"][0]["text"] = "b"
    assert (await session.get_items())[0]["content"][0]["text"] == "a"


@pytest.mark.parametrize("seed", range(2))
async def test_it_answers_as_the_session_of_the_sdk(memory: Memory, name: str, seed: int) -> None:
    """Any sequence of operations, by two sessions of one name that take turns."""
    chance = random.Random(seed)
    ours = [RecollectSession(name, memory) for _ in range(2)]
    theirs = SQLiteSession(name)
    for number in range(25):
        session = chance.choice(ours)
        match chance.choice(("add", "add", "add", "pop", "get", "limit", "clear")):
            case "add":
                items = [
                    {"role": "user", "content": f"{number}.{part}"}
                    for part in range(chance.randrange(4))
                ]
                await session.add_items(items)
                await theirs.add_items(items)
            case "pop":
                assert await session.pop_item() == await theirs.pop_item()
            case "get":
                assert await session.get_items() == await theirs.get_items()
            case "limit":
                limit = chance.randrange(1, 5)
                assert await session.get_items(limit) == await theirs.get_items(limit)
            case "clear" if chance.random() < 0.3:
                await session.clear_session()
                await theirs.clear_session()
    expected = await theirs.get_items()
    assert await RecollectSession(name, memory).get_items() == expected


async def test_the_settings_of_the_sdk_limit_what_is_read(memory: Memory, name: str) -> None:
    session = RecollectSession(name, memory, session_settings=SessionSettings(limit=2))
    await session.add_items(EVERY_KIND)
    assert await session.get_items() == EVERY_KIND[-2:]
    assert len(await session.get_items(4)) == 4


async def test_who_adds_at_once_loses_nothing(memory: Memory, name: str) -> None:
    async def add(writer: int) -> None:
        session = RecollectSession(name, memory)
        for number in range(3):
            items = [{"role": "user", "content": f"{writer}.{number}.{part}"} for part in range(2)]
            await session.add_items(items)

    await asyncio.gather(*map(add, range(3)))
    words = [item["content"] for item in await RecollectSession(name, memory).get_items()]
    turns = [words[start : start + 2] for start in range(0, len(words), 2)]
    assert len(turns) == 9
    assert all([f"{turn[0][:-1]}{part}" for part in range(2)] == turn for turn in turns)
    for writer in range(3):
        own = [turn[0] for turn in turns if turn[0].startswith(f"{writer}.")]
        assert own == [f"{writer}.{number}.0" for number in range(3)]


async def test_who_pops_at_once_gets_different_items(memory: Memory, name: str) -> None:
    await RecollectSession(name, memory).add_items(
        [{"role": "user", "content": str(number)} for number in range(4)]
    )
    sessions = [RecollectSession(name, memory) for _ in range(4)]
    popped = await asyncio.gather(*(session.pop_item() for session in sessions))
    assert sorted(item["content"] for item in popped if item) == list("0123")
    assert await sessions[0].get_items() == []


async def test_a_run_is_remembered_with_its_causes(memory: Memory, name: str) -> None:
    @function_tool
    def charge(order: str) -> str:
        raise ConnectionError("the gateway is away")

    call = ResponseFunctionToolCall(
        type="function_call", call_id="c1", name="charge", arguments='{"order": "4711"}', id="f"
    )
    model = Scripted(call, says("It failed, sorry."), says("The gateway was away."))
    agent = Agent(name="payments", model=model, tools=[charge])
    session = RecollectSession(name, memory, user="ana")
    for asked in ("Charge order 4711", "Why?"):
        await Runner.run(agent, asked, session=session, run_config=QUIET)
    assert len(model.inputs[-1]) == 5

    memory.wait()
    context = memory.context(name, user="ana")
    order = sorted(context.nodes, key=lambda node: node.provenance.occurred_at or "")
    told = [(node.attributes["event_type"], node.attributes["status"]) for node in order]
    assert told == [
        ("message.user", None),
        ("tool.call", None),
        ("tool.result", "failed"),  # though the SDK says only that an error occurred
        ("message.assistant", None),
        ("message.user", None),
        ("message.assistant", None),
    ]
    causes = {(e.source, e.target) for e in context.edges if e.type == "CAUSED_BY"}
    ids = [node.node_id for node in order]
    assert causes >= set(pairwise(reversed(ids)))
    assert order[2].attributes["tool_name"] == "charge"


async def test_what_was_taken_back_is_out_of_the_conversation_alone(
    memory: Memory, name: str
) -> None:
    session = RecollectSession(name, memory)
    await session.add_items([{"role": "user", "content": "The walrus is called Wilma"}])
    await session.clear_session()
    await session.add_items([{"role": "user", "content": "Hello"}])
    assert await session.get_items() == [{"role": "user", "content": "Hello"}]
    memory.wait()
    assert "Wilma" in memory.ask("What is the walrus called?", session=name).text


async def test_what_cannot_be_an_event_is_refused_and_nothing_of_it_is_added(
    memory: Memory, name: str
) -> None:
    session = RecollectSession(name, memory)
    words: Any = [{"role": "user", "content": "a"}, {"role": "user", "content": "b" * 300_000}]
    with pytest.raises(InvalidInput, match="payload: at most 256 KiB"):
        await session.add_items(words)
    with pytest.raises(TypeError, match="not JSON serializable"):
        await session.add_items([{"role": "user", "content": object()}])
    assert await session.get_items() == []


async def test_an_awaiting_memory_keeps_it_as_well(awaiting: AsyncMemory, name: str) -> None:
    session = RecollectSession(name, awaiting)
    await session.add_items(EVERY_KIND)
    assert await session.pop_item() == EVERY_KIND[-1]
    assert await RecollectSession(name, awaiting).get_items() == EVERY_KIND[:-1]
