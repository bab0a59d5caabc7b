"""The Python client knows the API as it is."""

from __future__ import annotations

import pytest

from api.errors import PROBLEMS, problem
from projections.events import MAX_PAYLOAD_BYTES
from recollect import AsyncMemory, Memory, events, models
from recollect.calls import Reply, error_of
from recollect.errors import ApiError, InvalidInput, ServerFault, Unavailable
from tests.client_models import TARGET, generated

RETRIED = {kind for kind, row in PROBLEMS.items() if row.retry}


def test_the_models_are_those_of_the_api() -> None:
    """Else: `python -m tests.client_models`."""
    assert TARGET.read_text(encoding="utf-8") == generated()


@pytest.mark.parametrize("kind", PROBLEMS)
def test_every_problem_has_a_type_that_says_whether_to_try_again(kind: str) -> None:
    body = problem(kind, "so it is", errors=[("query", "at most 8192 characters")], request_id="r")
    reply = Reply(PROBLEMS[kind].status, {"retry-after": "7"}, body.model_dump_json().encode())

    error = error_of(reply)

    assert type(error) is not ApiError
    assert error.retryable is (kind in RETRIED)
    assert (error.kind, error.status, error.request_id) == (kind, PROBLEMS[kind].status, "r")
    assert [(rule.field, rule.rule) for rule in error.errors] == [
        ("query", "at most 8192 characters")
    ]
    assert error.retry_after_s == 7.0


@pytest.mark.parametrize(
    ("status", "kind"),
    [(502, Unavailable), (500, ServerFault), (503, Unavailable), (418, InvalidInput)],
)
def test_what_a_proxy_says_is_an_error_of_its_status(status: int, kind: type[ApiError]) -> None:
    error = error_of(Reply(status, {}, b"<html>no"))
    assert (type(error), error.status, error.detail) == (kind, status, "<html>no")


def test_an_answer_of_a_newer_api_is_read() -> None:
    told = '{"source": "a", "target": "b", "type": "NEW", "properties": {}, "since": 3}'
    edge = models.Edge.model_validate_json(told)
    assert (edge.type, getattr(edge, "since", None)) == ("NEW", 3)


@pytest.mark.parametrize("client", [Memory, AsyncMemory])
def test_an_address_that_is_none_is_refused_at_once(client: type[Memory | AsyncMemory]) -> None:
    with pytest.raises(ValueError, match=r"url: '127\.0\.0\.1:8080' is no address of an API"):
        client("127.0.0.1:8080")


def test_a_tool_cut_to_size_fits_into_the_ledger() -> None:
    assert events.MAX_TOOL_BYTES < MAX_PAYLOAD_BYTES
