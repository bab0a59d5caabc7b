"""The code of `docs/how-to/frameworks.md`, with the real packages and scripted models."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import Runner, set_tracing_disabled
from llama_index.core.memory import Memory as LlamaMemory
from pydantic_ai import Agent

from recollect import Memory
from tests.adapters.conftest import KEY, URL
from tests.adapters.test_openai_agents import Scripted
from tests.adapters.test_openai_agents import says as openai_says
from tests.adapters.test_pydantic_ai import calls, says, scripted

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "frameworks.md"
MOST_LINES = 5
ROW = re.compile(r"\| (?P<name>[^|]+) \| (?P<lines>\d+) \| (?P<calls>\d+) \| Recollect \|")


def sections() -> dict[str, list[str]]:
    """The blocks of code of each section, by the framework that its title names."""
    text = PAGE.read_text(encoding="utf-8")
    parts = re.split(r"^## (.*)$", text, flags=re.MULTILINE)
    blocks = {
        title.partition(":")[0]: re.findall(r"```python\n(.*?)```", body, re.DOTALL)
        for title, body in zip(parts[1::2], parts[2::2], strict=True)
    }
    return {title: found for title, found in blocks.items() if found}


def run(title: str, tenant: str, **names: Any) -> None:
    """Run the code of a section; what `turn` it defines is called twice."""
    with pytest.MonkeyPatch.context() as patch:
        opened: list[Memory] = []

        class OfTest(Memory):
            def __init__(self, url: str, key: str, **options: Any) -> None:
                super().__init__(url, key, **options, tenant=tenant)
                opened.append(self)

        patch.setattr("recollect.Memory", OfTest)
        space = {"url": URL, "key": KEY, **names}
        exec("\n".join(sections()[title]), space)
        if "turn" in space:
            answers = [asyncio.run(space["turn"](asked)) for asked in ("Hello", "And now?")]
            assert answers == ["Hi.", "Still me."]
        for memory in opened:
            memory.close()


def test_the_session_of_the_page(capsys: pytest.CaptureFixture[str], tenant: str) -> None:
    set_tracing_disabled(True)
    agent = OpenAIAgent(name="desk", model=Scripted(openai_says("I look into it.")))
    run("OpenAI Agents SDK", tenant, Runner=Runner, agent=agent)
    assert "My card was charged twice" in capsys.readouterr().out


def test_the_store_of_the_page(capsys: pytest.CaptureFixture[str], tenant: str) -> None:
    run("LangGraph", tenant)
    assert capsys.readouterr().out.splitlines() == [
        "{'text': 'Ana prefers Envialia'}",
        "[('ana', 'code'), ('ana', 'preferences'), ('ana', 'talk')] {'text': '1906'}",
    ]


def test_the_tools_and_the_history_of_the_page(
    capsys: pytest.CaptureFixture[str], tenant: str
) -> None:
    model = scripted(
        calls("ask", question="Which courier?"), says("None yet."), says("Hi."), says("Still me.")
    )
    run("Pydantic AI", tenant, Agent=Agent, model=model)
    assert capsys.readouterr().out == "None yet.\n"


def test_the_history_and_the_retriever_of_the_page(
    capsys: pytest.CaptureFixture[str], tenant: str
) -> None:
    run("LangChain", tenant)
    assert capsys.readouterr().out == "The lamp in the hall is a Tizio\n"


def test_the_block_of_the_page(tenant: str) -> None:
    run("LlamaIndex", tenant, LlamaMemory=LlamaMemory)


def test_the_table_of_the_page_tells_how_long_its_code_is() -> None:
    counted = {
        title: len([line for line in blocks[0].splitlines() if line.strip()])
        for title, blocks in sections().items()
    }
    rows = ROW.finditer(PAGE.read_text(encoding="utf-8"))
    told = {row["name"].partition(" `")[0]: int(row["lines"]) for row in rows}
    assert told.pop("Python client") <= MOST_LINES
    assert told.keys() == {"LangGraph", "OpenAI Agents", *counted} - {"OpenAI Agents SDK"}
    assert told == {title.removesuffix(" SDK"): lines for title, lines in counted.items()}
    assert max(told.values()) <= MOST_LINES
