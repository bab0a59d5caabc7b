"""Name, summary and centroid of a community: short, readable, the strongest first."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from consolidation.communities import Community, Member, centroid, community_text
from consolidation.payloads import MAX_NAME_CHARACTERS, MAX_SUMMARY_CHARACTERS, CommunityText
from consolidation.sources import Described, InnerFact

CAROLINE, ACME, OSLO, NORWAY = (
    Described("Caroline", "user", "person"),
    Described("Acme", "concept", "organization"),
    Described("Oslo", "concept", "place"),
    Described("Norway", "concept"),
)


def community(*members: Member) -> Community:
    return Community(members, "0" * 64)


def of(*described: Described) -> tuple[Community, dict[str, Described]]:
    """A community of these, most central first; their ids are their names."""
    members = [Member(one.name, one.name, float(-n)) for n, one in enumerate(described)]
    return community(*members), {one.name: one for one in described}


def fact(one: str, words: str, other: str, confidence: float = 0.8, support: int = 1) -> InnerFact:
    return InnerFact(one, other, f"{one} {words} {other}", confidence, support)


def summary(members: Sequence[Described], facts: Sequence[InnerFact]) -> str:
    return community_text(*of(*members), facts).summary


def test_a_community_is_named_after_its_most_central_members() -> None:
    assert community_text(*of(CAROLINE, ACME, OSLO, NORWAY), []).name == "Caroline, Acme and Oslo"


def test_a_summary_says_who_they_are_and_what_holds_among_them() -> None:
    facts = [fact("Acme", "is located in", "Oslo"), fact("Caroline", "works at", "Acme", 0.9)]
    assert summary([CAROLINE, ACME, OSLO, NORWAY], facts) == (
        "Caroline (person), Acme (organization) and Oslo (place), with 1 more: "
        "Caroline works at Acme; Acme is located in Oslo."
    )


def test_without_facts_the_summary_is_who_they_are() -> None:
    assert summary([CAROLINE, NORWAY], []) == "Caroline (person) and Norway."


def test_a_fact_about_a_literal_is_told() -> None:
    facts = [InnerFact("Caroline", None, "Caroline prefers dark mode", 0.9)]
    assert summary([CAROLINE, ACME], facts).endswith(": Caroline prefers dark mode.")


def test_of_two_facts_as_sure_the_one_about_another_member_comes_first() -> None:
    facts = [
        InnerFact("Caroline", None, "Caroline is 30", 0.8),
        fact("Caroline", "works at", "Acme"),
    ]
    told = summary([CAROLINE, ACME], facts).split(": ", 1)[1]
    assert told == "Caroline works at Acme; Caroline is 30."


def test_what_is_the_same_is_named_once_by_its_canonical_name() -> None:
    members = community(
        Member("c1", "c1", 2), Member("c2", "c1", 2), Member("a", "a", 1), Member("o", "o", 1)
    )
    described = {"c1": CAROLINE, "c2": Described("Caro", "user"), "a": ACME, "o": OSLO}
    assert community_text(members, described, []) == CommunityText(
        "Caroline, Acme and Oslo", "Caroline (person), Acme (organization) and Oslo (place)."
    )


def test_members_that_nobody_described_are_counted() -> None:
    made, described = of(CAROLINE, ACME, OSLO)
    del described["Oslo"]
    text = community_text(made, described, [])
    assert text.summary == "Caroline (person) and Acme (organization), with 1 more."


def test_a_community_of_which_nothing_is_known_still_has_a_text() -> None:
    made, _ = of(CAROLINE, ACME, OSLO)
    assert community_text(made, {}, []) == CommunityText("3 entities", "3 entities.")


def test_facts_that_bring_in_another_member_come_before_stronger_ones_about_the_same() -> None:
    facts = [
        fact("Caroline", "works at", "Acme", 0.9),
        fact("Caroline", "founded", "Acme", 0.8),
        fact("Oslo", "is in", "Norway", 0.5),
    ]
    told = summary([CAROLINE, ACME, OSLO, NORWAY], facts).split(": ", 1)[1]
    assert told == "Caroline works at Acme; Oslo is in Norway; Caroline founded Acme."


def test_of_two_facts_as_sure_the_one_that_more_events_support_comes_first() -> None:
    facts = [fact("Caroline", "left", "Acme"), fact("Caroline", "works at", "Acme", support=3)]
    told = summary([CAROLINE, ACME], facts).split(": ", 1)[1]
    assert told == "Caroline works at Acme; Caroline left Acme."


def test_the_same_words_are_said_once() -> None:
    facts = [fact("Caroline", "works at", "Acme"), fact("Caroline", "Works At", "Acme", 0.7)]
    told = summary([CAROLINE, ACME], facts).split(": ", 1)[1]
    assert told == "Caroline works at Acme."


def test_facts_that_lead_elsewhere_are_not_told() -> None:
    facts = [fact("Caroline", "visited", "Rome"), InnerFact("Rome", None, "Rome is old", 1.0)]
    assert summary([CAROLINE, ACME], facts) == "Caroline (person) and Acme (organization)."


def test_a_fact_that_does_not_fit_is_left_out_whole() -> None:
    facts = [fact("Caroline", f"works {n} {'very ' * 26}hard at", "Acme") for n in range(9)]
    made = summary([CAROLINE, ACME], [*facts, fact("Acme", "is near", "Caroline", 0.1)])
    assert made.endswith("hard at Acme; Acme is near Caroline.")


def test_line_ends_and_controls_become_blanks() -> None:
    facts = [InnerFact("Caroline", "Acme", "Caroline works\n\tat\x00Acme.", 0.9)]
    assert summary([CAROLINE, ACME], facts).endswith("Caroline works at Acme.")


texts = st.text(min_size=1, max_size=300)
everyone = st.lists(
    st.builds(Described, texts, st.just("concept"), st.none() | st.just("value")), max_size=6
)


@given(
    everyone,
    st.lists(
        st.builds(
            InnerFact,
            st.sampled_from("012345"),
            st.none() | st.sampled_from("012345"),
            texts,
            st.floats(0, 1),
        )
    ),
    st.data(),
)
def test_texts_are_bounded_single_lines_and_depend_on_no_order(
    described: list[Described], facts: list[InnerFact], data: st.DataObject
) -> None:
    members = tuple(Member(str(n), str(n), 1.0) for n in range(6))
    by_id = {str(n): one for n, one in enumerate(described)}
    made = community_text(community(*members), by_id, facts)
    shuffled = data.draw(st.permutations(facts))
    assert 0 < len(made.name) <= MAX_NAME_CHARACTERS
    assert 0 < len(made.summary) <= MAX_SUMMARY_CHARACTERS
    assert (made.name + made.summary).splitlines() == [made.name + made.summary]
    assert community_text(community(*members), by_id, shuffled) == made


def vector(**at: float) -> bytes:
    """384 numbers, zero but at `x`, the first, and `y`, the second."""
    row = np.zeros(384, dtype="<f4")
    row[0], row[1] = at.get("x", 0.0), at.get("y", 0.0)
    return row.tobytes()


def test_a_centroid_is_the_normalised_mean() -> None:
    made = np.frombuffer(centroid([vector(x=1), vector(y=1)]) or b"", dtype="<f4")
    assert made[:3].tolist() == pytest.approx([0.5**0.5, 0.5**0.5, 0.0])


def test_the_centroid_of_one_vector_is_that_vector() -> None:
    assert centroid([vector(y=1)]) == vector(y=1)


def test_there_is_no_centroid_without_vectors() -> None:
    assert centroid([]) is None


def test_there_is_no_centroid_of_vectors_that_cancel_out() -> None:
    assert centroid([vector(x=1), vector(x=-1)]) is None


def test_a_vector_of_another_length_is_refused() -> None:
    with pytest.raises(ValueError, match="vector of 2 numbers, not 384"):
        centroid([b"\0" * 8])
