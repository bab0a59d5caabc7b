"""Events through the API, one a request and in batches: `python -m tests.bench.ingest_api`.

One process of `recollect serve` on a Valkey of the bench's own, without a graph: ingest needs none.
The limit beside it is what somebody would write by hand for this one purpose: the same HTTP server
with an app that parses the body, checks nothing, and adds each event to one stream. Both take the
same bytes over one connection, in turns. Prints events a second and the processor time of an event,
of the API and of Redis.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from http.client import HTTPConnection
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import orjson
import redis.asyncio
import uvicorn

from pipelines.ledger.connect import connect_redis
from pipelines.ledger.ledger import BesideRedis, Ledger
from pipelines.local.processes import free_port
from pipelines.local.servers import ValkeyServer
from pipelines.work.settings import Settings
from projections.events import encode_event
from tests.bench.sample import sample_events
from tests.bench.stack import child_pids, cpu_seconds
from tests.servers import running
from tests.waiting import wait_until

_BATCH = 500
_WARM = 500
_PATIENCE_S = 120.0
_NO_LIMIT = json.dumps({"*": ""})


class Turn(NamedTuple):
    """What a turn took, an event.

    Attributes:
        wall_s: from request to answer.
        server_s: processor time of the HTTP server.
        redis_s: processor time of Redis.
    """

    wall_s: float
    server_s: float
    redis_s: float


class Server(NamedTuple):
    """An HTTP server and the Redis behind it."""

    pid: int
    redis_pid: int
    port: int

    def turn(self, path: str, bodies: Sequence[bytes], events: int) -> Turn:
        """Send bodies that hold so many events; a connection that waits its turn is closed."""
        connection = HTTPConnection("127.0.0.1", self.port, timeout=_PATIENCE_S)
        before, redis_before = self._used(), cpu_seconds(self.redis_pid)
        begun = perf_counter()
        for body in bodies:
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            answer.read()
            assert answer.status in (200, 201), answer.status
        seconds = perf_counter() - begun
        connection.close()
        server_s, redis_s = self._used() - before, cpu_seconds(self.redis_pid) - redis_before
        return Turn(seconds / events, server_s / events, redis_s / events)

    def _used(self) -> float:
        return sum(map(cpu_seconds, (self.pid, *child_pids(self.pid))))


def measure(events: int, rounds: int) -> dict[str, Any]:
    """Figures of both servers, median over the rounds."""
    sample = (encode_event(event) for event in sample_events(_WARM + 2 * events))
    warm = list(islice(sample, _WARM))
    single, many = list(islice(sample, events)), list(islice(sample, events))
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = {
            "api": stack.enter_context(_api(Path(folder) / "api")),
            "bare": stack.enter_context(_bare(Path(folder) / "bare")),
        }
        for server in servers.values():
            server.turn("/v1/events", warm, len(warm))
        turns: dict[tuple[str, str], list[Turn]] = {}
        for n in range(rounds):
            for name, server in servers.items():
                some = _part(single, n, rounds)
                one_each = server.turn("/v1/events", some, len(some))
                turns.setdefault((name, "single"), []).append(one_each)
                some = _part(many, n, rounds)
                batches = [
                    b'{"events":[%b]}' % b",".join(some[first : first + _BATCH])
                    for first in range(0, len(some), _BATCH)
                ]
                together = server.turn("/v1/events/batch", batches, len(some))
                turns.setdefault((name, "batch"), []).append(together)
    figures: dict[str, Any] = {"events": events, "rounds": rounds}
    for (name, how), several in turns.items():
        median = Turn(*(statistics.median(each) for each in zip(*several, strict=True)))
        figures[f"{how} {name}"] = {
            "events_per_s": round(1 / median.wall_s),
            "server_us": round(median.server_s * 1e6, 1),
            "redis_us": round(median.redis_s * 1e6, 1),
        }
    return figures


def _part(bodies: Sequence[bytes], number: int, of: int) -> Sequence[bytes]:
    size = len(bodies) // of
    return bodies[number * size : (number + 1) * size]


@contextmanager
def _api(folder: Path) -> Iterator[Server]:
    with running(ValkeyServer(folder)) as valkey:
        settings = Settings(redis_url=valkey.url, data_dir=folder)
        client: Any = connect_redis(settings)
        Ledger(client, checkpoints=dict, beside=BesideRedis.of(settings, client)).admit()
        client.close()
        variables = {
            "RECOLLECT_REDIS_URL": valkey.url,
            "RECOLLECT_NEO4J_URL": f"bolt://127.0.0.1:{free_port()}",
            "RECOLLECT_DATA_DIR": str(folder),
            "RECOLLECT_LOG_LEVEL": "warning",
            "RECOLLECT_INSECURE_DEV": "true",
            "RECOLLECT_REQUEST_LIMITS": _NO_LIMIT,
            "RECOLLECT_EVENT_LIMITS": _NO_LIMIT,
        }
        port = free_port()
        words = ("pipelines.cli.main", "serve", "--port", str(port), "--processes", "1")
        with _serving(words, port, variables, valkey) as server:
            yield server


@contextmanager
def _bare(folder: Path) -> Iterator[Server]:
    with running(ValkeyServer(folder)) as valkey:
        port = free_port()
        words = (__spec__.name, "--bare", str(port))
        with _serving(words, port, {"RECOLLECT_REDIS_URL": valkey.url}, valkey) as server:
            yield server


@contextmanager
def _serving(
    words: Sequence[str], port: int, variables: dict[str, str], valkey: ValkeyServer
) -> Iterator[Server]:
    command = [sys.executable, "-m", *words]
    process = subprocess.Popen(
        command, env=os.environ | variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )

    def answers() -> bool:
        assert process.poll() is None, f"{words} ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(answers, "it serves", _PATIENCE_S)
        assert valkey.pid is not None
        yield Server(process.pid, valkey.pid, port)
    finally:
        process.terminate()
        process.wait(60)


class Bare:
    """The limit: no check, no dedupe, no order, no log."""

    def __init__(self, url: str) -> None:
        self._redis: Any = redis.asyncio.from_url(url)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """An ASGI app."""
        body, more = b"", True
        while more:
            message = await receive()
            body += message.get("body", b"")
            more = message.get("more_body", False)
        value = orjson.loads(body)
        events = value.get("events", [value])
        pipeline = self._redis.pipeline(transaction=False)
        for event in events:
            pipeline.xadd("events", {"d": orjson.dumps(event)})
        places = [{"position": place.decode()} for place in await pipeline.execute()]
        answer = orjson.dumps(places)
        headers = [(b"content-length", str(len(answer)).encode())]
        await send({"type": "http.response.start", "status": 201, "headers": headers})
        await send({"type": "http.response.body", "body": answer})


def main() -> int:
    """Measure and print; with `--bare PORT` be the limit's server."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--events", type=int, default=10_000, help="of each kind")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--bare", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        app = Bare(os.environ["RECOLLECT_REDIS_URL"])
        config = uvicorn.Config(
            app, host="127.0.0.1", port=options.bare, log_level="critical", lifespan="off"
        )
        asyncio.run(uvicorn.Server(config).serve())
        return 0
    figures = measure(options.events, options.rounds)
    sys.stdout.write(json.dumps(figures, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
