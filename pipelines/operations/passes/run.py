"""A pass of consolidation: what changed is read, said anew, and appended as decisions.

Tenant by tenant, its parts follow each other, each looking at the graph that the decisions of those
before have become. A pass keeps nothing: a digest that the graph shows already costs a comparison,
so one that ran out of time is taken up by the next. What it did for a tenant ends with a decision
that answers the requests for it; when there was nothing to do, with none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from consolidation.decay import HOUR_MS
from consolidation.payloads import PassDecided
from pipelines.graph.port import Reads
from pipelines.operations.passes.communities import decide_communities
from pipelines.operations.passes.deciding import Append, Deciding, PassReport, Words
from pipelines.operations.passes.forgetting import PolicyOf, decide_events, decide_others
from pipelines.operations.passes.scopes import (
    LastPass,
    PassScope,
    last_pass,
    requests_of,
    tenants_of,
)
from pipelines.operations.passes.sessions import LeftOver, decide_agents, decide_sessions, left_over
from pipelines.operations.passes.traits import decide_traits
from projections.events import Event
from projections.identity import START


@dataclass(frozen=True)
class CommunitySettings:
    """When a pass looks at the communities, and how.

    Attributes:
        every_ms: at least so long after it was done last, and only if something was decided since.
        chunk_edges: facts that are read at once; 0: the default, and a warning.
    """

    every_ms: int = 24 * HOUR_MS
    chunk_edges: int = 10_000


class Pass:
    """Decides about one target's graph.

    Args:
        graph: that is read.
        append: takes decisions; those that the ledger holds already are the ledger's.
        applied: waits until the stage has applied what was appended.
        now_ms: the clock, which decisions bear.
        run_id: of the pass.
        in_time: whether the pass may go on.
        policy_of: by which a tenant's events leave; None: nothing does.
        communities: when and how they are looked at.
        anew: nothing that was decided counts; see `Deciding`.

    Attributes:
        words: of a language model for what is decided from now on; None: the rules' own.
    """

    def __init__(
        self,
        graph: Reads,
        append: Append,
        applied: Callable[[], None],
        *,
        now_ms: int,
        run_id: str,
        in_time: Callable[[], bool] = lambda: True,
        policy_of: PolicyOf | None = None,
        communities: CommunitySettings | None = None,
        anew: bool = False,
    ) -> None:
        self._deciding = Deciding(
            graph=graph,
            append=append,
            applied=applied,
            now_ms=now_ms,
            in_time=in_time,
            run_id=run_id,
            anew=anew,
        )
        self.words: Words | None = None
        self._policy_of = policy_of
        self._communities = communities or CommunitySettings()

    def run(self, tenants: Iterable[str] | None = None) -> PassReport:
        """Look at these tenants, or at all, those first to which most came."""
        chosen = tenants_of(self._deciding.graph) if tenants is None else tenants
        return self.run_scopes(map(PassScope, chosen))

    def run_scopes(self, scopes: Iterable[PassScope]) -> PassReport:
        """Look at these scopes, in their order, those of one tenant together."""
        report, deciding = PassReport(), replace(self._deciding, words=self.words)
        by_tenant: dict[str, list[PassScope]] = {}
        for scope in scopes:
            by_tenant.setdefault(scope.tenant, []).append(scope)
        for number, (tenant, of_tenant) in enumerate(by_tenant.items()):
            if number and not self._deciding.in_time():
                report.complete = False
                break
            parts = (self._policy_of, self._communities)
            report.add(_TenantPass(tenant, of_tenant, deciding, *parts).run())
        if self.words is not None:
            report.worded, report.unworded = self.words.worded, self.words.unworded
        return report


class _Looked(NamedTuple):
    """What a pass looked at to the end, of what it does not look at each time."""

    traits: bool = False
    communities: bool = False


class _TenantPass:
    """The part of a pass that is about one tenant."""

    def __init__(
        self,
        tenant: str,
        scopes: Sequence[PassScope],
        deciding: Deciding,
        policy_of: PolicyOf | None,
        communities: CommunitySettings,
    ) -> None:
        self._whole = deciding
        self._deciding = replace(deciding, append=self._append, applied=self._await_applied)
        self._policy_of = policy_of
        self._settings = communities
        self._tenant = tenant
        self._scopes = scopes
        self._report = PassReport()
        self._decisions = 0
        self._waited_for = 0

    def run(self) -> PassReport:
        graph, tenant = self._deciding.graph, self._tenant
        requests = requests_of(graph, tenant)
        last = last_pass(graph, tenant)
        whole, looked = any(scope.is_whole for scope in self._scopes), _Looked()
        # a pass of a few sessions would take longer to look for it than for its work
        before = left_over(graph, tenant) if whole else LeftOver()
        self._report.agents |= {*before.agents}
        for scope in self._scopes:
            decide_sessions(self._deciding, scope, self._report, before)
        self._await_applied()
        decide_agents(self._deciding, self._report)
        if whole:
            requested = any(request.asked == (None, None) for request in requests)
            looked = _Looked(
                self._decide_traits(last, before),
                self._decide_communities(last, requested=requested),
            )
            self._forget()
        answered = tuple(
            request.event_id
            for request in requests
            if self._report.complete and any(scope.answers(request.asked) for scope in self._scopes)
        )
        if self._decisions or answered or any(looked):
            self._end(last, answered, looked)
        self._await_applied()
        return self._report

    def _append(self, events: Sequence[Event]) -> None:
        if events:
            self._decisions += len(events)
            self._whole.append(events)

    def _await_applied(self) -> None:
        if self._decisions > self._waited_for:
            self._waited_for = self._decisions
            self._whole.applied()

    def _decide_traits(self, last: LastPass, before: LeftOver) -> bool:
        """Look at the users of whom something changed; whether there were any, to the end."""
        since = START if self._deciding.anew else last.traits_until or START
        changed = decide_traits(
            self._deciding, self._tenant, self._report, before.told, since=since
        )
        self._await_applied()
        return changed and self._report.complete

    def _decide_communities(self, last: LastPass, *, requested: bool) -> bool:
        """Look at the communities, if it is time; whether that was done to the end."""
        if not self._deciding.in_time():
            self._report.complete = False
            return False
        if not (requested or self._is_time(last)):
            return False
        decide_communities(self._deciding, self._tenant, self._report, self._settings.chunk_edges)
        return self._report.complete

    def _is_time(self, last: LastPass) -> bool:
        looked_ms = last.communities_at_ms
        if looked_ms is None or self._deciding.anew:
            return True
        # a clock that was put back is no reason to wait for it
        waited = not 0 <= self._deciding.now_ms - looked_ms < self._settings.every_ms
        changed = self._decisions > 0 or (last.ended_at_ms or 0) != looked_ms
        return waited and changed

    def _forget(self) -> None:
        if self._policy_of is not None:
            self._await_applied()
            for decide in (decide_events, decide_others):
                decide(self._deciding, self._policy_of, self._tenant, self._report)
                self._await_applied()

    def _end(self, last: LastPass, answered: tuple[str, ...], looked: _Looked) -> None:
        deciding, complete = self._deciding, self._report.complete
        decided = PassDecided(
            run_id=deciding.run_id,
            started_at_ms=deciding.now_ms,
            ended_at_ms=deciding.now_ms,
            complete=complete,
            request_ids=answered,
            communities=looked.communities,
            traits=looked.traits or None,
        )
        about = ("pass", last.decided_at, complete, *looked, *answered)
        deciding.append([deciding.decision(self._tenant, decided.payload(), *about)])
