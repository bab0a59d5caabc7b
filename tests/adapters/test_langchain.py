"""Chat history and retriever of LangChain; the retriever by LangChain's own suite, too."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_core.runnables.history import RunnableWithMessageHistory
from langchain_tests.integration_tests import RetrieversIntegrationTests

from recollect import AsyncMemory, Memory
from recollect.langchain import RecollectChatMessageHistory, RecollectRetriever

MESSAGES: list[BaseMessage] = [
    SystemMessage("Be brief", id="m0"),
    HumanMessage("Refund order 4711", additional_kwargs={"source": "mail"}),
    HumanMessage(
        [{"type": "text", "text": "See"}, {"type": "image", "url": "https://a.org/b.png"}]
    ),
    AIMessage(
        "I refund it.",
        tool_calls=[
            {"id": "c1", "name": "refund", "args": {"order": 4711}, "type": "tool_call"},
            {"id": "c2", "name": "notify", "args": {}, "type": "tool_call"},
        ],
        usage_metadata={"input_tokens": 3, "output_tokens": 4, "total_tokens": 7},
    ),
    ToolMessage("no answer", tool_call_id="c1", name="refund", status="error"),
    ToolMessage("sent", tool_call_id="c2", artifact={"raw": [1, 2]}),
    AIMessage("It failed."),
]


def test_messages_come_back_as_they_were(memory: Memory, name: str) -> None:
    history = RecollectChatMessageHistory(name, memory, user=name)
    assert history.messages == []
    history.add_messages(MESSAGES)
    history.add_user_message("Thanks")
    again = RecollectChatMessageHistory(name, memory, user=name)
    assert again.messages == [*MESSAGES, HumanMessage("Thanks")]
    again.clear()
    assert history.messages == []
    assert RecollectChatMessageHistory(name, memory, user="ben").messages == []


def test_they_are_events_with_their_causes(memory: Memory, name: str) -> None:
    RecollectChatMessageHistory(name, memory).add_messages(MESSAGES)
    memory.wait()
    context = memory.context(name)
    order = sorted(context.nodes, key=lambda node: node.provenance.occurred_at or "")
    told = [
        (n.attributes["event_type"], n.attributes["tool_name"], n.attributes["status"])
        for n in order
    ]
    assert told == [
        ("message.system", None, None),
        ("message.user", None, None),
        ("message.user", None, None),
        ("message.assistant", None, None),
        ("tool.call", "refund", None),
        ("tool.call", "notify", None),
        ("tool.result", "refund", "failed"),
        ("tool.result", "notify", "completed"),
        ("message.assistant", None, None),
    ]
    causes = {(e.source, e.target) for e in context.edges if e.type == "CAUSED_BY"}
    place = {node.node_id: number for number, node in enumerate(order)}
    edges = {(place[effect], place[cause]) for effect, cause in causes}
    assert edges >= set(enumerate([0, 1, 2, 3, 3, 4, 5, 7], start=1))


def test_a_chain_goes_on_where_it_was(memory: Memory, name: str) -> None:
    model = FakeMessagesListChatModel(responses=[AIMessage("Hello Ana"), AIMessage("You are Ana")])
    chain = RunnableWithMessageHistory(
        model, lambda session_id: RecollectChatMessageHistory(session_id, memory)
    )
    config: Any = {"configurable": {"session_id": name}}
    chain.invoke([HumanMessage("I am Ana")], config)
    chain.invoke([HumanMessage("Who am I?")], config)
    words = [m.content for m in RecollectChatMessageHistory(name, memory).messages]
    assert words == ["I am Ana", "Hello Ana", "Who am I?", "You are Ana"]


async def test_an_awaiting_memory_keeps_and_finds_as_well(awaiting: AsyncMemory, name: str) -> None:
    history = RecollectChatMessageHistory(name, awaiting)
    await history.aadd_messages([HumanMessage("The lamp in the hall is a Tizio")])
    assert await history.aget_messages() == [HumanMessage("The lamp in the hall is a Tizio")]
    retriever = RecollectRetriever(memory=awaiting, session=name)
    documents = await retriever.ainvoke("Which lamp is in the hall?")
    assert documents[0].page_content == "The lamp in the hall is a Tizio"
    await history.aclear()
    assert await history.aget_messages() == []


def test_a_document_says_what_happened_and_whence(memory: Memory, name: str) -> None:
    session = memory.session(name)
    said = session.log("user", "The kiln was fired at 1,240 degrees")
    placed = session.log("kiln.fired", {"kiln": "K-7", "degrees": 1240})
    memory.wait()
    documents = RecollectRetriever(memory=memory, session=name, k=20).invoke("kiln fired degrees?")
    by_id = {document.id: document for document in documents}
    assert by_id[said].page_content == "The kiln was fired at 1,240 degrees"
    assert by_id[placed].page_content == '{"degrees": 1240, "kiln": "K-7"}'
    assert by_id[said].metadata["session_id"] == name
    assert by_id[said].metadata["event_type"] == "message.user"
    assert 0 < by_id[said].metadata["score"] <= 1
    assert all(document.page_content for document in documents)


def test_it_asks_as_whom_it_was_made_for_wherever_it_is_called(memory: Memory, name: str) -> None:
    memory.session(name, user="ana").log("user", "My locker code is 1906")
    memory.session(name, user="ben").log("user", "My locker code is 2207")
    memory.wait()
    retriever = RecollectRetriever(memory=memory, session=name, user="ana")
    with memory.session("elsewhere", user="ben"):
        seen = [document.page_content for document in retriever.invoke("locker code?")]
        assert "My locker code is 1906" in seen
        assert "My locker code is 2207" not in seen


class TestRetriever(RetrieversIntegrationTests):
    """LangChain's suite."""

    @pytest.fixture(autouse=True)
    def _known(self, memory: Memory) -> None:
        self.memory = memory
        for number in range(4):
            memory.log("user", f"The comet number {number} was seen over Oslo")

    @property
    def retriever_constructor(self) -> type[RecollectRetriever]:
        return RecollectRetriever

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory}

    @property
    def retriever_query_example(self) -> str:
        return "Which comet was seen over Oslo?"
