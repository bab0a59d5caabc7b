"""The questions that models are compared by, and what columns hold of the events that answer them.

Two sets: conversations of people (LoCoMo) and of agents (tau-bench). The events are folded in
memory by the first two stages; of the models, only the one that embeds is exchanged.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy

from api.retrieval.gather import CHANNEL_HITS, MAX_NAMES
from api.retrieval.outstanding import otherwise_meant
from api.retrieval.planning import plan_of
from api.retrieval.query_terms import QueryTerms, name_terms, query_terms
from api.retrieval.ranking import MAX_CANDIDATES, MAX_WITH_NEIGHBOURS, in_turn
from api.retrieval.story_features import features_of
from api.retrieval.story_ranker import story_scores
from api.retrieval.story_terms import stories_asked, story_terms
from enrichment.ports import Embedder
from pipelines.columns.reads import Wanted
from pipelines.columns.records import Standings
from pipelines.columns.tenant import Tenant
from pipelines.columns.view import View
from pipelines.columns.view_reads import ViewReads
from pipelines.graph.reads.scope import Scope
from projections.events import Event, timestamp_ms
from tests.bench.ranker.world import parsed
from tests.bench.retrieval.__main__ import DATA as LOCOMO
from tests.bench.retrieval.__main__ import counts
from tests.bench.retrieval.served import read_conversations
from tests.bench.retrieval_methods.__main__ import DATA as TAU
from tests.bench.retrieval_methods.__main__ import NOW_MS, TENANT, chosen, imported
from tests.bench.retrieval_methods.label import sampled

Array = Any
_MULTI_HOP = 1
_TASKS = 15
_OF_EACH_INTENT = 60


class Question(NamedTuple):
    """A question and what answers it.

    Attributes:
        gold: ids of the events that answer it.
        ignored: ids of events that are neither right nor wrong.
        hops: its answer is spread over several events.
    """

    text: str
    tenant: str
    session_id: str
    user_id: str | None
    now_ms: int
    gold: frozenset[str]
    ignored: frozenset[str] = frozenset()
    hops: bool = False


class Asked(NamedTuple):
    """A question, and all that is known of the events that may answer it.

    Attributes:
        found: the pool that the product ranks: what channels find, and what stands around it.
        whole: all events of the tenant.
        stories: ids of the events in the order of the ranking by stories.
    """

    question: Question
    terms: QueryTerms
    found: Standings
    whole: Standings
    stories: Sequence[str]


def people() -> tuple[list[Event], list[Question]]:
    """LoCoMo's conversations, and the questions that count."""
    data = read_conversations(LOCOMO / "data")
    questions = [
        Question(
            text=row["question"],
            tenant=row["sample_id"],
            session_id="unknown",
            user_id=None,
            now_ms=timestamp_ms(data.clocks[row["sample_id"]]),
            gold=frozenset(row["gold_event_ids"]),
            hops=row["category"] == _MULTI_HOP,
        )
        for row in filter(counts, data.questions)
    ]
    return parsed(data.events), questions


def agents() -> tuple[list[Event], list[Question]]:
    """tau-bench's conversations, and the labelled questions about them."""
    conversations = chosen(TAU, _TASKS)
    data = imported(conversations)
    questions = []
    for one in sampled(conversations, _OF_EACH_INTENT):
        session_id, user_id = data.sessions[one.conversation]
        gold = frozenset(data.ids[place] for place in one.gold)
        ignored = frozenset(data.ids[place] for place in one.ignored) - gold
        place = (TENANT, session_id, user_id, NOW_MS)
        questions.append(Question(one.text, *place, gold, ignored))
    return data.events, questions


def asked(
    questions: Sequence[Question], tenants: Mapping[str, Tenant], embedder: Embedder
) -> Iterator[Asked]:
    """Each question with what columns find for it, by the steps of the API.

    Args:
        tenants: columns by tenant.
        embedder: of questions.
    """
    for question in questions:
        scope = Scope(question.tenant, question.user_id, question.now_ms, None)
        reads = ViewReads(View(tenants[question.tenant], scope))
        names = name_terms(question.text).names[:MAX_NAMES]
        speaking = reads.session(question.session_id, names).speaking
        terms = query_terms(question.text, speaking, now_ms=question.now_ms)
        (packed,) = embedder.embed([terms.embedding_text])
        vector = numpy.frombuffer(packed, dtype="<f4").tolist()
        near = reads.vector_hits(vector, len(tenants[question.tenant].events.ids)).shown
        text = reads.text_hits(terms.stems, CHANNEL_HITS).shown
        hits = in_turn(text, near[:CHANNEL_HITS])[:MAX_CANDIDATES]
        around, alone = hits[:MAX_WITH_NEIGHBOURS], hits[MAX_WITH_NEIGHBOURS:]
        wanted = Wanted(around, alone, met=(), most_met=0, stems=terms.stems, vector=vector)
        everything = wanted._replace(around=(), ids=[hit.event_id for hit in near])
        yield Asked(
            question,
            terms,
            found=reads.standings(wanted),
            whole=reads.standings(everything),
            stories=_by_stories(question, reads, hits, vector),
        )


def _by_stories(
    question: Question, reads: ViewReads, hits: Sequence[str], vector: Sequence[float]
) -> list[str]:
    plan = otherwise_meant(plan_of(question.text, question.now_ms))
    wanted = story_terms(question.text, plan)
    stories = reads.stories(
        stories_asked(wanted, plan, hits=hits, vector=vector, session_id=question.session_id)
    )
    if not stories.ids:
        return []
    scores = story_scores(features_of(stories, wanted, plan, question.now_ms), plan)
    return [stories.ids[at] for at in numpy.argsort(-scores, kind="stable")]
