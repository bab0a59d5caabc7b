"""Where older entries go: checked before anything runs, and off unless somebody says it."""

from __future__ import annotations

import pytest

from pipelines.local.workers import ARCHIVE, Processes
from pipelines.work.settings import load_settings
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
