"""What real instrumentations send, recorded with scripted models: the same small story each time.

An order is looked up, a refund fails, the agent says so. Recorded in November 2026 with
pydantic-ai 2.68, LangGraph 1.2 under openinference-instrumentation-langchain 0.1.80, Langfuse 5.0;
attributes that nothing reads are left out, and paths of the machine are replaced.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest

from api.otlp.json_wire import read_spans
from tests.otlp_factories import envelopes, mapped

RECORDINGS: Final = Path(__file__).parent / "otlp_recordings"

LOOKED_UP: Final = [
    ("message.system", None, None),
    ("message.user", None, None),
    ("message.assistant", None, "completed"),
    ("tool.call", "lookup", None),
    ("tool.result", "lookup", "completed"),
]
EXPECTED: Final[dict[str, list[tuple[str, str | None, str | None]]]] = {
    "pydantic_ai": [
        ("message.system", None, None),
        ("message.user", None, None),
        ("message.assistant", None, "completed"),
        ("tool.call", "lookup_order", None),
        ("tool.result", "lookup_order", "completed"),
        ("message.assistant", None, "completed"),
        ("tool.call", "refund_payment", None),
        ("tool.result", "refund_payment", "failed"),
        ("tool.call", "check_gateway", None),
        ("tool.result", "check_gateway", "completed"),
        ("message.assistant", None, "completed"),
    ],
    "langgraph_openinference": [
        *LOOKED_UP,
        ("tool.call", "refund", None),
        ("tool.result", "refund", "failed"),  # its span has no call id
        ("message.assistant", None, "completed"),
    ],
    "langfuse": [
        ("message.user", None, None),
        ("message.assistant", None, "completed"),
        ("tool.call", "refund", None),
        ("tool.result", "refund", "failed"),
    ],
}


def recorded(name: str) -> list[dict[str, Any]]:
    return envelopes(read_spans((RECORDINGS / f"{name}.json").read_bytes()))


@pytest.mark.parametrize("name", EXPECTED)
def test_a_recording_tells_the_story(name: str) -> None:
    told = [
        (event["event_type"], event.get("tool_name"), event.get("status"))
        for event in recorded(name)
    ]
    assert sorted(told, key=str) == sorted(EXPECTED[name], key=str)


@pytest.mark.parametrize("name", ["pydantic_ai", "langgraph_openinference"])
def test_a_failure_leads_back_to_the_question(name: str) -> None:
    events = {event["event_id"]: event for event in recorded(name)}
    chains = []
    for event in events.values():
        if event.get("status") == "failed":
            chain = [event]
            while (parent := events.get(chain[-1].get("parent_event_id", ""))) is not None:
                chain.append(parent)
            chains.append([item["event_type"] for item in chain])
    longest = max(chains, key=len)
    assert longest[:2] == ["tool.result", "tool.call"]
    assert longest[-1] == "message.user"


@pytest.mark.parametrize("name", EXPECTED)
def test_nothing_in_a_recording_is_foreign(name: str) -> None:
    spans = read_spans((RECORDINGS / f"{name}.json").read_bytes())
    assert (mapped(spans).ignored, mapped(spans).refused) == (0, [])
