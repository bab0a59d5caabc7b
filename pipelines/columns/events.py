"""The events of one tenant: what ranking must know of each, the order of sessions, texts, vectors.

A row is an event; it keeps its number. An event that leaves the graph keeps its row too, and is
not seen; it may come back.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Mapping
from typing import Any, Final

import numpy

from enrichment.stems import said_stems
from pipelines.columns.tables import NOBODY, Array, Names, Rows, Table, ranks_of
from pipelines.columns.texts import Texts, Vectors
from pipelines.graph.rows import DEFAULT_IMPORTANCE
from projections.identity import Position
from projections.schema import VECTOR_DIMENSIONS

TEXT_CHARACTERS: Final = 1_000
"""Of an event's text that are compared with a question."""
PROPERTIES: Final = (
    *("occurred_at", "session_id", "agent_id", "tool_name", "status", "user_id", "kind"),
    *(
        "event_type",
        "importance_hint",
        "global_position",
        "text",
        "speaker",
        "importance_score",
        "embedding",
    ),
    *("importance_boost", "access_count", "last_accessed_at"),
)
"""Of an event, that are read from the graph."""


_ASKS: Final = re.compile(r"\?(?:\s+\w[\w'\u2019]*){0,2}[\s.!]*$")
"""Ends in a question, but for a word or two: "which tariff do I have? I forgot"."""
_IN_TIME: Final = ("position_seq", "position_ms", "occurred_ms")
_NOWHERE: Final = dict.fromkeys(("previous", "following", "user", "session"), NOBODY)
_LAST: Final = Position(2**63 - 1, 0)
"""Of an event whose position somebody has damaged: it is known now, and not as of any position."""


class Events:
    """The events of one tenant.

    Attributes:
        ids: by row.
        table: a row each; `user`, `session`, `author`, `agent`, `tool`, `status`, `kind` and
            `type` are numbers of `names`; `score` is the importance that a stage gave, 0 before;
            `previous` and `following` are rows of the session's order; `pending` is whether the
            graph does not have the event yet.
        names: texts that several events share.
    """

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.rows: dict[str, int] = {}
        self.names = Names()
        self.texts = Texts()
        self.vectors = Vectors(VECTOR_DIMENSIONS)
        self.table = Table(
            {
                **dict.fromkeys(
                    ("occurred_ms", "position_ms", "position_seq", "accessed_ms"), "i8"
                ),
                **dict.fromkeys(("user", "session", "author", "agent", "tool"), "i4"),
                **dict.fromkeys(("status", "kind", "type"), "i4"),
                **dict.fromkeys(("previous", "following", "accesses", "words"), "i4"),
                **dict.fromkeys(("importance", "score"), "i2"),
                "boost": "f4",
                **dict.fromkeys(("asks", "stands", "is_enriched", "pending"), "?"),
            }
        )
        self.sessions: dict[int, list[int]] = {}
        """Rows that stand, in the order of (occurred_at, event id), by session."""
        self._owners: dict[int, int] = {}
        """The row of `owner`, by session, of those that were asked for."""
        self._said: dict[int, int] = {}

    def row(self, event_id: str) -> int:
        """The row of an event, a new one if need be, which nobody sees yet."""
        row = self.rows.get(event_id)
        if row is None:
            row = self.rows[event_id] = self.table.add(**_NOWHERE)
            self.ids.append(event_id)
        return row

    def count(self) -> int:
        """Events that stand."""
        return int(self.table["stands"].sum())

    def put(self, event_id: str, values: Mapping[str, Any]) -> None:
        """Set everything of an event that is in the graph, values by PROPERTIES."""
        row, table = self.row(event_id), self.table
        position = _position(values["global_position"])
        author = values["speaker"] or values["agent_id"]
        importance = values["importance_score"] or values["importance_hint"] or DEFAULT_IMPORTANCE
        self._leave(row)
        numbers = {
            "occurred_ms": values["occurred_at"] or 0,
            "position_ms": position.ms,
            "position_seq": position.seq,
            "accessed_ms": values["last_accessed_at"] or 0,
            "accesses": values["access_count"] or 0,
            "importance": int(importance),
            "boost": values["importance_boost"] or 0.0,
            "score": values["importance_score"] or 0,
            "user": self.names.number(values["user_id"]),
            "session": self.names.number(values["session_id"]),
            "author": self.names.number(author),
            "agent": self.names.number(values["agent_id"]),
            "tool": self.names.number(values["tool_name"]),
            "status": self.names.number(values["status"]),
            "kind": self.names.number(values["kind"]),
            "type": self.names.number(values["event_type"]),
            "is_enriched": values["text"] is not None,
            "pending": False,
            "stands": True,
        }
        table.put(row, numbers)
        self._join(row)
        self._say(row, author, values["tool_name"], values["text"])
        self.vectors.put(row, values["embedding"])

    def remove(self, event_id: str) -> None:
        """An event is not in the graph, or as a placeholder alone."""
        row = self.rows.get(event_id)
        if row is not None and self.table["stands"][row]:
            self._leave(row)
            self.texts.drop(row)
            self._said.pop(row, None)
            self.vectors.put(row, None)

    def place(self, row: int) -> tuple[int, str]:
        """Where an event stands in time."""
        return int(self.table["occurred_ms"][row]), self.ids[row]

    def say(self, row: int, speaker: str | None, text: str | None) -> None:
        """Set what an event of the graph says as long as the graph has no text of it."""
        table, names = self.table, self.names
        author = speaker or names.text(int(table["agent"][row]))
        table["author"][row] = names.number(author)
        self._say(row, author, names.text(int(table["tool"][row])), text)

    def _say(self, row: int, author: str | None, tool: str | None, text: str | None) -> None:
        """What an event says: its text, who says it, and by what tool."""
        text = (text or "")[:TEXT_CHARACTERS]
        digest = hash((author, tool, text))
        if self._said.get(row) == digest:
            return
        self._said[row] = digest
        asks = _ASKS.search(text) is not None
        self.table.put(row, {"words": len(text.split()), "asks": asks})
        self.texts.put(row, said_stems(author or "", tool or "", text))

    # -- the order of time -------------------------------------------------------------------------

    def in_time(self, rows: Rows) -> Rows:
        """Some rows in the order of time, of one moment as the ledger has them."""
        return rows[self._order(rows)]

    def ranks(self, rows: Rows) -> Array:
        """The place of each of some rows in that order."""
        return ranks_of(self._order(rows))

    def _order(self, rows: Rows) -> Rows:
        columns = [self.table[name][rows] for name in _IN_TIME]
        order: Rows = numpy.lexsort(columns)
        alike = numpy.ones(max(0, len(rows) - 1), dtype=bool)
        for column in columns:
            in_order = column[order]
            alike &= in_order[1:] == in_order[:-1]
        if alike.any():  # on two servers of the ledger, or damaged
            ids = numpy.array([self.ids[row] for row in rows.tolist()])
            order = numpy.lexsort([ids, *columns])
        return order

    # -- the order of sessions ---------------------------------------------------------------------

    def owner(self, session: int) -> int:
        """Row of a session's first event of a user, by ledger position; NOBODY: it has none."""
        if session not in self.sessions:
            return NOBODY
        if session not in self._owners:
            users = self.table["user"]
            rows = (row for row in self.sessions[session] if users[row] != NOBODY)
            self._owners[session] = min(rows, key=self._position_of, default=NOBODY)
        return self._owners[session]

    def _position_of(self, row: int) -> tuple[int, int]:
        return int(self.table["position_ms"][row]), int(self.table["position_seq"][row])

    def _join(self, row: int) -> None:
        """Take an event's place in the order of its session."""
        session = int(self.table["session"][row])
        owner = self._owners.get(session)
        is_first = owner == NOBODY or (
            owner is not None and self._position_of(row) < self._position_of(owner)
        )
        if is_first and self.table["user"][row] != NOBODY:
            self._owners[session] = row
        order = self.sessions.setdefault(session, [])
        at = bisect_left(order, self.place(row), key=self.place)
        before = order[at - 1] if at else NOBODY
        after = order[at] if at < len(order) else NOBODY
        order.insert(at, row)
        self._link(before, row)
        self._link(row, after)

    def _leave(self, row: int) -> None:
        """Give up an event's place, if it has one."""
        if not self.table["stands"][row]:
            return
        session = int(self.table["session"][row])
        if self._owners.get(session) == row:
            del self._owners[session]
        order = self.sessions[session]
        del order[bisect_left(order, self.place(row), key=self.place)]
        self._link(int(self.table["previous"][row]), int(self.table["following"][row]))
        self.table["previous"][row] = self.table["following"][row] = NOBODY
        self.table["stands"][row] = False

    def _link(self, before: int, after: int) -> None:
        if before != NOBODY:
            self.table["following"][before] = after
        if after != NOBODY:
            self.table["previous"][after] = before


def _position(text: str | None) -> Position:
    try:
        position = Position.parse(text or "")
    except ValueError:
        return _LAST
    return min(position, _LAST)
