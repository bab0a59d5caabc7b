"""LangChain: the history of a chat, kept as events, and a retriever that asks the memory.

from recollect.langchain import RecollectChatMessageHistory, RecollectRetriever

history = RecollectChatMessageHistory("s-1", memory)
documents = RecollectRetriever(memory=memory).invoke("Why was the card charged twice?")
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from recollect.answers import Answer
from recollect.calls import Plan
from recollect.conversations import Item, Kept, Part, message_parts
from recollect.frameworks import needed
from recollect.histories import BESIDE, AnyMemory, awaited, carry_out
from recollect.models import Node
from recollect.questions import ask

with needed("langchain"):
    from langchain_core.callbacks import (
        AsyncCallbackManagerForRetrieverRun,
        CallbackManagerForRetrieverRun,
    )
    from langchain_core.chat_history import BaseChatMessageHistory
    from langchain_core.documents import Document
    from langchain_core.messages import (
        BaseMessage,
        ToolMessage,
        convert_to_openai_messages,
        message_to_dict,
        messages_from_dict,
    )
    from langchain_core.retrievers import BaseRetriever


class RecollectChatMessageHistory(Kept, BaseChatMessageHistory):
    """The messages of a chat. Whoever names the same session and user has the same ones.

    What is cleared is no more in the history, but the ledger and the memory keep it. With an
    `AsyncMemory` it has the methods that are awaited alone.
    """

    @property
    def messages(self) -> list[BaseMessage]:  # type: ignore[override]  # as LangChain's own have it
        """All messages, the earliest first."""
        return messages_from_dict(carry_out(self._memory, self._conversation.items()))

    async def aget_messages(self) -> list[BaseMessage]:
        """The same, awaited."""
        return messages_from_dict(await awaited(self._memory, self._conversation.items()))

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Add messages, all or none.

        Raises:
            ApiError: one cannot be an event: `errors` names field and rule.
        """
        carry_out(self._memory, self._conversation.add(_items(messages)))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """The same, awaited."""
        await awaited(self._memory, self._conversation.add(_items(messages)))

    def clear(self) -> None:
        """Take all messages back."""
        carry_out(self._memory, self._conversation.clear())

    async def aclear(self) -> None:
        """The same, awaited."""
        await awaited(self._memory, self._conversation.clear())


class RecollectRetriever(BaseRetriever):
    """Asks the memory; each document is something that happened, or a summary or fact of it.

    Attributes:
        memory: a `Memory` for `invoke`; `ainvoke` takes either.
        session: in which it is asked; default the memory's.
        agent: that asks, likewise.
        user: in whose view, likewise.
        k: documents at most.
        options: of `Memory.ask`, such as `as_of` or `kinds`.
    """

    memory: Any
    session: str | None = None
    agent: str | None = None
    user: str | None = None
    k: int = Field(default=10, ge=1, le=500)
    options: dict[str, Any] = Field(default_factory=dict)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return _documents(carry_out(self.memory, self._plan(query, k)))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[Document]:
        return _documents(await awaited(self.memory, self._plan(query, k)))

    def _plan(self, query: str, k: int | None) -> Plan[Answer]:
        memory: AnyMemory = self.memory
        place = memory.current_session
        if self.session is not None:
            place = memory.session(self.session, agent=self.agent, user=self.user)
        who = memory.asker(place, self.agent, self.user)
        return ask(who, query, False, {**_OPTIONS, "max_nodes": k or self.k, **self.options})


def _items(messages: Sequence[BaseMessage]) -> list[Item]:
    return [Item(message_to_dict(message), _parts(message)) for message in messages]


def _parts(message: BaseMessage) -> list[Part]:
    plain: dict[str, Any] = convert_to_openai_messages(message)
    if isinstance(message, ToolMessage):
        plain |= {"name": message.name, "status": message.status}
    return message_parts(plain)


_OPTIONS: Final = {"include": ["content"], "proactive": False}
_WORDS: Final = ("content", "text", "summary", "display_name", "name", "canonical_name")


def _documents(answer: Answer) -> list[Document]:
    documents = []
    for node in answer.nodes:
        source = node.provenance
        metadata = {
            "type": node.type,
            "event_type": node.attributes.get("event_type"),
            "event_id": source.event_id,
            "session_id": source.session_id,
            "agent_id": source.agent_id,
            "occurred_at": source.occurred_at,
            "score": node.scores.rank_score,
        }
        documents.append(Document(id=node.node_id, page_content=_words(node), metadata=metadata))
    return documents


def _words(node: Node) -> str:
    """What a node says: its words, or the JSON of what happened."""
    payload = {name: value for name, value in _fields(node.content) if name != BESIDE}
    for fields in (payload, {} if payload else node.attributes):
        words = next((fields[name] for name in _WORDS if fields.get(name)), None)
        if isinstance(words, str):
            return words
    return str(node.content or "") if not payload else json.dumps(payload, ensure_ascii=False)


def _fields(content: Any) -> Iterable[tuple[str, Any]]:
    return content.items() if isinstance(content, Mapping) else ()
