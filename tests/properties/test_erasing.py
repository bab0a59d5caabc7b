"""Whoever is erased at whatever place of whatever history: fold, repair and rebuild agree."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pipelines.ledger.sealing import ERASED_USER, Subject
from pipelines.proof.expected import LedgerFold
from pipelines.proof.proof import prove
from pipelines.work.runner import Runner
from projections.errors import SubjectErased
from projections.events import DEFAULT_TENANT, Event, is_system_event
from projections.identity import START
from projections.schema import EVENT
from tests.decision_factories import episode, system
from tests.factories import event_id
from tests.fakes.keys import memory_vault
from tests.fakes.ledger import FakeLedger
from tests.graph_dump import dump
from tests.proof_world import IMPATIENT, PARTITIONS, World, said, stage_folds

USERS = ("ann", "bob", "cat")
SHARED = "the payment service of Berlin answers late"


def word_of(user: str) -> str:
    return f"{user}canary"


def told(number: int, user: str | None, form: str) -> Event:
    """What a user says, states or judges, with a word of the user's own."""
    own = "" if user is None else word_of(user)
    if form == "fact":
        payload = {"source": {"name": f"{own} house"}, "relation": "is_in", "target": {"name": own}}
        if user is None:
            payload["target"] = {"name": "Berlin"}
        fact = system(number, "memory.fact_asserted", payload)
        return fact._replace(user_id=user, session_id=f"session-{user}")
    text = SHARED if form == "shared" else f"{SHARED} {number % 3} {own}".strip()
    return said(number, text, user_id=user, session_id=f"session-{number % 2}")


TOLD = st.tuples(st.sampled_from((None, *USERS)), st.sampled_from(("own", "own", "shared", "fact")))
ERASED = st.sampled_from(USERS).map(lambda user: (user, "erase"))
SUMMED = st.sampled_from(USERS).map(lambda user: (user, "summary"))
HISTORIES = st.lists(st.one_of(TOLD, TOLD, TOLD, SUMMED, ERASED), min_size=4, max_size=24)


def summary(number: int, user: str, members: list[int]) -> Event:
    """What a pass decided of a user's own events."""
    made = episode(number, members, "session-0")
    payload: dict[str, Any] = dict(made.payload)
    payload["summary"] = {**payload["summary"], "content": word_of(user), "user_ids": [user]}
    return made._replace(payload=payload)


def erase(world: World, user: str) -> bool:
    vault = world.ledger.vault
    key_id = vault.key_id(DEFAULT_TENANT, Subject("user", user))
    store = vault.require_store()
    if key_id not in store.get([key_id], withdrawn=True):
        return False
    vault.fences.put_erasure(key_id, {"step": "fenced"})
    store.destroy([key_id])
    vault.renew()
    return True


def folded_anew(ledger: FakeLedger, world: World) -> LedgerFold:
    fold = LedgerFold(ledger, stage_folds(ledger), policy=IMPATIENT)
    fold.advance(world.graph, world.graph.checkpoints())
    return fold


@settings(max_examples=25, deadline=None)
@given(HISTORIES)
def test_what_is_left_is_what_the_ledger_says(history: list[tuple[str | None, str]]) -> None:
    world = World(FakeLedger(partitions=PARTITIONS, vault=memory_vault(DEFAULT_TENANT)))
    erased: set[str] = set()
    events: dict[str | None, list[Event]] = {}
    for number, (user, form) in enumerate(history, 1):
        if form == "erase":
            assert user is not None
            if erase(world, user):
                erased.add(user)
            continue
        members = [
            n for n, (u, f) in enumerate(history[: number - 1], 1) if (u, f) == (user, "own")
        ]
        if form == "summary":
            if user is None or not members or user in erased:
                continue
            one = summary(number, user, members)
        else:
            one = told(number, user, form)
        if user in erased:
            assert isinstance(world.ledger.append([one])[0], SubjectErased)
            continue
        world.take_in(one)
        events.setdefault(user, []).append(one)

    expected = folded_anew(world.ledger, world)
    report = prove(world.graph, expected, repair=True)
    assert report.ok, report.differences

    text = repr(dump(world.graph)).casefold()
    assert [user for user in erased if word_of(user) in text] == []
    keys = [
        one.key
        for user in erased
        for one in events.get(user, [])
        if not is_system_event(one.event_type)
    ]
    nodes = world.graph.nodes(EVENT.label, keys, ("user_id", "embedding", "session_id"))
    assert sorted(nodes) == sorted(keys)
    assert all(str(node.values["user_id"]).startswith(ERASED_USER) for node in nodes.values())
    others = [one for user, some in events.items() if user not in erased for one in some]
    spoken = [one.event_id for one in others if not is_system_event(one.event_type)]
    live = world.graph.nodes(EVENT.label, [(DEFAULT_TENANT, one) for one in spoken], ("text",))
    assert sorted(str(node.values["text"]) for node in live.values()) == sorted(
        one.payload["content"] for one in others if one.event_id in spoken
    )
    rebuilt = World(world.ledger)
    rebuilt.take_in()
    assert prove(rebuilt.graph, folded_anew(world.ledger, rebuilt)).ok


def test_a_summary_of_who_is_erased_goes_and_that_of_others_stays() -> None:
    world = World(FakeLedger(partitions=PARTITIONS, vault=memory_vault(DEFAULT_TENANT)))
    world.take_in(told(1, "ann", "own"), told(3, "bob", "own"))
    world.take_in(summary(11, "ann", [1]), summary(13, "bob", [3]))
    before = repr(dump(world.graph))
    assert word_of("ann") in before
    erase(world, "ann")
    fold = LedgerFold(world.ledger, stage_folds(world.ledger), policy=IMPATIENT)
    assert prove(world.graph, fold, repair=True).ok
    after = repr(dump(world.graph))
    assert word_of("ann") not in after
    assert after.count(word_of("bob")) == before.count(word_of("bob")) > 0
    assert event_id(1) in after


@pytest.mark.parametrize("sealed", [(), (DEFAULT_TENANT,)])
@pytest.mark.parametrize("withdrawn", ["study-7", "study*"])
def test_what_a_withdrawn_consent_was_for_is_derived_by_nobody(
    sealed: tuple[str, ...], withdrawn: str
) -> None:
    world = World(FakeLedger(partitions=PARTITIONS, vault=memory_vault(*sealed)))
    early, late = (told(n, "ann", "own")._replace(consent_ref="study-7") for n in (1, 2))
    other = told(3, "bob", "own")._replace(consent_ref="care-7")
    fact = told(4, "ann", "fact")._replace(consent_ref="study-7")
    quoting = summary(11, "ann", [1])
    world.take_in(early, other, fact, quoting)
    before = repr(dump(world.graph))
    vault = world.ledger.vault
    decided = {"consent": withdrawn, "decisions": [quoting.event_id]}
    vault.fences.put_erasure(
        b"c" * 16, {"step": "fenced", "kind": "consent", "tenant": DEFAULT_TENANT, **decided}
    )
    vault.renew()
    world.take_in(late)

    report = prove(world.graph, folded_anew(world.ledger, world), repair=True)

    assert report.ok, report.differences
    text = repr(dump(world.graph))
    assert (word_of("ann") in before, word_of("ann") in text) == (True, False)
    assert text.count(word_of("bob")) == before.count(word_of("bob"))
    nodes = world.graph.nodes(EVENT.label, [early.key, late.key], ("user_id", "text", "embedding"))
    assert {tuple(node.values.values()) for node in nodes.values()} == {("ann", None, None)}
    rebuilt = World(world.ledger)
    rebuilt.take_in()
    assert prove(rebuilt.graph, folded_anew(world.ledger, rebuilt)).digest == report.digest


def test_what_is_folded_again_while_its_key_goes_does_not_come_back() -> None:
    """A replay has read the events, and has not written them yet."""
    world = World(FakeLedger(partitions=PARTITIONS, vault=memory_vault(DEFAULT_TENANT)))
    world.take_in(told(1, "ann", "own"), told(3, "bob", "own"))
    runner = world.runners[1]
    derive = runner.rules.derive

    def slow(placed: Any) -> Any:
        derived = derive(placed)
        erase(world, "ann")
        return derived

    replaying = Runner(replace(runner.rules, derive=slow), world.graph, target="blue")
    for partition in range(PARTITIONS):
        assert replaying.refold(partition, world.ledger.read(partition, START, 100)) == []
    events = world.graph.nodes(EVENT.label, [told(1, "ann", "own").key], ("text",))
    assert [word_of("ann") in str(node.values["text"]) for node in events.values()] == [False]
