"""The process that holds the embedder of a machine: `python -P -m pipelines.models.model_process`.

Whoever needs it first starts it (`model_client`); it ends by itself some seconds after its last
client has gone (`pipelines.local.shared_server`).

An urgent question is computed on the thread that reads it, beside the batches, which are computed
text by text, in turn when there are several, on a thread with the priority of whoever asks (Linux
counts priorities by thread, and the runtime computes on the thread that calls it). So a question
waits for no batch, and a batch of a process that steps back takes nothing from anybody.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import closing, suppress
from pathlib import Path
from queue import SimpleQueue
from typing import BinaryIO, Protocol

import orjson

from enrichment.ports import Embedder
from pipelines.local.python_process import read_frame, write_frame
from pipelines.local.shared_server import SharedServer, end_broken
from pipelines.models.embedder import make_embedder
from pipelines.models.installed import EmbedderChoice
from pipelines.models.wire import (
    BEGUN,
    LOADED,
    MAX_FRAME_BYTES,
    Question,
    is_refusal,
    refusal,
    vector_answer,
)
from projections.errors import ModelError

_ANNOUNCE_S = 1.0


class LoadedEmbedder(Embedder, Protocol):
    """An embedder that is loaded before it is needed."""

    def load(self) -> None:
        """Raises ModelUnavailable."""


class _Job:
    """A question that is being answered.

    Args:
        texts: at least one.
        is_again: its client is told before its text is computed.
    """

    def __init__(self, texts: list[str], *, is_again: bool) -> None:
        self.texts = deque(texts)
        self.is_again = is_again
        self._frames = len(texts) + is_again
        self.answers: SimpleQueue[bytes] = SimpleQueue()
        self.is_given_up = False
        self._told = threading.Event()

    def announce(self) -> None:
        """Have the client told that its text is next; who does not read is not waited for."""
        self.answers.put(BEGUN)
        self._told.wait(_ANNOUNCE_S)

    def frames(self) -> Generator[bytes, None, None]:
        """What the client is sent."""
        try:
            for _ in range(self._frames):
                yield self.answers.get()
                self._told.set()
        finally:
            self.is_given_up = True
            self._told.set()


class _Lane:
    """A thread that computes: one text of each job in turn.

    Args:
        embedder: computes.
        nice: priority of the thread, as far as the process has not a lower one.
    """

    def __init__(self, embedder: Embedder, nice: int) -> None:
        self._embedder = embedder
        self._nice = nice
        self._jobs: deque[_Job] = deque()
        self._changed = threading.Condition()
        threading.Thread(target=self._run, name=f"lane-{nice}", daemon=True).start()

    def put(self, job: _Job) -> None:
        with self._changed:
            self._jobs.append(job)
            self._changed.notify()

    def _run(self) -> None:
        if sys.platform.startswith("linux"):
            me = threading.get_native_id()
            if os.getpriority(os.PRIO_PROCESS, me) < self._nice:
                os.setpriority(os.PRIO_PROCESS, me, self._nice)
        while True:
            with self._changed:
                while not self._jobs:
                    self._changed.wait()
                job = self._jobs.popleft()
            if job.is_given_up:
                continue
            if job.is_again:
                job.announce()
            answer = answered(self._embedder, job.texts.popleft())
            job.answers.put(answer)
            if job.texts and not is_refusal(answer):
                self.put(job)


def answered(embedder: Embedder, text: str) -> bytes:
    """What a client is told of one text."""
    begun = time.perf_counter()
    try:
        (vector,) = embedder.embed([text])
    except ModelError as error:
        return refusal(error)
    return vector_answer(vector, time.perf_counter() - begun)


class ModelServer:
    """Answers clients.

    Args:
        embedder: computes; it need not be loaded.
    """

    def __init__(self, embedder: LoadedEmbedder) -> None:
        self._embedder = embedder
        self._guard = threading.Lock()
        self._urgent = threading.Lock()
        """Urgent ones are computed one by one: together each would take longer."""
        self._lanes: dict[int, _Lane] = {}

    def talk(self, stream: BinaryIO) -> None:
        """Answer a client until it has gone, or says what is no question."""
        while (frame := read_frame(stream, MAX_FRAME_BYTES)) is not None:
            try:
                question = Question.decode(frame)
            except ValueError:
                return
            self._serve_question(question, stream)

    def _serve_question(self, question: Question, stream: BinaryIO) -> None:
        if not question.texts:
            write_frame(stream, self._loaded())
            return
        if question.is_urgent:
            answers = self._at_once(question.texts)
        else:
            job = _Job(question.texts, is_again=question.is_again)
            answers = job.frames()
            self._lane(question.nice).put(job)
        # Closed at once when the client has gone, not when somebody tidies up.
        with closing(answers):
            for answer in answers:
                write_frame(stream, answer)
                if is_refusal(answer):
                    return

    def _at_once(self, texts: list[str]) -> Generator[bytes, None, None]:
        for text in texts:
            with self._urgent:
                answer = answered(self._embedder, text)
            yield answer

    def _loaded(self) -> bytes:
        try:
            self._embedder.load()
        except ModelError as error:
            return refusal(error)
        return LOADED

    def _lane(self, nice: int) -> _Lane:
        with self._guard:
            if nice not in self._lanes:
                self._lanes[nice] = _Lane(self._embedder, nice)
            return self._lanes[nice]


def _warm(embedder: LoadedEmbedder) -> None:
    # At the priority of the process: a question would wait for what a batch began to load.
    with suppress(ModelError):  # told to whoever asks
        embedder.load()
        embedder.embed(["ready"])  # what is slow the first time is not the first question's


def serve(embedder: LoadedEmbedder, descriptor: str, path: str, linger_s: str) -> None:
    """Serve until nobody is left.

    Args:
        embedder: computes.
        descriptor: of the listening socket.
        path: of the socket; its lock is beside it.
        linger_s: seconds after the last client.
    """
    threading.excepthook = end_broken
    threading.Thread(target=_warm, args=(embedder,), name="load", daemon=True).start()
    server = SharedServer(ModelServer(embedder).talk, linger_s=float(linger_s))
    server.serve(descriptor, Path(path))


def main(descriptor: str, path: str, linger_s: str, choice: str) -> None:
    """`serve` with the embedder that was chosen, an `EmbedderChoice` as JSON."""
    embedder = make_embedder(EmbedderChoice(**orjson.loads(choice)))
    serve(embedder, descriptor, path, linger_s)


if __name__ == "__main__":
    main(*sys.argv[1:])
