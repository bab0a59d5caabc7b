"""Facts depend on the set of what was said, not on order, batches or repetition."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from enrichment.facts import Assertion, Retraction
from enrichment.histories import Fact, Group, entry_of, group_of, groups_of, intervals, merge
from tests.fact_factories import GROUP, assertion, retraction
from tests.factories import event_id

TARGETS = ("Oslo", "Rome", "Lima")
Said = list[Assertion | Retraction]

days = st.integers(0, 5)
numbers = st.integers(1, 8)
assertions = st.builds(
    lambda number, target, at, lasts, ordinal, kind: assertion(
        number,
        target,
        at,
        until=None if lasts is None else at + lasts,
        ordinal=ordinal,
        source_kind=kind,
        position_ms=1_000 + number,
    ),
    numbers,
    st.sampled_from(TARGETS),
    days,
    st.none() | st.integers(1, 4),
    st.integers(0, 1),
    st.sampled_from(["user_edit", "conversation"]),
)
retractions = st.builds(
    lambda number, target, at, of: retraction(
        100 + number, target=target, at=0 if at is None and of is None else at, of=of
    ),
    numbers,
    st.none() | st.sampled_from(TARGETS),
    st.none() | days,
    st.none() | numbers,
)


def _identity(said: Assertion | Retraction) -> tuple[object, ...]:
    return (type(said), said.event_id, said.ordinal)


histories = st.lists(assertions | retractions, max_size=12, unique_by=_identity)


@given(histories, st.randoms(use_true_random=False), st.lists(st.integers(1, 4), max_size=12))
def test_order_batches_and_repetition_change_nothing(said: Said, random, sizes) -> None:  # type: ignore[no-untyped-def]  # Hypothesis's Random
    rows = [entry_of(one) for one in said]
    shuffled = rows + random.sample(rows, len(rows) // 2)
    random.shuffle(shuffled)
    kept: list[str] = []
    for size in [*sizes, len(shuffled)]:
        batch, shuffled = shuffled[:size], shuffled[size:]
        kept = merge(kept, batch)
    assert kept == merge(rows)
    assert intervals(GROUP, kept) == intervals(GROUP, rows)


@given(histories)
def test_intervals_of_a_functional_relation_never_overlap(said: Said) -> None:
    found = [f for f in _facts(GROUP, said) if f.valid_to_ms != f.valid_from_ms]
    for one, other in pairwise(found):
        assert one.valid_to_ms is not None
        assert one.valid_to_ms <= other.valid_from_ms


@given(histories)
def test_every_event_supports_a_fact_and_no_edge_has_the_key_of_another(said: Said) -> None:
    found = _facts(GROUP, said)
    asserted = {one.event_id for one in said if isinstance(one, Assertion)}
    assert {event for fact in found for event in fact.supporting_event_ids} == asserted
    keys = [(f.target_id, f.valid_from_ms, f.event_id) for f in found]
    assert len(set(keys)) == len(keys)


@given(histories)
def test_an_interval_does_not_end_before_it_begins(said: Said) -> None:
    for fact in _facts(GROUP, said):
        assert fact.valid_to_ms is None or fact.valid_to_ms >= fact.valid_from_ms


@given(histories)
def test_of_a_relation_with_many_targets_none_ends_another(said: Said) -> None:
    """Each target's facts are those that it would have alone."""
    many: Said = [one._replace(relation="likes") for one in said]
    for one in many:
        if isinstance(one, Assertion):
            group = group_of(one)
            alone = [
                other
                for other in many
                if (isinstance(other, Assertion) and group_of(other) == group)
                or (isinstance(other, Retraction) and other.target_id and group in groups_of(other))
            ]
            for fact in _facts(group, alone):
                assert fact.target_id == one.target_id
                assert fact.expired_at_ms is None or fact.expired_at_ms < 1_000  # a retraction's


@given(histories)
def test_targets_alternate_unless_something_ended(said: Said) -> None:
    """Two intervals of one target that touch are one, unless the first was to end there."""
    plain: Said = [one._replace(valid_to_ms=None) for one in said if isinstance(one, Assertion)]
    found = [f for f in _facts(GROUP, plain) if f.valid_to_ms != f.valid_from_ms]
    for one, other in pairwise(found):
        between = [f for f in _facts(GROUP, plain) if f.valid_from_ms == other.valid_from_ms]
        assert one.target_id != other.target_id or len(between) > 1


@given(numbers, numbers, numbers)
def test_a_then_b_then_a_keeps_both_intervals_of_a(first: int, gap: int, late: int) -> None:
    said: Said = [
        assertion(1, "Oslo", first),
        assertion(3, "Oslo", first + gap + late),
        assertion(2, "Rome", first + gap),
    ]
    found = _facts(GROUP, said)
    assert [fact.event_id for fact in found] == [event_id(1), event_id(2), event_id(3)]
    assert [fact.valid_to_ms for fact in found] == [*(f.valid_from_ms for f in found[1:]), None]


def _facts(group: Group, said: Said) -> list[Fact]:
    return intervals(group, [entry_of(one) for one in said])
