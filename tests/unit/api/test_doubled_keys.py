"""A key that stands twice in an object is refused: whose value would count is anybody's guess."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.dependencies import decode_json
from projections.errors import InvalidInput


@pytest.mark.parametrize(
    "body",
    [
        b'{"user_id": "a", "user_id": "b"}',
        b'{"payload": {"user_id": 1, "x": [{"user_id" : 1, "user_id"\n: 2}]}}',
        b'[{"user_id": 1}, {"user_id": 1, "user_id": 1}]',
        b'{"user_id": 1, "\\u0075ser_id": 2}',
    ],
)
def test_the_key_is_named(body: bytes) -> None:
    with pytest.raises(InvalidInput) as refused:
        decode_json(body)
    assert refused.value.errors == (("user_id", "stands once in its object"),)


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text() | st.just('a": {"b":'),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(values)
def test_what_has_none_twice_is_read_as_before(value: object) -> None:
    body = orjson.dumps(value)
    assert decode_json(body) == orjson.loads(body)
