"""What producers may send: one rule for the API and for import."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from enrichment.payloads import (
    MAX_ERRORS,
    PUBLIC,
    REQUESTED_EVENT,
    STATEMENTS,
    WITH_RULES,
    offered_event,
)
from projections.errors import InvalidEvent
from projections.events import SYSTEM_EVENTS, Event

NOW_MS = 1_800_000_000_000
FACT = {"source": {"name": "Ada"}, "relation": "works_at", "target": {"name": "Acme"}}
PAYLOADS: dict[str, Any] = {
    "memory.fact_asserted": FACT,
    "memory.fact_retracted": FACT,
    "memory.entity_corrected": {
        "entity_id": "entity:" + "0f" * 16,
        "correction": "rename",
        "name": "Ada",
    },
    "memory.feedback": {"useful": ["019c4d2e-8f00-7a31-9c54-0d9f6c1b2a77"]},
    "memory.consolidation_requested": {"session_id": "s"},
}


def offered(event_type: str = "memory.fact_asserted", /, **fields: Any) -> Event:
    raw = {
        "event_id": "019c4d2e-8f00-7a31-9c54-0d9f6c1b2a77",
        "event_type": event_type,
        "occurred_at": "2026-02-11T10:30:00Z",
        "session_id": "s",
        "agent_id": "a",
        "trace_id": "t",
        **fields,
    }
    return offered_event(raw, now_ms=NOW_MS, tenant="acme")


def broken(event_type: str = "memory.fact_asserted", /, **fields: Any) -> list[str]:
    with pytest.raises(InvalidEvent) as caught:
        offered(event_type, **fields)
    return [field for field, _ in caught.value.errors]


@pytest.mark.parametrize("event_type", sorted(SYSTEM_EVENTS))
def test_producers_send_public_system_events_only(event_type: str) -> None:
    payload = PAYLOADS.get(event_type)
    if SYSTEM_EVENTS[event_type].public:
        assert offered(event_type, payload=payload).event_type == event_type
    else:
        assert broken(event_type, payload=payload) == ["event_type"]


def test_a_system_event_that_nobody_knows_is_refused() -> None:
    assert broken("memory.invented") == ["event_type"]


def test_an_envelope_of_another_tenant_is_refused() -> None:
    assert broken("tool.execute", tenant="other") == ["tenant"]


def test_every_public_statement_of_the_enrichment_is_judged() -> None:
    owned = {name for name in PUBLIC if SYSTEM_EVENTS[name].owner == "enrichment"}
    assert owned == set(STATEMENTS)
    assert set(WITH_RULES) == set(PAYLOADS)


@pytest.mark.parametrize("event_type", WITH_RULES)
@pytest.mark.parametrize("payload", [3, [], "text"])
def test_a_statement_is_an_object(event_type: str, payload: Any) -> None:
    assert broken(event_type, payload=payload) == ["payload"]


@pytest.mark.parametrize("event_type", WITH_RULES)
def test_nothing_is_stated_by_nothing_but_a_request_for_all(event_type: str) -> None:
    if event_type == REQUESTED_EVENT:
        assert offered(event_type, payload=None).payload is None
    else:
        assert broken(event_type, payload=None) == ["payload"]


def test_a_statement_elsewhere_is_no_statement() -> None:
    assert broken(payload_ref="s3://bucket/fact.json") == ["payload"]


def test_every_broken_rule_of_a_statement_is_named() -> None:
    payload = {**FACT, "source": {"name": ""}, "edge_type": "Semantic", "colour": "red"}
    fields = broken(payload=payload)
    assert sorted(fields) == ["payload.colour", "payload.edge_type", "payload.source.name"]


def test_envelope_and_statement_are_judged_together() -> None:
    payload = {**FACT, "relation": "9"}
    fields = broken(payload=payload, agent_id="", status="odd")
    assert sorted(fields) == ["agent_id", "payload.relation", "status"]


@pytest.mark.parametrize(
    ("fields", "accepted"),
    [
        ({"valid_to": "2026-02-11T10:30:00.001Z"}, True),
        ({"valid_to": "2026-02-11T10:30:00Z"}, False),
        ({"valid_to": "2026-02-01T00:00:00Z"}, False),
        ({"valid_to": "2026-02-01T00:00:00Z", "valid_from": "2026-01-01T00:00:00Z"}, True),
        ({"valid_to": "2026-02-01T00:00:00Z", "valid_from": "2026-02-01T00:00:00Z"}, False),
    ],
)
def test_a_fact_ends_after_it_begins_by_default_when_it_occurred(
    fields: dict[str, str], accepted: bool
) -> None:
    payload = {**FACT, **fields}
    if accepted:
        assert offered(payload=payload).payload == payload
    else:
        assert broken(payload=payload) == ["payload.valid_to"]


def test_an_ordinary_event_may_hold_anything() -> None:
    assert offered("tool.execute", payload={"source": 3}).payload == {"source": 3}


def test_the_number_of_errors_is_bounded() -> None:
    fields = broken(payload={**FACT, **{f"x{n}": n for n in range(5_000)}})
    assert (len(fields), fields[-1]) == (MAX_ERRORS, "(more)")


def test_judging_loads_no_model() -> None:
    code = (
        "import sys, enrichment.payloads; "
        "print({m.split('.')[0] for m in sys.modules} "
        "& {'numpy', 'onnxruntime', 'spacy', 'tokenizers', 'torch', 'asyncio'})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
