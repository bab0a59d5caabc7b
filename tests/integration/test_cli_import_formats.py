"""`recollect import` of foreign formats from outside: what it recognises, tells and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from pipelines.operations.formats.table import Format
from tests.format_samples import SAMPLES
from tests.integration.test_cli import Recollect, document, recollect

__all__ = ["recollect"]

pytestmark = pytest.mark.integration
(RUNS,) = (sample for sample in SAMPLES if sample.form is Format.LANGSMITH)
LINES = b"\n".join(json.dumps(record).encode() for record in RUNS.records)


def test_a_format_is_recognised_and_what_has_no_place_is_told(recollect: Recollect) -> None:
    told = document(recollect("import", "-", "--json", stdin=LINES))
    assert (told["ok"], told["format"], told["new"]) == (True, "langsmith", len(RUNS.events))
    assert {row["field"] for row in told["unmapped"]} == RUNS.unmapped
    again = recollect("import", "-", "--format", "langsmith", stdin=LINES)
    assert again.returncode == 0
    assert "0 new" in again.stdout
    assert "1 x feedback_stats: no event has a place for it" in again.stdout
    strict = recollect("import", "-", "--strict", "--json", stdin=LINES)
    assert (strict.returncode, document(strict)["new"]) == (4, 0)


def test_rows_need_a_mapping_that_is_right(recollect: Recollect, tmp_path: Path) -> None:
    rows = "when,what,who\n2026-03-01 10:00,Hello,ann\n"
    mapping = tmp_path / "mapping.toml"
    mapping.write_text(
        '[columns]\ntime = "when"\ntext = "what"\nagent = "who"\n'
        '[constants]\nsession = "notes"\nkind = "note.written"\n'
    )
    arguments = ("import", "-", "--mapping", str(mapping), "--timezone", "Europe/Berlin", "--json")
    assert document(recollect(*arguments, stdin=rows.encode()))["new"] == 1
    refused = recollect("import", "-", "--format", "rows", stdin=rows.encode())
    assert (refused.returncode, "--mapping: required" in refused.stderr) == (4, True)
    mapping.write_text("[columns]\ntime = 'when'\n")
    refused = recollect(*arguments[:4], stdin=rows.encode())
    assert (refused.returncode, "columns.text" in refused.stderr) == (4, True)
    envelope = b'{"event_type": "note.written"}'
    wrong = recollect("import", "-", "--user", "ann", stdin=envelope)
    assert (wrong.returncode, "not with --format events" in wrong.stderr) == (2, True)
    wrong = recollect("import", "-", "--timezone", "Europe/Berlin", stdin=envelope)
    assert (wrong.returncode, "holds no time without a zone" in wrong.stderr) == (2, True)
    wrong = recollect("import", "-", "--timezone", "Mars/Olympus", stdin=LINES)
    assert (wrong.returncode, "Mars/Olympus" in wrong.stderr) == (2, True)
