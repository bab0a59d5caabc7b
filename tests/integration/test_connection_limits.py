"""The edge of the API: who is slow, silent, greedy or gone holds up nobody else."""

from __future__ import annotations

import logging
import os
import socket
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import httpx
import pytest

from api.connection_limits import MAX_HEAD_BYTES, EdgeLimits, connections_for
from api.preflight import Share
from pipelines.observe import metrics
from pipelines.work.settings import Settings
from tests.integration.api_support import WRITE_KEY, Api, assert_problem, envelope, running_api
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

NOWHERE = "bolt://127.0.0.1:1"
HALF = b"GET /health/live HTTP/1.1\r\nX: "
LIVE = b"GET /health/live HTTP/1.1\r\nHost: x\r\n\r\n"
POST = (
    f"POST /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {WRITE_KEY}\r\n"
    "Content-Type: application/json\r\nContent-Length: %d\r\n\r\n"
)


@pytest.fixture
def serve(redis_url: str) -> Iterator[Callable[..., Api]]:
    """Serves an API without a graph, until the test ends."""
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(running_api(redis_url, NOWHERE, **options))


@contextmanager
def connected(api: Api, data: bytes = b"") -> Iterator[socket.socket]:
    url = httpx.URL(api.url)
    assert url.port is not None
    with socket.create_connection((url.host, url.port), timeout=20) as connection:
        connection.sendall(data)
        yield connection


def received(connection: socket.socket) -> bytes:
    """Everything until the server closes."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def cut(reason: str) -> float:
    name = "recollect_api_connections_cut_total"
    return metrics.REGISTRY.get_sample_value(name, {"reason": reason}) or 0.0


def answered(status: str) -> float:
    """Requests of any route that ended so."""
    samples = (s for m in metrics.REGISTRY.collect() for s in m.samples)
    return sum(
        s.value
        for s in samples
        if s.name == "recollect_api_request_duration_seconds_count" and s.labels["status"] == status
    )


def test_half_open_connections_keep_nobody_out(serve: Callable[..., Api]) -> None:
    api = serve(max_connections=20)
    before = cut("evicted")
    with ExitStack() as opened:
        for _ in range(60):
            opened.enter_context(connected(api, HALF))
        for _ in range(5):
            assert httpx.get(f"{api.url}/health/live").status_code == 200
        assert len(api.server.server_state.connections) <= 20
    assert cut("evicted") - before >= 40


def test_silent_connections_keep_nobody_out(serve: Callable[..., Api]) -> None:
    api = serve(max_connections=20)
    with ExitStack() as opened:
        for _ in range(60):
            opened.enter_context(connected(api))
        assert httpx.get(f"{api.url}/health/live").status_code == 200


def test_requests_under_way_do_not_give_way(serve: Callable[..., Api]) -> None:
    """When all connections work, the next one hears so, and the work is finished."""
    api = serve(max_connections=1)
    finish = threading.Event()

    def work() -> str:
        finish.wait(20)
        return "finished"

    api.app.add_api_route("/work", work)
    with connected(api, b"GET /work HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as working:
        wait_until(lambda: bool(api.server.server_state.tasks), "a request under way")
        with connected(api) as refused:
            answer = received(refused)
        finish.set()
        assert b"finished" in received(working)
    assert answer.startswith(b"HTTP/1.1 503 ")
    assert b"urn:recollect:problem:too-many-connections" in answer


def test_a_head_has_a_deadline_however_it_trickles(serve: Callable[..., Api]) -> None:
    api = serve(head_timeout_s=0.3)
    before = cut("head_timeout")
    for begun, dribble in ((HALF, b"x"), (b"\r\n", b"\r\n")):
        with connected(api, begun) as slow:
            slow.settimeout(0.05)
            answer = b""
            for _ in range(400):  # twenty seconds: many deadlines
                try:
                    slow.sendall(dribble)
                    answer = slow.recv(4_096)
                    break
                except TimeoutError:
                    continue
                except OSError:
                    break
            assert answer.startswith(b"HTTP/1.1 408 ")
    assert cut("head_timeout") - before == 2


def test_a_connection_that_says_nothing_is_closed_in_silence(serve: Callable[..., Api]) -> None:
    with connected(serve(head_timeout_s=0.2)) as silent:
        assert received(silent) == b""


def test_a_body_has_a_deadline(serve: Callable[..., Api], caplog: pytest.LogCaptureFixture) -> None:
    api = serve(body_timeout_s=0.3)
    before, faults = answered("499"), answered("5xx")
    with connected(api, (POST % 1_000).encode() + b"{") as slow:
        answer = received(slow)
    assert answer.startswith(b"HTTP/1.1 408 ")
    assert b"urn:recollect:problem:request-timeout" in answer
    wait_until(lambda: answered("499") - before == 1, "the request is counted")
    assert answered("5xx") == faults


def test_a_body_without_a_key_has_a_deadline_after_its_answer(serve: Callable[..., Api]) -> None:
    head = b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n"
    with connected(serve(body_timeout_s=0.3), head) as slow:
        assert received(slow).startswith(b"HTTP/1.1 401 ")


def test_an_answer_that_is_not_taken_ends(serve: Callable[..., Api]) -> None:
    api = serve(answer_timeout_s=0.3)
    before = cut("answer_timeout")
    page = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    with connected(api, page * 500):
        wait_until(lambda: cut("answer_timeout") - before == 1, "the connection is cut")
        wait_until(lambda: not api.server.server_state.connections, "nothing is left of it")


def test_a_client_that_hangs_up_is_no_fault_of_ours(
    serve: Callable[..., Api], caplog: pytest.LogCaptureFixture
) -> None:
    api = serve()
    gone, faults = answered("499"), answered("5xx")
    with caplog.at_level(logging.WARNING):
        for _ in range(20):
            with connected(api, (POST % 1_000).encode() + b'{"half": '):
                wait_until(lambda: bool(api.server.server_state.tasks), "it is read")
            wait_until(lambda: not api.server.server_state.tasks, "it is over")
    assert answered("499") - gone == 20
    assert answered("5xx") == faults
    assert [record for record in caplog.records if record.exc_info] == []


def test_a_head_has_a_size(serve: Callable[..., Api]) -> None:
    api = serve()
    before = cut("head_size")
    with connected(api, HALF) as greedy:
        with suppress(OSError):  # it is ended before all is sent
            for _ in range(1_000):
                greedy.sendall(b"x" * 1_000)
        wait_until(lambda: cut("head_size") - before == 1, "it is ended")
    with httpx.Client() as client:
        fits = {"X-Long": "x" * (MAX_HEAD_BYTES // 2)}
        assert client.get(f"{api.url}/health/live", headers=fits).status_code == 200


@pytest.mark.parametrize("loop", ["uvloop", "asyncio"])
def test_small_writes_leave_at_once(serve: Callable[..., Api], loop: str) -> None:
    """Else each answer after the first on a connection waits 40 ms for an acknowledgement."""
    api = serve(loop=loop)
    with httpx.Client() as client:
        client.get(f"{api.url}/health/live")
        (protocol,) = api.server.server_state.connections
        with socket.socket(
            fileno=os.dup(protocol.transport.get_extra_info("socket").fileno())
        ) as s:
            assert s.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_requests_of_one_connection_are_answered_in_order(serve: Callable[..., Api]) -> None:
    ready = b"GET /health/nothing HTTP/1.1\r\nHost: x\r\n\r\n"
    last = b"GET /health/live HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    with connected(serve(), LIVE + ready + LIVE + last) as connection:
        answers = received(connection)
    statuses = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"200", b"200"]


@pytest.mark.parametrize(
    "hostile",
    [
        pytest.param(b"GET /health/live HTTP/1.1\nHost: x\n\n", id="bare line feeds"),
        pytest.param(
            b"GET /health/live HTTP/1.1\r\nHost: x\r\nX: a\r\n b\r\n\r\n", id="folded header"
        ),
        pytest.param(
            b"POST /v1/events HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n"
            b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            id="two lengths",
        ),
        pytest.param(
            b"POST /v1/events HTTP/1.1\r\nHost: x\r\n"
            b"Content-Length: 3\r\nContent-Length: 4\r\n\r\n",
            id="length twice",
        ),
        pytest.param(b"GET /health/live HTTP/1.1\r\nHost : x\r\n\r\n", id="blank before colon"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS"),
    ],
)
def test_what_is_no_http_is_refused_as_a_problem(serve: Callable[..., Api], hostile: bytes) -> None:
    with connected(serve(), hostile) as connection:
        answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"urn:recollect:problem:bad-request" in answer


def test_a_body_that_is_too_large_is_told_so_by_any_client(serve: Callable[..., Api]) -> None:
    api = serve(max_body_bytes=100_000)
    request = urllib.request.Request(
        f"{api.url}/v1/events",
        data=b"x" * 390_000,
        headers={"Authorization": f"Bearer {WRITE_KEY}", "Content-Type": "application/json"},
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.urlopen(request, timeout=20)
    assert refused.value.code == 413
    refused.value.close()


@pytest.mark.parametrize("header", ["X-Tenant", "X-API-Key", "Authorization"])
def test_a_header_that_decides_is_sent_once(serve: Callable[..., Api], header: str) -> None:
    """Which of two a proxy before us looked at is not known."""
    api = serve()
    value = {"X-Tenant": "acme", "X-API-Key": WRITE_KEY}.get(header, f"Bearer {WRITE_KEY}")
    sent = [("Authorization", f"Bearer {WRITE_KEY}"), (header, value)]
    sent += [] if header == "Authorization" else [(header, value)]
    answer = httpx.post(f"{api.url}/v1/events", headers=sent, json=envelope())
    body = assert_problem(answer, 422, "invalid-input")
    assert body["errors"] == [{"field": header, "rule": "sent once"}]


def test_connections_fit_the_files_that_a_process_may_have() -> None:
    assert [connections_for(files) for files in (4, 256, 1_024, 65_536)] == [3, 192, 896, 65_408]
    limits = EdgeLimits.of(Settings(max_connections=7))
    assert limits.connections == 7
    shares = [EdgeLimits.of(Settings(max_connections=7), Share(number)) for number in (2, 7, 64)]
    assert [share.connections for share in shares] == [4, 1, 1], "together at least as many"
