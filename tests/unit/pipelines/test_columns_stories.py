"""Stories that columns tell: whole ones, of the viewer, within limits."""

from __future__ import annotations

from math import nan
from typing import Any

import numpy
import pytest

from enrichment.event_kinds import EventKind
from enrichment.stems import stem, stem_in
from pipelines.columns.entities import PROPERTIES as ENTITY_PROPERTIES
from pipelines.columns.entities import Fact
from pipelines.columns.records import KINDS, Stories, StoriesAsked, StoryFact
from pipelines.columns.stories import MAX_EVENTS, MAX_IN_SESSION, PAUSE_MS, stories_of
from pipelines.columns.tables import Edge
from pipelines.columns.tenant import EDGE_PROPERTIES, NODE_PROPERTIES, Tenant
from pipelines.columns.view import View
from pipelines.graph.reads.scope import Scope, Within
from pipelines.graph.rows import FoundEdge, FoundNode
from projections.schema import ENTITY, EVENT, LINKED_TO, SUMMARIZES, SUMMARY, EdgeRow

TENANT = "acme"
MINUTE_MS = 60_000


def made(*events: dict[str, Any]) -> Tenant:
    """Columns with events e0, e1 and so on, a minute apart unless they say otherwise."""
    tenant = Tenant()
    for number, event in enumerate(events):
        place = {"occurred_at": MINUTE_MS * (number + 1), "global_position": f"{number + 1}-0"}
        put(tenant, f"e{number}", {**place, **event})
    return tenant


def put(tenant: Tenant, event_id: str, event: dict[str, Any]) -> None:
    """An event of the graph, anew."""
    values = dict.fromkeys(NODE_PROPERTIES[EVENT.label]) | {
        "occurred_at": MINUTE_MS,
        "session_id": "s",
        "agent_id": "bot",
        "kind": EventKind.MESSAGE.value,
        **event,
    }
    tenant.set_node(EVENT.label, event_id, FoundNode((TENANT, event_id), True, values, False))


def told(
    tenant: Tenant, user: str | None = None, within: Within | None = None, **fields: Any
) -> Any:
    wanted = StoriesAsked((), (), (), None, (), "", (), ())._replace(**fields)
    scope = Scope(TENANT, user, 10**13, within=within)
    return stories_of(View(tenant, scope), wanted)


def by_id(stories: Stories, name: str) -> dict[str, Any]:
    return dict(zip(stories.ids, getattr(stories, name).tolist(), strict=True))


def test_a_hit_comes_with_its_story_in_order() -> None:
    tenant = made(*({"text": f"word{number}"} for number in range(5)))
    assert told(tenant, hits=["e2"]).ids == ["e0", "e1", "e2", "e3", "e4"]


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Which glaze do I have?", True),
        ("Hello! Which glaze do I have? I forgot", True),
        ("Is it fired? Thanks!", True),
        ("Is it fired? Then send it to Ada.", False),
        ("The page is kiln/log?page=2", False),
        ("It is fired.", False),
    ],
)
def test_what_ends_in_a_question_asks_but_for_a_word_or_two(text: str, asks: bool) -> None:
    assert by_id(told(made({"text": text}), hits=["e0"]), "asks") == {"e0": asks}


def test_a_pause_ends_a_story() -> None:
    late = {"occurred_at": 3 * MINUTE_MS + PAUSE_MS}
    tenant = made({}, {}, late)
    assert told(tenant, hits=["e0"]).ids == ["e0", "e1"]
    stories = told(tenant, hits=["e0", "e2"])
    assert stories.ids == ["e0", "e1", "e2"]
    assert len(set(stories.story.tolist())) == 2


def test_another_session_is_another_story() -> None:
    tenant = made({}, {"session_id": "t"}, {})
    assert told(tenant, hits=["e0"]).ids == ["e0", "e2"]


def test_nothing_of_another_user_is_told() -> None:
    tenant = made({}, {"user_id": "ann"}, {"user_id": "bob"}, {})
    assert told(tenant, "ann", hits=["e2", "e0"]).ids == ["e0", "e1", "e3"]
    assert told(tenant, hits=["e1", "e2"]).ids == []
    assert told(tenant, "ann", hits=["e0"]).users == ["ann"]


@pytest.mark.parametrize(
    ("within", "ids"),
    [
        (Within(since_ms=2 * MINUTE_MS), ["e1", "e2"]),
        (Within(until_ms=2 * MINUTE_MS), ["e0"]),
        (Within(kinds=("failure",)), ["e2"]),
        (Within(statuses=("completed",)), ["e1"]),
        (Within(session_id="t"), []),
        (Within(), ["e0", "e1", "e2"]),
    ],
)
def test_a_search_is_limited(within: Within, ids: list[str]) -> None:
    tenant = made({}, {"status": "completed"}, {"kind": "failure"})
    assert told(tenant, within=within, hits=["e0", "e1", "e2"]).ids == ids


def test_words_identifiers_and_marks_are_counted() -> None:
    tenant = made({"text": "order A-17 is late, order it again"}, {"text": "A-18 will come"})
    stories = told(
        tenant,
        hits=["e0"],
        stems=[stem("order"), stem("nothing")],
        identifiers=[["a", "17"], ["a", "99"]],
        marks=[stem("will")],
    )
    assert stories.counts.tolist() == [[2, 0], [0, 0]]
    assert stories.holds.tolist() == [[True, False], [False, False]]
    assert stories.marks.tolist() == [0, 1]
    assert (stories.holding.tolist(), stories.total) == ([1, 0], 2)


def test_people_are_those_who_call_no_tools() -> None:
    tenant = made(
        {"agent_id": "ana.berg"},
        {"agent_id": "bot"},
        {"agent_id": "bot", "kind": "call", "tool_name": "pay"},
        {"agent_id": "bot", "kind": "failure", "tool_name": "pay", "status": "failed"},
    )
    stories = told(tenant, hits=["e0"], capitalised=["ana"], text=" what did ana say last ")
    assert by_id(stories, "person") == {"e0": True, "e1": False, "e2": False, "e3": False}
    assert by_id(stories, "named") == {"e0": True, "e1": False, "e2": False, "e3": False}
    assert by_id(stories, "failed") == {"e0": False, "e1": False, "e2": False, "e3": True}
    assert by_id(stories, "tool")["e0"] == -1
    kinds = [KINDS[code].value for code in stories.kind.tolist()]
    assert kinds == ["message", "message", "call", "failure"]


def test_of_people_the_one_is_meant_whose_whole_name_is_said() -> None:
    tenant = made({"agent_id": "ana.berg"}, {"agent_id": "ana.lund"})
    both = told(tenant, hits=["e0"], capitalised=["ana"])
    assert by_id(both, "named") == {"e0": True, "e1": True}
    one = told(tenant, hits=["e0"], capitalised=["ana", "lund"])
    assert by_id(one, "named") == {"e0": False, "e1": True}


def test_what_somebody_said_is_found_without_a_hit() -> None:
    tenant = made({"agent_id": "ana"}, {"agent_id": "bo", "session_id": "t"})
    assert told(tenant, capitalised=["ana"], by_speaker=True).ids == ["e0"]
    assert told(tenant, capitalised=["ana"]).ids == []


def test_what_happened_in_a_window_is_found_without_a_hit() -> None:
    apart = [{"session_id": f"s{number}"} for number in range(4)]
    tenant = made(*apart)
    window = [(2 * MINUTE_MS, 4 * MINUTE_MS)]
    assert told(tenant, windows=window, by_window=True).ids == ["e1", "e2"]


def test_what_failed_is_found_by_a_word() -> None:
    tenant = made(
        {"text": "paper jam", "kind": "failure", "session_id": "a"},
        {"text": "paper", "session_id": "b"},
        {"text": "no ink", "kind": "failure", "session_id": "c"},
    )
    assert told(tenant, stems=[stem("paper")], by_failure=True).ids == ["e0"]


def test_a_session_that_is_named_is_told_whole_up_to_a_bound() -> None:
    tenant = made(*({} for _ in range(MAX_IN_SESSION + 20)))
    stories = told(tenant, sessions=["s"])
    assert MAX_IN_SESSION <= len(stories.ids) <= MAX_EVENTS
    assert stories.in_session.all()
    assert told(tenant, sessions=["unknown"]).ids == []


def test_cosines_are_those_of_the_vectors() -> None:
    vector = numpy.zeros(384, dtype=numpy.float32)
    vector[3] = 1.0
    tenant = made({"embedding": vector.tolist()}, {})
    cosines = by_id(told(tenant, hits=["e0"], vector=vector.tolist()), "cosines")
    assert cosines["e0"] == pytest.approx(1.0, abs=0.01)
    assert numpy.isnan(cosines["e1"])


def test_what_writes_two_words_as_one_holds_both() -> None:
    failed = {"text": "doc: callsheet", "kind": EventKind.FAILURE.value}
    tenant = made(failed, {"text": "a sheet"}, {"text": "a call"}, {"text": "a lamp"})
    stems = ["call", "sheet", "lamp"]
    asked = told(tenant, hits=["e3"], stems=stems, joined=[("callsheet", 0, 1)])
    assert by_id(asked, "counts")["e0"] == [1, 1, 0]
    assert by_id(asked, "counts")["e1"] == [0, 1, 0]
    assert by_id(told(tenant, hits=["e3"], stems=stems), "counts")["e0"] == [0, 0, 0]
    assert told(tenant, stems=["call"], joined=[("callsheet", 0, 0)], by_failure=True).ids != []


def test_what_is_called_by_a_noun_is_held_by_its_verb_where_nobody_says_the_noun() -> None:
    failed = {"text": "rejected", "tool_name": "enrolDevice", "kind": EventKind.FAILURE.value}
    verbs = [("enrol", 0, 0)]
    tenant = made(failed, {"text": "a lamp"})
    asked = told(tenant, stems=["enrolment", "lamp"], verbs=verbs, by_failure=True)
    assert by_id(asked, "counts")["e0"] == [1, 0]
    assert asked.holding.tolist() == [1, 1]
    tenant = made(failed, {"text": "an enrolment"})
    asked = told(tenant, hits=["e0"], stems=["enrolment"], verbs=verbs)
    assert by_id(asked, "counts")["e0"] == [0], "somebody says the noun, so that is meant"


def test_agents_are_those_that_call_tools_whoever_is_said_to_speak() -> None:
    tenant = made(
        {"agent_id": "support-agent", "text": "I will look"},
        {"agent_id": "support-agent", "kind": "call", "tool_name": "look", "speaker": "look"},
        {"agent_id": "ana", "user_id": "u1"},
        {"agent_id": "ops-agent", "user_id": "u1"},
    )
    stories = told(tenant, "u1", hits=["e0"], text=" what did the support agent do for ana ")
    assert by_id(stories, "person")["e0"] is False
    assert by_id(stories, "acted") == {"e0": True, "e1": True, "e2": False, "e3": False}
    of_ana = told(tenant, "u1", hits=["e0"], capitalised=["ana"])
    assert by_id(of_ana, "theirs") == {"e0": False, "e1": False, "e2": True, "e3": True}


@pytest.mark.parametrize(
    ("text", "acted"), [(" what did the gateway take ", True), (" the gateway broke ", False)]
)
def test_a_word_that_is_an_agents_name_means_the_agent_where_it_acts(
    text: str, *, acted: bool
) -> None:
    tenant = made({"agent_id": "gateway"})
    assert by_id(told(tenant, hits=["e0"], text=text), "acted") == {"e0": acted}


def test_names_of_sessions_and_agents_hold_words() -> None:
    tenant = made({"session_id": "checkout-47", "agent_id": "pay-agent", "text": "go"})
    stories = told(tenant, hits=["e0"], stems=[stem("checkout"), stem("pay"), stem("go")])
    assert stories.labels.tolist() == [[True, True, False]]


def cause(tenant: Tenant, effect: str, source: str) -> None:
    rows = tenant.events.rows
    tenant.causes.add(Edge(rows[effect], rows[source], nan, False))


def test_what_stands_behind_a_failure_in_another_session_is_told() -> None:
    tenant = made(
        {"session_id": "config", "text": "limit lowered"},
        {"session_id": "pay"},
        {"session_id": "pay", "kind": "failure"},
        {"session_id": "pay"},
    )
    cause(tenant, "e1", "e0")
    cause(tenant, "e2", "e1")
    stories = told(tenant, hits=["e2"], by_cause=True)
    assert sorted(stories.ids) == ["e0", "e1", "e2", "e3"]
    leads = by_id(stories, "leads_to")
    assert stories.ids[leads["e0"]] == "e2"
    assert {leads["e1"], leads["e2"], leads["e3"]} == {-1}
    assert told(tenant, hits=["e2"]).ids == ["e1", "e2", "e3"]


def test_which_change_is_behind_a_failure_is_guessed_only_where_that_is_asked_for() -> None:
    changed = {"event_type": "config.changed", "kind": "other"}
    tenant = made(
        {"session_id": "config", "text": "limit lowered", "embedding": unit(1), **changed},
        {"session_id": "paint", "text": "colour set", "embedding": unit(2), **changed},
        {"session_id": "pay", "kind": "failure", "embedding": unit(1)},
    )
    stories = told(tenant, hits=["e2"], by_cause=True, by_change=True)
    assert sorted(stories.ids) == ["e0", "e2"]
    assert by_id(stories, "guessed") == {"e0": True, "e2": False}
    assert stories.ids[by_id(stories, "leads_to")["e0"]] == "e2"
    assert told(tenant, hits=["e2"], by_cause=True).ids == ["e2"]


def summarised(tenant: Tenant, name: str, event: str, *user_ids: str) -> None:
    """An event's session has a summary, as one made of events of these users."""
    values = {"user_ids": user_ids, "gone": False, "decided_at": "9-0", "level": 2}
    tenant.set_node(SUMMARY.label, name, FoundNode((TENANT, name), True, values, False))
    join(tenant, SUMMARIZES, name, event, label=EVENT.label)


def join(tenant: Tenant, row: EdgeRow, source: str, target: str, label: str, **values: Any) -> None:
    """An edge of the graph."""
    held = dict.fromkeys(EDGE_PROPERTIES[row.type]) | values
    tenant.add_edge(row.type, FoundEdge((TENANT, source), (TENANT, target), label, held))


@pytest.mark.parametrize(("whose", "told_ids"), [((), ["e0", "e1"]), (("bob",), ["e1"])])
def test_what_another_session_changed_and_a_failure_names_is_told_to_who_sees_that_session(
    whose: tuple[str, ...], told_ids: list[str]
) -> None:
    tenant = made(
        {"session_id": "config", "text": "limit lowered"},
        {"session_id": "pay", "kind": "failure", "user_id": "ann"},
    )
    summarised(tenant, "of-config", "e0", *whose)
    summarised(tenant, "of-pay", "e1", "ann")
    decided = {"score": 0.9, "effect_event_id": "e1", "cause_event_id": "e0"}
    join(tenant, LINKED_TO, "of-pay", "of-config", label=SUMMARY.label, **decided)
    stories = told(tenant, "ann", hits=["e1"], by_cause=True)
    assert sorted(stories.ids) == told_ids
    if "e0" in told_ids:
        assert stories.ids[by_id(stories, "leads_to")["e0"]] == "e1"
    ends = (TENANT, "of-pay"), (TENANT, "of-config")
    tenant.drop_edges(LINKED_TO.type, *ends, SUMMARY.label)
    assert told(tenant, "ann", hits=["e1"], by_cause=True).ids == ["e1"]


@pytest.mark.parametrize(
    ("tool", "user", "status", "fulfilled"),
    [
        ("ship_spare_part", "ann", "completed", True),
        ("ship_spare_part", "bob", "completed", False),
        ("ship_spare_part", "ann", "failed", False),
        ("find_spare_part", "ann", "completed", False),
        ("ship_order", "ann", "completed", False),
        ("part.post", "ann", "completed", True),
        ("part.paint", "ann", "completed", False),
    ],
)
def test_what_an_agent_said_is_fulfilled_by_what_is_done_for_the_same_user_later(
    tool: str, user: str, status: str, *, fulfilled: bool
) -> None:
    said = {"text": "i will post the spare part", "user_id": "ann"}
    result = {"kind": "result", "tool_name": tool, "user_id": user, "status": status}
    kind = "failure" if status == "failed" else "result"
    tenant = made(said, {**result, "kind": kind, "session_id": "t"}, {**said, "session_id": "u"})
    stories = told(tenant, "ann", hits=["e0", "e2"], by_promise=True, promising=["will"])
    assert by_id(stories, "fulfilled") == {"e0": fulfilled, "e2": False}
    assert not any(told(tenant, "ann", hits=["e0"]).fulfilled)


@pytest.mark.parametrize(
    ("tool", "done_to", "fulfilled"),
    [("trials.stop", "ab-5", True), ("trials.stop", "ab-6", False), ("trials.copy", "ab-5", False)],
)
def test_what_is_done_to_what_a_promise_names_fulfils_it(
    tool: str, done_to: str, *, fulfilled: bool
) -> None:
    result = {"kind": "result", "tool_name": tool, "user_id": "ann", "status": "completed"}
    tenant = made(
        {"text": "i will stop that one on friday", "user_id": "ann"}, result | {"session_id": "t"}
    )
    told_of = about(tenant, ("e0", "ab-5"), ("e1", done_to))
    assert by_id(told_of, "fulfilled") == {"e0": fulfilled}


def test_for_whom_it_is_done_is_not_what_a_promise_names() -> None:
    of_user = {"user_id": "u-7"}
    done = {"kind": "result", "tool_name": "room.book", "status": "completed", "session_id": "t"}
    tenant = made({"text": "i will put in the e-book on friday", **of_user}, done | of_user)
    told_of = about(tenant, ("e0", "u-7"), ("e1", "u-7"), user="u-7")
    assert by_id(told_of, "fulfilled") == {"e0": False}


def about(tenant: Tenant, *named: tuple[str, str], user: str = "ann") -> Stories:
    """Stories of the first event, asked for as a promise, where events name things."""
    for event, name in named:
        values = dict.fromkeys(ENTITY_PROPERTIES) | {"canonical_name": name}
        tenant.set_node(ENTITY.label, name, FoundNode((TENANT, name), True, values, False))
        row = tenant.events.rows[event]
        tenant.mentions.add(Edge(row, tenant.entities.rows[name], 1.0, False))
    stories: Stories = told(tenant, user, hits=["e0"], by_promise=True, promising=["will"])
    return stories


def test_what_an_agent_may_have_promised_is_told_without_being_found() -> None:
    marks = [stem_in("will"), stem_in("monday")]
    tenant = made(
        {"session_id": "t", "kind": "call", "tool_name": "ship", "user_id": "ann"},
        {"session_id": "u", "text": "i will ship it on monday", "user_id": "ann"},
        {"session_id": "v", "text": "it is blue", "user_id": "ann"},
        {"session_id": "w", "text": "i will ship it", "user_id": "bob"},
        {"session_id": "x", "text": "i will be late", "user_id": "ann", "agent_id": "ann"},
    )
    assert told(tenant, "ann", promising=marks, by_promise=True).ids == ["e1"]
    assert told(tenant, "ann", promising=marks).ids == []


@pytest.mark.parametrize(
    ("said", "promises"),
    [
        ("monday at noon, bring a photo", False),
        ("none left, i send one on monday", True),
        ("none left, you get one on monday", True),
    ],
)
def test_what_was_looked_up_is_no_promise(said: str, *, promises: bool) -> None:
    tenant = made(
        {"kind": "result", "tool_name": "find_date", "user_id": "ann"},
        {"text": said, "agent_id": "bot", "user_id": "ann"},
    )
    asked: dict[str, Any] = {
        "speaking": ["i", "you"],
        "promising": [stem("monday")],
        "by_promise": True,
    }
    assert told(tenant, "ann", **asked).ids == (["e0", "e1"] if promises else [])


def test_no_cause_is_told_that_the_viewer_does_not_see() -> None:
    tenant = made({"session_id": "t", "user_id": "bob"}, {"kind": "failure"})
    cause(tenant, "e1", "e0")
    assert told(tenant, "ann", hits=["e1"], by_cause=True).ids == ["e1"]


def fact(tenant: Tenant, name: str, value: str, event: str, user: str | None = None) -> None:
    entities = tenant.entities
    for one in (name, value):
        blank = dict.fromkeys(ENTITY_PROPERTIES)
        entities.put(one, blank | {"canonical_name": one, "entity_type": "resource"})
    source, target = entities.rows[name], entities.rows[value]
    entities.all[source].facts.append(
        Fact(source, target, "has_value", "semantic", 5, event, 1.0, None, None, user)
    )


def test_what_says_a_fact_about_what_is_named_is_told_to_who_may_see_it() -> None:
    tenant = made({"user_id": "ann", "text": "set"}, {"session_id": "t"})
    fact(tenant, "gateway.limit", "30", "e0", "ann")
    asked: dict[str, Any] = {"text": " what is gateway limit ", "by_fact": True}
    assert told(tenant, "ann", **asked).facts == [
        StoryFact("e0", "gateway.limit", "has_value", "30", 5, None)
    ]
    assert told(tenant, "ann", **asked).ids == ["e0"]
    assert told(tenant, "bob", **asked).facts == []
    assert told(tenant, "bob", **asked).ids == []
    assert told(tenant, "ann", text=" what is gateway limit ").facts == []


def test_an_assistant_that_only_talks_is_no_person() -> None:
    tenant = made(
        {"event_type": "message.user", "agent_id": "ana", "text": "will you?"},
        {"event_type": "message.assistant", "agent_id": "helper", "text": "I will"},
        {"event_type": "message.agent", "agent_id": "assistant", "text": "so will I"},
    )
    persons = by_id(told(tenant, hits=["e0"]), "person")
    assert persons == {"e0": True, "e1": False, "e2": False}


@pytest.mark.parametrize(
    ("asked_by", "tool", "meant", "kept"),
    [
        (None, "lamp_change", 3, {"e0"}),
        (None, "lamp_change", 5, {"e1"}),
        (None, "lamp_change", 7, set()),
        (None, "show_lamp", 3, set()),
        ("ann", "lamp_change", 3, set()),
        ("bot", "lamp_change", 3, {"e0"}),
    ],
)
def test_what_was_done_unasked_keeps_the_promise_that_it_is_most_like(
    asked_by: str | None, tool: str, meant: int, kept: set[str]
) -> None:
    promised = [
        {"text": "i will brighten the hall", "embedding": unit(3), "user_id": "ann"},
        {"text": "i will call a welder", "embedding": unit(5), "user_id": "ann"},
    ]
    before = [] if asked_by is None else [{"text": "and?", "agent_id": asked_by}]
    act: dict[str, Any] = {"tool_name": tool, "embedding": unit(meant)}
    acts = [{"kind": "call", **act}, {"kind": "result", "status": "completed", **act}]
    later = [{"session_id": "t", "user_id": "ann", **event} for event in (*before, *acts)]
    stories = told(
        made(*promised, *later), "ann", hits=["e0", "e1"], promising=[stem("will")], by_promise=True
    )
    fulfilled = by_id(stories, "fulfilled")
    assert {one for one in ("e0", "e1") if fulfilled[one]} == kept


def test_what_was_said_of_an_act_tells_which_promise_it_keeps() -> None:
    promised = [
        {"text": "i will brighten the hall", "embedding": unit(3), "user_id": "ann"},
        {"text": "i will call a welder", "embedding": unit(5), "user_id": "ann"},
    ]
    act: dict[str, Any] = {"tool_name": "ticket_file", "embedding": unit(7)}
    later = [
        {"kind": "call", **act},
        {"kind": "result", "status": "completed", **act},
        {"text": "the welder was here", "agent_id": "bot", "embedding": unit(5)},
    ]
    events = [{"session_id": "t", "user_id": "ann", **one} for one in later]
    stories = told(
        made(*promised, *events),
        "ann",
        hits=["e0", "e1"],
        promising=[stem("will")],
        by_promise=True,
    )
    assert by_id(stories, "fulfilled")["e1"]
    assert not by_id(stories, "fulfilled")["e0"]


def test_when_what_was_promised_was_done_is_told_by_the_act() -> None:
    promised = {"text": "i will bring one", "agent_id": "bot", "user_id": "ann"}
    asked = {"text": "is there a lamp left?", "agent_id": "ann", "user_id": "ann"}
    act: dict[str, Any] = {"tool_name": "get_lamp", "embedding": unit(5), "session_id": "t"}
    events = [
        {**asked, "embedding": unit(5)},
        {**promised, "embedding": unit(3)},
        {"kind": "call", "user_id": "ann", **act},
        {"kind": "result", "status": "completed", "user_id": "ann", **act},
    ]
    found: dict[str, Any] = {"hits": ["e1", "e3"], "promising": [stem("will")]}
    silent = told(made(*events), "ann", **found)
    assert set(by_id(silent, "kept_by").values()) == {-1}  # who only looks, and tells nobody
    report = {"text": "here it is", "agent_id": "bot", "user_id": "ann", "session_id": "t"}
    stories = told(made(*events, report), "ann", **found)
    kept_by = by_id(stories, "kept_by")
    assert stories.ids[kept_by["e1"]] == "e3"
    assert {event for event, act in kept_by.items() if act >= 0} == {"e1"}
    assert set(by_id(told(made(*events, report), "ann", hits=["e1"]), "kept_by").values()) == {-1}


def unit(place: int) -> list[float]:
    """A vector of unit length."""
    return [float(other == place) for other in range(384)]
