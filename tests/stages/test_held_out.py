"""An entry that is not what was appended is passed, and folded when it has been put right."""

from __future__ import annotations

import threading

import pytest

from pipelines.proof.expected import LedgerFold
from pipelines.work import live
from pipelines.work.live import LiveRunner
from projections.errors import EntryHeldOut
from projections.schema import EVENT, HELD_OUT
from tests.factories import sessions
from tests.memory_stack import MemoryStack


def live_runner(stack: MemoryStack) -> LiveRunner:
    return LiveRunner(
        stack.runner.rules, stack.graph, stack.ledger, target="blue", stop=threading.Event()
    )


@pytest.mark.parametrize("damage", ["alter", "delete"])
def test_it_is_passed_and_folded_when_its_event_is_sent_again(
    damage: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LOOK_EVERY_S", 0.0)
    stack = MemoryStack()
    events = sessions(4, 5)
    stack.append(*events)
    victim = stack.ledger.find(*events[2].key)
    assert victim is not None
    getattr(stack.ledger.server, damage)(victim)

    stack.fold()

    assert [(one["kind"], one["seq"]) for one in stack.letters()] == [(HELD_OUT, victim.seq)]
    assert len(stack.nodes(EVENT.label)) == len(events) - 1

    live_runner(stack).checkpoint(victim.partition)
    assert len(stack.letters()) == 1  # nobody has sent it again

    stack.append(events[2])
    live_runner(stack).checkpoint(victim.partition)

    assert stack.letters() == []
    clean = MemoryStack(ledger=stack.ledger)
    clean.fold()
    assert stack.dump() == clean.dump()


@pytest.mark.parametrize("damage", ["alter", "delete"])
def test_a_graph_that_has_folded_it_is_not_judged_by_it(damage: str) -> None:
    stack = MemoryStack()
    events = stack.fill()
    victim = stack.ledger.find(*events[2].key)
    assert victim is not None
    getattr(stack.ledger.server, damage)(victim)

    with pytest.raises(EntryHeldOut):
        LedgerFold(stack.ledger, [stack.runner.rules]).advance(
            stack.graph, stack.graph.checkpoints()
        )
