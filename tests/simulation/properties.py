"""What must hold when everybody has caught up."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from projections.events import Event
from projections.schema import FOLLOWS, SCOPE
from tests.graph_dump import Dump, dump
from tests.simulation.doubles import BrokenProperty, SimulatedGraph
from tests.simulation.world import World
from tests.whose import broken_rules


def check(world: World) -> None:
    """All properties of a world that has settled.

    Raises:
        BrokenProperty: one does not hold.
    """
    expected = dump(world.fresh())
    for name, graph in sorted(world.services.graphs.items()):
        shown = dump(graph)
        _require_equal(f"{name} and a fresh fold", shown, expected)
        _require_sorted_chains(name, shown)
        _require_tenants_apart(name, shown)
        _require_sums(name, shown, world.appended)
        _require_no_dead_letters(name, graph)
        _require_users_apart(name, graph, world.appended)


def _require_equal(what: str, shown: Dump, expected: Dump) -> None:
    different = [
        *_different(shown.nodes, expected.nodes),
        *_different(shown.edges, expected.edges),
    ]
    if different:
        raise BrokenProperty(f"{what} differ in {len(different)}:\n" + "\n".join(different[:8]))


def _different(shown: Mapping[Any, Any], expected: Mapping[Any, Any]) -> list[str]:
    keys = sorted({*shown, *expected}, key=str)
    return [
        f"  {key}: {_brief(shown.get(key), expected.get(key))}"
        for key in keys
        if shown.get(key) != expected.get(key)
    ]


def _brief(shown: Any, expected: Any) -> str:
    match shown, expected:
        case (bool(), dict()), (bool(), dict()):
            names = sorted({*shown[1], *expected[1]})
            pairs = ((name, shown[1].get(name), expected[1].get(name)) for name in names)
            changed = [f"{name}: {a} not {b}" for name, a, b in pairs if a != b]
            return f"visible {shown[0]} not {expected[0]}; {'; '.join(changed)}"[:900]
    return f"{shown} not {expected}"[:900]


def _require_sorted_chains(name: str, shown: Dump) -> None:
    """FOLLOWS joins the neighbours of each session by (occurred_at, id), and nobody else."""
    sessions: dict[tuple[str, str], list[tuple[int, str]]] = {}
    for (label, key), (visible, values) in shown.nodes.items():
        if label == "Event" and visible:
            session = (key[0], values["session_id"])
            sessions.setdefault(session, []).append((values["occurred_at"], key[1]))
    expected = {
        (tenant, before[1], after[1])
        for (tenant, _), links in sessions.items()
        for before, after in pairwise(sorted(links))
    }
    chains = [
        (source[0], source[1], target[1])
        for type_, source, target, _ in shown.edges
        if type_ == FOLLOWS.type
    ]
    if sorted(chains) != sorted(expected):
        raise BrokenProperty(f"{name}: chains are {sorted({*chains} ^ expected)[:4]} away")


def _require_tenants_apart(name: str, shown: Dump) -> None:
    for type_, source, target, _ in shown.edges:
        if source[0] != target[0]:
            raise BrokenProperty(f"{name}: {type_} from {source} to {target}")


def _require_users_apart(name: str, graph: SimulatedGraph, appended: list[Event]) -> None:
    """Nobody is shown what only another said."""
    for tenant in sorted({made.tenant for made in appended}):
        told = [made for made in appended if made.tenant == tenant]
        if broken := broken_rules(graph, tenant, told):
            raise BrokenProperty(f"{name}: {len(broken)} told to others:\n" + "\n".join(broken[:4]))


def _require_sums(name: str, shown: Dump, appended: list[Event]) -> None:
    """Every event of a session is counted once, whether it is there or not."""
    expected: dict[tuple[str, ...], int] = {}
    for made in appended:
        if not made.event_type.startswith("memory."):
            session = (made.tenant, made.session_id)
            expected[session] = expected.get(session, 0) + 1
    counts = {
        key: values["event_count"]
        for (label, key), (_, values) in shown.nodes.items()
        if label == SCOPE.label and values.get("event_count")
    }
    if counts != expected:
        raise BrokenProperty(f"{name}: events counted {counts}, appended {expected}")


def _require_no_dead_letters(name: str, graph: SimulatedGraph) -> None:
    if letters := graph.dead_letters():
        raise BrokenProperty(f"{name}: {len(letters)} dead letters stay, {letters[0]}")
