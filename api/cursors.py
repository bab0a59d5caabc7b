"""Opaque cursors: what the next page goes on from, bound to the question it is a page of.

A cursor holds the version of its format, a digest of the question, the clock of the first page and
what the route wants to know again, as JSON: the place of the last item, or the rest of a ranking.
What has been ranked once is not ranked again, so pages are disjoint and complete although the graph
changes meanwhile, and any process of the API can answer the next one. A cursor grants nothing: what
it names is read again, within the tenant and the user's scope. It is checked against damage, not
against forgery.
"""

from __future__ import annotations

import base64
import bz2
import struct
from collections.abc import Callable, Iterable, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from uuid import UUID
from zlib import crc32

import orjson
from pydantic import Field, TypeAdapter

from api.retrieval.facts import FactScore, RankedFact
from api.retrieval.ranking import MAX_RANKING, Ranked
from projections.errors import InvalidInput
from projections.events import LAST_MS

T = TypeVar("T")

VERSION: Final = 2
CURSOR_RULE: Final = "a `next_cursor` of the same question, as it was given"
MAX_BYTES: Final = 120_000
"""Of what a cursor holds, unpacked."""
_BY_TIME = TypeAdapter(tuple[int, str])
_CHECKSUM = struct.Struct("<I")
_HEAD = struct.Struct("<B8sq")
_SCALE: Final = 65_535
"""Scores are kept as 16 bits."""
_MAX_FACT_SCORE: Final = 2.0
"""Of what facts are sorted by; all other scores are at most 1."""

_Share = Annotated[int, Field(ge=0, le=_SCALE)]
_Id = Annotated[str, Field(max_length=100)]
_Hops = Annotated[int, Field(ge=0, le=1_000)]


class _NodeRow(NamedTuple):
    """A node of a ranking."""

    node_id: _Id
    rank: _Share
    relevance: _Share
    depth: _Hops | None


class _FactRow(NamedTuple):
    """A fact of a ranking."""

    source_id: _Id
    target_id: _Id
    event_id: Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]
    digest: _Id
    confidence: _Share
    match: _Share
    hop: _Hops
    composite: _Share
    score: _Share


_NODES = TypeAdapter(list[_NodeRow])
_FACTS = TypeAdapter(list[_FactRow])


def cursor_of(question: Sequence[Any], content: Any, now_ms: int = 0) -> str:
    """A cursor.

    Args:
        question: what must be the same on the next page: route, tenant, parameters.
        content: what the next page goes on from, as JSON can say it.
        now_ms: the clock of the question.
    """
    # bz2 packs ids in hexadecimal an eighth smaller than zlib, and 500 facts must fit.
    packed = bz2.compress(orjson.dumps(content, default=tuple))
    body = _HEAD.pack(VERSION, _question_digest(question), now_ms) + packed
    # Over the compressed bytes: some of their bits could change without a change of what they say.
    checked = _CHECKSUM.pack(crc32(body)) + body
    return base64.urlsafe_b64encode(checked).decode().rstrip("=")


def content_of(question: Sequence[Any], cursor: str, shape: TypeAdapter[T]) -> tuple[T, int]:
    """What a cursor holds, and the clock of its question.

    Args:
        question: as when the cursor was made.
        cursor: from the client.
        shape: of the content.

    Raises:
        InvalidInput: it is no cursor, was changed, or is of another question.
    """
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        (checksum,) = _CHECKSUM.unpack_from(packed)
        body = packed[_CHECKSUM.size :]
        version, digest, now_ms = _HEAD.unpack_from(body)
        if (version, digest, checksum) != (VERSION, _question_digest(question), crc32(body)):
            raise ValueError(version)
        unpacker = bz2.BZ2Decompressor()
        text = unpacker.decompress(body[_HEAD.size :], MAX_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError(len(packed))
        return shape.validate_json(text, strict=True), now_ms
    except (ValueError, OSError, struct.error):
        raise InvalidInput((("cursor", CURSOR_RULE),)) from None


def place_of(question: Sequence[Any], cursor: str | None, shape: TypeAdapter[T]) -> T | None:
    """Where the page before ended; None: this is the first page."""
    return None if cursor is None else content_of(question, cursor, shape)[0]


def time_place(question: Sequence[Any], cursor: str | None) -> tuple[int, str] | None:
    """The same of a list by time and id."""
    place = place_of(question, cursor, _BY_TIME)
    return place and (min(max(place[0], 0), LAST_MS), place[1])


def page_of(
    question: Sequence[Any], rows: Sequence[T], limit: int, place: Callable[[T], Any]
) -> tuple[list[T], str | None]:
    """A page of rows, and the cursor of the next one, if there is any.

    Args:
        question: see `cursor_of`.
        rows: up to one more than the page has.
        limit: rows of the page.
        place: (row) → where it stands, for the next page to go on behind it.
    """
    page = list(rows[:limit])
    return page, cursor_of(question, place(page[-1])) if len(rows) > limit else None


def _question_digest(question: Sequence[Any]) -> bytes:
    return blake2b(orjson.dumps(question, default=str), digest_size=8).digest()


def ranking_cursor(question: Sequence[Any], ranking: Sequence[Ranked], now_ms: int) -> str | None:
    """The cursor of the nodes that are still to come; None: none are.

    Args:
        question: what must be the same on the next page.
        ranking: behind this page.
        now_ms: the clock of the question.
    """
    rows = [
        _NodeRow(node.node_id, _share(node.rank), _share(node.relevance), node.depth)
        for node in ranking[:MAX_RANKING]
    ]
    return cursor_of(question, rows, now_ms) if rows else None


def ranking_of(question: Sequence[Any], cursor: str) -> tuple[list[Ranked], int]:
    """The rest of a ranking, the best first, and the clock of the question.

    Raises:
        InvalidInput: as `content_of`.
    """
    rows, now_ms = content_of(question, cursor, _NODES)
    ranking = [
        Ranked(row.node_id, row.rank / _SCALE, row.relevance / _SCALE, row.depth) for row in rows
    ]
    return ranking, now_ms


def facts_cursor(question: Sequence[Any], facts: Iterable[RankedFact], now_ms: int) -> str | None:
    """The cursor of the facts that are still to come, at most 500; None: none are.

    Args:
        question: what must be the same on the next page.
        facts: behind this page.
        now_ms: the clock of the question.
    """
    rows = [
        _FactRow(
            source_id=fact.source_id,
            target_id=fact.target_id,
            event_id=fact.event_id.replace("-", ""),  # 500 facts must fit
            digest=fact.digest,
            confidence=_share(fact.scores.confidence),
            match=_share(fact.scores.match),
            hop=fact.scores.hop,
            composite=_share(fact.scores.composite),
            score=_share(fact.scores.score / _MAX_FACT_SCORE),
        )
        for fact in facts
    ]
    return cursor_of(question, rows, now_ms) if rows else None


def facts_of(question: Sequence[Any], cursor: str) -> tuple[list[RankedFact], int]:
    """The rest of a ranking of facts, the best first, and the clock of the question.

    Raises:
        InvalidInput: as `content_of`.
    """
    rows, now_ms = content_of(question, cursor, _FACTS)
    return [_ranked_fact(row) for row in rows], now_ms


def _ranked_fact(row: _FactRow) -> RankedFact:
    scores = FactScore(
        confidence=row.confidence / _SCALE,
        match=row.match / _SCALE,
        hop=row.hop,
        composite=row.composite / _SCALE,
        score=row.score / _SCALE * _MAX_FACT_SCORE,
    )
    event_id = str(UUID(row.event_id))
    return RankedFact(
        source_id=row.source_id,
        target_id=row.target_id,
        event_id=event_id,
        digest=row.digest,
        scores=scores,
    )


def _share(value: float) -> int:
    return round(min(1.0, max(0.0, value)) * _SCALE)
