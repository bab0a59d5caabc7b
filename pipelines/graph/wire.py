"""The port's values as bytes, for a graph that another process holds; never pickles.

JSON, in which everything that JSON has not is a list that begins with its name: tuples, lists,
mappings, sets, bytes, arrays, and the records that the port takes and returns. Nothing else passes,
so that a frame can make no object that is not listed here.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy
import orjson

from pipelines.graph.rows import (
    Advanced,
    Census,
    Change,
    Changes,
    Counts,
    End,
    FeedPlace,
    FoundEdge,
    FoundNode,
    Span,
)
from projections import errors
from projections.identity import Link, Position
from projections.operations import (
    Checkpoint,
    ClearEdges,
    DecideNode,
    EnsureNode,
    MergeEdge,
    MergeNode,
    Operations,
    RemoveEdge,
    RemoveNode,
    SetEdge,
    SetNode,
)

_TUPLES: Final[Mapping[str, Any]] = {
    kind.__name__: kind
    for kind in (
        *(FoundNode, FoundEdge, FeedPlace, Advanced, Change, Changes, Counts, Census),
        *(Link, Position),
    )
}
_RECORDS: Final[Mapping[str, Any]] = {
    kind.__name__: kind
    for kind in (
        *(Span, Checkpoint, MergeNode, SetNode, DecideNode, EnsureNode, RemoveNode),
        *(MergeEdge, SetEdge, RemoveEdge, ClearEdges),
    )
}
_ERRORS: Final[Mapping[str, type[Exception]]] = {
    **{
        name: kind
        for name, kind in vars(errors).items()
        if isinstance(kind, type) and issubclass(kind, errors.RecollectError)
    },
    **{kind.__name__: kind for kind in (KeyError, ValueError)},
}


def encoded(value: Any) -> bytes:
    """A value as it goes over the socket.

    Raises:
        TypeError: it is of a kind that does not.
    """
    return orjson.dumps(_packed(value))


def decoded(data: bytes) -> Any:
    """What `encoded` made.

    Raises:
        ValueError: something else.
    """
    try:
        return _unpacked(orjson.loads(data))
    except (KeyError, TypeError, IndexError) as error:
        raise ValueError("not a value of the port") from error


def error_parts(error: Exception) -> tuple[str, Any]:
    """An error that passes, by its name and data.

    Raises:
        TypeError: it does not.
    """
    name = type(error).__name__
    if name not in _ERRORS:
        raise TypeError(name)
    data = error.data if isinstance(error, errors.RecollectError) else {"": str(error)}
    return name, data


def error_of(name: str, data: Mapping[str, Any]) -> Exception:
    """The error of `error_parts`."""
    kind = _ERRORS[name]
    return kind(**data) if issubclass(kind, errors.RecollectError) else kind(data[""])


def _packed(value: Any) -> Any:
    if value is None or isinstance(value, (bool, int, float)) or type(value) is str:
        return value
    if isinstance(value, End):
        return ["End", str(value)]
    if isinstance(value, bytes):
        return ["bytes", base64.b85encode(value).decode()]
    if isinstance(value, numpy.ndarray):
        return ["array", value.dtype.str, base64.b85encode(value.tobytes()).decode()]
    if isinstance(value, Operations):
        return ["Operations", *_batch(value)]
    name = type(value).__name__
    if _TUPLES.get(name) is type(value):
        return [name, *map(_packed, value)]
    if isinstance(value, Mapping):
        return ["dict", *([_packed(key), _packed(one)] for key, one in value.items())]
    if isinstance(value, (list, tuple, set, frozenset)):
        return [name, *map(_packed, value)]
    if _RECORDS.get(name) is type(value):
        fields = [
            one.name for one in dataclasses.fields(value) if one.name != "stage" or not _own(value)
        ]
        return [name, {field: _packed(getattr(value, field)) for field in fields}]
    raise TypeError(f"{name} does not pass")


def _own(record: Any) -> bool:
    """Whether an operation says itself which stage it is of."""
    return not isinstance(record, Checkpoint)


def _batch(batch: Operations) -> list[Any]:
    others = {stage: _batch(one) for stage, one in batch.others.items()}
    theirs = sum(map(len, batch.others.values()))
    mine = list(batch)[: len(batch) - theirs]
    return [batch.stage, list(map(_packed, mine)), others]


def _unbatched(stage: str, mine: list[Any], others: Mapping[str, Any]) -> Operations:
    batch = Operations(stage)
    batch.extend(map(_unpacked, mine))
    batch.others = {name: _unbatched(*one) for name, one in others.items()}
    return batch


_PLAIN: Final[Mapping[str, Callable[..., Any]]] = {
    "End": End,
    "bytes": base64.b85decode,
    "Operations": _unbatched,
}
_SEQUENCES: Final[Mapping[str, Callable[[Any], Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


def _unpacked(value: Any) -> Any:
    if not isinstance(value, list):
        return value
    name, *parts = value
    if name in _SEQUENCES:
        return _SEQUENCES[name](map(_unpacked, parts))
    if name == "dict":
        return {_unpacked(key): _unpacked(one) for key, one in parts}
    if name in _TUPLES:
        return _TUPLES[name](*map(_unpacked, parts))
    if name in _RECORDS:
        return _RECORDS[name](**{field: _unpacked(one) for field, one in parts[0].items()})
    if name == "array":
        return numpy.frombuffer(base64.b85decode(parts[1]), dtype=numpy.dtype(parts[0]))
    return _PLAIN[name](*parts)
