"""A cursor over facts gives back the rest of a ranking, of its own question alone."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.cursors import facts_cursor, facts_of
from api.read_schemas import MAX_FACT_CURSOR_CHARACTERS
from api.retrieval.facts import FactScore, RankedFact
from api.retrieval.ranking import MAX_RANKING
from projections.errors import InvalidInput

SHARE = st.floats(0, 1)
ENTITY_IDS = st.binary(min_size=8, max_size=32).map(bytes.hex)
RANKED = st.lists(
    st.builds(
        RankedFact,
        ENTITY_IDS,
        ENTITY_IDS,
        st.uuids().map(str),
        st.binary(min_size=4, max_size=4).map(bytes.hex),
        st.builds(FactScore, SHARE, SHARE, st.integers(0, 20), SHARE, st.floats(0, 2)),
    ),
    max_size=20,
)


@given(RANKED, st.integers(0, 2**40))
def test_a_cursor_gives_back_the_rest(ranked: list[RankedFact], now_ms: int) -> None:
    cursor = facts_cursor(["q"], ranked, now_ms)
    if cursor is None:
        assert ranked == []
        return
    page, clock_ms = facts_of(["q"], cursor)
    assert clock_ms == now_ms
    assert [one[:4] for one in page] == [one[:4] for one in ranked]
    for found, one in zip(page, ranked, strict=True):
        assert found.scores == pytest.approx(one.scores, abs=1e-4)


@given(st.text(max_size=80) | st.binary(max_size=80).map(bytes.hex))
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput):
        facts_of(["q"], text)


@given(RANKED.filter(bool), st.data())
def test_a_cursor_that_was_changed_is_refused(
    ranked: list[RankedFact], data: st.DataObject
) -> None:
    cursor = facts_cursor(["q"], ranked, 0)
    assert cursor is not None
    place = data.draw(st.integers(0, len(cursor) - 2))
    other = "A" if cursor[place] != "A" else "B"
    with pytest.raises(InvalidInput):
        facts_of(["q"], cursor[:place] + other + cursor[place + 1 :])
    with pytest.raises(InvalidInput):
        facts_of(["other"], cursor)


def test_the_longest_ranking_has_a_cursor_that_is_accepted_again() -> None:
    ranked = [
        RankedFact(
            uuid.uuid4().hex,
            uuid.uuid4().hex,
            str(uuid.uuid4()),
            uuid.uuid4().hex[:8],
            FactScore(n / MAX_RANKING, 2 * n % 499 / 500, n % 9, n / 777, n / 333),
        )
        for n in range(MAX_RANKING)
    ]
    cursor = facts_cursor(["q"], ranked, 0)
    assert cursor is not None
    assert len(cursor) <= MAX_FACT_CURSOR_CHARACTERS
    assert len(facts_of(["q"], cursor)[0]) == MAX_RANKING
