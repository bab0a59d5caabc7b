"""A record that tells a change says what is, and what was until then."""

from __future__ import annotations

from typing import Any

import pytest

from api.record_fields import Field, Shown, durations_in, fields_of
from api.record_history import put_right
from api.record_values import value_of
from api.retrieval.plan import Operator
from api.retrieval.planning import plan_of
from api.retrieval.time_spans import TimeSpan
from projections.events import timestamp_ms as _at_ms
from tests.unit.api.test_record_values import DAYS, node, read, shown

_DAY_MS = 86_400_000
_NOW_MS = 1_767_600_000_000  # 2026-01-05


def told(text: str, kind: str = "result") -> list[tuple[str, str, str]]:
    one = node("one", kind)
    fields = fields_of(one, shown((one, text)))
    return [("_".join(field.words), field.value, field.former) for field in fields]


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("kiln: K-2\nlimit.new: 9\nlimit.old: 5", [("kiln", "K-2", ""), ("limit", "9", "5")]),
        ("changed.door.current: red\nchanged.door.previous: blue", [("door", "red", "blue")]),
        (
            "shelf.after: 3\nshelf.before: 4\nshelf.unit: m",
            [("shelf", "3", "4"), ("unit", "m", "")],
        ),
        (
            "changes.field: door\nchanges.new: red\nchanges.old: blue\n"
            "changes.field: roof\nchanges.new: tin\nchanges.old: straw",
            [
                ("field", "door", ""),
                ("door", "red", "blue"),
                ("field", "roof", ""),
                ("roof", "tin", "straw"),
            ],
        ),
        ("data.pool.from: 40\ndata.pool.to: 12", [("pool", "12", "40")]),
        ("job.status.from: open\njob.status.to: closed", [("status", "closed", "open")]),
        ("trip.from: Graz\ntrip.to: Linz", [("from", "Graz", ""), ("to", "Linz", "")]),
        ("pages.from: 1\npages.to: 9", [("from", "1", ""), ("to", "9", "")]),
        (
            "from.new: 2031-05-01\nfrom.old: 2031-04-01\nto: 2031-06-01",
            [("to", "2031-06-01", ""), ("from", "2031-05-01", "2031-04-01")],
        ),
        ("new: 9\nold: 5\nkiln: K-2", [("kiln", "K-2", "")]),
        (
            "is: 9\nsetting: kiln.heat\nwas: 5",
            [("setting", "kiln.heat", ""), ("kiln_heat", "9", "5")],
        ),
        ("key: pool\nvalue: 40\nold: 20", [("key", "pool", ""), ("pool", "40", "20")]),
        ("key: pool\nvalue: 40", [("key", "pool", ""), ("pool", "40", "")]),
        ("name: pool\nvalue: 40", [("name", "pool", ""), ("value", "40", "")]),
        ("from: red\nparam: door\nto: blue", [("param", "door", ""), ("door", "blue", "red")]),
        ("kiln.newValue: 9\nkiln.oldValue: 5", [("kiln", "9", "5")]),
        ("new_price: 9\nold_price: 5", [("price", "9", "5")]),
        ("price: 9\nprevious_price: 5", [("price", "9", "5")]),
        ("old_price: 5\nafter_tax: 6", [("old_price", "5", ""), ("after_tax", "6", "")]),
        ("kiln.value_before: 5\nkiln.note: old", [("note", "old", "")]),
    ],
)
def test_what_was_changed_is_one_field(text: str, fields: list[tuple[str, str, str]]) -> None:
    assert sorted(told(text)) == sorted(fields)


def test_numbers_that_a_call_asks_between_are_no_change() -> None:
    assert told("price.from: 10\nprice.to: 50", "call") == [("from", "10", ""), ("to", "50", "")]


def test_one_line_of_a_change_has_no_field_for_it() -> None:
    one = node("one")
    one.attributes["summary"] = "tune returned: kiln: K-2; new: 9; old: 5"
    assert fields_of(one, shown((one, ""))._replace(texts={})) == [
        Field("one", ("kiln",), "K-2"),
    ]


def _changed(*values: tuple[int, int]) -> Any:
    pairs = zip(DAYS, values, strict=False)
    return shown(
        *(
            (
                node(f"{place}", tool="tune_kiln", at=at),
                f"kiln: K-2\nheat_limit.new: {new}\nheat_limit.old: {old}",
            )
            for place, (at, (old, new)) in enumerate(pairs)
        )
    )


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("What is the heat limit of kiln K-2?", "7"),
        ("What was the heat limit of kiln K-2 before it was changed?", "9"),
        ("What was the heat limit of kiln K-2 before it became 9?", "5"),
        ("What was the heat limit of kiln K-2 originally?", "5"),
        ("K-2 heat limit", "7"),
    ],
)
def test_a_change_says_what_is_and_what_was(question: str, value: str) -> None:
    assert read(question, _changed((5, 9), (9, 7))) == value


@pytest.mark.parametrize(
    ("question", "value"),
    [("How big is kiln K-2?", "200"), ("How big was kiln K-2 before?", "100")],
)
def test_how_big_it_is_and_was(question: str, value: str) -> None:
    one = node("one")
    given = shown((one, "kiln: K-2\nprevious_size_l: 100\nsize_l: 200"))
    assert read(question, given) == value


@pytest.mark.parametrize(("day", "value"), [(0, "5"), (1, "9"), (2, "9"), (3, "7")])
def test_a_later_change_says_what_was_on_a_day(day: int, value: str) -> None:
    """It was 5 until the first day, and 9 from then on; only the change of the third says so."""
    first_ms = _NOW_MS - (5 - day) * _DAY_MS  # the day itself
    asked = plan_of("What was the heat limit of kiln K-2 yesterday?", first_ms + _DAY_MS)
    assert asked.operator is Operator.VALUE_AT
    given = _changed((5, 9), (9, 9), (9, 7))
    given.events.pop("1")
    answer = value_of(asked, ["2"], given)
    assert answer is not None
    assert answer.value == value


def test_which_of_a_thing_is_asked_for_by_a_part_of_its_name() -> None:
    told = (
        (node("card", tool="get_card", at=DAYS[0]), "card: CA-7\npost_address: Mill 3\nname: Riel"),
        (
            node("moved", tool="set_card", at=DAYS[1]),
            "card: CA-7\nchanged.post_address.new: Quay 9\nchanged.post_address.old: Mill 3",
        ),
    )
    question = "Which address had we on file for Riel"
    for end_ms, value in ((_at_ms(DAYS[1]), "Mill 3"), (_at_ms(DAYS[2]), "Quay 9")):
        asked = plan_of(question, _NOW_MS)._replace(
            operator=Operator.VALUE_AT, spans=(TimeSpan(0, end_ms),)
        )
        answer = value_of(asked, ["card"], shown(*told))
        assert answer is not None
        assert answer.value == value


def test_what_was_asked_for_is_told_apart_by_what_came_of_it() -> None:
    """What replaced it names its booking; only the outcome of its own call does, too."""
    call = node("call", "call", "book_hut", at=DAYS[0])
    booked = node("booked", tool="book_hut", at=DAYS[1])
    swap = node("swap", "call", "swap_hut", at=DAYS[2])
    done = node("done", tool="swap_hut", at="2026-01-04T00:00:00.000Z")
    booked.attributes["parent_event_id"] = "call"
    done.attributes["parent_event_id"] = "swap"
    given = shown(
        (swap, "cancel: HB-7\nhut: Fox hut"),
        (call, "hut: Owl hut"),
        (booked, "ref: HB-7\ntotal: 90"),
        (done, "ref: HB-9\ntotal: 80"),
    )
    assert read("Which hut had I booked before the Fox hut?", given) == "Owl hut"


def test_how_long_something_is_kept_is_no_time_that_an_act_took() -> None:
    search = node("search", tool="find_tickets", at=DAYS[2])
    first = node("first", tool="shelf.tune", at=DAYS[0])
    second = node("second", tool="shelf.tune", at=DAYS[1])
    given = shown(
        (search, "query: clay on the shelf\ntook_ms: 87"),
        (first, "rule: R-1\nttl.new: 86400\nttl.old: 300"),
        (second, "rule: R-2\nttl.new: 900\nttl.old: 86400"),
    )
    assert read("How long did the shelf keep clay?", given) == "900"
    assert read("How long did the shelf keep clay before we made it a day?", given) == "300"
    assert read("How long did the shelf keep clay?", shown((search, "took_ms: 87"))) is None


def test_durations_are_said_as_records_have_them() -> None:
    assert durations_in("from 5 minutes to a day") == {"300", "300000", "86400", "86400000"}


def test_what_a_nested_record_is_called_by_stands_beside_its_value() -> None:
    old = node("old", tool="get_account", at=DAYS[0])
    new = node("new", tool="set_lease", at=DAYS[1])
    given = shown(
        (old, "account: AC-7\nname: Riel\nlease.id: LE-9\nlease.size: small"),
        (new, "lease: LE-9\nsize: large"),
    )
    assert read("What is Riel's size?", given) == "large"
    assert read("What was Riel's size before?", given) == "small"


def test_what_others_have_is_no_value_that_somebody_had_before() -> None:
    """Whose it is stands in the record by a key of any signs, and not by the name that is asked."""
    given = shown(
        (node("bay", at=DAYS[0]), "stall.bay: red\nstall.holder: crew~41"),
        (node("all", at=DAYS[1]), "bay: all\ntop: 65 m"),
        (node("moved", at=DAYS[2]), "bay: blue\nholder: crew~41"),
    )
    assert read("What was the bay of Ann before?", given) == "red"


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("What is the fuel card of van V-3?", "FC-9"),
        ("What was the fuel card of van V-3 before?", "FC-1"),
    ],
)
def test_what_went_through_instead_of_what_failed_is_so(question: str, value: str) -> None:
    def attempt(name: str, at: str, kind: str = "call", **fields: Any) -> Any:
        one = node(name, kind, tool="refuel", at=at, **fields)
        one.provenance.session_id = "yard"
        return one

    looked_up = node("card", tool="show_van", at="2026-01-01T00:00:01.000Z")
    looked_up.provenance.session_id = "yard"
    first = attempt("first", "2026-01-01T00:00:02.000Z")
    refused = attempt("refused", "2026-01-01T00:00:03.000Z", "failure", status="failed")
    again = attempt("again", "2026-01-01T00:00:04.000Z")
    filled = attempt("filled", "2026-01-01T00:00:05.000Z", "result")
    given = shown(
        (looked_up, "van: V-3\nfuel_card: FC-1"),
        (first, "pan: FC-1\nlitres: 80"),
        (refused, "card FC-1 has expired"),
        (again, "pan: FC-9\nlitres: 80"),
        (filled, "filled: yes"),
    )
    assert read(question, given) == value
    assert (righted := put_right(looked_up, given)) is not None
    assert (righted.node_id, righted.value) == ("again", "FC-9")
    assert put_right(first, given) == righted
    asked = node("asked", "message", at="2026-01-01T00:00:00.500Z")
    asked.provenance.session_id = "yard"
    said = Shown({"asked": asked, **given.events}, {"asked": "Fill it by FC-1.", **given.texts})
    assert put_right(asked, said) == righted
    of_another = {"asked": "Fill it by FC-10.", **given.texts}
    assert put_right(asked, said._replace(texts=of_another)) is None
    assert put_right(again, given) is None


def test_a_second_attempt_says_nothing_of_a_number_that_is_the_same() -> None:
    def attempt(name: str, at: str, kind: str = "call") -> Any:
        one = node(name, kind, tool="refuel", at=at, status="failed" if kind == "failure" else None)
        one.provenance.session_id = "yard"
        return one

    looked_up = node("pump", tool="show_pump", at="2026-01-01T00:00:01.000Z")
    looked_up.provenance.session_id = "yard"
    given = shown(
        (looked_up, "pump: P-3\nnozzle: 1\nopen: no"),
        (attempt("first", "2026-01-01T00:00:02.000Z"), "attempt: 1\nforce: no"),
        (attempt("refused", "2026-01-01T00:00:03.000Z", "failure"), "busy"),
        (attempt("again", "2026-01-01T00:00:04.000Z"), "attempt: 2\nforce: yes"),
        (attempt("filled", "2026-01-01T00:00:05.000Z", "result"), "filled: all"),
    )
    assert put_right(looked_up, given) is None
    assert read("What is the nozzle of pump P-3?", given) == "1"
