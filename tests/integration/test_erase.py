"""Somebody is erased: no word of theirs is anywhere, and nobody else notices."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from consolidation.decay import DAY_MS
from pipelines.cli.outcome import AWAY
from pipelines.graph.neo4j import Neo4jGraph
from pipelines.ledger.erasing import DONE, FENCED, STEPS, begin_erasure, erasures
from pipelines.ledger.sealing import Subject
from pipelines.ledger.vault import SEALED
from pipelines.operations import consolidate as passes
from pipelines.operations import erase
from pipelines.operations.archive import archive
from pipelines.operations.backup import backup
from pipelines.operations.consolidate import consolidate
from pipelines.operations.decider import Decider
from pipelines.operations.export.events import Format, Selection
from pipelines.operations.export.run import export
from pipelines.operations.rebuild import rebuild
from pipelines.operations.receipts import covered_digest, receipts, verified
from pipelines.operations.status import status
from pipelines.operations.traces import traces
from pipelines.proof import verify as proof_of
from pipelines.proof.report import ProofReport
from pipelines.proof.verify import verify
from projections.errors import OperationFailed, SubjectErased
from projections.events import timestamp_ms
from projections.identity import START
from tests import forked_cli
from tests.decision_factories import COMMUNITIES, ENTITIES, TRAITS, community, derived
from tests.factories import event
from tests.integration.api_support import (
    ADMIN_KEY,
    READ_KEY,
    assert_problem,
    envelope,
    running_api,
)
from tests.integration.consolidation_support import Consolidated, without_models
from tests.integration.enrichment_support import Enriched
from tests.integration.private_world import OTHER, TENANT, World, nodes_of, world
from tests.integration.stack import Stack
from tests.integration.test_api_private import (
    CALLERS,
    ROUTES,
    Caller,
    Look,
    Town,
    sent,
    unsaid,
)
from tests.integration.test_cli import clean_environment
from tests.waiting import wait_until

pytestmark = pytest.mark.integration
MASTER = "5e" * 32


@pytest.fixture
def sealed(make_stack: Callable[..., Stack], tmp_path: Path) -> Stack:
    """A stack of which one tenant is sealed, and another one is not."""
    stack = make_stack(master_key=MASTER, data_dir=tmp_path)
    erase.seal_tenant(stack.services, TENANT)
    return stack


def told(stack: Stack, seed: int = 5) -> World:
    """Folded by all stages, and decided about."""
    made = world(seed)
    enriched = Enriched(stack)
    enriched.take_in(*made.events)
    consolidate(stack.services)
    return made


def canaries(made: World, name: str) -> list[str]:
    """Words that stand in nothing but what this user of the tenant said."""
    return [*made.own_words(made.users[name])[1:], made.users[name]]


def graph_text(stack: Stack, tenant: str) -> str:
    """All properties of all nodes of a tenant, and of all edges at them."""
    nodes = stack.cypher("MATCH (n {tenant: $t}) RETURN properties(n)", t=tenant)
    edges = stack.cypher("MATCH ({tenant: $t})-[r]-() RETURN properties(r)", t=tenant)
    letters = stack.cypher("MATCH (d:DeadLetter) RETURN properties(d)")
    return repr([nodes, edges, letters]).casefold()


def redis_text(stack: Stack) -> str:
    """All that Redis holds, stream entries as they stand there."""
    redis: Any = stack.services.redis
    rows: list[Any] = []
    for key in sorted(redis.scan_iter()):
        kind = redis.type(key)
        if kind == b"stream":
            rows += [fields for _, fields in redis.xrange(key)]
        elif kind == b"hash":
            rows.append(redis.hgetall(key))
        elif kind == b"string":
            rows.append(redis.get(key))
        elif kind == b"list":
            rows.append(redis.lrange(key, 0, -1))
    return repr(rows).casefold()


def file_text(folder: Path) -> str:
    return "".join(
        path.read_bytes().decode("latin-1") for path in sorted(folder.rglob("*")) if path.is_file()
    ).casefold()


def entries_text(stack: Stack, tenant: str) -> str:
    """The entries of a tenant as they were written; files of the archive hold them packed."""
    partitions = range(stack.ledger.partitions)
    entries = [one for each in partitions for one in stack.ledger.read(each, START, 10_000)]
    own_part = f'"tenant":"{tenant}"'.encode()
    texts = [one.data.decode("latin-1") for one in entries if own_part in one.data]
    assert texts
    return "".join(texts)


def exported(stack: Stack, folder: Path, form: Format) -> str:
    file = folder / f"out.{form}"
    export(stack.services, form, Selection(TENANT, None, None, None), file, progress=silent)
    text = file.read_text().casefold()
    file.unlink()
    return text


def silent(done: int, total: int | None, what: str) -> None:
    pass


def hits(text: str, words: list[str]) -> list[str]:
    return [word for word in words if word.casefold() in text.casefold()]


def run(stack: Stack, name: str, made: World, reason: str = "asked") -> dict[str, Any]:
    subject = Subject("user", made.users[name])
    key_id = begin_erasure(stack.ledger, TENANT, subject, reason=reason, by="a test")
    return erase.finish(stack.services, key_id)


def seen(stack: Stack, tenant: str, user: str | None) -> list[Any]:
    """What the graph has of a user."""
    return sorted(
        repr(row)
        for row in stack.cypher(
            "MATCH (e:Event {tenant: $t}) WHERE e.user_id = $u "
            "RETURN e.event_id, e.text, e.keywords, e.summary, e.importance_score",
            t=tenant,
            u=user,
        )
    )


def answers(town: Town, caller: Caller) -> str:
    """What every read route says to somebody, without the words of the questions."""
    look = Look(town, caller, random.Random(1), many=1)
    said = []
    tenant = {"X-Tenant": TENANT} if caller.key == ADMIN_KEY else {}
    with town.api.client(caller.key, **tenant) as client:
        for (method, _), questions in ROUTES.items():
            for request in questions(look):
                answer = sent(look, client, method, request, None)
                assert answer.status_code in (200, 404), answer.text
                said.append(unsaid(request, answer))
    return "".join(said).casefold()


def test_no_word_of_the_erased_is_anywhere_and_others_stay(sealed: Stack, tmp_path: Path) -> None:
    made = told(sealed)
    words = canaries(made, "ann")
    bob, cat = (made.users[name] for name in ("bob", "cat"))
    before = {user: seen(sealed, TENANT, user) for user in (bob, cat)}
    other = graph_text(sealed, OTHER)
    assert set(hits(graph_text(sealed, TENANT), words)) == set(words)
    assert set(hits(exported(sealed, tmp_path, Format.EVENTS), words)) == set(words)
    assert hits(redis_text(sealed), words[:-1]) == []
    asked = (sealed.services, TENANT, made.users["ann"], words[:-1])
    there = traces(*asked)
    assert (there.ledger > 0, there.graphs["blue"] > 0, any(there.files)) == (True, True, True)

    proved = verify(sealed.services, tenant=TENANT)
    backup(sealed.services, str(tmp_path / "backup"), keep_days=30)

    outcome = run(sealed, "ann", made)

    assert outcome["step"] == DONE
    assert outcome["entries"] > sum(one.user_id == made.users["ann"] for one in made.events) / 2
    assert outcome["stores"]["derivations"]["forgotten"] > 0
    consolidate(sealed.services)
    assert hits(graph_text(sealed, TENANT), words) == []
    assert hits(redis_text(sealed), words[:-1]) == []
    assert hits(file_text(tmp_path), words[:-1]) == []
    for form in (Format.EVENTS, Format.GRAPHML):
        assert hits(exported(sealed, tmp_path, form), words) == []
    assert {user: seen(sealed, TENANT, user) for user in (bob, cat)} == before
    assert graph_text(sealed, OTHER) == other
    left = traces(*asked)  # the other tenant has a user of the same id
    assert (left.ledger, left.graphs) == (0, {"blue": 0})
    report = verify(sealed.services)
    assert report.ok, report.differences
    rows = receipts(sealed.services)
    assert verified(rows).problems == []
    told_of(sealed, rows[0], proved, verify(sealed.services, tenant=TENANT))
    assert hits(json.dumps(rows), words) == []
    doors(sealed, made, words)


def told_of(stack: Stack, receipt: dict[str, Any], before: ProofReport, after: ProofReport) -> None:
    """A receipt says what the graph came to before and after, and which backups there are."""
    graph, store = receipt["stores"]["graph blue"], stack.ledger.vault.require_store()
    assert graph["digests_before"] == {
        name: covered_digest(store, one.digest) for name, one in before.stages.items()
    }
    assert graph["digests"].keys() == after.stages.keys()
    (kept,) = receipt["backups"]
    days = [timestamp_ms(kept[name]) // DAY_MS for name in ("made_at", "kept_until")]
    assert days[1] - days[0] == 30


def test_who_is_in_the_archive_is_erased_as_well(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    folder = tmp_path / "archive"
    stack = make_stack(master_key=MASTER, data_dir=tmp_path, archive_url=str(folder))
    erase.seal_tenant(stack.services, TENANT)
    made = told(stack)
    words = canaries(made, "ann")
    moved = archive(stack.services, keep=1)
    assert moved.archived > len(made.events) / 2
    segments = file_text(folder)
    assert hits(entries_text(stack, TENANT), words) == []

    outcome = run(stack, "ann", made)

    assert outcome["entries"] > sum(one.user_id == made.users["ann"] for one in made.events) / 2
    assert hits(graph_text(stack, TENANT), words) == []
    assert hits(exported(stack, tmp_path, Format.EVENTS), words) == []
    assert file_text(folder) == segments, "entries stay as they were written"
    report = verify(stack.services)
    assert report.ok, report.differences
    again = rebuild(stack.services).verified
    assert (again.ok, again.digest) == (True, report.digest)


def test_a_consent_that_is_withdrawn_takes_what_was_derived_along(
    make_stack: Callable[..., Stack], tmp_path: Path
) -> None:
    stack = make_stack(data_dir=tmp_path)
    enriched = Enriched(stack)
    under = [event(n, session_id="session-1", user_id="bob") for n in (20, 21, 22)]
    early, late, other = (
        one._replace(consent_ref=consent, payload={"content": f"a {word} is here"})
        for one, consent, word in zip(
            under, ("study-7", "study-8", "care-1"), ("hoopoe", "hoopoe", "wagtail"), strict=True
        )
    )
    enriched.take_in(early, other)
    subject = Subject("consent", "study*")
    before = repr(stack.dump())

    key_id = begin_erasure(stack.ledger, "default", subject, reason="asked", by="x")
    told = erase.finish(stack.services, key_id)
    enriched.take_in(late)

    assert (told["step"], told["entries"], told["receipt"]) == (DONE, 1, None)
    after = repr(stack.dump())
    assert [before.count("hoopoe") > 0, after.count("hoopoe")] == [True, 0]
    assert after.count("wagtail") == before.count("wagtail") > 0
    kept = {one.event_id: one for one in (early, late, other)}
    found = stack.ledger.find_many([one.key for one in kept.values()])
    payloads = {key[1]: entry.event().payload for key, entry in found.items()}
    assert payloads == {**dict.fromkeys(kept), other.event_id: other.payload}
    report = verify(stack.services)
    assert report.ok, report.differences
    assert status(stack.services)["sealing"]["under_way"] == []


def doors(stack: Stack, made: World, words: list[str]) -> None:
    """The same is asked over HTTP; and bob is erased that way."""
    settings = stack.services.settings
    options = {
        name: getattr(settings, name)
        for name in ("partitions", "id_buckets", "master_key", "data_dir")
    } | {"record_accesses": False, "stream_life_s": 0.2}
    urls = settings.redis_url, settings.neo4j_url
    tenant = {"X-Tenant": TENANT}
    with running_api(*urls, **options) as api, api.client(ADMIN_KEY, **tenant) as client:
        town = Town(made, stack, api, nodes_of(stack, made))
        text = answers(town, CALLERS["an operator"])
        assert hits(text, words) == []
        assert hits(text, made.own_words(made.users["bob"]))
        back = envelope(user_id=made.users["ann"], payload={"content": "back again"})
        assert_problem(client.post("/v1/events", json=back), 422, "erased")
        path = f"/v1/users/{made.users['bob']}"
        with api.client(READ_KEY) as reader:
            assert_problem(reader.delete(path), 403, "forbidden")
        assert_problem(client.delete("/v1/users/nobody"), 404, "not-found")
        asked = client.delete(path).json()
        assert (asked["step"], asked["entries"] > 0) == (None, True)
        assert_problem(client.delete(path, params={"confirm": "0" * 32}), 422, "invalid-input")
        begun = client.delete(path, params={"confirm": asked["confirm"], "reason": "asked"})
        assert (begun.status_code, begun.json()["step"]) == (202, FENCED)
        late = envelope(user_id=made.users["bob"], payload={"content": "one more"})
        assert_problem(client.post("/v1/events", json=late), 422, "erased")
        assert client.delete(path).json()["step"] == FENCED
    (under_way,) = status(stack.services)["sealing"]["under_way"]
    assert under_way["subject"] == asked["subject"]


# -- steps -----------------------------------------------------------------------------------------


CANARY = "zebrafinch"


@pytest.fixture
def plain(make_stack: Callable[..., Stack], tmp_path: Path) -> Iterator[Consolidated]:
    """All stages without models; a user with a word of their own among others."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (erase, proof_of, passes):
            patch.setattr(module, "make_fold", without_models)
        patch.setattr(erase, "FORGOTTEN_WITHIN_S", 0.0)  # nobody else has keys
        stack = make_stack(master_key=MASTER, data_dir=tmp_path, derivations_url=None)
        erase.seal_tenant(stack.services, "default")
        made = Consolidated(stack)
        made.take_in(
            *(
                event(
                    n,
                    session_id=f"session-{n % 2}",
                    user_id=("ann", "bob")[n % 2],
                    payload={"content": f"{CANARY if n % 2 == 0 else 'sparrow'} {n}"},
                    tool_name=None,
                )
                for n in range(1, 9)
            )
        )
        yield made


def test_a_process_that_is_killed_at_any_step_is_followed_by_one_that_ends_it(
    plain: Consolidated,
) -> None:
    stack = plain.stack
    settings = stack.services.settings
    key_id = begin_erasure(stack.ledger, "default", Subject("user", "ann"), reason="", by="x")
    given = {
        "RECOLLECT_REDIS_URL": settings.redis_url,
        "RECOLLECT_NEO4J_URL": settings.neo4j_url,
        "RECOLLECT_PARTITIONS": str(settings.partitions),
        "RECOLLECT_ID_BUCKETS": str(settings.id_buckets),
        "RECOLLECT_MASTER_KEY": MASTER,
        "RECOLLECT_DATA_DIR": str(settings.data_dir),
        "RECOLLECT_LEASE_MS": "500",
    }
    redis: Any = stack.services.redis
    lease = stack.ledger.keys.pass_lease
    steps = []
    for step in STEPS[1:]:
        done = subprocess.run(
            [sys.executable, "-m", "tests.integration.killed_erasure", step, key_id.hex()],
            env={**clean_environment(), **given},
            capture_output=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == -signal.SIGKILL, done.stderr.decode()
        steps.append(erasures(stack.ledger.vault)[0]["step"])
        (under_way,) = status(stack.services)["sealing"]["under_way"]
        assert under_way["step"] == steps[-1]
        wait_until(lambda: not redis.exists(lease), "the lease ends")
    assert steps == list(STEPS[:-1])
    told = erase.finish(stack.services, key_id)
    assert (told["step"], told["receipt"], told["entries"]) == (DONE, 1, 4)
    assert len(receipts(stack.services)) == 1
    plain.fold()
    assert hits(repr(stack.dump()), [CANARY, "'ann'"]) == []
    assert "sparrow" in repr([e.event() for b in stack.blocks(0) for e in b.entries]) + repr(
        [e.event() for b in stack.blocks(1) for e in b.entries]
    )
    report = verify(stack.services)
    assert report.ok, report.differences
    sealing = status(stack.services)["sealing"]
    assert sealing == {"tenants": ["default"], "error": None, "erased": 1, "under_way": []}


def test_a_command_that_folds_ends_at_once_where_it_has_no_keys(plain: Consolidated) -> None:
    settings = plain.stack.services.settings
    services = ["--redis", settings.redis_url, "--neo4j", settings.neo4j_url]
    environment = {
        **clean_environment(),
        "RECOLLECT_PARTITIONS": str(settings.partitions),
        "RECOLLECT_ID_BUCKETS": str(settings.id_buckets),
    }
    cases = [("rebuild", "RECOLLECT_MASTER_KEY", ""), ("verify", "no key store", MASTER)]
    for command, why, master in cases:
        done = forked_cli.run(
            [command, *services, "--data", str(settings.data_dir / "elsewhere")],
            {**environment, **({"RECOLLECT_MASTER_KEY": master} if master else {})},
            timeout_s=30,
        )
        assert (done.returncode, why in done.stderr.decode()) == (AWAY, True), done.stderr


def test_who_is_erased_by_mistake_of_name_or_tenant_is_nobody(plain: Consolidated) -> None:
    ledger = plain.stack.ledger
    for tenant, name, why in (
        ("default", "nobody", "holds nothing"),
        ("open", "ann", "not sealed"),
    ):
        with pytest.raises(OperationFailed, match=why):
            begin_erasure(ledger, tenant, Subject("user", name), reason="", by="x")
    assert erasures(ledger.vault) == []


def test_a_tenant_with_events_is_not_sealed_afterwards(plain: Consolidated) -> None:
    plain.take_in(event(50, tenant="open"))
    with pytest.raises(OperationFailed, match="events that are not sealed"):
        erase.seal_tenant(plain.stack.services, "open")
    plain.take_in(event(51, tenant="open"))
    assert plain.stack.ledger.vault.fences.read().tenants == {"default": SEALED}


def test_receipts_that_were_changed_or_taken_out_are_found(plain: Consolidated) -> None:
    stack = plain.stack
    for name in ("ann", "bob"):
        subject = Subject("user", name)
        key_id = begin_erasure(stack.ledger, "default", subject, reason="", by="x")
        erase.finish(stack.services, key_id)
    first, second = receipts(stack.services)
    assert verified([first, second]).problems == []
    assert len(verified([{**first, "entries": 1}, second]).problems) == 2
    assert verified([second]).problems == ["receipt 1 does not follow the one before it"]


def test_a_worker_ends_what_was_asked_for_over_http(plain: Consolidated) -> None:
    stack = plain.stack
    key_id = begin_erasure(stack.ledger, "default", Subject("user", "ann"), reason="", by="x")
    decider = Decider(stack.services.settings, stack.target.name)
    decider._erase()
    decider._services.close()
    (erasure,) = erasures(stack.ledger.vault)
    assert (erasure["subject"], erasure["step"]) == (key_id.hex(), DONE)
    plain.fold()
    assert hits(repr(stack.dump()), [CANARY]) == []


def test_an_older_ledger_that_is_put_back_is_erased_once_more(plain: Consolidated) -> None:
    """Without the fence; the key stays destroyed, so nothing of it is read or taken meanwhile."""
    stack = plain.stack
    subject = Subject("user", "ann")
    key_id = begin_erasure(stack.ledger, "default", subject, reason="", by="x")
    erase.finish(stack.services, key_id)
    redis: Any = stack.services.redis
    redis.hdel(stack.ledger.keys.fences, key_id)
    redis.delete(stack.ledger.keys.receipts)
    stack.ledger.vault.renew()
    late = event(70, user_id="ann", payload={"content": CANARY})
    assert isinstance(stack.ledger.append([late])[0], SubjectErased)
    assert begin_erasure(stack.ledger, "default", subject, reason="", by="x") == key_id
    again = erase.finish(stack.services, key_id)
    assert (again["step"], again["entries"]) == (DONE, 4)


def test_commands_ask_before_they_erase_and_name_what_is_wrong(plain: Consolidated) -> None:
    settings = plain.stack.services.settings
    given = {
        "RECOLLECT_PARTITIONS": str(settings.partitions),
        "RECOLLECT_ID_BUCKETS": str(settings.id_buckets),
        "RECOLLECT_DATA_DIR": str(settings.data_dir),
        "RECOLLECT_MASTER_KEY": MASTER,
    }
    where = ["--redis", settings.redis_url, "--neo4j", settings.neo4j_url, "--json"]

    def recollect(*arguments: str, **more: str) -> tuple[int, dict[str, Any]]:
        environment = {**clean_environment(), **given, **more}
        done = forked_cli.run([*arguments, *where], environment)
        return done.returncode, json.loads(done.stdout)

    code, plan = recollect("erase", "--user", "ann")
    assert (code, plan["entries"], plan["erased"]) == (4, 4, False)
    assert erasures(plain.stack.ledger.vault) == []
    code, refused = recollect("erase", "--user", "ann", "--yes", RECOLLECT_MASTER_KEY="cd" * 32)
    assert (code, refused["error"]["retryable"]) == (3, True)
    assert "is not the one of" in refused["error"]["message"]
    assert recollect("receipts", "verify") == (
        0,
        {"ok": True, "receipts": 0, "public_key": "", "problems": []},
    )


def test_what_was_decided_of_several_goes_if_it_names_the_erased(plain: Consolidated) -> None:
    stack = plain.stack
    mixed, other = (
        community(number, COMMUNITIES[number - 80], ENTITIES[:4], "run-1") for number in (80, 81)
    )
    naming = mixed._replace(payload={**mixed.payload, "summary": f"Ann, and her {CANARY}s."})
    others = other._replace(payload={**other.payload, "summary": "Annual plans of the band."})
    plain.take_in(naming, others)
    assert hits(repr(stack.dump()), [CANARY, "annual plans"]) == [CANARY, "annual plans"]
    subject = Subject("user", "ann")
    key_id = begin_erasure(stack.ledger, "default", subject, reason="", by="x")
    assert len(erase.finish(stack.services, key_id)["mixed"]) == 1
    plain.fold()
    assert hits(repr(stack.dump()), [CANARY, "annual plans"]) == ["annual plans"]
    entry = stack.ledger.find(*naming.key)
    assert entry is not None
    assert (entry.event().event_type, entry.event().payload) == ("memory.erased", None)


def test_graphs_are_read_once_all_that_was_folded_can_be_read(
    plain: Consolidated, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack = plain.stack
    waited_for: set[tuple[str, int]] = set()
    at_first: list[set[tuple[str, int]]] = []

    def settle(_: Neo4jGraph, stage: str, partitions: Iterable[int]) -> None:
        waited_for.update((stage, partition) for partition in partitions)

    def digests(_: object) -> dict[str, dict[str, str]]:
        at_first.append(set(waited_for))
        return {}

    monkeypatch.setattr(Neo4jGraph, "settle", settle)
    monkeypatch.setattr(erase._Erasure, "_digests", digests)
    key_id = begin_erasure(stack.ledger, "default", Subject("user", "ann"), reason="", by="x")
    erase.finish(stack.services, key_id)
    assert at_first == [{(at.stage, at.partition) for at in stack.graph.checkpoints()}]


def test_what_was_derived_of_the_erased_goes_and_that_of_others_stays(plain: Consolidated) -> None:
    stack = plain.stack
    of_ann, of_bob = (
        derived(number, own_id, user=user, name=name)
        for number, own_id, user, name in (
            (80, TRAITS[0], "ann", f"feeds {CANARY}s"),
            (81, TRAITS[1], "bob", "feeds sparrows"),
        )
    )
    plain.take_in(of_ann, of_bob)
    kept = "MATCH (n:Entity)-->(t:Trait) WHERE NOT t:Underived RETURN t.user_id, t.name"
    assert sorted(stack.cypher(kept))[0] == ["ann", f"feeds {CANARY}s"]
    key_id = begin_erasure(stack.ledger, "default", Subject("user", "ann"), reason="", by="x")
    erase.finish(stack.services, key_id)
    plain.fold()
    assert stack.cypher(kept) == [["bob", "feeds sparrows"]]
    assert hits(repr(stack.dump()), [CANARY, "'ann'"]) == []
    report = verify(stack.services)
    assert report.ok, report.differences
