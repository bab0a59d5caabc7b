"""A rebuild applies what was decided, and decides nothing itself."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from consolidation.decay import DAY_MS
from pipelines.ledger.registry import Target
from pipelines.local.servers import Neo4jServer
from pipelines.operations.consolidate import consolidate
from pipelines.operations.passes.scopes import PassScope
from pipelines.operations.rebuild import rebuild, rebuild_and_redecide
from pipelines.proof.verify import verify
from pipelines.work.catch_up import bring_back
from tests.decision_factories import system
from tests.factories import START_MS
from tests.integration.consolidation_support import FORGETTING
from tests.integration.enrichment_support import Enriched, said
from tests.integration.stack import Stack
from tests.servers import emptied_neo4j

pytestmark = pytest.mark.integration

LATER_MS = START_MS + 4_000 * DAY_MS
PLACES = ("the old harbour", "Marseille", "the library", "the Acme office")


@pytest.fixture
def green(second_neo4j: Neo4jServer) -> Target:
    return Target("green", emptied_neo4j(second_neo4j), "neo4j")


def test_what_was_decided_is_applied_and_nothing_else(
    make_stack: Callable[..., Stack], green: Target
) -> None:
    stack = make_stack(retention=FORGETTING)
    walks = [
        said(n, f"Ann met Bob at {PLACES[n % 4]} on walk {n}.", session_id=f"session-{n % 3}")
        for n in range(1, 25)
    ]
    Enriched(stack).take_in(*walks)
    services = stack.services
    summarised = consolidate(services)
    forgot = consolidate(services, now_ms=LATER_MS)
    assert summarised.found.episodes_written > 0
    assert sum(forgot.found.events_forgotten.values()) > 0
    (back,) = stack.cypher("MATCH (f:Forgotten) RETURN f.event_id ORDER BY f.event_id LIMIT 1")
    stack.append(system(90, "memory.recalled", {"kind": "events", "event_ids": [back]}))
    consolidate(services, scopes=[PassScope("nobody")])
    assert bring_back(services, stack.target) == 1
    assert bring_back(services, stack.target) == 0
    tails = services.ledger.tails()
    live = verify(services)
    assert live.ok, live.differences

    report = rebuild(services, into=green, switch=True)
    assert report.as_dict()["ok"], report.verified.differences
    assert services.ledger.tails() == tails, "a rebuild decides nothing"
    rebuilt = verify(services)
    assert (rebuilt.target, rebuilt.stages) == ("green", live.stages)
    assert report.verified.stages["consolidation"].digest == live.stages["consolidation"].digest
    with services.driver(green).session() as reading:
        found = reading.run(
            "MATCH (e:Event {event_id: $id}) RETURN e.text IS NOT NULL AND NOT e:Placeholder",
            id=back,
        )
        assert found.single(strict=True)[0], "what was recalled is there again"

    again = consolidate(services, now_ms=LATER_MS)
    assert (again.target, again.found.episodes_written) == ("green", 0)
    assert again.found.events_forgotten == {"archive": 1}, "what was recalled is old once more"
    anew = rebuild_and_redecide(services, now_ms=LATER_MS)
    document = anew.as_dict()
    assert (anew.ok, document["in_place"], document["redecided"]["sessions_written"]) == (
        True,
        True,
        3,
    ), document
    in_place = rebuild(services)
    assert in_place.as_dict()["ok"], in_place.verified.differences
    plain = verify(services)
    digest = document["stages"]["consolidation"]["digest"]
    assert (plain.ok, plain.stages["consolidation"].digest) == (True, digest)
