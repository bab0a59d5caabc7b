"""What happens, whoever tells it: a refund that fails, and a receipt that is sent."""

from __future__ import annotations

import os
from typing import Any, Final, NamedTuple

AGENT: Final = "payments"
USER: Final = "ana"
SESSION: Final = "desk-1"


class Call(NamedTuple):
    """A model asks for a tool, which returns something or raises."""

    call_id: str
    tool: str
    arguments: dict[str, Any]
    result: dict[str, Any] | None = None
    error: str = ""

    def carry_out(self) -> dict[str, Any]:
        """What the tool does."""
        if self.result is None:
            raise ConnectionError(self.error)
        return self.result


def told(error: Exception) -> dict[str, str]:
    """What an agent says of a tool that raised."""
    return {"message": str(error), "exception_type": type(error).__name__}


class Turn(NamedTuple):
    """A user asks, tools are called, the agent answers."""

    asked: str
    calls: tuple[Call, ...]
    answer: str


TURNS: Final = (
    Turn(
        "Please refund order ORD-4711, I was charged 84 euros twice by Northwind Bank.",
        (
            Call(
                "call_K8fQ2mX91",
                "refund_order",
                {"order": "ORD-4711", "amount": 84},
                error="gateway timeout after 30 seconds",
            ),
            Call(
                "call_T7cV5bN22",
                "check_gateway",
                {"region": "eu-west"},
                result={"state": "degraded", "waiting": 12},
            ),
        ),
        "The payment gateway in eu-west is degraded, so the refund of ORD-4711 failed.",
    ),
    Turn(
        "Then send the receipt to Maria Keller, she moved from Hamburg to Lisbon.",
        (
            Call(
                "call_R4gH6jL33",
                "send_receipt",
                {"order": "ORD-4711", "to": "Maria Keller"},
                result={"receipt": "RC-881", "sent": True},
            ),
        ),
        "Receipt RC-881 went to Maria Keller.",
    ),
)

QUESTIONS: Final = (
    "Why did the refund of ORD-4711 fail?",
    "What did the user ask for first?",
    "Who got the receipt?",
    "Where does Maria Keller live?",
    "What is the state of the payment gateway?",
    "Which tools failed?",
    "How many tools were called?",
    "What happened after the refund failed?",
    "When was the receipt sent?",
    "What has Northwind Bank to do with order ORD-4711?",
)


class Door(NamedTuple):
    """Where to tell it."""

    url: str
    key: str
    tenant: str


def door_of_environment() -> Door:
    """As a process of its own is told."""
    return Door(*(os.environ[f"RECOLLECT_TEST_{name}"] for name in ("URL", "KEY", "TENANT")))


def calls() -> dict[str, Call]:
    """By the name of the tool."""
    return {call.tool: call for turn in TURNS for call in turn.calls}
