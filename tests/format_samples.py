"""Small files of foreign formats, made by hand, and what becomes of them."""

from __future__ import annotations

from typing import Any, NamedTuple

from pipelines.operations.formats.table import Format


class Sample(NamedTuple):
    """Records of a format.

    Attributes:
        records: as a file holds them, one a line.
        events: of all of them in order: type, time, session, user, tool, status.
        unmapped: fields that are told as left out.
    """

    form: Format
    records: list[dict[str, Any]]
    events: list[tuple[str | None, ...]]
    unmapped: set[str] = set()  # noqa: RUF012 - nobody writes to it


def completion(number: int = 1, **more: Any) -> dict[str, Any]:
    """A chat completion with its request."""
    return {
        "request": {
            "model": "gpt-5",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": f"Refund order {number}?"},
            ],
            "user": "maya",
        },
        "response": {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1_767_225_600 + 60 * number,
            "model": "gpt-5-2026",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "tool_calls",
                    "message": {
                        "role": "assistant",
                        "content": "I look.",
                        "tool_calls": [
                            {
                                "id": "call_abc123def456",
                                "type": "function",
                                "function": {"name": "find_order", "arguments": '{"id": 4711}'},
                            }
                        ],
                    },
                }
            ],
            "usage": {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19},
        },
        "session_id": "shop",
        **more,
    }


RESPONSE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "created_at": 1_767_225_660,
    "status": "completed",
    "model": "gpt-5",
    "instructions": "Be kind.",
    "input": "Where is my parcel?",
    "output": [
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [{"type": "summary_text", "text": "Track it."}],
        },
        {
            "type": "function_call",
            "id": "fc_1",
            "call_id": "call_xyz987",
            "name": "track",
            "arguments": '{"parcel": "P-1"}',
        },
        {
            "type": "message",
            "id": "msg_1",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "It is in Kiel.", "annotations": []}],
        },
    ],
    "usage": {"input_tokens": 5, "output_tokens": 4},
    "metadata": {"conversation_id": "parcels", "user_id": "maya", "tier": "gold"},
}

FAILED: dict[str, Any] = {
    "id": "resp_2",
    "object": "response",
    "created_at": 1_767_225_700,
    "status": "failed",
    "error": {"code": "server_error", "message": "The model is away."},
    "output": [],
    "input": [{"role": "user", "content": "Hello?"}],
}

MESSAGE: dict[str, Any] = {
    "created_at": "2026-01-01T10:00:00+02:00",
    "session_id": "desk",
    "user_id": "tom",
    "request": {
        "model": "claude",
        "system": "You are a clerk.",
        "messages": [
            {"role": "user", "content": "Book a room."},
            {
                "role": "assistant",
                "content": [
                    {"type": "tool_use", "id": "toolu_01AB", "name": "book", "input": {"n": 1}}
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "toolu_01AB", "content": "room 12"}
                ],
            },
        ],
    },
    "response": {
        "id": "msg_01",
        "type": "message",
        "role": "assistant",
        "model": "claude",
        "content": [{"type": "text", "text": "Room 12 is yours."}],
        "stop_reason": "end_turn",
        "usage": {"input_tokens": 30, "output_tokens": 8},
    },
}

CLAUDE_EXPORT: dict[str, Any] = {
    "uuid": "11111111-0000-4000-8000-000000000001",
    "name": "A trip",
    "created_at": "2026-01-02T08:00:00Z",
    "updated_at": "2026-01-02T08:05:00Z",
    "account": {"uuid": "acc-1"},
    "chat_messages": [
        {
            "uuid": "m-1",
            "sender": "human",
            "text": "When does the train leave?",
            "created_at": "2026-01-02T08:00:01Z",
            "attachments": [{"file_name": "ticket.pdf"}],
        },
        {
            "uuid": "m-2",
            "sender": "assistant",
            "text": "At nine.",
            "created_at": "2026-01-02T08:00:01Z",
        },
    ],
}


def run(number: int, run_type: str, **more: Any) -> dict[str, Any]:
    """A run of LangSmith."""
    return {
        "id": f"00000000-0000-4000-8000-{number:012}",
        "trace_id": "00000000-0000-4000-8000-000000000001",
        "name": run_type,
        "run_type": run_type,
        "start_time": f"2026-01-03T09:00:{number:02}.5",
        "end_time": f"2026-01-03T09:00:{number:02}.9",
        "session_id": "99999999-0000-4000-8000-000000000000",
        "extra": {"metadata": {"thread_id": "t-1", "user_id": "ann"}},
        "dotted_order": "x",
        **more,
    }


LANGSMITH = [
    run(1, "chain", inputs={"q": 1}, outputs={"a": 2}),
    run(
        2,
        "llm",
        parent_run_id="00000000-0000-4000-8000-000000000001",
        inputs={
            "messages": [
                [
                    {
                        "lc": 1,
                        "type": "constructor",
                        "id": ["langchain", "schema", "messages", "HumanMessage"],
                        "kwargs": {"content": "Is it raining in Oslo?", "type": "human"},
                    }
                ]
            ]
        },
        outputs={
            "generations": [
                [
                    {
                        "text": "",
                        "message": {
                            "lc": 1,
                            "type": "constructor",
                            "kwargs": {
                                "type": "ai",
                                "content": "",
                                "tool_calls": [
                                    {
                                        "name": "weather",
                                        "args": {"city": "Oslo"},
                                        "id": "call_w1e2a3t4h5",
                                    }
                                ],
                            },
                        },
                    }
                ]
            ]
        },
        prompt_tokens=9,
        completion_tokens=3,
        feedback_stats={"score": 1},
    ),
    run(
        3,
        "tool",
        name="weather",
        inputs={"input": '{"city": "Oslo"}'},
        outputs={"output": {"type": "tool", "content": "rain", "tool_call_id": "call_w1e2a3t4h5"}},
    ),
    run(
        4,
        "retriever",
        name="docs",
        inputs={"query": "umbrellas"},
        outputs={"documents": [{"page_content": "Shop 3"}]},
    ),
    run(5, "chain", error="ValueError('no umbrella')"),
]

LANGFUSE: list[dict[str, Any]] = [
    {
        "id": "trace-1",
        "timestamp": "2026-01-04T10:00:00.000Z",
        "name": "support",
        "sessionId": "s-9",
        "userId": "kim",
        "input": "Reset my password",
        "output": "Done",
        "tags": ["prod"],
        "scores": [],
        "observations": [
            {
                "id": "obs-1",
                "traceId": "trace-1",
                "type": "GENERATION",
                "name": "answer",
                "startTime": "2026-01-04T10:00:01.000Z",
                "endTime": "2026-01-04T10:00:03.000Z",
                "model": "gpt-5",
                "input": [{"role": "user", "content": "Reset my password"}],
                "output": {"role": "assistant", "content": "Done"},
                "usageDetails": {"input": 4, "output": 1, "total": 5},
                "level": "DEFAULT",
                "metadata": {"k": "v"},
            },
            {
                "id": "obs-2",
                "traceId": "trace-1",
                "parentObservationId": "obs-1",
                "type": "TOOL",
                "name": "reset",
                "startTime": "2026-01-04T10:00:02.000Z",
                "endTime": "2026-01-04T10:00:02.500Z",
                "input": {"user": "kim"},
                "output": {"ok": True},
                "level": "ERROR",
                "statusMessage": "mail server away",
            },
        ],
    },
    {
        "id": "obs-3",
        "traceId": "trace-2",
        "type": "SPAN",
        "name": "route",
        "startTime": "2026-01-04T10:01:00Z",
        "input": {"a": 1},
    },
    {
        "id": "trace-3",
        "timestamp": "2026-01-04T10:02:00Z",
        "observations": ["obs-7"],
        "sessionId": None,
    },
    {
        "id": "trace-4",
        "timestamp": "2026-01-04T10:03:00Z",
        "sessionId": "s-9",
        "observations": [],
        "input": "Bye",
        "output": "See you",
    },
]

TRAJECTORY: dict[str, Any] = {
    "environment": "swe_main",
    "trajectory": [
        {
            "thought": "I look at the tests.",
            "action": "open tests/test_a.py\n",
            "observation": "[File: tests/test_a.py]",
            "response": "…",
            "state": {},
            "execution_time": 1.5,
            "query": [],
            "extra_info": {},
        },
        {
            "thought": "",
            "action": "submit",
            "observation": "Error: nothing to submit",
            "execution_time": 0.25,
        },
    ],
    "history": [
        {
            "role": "system",
            "content": "You fix bugs.",
            "agent": "main",
            "message_type": "system_prompt",
        },
        {
            "role": "user",
            "content": "The sum is wrong.",
            "agent": "main",
            "message_type": "observation",
        },
        {"role": "assistant", "content": "I look at the tests.", "message_type": "action"},
    ],
    "info": {
        "exit_status": "submitted",
        "submission": "diff --git a b",
        "model_stats": {"calls": 2},
    },
    "replay_config": "{}",
}

GRAPHITI: list[dict[str, Any]] = [
    {
        "uuid": "22222222-0000-4000-8000-000000000001",
        "name": "turn 1",
        "group_id": "ann",
        "labels": [],
        "created_at": "2026-02-01T00:00:00Z",
        "source": "message",
        "source_description": "chat",
        "content": "Ann: I live in Lyon.",
        "valid_at": "2026-01-05T12:00:00Z",
        "entity_edges": ["e-1"],
    },
    {
        "uuid": "22222222-0000-4000-8000-000000000002",
        "name": "order",
        "group_id": "ann",
        "created_at": "2026-02-01T00:00:00Z",
        "source": "json",
        "source_description": "shop",
        "content": '{"order": "ORD-1", "state": "paid"}',
        "valid_at": "2026-01-05T12:00:05Z",
    },
    {
        "uuid": "e-1",
        "group_id": "ann",
        "name": "LIVES_IN",
        "fact": "Ann lives in Lyon",
        "created_at": "2026-02-01T00:00:00Z",
        "source_node_uuid": "a",
        "target_node_uuid": "b",
    },
]

MEM0: list[dict[str, Any]] = [
    {
        "id": "mem-1",
        "memory": "Prefers window seats",
        "hash": "h",
        "user_id": "alice",
        "categories": ["travel"],
        "created_at": "2026-01-06T07:00:00-08:00",
        "updated_at": "2026-01-07T07:00:00-08:00",
        "structured_attributes": {"day": 6},
    },
    {
        "id": "mem-2",
        "memory": "Is allergic to nuts",
        "user_id": "alice",
        "agent_id": "cook",
        "run_id": "dinner",
        "metadata": {"by": "form"},
        "created_at": "2026-01-06T07:00:00",
        "updated_at": None,
    },
]

ZEP: list[dict[str, Any]] = [
    {
        "thread_id": "thread-1",
        "user_id": "jane",
        "messages": [
            {
                "uuid": "z-1",
                "role_type": "user",
                "role": "Jane",
                "content": "My flight is LH 400.",
                "created_at": "2026-01-08T06:00:00Z",
                "processed": True,
            },
            {
                "uuid": "z-2",
                "role_type": "assistant",
                "content": "Noted.",
                "created_at": "2026-01-08T06:00:01Z",
            },
        ],
    },
    {
        "uuid": "z-3",
        "source": "json",
        "content": '{"seat": "14A"}',
        "created_at": "2026-01-08T06:01:00Z",
        "session_id": "thread-1",
    },
    {
        "uuid": "f-1",
        "fact": "Jane flies",
        "source_node_uuid": "a",
        "created_at": "2026-01-08T06:02:00Z",
    },
]

_OSLO = "t-1", "ann"
SAMPLES: list[Sample] = [
    Sample(
        Format.OPENAI,
        [completion()],
        [
            ("message.system", "2026-01-01T00:00:59.900Z", "shop", "maya", None, None),
            ("message.user", "2026-01-01T00:01:00.000Z", "shop", "maya", None, None),
            ("message.assistant", "2026-01-01T00:01:00.002Z", "shop", "maya", None, "completed"),
            ("tool.call", "2026-01-01T00:01:00.003Z", "shop", "maya", "find_order", None),
        ],
    ),
    Sample(
        Format.OPENAI,
        [RESPONSE, FAILED],
        [
            ("message.system", "2026-01-01T00:00:59.900Z", "parcels", "maya", None, None),
            ("message.user", "2026-01-01T00:01:00.000Z", "parcels", "maya", None, None),
            ("agent.thought", "2026-01-01T00:01:00.001Z", "parcels", "maya", None, None),
            ("message.assistant", "2026-01-01T00:01:00.002Z", "parcels", "maya", None, "completed"),
            ("tool.call", "2026-01-01T00:01:00.003Z", "parcels", "maya", "track", None),
            ("message.user", "2026-01-01T00:01:40.000Z", "resp_2", None, None, None),
            ("llm.failed", "2026-01-01T00:01:40.002Z", "resp_2", None, None, "failed"),
        ],
        {"metadata.tier"},
    ),
    Sample(
        Format.ANTHROPIC,
        [MESSAGE],
        [
            ("message.system", "2026-01-01T07:59:58.900Z", "desk", "tom", None, None),
            ("message.user", "2026-01-01T07:59:59.000Z", "desk", "tom", None, None),
            ("tool.call", "2026-01-01T07:59:59.003Z", "desk", "tom", "book", None),
            ("tool.result", "2026-01-01T08:00:00.000Z", "desk", "tom", "book", "completed"),
            ("message.assistant", "2026-01-01T08:00:00.002Z", "desk", "tom", None, "completed"),
        ],
    ),
    Sample(
        Format.ANTHROPIC,
        [CLAUDE_EXPORT],
        [
            (
                "message.user",
                "2026-01-02T08:00:01.000Z",
                CLAUDE_EXPORT["uuid"],
                "acc-1",
                None,
                None,
            ),
            (
                "message.assistant",
                "2026-01-02T08:00:01.001Z",
                CLAUDE_EXPORT["uuid"],
                "acc-1",
                None,
                None,
            ),
        ],
        {"chat_messages[].attachments"},
    ),
    Sample(
        Format.LANGSMITH,
        LANGSMITH,
        [
            ("message.user", "2026-01-03T09:00:02.500Z", *_OSLO, None, None),
            ("tool.call", "2026-01-03T09:00:02.901Z", *_OSLO, "weather", None),
            ("tool.result", "2026-01-03T09:00:03.900Z", *_OSLO, "weather", "completed"),
            ("retrieval.call", "2026-01-03T09:00:04.500Z", *_OSLO, "docs", None),
            ("retrieval.result", "2026-01-03T09:00:04.900Z", *_OSLO, "docs", "completed"),
            ("agent.failed", "2026-01-03T09:00:05.900Z", *_OSLO, None, "failed"),
        ],
        {"(record)", "feedback_stats"},
    ),
    Sample(
        Format.LANGFUSE,
        LANGFUSE,
        [
            ("message.user", "2026-01-04T10:00:01.000Z", "s-9", "kim", None, None),
            ("tool.call", "2026-01-04T10:00:02.000Z", "s-9", "kim", "reset", None),
            ("tool.result", "2026-01-04T10:00:02.500Z", "s-9", "kim", "reset", "failed"),
            ("message.assistant", "2026-01-04T10:00:03.000Z", "s-9", "kim", None, "completed"),
            ("message.user", "2026-01-04T10:03:00.000Z", "s-9", None, None, None),
            ("message.assistant", "2026-01-04T10:03:00.002Z", "s-9", None, None, "completed"),
        ],
        {"(record)", "observations[].metadata", "tags"},
    ),
    Sample(
        Format.SWE_AGENT,
        [TRAJECTORY],
        [
            ("message.system", None, None, None, None, None),
            ("message.user", None, None, None, None, None),
            ("agent.thought", None, None, None, None, None),
            ("tool.call", None, None, None, "open", None),
            ("tool.result", None, None, None, None, "completed"),
            ("tool.call", None, None, None, "submit", None),
            ("tool.result", None, None, None, None, "failed"),
            ("message.assistant", None, None, None, None, None),
        ],
        {"(times)"},
    ),
    Sample(
        Format.GRAPHITI,
        GRAPHITI,
        [
            ("message.user", "2026-01-05T12:00:00.000Z", "ann", None, None, None),
            ("record.imported", "2026-01-05T12:00:05.000Z", "ann", None, None, None),
        ],
        {"(record)", "name", "source_description"},
    ),
    Sample(
        Format.MEM0,
        MEM0,
        [
            ("message.memory", "2026-01-07T15:00:00.000Z", "mem0-alice", "alice", None, None),
            ("message.memory", "2026-01-06T07:00:00.000Z", "dinner", "alice", None, None),
        ],
        {"structured_attributes"},
    ),
    Sample(
        Format.ZEP,
        ZEP,
        [
            ("message.user", "2026-01-08T06:00:00.000Z", "thread-1", "jane", None, None),
            ("message.assistant", "2026-01-08T06:00:01.000Z", "thread-1", "jane", None, None),
            ("record.imported", "2026-01-08T06:01:00.000Z", "thread-1", None, None, None),
        ],
        {"fact"},
    ),
]
