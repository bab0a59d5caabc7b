"""Changes out: each event once, in the order of the ledger, to whoever may see it."""

from __future__ import annotations

import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import httpx
import pytest
import redis

from api import changes as api_changes
from api.browse_schemas import ChangeList
from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import Appended, Ledger
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.observe import metrics
from pipelines.work.settings import ApiKey, Settings
from projections.events import Event
from tests.damage import flipped, write_stream_anew
from tests.fakes.events import numbered_event
from tests.integration.api_support import (
    ADMIN_KEY,
    KEYS,
    OTHER_KEY,
    READ_KEY,
    USER_KEY,
    WRITE_KEY,
    Api,
    envelope,
    running_api,
)
from tests.integration.changes_support import followed, frames, ids, page_of, pages, refused
from tests.servers import emptied_neo4j, kill_synced
from tests.waiting import wait_until

pytestmark = pytest.mark.integration

ALL_USERS_KEY = "read-key-of-all-users-0123456789"
FEW_STREAMS = 3
HEARTBEAT_S = 0.1


class Writer:
    """Appends events of a tenant, and knows them all."""

    def __init__(self, redis_url: str) -> None:
        self._ledger = Ledger(connect_redis(Settings(redis_url=redis_url)), checkpoints=dict)
        self._number = 0

    def append(self, count: int = 1, **fields: Any) -> list[str]:
        """New events; returns their ids."""
        events: list[Event] = []
        for _ in range(count):
            self._number += 1
            event = numbered_event(self._number)
            events.append(event._replace(tenant="acme", event_id=str(uuid.uuid4()), **fields))
        self.append_events(events)
        return [event.event_id for event in events]

    def append_events(self, events: Sequence[Event]) -> list[Appended]:
        """These."""
        outcomes = self._ledger.append(events)
        placed = [outcome for outcome in outcomes if isinstance(outcome, Appended)]
        assert len(placed) == len(events)
        return placed


@pytest.fixture(scope="module")
def api(module_redis_url: str, neo4j: Neo4jServer) -> Iterator[Api]:
    all_users = ApiKey(name="all", key=ALL_USERS_KEY, tenant="acme", role="read", all_users=True)
    with running_api(
        module_redis_url,
        emptied_neo4j(neo4j),
        api_keys=(*KEYS, all_users),
        max_streams=FEW_STREAMS,
        stream_heartbeat_s=HEARTBEAT_S,
        answer_timeout_s=2,
    ) as running:
        yield running


@pytest.fixture
def writer(api: Api, module_redis_url: str) -> Writer:
    return Writer(module_redis_url)


@pytest.fixture
def here(client: httpx.Client) -> str:
    """Where the ledger ends when the test begins."""
    return str(page_of(client, from_="now")["position"])


def sample(name: str, **labels: str) -> float:
    return metrics.REGISTRY.get_sample_value(f"recollect_{name}", labels) or 0.0


def test_what_is_accepted_comes_in_order_as_it_is_stored(
    api: Api, client: httpx.Client, writer: Writer
) -> None:
    with followed(client) as stream:
        sent = envelope(event_type="tool.call", session_id="s-1", payload={"arguments": {"n": 1}})
        accepted = client.post("/v1/events", json=sent).json()
        later = writer.append(50)
        first, *others = stream.take(51)

    assert first["kind"] == "call"
    assert {name: first[name] for name in sent} == {**sent, "occurred_at": first["occurred_at"]}
    places = [frame.position for frame in stream.seen if frame.data is not None]  # alive ones aside
    assert first["global_position"] == accepted["global_position"] == places[0]
    del first["kind"]
    assert first == client.get(f"/v1/events/{sent['event_id']}").json()
    assert ids(others) == later
    assert places[1:] == [change["global_position"] for change in others]


@pytest.mark.parametrize("ring_bytes", [api_changes.RING_BYTES, 20_000, 1])
def test_who_comes_back_anywhere_gets_each_event_once(
    client: httpx.Client,
    writer: Writer,
    here: str,
    ring_bytes: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whether what is missing is in memory, partly, or in the ledger alone; while more comes."""
    monkeypatch.setattr(api_changes, "RING_BYTES", ring_bytes)
    written: list[str] = []
    is_over = threading.Event()

    def write() -> None:
        while not is_over.wait(0.002):
            written.extend(writer.append(3))

    thread = threading.Thread(target=write)
    came: list[str] = []
    position: str | None = None
    with followed(client, from_=here):  # so that there is a ring all the time
        thread.start()
        for take in (1, 2, 5, 1, 40, 3, 100, 7, 150):
            with followed(client, from_=here, came=position) as stream:
                came += ids(stream.take(take))
                position = stream.position
        is_over.set()
        thread.join()
        with followed(client, from_="0", came=position) as stream:
            came += ids(stream.take(len(written) - len(came)))
    assert came == written
    assert ids(pages(client, here)) == written


def test_every_position_is_one_to_go_on_from(
    client: httpx.Client, writer: Writer, here: str
) -> None:
    written = writer.append(30)
    changes = pages(client, here)
    for number, change in enumerate(changes):
        rest = ids(page_of(client, from_=change["global_position"])["changes"])
        assert rest == written[number + 1 :]
    with followed(client, from_=changes[9]["global_position"]) as stream:
        assert ids(stream.take(20)) == written[10:]


def test_pages_are_bounded_and_end_at_the_tail(
    client: httpx.Client, writer: Writer, here: str
) -> None:
    written = writer.append(7)
    first = page_of(client, from_=here, limit=5)
    second = page_of(client, from_=first["position"], limit=5)
    last = page_of(client, from_=second["position"])

    assert ids(first["changes"] + second["changes"]) == written
    assert [first["is_end"], second["is_end"], last["is_end"]] == [False, True, True]
    assert last == {"changes": [], "position": second["position"], "is_end": True}
    ChangeList.model_validate_json(httpx.Response(200, json=first).content, strict=True)
    assert ids(pages(client, limit=500))[-7:] == written


def test_a_large_ledger_is_read_page_by_page(
    client: httpx.Client, writer: Writer, here: str
) -> None:
    written = writer.append(40, payload={"text": "x" * 200_000})
    first = page_of(client, from_=here, limit=500)
    assert 15 <= len(first["changes"]) < 40
    assert not first["is_end"]
    assert ids(pages(client, here)) == written


def test_sessions_and_kinds_are_filtered(client: httpx.Client, writer: Writer, here: str) -> None:
    message: dict[str, Any] = {
        "event_type": "message.user",
        "payload": {"role": "user", "content": "hello"},
    }
    call: dict[str, Any] = {
        "event_type": "tool.call",
        "payload": {"arguments": {}},
        "tool_name": "t",
    }
    hello = writer.append(session_id="a", **message)
    writer.append(session_id="b", **message)
    called = writer.append(session_id="a", **call)
    failed = writer.append(session_id="b", event_type="tool.result", status="failed")
    fact = {"event_id": str(uuid.uuid4()), "event_type": "memory.fact_asserted", "session_id": "a"}
    says = {"source": {"name": "Ana"}, "relation": "lives_in", "target": {"name": "Lisbon"}}
    answer = client.post("/v1/events", json=envelope(**fact, payload=says))
    assert answer.status_code == 201, answer.text

    assert ids(pages(client, here, session="a")) == [*hello, *called, fact["event_id"]]
    assert ids(pages(client, here, kinds=["call", "failure"])) == [*called, *failed]
    assert [c["kind"] for c in pages(client, here, session="a", kinds="message")] == ["message"]
    with followed(client, from_=here, session="a", kinds=["call", "result"]) as stream:
        assert ids(stream.take(1)) == called
        writer.append(session_id="b", **call)
        again = writer.append(session_id="a", **call)
        assert ids(stream.take(1)) == again


def test_other_tenants_and_users_see_nothing(api: Api, writer: Writer, here: str) -> None:
    nobodys = writer.append()
    of_cara = writer.append(user_id="cara")
    of_dan = writer.append(user_id="dan")
    decided = writer.append(event_type="memory.accessed", payload={"events": {}})
    everything = [*nobodys, *of_cara, *of_dan, *decided]
    views: list[tuple[str, dict[str, str], dict[str, str], list[str]]] = [
        (READ_KEY, {}, {}, nobodys),
        (READ_KEY, {}, {"user_id": "dan"}, [*nobodys, *of_dan]),
        (USER_KEY, {}, {}, [*nobodys, *of_cara]),
        (USER_KEY, {}, {"user_id": "cara"}, [*nobodys, *of_cara]),
        (OTHER_KEY, {}, {}, []),
        (OTHER_KEY, {}, {"user_id": "cara"}, []),
        (ALL_USERS_KEY, {}, {"user_id": "*"}, everything),
        (ADMIN_KEY, {"X-Tenant": "acme"}, {"user_id": "*"}, everything),
        (ADMIN_KEY, {}, {"user_id": "*"}, []),
    ]
    for key, headers, query, expected in views:
        with api.client(key, **headers) as client:
            assert ids(pages(client, here, **query)) == expected, (key, query)
            with followed(client, from_=here, **query) as stream:
                assert ids(stream.take(len(expected))) == expected, (key, query)
                assert stream.next().data is None
    for key, query in ((READ_KEY, {"user_id": "*"}), (USER_KEY, {"user_id": "dan"})):
        with api.client(key) as client:
            assert refused(client, 403, "forbidden", **query)["errors"][0]["field"] == "user_id"
    with api.client(None) as client:
        refused(client, 401, "unauthenticated")


def test_streams_of_one_ring_give_each_user_their_own(api: Api, writer: Writer) -> None:
    """Both follow the tail in one process, from the same memory."""
    with api.client(USER_KEY) as cara, api.client(READ_KEY) as reader, ExitStack() as opened:
        streams = [
            opened.enter_context(followed(cara)),
            opened.enter_context(followed(reader, user_id="dan")),
        ]
        written = {user: writer.append(20, user_id=user) for user in ("cara", "dan")}
        last = writer.append()
        assert [ids(stream.take(21)) for stream in streams] == [
            [*written["cara"], *last],
            [*written["dan"], *last],
        ]


@pytest.mark.parametrize(
    ("query", "field", "rule"),
    [
        ({"from_": "yesterday"}, "from", "a position as a change or a write gave it"),
        ({"from_": "-1"}, "from", "a position as a change or a write gave it"),
        ({"from_": "99999999999999-0"}, "from", "not of a future"),
        ({"from_": "1-" + "9" * 30}, "from", "a position as a change or a write gave it"),
        ({"came": "17x"}, "Last-Event-ID", "not a position"),
        ({"came": "99999999999999-0", "from_": "0"}, "Last-Event-ID", "not of a future"),
        ({"kinds": "miracle"}, "kinds.0", "'message'"),
        ({"session": ""}, "session", "at least 1 character"),
        ({"limit": 5}, "limit", "goes with wait=false"),
        ({"wait": "false", "limit": 501}, "limit", "less than or equal to 500"),
        ({"since": "0"}, "since", "unknown query parameter"),
    ],
)
def test_bad_input_is_told_by_field_and_rule(
    client: httpx.Client, query: dict[str, Any], field: str, rule: str
) -> None:
    (error,) = refused(client, 422, "invalid-input", **query)["errors"]
    assert error["field"] == field
    assert rule in error["rule"]
    assert "Value error" not in error["rule"]


def test_a_key_has_so_many_streams(api: Api, client: httpx.Client) -> None:
    with ExitStack() as opened:
        for _ in range(FEW_STREAMS):
            opened.enter_context(followed(client))
        assert sample("api_streams") == FEW_STREAMS
        assert f"At most {FEW_STREAMS} streams" in refused(client, 429, "rate-limited")["detail"]
        with api.client(READ_KEY) as other, followed(other):
            assert sample("api_streams") == FEW_STREAMS + 1
        assert page_of(client, from_="now")["changes"] == []
    wait_until(lambda: sample("api_streams") == 0, "the streams are given back")
    with followed(client):
        pass


def test_a_quiet_stream_shows_that_it_lives_and_how_far_it_is(
    api: Api, client: httpx.Client, writer: Writer
) -> None:
    with followed(client, session="nothing here") as stream:
        first = stream.position
        written = writer.append(5)
        wait_until(
            lambda: not page_of(client, from_=stream.next().position)["changes"],
            "the place moves on behind all of them",
            patience_s=10,
        )
        assert stream.position > first
        assert stream.seen[-1].comment == "alive"
    assert len(written) == 5


def test_a_client_that_takes_nothing_is_cut_and_can_go_on(
    api: Api, client: httpx.Client, writer: Writer, here: str
) -> None:
    """Meanwhile others get theirs, and the API holds little of what it does not take."""
    url, text = httpx.URL(api.url), "y" * 100_000
    with followed(client, from_=here) as other, socket.socket() as slow:
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
        slow.connect((url.host, url.port))
        slow.sendall(
            f"GET /v1/changes?from={here} HTTP/1.1\r\nHost: x\r\n"
            f"Authorization: Bearer {READ_KEY}\r\n\r\n".encode()
        )
        written = writer.append(120, payload={"text": text})
        assert ids(other.take(120)) == written
        wait_until(lambda: sample("api_streams") == 1, "the slow one is cut", patience_s=20)
        slow.settimeout(10)
        received = b""
        while part := _received(slow):
            received += part
    assert len(received) < sum(len(text) for _ in written)
    body = re.sub(rb"\r\n[0-9a-f]+\r\n", b"", received.partition(b"\r\n\r\n")[2])  # of chunks
    whole = body[body.find(b"retry") : body.rfind(b"\n\n") + 2]  # the last one may be cut
    taken = [frame for frame in frames([whole]) if frame.data]
    with followed(client, came=taken[-1].position if taken else here) as stream:
        rest = stream.take(len(written) - len(taken))
    assert ids([*(frame.data for frame in taken if frame.data), *rest]) == written


def _received(connection: socket.socket) -> bytes:
    try:
        return connection.recv(65_536)
    except OSError:
        return b""


def test_what_is_held_out_is_passed(
    client: httpx.Client, writer: Writer, here: str, module_redis_url: str
) -> None:
    events = [
        numbered_event(number, tenant="acme", event_id=str(uuid.uuid4()), session_id="held")
        for number in range(6)
    ]
    with followed(client, from_=here, session="held") as stream:
        places = writer.append_events(events)
        assert ids(stream.take(6)) == [event.event_id for event in events]
        server = redis.Redis.from_url(module_redis_url)
        write_stream_anew(
            server,
            places[0].partition,
            {places[2].position: lambda fields: {**fields, b"e": flipped(fields[b"e"])}},
        )
        server.xdel(f"{{rc:{places[0].partition}}}:ledger", str(places[4].position))
        server.close()
        expected = [events[n].event_id for n in (0, 1, 3, 5)]
        assert ids(pages(client, here, session="held")) == expected
        writer.append_events([events[2], events[4]])  # again, which puts them right
        assert ids(pages(client, here, session="held")) == [event.event_id for event in events]
        more = writer.append(session_id="held")
        assert ids(stream.take(1)) == more


def test_the_time_of_a_stream_is_the_time_to_its_first_word(api: Api, client: httpx.Client) -> None:
    labels = {"route": "/v1/changes", "method": "GET", "status": "2xx"}
    name = "api_request_duration_seconds"
    count, seconds = (sample(f"{name}_{part}", **labels) for part in ("count", "sum"))
    began_s = time.monotonic()
    with followed(client) as stream:
        while len(stream.seen) < 12:
            stream.next()
    held_s = time.monotonic() - began_s
    wait_until(lambda: sample(f"{name}_count", **labels) == count + 1, "it is counted")
    assert sample(f"{name}_sum", **labels) - seconds < held_s / 2


@pytest.fixture
def serve(redis_url: str, neo4j_url: str) -> Iterator[Callable[..., Api]]:
    """Serves an API of the test's own."""
    with ExitStack() as opened:
        yield lambda **options: opened.enter_context(
            running_api(options.pop("redis", redis_url), neo4j_url, **options)
        )


def test_a_stream_ends_after_its_time_with_its_place(
    serve: Callable[..., Api], redis_url: str
) -> None:
    api = serve(stream_life_s=1.0)
    writer = Writer(redis_url)
    with api.client() as client:
        with followed(client, from_="0") as stream:
            written = writer.append(3)
            came = stream.rest()
        assert stream.seen[-1].comment == "this stream is over; go on from here"
        written += writer.append(3)
        with followed(client, from_="0", came=stream.position) as stream:
            came += stream.take(3)
    assert ids(came) == written


def test_streams_leave_half_of_the_connections_to_others(serve: Callable[..., Api]) -> None:
    api = serve(max_connections=5)
    with ExitStack() as opened:
        for key in (WRITE_KEY, READ_KEY):
            opened.enter_context(followed(opened.enter_context(api.client(key))))
        with api.client(USER_KEY) as third:
            refused(third, 503, "too-many-connections")
            assert third.get("/health/live").status_code == 200


def test_a_stop_ends_streams_at_once_with_their_place(redis_url: str, neo4j_url: str) -> None:
    """One that is read, one that nobody reads, and what was under way is finished."""
    writer = Writer(redis_url)
    with ExitStack() as opened:
        api = opened.enter_context(running_api(redis_url, neo4j_url))
        client = opened.enter_context(api.client())
        written = writer.append(200, payload={"text": "z" * 50_000})
        url = httpx.URL(api.url)
        stalled = opened.enter_context(socket.create_connection((url.host, url.port)))
        stalled.sendall(
            b"GET /v1/changes?from=0 HTTP/1.1\r\nHost: x\r\n"
            b"Authorization: Bearer " + WRITE_KEY.encode() + b"\r\n\r\n"
        )
        stream = opened.enter_context(followed(client, from_="0"))
        came = stream.take(200)
        began_s = time.monotonic()
        api.server.should_exit = True
        came += stream.rest()
        wait_until(lambda: not api.server.server_state.connections, "all connections are closed")
        lasted_s = time.monotonic() - began_s
    assert ids(came) == written
    assert stream.seen[-1].comment == "this stream is over; go on from here"
    assert stream.position == came[-1]["global_position"]
    assert lasted_s < 8


def test_redis_goes_and_comes_back_under_a_stream(
    start_valkey: Callable[..., ValkeyServer], neo4j_url: str
) -> None:
    server = start_valkey()
    with running_api(server.url, neo4j_url, stream_heartbeat_s=0.2) as api, ExitStack() as opened:
        writer = Writer(server.url)
        client = opened.enter_context(api.client())
        tail = opened.enter_context(followed(client, from_="now"))
        written = writer.append(20)
        came = ids(tail.take(20))
        kill_synced(server)
        assert [tail.next().comment for _ in range(3)] == ["alive"] * 3
        server.start()
        server.wait_ready()
        written += Writer(server.url).append(20)
        came += ids(tail.take(20))
        behind = opened.enter_context(followed(client, from_="0"))
        assert ids(behind.take(40)) == came == written


def test_a_ledger_that_was_emptied_is_followed_on(
    serve: Callable[..., Api], redis_url: str
) -> None:
    api = serve(stream_heartbeat_s=0.2)
    with api.client() as client, followed(client) as stream:
        Writer(redis_url).append(30)
        assert len(stream.take(30)) == 30
        server = redis.Redis.from_url(redis_url)
        server.flushall()
        server.close()
        new = Writer(redis_url).append(12)
        assert ids(stream.take(12)) == new


def test_frames_are_those_of_server_sent_events(client: httpx.Client, writer: Writer) -> None:
    """A payload of line ends stays on its line; the first frame advises when to come back."""
    text = "one\ntwo\r\nthree\u2028four\x0bdata: five"
    with client.stream("GET", "/v1/changes", timeout=30) as response:
        assert response.headers["cache-control"] == "no-store"
        raw = response.iter_bytes()
        begin = next(raw)
        writer.append(payload={"text": text})
        frame = b""
        while b"data: " not in frame:
            frame = next(raw)
    assert begin.startswith(b"retry: 1000\nid: ")
    assert begin.endswith(b"\n\n")
    lines = frame.decode().split("\n")
    assert [line.partition(": ")[0] for line in lines] == ["id", "data", "", ""]
    (change,) = [each.data for each in frames([frame]) if each.data]
    assert change["payload"]["text"] == text
