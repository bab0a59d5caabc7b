"""Following what is new, without a socket: what is asked for, and what the bytes say that come."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from recollect.calls import (
    ATTEMPTS,
    Call,
    Plan,
    exchange,
    model_reader,
    pause_before,
)
from recollect.errors import ConnectionFailed, RecollectError, UnexpectedAnswer
from recollect.models import Change, ChangeList

NOW: Final = "now"
EVENT_STREAM: Final = "text/event-stream"
SILENCE_S: Final = 60.0
"""A stream that says nothing for so long is dead; the API shows every 15 seconds that it lives."""
_PATH: Final = "/v1/changes"


class Following:
    """One who follows changes: where it is, and whether it goes on when a stream ends.

    Args:
        session: only events of this one.
        kinds: only events of these.
        user: in whose view.
        since: `now`, `0`, or a position, behind which it begins.

    Attributes:
        is_end: the last page was all that was there.
    """

    is_end = False

    def __init__(
        self, *, session: str | None, kinds: Sequence[str], user: str | None, since: str
    ) -> None:
        fields = {"session": session, "kinds": list(kinds) or None, "user_id": user}
        self._fields = {name: value for name, value in fields.items() if value is not None}
        self._since = since
        self._waiting = b""
        self._failures = 0
        self._has_begun = False

    def call(self) -> Call[bytes]:
        """The request of the next stream."""
        self._waiting = b""
        query = {**self._fields, "from": self._since}
        return Call("GET", _PATH, bytes, query=query, accept=EVENT_STREAM, timeout_s=SILENCE_S)

    def page(self) -> Plan[list[Change]]:
        """The next page of what is there, until `is_end`."""
        query = {**self._fields, "from": self._since, "wait": "false"}
        page = yield from exchange(Call("GET", _PATH, model_reader(ChangeList), query=query))
        self._since, self.is_end = page.position, page.is_end
        return page.changes

    def take(self, part: bytes) -> Iterator[Change]:
        """The changes of some bytes; a frame may come in pieces.

        Raises:
            UnexpectedAnswer: these are no changes.
        """
        *frames, self._waiting = (self._waiting + part).split(b"\n\n")
        for frame in frames:
            lines = dict(line.partition(b": ")[::2] for line in frame.split(b"\n"))
            data = lines.get(b"data")
            try:
                change = None if data is None else Change.model_validate_json(data)
                self._since = lines.get(b"id", b"").decode() or self._since
            except ValueError as error:
                raise UnexpectedAnswer("What answered sends no changes") from error
            self._has_begun, self._failures = True, 0
            if change is not None:
                yield change

    def pause_s(self, error: RecollectError | None) -> float:
        """Until the next stream is asked for.

        Args:
            error: why the last one is over; None: the API has ended it.

        Raises:
            RecollectError: that error, where it is no use to ask again.
        """
        self._failures += 1
        if error is None:
            error = ConnectionFailed("The stream is over")
        elif not error.retryable or (not self._has_begun and self._failures >= ATTEMPTS):
            raise error
        return pause_before(error, self._failures)
