"""Nothing that is folded or decided shows a user what another said, whatever was said by whom."""

from __future__ import annotations

from typing import Any, NamedTuple, cast
from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from consolidation.decay import DAY_MS
from consolidation.retention import RetentionPolicy
from enrichment.names import entity_id
from enrichment.payloads import ENTITY_CORRECTED, FACT_ASSERTED
from pipelines.operations.passes.run import CommunitySettings
from pipelines.work import enriching
from pipelines.work.runner import Runner
from pipelines.work.services import make_fold
from pipelines.work.stages import STAGES
from projections.events import Event
from tests.factories import event
from tests.fakes.stages import QUICK
from tests.graph_dump import dump
from tests.passing import LONG_AFTER, TENANT, Passing
from tests.simulation.doubles import AtOnce, SimulatedServices
from tests.whose import broken_rules

USERS = ("ann", "bob", "cat", None)
THINGS = ("zephyr", "quartz", "marble", "falcon", "indigo")
"""Known to several users, who write each of them in their own way."""
TYPES = ("message.received", "agent.message.sent", "tool.call", "tool.result")
CORRECTED = len(TYPES) + 2
RELATIONS = ("knows", "works_at", "lives_in")
OLD = RetentionPolicy(similar_score=0.8)


class Telling(Passing):
    """All three stages as they are, with words for models."""

    settings = CommunitySettings(every_ms=0, chunk_edges=7)

    def prepare(self) -> None:
        services = cast(Any, SimulatedServices(self.ledger, self.ledger.partitions))
        services.graphs = {"blue": self.graph}
        folds = [make_fold(stage, services, services.target("blue")) for stage in STAGES.values()]
        self.runners = [Runner(fold, self.graph, target="blue", policy=QUICK) for fold in folds]
        for runner in self.runners:
            runner.prepare(self.ledger.partitions)


class Said(NamedTuple):
    """Something a user says: how it is drawn."""

    user: int
    session: int
    kind: int
    thing: int
    other: int
    at: int
    fails: bool


said = st.builds(
    Said,
    st.integers(0, len(USERS) - 1),
    st.integers(0, 2),
    st.integers(0, CORRECTED),
    st.integers(0, len(THINGS) - 1),
    st.integers(0, len(THINGS) - 1),
    st.integers(0, 90),
    st.booleans(),
)


def spelled(user: str | None, thing: int) -> str:
    """As a user writes a name: each in another way, all of the same thing."""
    place = USERS.index(user)
    name = THINGS[thing]
    return name[0].upper() + name[1 : 2 + place] + name[2 + place].upper() + name[3 + place :]


def made(number: int, one: Said) -> Event:
    """The event that says it, in the user's spelling and with a word of the user's alone."""
    user = USERS[one.user]
    name, other = (spelled(user, thing) for thing in (one.thing, one.other))
    common = {
        "at": one.at * 60_000,
        "user_id": user,
        "session_id": f"room-{one.session}",
        "trace_id": f"trace-{one.session}",
        "agent_id": f"desk-{one.session % 2}",
    }
    if one.kind == CORRECTED:
        return event(
            number,
            event_type=ENTITY_CORRECTED,
            payload={
                "correction": "alias",
                "entity_id": entity_id(TENANT, THINGS[one.thing], "concept"),
                "name": THINGS[one.other],
                "type": "concept",
            },
            **{**common, "user_id": None},
        )
    if one.kind >= len(TYPES):
        stated = {
            "source": {"name": name},
            "relation": RELATIONS[one.at % len(RELATIONS)],
            "target": {"name": other},
        }
        return event(number, event_type=FACT_ASSERTED, payload=stated, **common)
    secret = f"x_{user}{one.thing}"
    return event(
        number,
        event_type=TYPES[one.kind],
        tool_name="search" if one.kind > 1 else None,
        status="failed" if one.fails else None,
        payload={"text": f"order of {name} for {other} about {secret}"},
        **common,
    )


def events_of(drawn: list[Said], first: int) -> list[Event]:
    return [made(first + number, one) for number, one in enumerate(drawn)]


@settings(max_examples=60, deadline=None)
@given(st.lists(said, min_size=1, max_size=25), st.lists(said, max_size=8))
@example(  # bob's quartz is, as somebody corrected, the entity that ann alone calls by its name
    first=[
        Said(0, 0, 0, thing=1, other=1, at=0, fails=False),
        Said(0, 0, kind=CORRECTED, thing=0, other=1, at=0, fails=False),
        Said(1, 0, 0, thing=1, other=1, at=0, fails=False),
    ],
    later=[Said(0, 0, 0, thing=0, other=0, at=0, fails=False)],
)
def test_nobody_is_shown_what_only_another_said(first: list[Said], later: list[Said]) -> None:
    with patch.object(enriching, "ThreadPoolExecutor", lambda *_, **__: AtOnce()):
        live = Telling()
        events = events_of(first, 1)
        live.take_in(*events)
        live.run()
        assert broken_rules(live.graph, TENANT, events) == []
        live.policy = OLD
        live.run(now_ms=LONG_AFTER - 25 * DAY_MS)
        assert broken_rules(live.graph, TENANT, events) == []
        events += events_of(later, 101)
        live.take_in(*events[len(first) :])
        live.run()
        assert broken_rules(live.graph, TENANT, events) == []
        expected = dump(live.graph)
        live.empty()
        live.fold()
        assert dump(live.graph) == expected
