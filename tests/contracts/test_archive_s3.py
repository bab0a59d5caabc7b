"""An archive and a backup in a bucket, of a server that speaks S3: `make test-s3`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pipelines.operations.backup import backup, restore
from pipelines.work.services import Services
from projections.errors import ArchiveUnavailable
from tests.archive_support import archived_stacks, contents

_WHERE = "not installed: `make test-s3` has an environment of its own"
s3fs: Any = pytest.importorskip("s3fs", reason=_WHERE)
moto: Any = pytest.importorskip("moto.server", reason=_WHERE)
pytestmark = pytest.mark.integration


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """With an empty bucket `ledgers`."""
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    running.start()
    host, port = running.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{host}:{port}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "tests")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    s3fs.S3FileSystem.clear_instance_cache()
    s3fs.S3FileSystem().mkdir("ledgers")
    yield running
    running.stop()


def test_a_ledger_in_a_bucket_is_read_and_restored(
    redis_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: Any
) -> None:
    url = "s3://ledgers/archive"
    with archived_stacks(redis_url, tmp_path, monkeypatch) as make:
        stack = make(archive_url=url)
        before = contents(stack)
        assert stack.archive(20).archived == 80
        assert contents(stack.reopened()) == before
        assert backup(stack.services, "s3://ledgers/backup").written == 120
        stack.services.redis.flushall()
        settings = stack.services.settings.model_copy(update={"archive_url": f"{url}-2"})
        with Services(settings) as services:
            assert restore(services, "s3://ledgers/backup").entries == 120
        back = stack.reopened(archive_url=f"{url}-2")
        assert contents(back) == before
        assert all(place.duplicate for place in back.append(*stack.events))
        server.stop()
        fresh = stack.reopened(archive_url=f"{url}-2", archive_timeout_s=5.0)
        (outcome,) = fresh.ledger.append(stack.events[:1])
        assert isinstance(outcome, ArchiveUnavailable)
