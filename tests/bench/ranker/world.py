"""Developers' questions about agents' work, with all that a ranker knows of each event found.

The events are folded in memory by the first two stages, with the real models, and put into columns;
the questions go the way that the API takes, from the plan to the features.
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy
import orjson

from api.retrieval.gather import CHANNEL_HITS, MAX_NAMES
from api.retrieval.outstanding import otherwise_meant
from api.retrieval.plan import Operator, Plan
from api.retrieval.planning import plan_of
from api.retrieval.query_terms import QueryTerms, name_terms, query_terms
from api.retrieval.ranking import in_turn
from api.retrieval.story_features import Features, features_of
from api.retrieval.story_terms import stems_of_parts, stories_asked, story_terms
from enrichment.ports import Embedder
from pipelines.columns.loading import columns_of
from pipelines.columns.records import Stories
from pipelines.columns.tenant import Tenant
from pipelines.columns.view import View
from pipelines.columns.view_reads import ViewReads
from pipelines.graph.reads.scope import Scope
from pipelines.ledger.entries import Block
from pipelines.models.loaded import Models
from pipelines.operations.demo import scenario_path
from pipelines.work.enriching import enrichment_fold
from pipelines.work.settings import Settings
from pipelines.work.stages import ENRICHMENT
from projections.events import Event, parse_event, timestamp_ms
from tests.memory_stack import MemoryStack

INCIDENT = Path(__file__).with_name("incident_questions.jsonl")
"""Questions about the shipped scenario, with the grades of its events; none is trained on."""
INCIDENT_ASKED_AT = "2026-03-04T18:00:00Z"
DATA = Path(__file__).resolve().parents[4] / "shared/bench/agents"
UNTIL = "2026-11-20T18:00:00"
"""Of the questions; the events are of the sixteen days before."""
MISTAKEN = "mistaken"
"""The kind of questions that name another matter than they are about."""
_BLOCK = 500
_OF_WHATEVER = frozenset((Operator.SEARCH, Operator.SIMILAR, Operator.SUMMARY, Operator.WINDOW))
"""Operators of questions whose identifier says all that they are about, or nothing."""
Row = Mapping[str, Any]


class Asked(NamedTuple):
    """A question and what was found; `features` is None where nothing was."""

    question: Row
    plan: Plan
    stories: Stories
    features: Features | None

    def gold(self) -> Any:
        """The grade of each event: 3 best, 2 good, 1 context, 0 none."""
        grades = self.question["gold"]
        return numpy.array([grades.get(one, 0) for one in self.stories.ids], dtype=float)


def made(folder: Path) -> tuple[list[Row], list[Row]]:
    """Events and questions of the developers' set."""
    command = [sys.executable, str(DATA / "make.py"), "--out", str(folder), "--until", UNTIL]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return written(folder)


def written(folder: Path) -> tuple[list[Row], list[Row]]:
    """Events and questions of a set that the generator has written into a folder."""
    return lines(folder / "events.jsonl"), lines(folder / "questions.jsonl")


def incident() -> tuple[list[Row], list[Row]]:
    """Events of the shipped scenario, and an operator's questions about it."""
    events: list[Row] = [{**one, "tenant": "incident"} for one in lines(scenario_path())]
    same = {"tenant": "incident", "session_id": "ask", "user_id": None, "all_users": True}
    questions: list[Row] = [
        {**one, **same, "asked_at": INCIDENT_ASKED_AT, "abstain": not one["gold"]}
        for one in lines(INCIDENT)
    ]
    return events, questions


def lines(path: Path) -> list[Row]:
    """The rows of a file of JSON, a line each."""
    return [orjson.loads(line) for line in path.read_bytes().splitlines()]


def mistaken(questions: Sequence[Row]) -> Iterator[Row]:
    """Questions about one matter that name another one of the same person: nobody can answer them.

    What the other matter is called by stands in its identifier's place, where the two questions
    share neither a word that says what they are about nor an event that answers them.
    """
    named = [one for one in map(_Named.of, questions) if one is not None]
    for place, one in enumerate(named):
        others = (*named[place + 1 :], *named[:place])
        if other := next(filter(one.is_apart_from, others), None):
            text = re.sub(re.escape(one.identifier), other.identifier, one.text, flags=re.I)
            told = {"question": text, "gold": {}, "abstain": True, "kind": MISTAKEN}
            yield {**one.question, **told}


class _Named(NamedTuple):
    """A question that can be answered and names one identifier; the words of what it is about."""

    question: Row
    identifier: str
    words: frozenset[str]

    @property
    def text(self) -> str:
        return str(self.question["question"])

    @classmethod
    def of(cls, question: Row) -> _Named | None:
        plan = plan_of(question["question"], timestamp_ms(question["asked_at"]))
        terms = story_terms(question["question"], plan)
        if question["abstain"] or len(terms.identifiers) != 1 or plan.operator in _OF_WHATEVER:
            return None
        (identifier,) = terms.identifiers
        return cls(
            question, identifier, frozenset(terms.stems).difference(stems_of_parts(identifier))
        )

    def is_apart_from(self, other: _Named) -> bool:
        theirs = other.question
        is_same = all(self.question[name] == theirs[name] for name in ("tenant", "user_id"))
        shared = self.words & other.words or set(self.question["gold"]) & set(theirs["gold"])
        return is_same and self.identifier != other.identifier and not shared


def parsed(rows: Iterable[Row]) -> list[Event]:
    """The events of envelopes that name their tenant."""
    now_ms = time.time_ns() // 1_000_000
    return [parse_event(one, now_ms=now_ms, tenant=one["tenant"]) for one in rows]


def folded(events: Sequence[Event], models: Models) -> dict[str, Tenant]:
    """The columns of each tenant."""
    stack = MemoryStack(models=models)
    stack.ledger.identity = "ranker"
    for first in range(0, len(events), _BLOCK):
        stack.append(*events[first : first + _BLOCK])
    stack.fold(_BLOCK)
    runner = stack.new_runner(enrichment_fold(ENRICHMENT, stack.services, stack.target, models))
    runner.prepare(stack.ledger.partitions)
    for partition in range(stack.ledger.partitions):
        while entries := stack.ledger.read(
            partition, runner.checkpoint(partition).position, _BLOCK
        ):
            runner.apply(Block(partition, tuple(entries)))
    return columns_of(stack.graph)


def keeping(cache: Path) -> Models:
    """The models that are installed; the file keeps what they said, for a second run."""
    return Models(Settings(derivations_url=f"sqlite:///{cache}"))


def trained_on(events: Sequence[Row], questions: Sequence[Row], models: Models) -> Iterator[Asked]:
    """All that a table learns from of a set: its questions, and those that name another matter."""
    return asked(events, [*questions, *mistaken(questions)], models)


def asked(
    events: Sequence[Row],
    questions: Sequence[Row],
    models: Models,
    embedder: Embedder | None = None,
) -> Iterator[Asked]:
    """Each question with what columns find for it.

    Args:
        events: envelopes.
        questions: rows of the set.
        models: of the events.
        embedder: of the questions; None: that of the models.
    """
    embedder = embedder or models.embedder
    tenants = folded(parsed(events), models)
    for question in questions:
        now_ms = timestamp_ms(question["asked_at"])
        scope = Scope(
            question["tenant"],
            question["user_id"],
            now_ms,
            None,
            everyone=question["all_users"],
        )
        reads = ViewReads(View(tenants[question["tenant"]], scope))
        names = name_terms(question["question"]).names[:MAX_NAMES]
        speaking = reads.session(question["session_id"], names).speaking
        terms = query_terms(question["question"], speaking, now_ms=now_ms)
        yield _found(question, reads, terms, embedder)


def _found(question: Row, reads: ViewReads, terms: QueryTerms, embedder: Embedder) -> Asked:
    (packed,) = embedder.embed([terms.embedding_text])
    vector = numpy.frombuffer(packed, dtype="<f4").tolist()
    text = reads.text_hits(terms.stems, CHANNEL_HITS).shown
    near = reads.vector_hits(vector, CHANNEL_HITS).shown
    now_ms = timestamp_ms(question["asked_at"])
    plan = otherwise_meant(plan_of(question["question"], now_ms, vector=tuple(vector)))
    wanted = story_terms(question["question"], plan)
    stories = reads.stories(
        stories_asked(
            wanted,
            plan,
            hits=in_turn(text, near),
            vector=vector,
            session_id=question["session_id"],
        )
    )
    features = features_of(stories, wanted, plan, now_ms) if stories.ids else None
    return Asked(question, plan, stories, features)
