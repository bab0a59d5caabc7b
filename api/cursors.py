"""Opaque cursors: where the last page ended, bound to the question it was a page of."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any, Final

import orjson

from projections.errors import InvalidInput

MAX_CHARACTERS: Final = 2_048
_DIGEST_BYTES = 8
_RULE = "a `next_cursor` of the same question, as it was given"


def _digest(question: Sequence[Any]) -> str:
    return blake2b(orjson.dumps(question, default=str), digest_size=_DIGEST_BYTES).hexdigest()


def cursor_of(question: Sequence[Any], place: Sequence[str | int | float]) -> str:
    """The cursor of a place among the answers to a question.

    Args:
        question: what must be the same on the next page: route, tenant, parameters.
        place: of the last item of this page, by the values that items are sorted by.
    """
    text = orjson.dumps([_digest(question), *place])
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def place_of(question: Sequence[Any], cursor: str, kinds: Sequence[type]) -> list[Any]:
    """The place that a cursor stands for.

    Args:
        question: as when the cursor was made.
        cursor: from the client.
        kinds: types of the values of a place.

    Raises:
        InvalidInput: it is no cursor, or one of another question.
    """
    try:
        if len(cursor) > MAX_CHARACTERS or not cursor.isascii():
            raise ValueError(cursor[:8])
        padded = cursor + "=" * (-len(cursor) % 4)
        text = base64.b64decode(padded, altchars=b"-_", validate=True)
        values: Any = orjson.loads(text)
        if not isinstance(values, list) or not values:
            raise ValueError(cursor[:8])
    except (ValueError, TypeError, binascii.Error):
        raise InvalidInput((("cursor", _RULE),)) from None
    place: list[Any] = values[1:]
    right = [type(value) for value in place] == list(kinds)
    if not right or values[0] != _digest(question):
        raise InvalidInput((("cursor", _RULE),))
    return place
