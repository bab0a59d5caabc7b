"""A large language model behind the Protocols of enrichment: bounded, kept, and never needed.

Whatever goes wrong gives None: the caller goes on with what the rules derived, and a counter says
so. A server that fails again and again is left alone for a while, so that enrichment without it is
as fast as if there were none.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    InvalidStateError,
    ThreadPoolExecutor,
    wait,
)
from typing import TYPE_CHECKING, Any, Final, Protocol, cast

import orjson
import structlog
from tenacity import (
    RetryCallState,
    Retrying,
    retry_if_exception,
    stop_after_attempt,
    wait_random_exponential,
)

from enrichment.ports import LanguageModel
from enrichment.prompts import (
    DERIVING,
    PROMPTS,
    TASKS,
    WORDING,
    Task,
    bounded,
    is_ungrounded,
    messages,
    validated,
    versions,
)
from pipelines.models.chat_completions import ChatCompletions, CompletionFailed
from pipelines.models.derivations import Derivations, Digest, digest_of
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import ConfigurationError, Stopped

if TYPE_CHECKING:
    pass

FAILURES: Final = 5
"""In a row, then the server is left alone."""
FIRST_PAUSE_S: Final = 30.0
LONGEST_PAUSE_S: Final = 600.0
LONGEST_WAIT_S: Final = 30.0
"""Before an attempt; a server that advises more is left alone for so long instead."""

_FIRST_WAIT_S: Final = 0.5
_LONGEST_BACKOFF_S: Final = 8.0

logger = structlog.get_logger(__name__)


class Completions(Protocol):
    """What asks; `ChatCompletions` over the network."""

    def complete(
        self,
        messages: Sequence[dict[str, str]],
        *,
        name: str,
        schema: dict[str, Any],
        max_tokens: int,
    ) -> Any:
        """The decoded answer.

        Raises:
            CompletionFailed: there is none.
        """

    def close(self) -> None:
        """End what is under way: it raises CompletionFailed."""


class Breaker:
    """Says whether to ask.

    After FAILURES in a row not, for a pause; then one question finds out whether to go on, and if
    not, the pause doubles up to a limit. Safe for use by several threads.

    Args:
        now: clock, seconds.
    """

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._failures = 0
        self._pause_s = FIRST_PAUSE_S
        self._until_s: float | None = None
        self._probing = False

    def allows(self) -> bool:
        """Whether this question may be asked."""
        with self._lock:
            if self._until_s is None:
                return True
            if self._now() < self._until_s:
                return False
            # This one finds out; the others wait as long as it may take, and one more tries then.
            self._until_s = self._now() + self._pause_s
            self._probing = True
            return True

    def succeeded(self) -> None:
        """The server answered."""
        with self._lock:
            self._failures, self._pause_s = 0, FIRST_PAUSE_S
            self._until_s, self._probing = None, False

    def failed(self, advised_s: float = 0.0) -> float | None:
        """The server did not; returns the seconds of the pause when one begins.

        Args:
            advised_s: by the server, until when to stay away: begins a pause at once.
        """
        with self._lock:
            self._failures += 1
            if self._until_s is None:
                if self._failures < FAILURES and advised_s <= LONGEST_WAIT_S:
                    return None
            elif self._probing:
                self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S)
            else:
                return None  # asked before the pause began
            self._probing = False
            pause_s = min(max(self._pause_s, advised_s), LONGEST_PAUSE_S)
            self._until_s = self._now() + pause_s
            return pause_s


class ChatModel(LanguageModel):
    """A language model on an OpenAI-compatible server. Safe for use by several threads.

    Args:
        completions: asks the server.
        model: its name, part of what answers are kept by.
        answers: those that were given, by model, version of the prompt and question.
        tasks: that may be asked; others are answered with None.
        max_characters: of a text.
        max_attempts: of one question, when the server is busy or away.
        concurrency: questions at once.
        breaker: shared by all that ask the same server.
        sleep: waits before another attempt, seconds; by default until `close` at the longest.

    Attributes:
        revision: of what is derived with it: another one is another graph. Empty when it only
            answers what is recorded and not derived.
    """

    def __init__(
        self,
        completions: Completions,
        model: str,
        answers: Derivations,
        *,
        tasks: Collection[Task] = TASKS,
        max_characters: int = 4_000,
        max_attempts: int = 3,
        concurrency: int = 2,
        breaker: Breaker | None = None,
        sleep: Callable[[float], None] | None = None,
    ) -> None:
        self.model: str = model
        self.tasks: tuple[Task, ...] = tuple(task for task in TASKS if task in tasks)
        derives = tuple(task for task in self.tasks if task in DERIVING)
        self.revision: str = f"{versions(derives)}/{max_characters}" if derives else ""
        self._completions = completions
        self._answers = answers
        self._max_characters = max_characters
        self._asks = True
        self._breaker = breaker or Breaker()
        self._closed: Future[None] = Future()  # and no Event: waited for beside an answer
        self._retrying = Retrying(
            stop=stop_after_attempt(max_attempts),
            retry=retry_if_exception(_worth_another),
            wait=_wait_s,
            sleep=sleep or self._pause,
            reraise=True,
        )
        self._pool = ThreadPoolExecutor(concurrency, thread_name_prefix="llm")

    def answer(self, task: str, question: dict[str, Any]) -> dict[str, Any] | None:
        """The validated answer to one question; None: the rules do without."""
        return self.answers([(cast(Task, task), question)])[0]

    def answers(
        self, batch: Sequence[tuple[Task, Mapping[str, Any]]]
    ) -> list[dict[str, Any] | None]:
        """The validated answers to many questions, each as `answer` gives it.

        Questions that are the same are asked once. An answer is kept as soon as it is there, if
        its task's are, so that a worker which is stopped half-way has not asked for nothing.

        Raises:
            Stopped: `close` was called meanwhile.
        """
        put = [
            (task, bounded(question, self._max_characters)) if task in self.tasks else None
            for task, question in batch
        ]
        wanted = {self._digest(*one): one for one in put if one is not None}
        answers = self._answered({d: one for d, one in wanted.items() if PROMPTS[one[0]].kept})
        missing = {digest: one for digest, one in wanted.items() if digest not in answers}
        if self._asks and missing:
            answers |= self._asked_together(missing)
        return [None if one is None else answers.get(self._digest(*one)) for one in put]

    @contextlib.contextmanager
    def asking_nobody(self) -> Iterator[None]:
        """Answers come from the store alone, for who checks what was derived before."""
        self._asks = False
        try:
            yield
        finally:
            self._asks = True

    def close(self) -> None:
        """Ask nothing more, and wait for no answer: who does is told that the worker stops."""
        with contextlib.suppress(InvalidStateError):  # closed before
            self._closed.set_result(None)
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._completions.close()

    def _asked_together(
        self, missing: Mapping[Digest, tuple[Task, dict[str, Any]]]
    ) -> dict[Digest, dict[str, Any] | None]:
        try:
            waiting = {d: self._pool.submit(self._asked, d, *one) for d, one in missing.items()}
            return {digest: self._awaited(future) for digest, future in waiting.items()}
        except (CancelledError, RuntimeError):
            if self._closed.done():
                raise Stopped from None
            raise

    def _awaited(self, future: Future[dict[str, Any] | None]) -> dict[str, Any] | None:
        """An answer, unless the model is closed first, even while it connects to its server.

        Raises:
            Stopped: going on without the answer would write a graph that lacks it.
        """
        either: tuple[Future[Any], ...] = (future, self._closed)
        wait(either, return_when=FIRST_COMPLETED)
        if not future.done():
            raise Stopped
        return future.result()

    def _digest(self, task: Task, question: Mapping[str, Any]) -> Digest:
        put = orjson.dumps(question, option=orjson.OPT_SORT_KEYS)
        return digest_of(self.model, task, str(PROMPTS[task].version), put)

    def _answered(
        self, wanted: Mapping[Digest, tuple[Task, dict[str, Any]]]
    ) -> dict[Digest, dict[str, Any] | None]:
        answers: dict[Digest, dict[str, Any] | None] = {}
        packed = self._answers.get("answer", wanted)
        for digest, data in packed.items():
            answer = _read(*wanted[digest], data)
            if answer is not None:
                answers[digest] = answer
        self._answers.damaged("answer", packed.keys() - answers.keys())
        return answers

    def _asked(self, digest: Digest, task: Task, question: dict[str, Any]) -> dict[str, Any] | None:
        if not self._breaker.allows():
            _count_degraded(task, "suspended")
            return None
        prompt = PROMPTS[task]
        try:
            raw = self._retrying(
                self._complete,
                messages(task, question),
                name=task,
                schema=prompt.schema,
                max_tokens=prompt.max_tokens,
            )
        except CompletionFailed as error:
            if self._closed.done():
                raise Stopped from None
            self._note(task, error)
            _count_degraded(task, error.outcome)
            return None
        self._breaker.succeeded()
        answer = validated(task, question, raw)
        if answer is None:
            more = is_ungrounded(task, question, raw)
            _count_degraded(task, "ungrounded" if more else "malformed")
            return None
        metrics.LLM_QUESTIONS.labels(outcome="answered").inc()
        if not prompt.kept:
            return answer
        data = orjson.dumps(answer)
        stands = self._answers.put("answer", {digest: data})[digest]
        # another worker may have asked meanwhile
        return answer if stands == data else _read(task, question, stands) or answer

    def _pause(self, seconds: float) -> None:
        wait((self._closed,), seconds)

    def _complete(self, *given: Any, **named: Any) -> Any:
        if self._closed.done():
            raise Stopped
        return self._completions.complete(*given, **named)

    def _note(self, task: Task, error: CompletionFailed) -> None:
        if error.outcome == "malformed":
            self._breaker.succeeded()  # it does answer
            return
        pause_s = self._breaker.failed(error.retry_after_s or 0.0)
        logger.warning("no answer", model=self.model, task=task, reason=str(error))
        if pause_s is not None:
            logger.warning("language model left alone", model=self.model, pause_s=round(pause_s))


def make_language_model(settings: Settings, answers: Derivations) -> ChatModel | None:
    """The language model that the settings ask for; None, the default: there is none.

    Raises:
        ConfigurationError: the settings name a server without a model, or cannot be sent.
    """
    if settings.llm_url is None or not settings.llm_tasks:
        return None
    if settings.llm_model is None:
        raise ConfigurationError(reason="llm_url without llm_model")
    completions = ChatCompletions(
        settings.llm_url,
        settings.llm_model,
        settings.llm_api_key,
        timeout_s=settings.llm_timeout_s,
        response_format=settings.llm_response_format,
    )
    return ChatModel(
        completions,
        settings.llm_model,
        answers,
        tasks=settings.llm_tasks,
        max_characters=settings.llm_max_characters,
        max_attempts=settings.llm_max_attempts,
        concurrency=settings.llm_concurrency,
    )


def _read(task: Task, question: dict[str, Any], data: bytes) -> dict[str, Any] | None:
    """An answer that was kept; None: it is none."""
    try:
        return validated(task, question, orjson.loads(data))
    except orjson.JSONDecodeError:
        return None


def _count_degraded(task: Task, outcome: metrics.LlmOutcome) -> None:
    # what a pass words is counted apart from events
    metrics.count_unanswered(WORDING if task == WORDING else "llm", outcome)


_backoff = wait_random_exponential(multiplier=_FIRST_WAIT_S, max=_LONGEST_BACKOFF_S)


def _worth_another(error: BaseException) -> bool:
    return (
        isinstance(error, CompletionFailed)
        and error.again
        and (error.retry_after_s or 0.0) <= LONGEST_WAIT_S
    )


def _wait_s(state: RetryCallState) -> float:
    error = state.outcome.exception() if state.outcome is not None else None
    advised_s = error.retry_after_s if isinstance(error, CompletionFailed) else None
    return max(_backoff(state), advised_s or 0.0)
