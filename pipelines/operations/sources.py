"""What a file holds, streamed: its lines, the elements of its list, or its records.

A record is what a mapper takes: a line of JSON lines, an element of a JSON list, an element of the
list in a page of an API (`{"data": […]}`), or all of a file that is one object. A line that is
broken is told with its number and the next one read; a list that is broken ends there, for nobody
can say where its next element would begin.
"""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import IO, Any, NamedTuple, cast

import orjson

from projections.errors import InvalidInput

MAX_LINE_BYTES = 8 * 2**20
"""A line beyond this is refused unread: a file without line ends must not fill the memory."""
MAX_DOCUMENT_BYTES = 64 * 2**20
"""Of a file that is one object, which has to be held as a whole."""
PEEKED_BYTES = 1 << 20
"""What is looked at to tell what a file holds, at most; of a packed file, or of a pipe, less."""
TELLING_BYTES = 1 << 12
"""Of which a file shows at least so many, without an end of its first record: it is too long."""
_CHUNK_CHARACTERS = 1 << 18
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"

UNREADABLE = (EOFError, gzip.BadGzipFile, zlib.error)
"""What a truncated or damaged .gz raises, at any read."""


class Item(NamedTuple):
    """One thing to import. `where` is for people; `raw` is an envelope, or why there is none."""

    where: dict[str, int]
    raw: Any
    error: InvalidInput | None = None
    is_shared: bool = False
    """Other records tell of the same event in words of their own: the first account stays."""
    own_id: str | None = None
    """Of the event when the ledger has it with another status: then it is another event."""


class Note(NamedTuple):
    """Something at a place of the source that no event holds, and why."""

    where: dict[str, int]
    field: str
    reason: str


class Source:
    """A file or standard input, opened, with gzip taken off and the bytes read so far known.

    Attributes:
        size: bytes of the file as it lies on disk; None when that cannot be known.
    """

    def __init__(self, path: Path) -> None:
        standard_input = str(path) == "-"
        # Unbuffered, so that a read returns what a pipe has instead of waiting for more.
        raw = open(0, "rb", 0, closefd=False) if standard_input else path.open("rb", 0)  # noqa: SIM115 - closed with `stream`
        self.size = None if standard_input else path.stat().st_size
        self._counted = _Counted(raw)
        buffered = io.BufferedReader(self._counted, PEEKED_BYTES)
        # By its first bytes, not by its name: standard input has none.
        packed = buffered.peek(2)[:2] == b"\x1f\x8b"
        self.stream = cast(IO[bytes], gzip.GzipFile(fileobj=buffered) if packed else buffered)

    @property
    def done(self) -> int:
        """Bytes read of `size`."""
        return self._counted.count


class _Counted(io.RawIOBase):
    """Counts what passes, under the decompression, so that remaining time can be told."""

    def __init__(self, raw: io.FileIO) -> None:
        self._raw = raw
        self.count = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        read = self._raw.readinto(buffer) or 0
        self.count += read
        return read

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()


def peekable(stream: IO[bytes]) -> io.BufferedReader:
    """The same, whose beginning can be looked at."""
    return io.BufferedReader(_AsItComes(stream), PEEKED_BYTES)


class _AsItComes(io.RawIOBase):
    """Reads what is there, and no more: a packed file may end too early, and a pipe may wait."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = cast(io.BufferedReader, stream)
        self._broken: Exception | None = None

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._broken is not None:  # whoever looked at the beginning has kept it to himself
            raise self._broken
        try:
            data = self._stream.read1(len(buffer))
        except UNREADABLE as error:
            self._broken = error
            raise
        buffer[: len(data)] = data
        return len(data)


def beginning(stream: io.BufferedReader) -> bytes:
    """The first bytes behind a byte order mark and blanks, as many as can be looked at."""
    try:
        return stream.peek(PEEKED_BYTES).removeprefix(_BYTE_ORDER_MARK).lstrip()
    except UNREADABLE:  # whoever reads it says so
        return b""


def first_record(stream: io.BufferedReader) -> Any:
    """The first record, if it is whole in what can be looked at; None: it cannot be told."""
    text = beginning(stream).decode("utf-8", "ignore").lstrip("[ \n\r\t")
    try:
        return json.JSONDecoder().raw_decode(text)[0]
    except (ValueError, RecursionError):
        return None


Record = tuple[dict[str, int], Any]
"""Where it is, and what it is: a value, an InvalidInput, or a Note of what is not read."""


def records(stream: io.BufferedReader, lists: Collection[str] = ()) -> Iterator[Record]:
    """The records of a file.

    Args:
        stream: from `peekable`.
        lists: fields of an object that hold records, where it is a page of them.
    """
    start = beginning(stream)
    if start.startswith(b"["):
        for number, value in enumerate(elements(cast(IO[bytes], stream)), start=1):
            yield {"record": number}, _as_in_lines(value)
        return
    whole = {"record": 1}
    for where, value in [(whole, document(stream))] if is_document(start) else json_lines(stream):
        listed = _listed(value, lists)
        if listed is None:
            yield where, value
        else:
            place = {} if where is whole else where
            yield from (({**place, "record": n}, item) for n, item in enumerate(listed, start=1))
            for name, other in value.items():
                if isinstance(other, list) and other and other is not listed:
                    yield where, Note(where, name, "of a page one list is read: this is another")


def _as_in_lines(value: Any) -> Any:
    """An element of a list as a line would hold it; an InvalidInput where no line could."""
    if isinstance(value, InvalidInput):
        return value
    try:
        return orjson.loads(orjson.dumps(value))
    except (orjson.JSONEncodeError, RecursionError) as error:
        return InvalidInput((("(record)", f"JSON: {error}"),))


def is_document(start: bytes) -> bool:
    """Whether a file is one object over several lines: no line of the first two is an object."""
    first_lines = [line for line in start.split(b"\n", 3)[:3] if line.strip()][:2]
    return len(first_lines) == 2 and not any(_is_object(line) for line in first_lines)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(orjson.loads(line), dict)
    except orjson.JSONDecodeError:
        return False


def document(stream: IO[bytes]) -> Any:
    """A file that is one object; an InvalidInput where it is none, or too large."""
    try:
        data = stream.read(MAX_DOCUMENT_BYTES + 1)
        if len(data) > MAX_DOCUMENT_BYTES:
            rule = (
                f"at most {MAX_DOCUMENT_BYTES // 2**20} MiB in one object: write a list, or lines"
            )
            return InvalidInput((("(file)", rule),))
        return orjson.loads(data.removeprefix(_BYTE_ORDER_MARK))
    except (orjson.JSONDecodeError, *UNREADABLE) as error:
        return InvalidInput((("(file)", f"JSON: {error}"),))


def _listed(value: Any, lists: Collection[str]) -> list[Any] | None:
    """The records of a page; None: it is none."""
    if not isinstance(value, dict):
        return None
    return next((value[name] for name in lists if isinstance(value.get(name), list)), None)


def json_lines(stream: IO[bytes]) -> Iterator[Record]:
    """Values of JSON lines; blank lines are passed over."""
    number = 0
    try:
        for number, line in lines(stream):
            where = {"line": number}
            if line is None:
                rule = f"at most {MAX_LINE_BYTES // 2**20} MiB"
                yield where, InvalidInput((("(line)", rule),))
            elif line.strip():
                try:
                    yield where, orjson.loads(line)
                except orjson.JSONDecodeError as error:
                    yield where, InvalidInput((("(line)", f"JSON: {error}"),))
    except UNREADABLE as error:
        yield {"line": number + 1}, InvalidInput((("(file)", f"gzip: {error}"),))


def lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes | None]]:
    """Numbered lines from 1; None for one that is too long, which is skipped in pieces."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES):
        number += 1
        if len(line) == MAX_LINE_BYTES and not line.endswith(b"\n"):
            while line and not line.endswith(b"\n"):
                line = stream.readline(MAX_LINE_BYTES)
            yield number, None
        else:
            yield number, line.removeprefix(_BYTE_ORDER_MARK) if number == 1 else line


def elements(
    stream: IO[bytes], is_one: Callable[[str], bool] = lambda after_bracket: False
) -> Iterator[Any]:
    """Elements of a JSON list, decoded one at a time; an InvalidInput where it is broken.

    Args:
        stream: what is no list, is its only element.
        is_one: told what follows the bracket: whether the list itself is the only element.
    """
    text = io.TextIOWrapper(stream, encoding="utf-8-sig")
    decode = json.JSONDecoder().raw_decode
    try:
        buffer = text.read(_CHUNK_CHARACTERS).lstrip()
        if not buffer.startswith("["):
            yield json.loads(buffer + text.read())
            return
        buffer = buffer[1:]
        if is_one(buffer):
            yield json.loads("[" + buffer + text.read())
            return
        separator = ""
        while True:
            buffer = buffer.lstrip() or _after_space(text)
            if buffer.startswith("]"):
                return
            if separator:
                if not buffer.startswith(separator):
                    raise ValueError("',' or ']' expected after an element")
                buffer = buffer[1:].lstrip() or _after_space(text)
            element, buffer = _decode_next(decode, buffer, text)
            separator = ","
            yield element
    except (ValueError, RecursionError, *UNREADABLE) as error:
        yield InvalidInput((("(file)", f"JSON: {error}"),))


def _after_space(text: io.TextIOWrapper) -> str:
    while chunk := text.read(_CHUNK_CHARACTERS):
        if begun := chunk.lstrip():
            return begun
    raise EOFError("the list does not end")


def _decode_next(
    decode: Callable[[str], tuple[Any, int]], buffer: str, text: io.TextIOWrapper
) -> tuple[Any, str]:
    """The next element and what follows it; reads as much as it had, so a long one is linear."""
    while True:
        try:
            element, end = decode(buffer)
        except ValueError:
            more = text.read(max(_CHUNK_CHARACTERS, len(buffer)))
            if not more:
                raise
            buffer += more
        else:
            return element, buffer[end:]
