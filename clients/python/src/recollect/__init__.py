"""Memory for AI agents: log what happens, ask what is known, why, and what it proves.

from recollect import Memory

memory = Memory("http://127.0.0.1:8080", key)
with memory.session("s-1", agent="payments") as session:
    session.log("user", "My card was charged twice")
print(memory.ask("why was the card charged twice?").text)
"""

from recollect.answers import Answer, Entities, Facts, Person, Value
from recollect.async_memory import AsyncMemory
from recollect.delivery import Counts, Undelivered
from recollect.errors import (
    ApiError,
    ClientClosed,
    ConnectionFailed,
    EventConflict,
    Forbidden,
    InvalidInput,
    LocalServicesFailed,
    NoAnswer,
    NotFound,
    Overloaded,
    RecollectError,
    ServerFault,
    TimeLimit,
    Unauthenticated,
    Unavailable,
    UndeliveredWarning,
    UnexpectedAnswer,
)
from recollect.memory import Memory
from recollect.models import Change
from recollect.sessions import Session
from recollect.why import Cause, Lesson, Why

__all__ = [
    "Answer",
    "ApiError",
    "AsyncMemory",
    "Cause",
    "Change",
    "ClientClosed",
    "ConnectionFailed",
    "Counts",
    "Entities",
    "EventConflict",
    "Facts",
    "Forbidden",
    "InvalidInput",
    "Lesson",
    "LocalServicesFailed",
    "Memory",
    "NoAnswer",
    "NotFound",
    "Overloaded",
    "Person",
    "RecollectError",
    "ServerFault",
    "Session",
    "TimeLimit",
    "Unauthenticated",
    "Unavailable",
    "Undelivered",
    "UndeliveredWarning",
    "UnexpectedAnswer",
    "Value",
    "Why",
]
