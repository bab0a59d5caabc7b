"""Communities of the entity graph, as passes find them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise

import pytest

from consolidation.decay import DAY_MS, HOUR_MS
from pipelines.ledger.ledger import Appended
from pipelines.operations.passes.run import CommunitySettings
from projections.events import Event
from projections.operations import Key
from projections.schema import COMMUNITY, MEMBER_OF, RELATES_TO, SAME_AS
from tests.factories import NOW_MS, event, sessions
from tests.passing import Passing

PEOPLE = ("Caroline", "Melanie", "Joanna")
TOWNS = ("Oslo", "Bergen", "Tromso", "Bodo")


@pytest.fixture
def live() -> Passing:
    """Two groups of entities that know each other."""
    made = Passing()
    made.take_in(*sessions(2, 3))
    for group in (PEOPLE, TOWNS):
        for one, other in combinations(group, 2):
            made.relate(one, other)
    return made


def ids(live: Passing) -> set[str]:
    return {node.key[1] for node in live.shown(COMMUNITY.label)}


def test_those_that_have_to_do_with_each_other_are_a_community(live: Passing) -> None:
    report = live.run()
    assert live.communities() == {frozenset(PEOPLE): None, frozenset(TOWNS): None}
    assert report.communities_written == 2
    texts = [node.values["summary"] for node in live.shown(COMMUNITY.label, "summary")]
    assert any("Caroline knows Melanie" in text for text in texts), texts


def test_a_community_has_the_mean_of_its_vectors(live: Passing) -> None:
    live.entity("Oslo", embedding=(2.0, *[0.0] * 383))
    live.run()
    centroids = [node.values["centroid"] for node in live.shown(COMMUNITY.label, "centroid")]
    ((first, *rest),) = (one for one in centroids if one is not None)
    assert (first, sum(rest)) == (1.0, 0.0)


def test_a_second_pass_appends_nothing_whatever_the_time(live: Passing) -> None:
    live.run()
    before = live.seqs()
    live.run(now_ms=NOW_MS + 10 * DAY_MS)
    assert live.seqs() == before


def test_they_are_looked_at_again_when_it_is_time_and_something_came(live: Passing) -> None:
    live.run()
    live.relate("Caroline", "Anna")
    live.take_in(event(90, session_id="session-1"))
    assert live.run(now_ms=NOW_MS + HOUR_MS).communities_written == 0
    assert live.run(now_ms=NOW_MS + DAY_MS - 1).communities_written == 0
    assert live.run(now_ms=NOW_MS + DAY_MS).communities_written == 1
    assert live.communities().keys() == {frozenset((*PEOPLE, "Anna")), frozenset(TOWNS)}


def test_the_interval_is_a_setting(live: Passing) -> None:
    live.settings = CommunitySettings(every_ms=0)
    live.run()
    live.relate("Caroline", "Anna")
    live.take_in(event(90, session_id="session-1"))
    assert live.run().communities_written == 1


def test_a_community_keeps_its_id_when_members_come(live: Passing) -> None:
    live.settings = CommunitySettings(every_ms=0)
    live.run()
    before = ids(live)
    live.relate("Oslo", "Hamar")
    live.relate("Bergen", "Hamar")
    live.take_in(event(90, session_id="session-1"))
    live.run()
    assert ids(live) == before
    assert frozenset((*TOWNS, "Hamar")) in live.communities()


def test_a_community_that_falls_apart_is_no_more(live: Passing) -> None:
    live.settings = CommunitySettings(every_ms=0)
    live.run()
    for one, other in combinations(PEOPLE, 2):
        live.part(RELATES_TO.type, live.entity(one), live.entity(other))
    live.take_in(event(90, session_id="session-1"))
    assert live.run().communities_written == 1
    assert live.communities().keys() == {frozenset(TOWNS)}
    assert len(live.drawn(MEMBER_OF.type)) == len(TOWNS)


def test_facts_of_a_user_make_communities_of_that_user(live: Passing) -> None:
    for one, other in combinations(("Rex", "Tom", "Leo"), 2):
        live.relate(one, other, user="ann")
    live.relate("Rex", "Oslo", user="ann")
    live.relate("Tom", "Oslo", user="ann")
    live.run()
    assert live.communities() == {
        frozenset(PEOPLE): None,
        frozenset(TOWNS): None,
        frozenset(("Rex", "Tom", "Leo")): "ann",
    }


def test_what_one_user_said_is_not_told_in_anothers_community(live: Passing) -> None:
    for one, other in combinations(PEOPLE, 2):
        live.relate(one, other, user="ann")
    live.run()
    users = [node.values["user_id"] for node in live.shown(COMMUNITY.label, "user_id")]
    assert users == [None, None]
    facts = live.drawn(RELATES_TO.type, "user_id")
    assert [fact.values["user_id"] for fact in facts].count("ann") == 3


def test_literals_join_nothing() -> None:
    live = Passing()
    live.take_in(event(1))
    for person in (*PEOPLE, *TOWNS):
        live.relate(person, "economy", literal=True)
    live.run()
    assert live.communities() == {}


def test_names_of_one_entity_are_together(live: Passing) -> None:
    live.relate("Mel", "Swimming")
    live.join(SAME_AS.type, live.entity("Mel"), live.entity("Melanie"), confidence=0.9)
    live.run()
    together = next(members for members in live.communities() if "Mel" in members)
    assert "Melanie" in together


def test_a_chunk_size_of_zero_is_the_default(live: Passing) -> None:
    live.settings = CommunitySettings(chunk_edges=0)
    assert live.run().communities_written == 2


def test_the_chunk_size_changes_nothing(live: Passing) -> None:
    live.settings = CommunitySettings(chunk_edges=2)
    live.run()
    assert live.communities() == {frozenset(PEOPLE): None, frozenset(TOWNS): None}


def test_nothing_is_decided_twice_when_nothing_was_applied(live: Passing) -> None:
    live.run(applied=lambda: None)
    before = live.seqs()
    live.run(applied=lambda: None)
    assert live.seqs() == before
    live.fold()
    live.settings = CommunitySettings(every_ms=0)
    assert live.run().communities_written == 0


def test_chunks_that_a_crash_left_out_come_with_the_next_pass(live: Passing) -> None:
    """The first chunk is in the ledger, the second is not."""
    hub = live.entity("e1")
    for number in range(2, 2_002):
        live.join(
            RELATES_TO.type,
            hub,
            live.entity(f"e{number}"),
            relation="has",
            edge_type="entity",
            event_id="x",
            valid_from=0,
            confidence=1.0,
            fact="has",
        )
    whole = live.append

    def first_chunk_only(events: Sequence[Event]) -> list[Appended]:
        return whole([one for one in events if one.payload.get("chunk", 0) == 0])

    live.append = first_chunk_only  # type: ignore[method-assign]
    live.run(applied=lambda: None)
    live.append = whole  # type: ignore[method-assign]
    live.run(applied=lambda: None)
    live.fold()
    runs: dict[Key, list[str]] = {}
    for edge in live.drawn(MEMBER_OF.type, "run_id"):
        runs.setdefault(edge.target, []).append(edge.values["run_id"])
    for node in live.shown(COMMUNITY.label, "member_count"):
        assert node.values["member_count"] == len(runs[node.key])
        assert len(set(runs[node.key])) == 1


@pytest.mark.parametrize("shape", ["two", "path", "bipartite", "star"])
def test_every_shape_ends(shape: str) -> None:
    live = Passing()
    live.take_in(event(1))
    edges = {
        "two": [("a", "b"), ("b", "a")],
        "path": list(pairwise(f"n{n}" for n in range(30))),
        "bipartite": [(f"l{a}", f"r{b}") for a in range(6) for b in range(6)],
        "star": [("hub", f"n{n}") for n in range(40)],
    }[shape]
    for one, other in edges:
        live.relate(one, other)
    assert live.run().complete
    before = live.seqs()
    live.take_in(event(2))
    live.settings = CommunitySettings(every_ms=0)
    assert (live.run().communities_written, len(before)) == (0, len(live.seqs()))


def test_a_users_community_calls_entities_as_that_user_knows_them() -> None:
    live = Passing()
    live.take_in(*sessions(2, 3))
    for one, other in combinations(PEOPLE, 2):
        live.relate(one, other, user="ann")
    live.entity("Melanie", name="MELANIE", first_user_id="bob")
    others = live.entity("Aaron", first_user_id="bob")
    live.join(SAME_AS.type, others, live.entity("Caroline"), confidence=0.9)
    live.run()
    ((name, user_ids),) = (
        (node.values["name"], node.values["user_ids"])
        for node in live.shown(COMMUNITY.label, "name", "user_ids")
    )
    assert (user_ids, sorted(name.replace(" and", ",").split(", "))) == (("ann",), sorted(PEOPLE))
