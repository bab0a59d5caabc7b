"""Hypothesis strategies: histories of events, orders of arrival, cuts into batches."""

from __future__ import annotations

from typing import Any, NamedTuple

from hypothesis import strategies as st

from projections.events import STATUSES, Event
from tests.factories import START_MS, event_id

TENANTS = ("acme", "globex")
SESSIONS = ("alpha", "beta", "gamma")

json_text = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
json_numbers = st.integers(-(2**53) + 1, 2**53 - 1) | st.floats(
    min_value=-(2**53) + 1, max_value=2**53 - 1, allow_nan=False
)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | json_numbers | json_text,
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(json_text, inner, max_size=5),
    max_leaves=25,
)
"""Every JSON value that an event may carry."""

names = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=30)
times_ms = st.integers(0, 4_102_444_800_000)


@st.composite
def events(draw: st.DrawFn) -> Event:
    """One valid event with any of its fields."""
    number = draw(st.integers(1, 2**64))
    occurred_at_ms = draw(times_ms)
    optional_name = st.none() | names
    return Event(
        tenant=draw(st.from_regex(r"[a-z0-9][a-z0-9_-]{0,62}", fullmatch=True)),
        event_id=event_id(number),
        event_type=draw(st.sampled_from(["agent.message.sent", "tool.call", "a.b.c_2"])),
        occurred_at_ms=occurred_at_ms,
        session_id=draw(names),
        agent_id=draw(names),
        trace_id=draw(names),
        schema_version=draw(st.integers(1, 9)),
        tool_name=draw(optional_name),
        parent_event_id=draw(st.none() | st.just(event_id(number + 1))),
        ended_at_ms=draw(st.none() | st.integers(0, 10**9).map(lambda ms: occurred_at_ms + ms)),
        status=draw(st.none() | st.sampled_from(STATUSES)),
        importance_hint=draw(st.none() | st.integers(1, 10)),
        user_id=draw(optional_name),
        consent_ref=draw(optional_name),
        payload_ref=draw(optional_name),
        payload=draw(json_values),
    )


@st.composite
def histories(draw: st.DrawFn, max_size: int = 14) -> list[Event]:
    """What happened: events of two tenants with equal ids and session names.

    Times lie so close that many are equal; a parent may be in any session, may come later, and
    may never come.
    """
    keys = draw(
        st.lists(
            st.tuples(st.sampled_from(TENANTS), st.integers(1, max_size)),
            unique=True,
            max_size=max_size,
        )
    )
    made = []
    for tenant, number in keys:
        parent = draw(st.none() | st.integers(1, max_size + 2))
        if parent == number:
            parent = None
        made.append(
            Event(
                tenant=tenant,
                event_id=event_id(number),
                event_type=draw(st.sampled_from([*["agent.step"] * 9, "memory.feedback"])),
                occurred_at_ms=START_MS + draw(st.integers(0, 6)),
                session_id=draw(st.sampled_from(SESSIONS)),
                agent_id="agent-1",
                trace_id="trace-1",
                parent_event_id=event_id(parent) if parent else None,
                tool_name=draw(st.none() | st.just("search")),
            )
        )
    return made


class Step(NamedTuple):
    """What a worker does next.

    Attributes:
        partition: which it reads.
        size: how many entries the block holds.
        fate: `done`; `killed_before` or `killed_after` its transaction's commit (a new worker
            starts); `unknown_before` or `unknown_after`: the answer to the commit is lost;
            `again`: what was folded is folded once more; `late`: a worker that was overtaken
            sends its old block.
    """

    partition: int
    size: int
    fate: str


FATES = (
    "done",
    "killed_before",
    "killed_after",
    "unknown_before",
    "unknown_after",
    "again",
    "late",
)


def schedules(partitions: int) -> st.SearchStrategy[list[Step]]:
    """Steps of workers, whatever the ledger holds; what is left is folded afterwards."""
    return st.lists(
        st.builds(
            Step,
            st.integers(0, partitions - 1),
            st.integers(1, 4) | st.just(500),
            st.sampled_from(FATES),
        ),
        max_size=12,
    )
