"""What is documented is what is judged, and every error of ours has a problem."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from pydantic import BaseModel, ValidationError

from api.browse_schemas import NeighboursQuery, SessionsQuery
from api.dependencies import decode_json
from api.errors import PROBLEMS, ApiProblem, describe
from api.read_schemas import SubgraphQuery
from api.schemas import EntityCorrection, EventEnvelope
from enrichment.payloads import ENTITY_CORRECTED, parse_statement
from projections import errors
from projections.errors import (
    ArchiverUnderWay,
    InvalidEvent,
    PassUnderWay,
    RecollectError,
    StageBehind,
)
from projections.events import FIELDS, parse_event

NOW_MS = 1_800_000_000_000
EVENT: dict[str, Any] = {
    "event_id": "019c4d2e-8f00-7a31-9c54-0d9f6c1b2a77",
    "event_type": "tool.execute",
    "occurred_at": "2026-02-11T10:30:00Z",
    "session_id": "s",
    "agent_id": "a",
    "trace_id": "t",
}


IN_VAIN = {"since": "2026-02-12T00:00:00Z", "until": "2026-02-11T00:00:00Z"}


@pytest.mark.parametrize(
    ("model", "values", "field"),
    [
        (SubgraphQuery, {"query": "x", "session_id": "s", "agent_id": "a", **IN_VAIN}, "until"),
        (SessionsQuery, IN_VAIN, "until"),
        (NeighboursQuery, {"edge_types": ["FOO"]}, "edge_types"),
    ],
)
def test_a_rule_over_several_fields_names_one(
    model: type[BaseModel], values: dict[str, Any], field: str
) -> None:
    with pytest.raises(ValidationError) as refused:
        model.model_validate(values)
    assert [error["loc"] for error in refused.value.errors()] == [(field,)]


def test_the_documented_envelope_has_the_fields_that_are_accepted() -> None:
    assert set(EventEnvelope.model_fields) == FIELDS


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"event_type": "tool"},
        {"event_type": "Tool.execute"},
        {"importance_hint": 0},
        {"importance_hint": 11},
        {"importance_hint": 10},
        {"status": "done"},
        {"status": "failed"},
        {"session_id": ""},
        {"session_id": "x" * 513},
        {"session_id": "x" * 512},
        {"payload_ref": "x" * 2_049},
        {"tenant": "UPPER"},
        {"tenant": "acme"},
        {"surprise": 1},
        {"schema_version": 0},
        {"occurred_at": "yesterday"},
        {"occurred_at": "2026-02-11T10:30:00"},
        {"payload": {"any": ["json", 1.5, None]}},
    ],
)
def test_the_documented_rules_agree_with_the_judge(change: dict[str, Any]) -> None:
    raw = {**EVENT, **change}
    try:
        EventEnvelope.model_validate(raw)
        documented = True
    except ValidationError:
        documented = False
    try:
        parse_event(raw, now_ms=NOW_MS)
        accepted = True
    except InvalidEvent:
        accepted = False
    assert documented is accepted


HASH = "0f" * 16


@pytest.mark.parametrize(
    "body",
    [
        {"correction": "rename", "name": "Ada"},
        {"correction": "rename", "name": "Ada", "reason": "r" * 500},
        {"correction": "rename", "name": "Ada", "reason": "r" * 501},
        {"correction": "rename", "name": ""},
        {"correction": "rename", "name": "x" * 513},
        {"correction": "rename"},
        {"correction": "rename", "name": "Ada", "type": "user"},
        {"correction": "retype", "type": "service"},
        {"correction": "retype", "subtype": "host_name"},
        {"correction": "retype", "subtype": "Host"},
        {"correction": "retype", "type": "person"},
        {"correction": "alias", "name": "Ada", "type": "user", "subtype": "person"},
        {"correction": "alias", "name": "Ada"},
        {"correction": "split", "from": [HASH, f"entity:{'1a' * 16}"]},
        {"correction": "split", "from": []},
        {"correction": "split", "from": ["Ada"]},
        {"correction": "split", "from": [f"{n:032x}" for n in range(101)]},
        {"correction": "merge", "name": "Ada"},
        {"name": "Ada"},
        {},
    ],
)
def test_the_documented_corrections_agree_with_the_judge(body: dict[str, Any]) -> None:
    try:
        EntityCorrection.model_validate(body)
        documented = True
    except ValidationError:
        documented = False
    try:
        parse_statement(ENTITY_CORRECTED, {"entity_id": "ab" * 16, **body})
        accepted = True
    except InvalidEvent:
        accepted = False
    assert documented is accepted


@pytest.mark.parametrize("body", [b"", b"{", b"nope", b"[1,]", b"\xff", b'"\\ud800"', b"[" * 5000])
def test_what_is_not_json_is_a_problem(body: bytes) -> None:
    with pytest.raises(ApiProblem) as caught:
        decode_json(body)
    assert caught.value.kind == "malformed-json"


def _examples() -> list[RecollectError]:
    data = {
        "reason": "redis at 10.0.0.1 said no",
        "event_id": "x",
        "partition": 3,
        "position": "1-0",
        "timeout_ms": 5,
        "found": "a",
        "expected": 1,
        "stage": "projection",
        "generation": 1,
        "event_type": "memory.x",
        "name": "blue",
        "known": "none",
    }
    found: list[RecollectError] = []
    pending: list[type[RecollectError]] = [RecollectError]
    while pending:
        kind = pending.pop()
        pending.extend(kind.__subclasses__())
        if kind is errors.SubjectErased:
            found.append(errors.SubjectErased())
        elif issubclass(kind, errors.InvalidInput):
            found.append(kind((("field", "rule"),)))
        else:
            found.append(kind(**data))
    return found


@pytest.mark.parametrize("error", _examples(), ids=lambda error: type(error).__name__)
def test_every_error_has_a_problem_that_tells_nothing_of_the_inside(error: RecollectError) -> None:
    kind, detail, pairs = describe(error)
    assert kind in PROBLEMS
    assert detail
    assert b"10.0.0.1" not in orjson.dumps([detail, pairs])


def test_what_may_pass_later_is_503_or_504_and_says_when() -> None:
    for error in _examples():
        if error.retryable and not isinstance(error, PassUnderWay | StageBehind | ArchiverUnderWay):
            row = PROBLEMS[describe(error)[0]]
            assert row.status == 503
            assert row.retry
