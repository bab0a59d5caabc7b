"""The demonstration with some facts, folded by two stages, and a browser that looks at it."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.sync_api import Browser, Page, expect, sync_playwright

from api.main import warm_up
from consolidation.payloads import Trait, TraitKind, TraitsDecided
from pipelines.ledger.command_notes import Rebuilding
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.archive import archive
from pipelines.operations.decider import Decider
from pipelines.operations.demo import FAILURE, scenario_path
from pipelines.operations.erase import seal_tenant
from pipelines.operations.formats.table import event_items
from pipelines.operations.imports import import_events
from pipelines.operations.sources import Source
from pipelines.work.services import make_fold
from pipelines.work.settings import ApiKey
from pipelines.work.stages import CONSOLIDATION
from projections.events import DEFAULT_TENANT, Event
from projections.identity import Position
from projections.schema import DEAD_LETTER
from tests.decision_factories import consolidated
from tests.factories import START_MS, event, event_id
from tests.integration.api_support import ADMIN_KEY, OTHER_KEY, READ_KEY, Api, running_api
from tests.integration.enrichment_support import Enriched
from tests.integration.facts_support import OTHER, Facts, party
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey

CHROMIUM: Final = shutil.which("chromium") or shutil.which("chromium-browser") or ""
NO_CHROMIUM: Final = "no Chromium on this machine"
# The graph is drawn by WebGL, here without a graphics card; nothing is asked of the network.
FLAGS: Final = (
    *("--no-first-run", "--disable-quic", "--disable-background-networking"),
    *("--disable-component-update", "--disable-sync"),
    *("--use-angle=swiftshader", "--enable-unsafe-swiftshader"),
    *(("--no-sandbox",) if os.geteuid() == 0 else ()),
)
ANA: Final = "cust-ana"
SEALED, ZOE = "private", "zoe"
ANA_KEY: Final = "read-key-of-ana-0123456789"
BOUND_ADMIN_KEY: Final = "admin-key-of-ana-0123456789"
KEYS: Final = (
    ApiKey(name="operator", key=ADMIN_KEY, tenant="*", role="admin"),
    ApiKey(name="reader", key=READ_KEY, tenant=DEFAULT_TENANT, role="read"),
    ApiKey(name="ana", key=ANA_KEY, tenant=DEFAULT_TENANT, role="read", user_id=ANA),
    ApiKey(name="bound", key=BOUND_ADMIN_KEY, tenant=DEFAULT_TENANT, role="admin", user_id=ANA),
    ApiKey(name="stranger", key=OTHER_KEY, tenant=OTHER, role="admin"),
)
PATIENCE_MS: Final = 20_000


def facts() -> list[Event]:
    """Of one service: an owner that changed, something said twice, something withdrawn."""
    told, checkout = Facts(), party("checkout", "service")
    for owner, day in (("team-payments", 0), ("team-orders", 40)):
        told.say(checkout, "has_owner", owner, day=day, tenant=DEFAULT_TENANT)
    for day in (10, 20):
        told.say(checkout, "depends_on", "gateway", day=day, tenant=DEFAULT_TENANT)
    wrong = told.say(checkout, "depends_on", "search", day=30, tenant=DEFAULT_TENANT)
    told.say(checkout, "liked_by", "ben", day=5, tenant=DEFAULT_TENANT, user_id="cust-ben")
    ana = party(ANA, "user")
    for city, day in (("Berlin", 1), ("Lisbon", 50)):
        told.say(ana, "lives_in", city, day=day, tenant=DEFAULT_TENANT, user_id=ANA)
    told.say(ana, "prefers", "short answers", day=6, tenant=DEFAULT_TENANT, user_id=ANA)
    payload = {
        "source": checkout,
        "relation": "depends_on",
        "target": party("search"),
        "event_id": wrong.event_id,
    }
    retracted = event(
        90,
        event_type="memory.fact_retracted",
        tenant=DEFAULT_TENANT,
        session_id="memory",
        payload=payload,
    )
    elsewhere = event(91, tenant=OTHER, session_id="theirs", payload={"text": "of another tenant"})
    private = {"tenant": SEALED, "user_id": ZOE, "session_id": "quiet"}
    secret = event(92, payload={"text": "My cat is called Miso."}, **private)
    return [*told.events, retracted, elsewhere, secret]


HABIT: Final = "get_order, then charge_card"
SKILL: Final = "charge_card"
WHOLE: Final = "card"
"""The skill that it is a part of."""
_CENTURY_MS: Final = 100 * 365 * 86_400_000


def habits() -> Event:
    """The decision of what Ana's sessions have in common: traits of each kind."""
    made: tuple[tuple[TraitKind, str], ...] = (
        ("pattern", HABIT),
        ("skill", SKILL),
        ("interest", "refunds"),
        ("skill", WHOLE),
    )
    traits = tuple(
        Trait(
            trait_id=str(number) * 32,
            kind=kind,
            name=name,
            strength=0.75,
            session_count=3,
            first_seen_ms=START_MS,
            last_seen_ms=START_MS + 86_400_000,
            holds_until_ms=START_MS + _CENTURY_MS,
            event_ids=(FAILURE, event_id(1)),
            parent_id="3" * 32 if name == SKILL else None,
        )
        for number, (kind, name) in enumerate(made)
    )
    return consolidated(93, TraitsDecided(user_ids=(ANA,), traits=traits).payload())


def add_dead_letters(stack: Stack) -> None:
    """One of each tenant; the first is of an entry that could be folded by now."""
    (entry,) = stack.ledger.read(0, Position(0, 0), 1)
    for tenant, seq, position in (
        (DEFAULT_TENANT, entry.seq, str(entry.position)),
        (OTHER, 10_000, "1-0"),
    ):
        stack.driver.execute_query(
            f"CREATE (d:{DEAD_LETTER.label} {{stage: 'enrichment', partition: 0, seq: $seq, "
            "position: $position, tenant: $tenant, event_id: $event_id, kind: 'poison', "
            "reason: $reason, attempts: 5})",
            seq=seq,
            position=position,
            tenant=tenant,
            event_id=event_id(seq),
            reason=f"cannot be read, of {tenant}",
        )


def under_way(memory: Explored) -> None:
    """A rebuild that says how far it is, and older events in the archive."""
    services, now_s = memory.enriched.stack.services, time.time()
    services.rebuilds.tell(Rebuilding("green", "enrichment of green", 15, 60, now_s - 40, now_s))
    archive(services, keep=3)


class Explored(NamedTuple):
    """A running API over a memory, and what a worker folds it with."""

    api: Api
    enriched: Enriched

    def work(self) -> None:
        """Do what the workers do when something comes."""
        stack = self.enriched.stack
        stack.fold()
        self.enriched.fold()
        decider = Decider(stack.services.settings, stack.target.name)
        decider._services = stack.services  # its models are loaded
        decider._erase()
        decider._retry()


@contextmanager
def explored(valkey: ValkeyServer, neo4j_server: Neo4jServer, folder: Path) -> Iterator[Explored]:
    """The demonstration, facts, a sealed tenant and two dead letters, and the API, warmed up."""
    redis_url, neo4j_url = emptied_valkey(valkey), emptied_neo4j(neo4j_server)
    keys: dict[str, Any] = {
        "master_key": "5e" * 32,
        "data_dir": folder,
        "archive_url": str(folder / "archive"),
    }
    stack = Stack(redis_url, neo4j_url, **keys)
    source = Source(scenario_path())
    try:
        seal_tenant(stack.services, SEALED)
        with source.stream:
            import_events(stack.ledger, event_items(source.stream))
        enriched = Enriched(stack)
        enriched.take_in(*facts(), habits())
        consolidation = stack.new_runner(make_fold(CONSOLIDATION, stack.services, stack.target))
        consolidation.prepare(stack.ledger.partitions)
        stack.fold(runner=consolidation)
        add_dead_letters(stack)
        options = {"partitions": PARTITIONS, "id_buckets": 64, "api_keys": KEYS, **keys}
        with running_api(redis_url, neo4j_url, **options) as api:
            assert warm_up(api.app.state.services)
            yield Explored(api, enriched)
    finally:
        stack.close()


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser that is on the machine already."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        try:
            yield browser
        finally:
            browser.close()


class Explorer:
    """A person at the pages.

    Attributes:
        page: of the browser.
        wrong: what the page complained of: errors, refused loads, requests to elsewhere.
    """

    def __init__(self, browser: Browser, url: str, **options: Any) -> None:
        self._url = url
        self.context = browser.new_context(locale="en-GB", timezone_id="UTC", **options)
        self.context.set_default_timeout(PATIENCE_MS)
        self.page: Page = self.context.new_page()
        self.wrong: list[str] = []
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self._note(said.type, said.text))
        self.page.on("request", lambda request: self._look(request.url))

    def _note(self, kind: str, text: str) -> None:
        # that a key is asked for is told by an answer of 401, that a page has no summary by a 404
        if kind == "error" and "the server responded with a status of 40" not in text:
            self.wrong.append(text)

    def _look(self, url: str) -> None:
        if not url.startswith(self._url):
            self.wrong.append(url)

    def login(self, key: str, tenant: str = "") -> None:
        """Come in with a key."""
        self.page.goto(f"{self._url}/ui")
        self.page.get_by_label("API key").fill(key)
        if tenant:
            self.page.get_by_text("The key is for several tenants").click()
            self.page.get_by_label("Tenant").fill(tenant)
        self.page.get_by_role("button", name="Open").click()

    def open(self, place: str) -> None:
        """Go to a page by its address, as from a bookmark."""
        self.page.goto(f"{self._url}/ui/#/{place}")
        self.page.locator("main .room h1").wait_for()
