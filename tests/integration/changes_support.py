"""A client of changes for tests: its streams, frame by frame."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from tests.integration.api_support import assert_problem

PATH = "/v1/changes"


class Frame(NamedTuple):
    """One frame of a stream; without data it only says where to go on."""

    position: str
    data: dict[str, Any] | None
    comment: str


@dataclass
class Stream:
    """An open stream, and the port of its client."""

    frames: Iterator[Frame]
    port: int = 0
    seen: list[Frame] = field(default_factory=list)

    @property
    def position(self) -> str:
        """Where a client would go on."""
        return self.seen[-1].position

    def take(self, number: int) -> list[dict[str, Any]]:
        """So many changes, as they come."""
        changes: list[dict[str, Any]] = []
        while len(changes) < number:
            frame = self.next()
            if frame.data is not None:
                changes.append(frame.data)
        return changes

    def next(self) -> Frame:
        """The next frame; StopIteration: the stream is over."""
        frame = next(self.frames)
        self.seen.append(frame)
        return frame

    def rest(self) -> list[dict[str, Any]]:
        """The changes until the stream is over."""
        self.seen += (left := list(self.frames))
        return [frame.data for frame in left if frame.data is not None]


def frames(parts: Iterable[bytes]) -> Iterator[Frame]:
    """Frames of a stream, as they come."""
    waiting = b""
    for part in parts:
        *whole, waiting = (waiting + part).split(b"\n\n")
        for frame in whole:
            fields = dict(line.split(b":", 1) for line in frame.split(b"\n"))
            said = {name.decode(): value.strip().decode() for name, value in fields.items()}
            data = json.loads(said["data"]) if "data" in said else None
            yield Frame(said["id"], data, said.get("", ""))


@contextmanager
def followed(client: httpx.Client, *, came: str | None = None, **query: Any) -> Iterator[Stream]:
    """A stream, begun; `from_` for `from`, `came` as the header of who comes back."""
    parameters = {name.rstrip("_"): value for name, value in query.items()}
    headers = {} if came is None else {"Last-Event-ID": came}
    with client.stream("GET", PATH, params=parameters, headers=headers, timeout=30) as response:
        if response.status_code != 200:
            response.read()
        assert response.status_code == 200, response.text
        assert response.headers["content-type"].startswith("text/event-stream")
        port = response.extensions["network_stream"].get_extra_info("client_addr")[1]
        stream = Stream(frames(response.iter_bytes()), port)
        assert stream.next().data is None  # where it begins
        yield stream


def pages(client: httpx.Client, from_: str = "0", **query: Any) -> list[dict[str, Any]]:
    """All that is there, page by page."""
    changes: list[dict[str, Any]] = []
    while True:
        page = page_of(client, from_=from_, **query)
        changes += page["changes"]
        from_ = page["position"]
        if page["is_end"]:
            return changes


def page_of(client: httpx.Client, **query: Any) -> dict[str, Any]:
    """One page."""
    parameters = {name.rstrip("_"): value for name, value in query.items()}
    answer = client.get(PATH, params={"wait": "false", **parameters})
    assert answer.status_code == 200, answer.text
    page: dict[str, Any] = answer.json()
    return page


def refused(client: httpx.Client, status: int, kind: str, **query: Any) -> dict[str, Any]:
    """The problem that a request for a stream is answered with."""
    came = query.pop("came", None)
    parameters = {name.rstrip("_"): value for name, value in query.items()}
    headers = {} if came is None else {"Last-Event-ID": came}
    return assert_problem(client.get(PATH, params=parameters, headers=headers), status, kind)


def ids(changes: list[dict[str, Any]]) -> list[str]:
    """Of events."""
    return [change["event_id"] for change in changes]
