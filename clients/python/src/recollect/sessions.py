"""Who acts, where and because of what: sessions, the calls that are under way, and what is logged.

The place where code runs (session, enclosing call) is kept in a context variable, so it holds for
threads and tasks of their own, and for what `asyncio` starts from them.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from contextvars import ContextVar
from datetime import datetime
from types import TracebackType
from typing import Any, Final, NamedTuple, TypeVar, overload

from typing_extensions import Self

from recollect.delivery import Counts, Outbox
from recollect.events import (
    ROLES,
    Content,
    Made,
    content_of,
    event_json,
    moment_text,
    new_event_id,
    now_ns,
)
from recollect.tools import logged

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])
AUTOMATIC: Final = "automatic"
"""As a parent: the enclosing call, else what came before it in the session."""

ABOUT_MEMORY: Final = "memory."
"""Statements about the memory itself: nothing that happened, so they have no place among causes."""


class Place(NamedTuple):
    """Where code runs."""

    session: Session
    call_id: str | None
    outer: Place | None


_here: ContextVar[Place | None] = ContextVar("recollect_place", default=None)


class Session:
    """A stretch of work of an agent; `with` makes it the place of what is logged inside.

    Attributes:
        id: of the session.
        agent: who acts.
        user: the person concerned; reads see what is theirs, and what is nobody's.
        trace: what belongs together beyond the session; by default the session.
    """

    def __init__(
        self,
        recorder: Recorder,
        session_id: str,
        *,
        agent: str,
        user: str | None,
        trace: str | None,
    ) -> None:
        self.id = session_id
        self.agent = agent
        self.user = user
        self.trace = trace or session_id
        self._recorder = recorder
        self._last: str | None = None
        self._calls: list[tuple[str | None, str]] = []

    def __enter__(self) -> Self:
        """Begin: `memory.log` and tools called inside belong to this session."""
        _here.set(Place(self, None, _here.get()))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End; the session itself can go on any time."""
        # No token: tasks that run at once may have entered the same session, each for itself.
        place = _here.get()
        if place is not None and place.session is self:
            _here.set(place.outer)

    def log(
        self,
        kind: str,
        content: Any = None,
        *,
        tool: str | None = None,
        status: str | None = None,
        parent: str | None = AUTOMATIC,
        importance: int | None = None,
        at: datetime | None = None,
        agent: str | None = None,
        user: str | None = None,
    ) -> str:
        """Log what happened; returns at once with the event's id, and sends in the background.

        Args:
            kind: `user`, `assistant`, `system`, `developer` (messages), `thought`, `plan`,
                `decision`, `call`, `result`, `failure` (of a tool), or a type of your own with a
                dot (`order.placed`).
            content: words, or anything that JSON can hold; it is copied now.
            tool: name of the tool that is called, or has returned.
            status: pending, running, completed, failed or timeout.
            parent: id of the event that caused it; None: nothing did. By default the call that
                encloses it, else the call that it is the result of, else what came before it.
            importance: 1 to 10.
            at: when it happened, with zone; default now.
            agent: who acts; default the session's, of a user's message the user.
            user: the person concerned; default the session's.

        Raises:
            ValueError: there is no such kind, or `at` has no zone.
        """
        happened = content_of(kind, content)
        parent_id = parent
        if parent is AUTOMATIC:
            about_memory = kind.startswith(ABOUT_MEMORY)
            parent_id = None if about_memory else self._parent(kind, tool)
        fields = {
            "agent_id": agent or (user if kind == "user" else None),
            "tool_name": tool,
            "parent_event_id": parent_id,
            "importance_hint": importance,
            "user_id": user or self.user,
        }
        event_id = self._write(
            kind, happened._replace(status=status or happened.status), fields, at
        )
        self._note(kind, tool, event_id)
        return event_id

    def _write(
        self, kind: str, happened: Content, fields: dict[str, Any], at: datetime | None = None
    ) -> str:
        clock_ns = now_ns()
        event_id = new_event_id(clock_ns)
        envelope = {
            "event_id": event_id,
            "event_type": happened.event_type,
            "occurred_at": moment_text(clock_ns if at is None else at),
            "session_id": self.id,
            "trace_id": self.trace,
            "user_id": self.user,
            "status": happened.status,
            **fields,
            "agent_id": fields.get("agent_id") or self.actor(kind),
            "payload": happened.payload,
        }
        is_of_tool = envelope["tool_name"] is not None
        self._recorder.deliver(Made(event_id, self.id, event_json(envelope, is_cut=is_of_tool)))
        return event_id

    def actor(self, kind: str) -> str:
        """Who acts in an event of the kind."""
        if kind == "user":
            return self.user or "user"
        return kind if kind in ROLES and kind != "assistant" else self.agent

    def _parent(self, kind: str, tool: str | None) -> str | None:
        if kind in ("result", "failure"):
            open_call = next((call for call in reversed(self._calls) if call[0] == tool), None)
            if open_call is not None:
                self._calls = [call for call in self._calls if call is not open_call]
                return open_call[1]
        place_here = _here.get()
        while place_here is not None:
            if place_here.session is self and place_here.call_id is not None:
                return place_here.call_id
            place_here = place_here.outer
        return self._last

    def _note(self, kind: str, tool: str | None, event_id: str) -> None:
        """What comes next came after this; a call is not over before its result."""
        if kind == "call":
            self._calls = [*self._calls[-MAX_OPEN_CALLS:], (tool, event_id)]
        elif not (kind.startswith(ABOUT_MEMORY) or _is_inside_call(self)):
            self._last = event_id

    # -- calls of the decorator --------------------------------------------------------------------

    def begin_call(self, tool: str, arguments: Any) -> ToolCall:
        """Log a call, which encloses what is logged until its `end`."""
        fields = {"tool_name": tool, "parent_event_id": self._parent("call", tool)}
        return ToolCall(self, tool, self._write("call", content_of("call", arguments), fields))

    def end_call(self, call_id: str, tool: str, payload: Any, status: str) -> None:
        """Log what came of a call; it is over already, so this belongs to what enclosed it."""
        fields = {"tool_name": tool, "parent_event_id": call_id}
        event_id = self._write("result", Content("tool.result", payload, status), fields)
        self._note("result", tool, event_id)


MAX_OPEN_CALLS: Final = 100


class ToolCall:
    """A call of a tool that is under way.

    Args:
        session: that it belongs to.
        tool: its name.
        call_id: of its event.
    """

    def __init__(self, session: Session, tool: str, call_id: str) -> None:
        self._session = session
        self._tool = tool
        self._call_id = call_id
        self._began_ns = now_ns()
        self._token = _here.set(Place(session, call_id, _here.get()))

    def end(self, payload: dict[str, Any], status: str) -> None:
        """Log what came of it."""
        _here.reset(self._token)
        payload["duration_ms"] = (now_ns() - self._began_ns) // 1_000_000
        self._session.end_call(self._call_id, self._tool, payload, status)


def _is_inside_call(session: Session) -> bool:
    place = _here.get()
    return place is not None and place.session is session and place.call_id is not None


class Recorder:
    """The half of a client that writes; the same for both.

    Args:
        outbox: where events go.
        agent: who acts, where a session does not say.
        user: the person concerned, likewise.
        background: whether events are sent behind the caller's back.
    """

    def __init__(self, outbox: Outbox, *, agent: str, user: str | None, background: bool) -> None:
        self._outbox = outbox
        self._agent = agent
        self._user = user
        self._background = background
        self.default_session = self.session(f"{agent}-{uuid.uuid4().hex[:12]}")
        """Where things belong that are logged or asked outside of a session."""

    @property
    def counts(self) -> Counts:
        """How many events wait, were accepted, refused by the API, or dropped here."""
        return self._outbox.counts

    def session(
        self,
        session_id: str | None = None,
        *,
        agent: str | None = None,
        user: str | None = None,
        trace: str | None = None,
    ) -> Session:
        """A session, new or known; enter it with `with`, or log to it directly."""
        return Session(
            self,
            session_id or f"session-{uuid.uuid4().hex}",
            agent=agent or self._agent,
            user=user or self._user,
            trace=trace,
        )

    @property
    def current_session(self) -> Session:
        """The session that this code runs in, else `default_session`."""
        place = _here.get()
        while place is not None:
            if place.session._recorder is self:
                return place.session
            place = place.outer
        return self.default_session

    def log(
        self,
        kind: str,
        content: Any = None,
        *,
        tool: str | None = None,
        status: str | None = None,
        parent: str | None = AUTOMATIC,
        importance: int | None = None,
        at: datetime | None = None,
        agent: str | None = None,
        user: str | None = None,
    ) -> str:
        """Log what happened in the current session; see `Session.log`."""
        return self.current_session.log(
            kind,
            content,
            tool=tool,
            status=status,
            parent=parent,
            importance=importance,
            at=at,
            agent=agent,
            user=user,
        )

    @overload
    def tool(self, function: FunctionT) -> FunctionT: ...
    @overload
    def tool(
        self, *, name: str | None = None, hide: tuple[str, ...] = ()
    ) -> Callable[[FunctionT], FunctionT]: ...
    def tool(
        self, function: Any = None, *, name: str | None = None, hide: tuple[str, ...] = ()
    ) -> Any:
        """Decorate a function, sync or async, so that each call and its result are logged.

        The call's parent is the call that encloses it, else what came before it in the session; the
        result's parent is the call. It tells status, duration and, if it fails, the error, which is
        raised as ever.

        Args:
            function: the tool.
            name: default the function's.
            hide: arguments whose values are not logged.
        """

        def decorate(plain: FunctionT) -> FunctionT:
            return logged(plain, lambda: self.current_session, name=name, hide=frozenset(hide))

        return decorate if function is None else decorate(function)

    def note_accepted(self, session_id: str, position: str | None) -> None:
        """An event that was sent without `deliver` is in the ledger; `wait` waits for it, too."""
        self._outbox.note_accepted(session_id, position)

    def deliver(self, event: Made) -> None:
        """Send an event: soon, or now."""
        if self._background:
            self._outbox.put(event)
        else:
            self._outbox.send_now(event)
