"""The edge: how many connections there are, and how long one may take for what.

uvicorn has a limit on the time between two requests and none on the time of one: whoever sends a
byte now and then, or nothing, holds a connection for as long as they like, without a key. Here each
step has a deadline: the head of a request, its body, and taking the answer. At the most that may be
open, the connection that has waited longest in the middle of a request gives way to the new one:
those who send a whole request are answered while thousands send halves.
"""

from __future__ import annotations

import resource
import socket
from asyncio import TimerHandle, Transport
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from functools import partial
from math import ceil
from typing import Any, Final, cast

import orjson
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from api.errors import PROBLEM_MEDIA_TYPE, PROBLEMS, problem
from api.preflight import ALONE, Share
from pipelines.observe import metrics
from pipelines.work.settings import Settings

MAX_HEAD_BYTES: Final = 64 * 1024
"""Of a request's line and headers; a first piece may be as large as what the loop reads at once."""
KEEP_ALIVE_S: Final = 15
"""Between two requests of a connection."""
GRACE_S: Final = 35
"""For requests under way at a stop: the longest time limit a read may ask for, and its grace."""
OTHER_FILES: Final = 128
"""Files that are no connection of a client: stores, logs, models."""
_LINGER_S: Final = 2.0
"""For what was said last to leave, before a connection is cut."""
AT_STOP: Final = "at_stop"
"""In the state of a request: ends its answer, which has no end of its own, when the server stops.
Such an answer can be gone on from elsewhere, so its client is not waited for."""
STOPPED: Final = "stopped"
"""In the state of a request: the server was stopped before there was anything to end."""


class _Waits(Enum):
    """What a connection waits for."""

    REQUEST = "request"
    HEAD = "head"
    BODY = "body"
    ANSWER = "answer"


@dataclass(frozen=True, slots=True)
class EdgeLimits:
    """What one process bears.

    Attributes:
        connections: open at once.
        head_s: from the first byte of a request to the end of its headers.
        body_s: from there to the end of its body.
        answer_s: that a client may leave an answer unread.
    """

    connections: int
    head_s: float
    body_s: float
    answer_s: float

    @classmethod
    def of(cls, settings: Settings, share: Share = ALONE) -> EdgeLimits:
        """As the settings say, and as many connections as this process may have files.

        Of several processes each has its part of the connections, rounded up: it can only have its
        own give way, and one that others have filled with halves would have to refuse the rest.
        """
        return cls(
            connections=min(share.of(settings.max_connections), connections_for(_files())),
            head_s=settings.head_timeout_s,
            body_s=settings.body_timeout_s,
            answer_s=settings.answer_timeout_s,
        )


def connections_for(files: int) -> int:
    """Connections for which so many open files are enough; a quarter of few files is not theirs."""
    return max(1, files - max(min(OTHER_FILES, files // 4), 1))


def _files() -> int:
    """How many files this process may have open, which it raises as far as it is allowed to."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 65_536 if hard == resource.RLIM_INFINITY else min(hard, 65_536)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return 65_536 if soft == resource.RLIM_INFINITY else soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # macOS allows less than it says
        return soft
    return wanted


class EdgeProtocol(HttpToolsProtocol):
    """One connection, with a deadline for each thing that a client may be slow in.

    Args:
        limits: of the process.
        arguments: as for uvicorn's protocol.
    """

    def __init__(self, limits: EdgeLimits, **arguments: Any) -> None:
        super().__init__(**arguments)
        self._limits = limits
        self._waits = _Waits.REQUEST
        self._deadline: TimerHandle | None = None
        self._answer_deadline: TimerHandle | None = None
        self._head_bytes = 0
        self._since = self.loop.time()

    # -- connections ---------------------------------------------------------------------------

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        """Take a connection, or make room for it first, or refuse it."""
        super().connection_made(transport)
        opened = transport.get_extra_info("socket")
        if opened is not None and opened.family in (socket.AF_INET, socket.AF_INET6):
            # Head and body of an answer are two writes: without this the second waits for the
            # receiver's delayed acknowledgement of the first, 40 ms.
            opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._arm(self._limits.head_s)
        if len(self.connections) > self._limits.connections and not self._make_room():
            self._cut("refused", "too-many-connections")
        metrics.API_CONNECTIONS.set(len(self.connections))

    def _make_room(self) -> bool:
        """End what has waited longest for a client; whether there was one."""
        for waits in (_Waits.HEAD, _Waits.REQUEST, _Waits.BODY):
            slowest = _oldest(self.connections, waits, but=self)
            if slowest is not None:
                slowest._cut("evicted", None if waits is _Waits.REQUEST else "too-many-connections")
                return True
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget it."""
        self._disarm()
        self._disarm_answer()
        super().connection_lost(exc)
        metrics.API_CONNECTIONS.set(len(self.connections))

    def shutdown(self) -> None:
        """The server stops: what is under way is finished, a stream is ended."""
        super().shutdown()
        if self._is_answered():
            return
        state = self.cycle.scope["state"]
        state[STOPPED] = True
        if AT_STOP in state:
            state[AT_STOP]()
            self.loop.call_later(_LINGER_S, self.transport.abort)

    # -- a request -----------------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Read on; blank lines before a request are the beginning of one."""
        if self._waits is _Waits.REQUEST:
            self._waits = _Waits.HEAD
            self._arm(self._limits.head_s)
        if self._waits is _Waits.HEAD:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._waits is _Waits.HEAD and self._head_bytes > MAX_HEAD_BYTES:
            self._cut("head_size", "head-too-large")

    def on_message_begin(self) -> None:
        """The first byte of a request; with pipelining, while another one is answered."""
        super().on_message_begin()
        if self._waits is not _Waits.HEAD:
            self._waits = _Waits.HEAD
            self._arm(self._limits.head_s)

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_bytes = 0
        self._waits = _Waits.BODY
        self._arm(self._limits.body_s)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The request is whole; it may have been answered before, as one without a key is."""
        self._disarm()
        self._waits = _Waits.ANSWER
        if self._is_answered():
            self._wait_for_request()
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """The answer is written."""
        if self._waits is _Waits.ANSWER and not self.pipeline:
            self._wait_for_request()
        super().on_response_complete()

    def _wait_for_request(self) -> None:
        self._waits = _Waits.REQUEST
        self._arm(KEEP_ALIVE_S)

    def pause_writing(self) -> None:
        """The client does not take what it asked for."""
        super().pause_writing()
        self._answer_deadline = self.loop.call_later(self._limits.answer_s, self._not_taken)

    def resume_writing(self) -> None:
        """It does."""
        self._disarm_answer()
        super().resume_writing()

    # -- deadlines -----------------------------------------------------------------------------

    def _is_answered(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # None before the first request
        return cycle is None or cycle.response_complete

    def _arm(self, seconds: float) -> None:
        self._disarm()
        self._since = self.loop.time()
        self._deadline = self.loop.call_later(seconds, self._late)

    def _disarm(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _disarm_answer(self) -> None:
        if self._answer_deadline is not None:
            self._answer_deadline.cancel()
            self._answer_deadline = None

    def _late(self) -> None:
        """A head or a body was not whole in time, or nothing came at all."""
        if self._waits is _Waits.REQUEST:
            self.transport.close()
        elif self._waits is _Waits.HEAD and not self._is_answered():
            self._arm(self._limits.head_s)  # the request before it is answered first
        else:
            reason: metrics.Cut = "body_timeout" if self._waits is _Waits.BODY else "head_timeout"
            self._cut(reason, "request-timeout")

    def _not_taken(self) -> None:
        metrics.API_CONNECTIONS_CUT.labels("answer_timeout").inc()
        self.transport.abort()

    def _cut(self, reason: metrics.Cut, kind: str | None) -> None:
        """End the connection, with a problem of a kind if no answer has begun."""
        self._disarm()
        metrics.API_CONNECTIONS_CUT.labels(reason).inc()
        self.connections.discard(self)  # it gives way now, not when its last byte has left
        if self.transport.is_closing():
            return
        has_begun = self._waits is _Waits.BODY and self.cycle.response_started
        if kind is not None and not has_begun:
            self.transport.write(_LAST_WORDS[kind])
        self.transport.close()
        self.loop.call_later(_LINGER_S, self.transport.abort)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no HTTP."""
        self.transport.write(_LAST_WORDS["bad-request"])
        self.transport.close()

    def _unsupported_upgrade_warning(self) -> None:
        """A request that offers another protocol is answered in this one, and is no news."""


def _last_words(kind: str, detail: str) -> bytes:
    body = orjson.dumps(problem(kind, detail).model_dump())
    lines = [
        STATUS_LINE[PROBLEMS[kind].status].rstrip(b"\r\n"),
        f"content-type: {PROBLEM_MEDIA_TYPE}".encode(),
        b"content-length: %d" % len(body),
        b"connection: close",
        *([b"retry-after: %d" % ceil(_LINGER_S)] if PROBLEMS[kind].retry else []),
    ]
    return b"\r\n".join([*lines, b"", body])


_LAST_WORDS: Final = {
    kind: _last_words(kind, detail)
    for kind, detail in (
        ("bad-request", "This is no HTTP/1.1 request."),
        ("request-timeout", "The request was not whole in time."),
        ("head-too-large", f"Line and headers together: at most {MAX_HEAD_BYTES:,} bytes."),
        ("too-many-connections", "All connections are taken."),
    )
}
"""What is said before a connection ends, by kind of problem."""


def _oldest(
    connections: Iterable[object], waits: _Waits, *, but: EdgeProtocol
) -> EdgeProtocol | None:
    waiting = (
        connection
        for connection in connections
        if isinstance(connection, EdgeProtocol)
        and connection._waits is waits
        and connection is not but
        and (connection._is_answered() or waits is _Waits.BODY)
    )
    return min(waiting, key=lambda connection: connection._since, default=None)


def server_config(app: FastAPI, settings: Settings, share: Share = ALONE) -> uvicorn.Config:
    """How the app is served by a process that has a share in it."""
    return uvicorn.Config(
        app,
        http=cast(Any, partial(EdgeProtocol, EdgeLimits.of(settings, share))),
        loop="uvloop",
        ws="none",
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=GRACE_S,
    )
