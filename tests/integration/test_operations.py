"""What the API tells operators of what is under way: rebuilds, the archive, erasures."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from api.browse_schemas import OperationsAnswer
from api.routes import operations
from pipelines.ledger.command_notes import Rebuilding
from pipelines.ledger.erasing import begin_erasure
from pipelines.ledger.sealing import Subject
from pipelines.operations import erase
from pipelines.operations.archive import archive
from pipelines.work.settings import ApiKey
from tests.archive_support import small_segments
from tests.factories import event, sessions
from tests.integration.api_support import (
    ADMIN_KEY,
    KEYS,
    READ_KEY,
    WRITE_KEY,
    Api,
    assert_problem,
    running_api,
)
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS

pytestmark = pytest.mark.integration

ROUTE: Final = "/v1/admin/operations"
SEALED, ELSEWHERE = "private", "default"
USERS: Final = ("zoe", "yan", "xia")
BOUND_KEY: Final = "admin-key-of-zoe-0123456789"
MASTER: Final = "5e" * 32


class Running(NamedTuple):
    """A memory with an archive and a sealed tenant, and its API."""

    stack: Stack
    api: Api

    def told(self, tenant: str = ELSEWHERE) -> OperationsAnswer:
        with self.api.client(ADMIN_KEY, **{"X-Tenant": tenant}) as client:
            answer = client.get(ROUTE)
        assert answer.status_code == 200, answer.text
        return OperationsAnswer.model_validate_json(answer.text, strict=True)


@pytest.fixture
def running(
    make_stack: Callable[..., Stack], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Running]:
    small_segments(monkeypatch)
    kept: dict[str, Any] = {
        "master_key": MASTER,
        "data_dir": tmp_path,
        "archive_url": str(tmp_path / "archive"),
    }
    stack = make_stack(**kept)
    erase.seal_tenant(stack.services, SEALED)
    stack.append(*sessions(4, 15))
    for number, user in enumerate(USERS):
        stack.append(
            event(900 + number, tenant=SEALED, user_id=user, payload={"text": f"of {user}"})
        )
    stack.fold()
    keys = (*KEYS, ApiKey(name="b", key=BOUND_KEY, tenant=SEALED, role="admin", user_id="zoe"))
    settings = stack.services.settings
    options = {"partitions": PARTITIONS, "id_buckets": 64, "api_keys": keys, **kept}
    with running_api(settings.redis_url, settings.neo4j_url, **options) as api:
        yield Running(stack, api)


def test_nothing_is_under_way_at_first(running: Running) -> None:
    assert running.told() == OperationsAnswer(
        rebuilds=[], archive=None, erasures=[], more_erasures=False
    )


def test_a_rebuild_is_told_while_it_runs(running: Running) -> None:
    rebuilds, now_s = running.stack.services.rebuilds, time.time()
    rebuilds.tell(Rebuilding("green", "projection of green", 20, 60, now_s - 30, now_s))
    (rebuild,) = running.told().rebuilds
    assert (rebuild.target, rebuild.doing) == ("green", "projection of green")
    assert (rebuild.done, rebuild.total) == (20, 60)
    assert rebuild.begun_at < rebuild.heard_at
    rebuilds.end("green")
    assert running.told().rebuilds == []


def test_the_archive_is_told_by_partition(running: Running) -> None:
    moved = archive(running.stack.services, keep=3).archived
    told = running.told().archive
    assert told is not None
    assert [one.partition for one in told.partitions] == list(range(PARTITIONS))
    assert sum(one.archived for one in told.partitions) == moved > 0
    assert [one.streamed for one in told.partitions] == [3] * PARTITIONS
    boundaries = running.stack.ledger.archive.boundaries(range(PARTITIONS))
    assert [(one.position, one.segments) for one in told.partitions] == [
        (str(boundary.position), boundary.segments) for boundary in boundaries
    ]
    assert (told.waits_for, told.has_problem) == (None, False)


def test_what_stops_the_archive_is_told_and_its_place_is_not(
    running: Running, tmp_path: Path
) -> None:
    archive(running.stack.services, keep=3)
    running.stack.append(*(event(number) for number in range(1_000, 1_010)))
    archive(running.stack.services, keep=1)
    waiting = running.told().archive
    assert waiting is not None
    assert waiting.waits_for is not None
    assert "projection" in waiting.waits_for
    folder = tmp_path / "archive"
    folder.rename(tmp_path / "elsewhere")
    folder.write_text("no folder")
    with pytest.raises(Exception, match="archive"):
        archive(running.stack.services, keep=1)
    with running.api.client(ADMIN_KEY, **{"X-Tenant": ELSEWHERE}) as client:
        answer = client.get(ROUTE)
    assert answer.json()["archive"]["has_problem"] is True
    assert str(tmp_path) not in answer.text


def test_erasures_are_told_with_their_step_to_their_tenant_alone(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = running.stack
    ids = [
        begin_erasure(stack.ledger, SEALED, Subject("user", user), reason="why", by="who").hex()
        for user in USERS
    ]
    for key_id in ids[1:]:
        erase.finish(stack.services, bytes.fromhex(key_id))
    told = running.told(SEALED)
    assert [(one.subject, one.step, one.is_done) for one in told.erasures] == [
        (ids[0], "fenced", False),
        (ids[2], "done", True),
        (ids[1], "done", True),
    ]
    assert [one.entries for one in told.erasures] == [None, 1, 1]
    assert told.erasures[0].finished_at is None
    assert told.erasures[1].finished_at is not None
    assert running.told(ELSEWHERE).erasures == []
    with running.api.client(ADMIN_KEY, **{"X-Tenant": SEALED}) as client:
        text = client.get(ROUTE).text
    assert not [word for word in (*USERS, '"why"', '"who"') if word in text]
    monkeypatch.setattr(operations, "MOST_ERASURES", 2)
    fewer = running.told(SEALED)
    assert [one.subject for one in fewer.erasures] == [ids[0], ids[2]]
    assert fewer.more_erasures


def test_only_operators_see_it(running: Running) -> None:
    for key in (READ_KEY, WRITE_KEY, BOUND_KEY):
        with running.api.client(key) as client:
            assert_problem(client.get(ROUTE), 403, "forbidden")
    with running.api.client(ADMIN_KEY, **{"X-Tenant": SEALED}) as client:
        assert_problem(client.get(ROUTE, params={"user_id": "zoe"}), 422, "invalid-input")


def _of_operators(document: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Method and path of what changes what all users see, or tells of whichever user."""
    for path, operations_of_path in document["paths"].items():
        for method in operations_of_path:
            if path.startswith("/v1/admin/") or method == "delete":
                yield method, path


def _of_one_user(document: Mapping[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Method, path, and where a request names the user: in the path, the query or the body."""
    for path, operations_of_path in document["paths"].items():
        for method, operation in operations_of_path.items():
            names = {(one["in"], one["name"]) for one in operation.get("parameters", ())}
            body = json.dumps(operation.get("requestBody", {}))
            schemas = document["components"]["schemas"]
            named = next((name for name in schemas if f'schemas/{name}"' in body), None)
            if method != "get" and ("path", "user_id") in names:
                yield method, path, "path"
            if ("query", "user_id") in names:
                yield method, path, "query"
            if path.startswith("/v1/query/"):
                assert "user_id" in schemas[named]["properties"]
                yield method, path, "body"


def test_a_key_of_a_user_does_nothing_to_others(running: Running) -> None:
    with running.api.client(ADMIN_KEY) as client:
        document = client.get("/openapi.json").json()
    operators, users = [*_of_operators(document)], [*_of_one_user(document)]
    assert len(operators) >= 7
    assert {where for *_, where in users} == {"path", "query", "body"}
    asked = {"query": "what?", "session_id": "s", "agent_id": "a", "user_id": "yan"}
    with running.api.client(BOUND_KEY) as zoe:
        for method, path, *where in (*operators, *users):
            filled = re.sub(r"\{\w+\}", "yan", path).replace("summaries/yan", "summaries/session")
            sent: dict[str, Any] = {"json": asked if where == ["body"] else {}}
            if where == ["query"]:
                sent = {"params": {"user_id": "yan"}}
            answer = zoe.request(method, filled, **sent if method != "delete" else {})
            assert answer.status_code == 403, (method, path, answer.text)
