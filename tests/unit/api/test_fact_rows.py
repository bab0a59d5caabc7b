"""Rows of facts as they are read from a graph."""

from __future__ import annotations

from typing import Any

import pytest

from pipelines.graph.reads.facts import _fact


def row(name: str, fact: str) -> dict[str, Any]:
    ends = {
        f"{side}_{field}": value
        for side, called in (("source", "u-1"), ("target", name))
        for field, value in (("id", called), ("name", called), ("type", "concept"))
    }
    return {**ends, "source_subtype": None, "target_subtype": None, "properties": {"fact": fact}}


@pytest.mark.parametrize(
    ("name", "fact", "shown"),
    [
        ("lake ombe", "u-1 has station Lake Ombe", "Lake Ombe"),
        ("Lake Ombe", "u-1 has station LAKE OMBE", "Lake Ombe"),  # the viewer sees who names it
        ("lake ombe", "u-1 has station Tel Ashur", "lake ombe"),
        ("", "u-1 has station Tel Ashur", ""),
    ],
)
def test_what_only_others_name_as_written_is_told_as_its_fact_writes_it(
    name: str, fact: str, shown: str
) -> None:
    assert _fact(row(name, fact)).target.name == shown
