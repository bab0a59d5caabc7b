"""What is forgotten otherwise than by default, by tenant: checked before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.retention import DEFAULT_POLICY, KEEPS_EVERYTHING
from pipelines.work.settings import load_settings
from projections.errors import ConfigurationError


def test_a_tenants_own_comes_before_what_holds_for_all() -> None:
    settings = load_settings(
        retention={"*": {"archive_after_h": 2_160, "similar_keep": 5}, "acme": {"similar_keep": 2}}
    )
    acme, other = settings.retention_of("acme"), settings.retention_of("other")
    assert (acme.archive_after_h, acme.similar_keep) == (2_160, 2)
    assert (other.archive_after_h, other.similar_keep) == (2_160, 5)


def test_forgetting_is_switched_off_for_one() -> None:
    settings = load_settings(retention={"*": {"enabled": True}, "acme": {"enabled": False}})
    assert settings.retention_of("other").enabled
    assert not settings.retention_of("acme").enabled


def test_nothing_is_forgotten_unless_somebody_says_so() -> None:
    assert load_settings().retention_of("acme") == KEEPS_EVERYTHING
    said = load_settings(retention={"acme": {"archive_after_h": 2_160}})
    assert not said.retention_of("acme").enabled
    switched_on = load_settings(retention={"acme": {"enabled": True}})
    assert switched_on.retention_of("acme") == DEFAULT_POLICY
    assert switched_on.retention_of("other") == KEEPS_EVERYTHING


def test_it_is_read_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECOLLECT_RETENTION", '{"acme": {"cold_min_accesses": 9}}')
    assert load_settings().retention_of("acme").cold_min_accesses == 9


@pytest.mark.parametrize(
    ("retention", "named"),
    [
        ({"acme": {"warm_after": 1}}, "retention.warm_after"),
        ({"acme": {"similar_keep": -1}}, "retention.similar_keep"),
        ({"*": {"cold_after_h": 1_000}}, "retention.archive_after_h"),
        ({"*": {"cold_after_h": 700}, "acme": {"archive_after_h": 600}}, "acme"),
        ({"A tenant": {}}, "retention"),
        ({"acme": True}, "retention.acme"),
    ],
)
def test_a_broken_policy_refuses_to_start_and_is_named(retention: Any, named: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        load_settings(retention=retention)
    assert named in str(raised.value)
