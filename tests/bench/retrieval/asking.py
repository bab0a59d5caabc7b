"""Questions put to the API, each in its tenant, by its text alone."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from typing import Any, Final, NamedTuple, TypeVar

import httpx

from pipelines.observe import metrics
from projections.schema import EVENT
from tests.bench.retrieval.served import TIMEOUT_MS, Conversations, key_of
from tests.integration.api_support import Api

DEFAULT_METHOD: Final = "intent_weighted"
METHODS: Final = (DEFAULT_METHOD, "ppr", "activation")
MAX_NODES: Final = 100
TRIES: Final = 3
"""How often a question is put whose answer lacks something; quality is asked for, not speed."""

_JSON, _MARKDOWN = "application/json", "text/markdown"
_T = TypeVar("_T")


class Answered(NamedTuple):
    """One question's answer.

    Attributes:
        event_ids: of the events found, the best first.
        ms: until the answer was here.
        partial: something was left out of it, in each of the tries.
    """

    event_ids: list[str]
    ms: float
    partial: bool


class Told(NamedTuple):
    """A narrative; `partial` as with `Answered`."""

    text: str
    partial: bool


class Asking:
    """Asks questions, each in its tenant.

    Args:
        api: that answers, in this process.
        data: the conversations that it holds.
        at_once: questions under way. The order of answers does not depend on it, their times do.
    """

    def __init__(self, api: Api, data: Conversations, at_once: int = 1) -> None:
        self.at_once = at_once
        self._data = data
        self._stack = ExitStack()
        self._threads = self._stack.enter_context(ThreadPoolExecutor(at_once))
        self._clients = {
            tenant: self._stack.enter_context(api.client(key_of(tenant))) for tenant in data.clocks
        }

    def __enter__(self) -> Asking:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def warm_up(self, questions: Sequence[Mapping[str, Any]]) -> None:
        """Ask until plans are made and models loaded; what is not answered in time is no error."""
        for question in questions:
            for method in METHODS:
                with suppress(httpx.HTTPError):
                    self._ask(question, method, _JSON)

    def each(
        self, ask: Callable[[Mapping[str, Any]], _T], questions: Sequence[Mapping[str, Any]]
    ) -> Iterator[_T]:
        """What `ask` gives for each question, in their order."""
        return self._threads.map(ask, questions)

    def ranked(self, question: Mapping[str, Any], method: str) -> Answered:
        """What is found; asked again as long as something is left out."""
        for _ in range(TRIES):
            began_s = time.perf_counter()
            document = self._ask(question, method, _JSON).json()
            ms = (time.perf_counter() - began_s) * 1_000
            found = [node["node_id"] for node in document["nodes"] if node["type"] == EVENT.label]
            answered = Answered(found, ms, bool(document["meta"]["degraded"]))
            if not answered.partial:
                break
        return answered

    def told(self, question: Mapping[str, Any], tokens: int) -> Told:
        """The narrative of so many tokens, by the default method; asked again likewise.

        That another answer at the same time lacked something may count for this one.
        """
        for _ in range(TRIES):
            before = _partial_answers()
            answer = self._ask(question, DEFAULT_METHOD, _MARKDOWN, max_tokens=tokens)
            told = Told(answer.text, _partial_answers() > before)
            if not told.partial:
                break
        return told

    def _ask(
        self, question: Mapping[str, Any], method: str, accept: str, **fields: Any
    ) -> httpx.Response:
        tenant = question["sample_id"]
        body = {
            "query": question["question"],
            "session_id": "bench",
            "agent_id": "bench",
            "retrieval_method": method,
            "max_nodes": MAX_NODES,
            "timeout_ms": TIMEOUT_MS,
            "record_access": False,
            "as_of": self._data.clocks[tenant],
            **fields,
        }
        for left in reversed(range(TRIES)):
            try:
                answer = self._clients[tenant].post(
                    "/v1/query/subgraph", json=body, headers={"Accept": accept}
                )
                answer.raise_for_status()
            except httpx.HTTPError:  # a machine that stood still for a while
                if not left:
                    raise
            else:
                return answer
        raise AssertionError("unreachable")


def _partial_answers() -> float:
    """How many the API has given since it began; a narrative does not say so itself."""
    (metric,) = metrics.QUERIES.collect()
    return sum(one.value for one in metric.samples if one.labels.get("outcome") == "partial")
