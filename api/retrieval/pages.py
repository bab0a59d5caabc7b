"""Cursors that carry the rest of a frozen ranking, so that pages are disjoint and complete.

What has been ranked once is not ranked again: the graph may change between two pages, and any
process of the API can answer the next one. A cursor holds ids and scores of the nodes that are
still to come, at most 500, a digest of the question, and its clock. It grants nothing: the nodes
are read again, within the tenant and the user's scope.
"""

from __future__ import annotations

import base64
import binascii
import struct
import uuid
import zlib
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple

import orjson

from api.retrieval.ranking import MAX_RANKING, Ranked
from pipelines.graph.reads.scope import RETRIEVED, label_and_id, wire_id
from projections.errors import InvalidInput
from projections.schema import EVENT

_VERSION = 1
_DIGEST_BYTES = 8
_CHECKSUM = struct.Struct("<I")
_HEAD = struct.Struct("<B8sq")
_ROW = struct.Struct("<BBHHB")
_SCALE = 65_535
_NO_DEPTH = 255
_MAX_BYTES = 40_000
_LABELS = [row.label for row in RETRIEVED]
CURSOR_RULE: Final = "a `next_cursor` of the same question, as it was given"


class Page(NamedTuple):
    """What a cursor stands for.

    Attributes:
        ranking: the rest of it, the best first.
        now_ms: the clock of the first page.
    """

    ranking: list[Ranked]
    now_ms: int


def cursor_of(question: Sequence[Any], ranking: Sequence[Ranked], now_ms: int) -> str | None:
    """The cursor of what is still to come; None: nothing is.

    Args:
        question: what must be the same on the next page.
        ranking: behind this page.
        now_ms: the clock of the question.
    """
    if not ranking:
        return None
    return sealed(question, b"".join(map(_packed, ranking[:MAX_RANKING])), now_ms)


def page_of(question: Sequence[Any], cursor: str) -> Page:
    """The page that a cursor stands for.

    Raises:
        InvalidInput: it is none, was changed, or is of another question.
    """
    rows, now_ms = opened(question, cursor)
    try:
        return Page(_unpacked(rows), now_ms)
    except (ValueError, struct.error, IndexError):
        raise InvalidInput((("cursor", CURSOR_RULE),)) from None


def sealed(question: Sequence[Any], rows: bytes, now_ms: int) -> str:
    """A cursor: rows of a ranking, the clock, and the digest of the question, checked."""
    body = _HEAD.pack(_VERSION, _digest(question), now_ms) + zlib.compress(rows, 6)
    # Over the compressed bytes: some of their bits could change without a change of what they say.
    checked = _CHECKSUM.pack(zlib.crc32(body)) + body
    return base64.urlsafe_b64encode(checked).decode().rstrip("=")


def opened(question: Sequence[Any], cursor: str) -> tuple[bytes, int]:
    """The rows and the clock that were sealed.

    Raises:
        InvalidInput: it is no cursor, was changed, or is of another question.
    """
    try:
        packed = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        (checksum,) = _CHECKSUM.unpack_from(packed)
        body = packed[_CHECKSUM.size :]
        version, digest, now_ms = _HEAD.unpack_from(body)
        if (version, digest, checksum) != (_VERSION, _digest(question), zlib.crc32(body)):
            raise ValueError(version)
        unpacker = zlib.decompressobj()
        rows = unpacker.decompress(body[_HEAD.size :], _MAX_BYTES)
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError(len(packed))
    except (ValueError, zlib.error, struct.error, binascii.Error):
        raise InvalidInput((("cursor", CURSOR_RULE),)) from None
    return rows, now_ms


def _digest(question: Sequence[Any]) -> bytes:
    return blake2b(orjson.dumps(question), digest_size=_DIGEST_BYTES).digest()


def _packed(one: Ranked) -> bytes:
    label, own_id = label_and_id(one.node_id)
    data = _id_bytes(label, own_id)
    depth = _NO_DEPTH if one.depth is None else min(one.depth, _NO_DEPTH - 1)
    scores = (round(min(1.0, max(0.0, value)) * _SCALE) for value in (one.rank, one.relevance))
    return _ROW.pack(_LABELS.index(label), len(data), *scores, depth) + data


def _id_bytes(label: str, own_id: str) -> bytes:
    return uuid.UUID(own_id).bytes if label == EVENT.label else bytes.fromhex(own_id)


def _unpacked(rows: bytes) -> list[Ranked]:
    found = []
    place = 0
    while place < len(rows):
        label_number, size, rank, relevance, depth = _ROW.unpack_from(rows, place)
        place += _ROW.size
        data = rows[place : place + size]
        place += size
        if len(data) != size:
            raise ValueError(size)
        label = _LABELS[label_number]
        own_id = str(uuid.UUID(bytes=data)) if label == EVENT.label else data.hex()
        found.append(
            Ranked(
                wire_id(label, own_id),
                rank / _SCALE,
                relevance / _SCALE,
                None if depth == _NO_DEPTH else depth,
            )
        )
    return found
