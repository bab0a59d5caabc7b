"""The two encodings of OTLP/HTTP, and bodies unpacked within a bound."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple

from api.otlp import json_wire, protobuf
from projections.traces.spans import LogRecord, Span, TooLarge


class Encoding(NamedTuple):
    """How requests are read and answers written."""

    media_type: str
    read_spans: Callable[[bytes], list[Span]]
    read_log_records: Callable[[bytes], list[LogRecord]]
    spans_answer: Callable[[int, str], bytes]
    logs_answer: Callable[[int, str], bytes]
    status: Callable[[int, str], bytes]


PROTOBUF: Final = Encoding(
    "application/x-protobuf",
    read_spans=protobuf.read_spans,
    read_log_records=protobuf.read_log_records,
    spans_answer=protobuf.spans_answer,
    logs_answer=protobuf.logs_answer,
    status=protobuf.status,
)
JSON: Final = Encoding(
    "application/json",
    read_spans=json_wire.read_spans,
    read_log_records=json_wire.read_log_records,
    spans_answer=json_wire.spans_answer,
    logs_answer=json_wire.logs_answer,
    status=json_wire.status,
)
ENCODINGS: Final = (PROTOBUF, JSON)


def encoding_of(content_type: str | None) -> Encoding | None:
    """The encoding that a Content-Type names."""
    media_type = (content_type or "").partition(";")[0].strip().lower()
    return next((row for row in ENCODINGS if row.media_type == media_type), None)


_STATUS_CODES: Final[Mapping[int, int]] = {
    401: 16,  # UNAUTHENTICATED
    403: 7,  # PERMISSION_DENIED
    404: 5,  # NOT_FOUND
    405: 12,  # UNIMPLEMENTED
    408: 4,  # DEADLINE_EXCEEDED
    429: 8,  # RESOURCE_EXHAUSTED
    499: 1,  # CANCELLED
    500: 13,  # INTERNAL
    503: 14,  # UNAVAILABLE
    504: 4,  # DEADLINE_EXCEEDED
}
_INVALID_ARGUMENT: Final = 3


def status_code(http_status: int) -> int:
    """The code of a `google.rpc.Status` for an HTTP status."""
    return _STATUS_CODES.get(http_status, _INVALID_ARGUMENT)


_GZIP: Final = 16 + zlib.MAX_WBITS
_MAX_MEMBERS: Final = 64
"""Of a gzip; what is behind a member is copied, so 400,000 empty ones would take hours."""


def unpacked(body: bytes, compression: str, most: int) -> bytes:
    """The body without its compression; never more than `most` bytes are made of it.

    Args:
        body: as it came.
        compression: of Content-Encoding: `gzip`, or `identity` for none.
        most: bytes that it may have then.

    Raises:
        TooLarge: it has more.
        ValueError: it is not compressed so, or not whole.
    """
    if compression != "gzip":
        if len(body) > most:
            raise TooLarge(f"at most {most:,} bytes")
        return body
    parts: list[bytes] = []
    room = most
    for _ in range(_MAX_MEMBERS):
        if not body:
            break
        stream = zlib.decompressobj(_GZIP)
        try:
            part = stream.decompress(body, room + 1)
        except zlib.error as error:
            raise ValueError(f"the body is no gzip ({error})") from error
        if len(part) > room:
            raise TooLarge(f"at most {most:,} bytes when unpacked")
        if not stream.eof:
            raise ValueError("the gzip of the body is cut off")
        parts.append(part)
        room -= len(part)
        body = stream.unused_data
    if body:
        raise ValueError(f"a gzip of more than {_MAX_MEMBERS} members")
    return b"".join(parts)
