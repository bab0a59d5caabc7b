"""What a pass of consolidation is asked for."""

from __future__ import annotations

from typing import Any

import pytest

from enrichment.payloads import PassRequest, RequestedScope, parse_request
from projections.errors import InvalidEvent


@pytest.mark.parametrize("scope", [{}, {"session_id": "s"}, {"agent_id": "a"}])
def test_what_is_asked_for_comes_back(scope: dict[str, str]) -> None:
    payload = PassRequest(**scope, reason="because").payload()
    assert payload == {**scope, "reason": "because"}
    assert parse_request(payload) == RequestedScope(**scope)


def test_without_a_payload_the_whole_tenant_is_meant() -> None:
    assert parse_request(None) == RequestedScope()


@pytest.mark.parametrize(
    ("payload", "field"),
    [
        ([], "payload"),
        ({"tenant": "acme"}, "payload.tenant"),
        ({"session_id": ""}, "payload.session_id"),
        ({"agent_id": "x" * 513}, "payload.agent_id"),
        ({"reason": "x" * 1_001}, "payload.reason"),
        ({"session_id": "s", "agent_id": "a"}, "payload.agent_id"),
    ],
)
def test_what_breaks_a_rule_is_named(payload: Any, field: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        parse_request(payload)
    assert [name for name, _ in caught.value.errors] == [field]
