"""The agent as a LangGraph: a node puts what is new into the store, where memories are kept."""

from __future__ import annotations

import json
from typing import Any

from langchain_core.language_models import FakeMessagesListChatModel
from langchain_core.messages import AIMessage, BaseMessage, convert_to_openai_messages
from langchain_core.tools import StructuredTool
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.store.base import BaseStore

from recollect import Memory
from recollect.langgraph import RecollectStore
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


def _script() -> list[BaseMessage]:
    answers: list[BaseMessage] = []
    for turn in TURNS:
        for call in turn.calls:
            wanted = {"id": call.call_id, "name": call.tool, "args": call.arguments}
            answers.append(AIMessage("", tool_calls=[wanted]))
        answers.append(AIMessage(turn.answer))
    return answers


def _tool(call: Call) -> StructuredTool:
    def carry_out(**arguments: Any) -> str:
        return json.dumps(call.carry_out())

    schema = {"type": "object", "properties": {name: {} for name in call.arguments}}
    return StructuredTool.from_function(
        carry_out, name=call.tool, description=call.tool, args_schema=schema, infer_schema=False
    )


def _told(error: Exception) -> str:
    return json.dumps({"error": told(error)})


def _remember(state: MessagesState, *, store: BaseStore) -> None:
    for message in state["messages"]:
        assert message.id is not None
        if store.get((SESSION,), message.id) is None:
            store.put((SESSION,), message.id, convert_to_openai_messages(message))


def agent(after: str = END) -> StateGraph[MessagesState]:
    """A model and its tools; `after` names the node behind its answer."""
    model = FakeMessagesListChatModel(responses=_script())
    graph = StateGraph(MessagesState)
    graph.add_node("model", lambda state: {"messages": [model.invoke(state["messages"])]})
    graph.add_node("tools", ToolNode(list(map(_tool, calls().values())), handle_tool_errors=_told))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition, {"tools": "tools", END: after})
    graph.add_edge("tools", "model")
    return graph


def run(door: Door) -> None:
    """Tell the story."""
    graph = agent(after="remember")
    graph.add_node("remember", _remember)
    graph.add_edge("remember", END)
    with Memory(door.url, door.key, tenant=door.tenant, agent=AGENT, user=USER) as memory:
        compiled = graph.compile(store=RecollectStore(memory))
        messages: list[Any] = []
        for turn in TURNS:
            state = compiled.invoke({"messages": [*messages, ("user", turn.asked)]})
            messages = state["messages"]
            assert messages[-1].content == turn.answer


if __name__ == "__main__":
    run(door_of_environment())
