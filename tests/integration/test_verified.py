"""What verify found last, as Prometheus sees it: by stage and target."""

from __future__ import annotations

import pytest

from pipelines.ledger.registry import verified_stage
from tests.integration.api_support import running_api
from tests.integration.enrichment_support import Enriched, said
from tests.integration.stack import Stack
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

SESSIONS = 4


@pytest.fixture
def enriched(stack: Stack) -> Enriched:
    made = Enriched(stack)
    made.take_in(
        *(said(n, "We like it.", session_id=f"session-{n}") for n in range(1, SESSIONS + 1))
    )
    return made


def found(stack: Stack) -> dict[str | None, float]:
    """Differences that the last verify of each stage reported."""
    return {
        verified_stage(report): report.values["differences"]
        for report in stack.services.reports.all()
        if report.target == stack.target.name
    }


def tamper(stack: Stack, sessions: int) -> None:
    stack.cypher(
        "MATCH (e:Event) WITH e ORDER BY e.session_id LIMIT $n SET e.text = 'x'", n=sessions
    )


def test_each_stage_has_a_report_of_its_own(enriched: Enriched) -> None:
    stack = enriched.stack
    stack.verify()
    assert found(stack) == {"projection": 0, "enrichment": 0}
    tamper(stack, 3)
    stack.verify(stage="enrichment")
    assert found(stack) == {"projection": 0, "enrichment": 3}


def test_what_was_mended_is_no_difference_any_more(enriched: Enriched) -> None:
    tamper(enriched.stack, 2)
    enriched.stack.verify()
    enriched.stack.verify(repair=True)
    assert found(enriched.stack) == {"projection": 0, "enrichment": 0}


def test_a_session_is_not_reported(enriched: Enriched) -> None:
    tamper(enriched.stack, 1)
    assert not enriched.stack.verify(session="session-1").ok
    assert not enriched.stack.verify(tenant="default").ok
    assert found(enriched.stack) == {}


def test_prometheus_sees_the_stage_that_differs(enriched: Enriched) -> None:
    stack, settings = enriched.stack, enriched.stack.services.settings
    tamper(stack, 3)
    stack.verify()
    wanted = {
        'recollect_verify_differences{stage="enrichment",target="blue"} 3.0',
        'recollect_verify_differences{stage="projection",target="blue"} 0.0',
        'recollect_verify_ok{stage="enrichment",target="blue"} 0.0',
        'recollect_verify_ok{stage="projection",target="blue"} 1.0',
    }
    with (
        running_api(
            str(settings.redis_url),
            str(settings.neo4j_url),
            partitions=settings.partitions,
            id_buckets=settings.id_buckets,
        ) as api,
        api.client() as client,
    ):
        wait_until(
            lambda: wanted <= set(client.get("/metrics").text.splitlines()), "all four are there"
        )
