"""The decorator of tools: a call is logged before the function runs, its result when it is over."""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from pydantic_core import from_json

from recollect.events import json_of

if TYPE_CHECKING:
    from recollect.sessions import Session

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
HIDDEN: Final = "[hidden]"
MESSAGE_CHARACTERS: Final = 2_000
SECRET_CHARACTERS: Final = 4
"""What is hidden and shorter would be found in words that have nothing to do with it."""
_TIMEOUTS: Final = (TimeoutError, asyncio.TimeoutError)


def logged(
    function: FunctionT, session: Callable[[], Session], *, name: str | None, hide: frozenset[str]
) -> FunctionT:
    """The function, logged.

    Args:
        function: sync or async.
        session: where a call belongs, found when it begins.
        name: of the tool; None: the function's.
        hide: arguments whose values are not logged, nor where the tool tells them.

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

    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def awaited(*args: Any, **kwargs: Any) -> Any:
            told, secrets = _told(signature, hide, args, kwargs)
            call = session().begin_call(tool, told)
            try:
                returned = await function(*args, **kwargs)
            except BaseException as error:
                call.end(*_failure(error, secrets))
                raise
            call.end({"result": _without(secrets, returned)}, "completed")
            return returned

        return cast(FunctionT, awaited)

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        told, secrets = _told(signature, hide, args, kwargs)
        call = session().begin_call(tool, told)
        try:
            returned = function(*args, **kwargs)
        except BaseException as error:
            call.end(*_failure(error, secrets))
            raise
        call.end({"result": _without(secrets, returned)}, "completed")
        return returned

    return cast(FunctionT, called)


def _told(
    signature: inspect.Signature,
    hide: frozenset[str],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
) -> tuple[dict[str, Any], list[str]]:
    """What is told of arguments, and the texts that must not be."""
    try:
        bound = signature.bind(*args, **kwargs)
    except TypeError:  # the function will say so
        if not hide:
            return {"args": list(args), **kwargs}, []
        # Which one was meant nobody knows, unless by its name.
        shown = signature.parameters.keys() - hide
        secret = {key: value for key, value in kwargs.items() if key not in shown}
        told = {**kwargs, **dict.fromkeys(secret, HIDDEN), "args": [HIDDEN] * len(args)}
        return told, _secrets([args, secret])
    given = {k: v for k, v in bound.arguments.items() if k not in ("self", "cls")}
    told = {key: HIDDEN if key in hide else value for key, value in given.items()}
    if not hide:
        return told, []
    bound.apply_defaults()
    return told, _secrets([bound.arguments[key] for key in hide])


def _failure(error: BaseException, secrets: list[str]) -> tuple[dict[str, Any], str]:
    """Payload and status of a call that raised."""
    status = "timeout" if isinstance(error, _TIMEOUTS) else "failed"
    message = _without(secrets, str(error))[:MESSAGE_CHARACTERS]
    return {"error": {"exception_type": type(error).__name__, "message": message}}, status


def _secrets(hidden: Any) -> list[str]:
    """Texts in what is hidden, also as `repr` tells them; what holds others comes first."""
    texts = [str(value) for value in _values(_plain(hidden))]
    told = {form for text in texts for form in (text, repr(text)[1:-1], ascii(text)[1:-1])}
    return sorted((t for t in told if len(t) >= SECRET_CHARACTERS), key=len, reverse=True)


def _plain(value: Any) -> Any:
    """As the ledger would give it back; what is too deep, as text."""
    try:
        return from_json(json_of(value))
    except ValueError:
        return ascii(value)


def _values(value: Any) -> Iterator[str | int]:
    """Texts and whole numbers of JSON, but for the names of fields."""
    if isinstance(value, (dict, list)):
        for inner in value.values() if isinstance(value, dict) else value:
            yield from _values(inner)
    elif isinstance(value, (str, int)) and not isinstance(value, bool):
        yield value


def _without(secrets: list[str], value: Any) -> Any:
    """A value in which no secret is told."""
    return _hidden_in(_plain(value), secrets) if secrets else value


def _hidden_in(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, dict):
        return {_hidden_in(k, secrets): _hidden_in(v, secrets) for k, v in value.items()}
    if isinstance(value, list):
        return [_hidden_in(inner, secrets) for inner in value]
    text = str(value)
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
    return value if text == str(value) else text
