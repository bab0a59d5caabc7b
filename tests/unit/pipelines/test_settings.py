"""Settings: checked before anything runs, and read from files as Docker mounts secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from consolidation.retention import DEFAULT_POLICY, KEEPS_EVERYTHING
from pipelines.local.workers import ARCHIVE, Processes
from pipelines.operations.status import recall_mode
from pipelines.work import settings as module
from pipelines.work.settings import SECRETS_FOLDER, Settings, load_settings
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
        ({"redis_timeout_s": float("inf")}, "redis_timeout_s"),
        ({"transaction_timeout_s": float("nan")}, "transaction_timeout_s"),
    ],
)
def test_contradictory_settings_refuse_to_start(options: dict[str, Any], named: str) -> None:
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


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(SECRETS_FOLDER, str(tmp_path))
    return tmp_path


def test_a_file_is_a_setting_and_its_last_line_break_is_none_of_it(folder: Path) -> None:
    (folder / "recollect_redis_password").write_text("of redis\n")
    (folder / "RECOLLECT_NEO4J_PASSWORD").write_text("of neo4j")
    (folder / "recollect_api_keys").write_text(
        '[{"name": "agent", "key": "0123456789abcdef", "role": "write"}]\n'
    )
    settings = load_settings()
    assert settings.redis_password is not None
    assert settings.redis_password.get_secret_value() == "of redis"
    assert settings.neo4j_password is not None
    assert settings.neo4j_password.get_secret_value() == "of neo4j"
    assert [key.key.get_secret_value() for key in settings.api_keys] == ["0123456789abcdef"]
    assert "of redis" not in repr(settings)


def test_the_environment_goes_before_a_file_and_an_option_before_both(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "recollect_redis_url").write_text("redis://file:6379/0")
    assert load_settings().redis_url == "redis://file:6379/0"
    monkeypatch.setenv("RECOLLECT_REDIS_URL", "redis://environment:6379/0")
    assert load_settings().redis_url == "redis://environment:6379/0"
    assert load_settings(redis_url="redis://option:6379/0").redis_url == "redis://option:6379/0"


def test_files_of_others_are_left_alone_and_a_misspelt_one_refuses_to_start(folder: Path) -> None:
    (folder / "grafana_password").write_text("not ours")
    (folder / "..data").mkdir()  # Kubernetes
    load_settings()
    (folder / "recollect_redis_pasword").write_text("of redis")
    with pytest.raises(ConfigurationError, match="RECOLLECT_REDIS_PASSWORD"):
        load_settings()


def test_a_wrong_value_is_named_and_not_shown(folder: Path) -> None:
    (folder / "recollect_api_keys").write_text('[{"name": "agent", "key": "too short"}]')
    with pytest.raises(ConfigurationError) as raised:
        load_settings()
    assert "api_keys.0.key" in str(raised.value)
    assert "too short" not in str(raised.value)


def test_a_list_that_is_no_json_is_named_and_not_shown(folder: Path) -> None:
    (folder / "recollect_api_keys").write_text("[0123456789abcdef")
    with pytest.raises(ConfigurationError, match="api_keys") as raised:
        load_settings()
    assert "0123456789abcdef" not in str(raised.value)


def test_a_folder_that_is_named_must_be_there_and_the_usual_one_need_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_SECRETS_DIR", tmp_path / "none")
    assert load_settings().redis_password is None
    monkeypatch.setenv(SECRETS_FOLDER, str(tmp_path / "none"))
    with pytest.raises(ConfigurationError, match=SECRETS_FOLDER):
        load_settings()
