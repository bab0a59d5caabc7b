"""Settings that stand in files, as Docker and Kubernetes mount secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from pipelines.work import settings as module
from pipelines.work.settings import SECRETS_FOLDER, load_settings
from projections.errors import ConfigurationError


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
