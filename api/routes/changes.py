"""What is new, as it comes: server-sent events from the ledger, or pages of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator
from contextlib import aclosing
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from api.browse_schemas import DEFAULT_PAGE, ChangeList, ChangesQuery
from api.browse_schemas import Change as ChangeEvent
from api.changes import Batch, Change, Changes, Reading, Wanted, page_behind, starting_place
from api.connection_limits import AT_STOP, STOPPED
from api.dependencies import Reader, ServicesOf
from api.errors import EVENT_STREAM, problem_responses
from api.schemas import PositionText
from api.services import clock_ms
from pipelines.work.settings import Settings
from projections.identity import Position

LAST_EVENT_ID: Final = "Last-Event-ID"
RECONNECT_MS: Final = 1_000
"""What a client is advised to wait before it comes back."""
READ_MS: Final = 30_000
_CHUNK_BYTES: Final = 64 * 1024
"""What is written at once; the next is made when the client has taken it."""

_PROBLEMS: Final = (
    *("unauthenticated", "forbidden", "invalid-input", "rate-limited"),
    *("too-many-connections", "ledger-unavailable", "time-limit", "internal"),
)
_EVENT: Final = {
    "type": "object",
    "description": "An event of the stream; without data it only says where to go on.",
    "required": ["id"],
    "properties": {
        "id": {"type": "string", "description": "Position to go on from, as Last-Event-ID."},
        "data": {
            "type": "string",
            "contentMediaType": "application/json",
            "contentSchema": {"$ref": f"#/components/schemas/{ChangeEvent.__name__}"},
        },
    },
}
_STREAM: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "With `wait=false` a page; else server-sent events, each with a `Change` as "
        "`data` and its position as `id`, and comments that show that the stream is alive",
        "content": {EVENT_STREAM: {"schema": _EVENT}},
    }
}

router = APIRouter(prefix="/v1", tags=["events"])


async def followed(request: Request) -> Changes:
    """What streams of the app read from."""
    changes = request.app.state.changes
    assert isinstance(changes, Changes)
    return changes


@router.get(
    "/changes",
    response_model=ChangeList,
    responses={**_STREAM, **problem_responses(*_PROBLEMS)},
)
async def read_changes(
    caller: Reader,
    services: ServicesOf,
    changes: Annotated[Changes, Depends(followed)],
    query: Annotated[ChangesQuery, Query()],
    last_event_id: Annotated[
        PositionText | None,
        Header(alias=LAST_EVENT_ID, description="As `from`: a client that comes back sends it."),
    ] = None,
) -> Response:
    """Events in the order in which the ledger takes them, each once, from a position on.

    A stream ends after a while, and when the API stops; its last `id` is where to go on. What is
    held out, because it is not what was appended, is passed. Nothing here counts as read.
    """
    wanted = Wanted(
        caller.view(query.user_id, clock_ms(as_of=None)), query.session, frozenset(query.kinds)
    )
    named = ("from", query.from_) if last_event_id is None else (LAST_EVENT_ID, last_event_id)
    after = await services.read(
        lambda: starting_place(services.ledger(), named[1], named[0]), timeout_ms=READ_MS
    )
    if query.wait:
        give_back = services.admit_stream(caller.name)
        frames = _frames(changes, services.settings, wanted, after)
        return _Stream(frames, changes.stop, give_back)
    limit = query.limit or DEFAULT_PAGE
    read = partial(page_behind, services.ledger, wanted, after, limit=limit)
    return _page(await services.read(read, timeout_ms=READ_MS))


def _page(batch: Batch) -> Response:
    changes = b",".join(change.json for change in batch.changes)
    end = b"true" if batch.is_end else b"false"
    position = str(batch.until).encode()
    body = b'{"changes":[%b],"position":"%b","is_end":%b}' % (changes, position, end)
    return Response(body, media_type="application/json")


class _Stream(StreamingResponse):
    """Frames until there are no more.

    Args:
        frames: of the stream.
        at_stop: ends it, when the server stops.
        over: called when it has ended, or its client is gone.
    """

    media_type = EVENT_STREAM

    def __init__(
        self,
        frames: AsyncGenerator[bytes, None],
        at_stop: Callable[[], None],
        over: Callable[[], None],
    ) -> None:
        # A proxy that gathers an answer would keep it for ever.
        super().__init__(frames, headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._frames = frames
        self._at_stop = at_stop
        self._over = over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with aclosing(self._frames):  # a client that hangs up stops them anywhere
                scope["state"][AT_STOP] = self._at_stop
                if scope["state"].get(STOPPED):
                    self._at_stop()
                await super().__call__(scope, receive, send)
        finally:
            self._over()


async def _frames(
    changes: Changes, settings: Settings, wanted: Wanted, after: Position
) -> AsyncGenerator[bytes, None]:
    """A stream: where it begins, changes, signs of life, and where it ends."""
    clock = asyncio.get_running_loop().time
    end_s = clock() + settings.stream_life_s
    with Reading(changes, wanted, after) as reading:
        yield _place(reading.place, b"retry: %d\n" % RECONNECT_MS)
        while (left_s := end_s - clock()) > 0 and not changes.is_stopping:
            new = await reading.next(min(left_s, settings.stream_heartbeat_s))
            for chunk in _chunks(new):
                yield chunk
            if not new:
                yield _place(reading.place, b": alive\n")
        yield _place(reading.place, b": this stream is over; go on from here\n")


def _place(position: Position, comment: bytes) -> bytes:
    """A frame without a change: whoever comes back goes on from there."""
    return b"%bid: %b\n\n" % (comment, str(position).encode())


def _chunks(changes: Iterable[Change]) -> Iterator[bytes]:
    """Frames of changes, some at once."""
    chunk = bytearray()
    for change in changes:
        chunk += b"id: %b\ndata: %b\n\n" % (str(change.position).encode(), change.json)
        if len(chunk) >= _CHUNK_BYTES:
            yield bytes(chunk)
            chunk.clear()
    if chunk:
        yield bytes(chunk)
