"""What the process that holds columns and its clients say to each other, over a Unix socket.

A client that was greeted says in its first frame which graph it means (`Login`). Then it asks, one
question at a time: `[fresh, timeout_ms, scope, name, arguments]`. An answer is a head and arrays:
the head's length, `[answer, error, [[type, shape], ...]]`, then the numbers of each array. What has
many rows goes as columns, and nothing is a pickle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

import numpy
import orjson

from pipelines.columns.reads import (
    Beside,
    Mentions,
    Reached,
    SessionAsked,
    SessionLine,
    SessionList,
    SessionPage,
    SessionsAsked,
    WalkAsked,
    Walked,
    Wanted,
)
from pipelines.columns.records import (
    Array,
    Differing,
    Finding,
    ListAsked,
    Listed,
    OpenAsked,
    OpenThings,
    Standings,
    Steps,
    Stories,
    StoriesAsked,
    StoryFact,
)
from pipelines.graph.reads.scope import Scope, Within
from pipelines.graph.rows import (
    EntityName,
    EntitySurroundings,
    Hit,
    Hits,
    Least,
    SessionCandidate,
    SessionCandidates,
    SessionEvent,
    Signalled,
)
from projections.identity import Position

MAX_QUESTION_BYTES: Final = 8 * 2**20
LOADING: Final = "loading"
"""Error: the columns hold nothing yet."""
STATE: Final = "state"
"""Name of the question how the columns are, which is nobody's."""
VERIFY: Final = "verify"
"""Likewise of whether they are as the graph is: `[ticket, mend]`. The ticket is whoever asks's own;
he asks again with it for as long as the answer is None."""
_NOBODYS: Final = (STATE, VERIFY)
_HEAD_BYTES: Final = 4
_NAMES_OF_STORIES: Final = Stories._fields.index("holding")
"""Fields of stories that are no arrays; they come first."""

_ARRAYS_OF_WALKED: Final = len(Walked._fields[2:])
_ARRAYS_OF_STANDINGS: Final = len(Standings._fields[2:])
"""Of a walk, and of what is told of events; those of the walk's edges come behind them."""

Packed = tuple[Any, Sequence[Array]]
"""What JSON holds of an answer, and arrays."""


class LedgerLogin(NamedTuple):
    """Which ledger the graph is folded from, and the way in; secret.

    Attributes:
        url: of Redis.
        password: None: that of the URL, if it has one.
        prefix: of its keys.
    """

    url: str
    password: str | None
    prefix: str


class Login(NamedTuple):
    """Which graph a client means, and its way in; secret.

    Attributes:
        ledger: whose tail is found beside the graph; None: no ledger's.
        copy: path of the copy on disk; None: none is kept. Who starts the process says it.
    """

    uri: str
    database: str
    user: str
    password: str | None
    ledger: LedgerLogin | None = None
    copy: str | None = None

    def encode(self) -> bytes:
        """A frame."""
        return orjson.dumps(list(self), default=list)

    @classmethod
    def decode(cls, frame: bytes) -> Login:
        """What `encode` made.

        Raises:
            ValueError: it is something else.
        """
        try:
            uri, database, user, password, ledger, copy = orjson.loads(frame)
            behind = None if ledger is None else LedgerLogin(*ledger)
            return cls(uri, database, user, password, ledger=behind, copy=copy)
        except TypeError as error:
            raise ValueError("no login") from error


class Question(NamedTuple):
    """What a client asks.

    Attributes:
        fresh: of all that was committed before.
        timeout_ms: that are left for the answer.
        scope: who asks; None: it is nobody's.
        name: of the question.
        arguments: of it.
    """

    fresh: bool
    timeout_ms: int
    scope: Scope | None
    name: str
    arguments: Sequence[Any] = ()

    def encode(self) -> bytes:
        """A frame."""
        return orjson.dumps(tuple(self), default=list, option=orjson.OPT_SERIALIZE_NUMPY)

    @classmethod
    def decode(cls, frame: bytes) -> Question:
        """What `encode` made.

        Raises:
            ValueError: it is something else.
        """
        try:
            fresh, timeout_ms, scope, name, arguments = orjson.loads(frame)
            if scope is not None:
                tenant, user_id, now_ms, until, everyone, within = scope
                position = None if until is None else Position(*until)
                limits = None if within is None else Within(*within)
                scope = Scope(tenant, user_id, now_ms, position, everyone=everyone, within=limits)
            arguments = _records(name, arguments)
        except TypeError as error:
            raise ValueError("no question") from error
        if name not in _NOBODYS and (name not in ANSWERS or scope is None):
            raise ValueError("no question of ours")
        return cls(bool(fresh), int(timeout_ms), scope=scope, name=name, arguments=arguments)


_RECORDS: Final[Mapping[str, Sequence[Callable[..., Any]]]] = {
    "sessions": (SessionsAsked,),
    "standings": (Wanted,),
    "listed": (ListAsked,),
    "open_things": (OpenAsked,),
    "stories": (StoriesAsked,),
    "walked": (WalkAsked, Wanted),
    "beside": (Beside, Least),
}
"""Arguments that are records, by question."""


def _records(name: str, arguments: Sequence[Any]) -> Sequence[Any]:
    kinds = _RECORDS.get(name)
    if kinds is None:
        return arguments
    return [kind(*values) for kind, values in zip(kinds, arguments, strict=True)]


def encoded(answer: Any, arrays: Sequence[Array] = (), error: str | None = None) -> bytes:
    """A frame that answers a question."""
    shapes = [[array.dtype.str, array.shape] for array in arrays]
    head = orjson.dumps([answer, error, shapes], default=list)
    return b"".join(
        (len(head).to_bytes(_HEAD_BYTES, "little"), head, *(array.tobytes() for array in arrays))
    )


def decoded(frame: bytes) -> tuple[Any, list[Array], str | None]:
    """What `encoded` made: answer, arrays that may be written, error.

    Raises:
        ValueError: it is something else.
    """
    at = _HEAD_BYTES + int.from_bytes(frame[:_HEAD_BYTES], "little")
    answer, error, shapes = orjson.loads(memoryview(frame)[_HEAD_BYTES:at])
    arrays = []
    for kind, shape in shapes:
        array = numpy.frombuffer(frame, kind, prod(shape), at)
        at += array.nbytes
        arrays.append(array.reshape(shape).copy())
    return answer, arrays, error


class Form(NamedTuple):
    """How the answer to a question travels."""

    pack: Callable[[Any], Packed]
    unpack: Callable[[Any, list[Array]], Any]


def _plain(answer: Any) -> Packed:
    return answer, ()


def _unpack_plain(answer: Any, _: list[Array]) -> Any:
    return answer


def _columns(rows: Iterable[tuple[Any, ...]]) -> list[Sequence[Any]]:
    return list(zip(*rows, strict=True))


def _pack_hits(hits: Hits) -> Packed:
    return [[hit.event_id for hit in hits.shown], hits.withheld], (
        numpy.array([hit.score for hit in hits.shown], dtype=numpy.float64),
    )


def _unpack_hits(answer: Any, arrays: list[Array]) -> Hits:
    ids, withheld = answer
    return Hits(list(map(Hit, ids, arrays[0].tolist())), withheld)


def _unpack_session(answer: Any, _: list[Array]) -> SessionAsked:
    events, speaking = answer
    return SessionAsked([SessionEvent(*event) for event in events], speaking)


def _unpack_sessions(answer: Any, _: list[Array]) -> SessionList:
    sessions, withheld = answer
    return SessionList([SessionLine(*line) for line in sessions], withheld)


def _unpack_session_page(answer: Any, _: list[Array]) -> SessionPage:
    events, total, withheld = answer
    return SessionPage([(at_ms, event_id) for at_ms, event_id in events], total, withheld)


def _pack_candidates(candidates: SessionCandidates) -> Packed:
    best, total, withheld = candidates
    return [_columns(best), total, withheld], ()


def _unpack_candidates(answer: Any, _: list[Array]) -> SessionCandidates:
    best, total, withheld = answer
    return SessionCandidates(list(map(SessionCandidate, *best)) if best else [], total, withheld)


def _pack_standings(standings: Standings) -> Packed:
    ids, authors, *arrays = standings
    return [ids, authors], arrays


def _unpack_standings(answer: Any, arrays: list[Array]) -> Standings:
    return Standings(*answer, *arrays)


def _unpack_listed(answer: Any, _: list[Array]) -> Listed:
    ids, total, groups, *span = answer
    return Listed(ids, total, [(name, count) for name, count in groups], *span)


def _unpack_open_things(answer: Any, _: list[Array]) -> OpenThings:
    return OpenThings(*answer)


def _pack_stories(stories: Stories) -> Packed:
    values: tuple[Any, ...] = stories
    return values[:_NAMES_OF_STORIES], values[_NAMES_OF_STORIES:]


def _unpack_stories(answer: Any, arrays: list[Array]) -> Stories:
    told = Stories(*answer, *arrays)
    return told._replace(facts=[StoryFact(*fact) for fact in told.facts])


def _pack_steps(steps: Steps) -> Packed:
    return steps.ids, steps[1:]


def _unpack_steps(answer: Any, arrays: list[Array]) -> Steps:
    return Steps(answer, *arrays)


def _pack_reached(reached: Reached) -> Packed:
    (ids, edges, *walked), (events, authors, *standings) = reached
    between = () if edges is None else edges[1:]
    return [ids, events, authors], [*walked, *standings, *between]


def _unpack_reached(answer: Any, arrays: list[Array]) -> Reached:
    ids, events, authors = answer
    walked, told = arrays[:_ARRAYS_OF_WALKED], arrays[_ARRAYS_OF_WALKED:]
    standings, edges = told[:_ARRAYS_OF_STANDINGS], told[_ARRAYS_OF_STANDINGS:]
    return Reached(
        Walked(ids, Steps(ids, *edges) if edges else None, *walked),
        Standings(events, authors, *standings),
    )


def _unpack_signalled(answer: Any, _: list[Array]) -> list[Signalled]:
    return [Signalled(*one) for one in answer]


def _entity(values: Sequence[Any]) -> EntityName:
    entity = EntityName._make(values)
    return entity._replace(names=tuple(entity.names))


def _unpack_entities(answer: Any, _: list[Array]) -> list[EntityName]:
    return [_entity(one) for one in answer]


def _unpack_near(answer: Any, _: list[Array]) -> list[tuple[EntityName, float]]:
    return [(_entity(values), cosine) for values, cosine in answer]


def _unpack_pairs(answer: Any, _: list[Array]) -> list[tuple[str, str]]:
    return [(one, other) for one, other in answer]


def _unpack_mentions(answer: Any, _: list[Array]) -> Mentions:
    events, withheld = answer
    return Mentions([(at_ms, event_id) for at_ms, event_id in events], withheld)


def _unpack_surroundings(answer: Any, _: list[Array]) -> dict[str, EntitySurroundings]:
    return {entity_id: EntitySurroundings(*values) for entity_id, values in answer.items()}


def _pack_array(array: Array) -> Packed:
    return None, (array,)


def _unpack_array(_: Any, arrays: list[Array]) -> Array:
    return arrays[0]


def _unpack_finding(answer: Any, _: list[Array]) -> Finding | None:
    if answer is None:
        return None
    events, counts, first = answer
    differing = (Differing(*one) for one in first)
    return Finding(events, counts, [one._replace(fields=_pairs(one.fields)) for one in differing])


def _pairs(fields: Mapping[str, Sequence[Any]]) -> dict[str, tuple[Any, Any]]:
    return {name: (expected, held) for name, (expected, held) in fields.items()}


FINDING: Final = Form(_plain, _unpack_finding)
"""What is answered to VERIFY; None: not yet."""
_HITS: Final = Form(_pack_hits, _unpack_hits)
_ENTITIES: Final = Form(_plain, _unpack_entities)
ANSWERS: Final[Mapping[str, Form]] = {
    "session": Form(_plain, _unpack_session),
    "session_user": Form(_plain, _unpack_plain),
    "sessions": Form(_plain, _unpack_sessions),
    "session_page": Form(_plain, _unpack_session_page),
    "session_candidates": Form(_pack_candidates, _unpack_candidates),
    "text_hits": _HITS,
    "vector_hits": _HITS,
    "standings": Form(_pack_standings, _unpack_standings),
    "last_ms": Form(_plain, _unpack_plain),
    "listed": Form(_plain, _unpack_listed),
    "open_things": Form(_plain, _unpack_open_things),
    "stories": Form(_pack_stories, _unpack_stories),
    "pending": Form(_plain, _unpack_plain),
    "vectors": Form(_pack_array, _unpack_array),
    "steps": Form(_pack_steps, _unpack_steps),
    "walked": Form(_pack_reached, _unpack_reached),
    "beside": Form(_plain, _unpack_signalled),
    "found": _ENTITIES,
    "found_by_name": _ENTITIES,
    "found_by_id": _ENTITIES,
    "found_near": Form(_plain, _unpack_near),
    "same_as": Form(_plain, _unpack_pairs),
    "mentioned": Form(_plain, _unpack_plain),
    "newest_mentions": Form(_plain, _unpack_plain),
    "mentions": Form(_plain, _unpack_mentions),
    "surroundings": Form(_plain, _unpack_surroundings),
}
"""Every question of `ColumnReads`, by name."""
