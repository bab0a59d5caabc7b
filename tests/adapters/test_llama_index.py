"""The memory block of LlamaIndex, in LlamaIndex' own memory."""

from __future__ import annotations

from itertools import pairwise

import pytest
from llama_index.core.base.llms.types import (
    ChatMessage,
    MessageRole,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.memory import Memory as LlamaMemory

from recollect import AsyncMemory, Memory
from recollect.llama_index import RecollectMemoryBlock

MESSAGES = [
    ChatMessage("Charge order 4711", role=MessageRole.USER),
    ChatMessage(
        role=MessageRole.ASSISTANT,
        blocks=[
            ThinkingBlock(content="It may fail."),
            TextBlock(text="I charge it."),
            ToolCallBlock(tool_call_id="c1", tool_name="charge", tool_kwargs={"order": "4711"}),
        ],
    ),
    ChatMessage(
        '{"error": "the gateway is away"}',
        role=MessageRole.TOOL,
        additional_kwargs={"tool_call_id": "c1"},
    ),
    ChatMessage("It failed.", role=MessageRole.ASSISTANT),
]


async def test_what_leaves_the_short_term_memory_is_kept_and_answers(
    memory: Memory, name: str
) -> None:
    block = RecollectMemoryBlock(memory=memory, session=name, user=name)
    llama = LlamaMemory.from_defaults(
        session_id=name,
        token_limit=120,
        chat_history_token_ratio=0.3,
        token_flush_size=20,
        tokenizer_fn=str.split,
        memory_blocks=[block],
    )
    await llama.aput(ChatMessage("My violin is a copy by Gand", role="user"))
    for number in range(12):
        await llama.aput(ChatMessage(f"Note {number} is of no concern at all", role="user"))
    await llama.aput(ChatMessage("Whose copy is my violin?", role="user"))
    messages = await llama.aget()
    assert "My violin is a copy by Gand" in str(messages[0].content)
    assert all("violin is a copy" not in str(each.content) for each in messages[1:])
    assert "violin is a copy by Gand" in memory.ask("violin?", session=name, user=name).text


async def test_messages_are_events_with_their_causes(awaiting: AsyncMemory, name: str) -> None:
    block = RecollectMemoryBlock(memory=awaiting, session=name)
    await block.aput(MESSAGES)
    await awaiting.wait()
    context = await awaiting.context(name)
    order = sorted(context.nodes, key=lambda node: node.provenance.occurred_at or "")
    told = [
        (n.attributes["event_type"], n.attributes["tool_name"], n.attributes["status"])
        for n in order
    ]
    assert told == [
        ("message.user", None, None),
        ("agent.thought", None, None),
        ("message.assistant", None, None),
        ("tool.call", "charge", None),
        ("tool.result", "charge", "failed"),
        ("message.assistant", None, None),
    ]
    causes = {(e.source, e.target) for e in context.edges if e.type == "CAUSED_BY"}
    ids = [node.node_id for node in order]
    assert causes >= set(pairwise(reversed(ids)))


@pytest.mark.parametrize("messages", [[], [ChatMessage("Hello", role="assistant")]])
async def test_without_a_question_it_says_nothing(
    memory: Memory, name: str, messages: list[ChatMessage]
) -> None:
    assert await RecollectMemoryBlock(memory=memory, session=name).aget(messages) == ""


async def test_it_asks_as_whom_it_was_made_for_wherever_it_is_called(
    memory: Memory, name: str
) -> None:
    block = RecollectMemoryBlock(memory=memory, session=name, user="ana")
    memory.session(name, user="ana").log("user", "My locker code is 1906")
    memory.session(name, user="ben").log("user", "My locker code is 2207")
    memory.wait()
    with memory.session("elsewhere", user="ben"):
        told = await block.aget([ChatMessage("Which locker code?", role="user")])
    assert "1906" in told
    assert "2207" not in told
