"""Kills each kind of child and each holder of a deployment under load, and proves what is left.

**Availability.** A fault begins with its signal, when all is well, and lasts until the child that
was struck is there again, as another process, and the API says that it is ready for everything. Of
the calls of a kind that clients sent in that time, it is the share that was answered as it should
be within `PATIENCE_S`. Each client calls at a pace that does not depend on the answers, but waits
for each: calls that hang are fewer. Kinds: `live` (/health/live), `ingest` (one event, or some, all
acknowledged), reads of the ledger (an event by its id) and of the graph (everything else).
`PROMISED` says which of them must stay above `LEAST` while which child is away; what cannot stay,
as ingest without its ledger, is shown and not judged.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import secrets
import signal
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from enrichment.payloads import offered_event
from pipelines.cli.invocation import settings_of
from pipelines.local.companions import wanted
from pipelines.local.data_folder import VALKEY, live_servers
from pipelines.local.workers import HOLDER, is_healthy
from pipelines.observe.metrics import HEALTH_PATH
from pipelines.work.services import Services
from pipelines.work.stages import PROJECTION, STAGES
from projections.events import encode_event, is_system_event
from tests.acceptance.chaos.deployment import Deployment
from tests.acceptance.soak.load import (
    INGEST,
    KINDS,
    LEDGER,
    LIVE,
    Account,
    crowd,
    people,
)
from tests.acceptance.test_processes import children, recollect
from tests.waiting import wait_until

TARGET, SUPERVISOR, API = "blue", "main", "api"
WORKERS = tuple(f"worker-{stage}" for stage in STAGES)
HOLDERS = (SUPERVISOR, HOLDER)
CHILDREN = (VALKEY, TARGET, *WORKERS, API)
LEAST = 0.99
PROMISED = {TARGET: (LIVE, INGEST, LEDGER), VALKEY: (LIVE,), **dict.fromkeys(WORKERS, KINDS)}
_BACK_S, _FROZEN_S, _CAUGHT_UP_S, _PROVED_S = 400.0, 10.0, 1_800.0, 1_800.0


class Outage(NamedTuple):
    """A child or holder, the signal that it was sent, and from when to when it was away."""

    name: str
    signal: signal.Signals
    begun_s: float
    over_s: float


class Soak:
    """One deployment, its load and its faults.

    SIGKILL, and SIGSTOP, which the holder of a child finds out; a holder that is stopped goes on
    after a while: what it holds works meanwhile.

    Args:
        folder: of everything.
        seed: of who says what, and of the faults.
        tell: gets what happens, in words.
    """

    def __init__(self, folder: Path, seed: int, tell: Callable[[str], None]) -> None:
        self.account = Account()
        self.outages: list[Outage] = []
        self.digest = ""
        self._folder, self._seed, self._tell = folder, seed, tell
        self._data = folder / "data"
        self._people = people(seed)
        self._operator_key = secrets.token_hex(16)
        self._api_url = ""

    def run(self, seconds: float, *, hangs: bool = True) -> None:
        """Strike for so long, and until each fault came once; then prove.

        Raises:
            AssertionError: the proof failed, or what was struck did not come back.
        """
        operator = {"key": self._operator_key, "tenant": "*", "role": "admin"}
        keys = [key for person in self._people for key in person.api_keys()]
        settings = {
            "RECOLLECT_API_KEYS": json.dumps([operator, *keys]),
            # The port of all others may be somebody else's now, and free when the API comes back.
            "RECOLLECT_API_PORT": "0",
        }
        try:
            up = recollect("up", "--detach", "--all", data=self._data, settings=settings)
            self._api_url = up["api_url"]
            clients = crowd(self._people, self._api_url, self.account, self._seed)
            for client in clients:
                client.start()
            self._strike_all(seconds, (signal.SIGKILL, signal.SIGSTOP)[: 1 + hangs])
            for client in clients:
                client.over.set()
            for client in clients:
                client.join(60)
                assert not client.is_alive(), f"{client.name} still waits for its answers"
            self._tell(f"no more load; {len(self.account.book):,} events were acknowledged")
            self._prove()
        finally:
            recollect("down", data=self._data)
        self._prove_import()

    # -- faults ------------------------------------------------------------------------------------

    def _strike_all(self, seconds: float, signals: tuple[signal.Signals, ...]) -> None:
        """Decks, one after the other, in each of which every fault is once."""
        rng = random.Random(f"faults/{self._seed}")
        deck = list(itertools.product((*CHILDREN, *HOLDERS), signals))
        end_s = time.monotonic() + seconds
        while True:
            for name, number in rng.sample(deck, len(deck)):
                time.sleep(rng.uniform(3, 8))
                self._strike(name, number)
                if time.monotonic() > end_s and len(self.outages) >= len(deck):
                    return

    def _strike(self, name: str, number: signal.Signals) -> None:
        wait_until(lambda: self._up(name), f"{name} answers", _BACK_S)
        before, begun_s = self._up(name), time.monotonic()
        assert before is not None
        os.kill(before, number)
        away: tuple[int | None, ...] = (None, before)
        if name in HOLDERS and number is signal.SIGSTOP:
            time.sleep(_FROZEN_S)
            os.kill(before, signal.SIGCONT)
            away = (None,)
        wait_until(lambda: self._up(name) not in away, f"{name} is back", _BACK_S)
        ready = f"{self._api_url}/health/ready"
        wait_until(lambda: is_healthy(ready), "the API is ready", _BACK_S)
        self.outages.append(Outage(name, number, begun_s, time.monotonic()))
        self._tell(f"{number.name} {name}: {time.monotonic() - begun_s:.1f} s")

    def _up(self, name: str) -> int | None:
        """The process of a child or holder that answers now."""
        if name in (VALKEY, TARGET):
            server = live_servers(self._data).get(name)
            return server.pid if server is not None and server.answers else None
        holders = wanted(self._data)
        if name in HOLDERS:
            return holders[name].pid if name in holders else None
        command = "serve" if name == API else name.replace("-", " ")
        for pid, line in children(holders[HOLDER].pid).items():
            if f" {command} " in line and is_healthy(_health(pid, line)):
                return pid
        return None

    # -- the proof ---------------------------------------------------------------------------------

    def _prove(self) -> None:
        """All is folded; ledger, graph and the commands that prove them agree with the book."""

        def lags() -> list[int]:
            stages = recollect("status", data=self._data)["stages"].values()
            return [stage["lag_entries"] for stage in stages]

        wait_until(lambda: not any(lags()), "all is folded", _CAUGHT_UP_S)
        self._tell("all is folded")
        status = recollect("status", data=self._data)
        assert status["ok"], status
        assert recollect("check", data=self._data, timeout_s=_PROVED_S)["ok"]
        self._prove_ledger_and_graph()
        report = recollect("verify", data=self._data, timeout_s=_PROVED_S)
        assert report["ok"], report
        assert not report["lag_entries"], report
        assert not report["dead_letter_count"], report
        self.digest = report["stages"][PROJECTION.name]["digest"]
        self._tell(report["scope"])
        self._prove_words_are_found()

    def _prove_ledger_and_graph(self) -> None:
        """Each acknowledged event is there once, as it was sent, where it was acknowledged."""
        places: dict[tuple[str, str], list[Any]] = defaultdict(list)
        with Services(settings_of(None, None, self._data)) as services:
            for partition in range(services.ledger.partitions):
                for entry in itertools.chain.from_iterable(services.ledger.scan(partition)):
                    places[entry.event().key].append((str(entry.position), entry.data))
            text = "MATCH (e:Event) WHERE NOT e:Placeholder RETURN e.tenant, e.event_id"
            rows = services.driver(services.active()).execute_query(text).records
        now_ms = time.time_ns() // 1_000_000
        shown = []
        for key, (envelope, position) in self.account.book.items():
            event = offered_event(envelope, now_ms=now_ms, tenant=key[0])
            expected = [(position, encode_event(event))]
            assert places[key] == expected, f"lost, doubled or altered: {key}, {places[key]}"
            shown += [] if is_system_event(event.event_type) else [key]
        assert sorted(map(tuple, rows)) == sorted(shown), "lost or doubled in the graph"

    def _prove_words_are_found(self) -> None:
        """What is looked for in answers is found where it may be: the looking works."""
        for person in self._people:
            headers = {"X-API-Key": self._operator_key, "X-Tenant": person.tenant}
            path = f"{self._api_url}/v1/context/{person.session(1)}?user_id=*&timeout_ms=30000"
            text = httpx.get(path, headers=headers, timeout=60).text
            for other in self._people:
                assert (other.id_prefix in text) == (other is person), (person.name, other.name)

    def _prove_import(self) -> None:
        """The same events in a fresh ledger, folded once and without trouble, have this digest."""
        source = self._folder / "acknowledged.jsonl"
        book = self.account.book.items()
        lines = [json.dumps({**taken.envelope, "tenant": tenant}) for (tenant, _), taken in book]
        source.write_text("\n".join(lines), encoding="utf-8")
        clean = Deployment(self._folder / "clean", batch_size=1_000)
        try:
            clean.start_worker()
            code, document = clean.recollect("import", str(source), "--wait")
            assert (code, document["new"]) == (0, len(lines)), document
            code, report = clean.recollect("verify", "--fast")
            assert code == 0, report
        finally:
            clean.close()
        assert report["digest"] == self.digest, f"{self.digest}, of a clean import {report}"

    # -- the account -------------------------------------------------------------------------------

    def share(self, kind: str, *names: str) -> tuple[int, int]:
        """Calls of a kind answered and sent, while one of these was away; without names: ever."""
        spans = [(one.begun_s, one.over_s) for one in self.outages if one.name in names]
        answers = [
            call.answered
            for call in self.account.calls
            if call.kind == kind
            and (not names or any(begun <= call.sent_s <= over for begun, over in spans))
        ]
        return sum(answers), len(answers)

    def failures(self) -> list[str]:
        """What may not be."""
        cells = [(name, kind) for name, kinds in PROMISED.items() for kind in kinds]
        shares = [(name, kind, *self.share(kind, name)) for name, kind in cells]
        return self.account.failures + [
            f"{name} away: {kind} answered {good} of {sent}"
            for name, kind, good, sent in shares
            if good < LEAST * sent
        ]

    def table(self) -> str:
        """For a person."""
        account = self.account
        lines = [
            f"{len(account.book):,} events acknowledged, {account.retries:,} tries again, "
            f"{account.again} sent once more; {account.answers.total():,} reads, "
            f"{account.leaks} with words of others",
            f"{'away':<22}{'faults':>7}{'longest':>10}" + "".join(f"{k:>20}" for k in KINDS),
        ]
        for name in ("", *CHILDREN, *HOLDERS):
            lasted = [one.over_s - one.begun_s for one in self.outages if one.name == name]
            row = f"{name or 'all the time':<22}{len(lasted):>7}{max(lasted, default=0):>8.1f} s"
            for kind in KINDS:
                good, sent = self.share(kind, *filter(None, [name]))
                row += f"{good / sent:>12.2%} of {sent:<4,}" if sent else f"{'-':>20}"
            lines.append(row)
        routes = sorted(account.answers.items())
        lines.append(", ".join(f"{route} {code}: {n:,}" for (route, code), n in routes))
        return "\n".join([*lines, f"digest {self.digest or 'not reached'}", *self.failures()[:40]])


def _health(pid: int, line: str) -> str:
    """Where a worker or the API says that it is well; one that has ended meanwhile does nowhere."""
    if " serve " in line:
        return f"http://127.0.0.1:{line.split('--port ')[1].split()[0]}/health/live"
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes().decode()
    except OSError:
        environment = ""
    port = environment.partition("RECOLLECT_METRICS_PORT=")[2].partition("\0")[0]
    return f"http://127.0.0.1:{port or 1}{HEALTH_PATH}"
