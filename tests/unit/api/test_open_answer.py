"""Answers about what is not closed, and the day that a clock time is of."""

from __future__ import annotations

from datetime import UTC, timedelta, timezone
from typing import Any

import pytest

from api.retrieval.answering import planned, told
from api.retrieval.outstanding import open_answer, open_asked
from api.retrieval.persons import Asking
from api.retrieval.plan import Operator
from api.retrieval.planning import plan_of
from enrichment.event_kinds import EventKind
from pipelines.columns.records import OpenThings
from pipelines.columns.view import View
from pipelines.columns.view_reads import ViewReads
from pipelines.graph.reads.scope import Scope, Within
from projections.events import timestamp_ms
from tests.unit.pipelines.test_columns_stories import TENANT, made

NOW_MS = timestamp_ms("2026-11-24T18:00:00Z")
DAY_MS = timestamp_ms("2026-11-20T09:20:00Z")


@pytest.mark.parametrize(
    ("question", "stems"),
    [
        ("Is anything still open?", ()),
        ("What has not been done yet?", ()),
        ("What is still open for Lena?", ("lena",)),
        ("Which tickets are open?", ("ticket",)),
        ("Are there any open tasks?", ("task",)),
        ("Is anything unresolved since Monday?", ()),
    ],
)
def test_the_words_that_say_what_is_open_are_asked_for(
    question: str, stems: tuple[str, ...]
) -> None:
    assert open_asked(plan_of(question, NOW_MS)).stems == stems


def of(question: str, *ids: str, closed: tuple[str, ...] = ()) -> Any:
    plan = plan_of(question, NOW_MS)
    return open_answer(question, plan, open_asked(plan), OpenThings([*ids], [*closed]))


def test_what_is_open_is_listed_by_its_events() -> None:
    given = of("Which tickets are open?", "a", "b", closed=("c",))
    assert (given.type, given.value, given.evidence) == ("list", None, ["a", "b"])
    assert given.order == ["a", "b", "c"]
    assert given.confidence == 1.0


def test_how_many_is_a_count() -> None:
    given = of("How many tickets are still open?", "a", "b")
    assert (given.type, given.value) == ("count", 2)


def test_that_all_is_closed_is_an_answer() -> None:
    given = of("Is ticket 61 still open?", closed=("c",))
    assert (given.value, given.evidence, given.confidence) == ([], ["c"], 1.0)


def test_where_nothing_was_opened_nothing_is_known() -> None:
    given = of("Is anything still open?")
    assert (given.value, given.confidence) == ([], 0.0)


def test_what_was_never_opened_may_have_been_promised() -> None:
    assert of("What is still open for Lena?") is None


def reads(*events: dict[str, Any]) -> ViewReads:
    return ViewReads(View(made(*events), Scope(TENANT, None, NOW_MS)))


def asking(question: str, within: Within | None = None, zone: Any = UTC) -> Asking:
    return Asking(question, NOW_MS, zone=zone, session_id="s", within=within)


def test_a_time_without_a_day_is_of_the_newest_day_with_events() -> None:
    events = ({"occurred_at": DAY_MS - 10**8}, {"occurred_at": DAY_MS})
    (span,) = planned(reads(*events), asking("What failed after 9:15?")).spans
    assert span.first_ms == timestamp_ms("2026-11-20T09:15:00Z")
    assert span.end_ms == timestamp_ms("2026-11-21T00:00:00Z")


def test_what_is_to_come_is_no_such_day() -> None:
    events = ({"occurred_at": DAY_MS}, {"occurred_at": NOW_MS + 10**9})
    (span,) = planned(reads(*events), asking("What failed after 9:15?")).spans
    assert span.first_ms == timestamp_ms("2026-11-20T09:15:00Z")


def test_the_day_is_one_of_the_zone() -> None:
    late = ({"occurred_at": timestamp_ms("2026-11-20T23:30:00Z")},)
    zone = timezone(timedelta(hours=1))
    (span,) = planned(reads(*late), asking("What failed before noon?", zone=zone)).spans
    assert span.end_ms == timestamp_ms("2026-11-21T11:00:00Z")


def test_without_events_it_is_of_today() -> None:
    (span,) = planned(reads(), asking("What failed after 9:15?")).spans
    assert span.first_ms == timestamp_ms("2026-11-24T09:15:00Z")


def test_a_time_that_was_given_counts_instead() -> None:
    within = Within(since_ms=5, until_ms=7)
    (span,) = planned(reads(), asking("What failed after 9:15?", within)).spans
    assert (span.first_ms, span.end_ms) == (5, 7)


def test_open_things_are_told_before_stories_are_read() -> None:
    event = {"event_type": "task.created", "kind": EventKind.OTHER, "text": "task.created: sweep"}
    given = told(reads(event), asking("Is anything still open?"), hits=["e0"], vector=None)
    assert (given.plan.operator, given.evidence) == (Operator.OPEN, ["e0"])


def test_a_promise_is_looked_for_where_nothing_was_opened() -> None:
    event = {"speaker": "bot", "text": "bot: I will call Lena back tomorrow"}
    given = told(reads(event), asking("What is still open for Lena?"), hits=["e0"], vector=None)
    assert given.plan.operator is Operator.PROMISE
    assert given.order == ["e0"]
