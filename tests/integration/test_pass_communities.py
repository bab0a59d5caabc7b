"""Communities of the entity graph, as passes find them."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest

from consolidation.decay import DAY_MS, HOUR_MS
from pipelines.operations.passes.run import CommunitySettings
from projections.schema import MEMBER_OF, RELATES_TO, SAME_AS
from tests.factories import NOW_MS, event, sessions
from tests.integration.pass_support import Passing, entity_id
from tests.integration.stack import Stack

PEOPLE = ("Caroline", "Melanie", "Joanna")
TOWNS = ("Oslo", "Bergen", "Tromso", "Bodo")


@pytest.fixture
def live(stack: Stack) -> Passing:
    """Two groups of entities that know each other."""
    made = Passing(stack)
    made.take_in(*sessions(2, 3))
    for group in (PEOPLE, TOWNS):
        for one, other in combinations(group, 2):
            made.relate(one, other)
    return made


def ids(live: Passing) -> set[str]:
    return set(live.stack.cypher("MATCH (c:Community) WHERE NOT c:Unnamed RETURN c.community_id"))


def test_those_that_have_to_do_with_each_other_are_a_community(live: Passing) -> None:
    report = live.run()
    assert live.communities() == {frozenset(PEOPLE): None, frozenset(TOWNS): None}
    assert report.communities_written == 2
    texts = live.stack.cypher("MATCH (c:Community) RETURN c.name + ': ' + c.summary")
    assert any("Caroline knows Melanie" in text for text in texts), texts


def test_a_community_has_the_mean_of_its_vectors(live: Passing) -> None:
    live.stack.cypher(
        "MATCH (n:Entity {entity_id: $id}) SET n.embedding = $vector",
        id=entity_id("Oslo"),
        vector=[2.0, *[0.0] * 383],
    )
    live.run()
    ((first, rest),) = live.stack.cypher(
        "MATCH (c:Community) WHERE c.centroid IS NOT NULL "
        "RETURN c.centroid[0], reduce(s = 0.0, x IN c.centroid[1..] | s + x)"
    )
    assert (first, rest) == (1.0, 0.0)


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
    live.stack.cypher(
        f"MATCH (n:Entity)-[r:{RELATES_TO.type}]-() WHERE n.name IN $names DELETE r",
        names=PEOPLE,
    )
    live.take_in(event(90, session_id="session-1"))
    assert live.run().communities_written == 1
    assert live.communities().keys() == {frozenset(TOWNS)}
    assert len(live.stack.cypher(f"MATCH ()-[m:{MEMBER_OF.type}]->() RETURN m")) == len(TOWNS)


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
    texts = live.stack.cypher("MATCH (c:Community) WHERE c.user_id IS NULL RETURN c.summary")
    assert len(texts) == 2
    facts = live.stack.cypher(
        f"MATCH ()-[r:{RELATES_TO.type}]->() WHERE r.user_id = 'ann' RETURN r"
    )
    assert len(facts) == 3


def test_literals_join_nothing(stack: Stack) -> None:
    live = Passing(stack)
    live.take_in(event(1))
    for person in (*PEOPLE, *TOWNS):
        live.relate(person, "economy", literal=True)
    live.run()
    assert live.communities() == {}


def test_names_of_one_entity_are_together(live: Passing) -> None:
    live.relate("Mel", "Swimming")
    live.stack.cypher(
        "MATCH (a:Entity {name: 'Mel'}), (b:Entity {name: 'Melanie'}) "
        f"CREATE (a)-[:{SAME_AS.type} {{confidence: 0.9}}]->(b)"
    )
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
    count = 2_001
    live.stack.cypher(
        "UNWIND range(1, $count) AS n MERGE (e:Entity {tenant: 'default', "
        "entity_id: 'e' + left('0000000000000000000000000000000', 27) + right('000' + n, 4)}) "
        "SET e.name = 'e' + n, e.entity_type = 'concept', e.canonical_name = 'e' + n",
        count=count,
    )
    live.stack.cypher(
        "MATCH (h:Entity {name: 'e1'}) MATCH (e:Entity) WHERE e.name STARTS WITH 'e' AND e <> h "
        f"CREATE (h)-[:{RELATES_TO.type} {{relation: 'has', edge_type: 'entity', event_id: 'x', "
        "valid_from: datetime({epochMillis: 0}), confidence: 1.0, fact: 'has'}]->(e)"
    )
    whole = live.append

    def first_chunk_only(events: object) -> None:
        found = list(events)  # type: ignore[call-overload]
        whole([one for one in found if one.payload.get("chunk", 0) == 0])

    live.append = first_chunk_only  # type: ignore[method-assign]
    live.run(applied=lambda: None)
    live.append = whole  # type: ignore[method-assign]
    live.run(applied=lambda: None)
    live.fold()
    counts = live.stack.cypher(
        f"MATCH (c:Community)<-[m:{MEMBER_OF.type}]-() "
        "WITH c, count(m) AS members, count(DISTINCT m.run_id) AS runs "
        "RETURN c.member_count - members, runs"
    )
    assert {tuple(one) for one in counts} == {(0, 1)}


@pytest.mark.parametrize("shape", ["two", "path", "bipartite", "star"])
def test_every_shape_ends(stack: Stack, shape: str) -> None:
    live = Passing(stack)
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
