"""Limits: by key and by tenant, in a window that slides, with bounded memory."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from subprocess import PIPE
from typing import Any

import pytest

from api.errors import ApiProblem
from api.rate_limits import TABLE_BYTES, Limits, SharedCounts
from pipelines.work.settings import Settings, load_settings
from projections.errors import ConfigurationError


def limits_of(**options: Any) -> Limits:
    return Limits(Settings(**options))


def requests_until_refused(limits: Limits, key: str, tenant: str, most: int = 50) -> int:
    for number in range(most):
        try:
            limits.admit_request(key, tenant)
        except ApiProblem:
            return number
    return most


def test_a_key_is_refused_beyond_its_limit_and_others_are_not() -> None:
    limits = limits_of(request_limits={"*": "5/hour", "import": "7/hour", "free": ""})
    assert requests_until_refused(limits, "a", "acme") == 5
    assert requests_until_refused(limits, "a", "other") == 5
    assert requests_until_refused(limits, "b", "acme") == 5
    assert requests_until_refused(limits, "import", "acme") == 7
    assert requests_until_refused(limits, "free", "acme") == 50


def test_a_refusal_says_when_to_come_back() -> None:
    limits = limits_of(request_limits={"*": "1/hour"})
    limits.admit_request("a", "acme")
    with pytest.raises(ApiProblem) as refused:
        limits.admit_request("a", "acme")
    assert (refused.value.status_code, refused.value.kind) == (429, "rate-limited")
    assert refused.value.headers is not None
    assert 1 <= int(refused.value.headers["Retry-After"]) <= 7_200


def test_a_tenant_that_floods_is_refused_and_others_are_not() -> None:
    limits = limits_of(event_limits={"*": "100/hour", "acme": "10/hour;1000/day"})
    limits.admit_events("acme", 10)
    with pytest.raises(ApiProblem, match="At most 10 events in 3,600 s"):
        limits.admit_events("acme", 1)
    limits.admit_events("other", 100)


def test_a_quota_holds_beside_a_rate() -> None:
    limits = limits_of(event_limits={"*": "100/second;120/day"})
    limits.admit_events("acme", 100)
    with pytest.raises(ApiProblem, match="At most"):
        limits.admit_events("acme", 100)


def test_what_is_refused_is_not_counted() -> None:
    limits = limits_of(event_limits={"*": "100/hour;10/day"})
    for _ in range(20):
        with pytest.raises(ApiProblem, match="At most 10 events"):
            limits.admit_events("acme", 11)
    limits.admit_events("acme", 10)


def test_while_others_overload_a_tenant_has_its_reserve() -> None:
    limits = limits_of(overload_reserve="3/hour")
    flood = [limits.has_reserve("flood", 1) for _ in range(5)]
    assert flood == [True, True, True, False, False]
    assert limits.has_reserve("quiet", 3)
    assert not limits_of(overload_reserve="").has_reserve("quiet", 1)


def test_who_names_any_number_of_tenants_gets_no_more_than_shares(tmp_path: Path) -> None:
    counts = tmp_path / "limits"
    limits = Limits(Settings(request_limits={"*": "5/hour"}), counts)
    names = TABLE_BYTES // 32 * 2
    admitted = sum(
        requests_until_refused(limits, "gateway", f"t{number}", most=1) for number in range(names)
    )
    assert counts.stat().st_size == TABLE_BYTES
    assert names / 3 < admitted < names * 0.8, "the rest shared what was left"
    assert requests_until_refused(limits, "gateway", "t0") <= 5, "no name has more than its limit"


_ADMIT = """
import sys
import time
from pathlib import Path
from limits import parse
from limits.strategies import SlidingWindowCounterRateLimiter
from api.rate_limits import SharedCounts
counts = SharedCounts(Path(sys.argv[1]))
windows, limit = SlidingWindowCounterRateLimiter(counts), parse("400/day")
if sys.argv[2:] == ["hold"]:
    with counts._locked():
        print("ready", flush=True)
        sys.stdin.readline()
print("ready", flush=True)
sys.stdin.readline()
admitted = 0
for _ in range(400):
    admitted += windows.hit(limit, "requests", "a")
    time.sleep(0.001)  # the others have their turn, on a machine of one processor too
print(admitted)
"""


def test_processes_that_count_at_once_admit_what_one_would(tmp_path: Path) -> None:
    """One that is killed with the lock in hand keeps nobody out."""
    command = [sys.executable, "-c", _ADMIT, str(tmp_path / "limits")]
    with ExitStack() as stack:

        def start(*how: str) -> subprocess.Popen[str]:
            child = subprocess.Popen([*command, *how], stdin=PIPE, stdout=PIPE, text=True)
            stack.enter_context(child)
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"
            return child

        children = [start() for _ in range(3)]
        holder = start("hold")
        for child in children:
            assert child.stdin is not None
            child.stdin.write("go\n")
            child.stdin.flush()
        with pytest.raises(subprocess.TimeoutExpired):
            children[0].wait(0.5)
        holder.kill()
        admitted = [int(child.communicate()[0]) for child in children]
    assert sum(admitted) == 400
    assert max(admitted) < 400, "they counted side by side"


def test_a_count_ends_and_its_place_is_used_again(tmp_path: Path) -> None:
    counts = SharedCounts(tmp_path / "limits")
    assert counts.incr("short", 0.05) == 1
    assert counts.incr("short", 0.05, 4) == 5
    assert counts.get_expiry("short") > time.time()
    time.sleep(0.06)
    assert (counts.get("short"), counts.incr("short", 60)) == (0, 1)
    assert SharedCounts(tmp_path / "limits").get("short") == 1, "as another process sees it"
    counts.clear("short")
    assert counts.get("short") == 0
    counts.incr("a", 60)
    counts.reset()
    assert (counts.get("a"), counts.check()) == (0, True)


@pytest.mark.parametrize("text", ["nonsense", "0/second", "5", "5/fortnight", "-1/day", "5/day;x"])
@pytest.mark.parametrize("name", ["request_limits", "event_limits", "overload_reserve"])
def test_a_broken_limit_refuses_to_start(name: str, text: str) -> None:
    value = text if name == "overload_reserve" else {"*": text}
    with pytest.raises(ConfigurationError, match=name):
        load_settings(**{name: value})
