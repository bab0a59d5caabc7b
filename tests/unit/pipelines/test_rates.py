"""What two looks at a running service come to: figures a second, and a picture of them."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from pipelines.cli.top import curve, picture
from pipelines.operations.rates import Look, Samples, rates, samples_of

PAGE = """
# TYPE recollect_api_request_duration_seconds histogram
recollect_api_request_duration_seconds_bucket{{le="0.1",method="POST",route="{route}",status="2xx"}} {fast}
recollect_api_request_duration_seconds_bucket{{le="0.5",method="POST",route="{route}",status="2xx"}} {all}
recollect_api_request_duration_seconds_bucket{{le="+Inf",method="POST",route="{route}",status="2xx"}} {all}
recollect_api_request_duration_seconds_count{{method="POST",route="{route}",status="2xx"}} {all}
recollect_api_request_duration_seconds_count{{method="POST",route="/v1/events",status="5xx"}} {failed}
# TYPE recollect_queries counter
recollect_queries_total{{method="auto",outcome="answered"}} {all}
recollect_queries_total{{method="auto",outcome="partial"}} {failed}
# TYPE process_resident_memory_bytes gauge
process_resident_memory_bytes{{process="0"}} 100.0
process_resident_memory_bytes{{process="1"}} 50.0
"""  # noqa: E501


def page(fast: int, whole: int, failed: int = 0, route: str = "/v1/query/subgraph") -> Samples:
    return samples_of(PAGE.format(route=route, fast=fast, all=whole, failed=failed))


def stage(*seqs: int, **told: Any) -> dict[str, Any]:
    rows = [{"partition": number, "seq": seq} for number, seq in enumerate(seqs)]
    return {
        "started": True,
        "lag_entries": 0,
        "lag_seconds": 0.0,
        "dead_letters": 0,
        "held": None,
        "partitions": rows,
        **told,
    }


def look(at_s: float, samples: Samples | None = None, **told: Any) -> Look:
    entries = told.pop("entries", 0)
    memory = {"used_bytes": 2**20, "max_bytes": 0}
    status = {
        "ok": True,
        "active": "blue",
        "columns": None,
        "errors": [],
        "stages": {},
        "ledger": {"entries": entries, "memory": memory, "halted": {}},
        **told,
    }
    return Look(at_s, status, samples, "" if samples else "no API runs here")


def printed(document: dict[str, Any], shown: list[dict[str, Any]] | None = None) -> str:
    console = Console(width=200)
    with console.capture() as captured:
        console.print(picture(document, shown or [document]))
    return captured.get()


def test_what_grew_between_two_looks_is_told_a_second() -> None:
    first = look(10.0, page(10, 20), entries=100, stages={"projection": stage(60, 30)})
    stages = {"projection": stage(100, 50, lag_entries=10)}
    second = look(12.0, page(30, 60, failed=4), entries=160, stages=stages)
    told = rates(first, second)
    assert told["appended_per_s"] == 30
    assert told["stages"]["projection"]["folded_per_s"] == 30
    api = told["api"]
    assert (api["queries_per_s"], api["partial_per_s"], api["errors_per_s"]) == (22, 2, 2)
    assert api["requests_per_s"] == 22
    assert told["memory"]["api_bytes"] == 150
    text = printed(told)
    assert "30/s" in text
    assert "2.0/s failed" in text


def test_latencies_are_of_what_was_asked_in_between_as_exact_as_the_buckets() -> None:
    told = rates(look(0.0, page(100, 100)), look(1.0, page(120, 140)))["api"]["query_ms"]
    # 20 of 40 within 0.1 s, the others between 0.1 and 0.5
    assert told["p50"] == pytest.approx(100)
    assert told["p95"] == pytest.approx(100 + 400 * 18 / 20)
    nobody = rates(look(0.0, page(9, 9)), look(1.0, page(9, 9)))["api"]["query_ms"]
    assert set(nobody.values()) == {None}
    other = rates(look(0.0, page(0, 0, route="/v1/x")), look(1.0, page(9, 9, route="/v1/x")))
    assert set(other["api"]["query_ms"].values()) == {None}


def test_counters_that_began_again_are_not_taken_back() -> None:
    told = rates(look(0.0, page(50, 50)), look(1.0, page(5, 5)))
    assert told["api"]["queries_per_s"] == 5
    stages = ({"projection": stage(90)}, {"projection": stage(10, lag_entries=80)})
    again = rates(look(0.0, stages=stages[0]), look(1.0, stages=stages[1]))
    assert again["stages"]["projection"]["folded_per_s"] == 0
    assert "it stands still" in printed(again)


def test_what_nobody_says_is_not_told_as_nothing() -> None:
    stages = {"enrichment": stage(started=False, lag_entries=7)}
    told = rates(look(0.0, stages=stages), look(1.0, stages=stages))
    assert told["api"] is None
    assert told["stages"]["enrichment"]["folded_per_s"] is None
    text = printed(told)
    assert "never started" in text
    assert "no API runs here" in text


def test_a_stage_that_appears_in_between_has_no_rate_yet() -> None:
    told = rates(look(0.0), look(1.0, stages={"projection": stage(90)}))
    assert told["stages"]["projection"]["folded_per_s"] is None


def test_what_is_wrong_is_told() -> None:
    second = look(1.0, stages={"projection": stage(1, held={"reason": "x"}, dead_letters=3)})
    second.status["ledger"]["halted"] = {"0": "the graph is ahead"}
    second.status["ok"] = False
    text = printed(rates(look(0.0), second))
    assert "it holds" in text
    assert "partition 0 halted: the graph is ahead" in text
    assert "something needs attention" in text


@pytest.mark.parametrize(
    ("numbers", "expected"), [([], ""), ([0.0, 0.0], "▁▁"), ([0.0, 5.0, 10.0], "▁▅█")]
)
def test_curves_reach_as_high_as_their_highest(numbers: list[float], expected: str) -> None:
    assert curve(numbers) == expected
