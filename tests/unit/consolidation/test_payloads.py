"""Payloads of decisions, byte by byte as the ledger has held them since there are decisions."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from consolidation.decisions import parse_decision
from consolidation.forgetting_payloads import Accessed, accessed_payloads
from projections.events import canonical_json
from projections.records import Record
from tests.decision_factories import system

RECORDED = Path(__file__).with_name("decisions.jsonl")
"""A line each: event type, and the canonical JSON of a payload; of every kind some."""
LINES = [line.split(" ", 1) for line in RECORDED.read_text(encoding="utf-8").split("\n") if line]


@pytest.mark.parametrize(("event_type", "recorded"), LINES)
def test_what_was_recorded_is_written_again_byte_by_byte(event_type: str, recorded: str) -> None:
    decision = parse_decision(system(9, event_type, orjson.loads(recorded)))
    if isinstance(decision, Accessed):
        (payload,) = accessed_payloads(decision)
    else:
        assert isinstance(decision, Record)
        payload = decision.payload()
    assert canonical_json(payload).decode() == recorded
