"""What is derived of a user from several sessions: habits, skills, interests, and nothing more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from typing import Any

import pytest

from consolidation.decay import DAY_MS, HOUR_MS
from consolidation.habits import BY_CHANCE, by_chance
from consolidation.payloads import MAX_PROVING, Trait, TraitsDecided
from consolidation.sources import Mentioned, SourceEvent
from consolidation.traits import (
    HALF_LIVES_MS,
    MOST_HALF_LIVES,
    holds_until_ms,
    remembered,
    traits_of,
)
from enrichment.grounded import is_protected
from tests.factories import START_MS
from tests.source_factories import called, mentioned, returned, said

WEEK_MS = 7 * DAY_MS
_numbers = count(1)


def used(*tools: str, day: float, failing: Sequence[str] = ()) -> list[SourceEvent]:
    """A session that uses tools, one after the other, so many days after the first."""
    events: list[SourceEvent] = []
    for tool in tools:
        at = round(day * DAY_MS) + 1_000 * len(events)
        call, answer = next(_numbers), next(_numbers)
        error = {"error": "not allowed"} if tool in failing else {}
        events += [
            called(call, tool, at=at),
            returned(answer, tool, "done", after=(call,), at=at + 1, **error),
        ]
    return events


def spoke(*names: str | Mentioned, day: float, text: str = "", **fields: Any) -> list[SourceEvent]:
    """A session in which the user says something about things."""
    things = tuple(
        mentioned(one, entity_type="concept") if isinstance(one, str) else one for one in names
    )
    fields = {"event_type": "message.user", "at": round(day * DAY_MS), "mentions": things, **fields}
    return [said(next(_numbers), "user", text or "About it", **fields)]


def found(kind: str, *sessions: Sequence[SourceEvent]) -> dict[str, tuple[int, float]]:
    """Sessions and strength of what is derived, by name."""
    return {
        one.name: (one.session_count, one.strength)
        for one in traits_of("default", "ann", sessions)
        if one.kind == kind
    }


def told(*texts: str, name: str) -> dict[str, tuple[int, float]]:
    """The interests of sessions whose texts name a thing."""
    return found("interest", *(spoke(name, day=day, text=text) for day, text in enumerate(texts)))


def test_what_stands_beside_somebodys_words_is_no_interest_of_theirs() -> None:
    words = ("Look at my book shelf!", "I dusted the book shelves.", "A book shelf at last.")
    assert told(*words, name="book shelf") == {"book shelf": (3, 1.0)}
    pictures = ["Look! [image: a book shelf]"] * 3
    assert told(*pictures, name="book shelf") == {}
    assert told(*words[:2], pictures[0], name="book shelf") == {}


def test_what_a_user_said_to_like_is_of_interest_if_their_words_name_it_again_and_again() -> None:
    words = ("My pottery class again.", "More pottery!", "Pottery calms me.", "Something else.")
    sessions = [spoke(day=day, text=text) for day, text in enumerate(words)]

    def interests(*said: Sequence[SourceEvent], name: str = "pottery") -> list[str]:
        return [one.name for one in traits_of("default", "ann", said, {"id": name})]

    assert interests(*sessions) == ["pottery"]
    assert interests(*sessions[1:]) == []
    assert interests(*sessions, name="church") == []
    assert found("interest", *sessions) == {}


def test_whose_things_are_spoken_of_is_no_interest() -> None:
    assert told(*["We met at McGee's bar."] * 3, name="McGee") == {}
    assert told(*["We met at McGee."] * 3, name="McGee") == {"McGee": (3, 1.0)}


@pytest.mark.parametrize(
    "words",
    [
        "Samantha and I moved.",
        "At the theatre, Samantha loves it.",
        "She is Samantha.",
        "Come with me and Samantha.",
    ],
)
def test_who_is_spoken_of_as_a_person_is_no_interest(words: str) -> None:
    others = ["I saw Samantha.", "I called Samantha.", "Samantha was there."]
    assert told(*others, name="Samantha") == {"Samantha": (3, 1.0)}
    assert told(words, *others, name="Samantha") == {}


# -- habits ----------------------------------------------------------------------------------------

REFUND = ("lookup", "refund", "notify")


def test_tools_that_follow_each_other_in_three_sessions_are_a_habit() -> None:
    sessions = [used(*REFUND, day=day) for day in (0, 2, 5)]
    assert found("pattern", *sessions) == {"lookup, then refund, then notify": (3, 1.0)}
    assert found("pattern", *sessions[:2], used("lookup", day=5)) == {}


def test_a_habit_is_what_is_usual_after_its_first_tool() -> None:
    often = [used(*REFUND, day=day) for day in (0, 2, 5)]
    alone = [used("lookup", "search", day=day) for day in (6, 7)]
    assert found("pattern", *often, *alone) == {"lookup, then refund, then notify": (3, 0.6)}
    rarely = [used("lookup", tool, day=9 + at) for at, tool in enumerate(("a", "b", "c"))]
    assert "lookup, then refund, then notify" not in found("pattern", *often, *alone, *rarely)


def test_a_part_of_a_sequence_is_told_if_three_sessions_have_it_alone() -> None:
    whole = [used(*REFUND, day=day) for day in (0, 2, 5)]
    part = [used(*REFUND[:2], day=day) for day in (6, 7)]
    assert "lookup, then refund" not in found("pattern", *whole, *part)
    third = used(*REFUND[:2], day=9)
    assert found("pattern", *whole, *part, third)["lookup, then refund"] == (6, 1.0)


def test_what_is_tried_again_is_one_step() -> None:
    sessions = [
        used("lookup", "refund", "refund", "notify", day=day, failing=("refund",))
        for day in (0, 2, 5)
    ]
    assert list(found("pattern", *sessions)) == ["lookup, then refund, then notify"]


def test_it_names_the_events_of_the_newest_sessions_that_prove_it() -> None:
    sessions = [used(*REFUND, day=day) for day in range(12)]
    (trait,) = (one for one in traits_of("default", "ann", sessions) if "refund" in one.name[8:20])
    assert len(trait.event_ids) <= MAX_PROVING
    assert trait.event_ids[0] in {one.event_id for one in sessions[-1]}
    assert (trait.first_seen_ms, trait.last_seen_ms) == (START_MS, START_MS + 11 * DAY_MS)


def test_who_comes_on_the_same_day_of_each_week_has_a_habit() -> None:
    weekly = [spoke(day=7 * week) for week in range(5)]
    assert found("pattern", *weekly) == {"comes on Mondays": (5, 1.0)}
    assert found("pattern", *weekly[:4]) == {}
    others = [spoke(day=day + 0.5) for day in (1, 9, 17)]
    assert found("pattern", *weekly, *others) == {}


def test_several_sessions_of_one_day_are_one_occasion() -> None:
    assert found("pattern", *(spoke(day=0.01 * number) for number in range(9))) == {}


def test_office_hours_are_no_habit() -> None:
    begins = [day + (0.3 if day % 2 else 0.5) for day in range(9)]
    assert found("pattern", *(spoke(day=day) for day in begins)) == {}
    nights = [spoke(day=day) for day in (0, 1, 2, 4, 5, 8, 9, 10)]
    assert found("pattern", *nights) == {"comes between 00:00 and 06:00 UTC": (8, 1.0)}


def test_chance_is_counted_over_all_places() -> None:
    assert by_chance(5, 5, 5) == pytest.approx(5 * 0.2**5)
    assert by_chance(0, 5, 5) == 1.0
    assert by_chance(4, 5, 5) > BY_CHANCE > by_chance(5, 6, 5)


def chose(
    arguments: str, *, day: float, words: str = "", offers: str = "", **fields: Any
) -> list[SourceEvent]:
    """A session in which something is asked for, offers come, and one is taken."""
    at = round(day * DAY_MS)
    asked, listed, call, answer = (next(_numbers) for _ in range(4))
    return [
        said(asked, "user", words, event_type="message.user", at=at),
        returned(listed, "list_seats", offers, at=at + 1),
        called(call, "book_seat", arguments, at=at + 2),
        returned(answer, "book_seat", "done", after=(call,), at=at + 3, **fields),
    ]


OFFERS = "seats.row: 4\nseats.side: aisle\nseats.row: 5\nseats.side: window"


def habits_of(*sessions: Sequence[SourceEvent]) -> dict[str, tuple[int, float]]:
    made = found("pattern", *sessions).items()
    return {name: shown for name, shown in made if name.startswith("chooses")}


def test_what_is_chosen_of_offers_again_and_again_is_a_habit() -> None:
    sessions = [chose("row: 4\nside: aisle", day=day, offers=OFFERS) for day in (0, 2, 5)]
    assert habits_of(*sessions) == {"chooses side: aisle": (3, 1.0)}
    assert habits_of(*sessions[:2]) == {}
    others = [chose("side: window", day=day, offers=OFFERS) for day in (6, 7)]
    assert habits_of(*sessions, *others) == {"chooses side: aisle": (3, 0.6)}
    assert habits_of(*sessions, *others, chose("side: rear", day=9)) == {}
    single = [chose("side: aisle", day=day, offers="seats.side: aisle") for day in (0, 2, 5)]
    assert habits_of(*single) == {}


def test_what_is_asked_for_again_and_again_is_a_habit() -> None:
    words = "The weekly sheet again, please."
    sessions = [chose("report_kind: weekly", day=day, words=words) for day in (0, 2, 5)]
    assert habits_of(*sessions) == {"chooses report kind: weekly": (3, 1.0)}
    unsaid = [chose("report_kind: weekly", day=day, words="Thanks!") for day in (0, 2, 5)]
    assert habits_of(*unsaid) == {}


@pytest.mark.parametrize(
    ("field", "words"),
    [
        ("order: A-4711", "About A-4711."),
        ("count: 12", "12 of them."),
        ("diet: kosher", "Kosher, please."),
        ("name: Ana", "Ana speaking."),
    ],
)
def test_what_is_one_case_or_what_somebody_is_is_no_choice(field: str, words: str) -> None:
    ana = mentioned("Ana", entity_type="concept", subtype="person")
    sessions = [chose(field, day=day, words=words) for day in (0, 2, 5)]
    sessions = [[one[0]._replace(entities=(ana,)), *one[1:]] for one in sessions]
    assert habits_of(*sessions) == {}


def test_what_did_not_work_was_not_chosen() -> None:
    sessions = [chose("side: aisle", day=day, offers=OFFERS, error="sold out") for day in (0, 2, 5)]
    assert habits_of(*sessions) == {}


# -- skills ----------------------------------------------------------------------------------------


def test_what_three_sessions_carry_through_is_a_skill() -> None:
    sessions = [used("refund", day=day) for day in (0, 2, 5)]
    assert found("skill", *sessions) == {"refund": (3, 1.0)}
    assert found("skill", *sessions[:2], used("search", day=3)) == {}


def test_a_session_counts_by_how_the_use_of_a_tool_ends() -> None:
    sessions = [used("refund", day=day) for day in (0, 2, 5)]
    failed = [used("refund", day=day, failing=("refund",)) for day in (6, 7)]
    assert found("skill", *sessions, failed[0]) == {"refund": (3, 0.75)}
    assert found("skill", *sessions, *failed) == {}


def parents(*sessions: Sequence[SourceEvent]) -> dict[str, str]:
    """The name of the skill that each is a part of."""
    made = {one.trait_id: one for one in traits_of("default", "ann", sessions)}
    return {
        one.name: made[one.parent_id].name for one in made.values() if one.parent_id is not None
    }


INVOICES = ("create_invoice", "list_invoices", "sendInvoice")


def test_tools_that_are_called_after_one_thing_are_parts_of_one_skill() -> None:
    sessions = [used(tool, day=3 * n + at) for n, tool in enumerate(INVOICES) for at in range(3)]
    assert parents(*sessions) == dict.fromkeys(INVOICES, "invoice")
    assert found("skill", *sessions)["invoice"] == (9, 1.0)
    assert parents(*sessions[:3]) == {}


def test_a_verb_is_nothing_that_tools_are_called_after() -> None:
    tools = ("create_invoice", "create_order")
    assert parents(*(used(tool, day=day) for tool in tools for day in (0, 2, 5))) == {}


def test_tools_that_are_used_together_are_parts_of_one_skill() -> None:
    together = [used("pick", "pack", "ship", day=day) for day in (0, 2, 5)]
    expected = "pack + pick + ship"
    assert parents(*together) == dict.fromkeys(("pack", "pick", "ship"), expected)
    assert parents(*together[:2]) == {}
    apart = [used("ship", day=day) for day in range(6, 12)]
    assert parents(*together, *apart) == dict.fromkeys(("pack", "pick"), "pack + pick")


def test_a_skill_of_several_tools_is_proved_by_events_of_each() -> None:
    sessions = [used(*INVOICES, day=day) for day in (0, 2, 5)]
    (parent,) = (one for one in traits_of("default", "ann", sessions) if one.name == "invoice")
    assert set(parent.event_ids) == {e.event_id for s in sessions for e in s if e.tool_name} - {
        e.event_id for s in sessions for e in s[::2]
    }
    assert parent.parent_id is None


@pytest.mark.parametrize("tool", ["refill_prescription", "book_doctor", "get_health_records"])
def test_nothing_is_derived_of_tools_for_what_a_person_is(tool: str) -> None:
    sessions = [used("login", tool, "pay", day=day) for day in (0, 2, 5)]
    assert all(tool not in one.name for one in traits_of("default", "ann", sessions))


def test_how_a_system_is_is_nobodys_health() -> None:
    assert "get_health_status" in found(
        "skill", *(used("get_health_status", day=day) for day in (0, 2, 5))
    )


# -- interests -------------------------------------------------------------------------------------


def test_what_the_user_names_in_three_sessions_is_an_interest() -> None:
    sessions = [spoke("Nordisk", day=day) for day in (0, 2, 5)]
    assert found("interest", *sessions, spoke(day=6)) == {"Nordisk": (3, 0.75)}
    assert found("interest", *sessions[:2], spoke("Nordisk", "Nordisk", day=2)) == {
        "Nordisk": (3, 1.0)
    }
    assert found("interest", *sessions[:2], spoke(day=6)) == {}


def test_what_others_say_is_no_interest_of_the_user() -> None:
    sessions = [
        spoke("Nordisk", day=day, event_type="message.assistant", agent_id="desk")
        for day in (0, 2, 5)
    ]
    assert found("interest", *sessions) == {}


@pytest.mark.parametrize(
    "thing",
    [
        mentioned("Mia", entity_type="concept", subtype="person"),
        mentioned("Italians", entity_type="concept", subtype="group"),
        mentioned("A-4296", entity_type="concept"),
        mentioned("report.pdf"),
        mentioned("desk", entity_type="agent"),
        mentioned("bob", entity_type="user"),
        mentioned("3 tents", entity_type="concept", subtype="amount"),
        mentioned("Lena Ost", entity_type="concept"),
    ],
)
def test_persons_groups_ids_and_own_names_are_no_interests(thing: Mentioned) -> None:
    sessions = [spoke(thing, day=day, agent_id="lena.ost") for day in (0, 2, 5)]
    assert found("interest", *sessions) == {}


PROTECTED = (
    *("my diabetes", "a doctor", "the clinic", "St. Mary's church", "halal food", "gay bars"),
    *("the Republicans", "a trade union", "the elections", "refugees", "Hispanic music"),
)


@pytest.mark.parametrize("words", PROTECTED)
def test_nothing_is_derived_of_what_a_person_is(words: str) -> None:
    assert is_protected(words)
    assert found("interest", *(spoke(words, day=day) for day in (0, 2, 5))) == {}
    told = [spoke("Aker", day=day, text=f"Aker, because of {words}") for day in (0, 2, 5)]
    assert found("interest", *told) == {}


def test_ordinary_words_are_not_protected() -> None:
    for words in (
        "wool scarf",
        "race car parts"[5:],
        "the order",
        "healing crystals"[8:],
        "python",
    ):
        assert not is_protected(words), words


# -- time ------------------------------------------------------------------------------------------


def test_what_is_not_seen_again_ends_the_later_the_more_often_it_was_seen() -> None:
    half = HALF_LIVES_MS["interest"]
    assert holds_until_ms([5], half) == 5
    assert holds_until_ms([0, 0], half) == half
    assert holds_until_ms([0] * 3, half) < holds_until_ms([0] * 4, half) == 2 * half
    assert holds_until_ms([0] * 99, half) == MOST_HALF_LIVES * half
    assert holds_until_ms([0, 10 * half], half) - 10 * half < DAY_MS


def test_time_alone_changes_nothing_that_is_derived() -> None:
    sessions = [used(*REFUND, day=day) for day in (0, 2, 5)]
    assert traits_of("default", "ann", sessions) == traits_of("default", "ann", sessions[::-1])


def test_a_trait_is_of_one_user_and_has_one_id_whatever_it_is_called() -> None:
    sessions = [used(*REFUND, day=day) for day in (0, 2, 5)]
    mine, theirs = (traits_of("default", user, sessions) for user in ("ann", "bob"))
    assert {one.trait_id for one in mine}.isdisjoint(one.trait_id for one in theirs)


# -- what was forgotten ----------------------------------------------------------------------------


def trait(**fields: Any) -> Trait:
    (made, *_) = traits_of("default", "ann", [used(*REFUND, day=day) for day in (0, 2, 5)])
    return replace(made, **fields)


def test_a_trait_outlives_the_events_that_prove_it_until_its_time() -> None:
    before = trait()
    assert remembered(before, None, ()) == before
    assert remembered(before, None, before.event_ids) is None


def test_it_says_no_less_once_some_of_them_are_forgotten() -> None:
    before = trait(session_count=7)
    now = trait(first_seen_ms=before.first_seen_ms + HOUR_MS, last_seen_ms=before.last_seen_ms + 1)
    kept_on = remembered(before, now, now.event_ids[:1])
    assert kept_on is not None
    assert (kept_on.session_count, kept_on.first_seen_ms) == (7, before.first_seen_ms)
    assert kept_on.last_seen_ms == now.last_seen_ms


def test_a_decision_of_a_user_with_all_traits_fits() -> None:
    many = tuple(replace(trait(), trait_id=f"{number:032x}") for number in range(20))
    decided = TraitsDecided(user_ids=("ann",), traits=many)
    assert len(decided.model_dump_json()) < 128 * 1024
