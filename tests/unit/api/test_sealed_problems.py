"""What a sender is told of sealed tenants and of who was erased."""

from __future__ import annotations

import pytest

from api.errors import PROBLEMS, describe
from projections.errors import KeysUnavailable, RecollectError, SubjectErased


@pytest.mark.parametrize(
    ("error", "kind", "status", "retry"),
    [
        (KeysUnavailable(reason="the file is at /secret/place"), "keys-unavailable", 503, True),
        (SubjectErased(), "erased", 422, False),
    ],
)
def test_each_has_a_problem_of_its_own(
    error: RecollectError, kind: str, status: int, retry: bool
) -> None:
    told, detail, _ = describe(error)
    assert (told, PROBLEMS[told].status, PROBLEMS[told].retry) == (kind, status, retry)
    assert "/secret/place" not in detail
