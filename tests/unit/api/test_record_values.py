"""Values of records: of a list the one that is meant, the newest; who and when by their roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from api.record_fields import Shown, fields_of, is_record_of, outcomes_of
from api.record_reading import Value
from api.record_values import each_of, value_of
from api.retrieval.planning import plan_of
from api.schemas import Node, NodeProvenance, Scores
from projections.events import timestamp_ms
from projections.schema import EVENT
from tests.factories import partly

STOCK = (
    "items.item: white clay\nitems.left: 4\nitems.minimum: 10\n"
    "items.item: blue glaze\nitems.left: 31\nitems.minimum: 5"
)
NEVER = "2026-01-01T00:00:00.000Z"


def node(name: str, kind: str = "result", tool: str | None = None, **fields: Any) -> Node:
    status, at = fields.get("status"), fields.get("at", NEVER)
    given = {"summary": None, "kind": kind, "tool_name": tool, "status": status}
    return partly(
        Node,
        node_id=name,
        type=EVENT.label,
        attributes={
            **given,
            "speaker": fields.get("speaker"),
            "parent_event_id": None,
            "user_id": fields.get("user"),
        },
        provenance=partly(NodeProvenance, session_id=name, occurred_at=at),
        scores=partly(Scores, relevance_score=0.9),
    )


def shown(*told: tuple[Node, str]) -> Shown:
    return Shown({one.node_id: one for one, _ in told}, {one.node_id: text for one, text in told})


def read(question: str, given: Shown) -> Any:
    value: Value | None = value_of(plan_of(question, 0), [next(iter(given.events))], given)
    return None if value is None else value.value


def test_records_of_a_list_are_told_apart() -> None:
    listed = node("stock")
    fields = fields_of(listed, shown((listed, STOCK)))
    assert [(one.words, one.value, one.row) for one in fields[3:5]] == [
        (("item",), "blue glaze", ("items", 1)),
        (("left",), "31", ("items", 1)),
    ]


@pytest.mark.parametrize(
    ("question", "text", "value"),
    [
        ("How many pieces of blue glaze are left?", STOCK, 31),
        ("What is the minimum of the blue glaze?", STOCK, "5"),
        (
            "How much did the lid cost?",
            "lines.cost: 60\nlines.text: pot\nlines.cost: 8.5\nlines.text: lid\ntotal: 68.5",
            "8.5",
        ),
        ("How much is invoice I-7?", "invoice: I-7\ntotal: 68.5\ndue: 2026-12-01", "68.5"),
        ("How big is the picture P-7?", "picture: P-7\nseconds: 3\nsize_kb: 388", "388"),
        ("How much water was saved in kiln K-2?", "kiln: K-2\nsaved_l: 38", "38"),
        ("Which glaze was used for the blue bowl?", "glaze: blue\nbowl: blue", None),
        ("What is the serial number of Mia's kiln?", "room: attic\nserial: TS-9", "TS-9"),
        ("What is Mia's serial number?", "room: attic\nserial: TS-9", "TS-9"),
    ],
)
def test_a_value_is_read_from_the_record_that_is_meant(
    question: str, text: str, value: Any
) -> None:
    assert read(question, shown((node("one"), text))) == value


@pytest.mark.parametrize(
    ("question", "giver", "who"),
    [
        ("The review was passed on, to whom?", "desk", "night"),
        ("Who took over the review?", "desk", "night"),
        ("Who handed over the review?", "desk", None),
        ("The review, who's got it now?", "desk", "night"),
        ("who is on the review?", "desk", "night"),
        ("Who took over the review?", "Oslo", None),
    ],
)
def test_who_got_it_is_told_by_the_record_of_the_handover(
    question: str, giver: str, who: str | None
) -> None:
    of_session = partly(NodeProvenance, session_id="s", occurred_at=NEVER, agent_id="desk")
    asked, handed = node("asked", kind="message"), node("handed", kind="other")
    for one in (asked, handed):
        one.provenance = of_session
    given = shown((asked, "please review it"), (handed, f"from: {giver}\nto: night\nreason: late"))
    assert read(question, given) == who


def test_a_result_that_names_no_call_is_that_of_the_last_call_of_its_tool() -> None:
    first, second, other = (
        node(name, "call", tool, at=f"2026-01-0{day}T00:00:00.000Z")
        for day, (name, tool) in enumerate((("a", "lift"), ("b", "lift"), ("c", "paint")), 1)
    )
    result = node("r", tool="lift", at="2026-01-04T00:00:00.000Z")
    told = (first, second, other, result)
    assert outcomes_of({one.node_id: one for one in told}) == {}  # each is of another session
    for one in told:
        one.provenance.session_id = "s"
    assert outcomes_of({one.node_id: one for one in told}) == {"b": result}
    result.attributes["parent_event_id"] = "a"
    assert outcomes_of({one.node_id: one for one in told}) == {"a": result}


@pytest.mark.parametrize(
    ("question", "said", "who"),
    [
        ("Who approved the lift of crate C-7?", "granted_by: Ines Tobin\nkey: K-4", "Ines Tobin"),
        ("Who signed off the lift of C-7?", "signatory.login: ines\nsignatory.level: 2", "ines"),
        ("Who concurred in the lift of C-7?", "concur: yes\nmoderator.nick: ines", "ines"),
        ("Who cleared the lift of C-7?", "dispatcher: Ines Tobin\norder: lift", "Ines Tobin"),
        ("Who painted crate C-7?", "granted_by: Ines Tobin", None),
        ("Who approved the lift of C-7?", "carrier: Slow Boats\nletter: sent", None),
        ("Who approved the lift of C-7?", "owner: Ines", None),
    ],
)
def test_who_said_yes_is_named_by_what_was_asked_after_a_refusal(
    question: str, said: str, who: str | None
) -> None:
    of_session = partly(NodeProvenance, session_id="s", occurred_at=NEVER)
    told = (
        (node("done", tool="lift"), "crate: C-7\nstate: lifted"),
        (node("refused", kind="failure", tool="lift", status="failed"), "too heavy"),
        (node("asked", tool="ask"), said),
    )
    assert read(question, shown(*told)) is None  # each is of another session
    for one, _ in told:
        one.provenance = of_session
    assert read(question, shown(*told)) == who


def test_what_was_looked_up_before_a_refusal_tells_not_who_said_yes() -> None:
    looked = node("looked", tool="get_crate", at=DAYS[0])
    refused = node("refused", "failure", "lift", at=DAYS[1])
    refused.attributes["status"] = "failed"
    asked = node("asked", tool="ask", at=DAYS[2])
    told = ((looked, "packer: Rui Sa"), (refused, "too heavy"), (asked, "approver: Ines Tobin"))
    assert read("Who approved the lift?", of_one_session(*told)) == "Ines Tobin"


def test_the_newest_record_of_the_same_says_what_is() -> None:
    old = node("old", tool="get_limit", at="2026-01-01T00:00:00.000Z")
    new = node("new", tool="raise_limit", at="2026-01-02T00:00:00.000Z")
    other = node("other", tool="get_limit", at="2026-01-03T00:00:00.000Z")
    given = shown((old, "kiln: east\nlimit: 64"), (new, "kiln: east\nlimit: 96"))
    assert read("What is the limit of the kiln east?", given) == "96"
    beside = shown((old, "kiln: east\nlimit: 64"), (other, "kiln: west\nlimit: 12"))
    assert read("What is the limit of the kiln east?", beside) == "64"


DAYS = ("2026-01-01T00:00:00.000Z", "2026-01-02T00:00:00.000Z", "2026-01-03T00:00:00.000Z")


def moved() -> Shown:
    """A visit that was booked at a farm and moved twice, and another one."""
    texts = (
        "visit: VI-7\nfarm: Alder\nstart: 2031-05-02T08:00",
        "visit: VI-7\nstart: 2031-05-03T08:00",
        "visit: VI-7\nstart: 2031-05-05T14:00",
    )
    told = [
        (node(f"{place}", tool="change_visit", at=at), text)
        for place, (at, text) in enumerate(zip(DAYS, texts, strict=True))
    ]
    other = node("other", tool="book_visit", at="2026-01-09T00:00:00.000Z")
    return shown(*told, (other, "visit: VI-9\nstart: 2031-09-09T09:00"))


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("When is the visit at Alder?", "2031-05-05T14:00"),
        ("When was the visit before it was moved?", "2031-05-03T08:00"),
        ("When was VI-7 before it was moved?", "2031-05-03T08:00"),
    ],
)
def test_a_thing_that_was_moved_is_where_it_was_moved_to(question: str, value: str) -> None:
    assert read(question, moved()) == value


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("How much water does pump P-1 get?", "80"),
        ("How much water did pump P-1 get before it was tuned?", "60"),
        ("Which oil does pump P-1 take?", "thick"),
        ("Which oil was used for pump P-1?", "thin"),  # how it went, whatever came later
    ],
)
def test_what_is_now_is_told_apart_from_how_it_went(question: str, value: str) -> None:
    old = node("old", tool="set_pump", at=DAYS[0])
    new = node("new", tool="tune_pump", at=DAYS[1])
    given = shown(
        (old, "pump: P-1\nwater_l: 60\noil: thin"), (new, "pump: P-1\nwater_l: 80\noil: thick")
    )
    assert read(question, given) == value


def test_what_will_be_is_what_somebody_says_that_it_goes_to() -> None:
    paid = node("paid", tool="pay_rent", at=DAYS[1])
    said = node("said", kind="message", at=DAYS[0])
    given = shown(
        (paid, "kiln: east\nrent: 1180"), (said, "The rent goes from 1,180 to 1,342, ouch.")
    )
    assert read("What is the rent of the kiln east going to be?", given) == "1,342"
    assert read("What is the rent of the kiln east?", given) == "1180"


def test_one_and_several_of_a_name_are_the_same_field() -> None:
    old = node("old", tool="get_gate", at=DAYS[0])
    new = node("new", tool="set_gate", at=DAYS[1])
    given = shown((old, "gate: G-1\nseals: S-7"), (new, "gate: G-1\nseal: S-9"))
    assert read("What is the seal of gate G-1?", given) == "S-9"


def test_how_many_there_are_is_not_how_many_were_ordered() -> None:
    order = node("order", tool="order_bulbs")
    count = node("count", tool="list_shelf")
    shelf = "items.item: tulip\nitems.stored: 40\nitems.item: iris\nitems.stored: 7"
    given = shown((order, "item: tulip\nquantity: 200"), (count, shelf))
    assert read("How many tulip bulbs do we have?", given) == 40
    assert read("How many tulip bulbs did Ana buy?", given) == 200


def test_how_long_it_took_is_what_its_record_says() -> None:
    given = shown((node("one"), "trial: TR-4\nminutes: 95\nyield: 3"))
    assert read("How long did TR-4 take?", given) == "1 h 35 min"
    assert read("How long did TR-5 take?", given) is None


def test_of_a_list_without_a_named_row_none_is_the_answer() -> None:
    given = shown((node("one"), "arms.arm: early\narms.rate: 3\narms.arm: late\narms.rate: 4"))
    assert read("Which arm won the trial?", given) is None


def test_who_somebody_is_is_not_what_they_have() -> None:
    amended = node("call", kind="call", tool="parcels.amend", user="M-7", at=DAYS[1])
    found = node("found", tool="registry.farm", user="M-7", at=DAYS[0])
    call, record = (amended, "farm: M-7\nuse: rye"), (found, "member: M-7\nfarm: AT 38573")
    assert read("What is the farm number of Ann?", shown(call, record)) == "AT 38573"
    assert read("What is the member number of Ann?", shown(call, record)) == "M-7"
    assert read("What is the farm number of Ann?", shown(call)) == "M-7"


def test_who_has_something_may_be_whose_event_says_so() -> None:
    first = node("first", tool="lockers.get", user="M-7", at=DAYS[0])
    later = node("later", tool="lockers.get", user="M-7", at=DAYS[1])
    given = shown((first, "locker: L-4\nowner: M-9"), (later, "locker: L-4\nowner: M-7"))
    assert read("What is the owner id of locker L-4?", given) == "M-7"


def test_what_something_is_somebody_may_have_said() -> None:
    said = node("said", kind="message", at=DAYS[1])
    given = shown((node("one"), "gauge: G-1"), (said, "bot: The tide error is 0.2, as before."))
    assert read("What was the tide error?", given) == "0.2"


@pytest.mark.parametrize(
    ("question", "tool", "found", "value"),
    [
        ("Where is the throwing class on Monday?", "show_class", "room: 4\nstarts: 16:00", "4"),
        ("Where is the throwing class?", "show_class", "class: throwing\nroom: 4", "4"),
        ("Where is the throwing class?", "show_class", "room: 4\nhall: north", None),
        ("Where is the throwing class?", "show_class", "class: throwing\nopen: yes", None),
        ("Where is the throwing class?", "book_class", "class: throwing\nroom: 4", None),
        ("What is the hall of the class?", "classes.hall", "class: throwing\nname: north", "north"),
        ("What is the hall of the class?", "classes.book_hall", "name: north", None),
        ("What is the hall of the class?", "buy_hall", "name: north", None),
        ("Who teaches throwing on Monday?", "rota.who", "adult: Ina\nclass: throwing", "Ina"),
        ("Who teaches throwing on Monday?", "rota.book", "adult: Ina\nclass: throwing", None),
        ("How warm is the throwing room?", "get_climate", "class: throwing\ntarget: 21", "21"),
        ("What is the place of Mia in line?", "GET /queue", "rank: 8\nclass: throwing", "8"),
    ],
)
def test_what_a_look_up_alone_returned_is_what_was_looked_up(
    question: str, tool: str, found: str, value: str | None
) -> None:
    call, result = node("call", "call", tool, at=DAYS[0]), node("found", tool=tool, at=DAYS[1])
    given = of_one_session((call, "class: throwing"), (result, found))
    assert read(question, given) == value
    assert read(question, shown((call, "class: throwing"))) is None


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("How long has the door D-7 been shut?", "32 min"),
        ("How many minutes had D-7 been closed?", 32),
        ("How long did D-7 take?", None),
    ],
)
def test_since_when_something_is_so_says_its_record(question: str, value: Any) -> None:
    assert read(question, shown((node("one"), "door: D-7\nsince_minutes: 32"))) == value


@pytest.mark.parametrize(
    ("text", "value"), [("serial: 7\ndays: 90", "90 days"), ("serial: 7\ntook_s: 90", None)]
)
@pytest.mark.parametrize(
    "question", ["How long is the new permit good for?", "How long can I keep the permit?"]
)
def test_how_long_something_is_good_is_the_stretch_that_its_record_says(
    question: str, text: str, value: str | None
) -> None:
    assert read(question, shown((node("one", tool="issue"), text))) == value


@pytest.mark.parametrize(
    ("question", "text", "who"),
    [
        ("Who does kiln K-2 belong to?", "kiln: K-2\nassignedTo: pool", "pool"),
        ("To whom was K-2 given out?", "kiln: K-2\nassignedTo: pool", "pool"),
        ("Who gave the waiver for K-2?", "kiln: K-2\nwaiver: wv.3t2\nby: Ines", None),
        ("Who is the owner of K-2?", "kiln: K-2\nowner: Ines", "Ines"),
    ],
)
def test_whose_it_is_says_the_record_and_no_thing_is_who_gave_it(
    question: str, text: str, who: str | None
) -> None:
    assert read(question, shown((node("one", tool="get_kiln"), text))) == who


def test_the_value_of_an_object_is_called_as_the_object_is() -> None:
    given = shown((node("one"), "invoice: I-7\ntotal.value: 60\ntotal.currency: EUR"))
    assert read("What is the total of I-7?", given) == "60"
    listed = shown(
        (node("one"), "items.item: lid\nitems.value: 8\nitems.item: pot\nitems.value: 9")
    )
    assert read("What is the value of the pot?", listed) == "9"
    call = node("call", "call", "get_case", at=DAYS[0])
    result = node("case", tool="get_case", at=DAYS[1])
    told = of_one_session(
        (call, "case: 73-07"), (result, "responsible.id: 7\nresponsible.name: Ina")
    )
    assert read("Who is responsible for case 73-07?", told) == "Ina"


def test_the_sort_of_a_record_is_not_that_of_what_is_asked() -> None:
    given = shown((node("one", tool="review"), "type: firewall\nid: F-1"))
    assert read("What is my clay type?", given) is None
    assert read("What is the type of F-1?", given) == "firewall"


def test_how_many_somebody_says_who_was_asked_for_them() -> None:
    asked = node("asked", "message", at=DAYS[0], speaker="mia")
    told = node("told", "message", at=DAYS[1], speaker="bot")
    other = node("other", "message", at=DAYS[2], speaker="bot")
    words = (
        (asked, "mia: Please count the hours of my course in Riga."),
        (told, "bot: They count, 24 hours. Shall I add 3 hours?"),
        (other, "bot: See you in 2 weeks, class C-24 hours as ever."),
    )
    assert read("How many hours did Mia get for Riga?", of_one_session(*words)) == 24
    assert read("How many days did Mia get for Riga?", of_one_session(*words)) is None
    asked.provenance.session_id = "another"
    assert read("How many hours did Mia get for Riga?", shown(*words)) is None


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("Until when is glaze GL-7 locked?", "2031-05"),
        ("When is firing F-12?", "week 49"),
        ("When was firing F-12 planned?", None),
    ],
)
def test_a_month_or_a_week_says_when_something_is(question: str, value: str | None) -> None:
    locked = node("locked", "call", "lock_glaze", at=DAYS[0])
    until = node("until", tool="lock_glaze", at=DAYS[1])
    firing = node("firing", tool="get_firing", at=DAYS[2])
    given = of_one_session(
        (locked, "glaze: GL-7"), (until, "lock: 12\nlifts: 2031-05"), (firing, "id: F-12\nweek: 49")
    )
    assert read(question, given) == value


def test_when_it_is_says_the_only_date_in_a_record_of_it() -> None:
    bill = node("bill", tool="write_bill", at="2026-01-05T00:00:00.000Z")
    booked = node("booked", tool="book_course", at="2026-01-01T00:00:00.000Z")
    moved = node("moved", tool="move_course", at="2026-01-02T00:00:00.000Z")
    given = shown(
        (bill, "bill: B-1\ncourse: C-7\ndue: 2026-03-01"),
        (booked, "course: C-7\nstart: 2026-02-01T10:00"),
        (moved, "course: C-7\nstart: 2026-02-08T10:00"),
    )
    assert is_record_of(moved, "c-7", given)
    assert not is_record_of(bill, "c-7", given)
    assert read("When is the course C-7?", given) == "2026-02-08T10:00"
    assert read("When was the course C-7 billed?", given) is None


@pytest.mark.parametrize(
    ("question", "text", "who"),
    [
        ("Who owns kiln K-2?", "kiln: K-2\nowner: East studio", "East studio"),
        ("Who declined R-3?", "request: R-3\ndecided_by: Lina Bo\nstate: declined", "Lina Bo"),
        ("Who approved R-3?", "request: R-3\ndecided_by: Lina Bo\nstate: declined", None),
        (
            "Who took K-2 out of use?",
            "kiln: K-2\nchanged_by: Lina Bo\nstate: out of use",
            "Lina Bo",
        ),
        ("Who is working on M-6?", "report: M-6\nassignee: Rui Sa", "Rui Sa"),
        ("Who opened M-6?", "report: M-6\nassignee: Rui Sa", None),
    ],
)
def test_who_is_the_one_whom_a_record_names_in_that_role(
    question: str, text: str, who: str | None
) -> None:
    assert read(question, shown((node("one"), text))) == who


def test_of_several_acts_each_value_is_told_once() -> None:
    texts: Mapping[str, str] = {"a": "glaze: blue", "b": "glaze: red", "c": "glaze: blue"}
    given = shown(*((node(name), text) for name, text in texts.items()))
    plan = plan_of("Which glazes were ordered?", 0)
    assert each_of(plan, ["a", "b", "c"], given) == ["blue", "red"]
    assert each_of(plan, ["a", "gone"], given) == []
    of_a_time = plan_of("Which things took place between 22 November and 23 November?", 0)
    assert each_of(of_a_time, ["a", "b"], given) == []


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("When is the pruning of the pear trees?", "2031-05-02T08:00"),
        ("From which day does the pruning of the pear trees start?", "2031-05-02T08:00"),
        ("What date is the pruning of the pear trees?", "2031-05-02T08:00"),
        ("Until when is the pruning of the pear trees?", "2031-05-04T18:00"),
        ("When does the pruning of the pear trees end?", "2031-05-04T18:00"),
        ("When is the harvest of the plum trees?", None),
    ],
)
def test_of_a_stretch_the_beginning_says_when_it_is(question: str, value: str | None) -> None:
    text = "visit: pruning\ntrees: pear\nslot.end: 2031-05-04T18:00\nslot.start: 2031-05-02T08:00"
    assert read(question, shown((node("one", tool="book_visit"), text))) == value


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("When does my aunt's ferry come in?", "Ruta sails in on Friday the 4th at 21:15."),
        ("What date was my move set for?", "I'm moving on the 21st."),
        ("When does the circus come?", None),
        ("When does the museum open?", None),  # somebody asked that
        ("On what day was the move set to Friday?", None),  # it is the day of an act
    ],
)
def test_when_something_will_be_somebody_may_have_said(question: str, value: str | None) -> None:
    said = (
        (node("one", tool="get_account"), "account: 7\nsince: 2026-01-01"),
        (node("two", "message"), "Ruta sails in on Friday the 4th at 21:15. She is my aunt."),
        (node("five", "message", at=DAYS[2]), "Does the museum open on Monday?"),
        (node("three", "message", at=DAYS[0]), "Hello. I'm moving on the 21st."),
        (node("four", "message", at=DAYS[1]), "Please move the fair to the 14th."),
    )
    assert read(question, shown(*said)) == value


def of_one_session(*told: tuple[Node, str]) -> Shown:
    for one, _ in told:
        one.provenance = partly(
            NodeProvenance,
            session_id="s",
            occurred_at=one.provenance.occurred_at,
            agent_id=one.attributes["speaker"] or "bot",
        )
    return shown(*told)


@pytest.mark.parametrize(
    ("question", "who"),
    [
        ("Who turned down the lift?", "Ines Tobin"),
        ("Who said no to the lift?", "Ines Tobin"),
        ("Who rejected the lift?", "Ines Tobin"),
        ("Who approved the lift?", None),
    ],
)
def test_who_refused_is_named_by_the_record_of_it(question: str, who: str | None) -> None:
    asks = node("asks", "message", speaker="omar")
    answer = node("answer", tool="ask_chief")
    given = of_one_session(
        (asks, "lift the crate please"), (answer, "by: Ines Tobin\ndecision: refused")
    )
    assert read(question, given) == who


def test_who_refused_somebody_may_tell() -> None:
    asks = node("asks", "message", speaker="omar")
    told = node("told", "message", speaker="bot")
    given = of_one_session((asks, "lift it"), (told, "Ines said no, Monday is soon enough."))
    assert read("Who turned down the lift?", given) == "Ines"
    assert read("Who approved the lift?", given) is None
    for text in ("I said no.", "The lift refused it.", "Lift declined: too heavy"):
        given = of_one_session((asks, "lift it"), (told, text))
        assert read("Who turned down the lift?", given) is None
    given = of_one_session((asks, "lift it"), (told, "I said no."))
    assert read("Who turned down the lift?", given) is None


def test_a_refusal_of_something_else_is_not_of_what_is_named() -> None:
    asked = node("asked", "call", "ask_chief", at=DAYS[0])
    answer = node("answer", tool="ask_chief", at=DAYS[1])
    answer.attributes["parent_event_id"] = "asked"
    other = node("other", tool="ask_guard", at=DAYS[2])
    told = ((asked, "crate: C-7"), (answer, "by: Ines Tobin\ndecision: refused"))
    given = of_one_session((other, "by: Rui Sa\ndecision: refused"), *told)
    assert read("Who turned down C-7?", given) == "Ines Tobin"
    assert read("Who turned down C-8?", given) is None
    version = of_one_session((other, "by: Rui Sa\ndecision: refused"), *told)
    version.texts["asked"] = "part: 4.18.1"  # type: ignore[index]
    assert read("Who turned down 4.18.1?", version) == "Ines Tobin"


def test_who_handed_it_over_is_the_only_one_who_says_so() -> None:
    first = (node("first", "message", speaker="omar"), "the kiln is broken")
    gave = (node("gave", "message", speaker="desk"), "Handed over to the night shift as K-2.")
    also = (node("also", "message", speaker="gate"), "I've passed your letter on to Rui.")
    assert read("Who passed the broken kiln on to the night shift?", shown(first, gave)) == "desk"
    assert read("Who passed the broken kiln on?", shown(first, gave, also)) is None
    assert read("Who passed the broken kiln on?", shown(first)) is None


def test_who_said_yes_in_their_own_words_between_refusal_and_success() -> None:
    times = [f"2026-01-01T00:0{minute}:00.000Z" for minute in range(6)]
    call, refused, asks, yes, late, done = (
        node("call", "call", "lift", at=times[0]),
        node("refused", "failure", "lift", at=times[1]),
        node("asks", "message", speaker="bot", at=times[2]),
        node("yes", "message", speaker="ines", at=times[3]),
        node("late", "message", speaker="omar", at=times[5]),
        node("done", tool="lift", at=times[4]),
    )
    told = [
        (call, "crate: C-7"),
        (refused, "too heavy"),
        (asks, "Ok, I need a yes."),
        (yes, "Approved from my side. Do it."),
        (late, "Fine."),
        (done, "state: lifted"),
    ]
    assert read("Who gave the OK for the lift of C-7?", of_one_session(*told)) == "ines"
    assert read("Who lifted C-7?", of_one_session(*told)) is None
    told[3] = (yes, "I will look at it tomorrow.")
    assert read("Who gave the OK for the lift of C-7?", of_one_session(*told)) is None


def test_what_came_of_a_call_need_not_say_again_what_it_is_of() -> None:
    call = node("call", "call", "escalate", at=DAYS[0])
    outcome = node("outcome", tool="escalate", at=DAYS[1])
    outcome.attributes["parent_event_id"] = "call"
    first = node("first", tool="ring", at=DAYS[0])
    given = shown(
        (first, "alarm: AL-7\nrang: yes"), (call, "alarm: AL-7"), (outcome, "sealed_by: Rui Sa")
    )
    assert read("Who sealed AL-7?", given) == "Rui Sa"


@pytest.mark.parametrize(
    ("question", "who"),
    [
        ("Who is on watch right now?", "Rui Sa"),
        ("Who's on watch?", "Rui Sa"),
        ("Who is on the roof?", None),
    ],
)
def test_who_it_is_now_says_the_newest_record(question: str, who: str | None) -> None:
    given = shown(
        (node("said", "message"), "watch the kiln"),
        (node("old", tool="set_watch", at=DAYS[0]), "on_watch_now: Lina Bo"),
        (node("new", tool="set_watch", at=DAYS[1]), "on_watch_now: Rui Sa"),
    )
    assert read(question, given) == who


def test_which_agent_did_it_is_told_by_the_act_that_has_the_numbers() -> None:
    told = (
        (node("up", tool="set_heat", at=DAYS[1]), "kiln: east\nheat.from: 12\nheat.to: 30"),
        (node("look", tool="get_heat", at=DAYS[0]), "kiln: east\nheat: 12"),
        (node("down", tool="set_heat", at=DAYS[0]), "kiln: east\nheat.from: 40\nheat.to: 12"),
    )
    for (one, _), agent in zip(told, ("day", "eye", "night"), strict=True):
        one.provenance = partly(
            NodeProvenance, session_id=agent, occurred_at=DAYS[0], agent_id=agent
        )
    given = shown(*told)
    assert read("Which agent brought the heat of the kiln east to 12?", given) == "night"
    assert read("Which agent brought the heat of the kiln east to 13?", given) is None
    assert read("Which agent looked at the kiln east?", given) is None


def test_how_much_is_never_of_another_number() -> None:
    tickets = node("tickets", tool="find_tickets")
    given = shown((node("said", "message"), "plan 50 is 520 a month"), (tickets, "total: 6"))
    assert read("What does plan 200 cost?", given) is None
    limit = shown((node("limit", tool="set_limit"), "agent: bot\nloan_limit.new: 3"))
    assert read("How much may the bot loan?", limit) is None  # no value before it: no change
    limit = shown((node("limit", tool="set_limit"), "agent: bot\nloan_limit: 3"))
    assert read("How much may the bot loan?", limit) == "3"


def test_how_much_is_the_money_of_the_first_record_that_has_some_and_no_code() -> None:
    train = node("train", "call", tool="book_train"), "train: TR1912\npassenger: Ana"
    given = shown(train, (node("paid", tool="book_train"), "seat: S7\ncost_eur: 34"))
    for one in given.events.values():
        one.provenance = partly(NodeProvenance, session_id="s", occurred_at=NEVER)
    assert read("How much did the train cost?", given) == "34"
    assert read("How much did the train cost?", shown(train)) is None


@pytest.mark.parametrize(
    ("question", "value"),
    [
        ("What is my work e-mail?", "ana@mill.example"),
        ("What is the link of the mill?", "https://mill.example/a"),
        ("What was my work e-mail before?", None),
        ("What is my work phone?", None),
    ],
)
def test_what_has_a_form_of_its_own_is_told_by_that(question: str, value: str | None) -> None:
    sent = node("sent", tool="send_note"), "body: ana@mill.example\nto: bob@quay.example"
    said = node("said", "message"), "ana: use ana@mill.example for work"
    page = node("page", tool="open_page"), "opened: https://mill.example/a."
    assert read(question, shown(sent, said, page)) == value


def test_how_many_people_are_a_party() -> None:
    given = shown((node("table", tool="book_table"), "table: window\nparty: 5"))
    assert read("For how many people is the table?", given) == 5


def test_how_much_a_month_is_what_is_monthly() -> None:
    given = shown((node("one", tool="set_rent"), "tenant: Riel\nmonthly_net: 520\nrooms: 3"))
    assert read("What does Riel pay us a month?", given) == "520"


def test_a_failure_that_has_no_status_is_one() -> None:
    failed = node("failed", kind="failure", tool="order")
    given = shown((failed, "price: 7"), (node("said", "message"), "order it"))
    assert read("How much did the lid cost?", given) is None


def test_what_was_so_before_anybody_set_it_is_what_it_was_changed_from() -> None:
    at = "2026-01-05T12:00:00.000Z"
    call = node("call", kind="call", tool="cdn.set_origin", at=at)
    change = node("change", kind="other", at=at)
    told = (
        (call, "zone: images\norigin: img-45"),
        (change, "from: img-52\nsetting: cdn.images.origin\nto: img-45"),
    )
    question = "What was the origin of the images on 2026-01-03?"
    plan = plan_of(question, timestamp_ms("2026-01-09T00:00:00.000Z"))
    value = value_of(plan, ["call"], shown(*told))
    assert value is not None
    assert value.value == "img-52"
    assert value_of(plan, ["call"], shown(told[0])) is None


def test_where_something_is_no_flag_says() -> None:
    given = shown((node("one"), "placed: yes\nfit: 68 %"))
    assert read("Where is the culture lead placed?", given) is None
