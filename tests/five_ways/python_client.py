"""The agent with the Python client: it logs what it does."""

from __future__ import annotations

from recollect import Memory
from tests.five_ways.story import AGENT, SESSION, TURNS, USER, Call, Door, told


def run(door: Door) -> None:
    """Tell the story."""
    with Memory(door.url, door.key, tenant=door.tenant, agent=AGENT, user=USER) as memory:
        session = memory.session(SESSION)
        for turn in TURNS:
            session.log("user", turn.asked)
            for call in turn.calls:
                session.log("call", call.arguments, tool=call.tool)
                session.log(*_outcome(call), tool=call.tool)
            session.log("assistant", turn.answer)


def _outcome(call: Call) -> tuple[str, object]:
    try:
        return "result", call.carry_out()
    except ConnectionError as error:
        return "failure", told(error)
