"""What can go wrong, as one tree; each class says whether the same again may succeed.

RecollectError
├── ApiError               the API answered with a problem (RFC 9457)
│   ├── InvalidInput       400 405 408 413 415 422 431   `errors` names fields and rules
│   ├── Unauthenticated    401
│   ├── Forbidden          403
│   ├── NotFound           404
│   ├── EventConflict      409   the id is taken by other content
│   ├── Overloaded         429   retryable, after `retry_after_s`
│   ├── Unavailable        502 503  retryable, after `retry_after_s`
│   ├── TimeLimit          504   ask for less, or allow more time
│   └── ServerFault        500   `request_id` finds it in the log of the API
├── ConnectionFailed       nothing answered, or the connection broke; retryable
│   └── NoAnswer           in time: retryable, but a question is not asked again by itself
├── UnexpectedAnswer       what answered is not the API, or is too old or too new
├── ClientClosed           asked after `close()`: make another client
└── LocalServicesFailed    `Memory.local()` could not start or stop the embedded services
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recollect.models import FieldError, Problem

PROBLEM_PREFIX: Final = "urn:recollect:problem:"


class RecollectError(Exception):
    """Base of everything that this package raises.

    Attributes:
        retryable: whether the same request may succeed later.
    """

    retryable: bool = False


class ApiError(RecollectError):
    """The API answered with a problem.

    Attributes:
        kind: what follows `urn:recollect:problem:` in its type.
        status: of the answer.
        detail: what happened this time, for people.
        errors: which field broke which rule.
        request_id: under which the log of the API has it.
        retry_after_s: how long the API asks to wait; None: it does not say.
    """

    def __init__(self, problem: Problem, *, retry_after_s: float | None = None) -> None:
        self.kind = problem.type.removeprefix(PROBLEM_PREFIX)
        self.status = problem.status
        self.title = problem.title
        self.detail = problem.detail
        self.errors: tuple[FieldError, ...] = tuple(problem.errors)
        self.request_id = problem.request_id
        self.retry_after_s = retry_after_s
        super().__init__(self._text())

    def _text(self) -> str:
        rules = "; ".join(f"{error.field}: {error.rule}" for error in self.errors)
        return f"{self.title}: {rules or self.detail}"


class InvalidInput(ApiError):
    """What was sent breaks a rule."""


class Unauthenticated(ApiError):
    """The key is missing or unknown."""


class Forbidden(ApiError):
    """The key does not allow this."""


class NotFound(ApiError):
    """There is none, or this key may not know of it."""


class EventConflict(ApiError):
    """The event's id is taken by an event with other content."""


class Overloaded(ApiError):
    """More than the API takes now, or than this key may send."""

    retryable = True


class Unavailable(ApiError):
    """The ledger or the graph is away."""

    retryable = True


class TimeLimit(ApiError):
    """The answer was not found in time, or the graph is not as far as was asked for."""


class ServerFault(ApiError):
    """A defect of the API."""


class ConnectionFailed(RecollectError):
    """Nothing answered, or the connection broke."""

    retryable = True


class NoAnswer(ConnectionFailed):
    """Nothing answered in time."""


class UnexpectedAnswer(RecollectError):
    """What answered is not the API that this client knows."""


class ClientClosed(RecollectError):
    """This client was closed; nothing was sent."""


class LocalServicesFailed(RecollectError):
    """The embedded services could not be started or stopped."""


class UndeliveredWarning(UserWarning):
    """Events were dropped or refused; told once, then only counted and called back."""


BY_STATUS: Final[Mapping[int, type[ApiError]]] = {
    **dict.fromkeys((400, 405, 408, 413, 415, 422, 431), InvalidInput),
    401: Unauthenticated,
    403: Forbidden,
    404: NotFound,
    409: EventConflict,
    429: Overloaded,
    500: ServerFault,
    **dict.fromkeys((502, 503), Unavailable),  # 502: of a proxy whose API restarts
    504: TimeLimit,
}


def api_error(problem: Problem, *, retry_after_s: float | None = None) -> ApiError:
    """The error of a problem, typed by its status."""
    kind = BY_STATUS.get(problem.status)
    if kind is None:
        kind = ServerFault if problem.status >= 500 else InvalidInput
    return kind(problem, retry_after_s=retry_after_s)
