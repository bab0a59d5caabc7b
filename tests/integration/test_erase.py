"""Somebody is erased: no word of theirs is anywhere, and nobody else notices."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pipelines.ledger.erasing import DONE, begin_erasure
from pipelines.ledger.sealing import Subject
from pipelines.operations import erase
from pipelines.operations.consolidate import consolidate
from pipelines.operations.export.run import export
from pipelines.operations.export.selection import Format, Selection
from pipelines.proof.verify import verify
from tests.integration.enrichment_support import Enriched
from tests.integration.private_world import OTHER, TENANT, World, world
from tests.integration.stack import Stack

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


def exported(stack: Stack, folder: Path, form: Format) -> str:
    file = folder / f"out.{form}"
    export(stack.services, form, Selection(TENANT, None, None, None), file, progress=silent)
    text = file.read_text().casefold()
    file.unlink()
    return text


def silent(done: int, total: int | None, what: str) -> None:
    pass


def hits(text: str, words: list[str]) -> list[str]:
    return [word for word in words if word.casefold() in text]


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


def test_no_word_of_the_erased_is_anywhere_and_others_stay(sealed: Stack, tmp_path: Path) -> None:
    made = told(sealed)
    words = canaries(made, "ann")
    bob, cat = (made.users[name] for name in ("bob", "cat"))
    before = {user: seen(sealed, TENANT, user) for user in (bob, cat)}
    other = graph_text(sealed, OTHER)
    assert set(hits(graph_text(sealed, TENANT), words)) == set(words)
    assert set(hits(exported(sealed, tmp_path, Format.EVENTS), words)) == set(words)
    assert verify(sealed.services).ok

    outcome = run(sealed, "ann", made)

    assert outcome["step"] == DONE
    consolidate(sealed.services)
    assert hits(graph_text(sealed, TENANT), words) == []
    assert hits(redis_text(sealed), [word for word in words if word != made.users["ann"]]) == []
    assert hits(file_text(tmp_path), words[:-1]) == []
    for form in (Format.EVENTS, Format.GRAPHML):
        assert hits(exported(sealed, tmp_path, form), words) == []
    assert {user: seen(sealed, TENANT, user) for user in (bob, cat)} == before
    assert graph_text(sealed, OTHER) == other
    report = verify(sealed.services)
    assert report.ok, report.differences
