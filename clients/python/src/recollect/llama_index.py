"""LlamaIndex: a memory block, which keeps what leaves the short-term memory and answers from it.

from recollect.llama_index import RecollectMemoryBlock

block = RecollectMemoryBlock(memory=recollect, session="s-1", user="ana")
memory = Memory.from_defaults(session_id="s-1", memory_blocks=[block])
"""

from __future__ import annotations

from typing import Any

from pydantic import Field, PrivateAttr

from recollect.conversations import Conversation, Item, Part, called, returned, said, thought
from recollect.frameworks import needed
from recollect.histories import awaited
from recollect.questions import ask

with needed("llama-index"):
    from llama_index.core.base.llms.types import (
        ChatMessage,
        MessageRole,
        TextBlock,
        ThinkingBlock,
        ToolCallBlock,
    )
    from llama_index.core.memory import BaseMemoryBlock


class RecollectMemoryBlock(BaseMemoryBlock[str]):
    """Keeps messages as events, and says what of the whole memory helps with the latest message.

    LlamaIndex gives a block only what its short-term memory has no more room for: with its default
    limits that is nothing until some 21,000 tokens were said. `Memory.from_defaults(…,
    token_limit=…, chat_history_token_ratio=…)` decides when.

    Attributes:
        memory: a `Memory` or an `AsyncMemory`.
        session: where messages are kept, and in which it is asked.
        agent: who acts; default the memory's.
        user: the person concerned; default the memory's.
        max_tokens: of what it says.
    """

    name: str = "recollect"
    description: str | None = "What the memory knows that helps with the latest message."
    memory: Any
    session: str
    agent: str | None = None
    user: str | None = None
    max_tokens: int = Field(default=1_000, ge=50, le=32_000)
    _conversation: Conversation = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:
        """The conversation that is kept."""
        self._conversation = Conversation(
            self.memory, self.session, agent=self.agent, user=self.user
        )

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        questions = [each.content for each in messages or () if each.role == MessageRole.USER]
        if not questions or not questions[-1]:
            return ""
        place = self.memory.session(self.session, agent=self.agent, user=self.user)
        plan = ask(self.memory.asker(place), questions[-1], True, {"max_tokens": self.max_tokens})
        return (await awaited(self.memory, plan)).text

    async def _aput(self, messages: list[ChatMessage]) -> None:
        items = [Item(each.model_dump(mode="json"), _parts(each)) for each in messages]
        await awaited(self.memory, self._conversation.add(items))


def _parts(message: ChatMessage) -> list[Part]:
    kwargs = message.additional_kwargs
    if message.role in (MessageRole.TOOL, MessageRole.FUNCTION):
        call_id = str(kwargs.get("tool_call_id"))
        return [returned(kwargs.get("name"), message.content or "", call_id)]
    parts: list[Part] = []
    for block in message.blocks:
        if isinstance(block, TextBlock) and block.text:
            parts.append(said(message.role.value, block.text))
        elif isinstance(block, ThinkingBlock) and block.content:
            parts.append(thought(block.content))
        elif isinstance(block, ToolCallBlock):
            parts.append(called(block.tool_name, block.tool_kwargs, block.tool_call_id or ""))
    return parts
