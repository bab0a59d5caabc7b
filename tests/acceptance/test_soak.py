"""Each kind of child and each holder is killed once under load: nothing lost, doubled or leaked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.acceptance.soak.storm import CHILDREN, HOLDERS, Soak

pytestmark = [pytest.mark.acceptance_long, pytest.mark.chaos]


@pytest.mark.timeout(2_400)
def test_kills_of_each_kind_lose_double_and_tell_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(text: str) -> None:
        with capsys.disabled():
            print(text)  # noqa: T201  minutes pass

    soak = Soak(tmp_path, 7, tell)
    soak.run(0, hangs=False)
    tell(soak.table())
    assert soak.failures() == []
    assert {outage.name for outage in soak.outages} == {*CHILDREN, *HOLDERS}
    assert soak.account.retries, "the faults struck nobody"
    shown = {route for route, code in soak.account.answers if code == 200}
    assert shown >= {"events", "context", "nodes", "entities", "facts", "subgraph"}
