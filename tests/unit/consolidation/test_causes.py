"""Causes in other sessions: what was changed, that a failure names."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.causes import (
    DECAY_DAYS,
    MAX_DAYS,
    TYPE_CONFIDENCE,
    cause_of,
    changes_by_name,
    changes_of,
    changing_sessions,
    failing_of,
    may_change,
    names_in,
    rarities,
    says_changed,
    says_name,
)
from consolidation.links import SessionTraits, best_links, link_candidates, session_profile
from consolidation.links import session_traits as traits_of
from consolidation.payloads import MAX_CAUSES, LinkCandidate, SessionLink
from consolidation.sources import Cause, SourceEvent
from tests.factories import event_id
from tests.source_factories import called, mentioned, returned, source_event

DAY_MS = 86_400_000


def changed(number: int, text: str, **fields: Any) -> SourceEvent:
    fields = {"event_type": "config.changed", "session_id": "house", "trace_id": "t", **fields}
    return source_event(number, text=text, **fields)


def refused(number: int, text: str, days: float = 1, **fields: Any) -> SourceEvent:
    return returned(number, "deploy", error=text, at=round(days * DAY_MS), **fields)


TOKEN = changed(1, "from: tok-64\nsetting: deploy.token\nto: tok-38")
REFUSED = refused(2, "403: credential tok-64 is not accepted")


# -- what a change is, and what it names -----------------------------------------------------------


@pytest.mark.parametrize("event_type", ["config.changed", "flag.disabled", "schema_migrated.v2"])
def test_a_type_says_that_something_changed(event_type: str) -> None:
    assert says_changed(event_type)


@pytest.mark.parametrize(
    "tool",
    [
        "set_carrier",
        "rotateKey",
        "config.update",
        "DELETE_row",
        "cdn.update_rule",
        "ledger/amendRate",
    ],
)
def test_a_tool_changes_something_by_its_name(tool: str) -> None:
    assert changes_by_name(tool)


@pytest.mark.parametrize("tool", ["get_config", "create_ticket", "send_reset_mail", "settle", None])
def test_to_read_or_to_make_something_new_changes_nothing(tool: str | None) -> None:
    assert not changes_by_name(tool)


def test_what_failed_changed_nothing() -> None:
    assert may_change(TOKEN) == TYPE_CONFIDENCE
    assert may_change(TOKEN._replace(status="failed")) == 0
    assert may_change(called(1, "set_carrier", status="failed")) == 0


def test_a_change_names_its_distinctive_values() -> None:
    text = (
        "from: Marten Post\nsetting: shipping.carrier.zone-north\nto: 12\nnote: as agreed today\n"
        "at: 2026-11-03\nlimit: 300 EUR\nsecret: whk-31\nstate: saved\nnumber: 4421486"
    )
    assert [spelled for _, spelled in names_in(text)] == [
        "Marten Post",
        "shipping.carrier.zone-north",
        "zone-north",
        "whk-31",
        "4421486",
    ]


def test_the_place_where_a_call_changed_something_is_not_what_it_changed() -> None:
    call = called(1, "remove_lock", "repo: billing-service\nlock: ci-774")
    (change,) = changes_of([call])
    assert [name for name, _ in change.names] == ["ci-774"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("made with tok-64", True),
        ("tok-64.", True),
        ("(tok-64)", True),
        ("tok-641", False),
        ("my-tok-64", False),
        ("tok-64-b", False),
        ("tok-64.pem", False),
    ],
)
def test_a_name_is_no_part_of_a_longer_one(text: str, says: bool) -> None:
    assert says_name(text, "tok-64") is says


# -- causes ----------------------------------------------------------------------------------------


def test_a_failure_goes_back_to_the_change_of_what_it_names() -> None:
    cause = cause_of(failing_of([REFUSED]), changes_of([TOKEN]), {})
    assert cause is not None
    assert (cause.effect_event_id, cause.cause_event_id) == (event_id(2), event_id(1))
    assert cause.names == ("tok-64",)
    assert TYPE_CONFIDENCE * (1 - 2 / DECAY_DAYS) < cause.confidence < TYPE_CONFIDENCE


@pytest.mark.parametrize("days", [-1, MAX_DAYS + 1])
def test_only_what_happened_before_and_not_long_ago_is_a_cause(days: float) -> None:
    late = refused(2, "tok-64 is not accepted", days)
    assert cause_of(failing_of([late]), changes_of([TOKEN]), {}) is None


def test_the_later_change_of_the_same_is_the_cause() -> None:
    again = changed(3, "from: tok-64\nto: tok-99", at=DAY_MS // 2)
    cause = cause_of(failing_of([REFUSED]), changes_of([TOKEN, again]), {})
    assert cause is not None
    assert cause.cause_event_id == event_id(3)


def test_in_one_trace_a_change_is_the_cause_almost_surely() -> None:
    traced = REFUSED._replace(trace_id=TOKEN.trace_id)
    confidences = [
        cause.confidence
        for event in (REFUSED, traced)
        if (cause := cause_of(failing_of([event]), changes_of([TOKEN]), {}))
    ]
    assert confidences == sorted(confidences)
    assert len(set(confidences)) == 2


def test_what_many_sessions_mention_names_nothing() -> None:
    names = {"1": "TOK-64", "2": "repo-1", "3": "rare-2"}
    rarity = rarities(names, {"1": 10, "3": 2}, ["Ada"])
    assert rarity == {"tok-64": 0.5, "repo-1": 0.0, "rare-2": 1.0, "ada": 0.0}
    assert cause_of(failing_of([REFUSED]), changes_of([TOKEN]), rarity) is None


def test_sessions_that_changed_what_fails_are_found_by_name() -> None:
    other = changed(4, "from: tok-11\nto: tok-12", session_id="another")
    events = [TOKEN, other, REFUSED]
    assert changing_sessions(failing_of([REFUSED]), events, {}) == ["house"]


# -- links -----------------------------------------------------------------------------------------


def traits(*events: SourceEvent) -> SessionTraits:
    return traits_of("default", session_profile(events), {})


def test_a_session_is_linked_to_the_one_that_changed_what_its_failure_names() -> None:
    mine, other = traits(REFUSED), traits(TOKEN)
    ((link, _),) = link_candidates(mine, [other])
    assert (link.reason, link.session_id, link.evidence) == ("cause", "house", ("tok-64",))
    assert (link.effect_event_id, link.cause_event_id) == (event_id(2), event_id(1))
    assert list(link_candidates(other, [mine])) == []


def test_what_another_user_changed_is_not_told() -> None:
    mine = traits(REFUSED._replace(user_id="ana"))
    assert list(link_candidates(mine, [traits(TOKEN._replace(user_id="ben"))])) == []
    assert len(list(link_candidates(mine, [traits(TOKEN._replace(user_id="ana"))]))) == 1


def test_a_user_is_no_name() -> None:
    failing = refused(2, "policy of cust-77 is missing")
    user = mentioned("cust-77", entity_type="user")
    change = changed(1, "customer: cust-77\nplan: gold")
    assert len(list(link_candidates(traits(failing), [traits(change)]))) == 1
    named = failing._replace(entities=(user,))
    assert list(link_candidates(traits(named), [traits(change)])) == []


def test_of_each_failure_the_most_certain_cause_is_kept_and_of_all_a_few() -> None:
    def link(number: int, effect: int, score: float) -> LinkCandidate:
        made = SessionLink(
            session_id=f"s-{number}",
            reason="cause",
            evidence=("x",),
            score=score,
            effect_event_id=event_id(effect),
            cause_event_id=event_id(100 + number),
        )
        return LinkCandidate(made, 0)

    candidates = [link(1, 1, 0.7), link(2, 1, 0.8), *(link(n, n, 0.65) for n in range(3, 9))]
    kept_links = best_links(candidates)
    assert [one.session_id for one in kept_links] == ["s-2", "s-3", "s-4"]
    assert len(kept_links) == MAX_CAUSES


# -- names that are no identifiers -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "failure"),
    [
        ("param: galley.supplier\nwas: SkyBistro\nnow: Panier Bleu", "docket open at SkyBistro"),
        ("setting: statin.preferred\nfrom: Lipovance\nto: atorvex", "not covered (Lipovance)"),
        ("param: allotment.SKG\nwas: Hotel Miramar\nnow: Astoria", "NO_ROOM Hotel Miramar/SKG"),
    ],
)
def test_a_proper_name_that_a_setting_had_is_one(change: str, failure: str) -> None:
    found = cause_of(failing_of([refused(2, failure)]), changes_of([changed(1, change)]), {})
    assert found is not None
    assert found.cause_event_id == event_id(1)


@pytest.mark.parametrize("value", ["Active", "Monday", "Full", "atorvex"])
def test_a_state_or_a_plain_word_names_nothing(value: str) -> None:
    assert not changes_of([changed(1, f"setting: plan\nfrom: {value}")])


def test_a_code_in_capital_letters_is_what_a_call_changed() -> None:
    amended = called(1, "ftl.ruleSet.amend", text="min: 12 h 30\nrule: R-OUT", session_id="house")
    found = cause_of(failing_of([refused(2, "ILLEGAL / R-OUT short")]), changes_of([amended]), {})
    assert found is not None
    assert found.names == ("R-OUT",)


# -- parts of a name, and what a call was given ----------------------------------------------------


@pytest.mark.parametrize(
    ("value", "parts"),
    [
        ("prv.night_sp.DMA-74.9", ["DMA-74.9"]),
        ("DMA-74.9/PRV/NIGHT_SP", ["9/PRV/NIGHT_SP", "DMA-74.9"]),
        ("telemetry.RTU4711.apn", ["RTU4711"]),
        ("prv.zone-north.night", []),
        ("auth.oauth2.timeout", []),
        ("logs/2026-11-03/12.5", []),
        ("ines.mbeki-rao@mail-7.example", []),
        ("acme/route-planner/main.py", []),
    ],
)
def test_a_code_is_a_name_wherever_it_stands_in_a_longer_one(value: str, parts: list[str]) -> None:
    names = [spelled for _, spelled in names_in(f"setting: {value}")]
    assert names == [value, *parts]


def after(number: int, rule: str | None = None) -> Cause:
    return Cause(event_id(number), rule, 1.0)


GIVEN = called(2, "head_sample", "hydrant: H1234/5\nzone: DMA-74.9", at=DAY_MS)
LOW = refused(3, "LOW_HEAD 0.4 bar @ H1234/5", tool_name="head_sample", causes=(after(2),))
ZONE = changed(1, "now: 2.1 bar\npoint: prv.night_sp.DMA-74.9\nwas: 3.4 bar")


def test_a_failure_goes_back_to_the_change_of_what_its_call_was_given() -> None:
    cause = cause_of(failing_of([GIVEN, LOW]), changes_of([ZONE]), {})
    assert cause is not None
    assert (cause.effect_event_id, cause.names) == (LOW.event_id, ("DMA-74.9",))
    assert cause_of(failing_of([LOW]), changes_of([ZONE]), {}) is None


def test_what_a_call_was_given_tells_less_than_what_a_failure_says() -> None:
    said = LOW._replace(text=f"{LOW.text} in DMA-74.9")
    confidences = [
        cause.confidence
        for outcome in (LOW, said)
        if (cause := cause_of(failing_of([GIVEN, outcome]), changes_of([ZONE]), {}))
    ]
    assert confidences == sorted(set(confidences))
    assert len(confidences) == 2


def test_what_the_failure_says_comes_before_what_its_call_was_given() -> None:
    said = LOW._replace(text="LOW_HEAD behind prv-31")
    other = changed(4, "valve: prv-31", at=-DAY_MS)
    cause = cause_of(failing_of([GIVEN, said]), changes_of([other, ZONE]), {})
    assert cause is not None
    assert cause.names == ("prv-31",)


def test_a_call_that_went_through_when_tried_again_did_not_fail_for_what_it_was_given() -> None:
    retry = called(4, "head_sample", GIVEN.text, at=DAY_MS + 10, causes=(after(3, "retry"),))
    done = returned(5, "head_sample", "2.4 bar", at=DAY_MS + 11, causes=(after(4, "tool_result"),))
    assert cause_of(failing_of([GIVEN, LOW, retry, done]), changes_of([ZONE]), {}) is None
    assert cause_of(failing_of([GIVEN, LOW, retry]), changes_of([ZONE]), {}) is not None


@pytest.mark.parametrize(
    "change",
    [
        changed(1, "setting: carrier\nto: Marten Post 2"),
        called(1, "set_pressure", "zone: DMA-74.9", session_id="house"),
    ],
    ids=["a proper name is what many calls choose", "a call did the same to many things"],
)
def test_only_codes_of_settings_are_looked_for_in_what_a_call_was_given(
    change: SourceEvent,
) -> None:
    given = GIVEN._replace(text="carrier: Marten Post 2\nzone: DMA-74.9")
    assert changes_of([change])
    assert cause_of(failing_of([given, LOW]), changes_of([change]), {}) is None
