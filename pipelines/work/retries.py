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

from pipelines.observe import metrics
from projections.errors import RecollectError, Stopped, TransactionTimeout

Result = TypeVar("Result")
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

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until it holds.

        Raises:
            Stopped: `stop` was set meanwhile.
        """
        wait_s = 0.02
        while not condition():
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
        if state.attempt_number in (1, 10) or state.attempt_number % 100 == 0:
            self._log.warning("retrying", attempt=state.attempt_number, reason=str(error))
