"""Intervals of facts: who ends whom, what stays, what is withdrawn."""

from __future__ import annotations

import pytest

from enrichment.facts import Assertion, Retraction
from enrichment.histories import entry_of, group_of, groups_of, intervals, merge
from projections.schema import MAX_SUPPORTING
from tests.fact_factories import GROUP, assertion, facts, party, retraction, spans
from tests.factories import event_id

Said = list[Assertion | Retraction]


def test_another_target_ends_the_interval_where_it_begins() -> None:
    assert spans(assertion(1, "Oslo", 0), assertion(2, "Rome", 5)) == [
        ("Oslo", 0, 5),
        ("Rome", 5, None),
    ]


def test_what_was_ended_expired_when_the_ledger_took_in_what_ended_it() -> None:
    found = facts(assertion(1, "Oslo", 0), assertion(2, "Rome", 5, position_ms=777))
    assert [fact.expired_at_ms for fact in found] == [777, None]


def test_a_target_that_comes_back_keeps_both_its_intervals() -> None:
    said = [assertion(1, "Oslo", 0), assertion(2, "Rome", 5), assertion(3, "Oslo", 9)]
    assert spans(*said) == [("Oslo", 0, 5), ("Rome", 5, 9), ("Oslo", 9, None)]


def test_a_late_fact_is_spliced_in() -> None:
    said = [assertion(1, "Oslo", 0), assertion(3, "Oslo", 9), assertion(8, "Rome", 5)]
    assert spans(*said) == [("Oslo", 0, 5), ("Rome", 5, 9), ("Oslo", 9, None)]


def test_a_fact_said_again_is_one_edge_with_both_as_supporters() -> None:
    found = facts(assertion(1, "Oslo", 0), assertion(2, "Oslo", 5))
    assert [(f.event_id, f.support_count, f.supporting_event_ids) for f in found] == [
        (event_id(1), 2, (event_id(1), event_id(2)))
    ]


def test_of_many_supporters_the_last_twenty_are_shown_and_all_are_counted() -> None:
    (found,) = facts(*(assertion(number, "Oslo", number) for number in range(1, 31)))
    assert (len(found.supporting_event_ids), found.support_count) == (MAX_SUPPORTING, 30)
    assert found.supporting_event_ids[-1] == event_id(30)


def test_a_stated_end_is_kept_and_expires_nothing() -> None:
    (found,) = facts(assertion(1, "Oslo", 0, until=3))
    assert (spans(assertion(1, "Oslo", 0, until=3)), found.expired_at_ms) == (
        [("Oslo", 0, 3)],
        None,
    )


def test_a_stated_end_before_the_next_target_leaves_a_gap() -> None:
    said = [assertion(1, "Oslo", 0, until=3), assertion(2, "Rome", 5)]
    assert spans(*said) == [("Oslo", 0, 3), ("Rome", 5, None)]


def test_a_stated_end_beats_none() -> None:
    assert spans(assertion(1, "Oslo", 0), assertion(2, "Oslo", 1, until=4)) == [("Oslo", 0, 4)]


def test_what_begins_at_a_stated_end_is_a_new_interval() -> None:
    said = [assertion(1, "Oslo", 0, until=4), assertion(2, "Oslo", 4)]
    assert spans(*said) == [("Oslo", 0, 4), ("Oslo", 4, None)]


def test_of_two_that_begin_at_once_the_later_event_stays() -> None:
    said = [assertion(1, "Oslo", 0), assertion(2, "Rome", 0)]
    assert spans(*said) == [("Oslo", 0, 0), ("Rome", 0, None)]


def test_one_event_says_one_thing_at_a_time() -> None:
    said = [assertion(1, "Oslo", 0), assertion(1, "Rome", 0, ordinal=1)]
    assert spans(*said) == [("Rome", 0, None)]


def test_a_retraction_ends_what_holds_then() -> None:
    (found,) = facts(assertion(1, "Oslo", 0), retraction(2, at=4))
    assert (spans(assertion(1, "Oslo", 0), retraction(2, at=4)), found.expired_at_ms) == (
        [("Oslo", 0, 4)],
        2,
    )


def test_a_retraction_of_another_target_changes_nothing() -> None:
    said = [assertion(1, "Oslo", 0), assertion(2, "Rome", 3)]
    assert spans(*said, retraction(3, at=4, target="Oslo")) == [("Oslo", 0, 3), ("Rome", 3, None)]


def test_what_is_said_again_after_a_retraction_holds_again() -> None:
    said: Said = [
        assertion(1, "Oslo", 0),
        retraction(2, at=4),
        assertion(3, "Oslo", 6),
    ]
    assert spans(*said) == [("Oslo", 0, 4), ("Oslo", 6, None)]


def test_what_an_event_withdrawn_altogether_said_never_held_and_ended_nothing() -> None:
    said: Said = [
        assertion(1, "Oslo", 0),
        assertion(2, "Rome", 5),
        retraction(3, of=2),
    ]
    assert spans(*said) == [("Oslo", 0, None), ("Rome", 5, 5)]


def test_an_event_withdrawn_since_a_moment_ends_there() -> None:
    said: Said = [assertion(1, "Oslo", 0), retraction(2, of=1, at=7)]
    assert spans(*said) == [("Oslo", 0, 7)]


def test_a_withdrawn_supporter_leaves_the_fact_to_the_others() -> None:
    said: Said = [
        assertion(1, "Oslo", 0),
        assertion(2, "Oslo", 2),
        retraction(3, of=1, at=5),
    ]
    assert spans(*said) == [("Oslo", 0, None)]


def test_a_retraction_may_arrive_before_what_it_withdraws() -> None:
    first = [entry_of(retraction(1, of=2, at=3))]
    later = merge(first, [entry_of(assertion(2, "Oslo", 0))])
    assert intervals(GROUP, later) == facts(assertion(2, "Oslo", 0), retraction(1, of=2, at=3))


def test_the_best_supporter_by_source_and_status_gives_confidence_and_words() -> None:
    weak = assertion(1, "Oslo", 0, confidence=9_000)
    edited = assertion(
        2, "Oslo", 1, confidence=7_000, source_kind="user_edit", status="confirmed", fact="I do"
    )
    (found,) = facts(weak, edited)
    assert (found.confidence, found.source_kind, found.status, found.fact) == (
        7_000,
        "user_edit",
        "confirmed",
        "I do",
    )


def test_the_first_of_equal_supporters_gives_the_words() -> None:
    (found,) = facts(assertion(2, "Oslo", 1, fact="later"), assertion(1, "Oslo", 0, fact="first"))
    assert found.fact == "first"


def test_a_relation_of_many_targets_keeps_them_side_by_side() -> None:
    hiking = assertion(1, "hiking", 0, relation="likes")
    chess = assertion(2, "chess", 5, relation="likes")
    assert group_of(hiking) != group_of(chess)
    assert spans(hiking, group=group_of(hiking)) == [("hiking", 0, None)]


def test_users_have_groups_of_their_own() -> None:
    mine = assertion(1, "Oslo", 0, user_id="mia")
    assert group_of(mine).history_id != GROUP.history_id


def test_an_absent_user_is_not_a_user_of_that_name() -> None:
    assert GROUP._replace(user_id="-").history_id != GROUP.history_id


def test_the_flag_counts_outside_the_table_only() -> None:
    for flag, target_id in ((True, None), (False, party_id_of("red"))):
        said = assertion(1, "red", 0, relation="has_colour", functional=flag)
        assert group_of(said).target_id == target_id
        assert group_of(said._replace(relation="lives_in")).target_id is None
        assert group_of(said._replace(relation="likes")).target_id == party_id_of("red")


def party_id_of(name: str) -> str:
    return assertion(1, name, 0).target_id


def test_a_retraction_is_kept_wherever_the_fact_may_be() -> None:
    withdrawn = retraction(1, target="red", relation="has_colour")
    for flag in (True, False):
        said = assertion(2, "red", 0, relation="has_colour", functional=flag)
        assert group_of(said) in groups_of(withdrawn)
    assert groups_of(retraction(1, target="Oslo")) == [GROUP]
    assert len(groups_of(retraction(1, target="hiking", relation="likes"))) == 1


def test_rows_are_kept_once_and_in_one_order() -> None:
    rows = [entry_of(assertion(number, "Oslo", 0)) for number in (3, 1, 2)]
    assert merge(rows, rows) == merge(reversed(rows))


def test_two_rows_of_one_assertion_become_the_same_one_in_either_order() -> None:
    one, other = (entry_of(assertion(1, name, 0)) for name in ("Oslo", "Rome"))
    assert merge([one], [other]) == merge([other], [one])


def test_a_row_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a row"):
        intervals(GROUP, ['["x", "e", 0]'])


def test_an_edge_is_told_apart_by_its_beginning_and_first_event() -> None:
    said = [assertion(1, "Oslo", 0), assertion(2, "Oslo", 0), assertion(3, party("Rome").name, 0)]
    found = facts(*said, assertion(4, "Oslo", 0))
    keys = [(f.target_id, f.valid_from_ms, f.event_id) for f in found]
    assert len(set(keys)) == len(keys)
