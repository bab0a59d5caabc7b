"""`recollect recall-forgotten` from outside: what it refuses, looks at and does."""

from __future__ import annotations

import json

import pytest

from consolidation.summary_payloads import summary_id
from tests.factories import event_id
from tests.integration.test_cli import Recollect, recollect

pytestmark = pytest.mark.integration
__all__ = ["recollect"]  # the fixture


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ([], "--all"),
        (["--event", "x"], "UUID"),
        (["--summary", "summary:x"], "summary:<hash>"),
        (["--session", "s", "--since", "yesterday"], "--since"),
    ],
)
def test_what_names_nothing_is_refused(
    recollect: Recollect, options: list[str], named: str
) -> None:
    done = recollect("recall-forgotten", *options)
    assert (done.returncode, named in done.stderr) == (2, True)


def test_where_nothing_was_forgotten_there_is_nothing_to_do(recollect: Recollect) -> None:
    named = ["--event", event_id(1), "--summary", f"summary:{summary_id('t', 'session', 's')}"]
    for options in (["--all"], ["--all", "--dry-run"], named):
        done = recollect("recall-forgotten", *options, "--json")
        document = json.loads(done.stdout)
        assert (done.returncode, document["found"], document["recalled"]) == (0, 0, 0)
