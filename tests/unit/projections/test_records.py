"""Records: what is read, what is refused and by which name, and how it is written again."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field, model_validator

from projections.errors import InvalidEvent
from projections.records import (
    Different,
    EntityId,
    EventId,
    Items,
    Record,
    Text,
    Timestamp,
    Whole,
    broken,
    parsed,
)

EVENT_ID = "01890a5d-ac96-774b-bcce-b302099a8057"
HASH = "0123456789abcdef"


class Inner(Record):
    """An object in a payload."""

    name: Annotated[str, Text(5)]
    reason: Literal["best", "last"] = "best"
    score: Annotated[float, Field(gt=0, le=1)] = 1.0
    at_ms: Timestamp | None = Field(default=None, alias="at")


class Outer(Record):
    """A payload."""

    ids: Annotated[Different[EntityId], Field(min_length=1, max_length=3)]
    inner: Items[Inner] = ()
    count: Whole = 3
    times: Annotated[dict[EventId, Whole], Field(max_length=2)] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _few(self) -> Outer:
        if self.count < len(self.ids):
            raise broken("count", "not below the number of ids")
        return self


def refused(payload: Any) -> dict[str, str]:
    with pytest.raises(InvalidEvent) as raised:
        parsed(Outer, payload)
    return dict(raised.value.errors)


def test_a_payload_is_read_and_written_again() -> None:
    payload = {
        "ids": [HASH],
        "inner": [{"name": "a\nb", "reason": "last", "score": 0.5, "at": "2026-01-02T03:04:05Z"}],
        "count": 1,
        "times": {EVENT_ID: 2},
    }
    record = parsed(Outer, payload)
    assert record.inner == (Inner(name="a\nb", reason="last", score=0.5, at_ms=1767323045000),)
    again = record.payload()
    assert again["inner"][0].pop("at") == "2026-01-02T03:04:05.000Z"
    payload["inner"][0].pop("at")  # type: ignore[index]
    assert again == payload


def test_null_is_absent_and_what_is_absent_is_not_written() -> None:
    record = parsed(Outer, {"ids": [f"entity:{HASH}"], "count": None, "inner": [{"name": "a"}]})
    assert record.count == 3
    assert record.payload()["ids"] == [HASH]
    assert "at" not in record.payload()["inner"][0]
    assert refused({"ids": None}) == {"payload.ids": "required"}


@pytest.mark.parametrize("payload", [None, [], "text", 5])
def test_only_an_object_is_a_payload(payload: Any) -> None:
    assert refused(payload) == {"payload": "a JSON object"}


def test_every_broken_rule_is_named_by_its_path() -> None:
    assert refused(
        {
            "ids": [HASH, f"entity:{HASH}"],
            "inner": [
                {"name": "a\x00", "reason": "first", "score": 0, "at": "2026-01-02"},
                {"name": "", "score": True, "at_ms": 5},
                {"name": "longer", "at": 5},
                3,
            ],
            "count": 1.0,
            "times": {"no id": 1, EVENT_ID: -1},
            "unheard": None,
        }
    ) == {
        "payload.ids": "different items",
        "payload.inner[0].name": "no control characters or lone surrogates",
        "payload.inner[0].reason": "one of 'best' or 'last'",
        "payload.inner[0].score": "a number above 0.0",
        "payload.inner[0].at": "an RFC 3339 time with zone, such as 2026-02-11T10:30:00Z",
        "payload.inner[1].name": "at least 1 characters",
        "payload.inner[1].score": "a number",
        "payload.inner[1].at_ms": "unknown field",
        "payload.inner[2].name": "at most 5 characters",
        "payload.inner[2].at": "a string",
        "payload.inner[3]": "a JSON object",
        "payload.count": "a whole number",
        "payload.times.no id": "an event id: a UUID in lower case",
        f"payload.times.{EVENT_ID}": "a number from 0 on",
        "payload.unheard": "unknown field",
    }


def test_a_rule_between_fields_names_the_one_that_is_refused() -> None:
    assert refused({"ids": [HASH], "count": 0}) == {"payload.count": "not below the number of ids"}


@pytest.mark.parametrize("text", ["\ud800", "a\x85", "\x7f"])
def test_control_characters_and_lone_surrogates_are_refused(text: str) -> None:
    payload = {"ids": [HASH], "inner": [{"name": text}]}
    assert refused(payload) == {"payload.inner[0].name": "no control characters or lone surrogates"}
