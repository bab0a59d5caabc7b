"""Verdicts on all events of a tenant while they are read, without keeping them all.

Whether an event leaves hangs on others in one case only: as long as it is protected as the cause of
effects that may leave. So those that are protected wait, and the effects that would leave them;
of all others the verdict stands when they are read.
"""

from __future__ import annotations

from collections.abc import Iterable

from consolidation.retention import (
    Reason,
    RetainedEvent,
    RetentionPolicy,
    Verdict,
    verdict,
    verdicts,
)


class Judging:
    """Together the verdicts are those of `retention.verdicts` on all events at once.

    Args:
        policy: of the tenant.
        now_ms: the clock.
    """

    def __init__(self, policy: RetentionPolicy, now_ms: int) -> None:
        self._policy = policy
        self._now_ms = now_ms
        self._waiting: list[RetainedEvent] = []

    def judge(self, events: Iterable[RetainedEvent]) -> list[Verdict]:
        """Verdicts on those events that wait for nobody, in their order.

        Args:
            events: each once; `causes` may leave out those with fewer effects than protect them.
        """
        found = []
        for event in events:
            one = verdict(event, self._policy, self._now_ms)
            if one.reason is Reason.CAUSE or (one.leaves and event.causes):
                self._waiting.append(event)
            else:
                found.append(one)
        return found

    def rest(self) -> list[Verdict]:
        """Verdicts on the others, once all events were read; by event id."""
        waiting, self._waiting = self._waiting, []
        return verdicts(waiting, self._policy, self._now_ms)
