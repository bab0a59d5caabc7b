"""Who writes and who asks while processes die: people of two tenants, each with words of its own.

Every call is noted with its time and whether it got what it asked for, so the same calls that test
what is true also tell what was available.
"""

from __future__ import annotations

import itertools
import json
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import httpx

from projections.events import timestamp_text

TENANTS = ("acme", "other")
NAMES = ("ann", "bob", "cat")
"""Of users, the same in both tenants."""
ROOM, AGENT, PLACE = "room-of-all", "desk", "Zephyr Ledger"
LIVE, INGEST, LEDGER, GRAPH = KINDS = ("live", "ingest", "ledger read", "graph read")
PATIENCE_S = 10.0
"""Of a client, for one answer."""
_READS_S, _WRITES_S, _PROBES_S = 1.0, 1.0, 0.1
"""Between two calls of a client: a load that two cores carry while nothing is away. What is looked
for is what a fault costs, not when there is too much to do."""


class Call(NamedTuple):
    """One request: of which kind, when it was sent, and whether it was answered as it should be."""

    kind: str
    sent_s: float
    answered: bool


class Acknowledged(NamedTuple):
    """An event as it was sent, and the position that its first acknowledgement names."""

    envelope: dict[str, Any]
    position: str


@dataclass
class Account:
    """What all threads note.

    Attributes:
        book: acknowledged events by tenant and id.
        failures: what may never be, in words.
        answers: of reads, by route and status.
        retries: requests with events that were not acknowledged the time before.
        again: acknowledged events that were sent once more.
    """

    book: dict[tuple[str, str], Acknowledged] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    answers: Counter[tuple[str, int]] = field(default_factory=Counter)
    leaks: int = 0
    retries: int = 0
    again: int = 0


class Person:
    """A user of a tenant: a word that nobody else has, and event ids that begin like no other's."""

    def __init__(self, tenant: str, name: str, rng: random.Random) -> None:
        self.tenant, self.name = tenant, name
        self.marker = f"q{rng.getrandbits(48):012x}"
        self.id_prefix = f"{rng.getrandbits(32):08x}-0000-4000-8000-"
        self.read_key = f"read-{rng.getrandbits(128):032x}"
        self.write_key = f"write-{rng.getrandbits(128):032x}"

    def api_keys(self) -> list[dict[str, str]]:
        """As settings name them: one that writes, and one that reads and is bound to this user."""
        common = {"tenant": self.tenant, "name": f"{self.tenant}-{self.name}"}
        return [
            {**common, "key": self.write_key, "role": "write"},
            {**common, "key": self.read_key, "role": "read", "user_id": self.name},
        ]

    def event_id(self, number: int) -> str:
        """Of its event of a number."""
        return f"{self.id_prefix}{number:012x}"

    def session(self, number: int) -> str:
        """Where that event belongs: now and then the room of all, else a session of its own."""
        return ROOM if number % 3 == 0 else f"of-{self.marker}-{number // 40}"

    def story(self) -> Iterator[dict[str, Any]]:
        """Messages, calls that fail, and stated facts, without an end."""
        for number in itertools.count(1):
            words = f"refund of the lost parcel {self.marker} number {number}"
            now = timestamp_text(time.time_ns() // 1_000_000)
            kind, more = "message.received", dict[str, Any]()
            payload: dict[str, Any] = {"role": "user", "content": f"Look at the {words}"}
            if number % 5 == 4:
                kind, payload = "tool.call.completed", {"result": {"error": f"declined {words}"}}
                more = {"tool_name": "charge_card", "status": "failed"}
                more["parent_event_id"] = self.event_id(number - 1)
            elif number % 5 == 0:
                kind = "memory.fact_asserted"
                ends = {"source": PLACE, "target": f"{self.marker} vault"}
                payload = {end: {"name": of, "type": "concept"} for end, of in ends.items()}
                payload |= {"relation": "depends_on", "valid_from": now}
            yield {
                "event_id": self.event_id(number),
                "event_type": kind,
                "occurred_at": now,
                "session_id": self.session(number),
                "agent_id": AGENT,
                "trace_id": f"trace-{self.marker}",
                "user_id": self.name,
                "payload": payload,
                **more,
            }


class Client(threading.Thread):
    """Calls at its own pace, whatever comes back, until it is told that it is over."""

    def __init__(self, name: str, url: str, account: Account, *, key: str, pace_s: float) -> None:
        super().__init__(name=name, daemon=True)
        self.over = threading.Event()
        self.account = account
        self.waiting: list[dict[str, Any]] = []
        self._http = httpx.Client(base_url=url, headers={"X-API-Key": key}, timeout=PATIENCE_S)
        self._pace_s = pace_s

    def run(self) -> None:
        try:
            while self.waiting or not self.over.is_set():
                self.step()
                time.sleep(self._pace_s)
        except BaseException as error:
            self.account.failures.append(f"{self.name} ended by itself: {error!r}")
        self._http.close()

    def step(self) -> None:
        """Ask whether the API lives; others do something else."""
        self.call(LIVE, "GET", "/health/live", (200,))

    def call(
        self, kind: str, method: str, path: str, good: tuple[int, ...], **sent: Any
    ) -> httpx.Response | None:
        """The answer, None without one; noted, and a failure when it is none that may ever be."""
        answer, sent_s = None, time.monotonic()
        with suppress(httpx.TransportError):
            answer = self._http.request(method, path, **sent)
        code = 0 if answer is None else answer.status_code
        self.account.calls.append(Call(kind, sent_s, code in good))
        if answer is not None and code not in (*good, 207, 503, 504):
            self.account.failures.append(
                f"{self.name}: {method} {path}: {code} {answer.text[:300]}"
            )
        return answer


class Producer(Client):
    """Sends a person's story, and each event again until it is acknowledged; then now and then."""

    def __init__(self, person: Person, url: str, account: Account, rng: random.Random) -> None:
        name = f"producer {person.tenant} {person.name}"
        super().__init__(name, url, account, key=person.write_key, pace_s=_WRITES_S)
        self._person, self._story, self._rng = person, person.story(), rng

    def step(self) -> None:
        """Send what waits, else what is next."""
        self.account.retries += bool(self.waiting)
        if not self.waiting:
            self.waiting = list(itertools.islice(self._story, self._rng.choice((1, 1, 1, 4))))
            first = self.account.book.get((self._person.tenant, self._person.event_id(1)))
            if first is not None and self._rng.random() < 0.05:
                self.waiting.append(first.envelope)
        if len(self.waiting) == 1:
            answer = self.call(INGEST, "POST", "/v1/events", (200, 201), json=self.waiting[0])
            results = [] if answer is None else [{**answer.json(), "status": answer.status_code}]
        else:
            body = {"events": self.waiting}
            answer = self.call(INGEST, "POST", "/v1/events/batch", (200,), json=body)
            results = [] if answer is None else answer.json().get("results", [])
        results += [{"status": 0}] * (len(self.waiting) - len(results))
        pairs = zip(self.waiting, results, strict=True)
        self.waiting = [envelope for envelope, result in pairs if not self._noted(envelope, result)]

    def _noted(self, envelope: dict[str, Any], result: dict[str, Any]) -> bool:
        """Whether an event was acknowledged; always at the same place."""
        if result["status"] not in (200, 201):
            return False
        key, position = (self._person.tenant, envelope["event_id"]), result["global_position"]
        self.account.again += key in self.account.book
        before = self.account.book.setdefault(key, Acknowledged(envelope, position))
        if before.position != position:
            self.account.failures.append(f"{key} is at {before.position} and at {position}")
        return True


class Reader(Client):
    """Asks every kind of read as one user, about its own things and about those of others."""

    def __init__(
        self,
        person: Person,
        everybody: list[Person],
        url: str,
        account: Account,
        *,
        rng: random.Random,
    ) -> None:
        name = f"reader {person.tenant} {person.name}"
        super().__init__(name, url, account, key=person.read_key, pace_s=_READS_S)
        self._everybody, self._rng = everybody, rng
        others = [one for one in everybody if one is not person]
        parts = [part for one in others for part in (one.marker, one.id_prefix)]
        self._foreign = re.compile("|".join(parts))

    def step(self) -> None:
        """One question; its answer holds nothing that is of others alone."""
        route, method, path, sent = self._question()
        answer = self.call(LEDGER if route == "events" else GRAPH, method, path, (200, 404), **sent)
        if answer is None:
            return
        self.account.answers[route, answer.status_code] += 1
        text = answer.text
        if answer.headers.get("content-type") == "application/problem+json":
            text = json.dumps({**answer.json(), "instance": None})  # the path that was asked for
        if told := self._foreign.search(text):
            around = text[max(0, told.start() - 100) : told.end() + 100]
            self.account.leaks += 1
            self.account.failures.append(f"{self.name}: {method} {path} tells {around}")

    def _question(self) -> tuple[str, str, str, dict[str, Any]]:
        """Route, method, path, and what else is sent."""
        rng = self._rng
        about, number = rng.choice(self._everybody), rng.randrange(1, 60)
        session, vault = rng.choice((ROOM, about.session(number))), f"{about.marker} vault"
        path, params = rng.choice(
            (
                (f"events/{about.event_id(number)}", {}),
                (f"context/{session}", {"query": "lost parcel"}),
                (f"sessions/{session}/episodes", {}),
                (f"summaries/session/{session}", {}),
                (f"summaries/agent/{AGENT}", {}),
                (f"nodes/{about.event_id(number)}/lineage", {"direction": "both"}),
                (f"entities/entity:{rng.choice((PLACE, vault))}", {}),
                ("entities", {"query": vault}),
                ("query/facts", {}),
                ("query/subgraph", {}),
            )
        )
        if not path.startswith("query/"):
            return path.split("/")[0], "GET", f"/v1/{path}", {"params": params}
        body = {
            "query": f"Why was the parcel {about.marker} of the {PLACE} lost?",
            "session_id": session,
            "agent_id": AGENT,
            "timeout_ms": int(PATIENCE_S * 1_000) - 1_000,
        }
        headers = {"accept": rng.choice(("application/json", "text/markdown"))}
        return path.split("/")[1], "POST", f"/v1/{path}", {"json": body, "headers": headers}


def people(seed: int) -> list[Person]:
    """Of both tenants."""
    rng = random.Random(f"people/{seed}")
    return [Person(tenant, name, rng) for tenant in TENANTS for name in NAMES]


def crowd(everybody: list[Person], url: str, account: Account, seed: int) -> list[Client]:
    """A producer and a reader for each, and one that asks whether the API lives."""
    made = [Client("prober", url, account, key="", pace_s=_PROBES_S)]
    for number, person in enumerate(everybody):
        rng = random.Random(f"client/{seed}/{number}")
        made.append(Producer(person, url, account, rng))
        made.append(Reader(person, everybody, url, account, rng=rng))
    return made
