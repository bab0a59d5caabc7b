"""What another session did that stands behind a failure: by what it blames, or by its meaning."""

from __future__ import annotations

from typing import Any

from enrichment.event_kinds import EventKind
from pipelines.columns.cross_session import causes_elsewhere, changes_before
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


def leaning(first: int, second: int) -> list[float]:
    """A vector of unit length between two directions."""
    return [0.8 if place == first else 0.6 * (place == second) for place in range(384)]


def changed(session: str, towards: int, **fields: Any) -> dict[str, Any]:
    vector = leaning(towards, 9)
    kind, ids = EventKind.OTHER, tuple[str, ...]()
    common = {"text": "a setting", "event_type": "config.changed", "kind": kind, "ids": ids}
    return {**common, "session_id": session, "embedding": vector, **fields}


def guessed(*events: dict[str, Any], user: str | None = None) -> dict[int, int]:
    """Rows of changes that may be behind a failure, of which nothing else is known."""
    call, failure = failing()
    told = [*events, call, {**failure, "embedding": leaning(1, 2)}]
    view = View(columns(*told), Scope(TENANT, user, 10**13, everyone=user is None))
    return changes_before(view, [len(told) - 1])


def test_the_change_that_means_most_like_a_failure_may_be_behind_it() -> None:
    assert guessed(changed("a", 3), changed("b", 1), changed("c", 4)) == {1: 4}


def test_a_change_that_is_near_to_every_failure_is_behind_none_of_them_for_that() -> None:
    others = [{**failing()[1], "session_id": f"s{one}"} for one in range(6)]
    usual = [{**one, "embedding": leaning(2, 9)} for one in others]
    like_all = {1: 0.35, 2: 0.9, 8: 0.26}
    nearest = [like_all.get(place, 0.0) for place in range(384)]
    both = [changed("a", 1), changed("b", 1, embedding=nearest)]
    assert guessed(*both) == {1: 3}
    assert guessed(*usual, *both) == {6: 9}


def test_what_is_like_nothing_of_a_failure_is_not_behind_it() -> None:
    assert guessed(changed("a", 3)) == {}


def test_only_a_change_of_another_session_that_worked_may_be_behind_it() -> None:
    assert guessed(changed("late", 1)) == {}
    assert guessed(changed("a", 1, event_type="config.read")) == {}
    assert guessed(changed("a", 1, status="failed")) == {}
    assert guessed(changed("a", 1, user_id="hana"), user="teo") == {}
