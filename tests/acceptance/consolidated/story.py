"""Consolidate real conversations as of their own time, forget, rebuild; say what came of it."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from typing import Any

from consolidation.retention import RetentionPolicy
from pipelines.ledger.ledger import Appended
from pipelines.operations.passes.deciding import PassReport
from pipelines.operations.passes.run import Pass
from pipelines.work.services import make_fold
from pipelines.work.stages import CONSOLIDATION
from projections.errors import EventConflict
from projections.events import Event
from projections.schema import EDGES, LINKED_TO, NODES, SUMMARIZES, Certainty
from tests.integration.enrichment_support import Enriched
from tests.integration.stack import Stack

HOUR_MS = 3_600_000
STAGE = CONSOLIDATION.name

Say = Callable[[str], None]

_DOWN = (
    f"MATCH (a:Summary {{level: 3}})-[:{SUMMARIZES.type}]->(:Summary {{level: 2}})"
    f"-[:{SUMMARIZES.type}]->(:Summary {{level: 1}})-[:{SUMMARIZES.type}]->(e:Event)"
)


class Consolidating:
    """The three stages of a stack, and passes."""

    def __init__(self, stack: Stack) -> None:
        self.stack = stack
        self.enriched = Enriched(stack)
        self.start()

    def start(self) -> None:
        """Begin on an empty graph, as workers that have just started."""
        projection = self.stack.new_runner()
        enrichment = self.enriched.new_runner()
        consolidation = self.stack.new_runner(
            make_fold(CONSOLIDATION, self.stack.services, self.stack.target)
        )
        self._runners = (projection, enrichment, consolidation)
        for runner in self._runners:
            runner.prepare(self.stack.ledger.partitions)

    def fold(self) -> None:
        """Apply what the ledger holds, stage by stage."""
        for runner in self._runners:
            self.stack.fold(100, runner)

    def run(self, now_ms: int, *, forget: bool) -> PassReport:
        """A pass with a clock of its own."""
        made = Pass(
            self.stack.graph,
            self._append,
            self.fold,
            now_ms=now_ms,
            run_id=f"run-{now_ms}",
            policy_of=(lambda tenant: RetentionPolicy()) if forget else None,
        )
        return made.run()

    def _append(self, events: Sequence[Event]) -> None:
        for outcome in self.stack.ledger.append(events):
            assert isinstance(outcome, Appended | EventConflict), outcome

    def seqs(self) -> list[int]:
        """How many entries each partition has."""
        return [tail.seq for tail in self.stack.ledger.tails()]

    def clear(self) -> None:
        """Drop the graph; the ledger stays."""
        self.stack.graph.clear()
        self.start()

    def decided(self) -> list[str]:
        """All in the graph that this stage wrote and that is no matter of rounding."""
        found = []
        for row in NODES.values():
            names = [
                p.name
                for p in row.properties
                if p.stage == STAGE and p.certainty is not Certainty.APPROXIMATE
            ]
            if names:
                shown = ", ".join(f"n.{name}" for name in (*row.key, *names))
                rows = self.stack.cypher(
                    f"MATCH (n:{row.label}) WHERE any(x IN [{_given(names)}] WHERE x) "
                    f"RETURN [{shown}]"
                )
                found += [f"{row.label} {values}" for values in rows]
        for edge in EDGES.values():
            if edge.stage == STAGE:
                rows = self.stack.cypher(
                    f"MATCH (a)-[r:{edge.type}]->(b) RETURN "
                    "[coalesce(a.summary_id, a.entity_id), "
                    "coalesce(b.event_id, b.summary_id, b.community_id), properties(r)]"
                )
                found += [f"{edge.type} {row}" for row in rows]
        return sorted(found)


def _given(names: Sequence[str]) -> str:
    return ", ".join(f"n.{name} IS NOT NULL" for name in names)


def tell(stack: Stack, events: list[Event], say: Say) -> dict[str, Any]:
    """Run the story on an empty ledger and graph.

    Returns:
        Figures: what came of each pass, counts, and whether each check held.
    """
    live = Consolidating(stack)
    now_ms = max(event.occurred_at_ms for event in events) + HOUR_MS
    figures: dict[str, Any] = {"events": len(events)}
    stack.append(*events)
    figures["import_seconds"] = _seconds(live.fold)

    figures["pass_seconds"], report = _timed(lambda: live.run(now_ms, forget=False))
    figures["first_pass"] = _told(report)
    say(f"a pass of {len(events):,} events: {json.dumps(figures['first_pass'])}")
    figures["summaries"] = _counts(live)
    say(json.dumps(figures["summaries"]))
    for text in _session_summaries(live, 3):
        say(f"\n{text}\n")
    for text in _samples(live):
        say(text)
    figures["reachable"] = _unreachable(live) == 0
    figures["second_pass_writes_nothing"] = _writes_nothing(live, now_ms, forget=False)

    report = live.run(now_ms, forget=True)
    figures["forgetting_pass"] = _told(report)
    figures["after_forgetting"] = _counts(live)
    say(f"forgetting: {json.dumps(figures['forgetting_pass'])}")
    figures["reachable_after_forgetting"] = _unreachable(live) == 0
    figures["forgotten_are_listed"] = _unlisted(live) == 0
    figures["last_pass_writes_nothing"] = _writes_nothing(live, now_ms, forget=True)

    expected = live.decided()
    live.clear()
    figures["rebuild_seconds"] = _seconds(live.fold)
    found = live.decided()
    figures["rebuild_is_the_same"] = found == expected
    for line in sorted(set(expected) ^ set(found))[:10]:
        say(f"differs: {line[:400]}")
    figures["verified"] = stack.verify().ok
    return figures


def _told(report: PassReport) -> dict[str, Any]:
    values = dict(vars(report))
    values["agents"], values["told"] = len(report.agents), len(report.told)
    return {name: value for name, value in values.items() if value}


def _counts(live: Consolidating) -> dict[str, int]:
    cypher = live.stack.cypher
    levels = cypher(
        "MATCH (s:Summary) WHERE NOT s:Unwritten RETURN s.scope + ' summaries', count(s)"
    )
    reasons = cypher(f"MATCH ()-[l:{LINKED_TO.type}]->() RETURN 'links, ' + l.reason, count(l)")
    (resolved,) = cypher(
        f"MATCH ()-[l:{LINKED_TO.type}]->() WHERE l.resolution_event_id IS NOT NULL RETURN count(l)"
    )
    (communities,) = cypher("MATCH (c:Community) WHERE c.fingerprint IS NOT NULL RETURN count(c)")
    (boosted,) = cypher("MATCH (e:Event) WHERE e.importance_boost > 0 RETURN count(e)")
    (forgotten,) = cypher("MATCH (f:Forgotten) RETURN count(f)")
    (retained,) = cypher("MATCH (e:Event) WHERE NOT e:Placeholder RETURN count(e)")
    return {
        **dict(map(tuple, sorted(levels))),
        **dict(map(tuple, sorted(reasons))),
        "links with a resolution": resolved,
        "communities": communities,
        "boosted events": boosted,
        "forgotten": forgotten,
        "retained": retained,
    }


def _session_summaries(live: Consolidating, count: int) -> list[str]:
    """Of the most important session, the one in the middle, and between the two."""
    rows = live.stack.cypher(
        "MATCH (s:Summary {level: 2}) WHERE NOT s:Unwritten "
        "RETURN s.scope_id, s.event_count, s.failed_count, s.content "
        "ORDER BY s.failed_count DESC, s.importance_total DESC, s.scope_id"
    )
    step = max(1, len(rows) // count)
    return [
        f"## {name}: {events} events, {failed} failed\n{content}"
        for name, events, failed, content in rows[::step][:count]
    ]


def _samples(live: Consolidating) -> list[str]:
    agents = live.stack.cypher(
        "MATCH (s:Summary {level: 3}) RETURN '## agent ' + s.scope_id + '\n' + s.content "
        "ORDER BY s.importance_total DESC LIMIT 1"
    )
    communities = live.stack.cypher(
        "MATCH (c:Community) WHERE c.name IS NOT NULL "
        "RETURN 'community ' + c.name + ' | ' + c.summary ORDER BY c.member_count DESC LIMIT 5"
    )
    links = live.stack.cypher(
        f"MATCH (a)-[l:{LINKED_TO.type}]->(b) RETURN 'link ' + a.session_id + ' -> ' + "
        "b.session_id + ': ' + l.reason + ' ' + toString(l.score) + ' ' + l.evidence[0] "
        "ORDER BY l.resolution_event_id IS NULL, l.score DESC LIMIT 5"
    )
    return [*map(str, agents), *map(str, communities), *map(str, links)]


# -- checks ----------------------------------------------------------------------------------------


def _unreachable(live: Consolidating) -> int:
    """Retained events that no agent's summary leads to, or that do not lead to their own agent's.

    An event leads back by the same edges, so that it is counted from both ends.
    """
    (down,) = live.stack.cypher(
        f"MATCH (e:Event) WHERE NOT e:Placeholder AND NOT EXISTS {{ {_DOWN} }} RETURN count(e)"
    )
    (back,) = live.stack.cypher(
        "MATCH (e:Event) WHERE NOT e:Placeholder AND NOT EXISTS { "
        f"{_DOWN} WHERE a.scope_id = e.agent_id }} RETURN count(e)"
    )
    return int(down) + int(back)


def _unlisted(live: Consolidating) -> int:
    """Forgotten events that their Summary does not name."""
    (count,) = live.stack.cypher(
        "MATCH (f:Forgotten) WHERE NOT EXISTS { MATCH (s:Summary {tenant: f.tenant, "
        "summary_id: f.summary_id}) WHERE f.event_id IN s.source_event_ids } RETURN count(f)"
    )
    return int(count)


def _writes_nothing(live: Consolidating, now_ms: int, *, forget: bool) -> bool:
    before = live.seqs()
    live.run(now_ms, forget=forget)
    return live.seqs() == before


def _seconds(work: Callable[[], object]) -> float:
    return _timed(work)[0]


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    begun = time.monotonic()
    found = work()
    return round(time.monotonic() - begun, 1), found
