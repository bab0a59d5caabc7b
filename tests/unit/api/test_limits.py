"""Limits: by key and by tenant, in a window that slides, with bounded memory."""

from __future__ import annotations

from typing import Any

import pytest

from api.errors import ApiProblem
from api.limits import MAX_COUNTED, Limits
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


def test_memory_is_bounded_whatever_tenants_are_named() -> None:
    limits = limits_of(request_limits={"*": "5/hour"})
    for number in range(2 * MAX_COUNTED):
        with_count = requests_until_refused(limits, "gateway", f"t{number}", most=1)
        assert with_count in (0, 1)
    assert len(limits._storage.storage) <= MAX_COUNTED + 600


@pytest.mark.parametrize("text", ["nonsense", "0/second", "5", "5/fortnight", "-1/day", "5/day;x"])
@pytest.mark.parametrize("name", ["request_limits", "event_limits", "overload_reserve"])
def test_a_broken_limit_refuses_to_start(name: str, text: str) -> None:
    value = text if name == "overload_reserve" else {"*": text}
    with pytest.raises(ConfigurationError, match=name):
        load_settings(**{name: value})
