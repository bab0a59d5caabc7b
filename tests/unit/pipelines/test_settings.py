"""Settings of retention, recall and the archive: checked before anything runs."""

from __future__ import annotations

from typing import Any

import pytest

from consolidation.retention import DEFAULT_POLICY, KEEPS_EVERYTHING
from pipelines.local.workers import ARCHIVE, Processes
from pipelines.operations.status import recall_mode
from pipelines.work.settings import Settings, load_settings
from projections.errors import ConfigurationError


@pytest.mark.parametrize("url", ["/mnt/ledger", "file:///mnt/ledger", "s3://bucket/memory"])
def test_a_folder_or_a_bucket_is_taken(url: str) -> None:
    assert load_settings(archive_url=url).archive_url == url


@pytest.mark.parametrize(
    ("url", "rule"),
    [
        ("ledger", "absolute path"),
        ("s3://key:secret@bucket/memory", "without login"),
        ("zip://a::https://other", "plain path or URL"),
        ("s3://bucket/memory?versionId=1", "plain path or URL"),
        ("/", "should name a folder"),
    ],
)
def test_others_are_refused_by_name_and_rule(url: str, rule: str) -> None:
    with pytest.raises(ConfigurationError, match=f"archive_url: .*{rule}") as refused:
        load_settings(archive_url=url)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("url", [None, "/mnt/ledger"])
def test_an_archiver_is_started_only_where_there_is_a_place(
    url: str | None, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("data")
    children = Processes(load_settings(archive_url=url, data_dir=folder)).children
    assert (f"worker-{ARCHIVE}" in [child.name for child in children]) == (url is not None)


def test_the_mode_is_said_as_the_seed_says_it() -> None:
    assert recall_mode(Settings()) == "BFS"
    activated = Settings(spreading_activation=True)
    assert recall_mode(activated) == "spreading activation (lambda=0.85, hops=3)"


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"max_hops": 0}, "max_hops"),
        ({"decay_lambda": 0.0}, "decay_lambda"),
        ({"activation_threshold": 0.8}, "inhibition_threshold"),
        ({"inhibition_threshold": 0.1}, "inhibition_threshold"),
    ],
)
def test_contradictory_settings_refuse_to_start(options: dict[str, float], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        load_settings(**options)


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
