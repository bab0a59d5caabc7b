"""Waiting for what passes by itself: a service that is away, a stage that has to go first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TypeVar

import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    sleep_using_event,
    stop_when_event_set,
    wait_random_exponential,
)

from pipelines.observe import metrics, progress
from projections.errors import GraphError, RecollectError, Stopped, TransactionTimeout

Result = TypeVar("Result")
_DEADLOCK = "Neo.TransientError.Transaction.DeadlockDetected"
logger = structlog.get_logger(__name__)


class Retries:
    """Calls again, with backoff, until an event says stop.

    Args:
        stop: ends all waiting.
        labels: of the stage and the target, for metrics and logs.
    """

    def __init__(self, stop: threading.Event, labels: Mapping[str, str]) -> None:
        self._stop = stop
        self._labels = labels
        self._log = logger.bind(**labels)

    def call(self, call: Callable[[], Result], *, may_halve: bool = False) -> Result:
        """Call until it succeeds or fails with something that a retry cannot mend.

        With `may_halve` a transaction that ran into its limit is such a thing: halves are faster.

        Raises:
            Stopped: `stop` was set while it waited.
        """

        def again(error: BaseException) -> bool:
            if may_halve and isinstance(error, TransactionTimeout):
                return False
            return isinstance(error, RecollectError) and error.retryable

        retrying = Retrying(
            retry=retry_if_exception(again),
            wait=wait_random_exponential(multiplier=0.05, max=5),
            sleep=sleep_using_event(self._stop),
            stop=stop_when_event_set(self._stop),
            before_sleep=self._note,
            reraise=True,
        )
        try:
            return retrying(call)
        except RecollectError as error:
            if again(error):  # only `stop` ends the tries of such a one
                raise Stopped() from error
            raise

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until it holds; `what` says what is waited for.

        Raises:
            Stopped: `stop` was set meanwhile.
        """
        wait_s = 0.02
        while not condition():
            progress.WORKER.waits(what)
            self.pause(wait_s)
            wait_s = min(1.0, wait_s * 1.5)

    def pause(self, seconds: float) -> None:
        """Wait so long.

        Raises:
            Stopped: `stop` was set meanwhile.
        """
        if self._stop.wait(seconds):
            raise Stopped()

    def _note(self, state: RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        if error is None:
            return
        metrics.RETRIES.labels(**self._labels, reason=metrics.error_reason(error)).inc()
        progress.WORKER.waits(str(error))
        attempt = state.attempt_number
        if attempt in (1, 10) or attempt % 100 == 0:
            # Two transactions that met once (a deadlock) are ordinary; what lasts is not.
            tell = self._log.info if attempt == 1 and _is_passing(error) else self._log.warning
            tell("retrying", attempt=attempt, reason=str(error))


def _is_passing(error: BaseException) -> bool:
    """Whether the database asks for another try of the same, which is a part of its work."""
    return isinstance(error, GraphError) and _DEADLOCK in str(error)
