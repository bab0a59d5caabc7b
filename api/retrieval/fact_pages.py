"""Cursors over facts: the rest of a frozen ranking, by what tells a fact from every other.

As with nodes (`pages`), what has been ranked once is not ranked again, any process can answer the
next page, and a cursor grants nothing: the facts are read again, within the tenant and the user's
scope. The ends and the event find a fact; a digest tells it from others that the event says.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from api.retrieval.facts import FactScore, FactWalk, RecalledFact, key_of, recalled_fact
from api.retrieval.pages import CURSOR_RULE, opened, sealed
from consolidation.forgetting_payloads import FactKey
from pipelines.graph.reads.facts import FactReads
from projections.errors import InvalidInput

_ROW = struct.Struct("<HHHHB16s8sBB")
_SCALE: Final = 65_535
_MAX_SCORE: Final = 2.0
"""Of what facts are sorted by; all other scores are at most 1."""


class RankedFact(NamedTuple):
    """A place in a ranking of facts.

    Attributes:
        digest: of the fact's whole key.
    """

    source_id: str
    target_id: str
    event_id: str
    digest: bytes
    scores: FactScore


def _digest(key: FactKey) -> bytes:
    return blake2b(orjson.dumps(key.parts), digest_size=8).digest()


def ranked_fact(fact: RecalledFact) -> RankedFact:
    """The place of a fact that was found."""
    key = fact.key
    scores = FactScore(fact.confidence, fact.match, fact.hop, fact.composite, fact.score)
    return RankedFact(key.source_id, key.target_id, key.event_id, _digest(key), scores)


def cursor_of(question: Sequence[Any], rest: Iterable[RankedFact], now_ms: int) -> str | None:
    """The cursor of the facts that are still to come, at most 500; None: nothing is.

    Args:
        question: what must be the same on the next page.
        rest: behind this page.
        now_ms: the clock of the question.
    """
    rows = b"".join(map(_packed, rest))
    return sealed(question, rows, now_ms) if rows else None


def page_of(question: Sequence[Any], cursor: str) -> tuple[list[RankedFact], int]:
    """The rest of the ranking that a cursor stands for, and the clock of the question.

    Raises:
        InvalidInput: it is no cursor, was changed, or is of another question.
    """
    rows, now_ms = opened(question, cursor)
    try:
        return _unpacked(rows), now_ms
    except (ValueError, struct.error):
        raise InvalidInput((("cursor", CURSOR_RULE),)) from None


def read_page(
    reads: FactReads, walk: FactWalk, page: Sequence[RankedFact], user_id: str | None
) -> list[RecalledFact]:
    """The facts of a page as they are now, in its order; those that are gone are left out.

    Args:
        reads: the transaction.
        walk: that has not begun; it is given the facts.
        page: of a ranking.
        user_id: whose facts beside those of nobody.

    Returns:
        Facts with the scores of the ranking. What other events said the same is not looked for.
    """
    rows = reads.facts_between(
        ((one.source_id, one.target_id, one.event_id) for one in page), user_id
    )
    walk.take(reads, rows)
    known = {_digest(key_of(row)): row for row in rows}
    return [
        recalled_fact(walk, known[one.digest], one.scores) for one in page if one.digest in known
    ]


def _packed(one: RankedFact) -> bytes:
    source, target = bytes.fromhex(one.source_id), bytes.fromhex(one.target_id)
    confidence, match, hop, composite, score = one.scores
    parts = (confidence, match, composite, score / _MAX_SCORE)
    scores = (round(min(1.0, max(0.0, value)) * _SCALE) for value in parts)
    event = uuid.UUID(one.event_id).bytes
    row = _ROW.pack(*scores, hop, event, one.digest, len(source), len(target))
    return row + source + target


def _unpacked(rows: bytes) -> list[RankedFact]:
    found = []
    place = 0
    while place < len(rows):
        *scores, hop, event, digest, source_size, target_size = _ROW.unpack_from(rows, place)
        place += _ROW.size
        source = rows[place : place + source_size]
        target = rows[place + source_size : place + source_size + target_size]
        place += source_size + target_size
        if len(target) != target_size:
            raise ValueError(place)
        confidence, match, composite, score = (value / _SCALE for value in scores)
        found.append(
            RankedFact(
                source.hex(),
                target.hex(),
                str(uuid.UUID(bytes=event)),
                digest,
                FactScore(confidence, match, hop, composite, score * _MAX_SCORE),
            )
        )
    return found
