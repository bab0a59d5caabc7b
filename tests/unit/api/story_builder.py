"""Stories written down a line an event, as columns tell them."""

from __future__ import annotations

from typing import Any

import numpy

from enrichment.event_kinds import FAILED, TOOL_USE
from enrichment.stems import said_stems
from pipelines.columns.records import KINDS, MESSAGE, Stories, StoriesAsked, StoryFact
from tests.factories import START_MS

MINUTE_MS = 60_000


class Told:
    """Events in the order in which they are added.

    Args:
        question: whose stems are counted; of no question nothing is.
    """

    def __init__(self, question: StoriesAsked | None = None) -> None:
        self._question = question
        self._rows: list[dict[str, Any]] = []
        self.facts: list[StoryFact] = []

    def add(self, story: int, kind: str, text: str = "", **fields: Any) -> Told:
        """An event: story, kind, what it says; tool, author, user, status, minute."""
        self._rows.append({"story": story, "kind": kind, "text": text, **fields})
        return self

    def stories(self) -> Stories:
        """All of them."""
        rows = sorted(self._rows, key=lambda row: row["story"])
        stems = [] if self._question is None else list(self._question.stems)
        said = [
            said_stems(row.get("author", "bot"), row.get("tool", ""), row["text"]) for row in rows
        ]
        authors, author = _coded([row.get("author", "bot") for row in rows])
        agents, agent = _coded([row.get("agent", row.get("author", "bot")) for row in rows])
        tools, tool = _coded([row.get("tool") for row in rows])
        users, user = _coded([row.get("user") for row in rows])
        types, type_ = _coded([row.get("type", row["kind"]) for row in rows])
        kind = numpy.array([KINDS.index(row["kind"]) for row in rows])
        acting = {row.get("author", "bot") for row in rows if row["kind"] in TOOL_USE}
        identifiers = [] if self._question is None else self._question.identifiers
        counts = numpy.array([[one[stem] for stem in stems] for one in said], dtype=float)
        counts = counts.reshape(len(rows), len(stems))
        return Stories(
            ids=[row.get("id", f"{number}") for number, row in enumerate(rows)],
            authors=authors,
            agents=agents,
            tools=tools,
            users=users,
            types=types,
            facts=self.facts,
            total=len(rows),
            holding=(counts > 0).sum(axis=0),
            story=numpy.array([row["story"] for row in rows]),
            occurred_ms=numpy.array(
                [
                    START_MS + row.get("minute", 100 * row["story"] + number) * MINUTE_MS
                    for number, row in enumerate(rows)
                ]
            ),
            author=author,
            agent=agent,
            tool=tool,
            user=user,
            type=type_,
            kind=kind,
            failed=numpy.array(
                [row["kind"] == "failure" or row.get("status") in FAILED for row in rows]
            ),
            leads_to=numpy.array([row.get("leads_to", -1) for row in rows]),
            guessed=numpy.array([row.get("guessed", False) for row in rows]),
            person=numpy.array(
                [
                    KINDS.index(row["kind"]) == MESSAGE and row.get("author", "bot") not in acting
                    for row in rows
                ]
            ),
            named=numpy.array([row.get("named", False) for row in rows]),
            theirs=numpy.array([row.get("theirs", False) for row in rows]),
            acted=numpy.array([row.get("acted", False) for row in rows]),
            in_session=numpy.array([row.get("in_session", False) for row in rows]),
            words=numpy.array([len(row["text"].split()) for row in rows]),
            asks=numpy.array([row["text"].endswith("?") for row in rows]),
            counts=counts,
            labels=numpy.array(
                [[stem in row.get("labels", ()) for stem in stems] for row in rows], dtype=bool
            ).reshape(counts.shape),
            marks=numpy.array([row.get("marks", 0) for row in rows]),
            fulfilled=numpy.array([row.get("fulfilled", False) for row in rows]),
            kept_by=numpy.array([row.get("kept_by", -1) for row in rows]),
            holds=numpy.array(
                [[all(one[stem] for stem in stems_of) for stems_of in identifiers] for one in said],
                dtype=bool,
            ).reshape(len(rows), len(identifiers)),
            cosines=numpy.array([row.get("cosine", 0.0) for row in rows]),
        )


def _coded(values: list[str | None]) -> tuple[list[str], Any]:
    names = sorted({value for value in values if value is not None})
    codes = [-1 if value is None else names.index(value) for value in values]
    return names, numpy.array(codes)
