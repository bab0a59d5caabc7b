"""Cursors go on where a page ended, and only for the question they are of."""

from __future__ import annotations

import base64
import uuid
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from api.cursors import content_of, cursor_of, facts_cursor, facts_of
from api.read_schemas import MAX_FACT_CURSOR_CHARACTERS, MAX_FACTS
from api.retrieval.facts import FactScore, RankedFact
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


def test_the_longest_ranking_of_facts_fits() -> None:
    ids = iter(
        blake2b(bytes([*divmod(number, 256)]), digest_size=16).hexdigest()
        for number in range(2_000)
    )
    facts = [
        RankedFact(
            source_id=next(ids),
            target_id=next(ids),
            event_id=str(uuid.UUID(next(ids))),
            digest=next(ids)[:8],
            scores=FactScore(
                confidence=1 / n,
                match=2 / (n + 1),
                hop=n % 4,
                composite=3 / (n + 2),
                score=4 / (n + 3),
            ),
        )
        for n in range(1, MAX_FACTS + 1)
    ]
    cursor = facts_cursor(QUESTION, facts, 7)
    assert cursor is not None
    assert len(cursor) <= MAX_FACT_CURSOR_CHARACTERS
    rest, clock_ms = facts_of(QUESTION, cursor)
    assert clock_ms == 7
    assert [fact._replace(scores=facts[0].scores) for fact in rest] == [
        fact._replace(scores=facts[0].scores) for fact in facts
    ]
    assert [fact.scores.score for fact in rest] == pytest.approx(
        [fact.scores.score for fact in facts], abs=1e-4
    )
