"""Every question about tombstones is answered by a key or an index."""

from __future__ import annotations

import neo4j
import pytest

from pipelines.graph.reads import tombstones as recall_reads
from tests.contracts.test_consolidation_questions import assert_no_scan, driver

pytestmark = pytest.mark.integration
__all__ = ["driver"]  # the fixture

READS = {
    name: text
    for name, text in vars(recall_reads).items()
    if isinstance(text, str) and "MATCH" in text and "$tenant" in text
}
ASKED = {
    **dict.fromkeys(("tenant", "session_id", "event_id", "id"), "x"),
    **dict.fromkeys(("since_ms", "until_ms", "at_ms", "limit"), 1),
    "ids": ["x"],
}


def test_all_questions_are_asked_about() -> None:
    assert len(READS) == 4


@pytest.mark.parametrize("name", READS)
def test_no_question_scans(driver: neo4j.Driver, name: str) -> None:
    assert_no_scan(driver, READS[name], **ASKED)
