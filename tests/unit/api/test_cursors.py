"""Cursors go on where a page ended, and only for the question they are of."""

from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from api.cursors import content_of, cursor_of
from projections.errors import InvalidInput

NAME = TypeAdapter(tuple[str])
QUESTION = ["entities", "acme", None, 10]


@given(st.text(st.characters(exclude_categories=["Cs"])), st.integers(-(2**53), 2**53))
def test_a_cursor_leads_back_to_its_place(name: str, number: int) -> None:
    cursor = cursor_of(QUESTION, [name, number])
    assert cursor.isascii()
    assert content_of(QUESTION, cursor, TypeAdapter(tuple[str, int])) == ((name, number), 0)


def test_a_cursor_is_of_one_question() -> None:
    cursor = cursor_of(QUESTION, ["a"])
    for other in (["entities", "other", None, 10], ["entities", "acme", "tool", 10]):
        with pytest.raises(InvalidInput) as raised:
            content_of(other, cursor, NAME)
        assert [field for field, _ in raised.value.errors] == ["cursor"]


def crafted(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode()


@pytest.mark.parametrize(
    "cursor",
    ["", "%%%", "é", "x" * 5_000, crafted(b"{}"), crafted(b"[]"), crafted(b"[1]"), crafted(b"3")],
)
def test_what_is_none_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput):
        content_of(QUESTION, cursor, NAME)


@given(st.text(max_size=60))
def test_whatever_is_sent_is_refused_or_read(cursor: str) -> None:
    with pytest.raises(InvalidInput):
        content_of(QUESTION, cursor, NAME)


def test_a_place_of_other_types_is_refused() -> None:
    with pytest.raises(InvalidInput):
        content_of(QUESTION, cursor_of(QUESTION, ["a", 1]), TypeAdapter(tuple[int, str]))
