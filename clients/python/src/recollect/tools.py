"""The decorator of tools: a call is logged before the function runs, its result when it is over."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

if TYPE_CHECKING:
    from recollect.sessions import Session

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
HIDDEN: Final = "[hidden]"
MESSAGE_CHARACTERS: Final = 2_000
_TIMEOUTS: Final = (TimeoutError, asyncio.TimeoutError)


def logged(
    function: FunctionT, session: Callable[[], Session], *, name: str | None, hide: frozenset[str]
) -> FunctionT:
    """The function, logged.

    Args:
        function: sync or async.
        session: where a call belongs, found when it begins.
        name: of the tool; None: the function's.
        hide: arguments whose values are not logged.

    Raises:
        TypeError: of a generator nobody knows when it is over, or a hidden argument is none.
    """
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise TypeError("a generator cannot be a logged tool: it has not run when it returns")
    signature = inspect.signature(function)
    unknown = hide - signature.parameters.keys()
    if unknown:
        raise TypeError(f"hide: no arguments of {function.__name__}: {', '.join(sorted(unknown))}")
    tool = name or function.__name__

    def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        try:
            bound = signature.bind(*args, **kwargs).arguments
        except TypeError:  # the function will say so
            return {"args": list(args), **kwargs}
        given = {key: value for key, value in bound.items() if key not in ("self", "cls")}
        return {key: HIDDEN if key in hide else value for key, value in given.items()}

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            call = session().begin_call(tool, arguments(args, kwargs))
            try:
                returned = await function(*args, **kwargs)
            except BaseException as error:
                call.end(*_failure(error))
                raise
            call.end({"result": returned}, "completed")
            return returned

        return cast(FunctionT, awaited)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        call = session().begin_call(tool, arguments(args, kwargs))
        try:
            returned = function(*args, **kwargs)
        except BaseException as error:
            call.end(*_failure(error))
            raise
        call.end({"result": returned}, "completed")
        return returned

    return cast(FunctionT, called)


def _failure(error: BaseException) -> tuple[dict[str, Any], str]:
    """Payload and status of a call that raised."""
    status = "timeout" if isinstance(error, _TIMEOUTS) else "failed"
    told = {"exception_type": type(error).__name__, "message": str(error)[:MESSAGE_CHARACTERS]}
    return {"error": told}, status
