"""What goes over the wire, without a socket: requests, how replies are read, when to try again.

A plan is a generator of steps. It asks for one, is sent what came of it, and returns the answer; so
one plan serves the client that blocks and the one that awaits.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Generic, TypeAlias, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import from_json

from recollect.errors import (
    PROBLEM_PREFIX,
    ApiError,
    NoAnswer,
    RecollectError,
    UnexpectedAnswer,
    api_error,
)
from recollect.models import Problem

JSON: Final = "application/json"
MARKDOWN: Final = "text/markdown"
ATTEMPTS: Final = 4
LONGEST_PAUSE_S: Final = 10.0
_FIRST_PAUSE_S: Final = 0.2
GRACE_S: Final = 5.0
"""Beyond the time that the API has: for the way there and back."""

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)


@dataclass(frozen=True)
class Reply:
    """What came back."""

    status: int
    headers: Mapping[str, str]
    content: bytes


@dataclass(frozen=True)
class Call(Generic[T]):
    """A request, and how its answer is read.

    Attributes:
        method: of HTTP.
        path: behind the address of the API.
        read: makes the answer of what came back.
        body: sent as JSON; bytes are JSON already.
        query: parameters of the address.
        accept: the form of the answer.
        timeout_s: for all of it.
    """

    method: str
    path: str
    read: Callable[[bytes], T]
    body: Mapping[str, Any] | bytes | None = None
    query: Mapping[str, Any] | None = None
    accept: str = JSON
    timeout_s: float = 30.0

    def with_fields(self, **fields: Any) -> Call[T]:
        """The same with other parameters, wherever this call has them."""
        if isinstance(self.body, Mapping):
            return replace(self, body={**self.body, **fields})
        return replace(self, query={**(self.query or {}), **fields})

    def as_text(self) -> Call[str]:
        """The same question, answered as text; counted as read only once."""
        text = Call(
            self.method,
            self.path,
            bytes.decode,
            body=self.body,
            query=self.query,
            accept=MARKDOWN,
            timeout_s=self.timeout_s,
        )
        return text.with_fields(record_access=False)


@dataclass(frozen=True)
class Pause:
    """Wait so many seconds."""

    seconds: float


@dataclass(frozen=True)
class Flush:
    """Wait until what was logged is with the API, or cannot be; what comes of it: whether so."""

    timeout_s: float


Step: TypeAlias = "Call[Any] | Pause | Flush"
Plan: TypeAlias = Generator[Step, Any, T]


def model_reader(model: type[ModelT]) -> Callable[[bytes], ModelT]:
    """Reads an answer as a model."""
    return model.model_validate_json


def exchange(call: Call[T], attempts: int = ATTEMPTS, *, is_repeatable: bool = False) -> Plan[T]:
    """Carry out a call, again where that may help.

    Args:
        call: to carry out.
        attempts: in all.
        is_repeatable: whether it may be made again when nothing answered in time: it costs little,
            and if the first did arrive, the second changes nothing.

    Raises:
        RecollectError: as the API, or nobody, answered in the end.
    """
    for attempt in range(1, attempts + 1):
        try:
            reply = yield call
            return answer_of(call, reply)
        except RecollectError as error:
            late = isinstance(error, NoAnswer) and not is_repeatable
            if not error.retryable or late or attempt == attempts:
                raise
            pause_s = pause_before(error, attempt)
        yield Pause(pause_s)
    raise AssertionError("attempts is at least 1")


def answer_of(call: Call[T], reply: Reply) -> T:
    """What the reply says.

    Raises:
        ApiError: it is a problem.
        UnexpectedAnswer: it is nothing that the API says.
    """
    if reply.status >= 400:
        raise error_of(reply)
    try:
        if reply.status >= 300:
            raise ValueError(f"status {reply.status}")
        return call.read(reply.content)
    except ValueError as error:  # also what pydantic and UTF-8 say
        reason = f"{call.method} {call.path}: {_first_line(error)}"
        raise UnexpectedAnswer(
            f"What answered is not the API that is known here ({reason})"
        ) from error


def error_of(reply: Reply) -> ApiError:
    """The error that a reply of 400 and more tells; a proxy in between has no problem to show."""
    try:
        problem = Problem.model_validate(from_json(reply.content))
    except (ValidationError, ValueError):
        problem = Problem(
            type=f"{PROBLEM_PREFIX}unknown",
            title=f"HTTP {reply.status}",
            status=reply.status,
            detail=reply.content[:200].decode(errors="replace"),
        )
    # The header alone is believed to be of this answer.
    return api_error(
        problem.model_copy(update={"status": reply.status}),
        retry_after_s=_seconds(reply.headers.get("retry-after")),
    )


def pause_before(error: RecollectError, attempt: int) -> float:
    """Seconds until the next attempt: what the API asks for, else twice as long each time."""
    wanted = getattr(error, "retry_after_s", None)
    if wanted is not None:
        return float(min(wanted, LONGEST_PAUSE_S) * random.uniform(1.0, 1.1))
    longest: float = min(_FIRST_PAUSE_S * 2.0 ** min(attempt - 1, 16), LONGEST_PAUSE_S)
    return longest * random.uniform(0.5, 1.0)


def _seconds(text: str | None) -> float | None:
    return float(text) if text is not None and text.isdigit() else None


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:200]
