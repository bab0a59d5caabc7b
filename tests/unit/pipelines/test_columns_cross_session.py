"""What a failure blames: the last act of another session about what its call did not name."""

from __future__ import annotations

from typing import Any

from enrichment.event_kinds import EventKind
from pipelines.columns.cross_session import causes_elsewhere
from pipelines.columns.view import View
from pipelines.graph.reads.scope import Scope
from tests.unit.pipelines.test_columns_open import columns, tool
from tests.unit.pipelines.test_columns_stories import TENANT

FAILURE = EventKind.FAILURE


def failing(*blamed: str, asked: tuple[str, ...] = ()) -> list[dict[str, Any]]:
    call, outcome = tool("lend_book", "a book", *asked, session_id="late", user_id="teo")
    return [call, {**outcome, "kind": FAILURE, "ids": blamed}]


def stop(session: str, *ids: str, name: str = "create_stop", **fields: Any) -> list[dict[str, Any]]:
    return tool(name, "no loans", *ids, session_id=session, **fields)


def behind(*events: dict[str, Any], user: str | None = None) -> dict[int, int]:
    """Rows of causes of the last event, which failed."""
    view = View(columns(*events), Scope(TENANT, user, 10**13, everyone=user is None))
    return causes_elsewhere(view, [len(events) - 1])


def test_the_last_act_about_what_is_blamed_stands_behind_a_failure() -> None:
    events = [*stop("a", "=st-4"), *stop("b", "=st-4"), *stop("c", "=st-5"), *failing("st-4")]
    assert behind(*events) == {3: 7}


def test_a_name_of_parts_is_blamed_and_a_word_is_not() -> None:
    assert behind(*stop("a", "=queue.limit"), *failing("queue.limit")) == {1: 3}
    assert behind(*stop("a", "=queue"), *failing("queue")) == {}


def test_what_the_call_named_is_not_blamed() -> None:
    assert behind(*stop("a", "=st-4"), *failing("st-4", asked=("st-4",))) == {}


def test_what_the_session_spoke_of_is_its_own() -> None:
    assert behind(*stop("a", "=st-4"), *stop("late", "=st-4"), *failing("st-4")) == {}


def test_who_only_looks_decides_nothing() -> None:
    assert behind(*stop("a", "=st-4", name="get_stop"), *failing("st-4")) == {}


def test_what_a_viewer_does_not_see_is_not_told() -> None:
    events = [*stop("a", "=st-4", user_id="hana"), *failing("st-4")]
    assert behind(*events, user="teo") == {}
    assert behind(*events) == {1: 3}
