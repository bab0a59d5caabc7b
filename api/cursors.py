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
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from uuid import UUID

import numpy
import orjson
from pydantic import Field, TypeAdapter

from api.retrieval.facts import FactScore, RankedFact
from api.retrieval.ranking import MAX_RANKING, Ranked
from projections.errors import InvalidInput
from projections.events import LAST_MS

T = TypeVar("T")

VERSION: Final = 3
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


class _NodeColumns(NamedTuple):
    """The nodes of a ranking, a place each."""

    node_ids: list[_Id]
    ranks: list[_Share]
    relevances: list[_Share]
    depths: list[_Hops | None]


class _FactColumns(NamedTuple):
    """The facts of a ranking, a place each."""

    source_ids: list[_Id]
    target_ids: list[_Id]
    event_ids: list[Annotated[str, Field(pattern=r"^[0-9a-f]{32}$")]]
    digests: list[_Id]
    confidences: list[_Share]
    matches: list[_Share]
    hops: list[_Hops]
    composites: list[_Share]
    scores: list[_Share]


_NODES = TypeAdapter(_NodeColumns)
_FACTS = TypeAdapter(_FactColumns)


def cursor_of(question: Sequence[Any], content: Any, now_ms: int = 0) -> str:
    """A cursor.

    Args:
        question: what must be the same on the next page: route, tenant, parameters.
        content: what the next page goes on from, as JSON can say it.
        now_ms: the clock of the question.
    """
    # Ids in hexadecimal are most of it: more effort than the least packs them no smaller.
    packed = zlib.compress(orjson.dumps(content, default=tuple), level=1)
    body = _HEAD.pack(VERSION, _question_digest(question), now_ms) + packed
    # Over the compressed bytes: some of their bits could change without a change of what they say.
    checked = _CHECKSUM.pack(zlib.crc32(body)) + body
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
        if (version, digest, checksum) != (VERSION, _question_digest(question), zlib.crc32(body)):
            raise ValueError(version)
        unpacker = zlib.decompressobj()
        text = unpacker.decompress(body[_HEAD.size :], MAX_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError(len(packed))
        return shape.validate_json(text, strict=True), now_ms
    except (ValueError, zlib.error, struct.error):
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
    if not ranking:
        return None
    node_ids, ranks, relevances, depths, *_ = zip(*ranking[:MAX_RANKING], strict=True)
    columns = _NodeColumns(list(node_ids), _shares(ranks), _shares(relevances), list(depths))
    return cursor_of(question, columns, now_ms)


def ranking_of(question: Sequence[Any], cursor: str) -> tuple[list[Ranked], int]:
    """The rest of a ranking, the best first, and the clock of the question.

    Raises:
        InvalidInput: as `content_of`.
    """
    columns, now_ms = content_of(question, cursor, _NODES)
    ranking = [
        Ranked(node_id, rank / _SCALE, relevance / _SCALE, depth)
        for node_id, rank, relevance, depth in _rows(columns)
    ]
    return ranking, now_ms


def facts_cursor(question: Sequence[Any], facts: Iterable[RankedFact], now_ms: int) -> str | None:
    """The cursor of the facts that are still to come, at most 500; None: none are.

    Args:
        question: what must be the same on the next page.
        facts: behind this page.
        now_ms: the clock of the question.
    """
    ranked = list(facts)
    if not ranked:
        return None
    scores = [fact.scores for fact in ranked]
    columns = _FactColumns(
        source_ids=[fact.source_id for fact in ranked],
        target_ids=[fact.target_id for fact in ranked],
        event_ids=[fact.event_id.replace("-", "") for fact in ranked],  # 500 facts must fit
        digests=[fact.digest for fact in ranked],
        confidences=_shares([score.confidence for score in scores]),
        matches=_shares([score.match for score in scores]),
        hops=[score.hop for score in scores],
        composites=_shares([score.composite for score in scores]),
        scores=_shares([score.score / _MAX_FACT_SCORE for score in scores]),
    )
    return cursor_of(question, columns, now_ms)


def facts_of(question: Sequence[Any], cursor: str) -> tuple[list[RankedFact], int]:
    """The rest of a ranking of facts, the best first, and the clock of the question.

    Raises:
        InvalidInput: as `content_of`.
    """
    columns, now_ms = content_of(question, cursor, _FACTS)
    return [_ranked_fact(*fact) for fact in _rows(columns)], now_ms


def _rows(columns: Sequence[Sequence[Any]]) -> Iterator[tuple[Any, ...]]:
    """What stands at each place of columns.

    Raises:
        InvalidInput: they are not of one length.
    """
    if len({len(column) for column in columns}) != 1:
        raise InvalidInput((("cursor", CURSOR_RULE),))
    return zip(*columns, strict=True)


def _ranked_fact(
    source_id: str, target_id: str, event_id: str, digest: str, *numbers: int
) -> RankedFact:
    confidence, match, hop, composite, score = numbers
    scores = FactScore(
        confidence=confidence / _SCALE,
        match=match / _SCALE,
        hop=hop,
        composite=composite / _SCALE,
        score=score / _SCALE * _MAX_FACT_SCORE,
    )
    return RankedFact(
        source_id=source_id,
        target_id=target_id,
        event_id=str(UUID(event_id)),
        digest=digest,
        scores=scores,
    )


def _shares(values: Sequence[float]) -> list[int]:
    shares: list[int] = numpy.rint(numpy.clip(values, 0.0, 1.0) * _SCALE).astype(int).tolist()
    return shares
