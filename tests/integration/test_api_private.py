"""Whoever asks whatever way, before and after passes: nothing of another user alone comes back.

A small world is folded by all three stages on real services, and then every read route that the
document of the API lists is asked by everybody, in their own view, also about ids and words of
others. The whole answer is searched, headers and cursors included.
"""

from __future__ import annotations

import base64
import json
import random
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import quote

import httpx
import pytest
from typer.testing import CliRunner

from api.read_schemas import CommunityResponse
from pipelines.cli.main import app
from pipelines.graph.reads import scope as scope_of_reads
from pipelines.local.servers import Neo4jServer, ValkeyServer
from pipelines.operations.consolidate import consolidate
from pipelines.work.settings import ApiKey
from tests.factories import NOW_MS, START_MS
from tests.integration.api_support import (
    ADMIN_KEY,
    KEYS,
    OTHER_KEY,
    READ_KEY,
    Api,
    assert_problem,
    running_api,
)
from tests.integration.enrichment_support import Enriched
from tests.integration.private_world import (
    AGENT,
    HALL,
    NAMES,
    OTHER,
    ROOM,
    SHARED_PLACE,
    TENANT,
    Nodes,
    World,
    hidden_from,
    nodes_of,
    world,
)
from tests.integration.query_support import PATIENT
from tests.integration.stack import Stack
from tests.memory_stack import PARTITIONS
from tests.servers import emptied_neo4j, emptied_valkey

pytestmark = pytest.mark.integration

ANN_KEY: Final = "read-key-of-ann-01234567890"
STRANGER: Final = "somebody-without-a-memory"
LATER_MS: Final = START_MS + 4_000 * 86_400_000
PAGES: Final = 3
CURSOR_HEAD: Final = 21
"""Bytes of a cursor before what it holds: checksum, version, digest of the question, clock."""
SUBGRAPH, FACTS = "/v1/query/subgraph", "/v1/query/facts"
WHY = "/v1/query/why"
NOT_READS: Final = {
    ("post", "/v1/events"),
    ("post", "/v1/events/batch"),
    ("post", "/v1/traces"),
    ("post", "/v1/logs"),
    ("post", "/v1/feedback"),
    ("post", "/v1/admin/entities/{entity_id}/corrections"),
    ("post", "/v1/users/{user_id}/corrections"),
    ("post", "/v1/admin/reconsolidate"),
    ("post", "/v1/admin/dead-letters/retry"),
    ("delete", "/v1/users/{user_id}"),
    ("get", "/health/live"),
    ("get", "/health/ready"),
    ("get", "/health/ready/ingest"),
    ("get", "/health/ready/read"),
    ("get", "/metrics"),
    ("get", "/v1/admin/dead-letters"),
    ("get", "/v1/admin/operations"),
    ("get", "/v1/admin/targets"),
}


# -- a world on real services ----------------------------------------------------------------------


@dataclass
class Town:
    """The services with a world in them, which only ever goes on: by passes, the second forgets.

    Attributes:
        nodes: of TENANT, as they are now.
        passes: that were run.
    """

    made: World
    stack: Stack
    api: Api
    nodes: Nodes
    passes: int = 0

    def after(self, passes: int) -> Town:
        """The same, after so many passes at least; the second one forgets."""
        while self.passes < passes:
            report = consolidate(
                self.stack.services, now_ms=LATER_MS if self.passes else NOW_MS, folds=True
            )
            assert report.complete
            self.passes += 1
        before, self.nodes = self.nodes, nodes_of(self.stack, self.made)
        for node_id, users in self.nodes.users.items():
            # What is known from forgotten events alone is of those who knew it.
            self.nodes.users[node_id] = users or before.users.get(node_id, [])
        return self


EVERYTHING_GOES = {"*": {"enabled": True, "archive_min_importance": 11}}
"""By age alone, however important it was."""


@contextmanager
def town_of(valkey: ValkeyServer, neo4j: Neo4jServer, seed: int) -> Iterator[Town]:
    """A world, enriched, and an API that answers from it."""
    redis_url, neo4j_url = emptied_valkey(valkey), emptied_neo4j(neo4j)
    made = world(seed)
    bound = ApiKey(name="ann", key=ANN_KEY, tenant=TENANT, role="read", user_id=made.users["ann"])
    stack = Stack(redis_url, neo4j_url, retention=EVERYTHING_GOES)
    options: dict[str, Any] = {
        "partitions": PARTITIONS,
        "id_buckets": 64,
        "api_keys": (*KEYS, bound),
        "record_accesses": False,  # what is read often is not forgotten
        "stream_life_s": 0.2,
    }
    try:
        Enriched(stack).take_in(*made.events)
        with running_api(redis_url, neo4j_url, **options) as api:
            yield Town(made, stack, api, nodes_of(stack, made))
    finally:
        stack.close()


@pytest.fixture(scope="module")
def town(valkey: ValkeyServer, neo4j: Neo4jServer) -> Iterator[Town]:
    with town_of(valkey, neo4j, 0) as opened:
        yield opened


# -- who asks --------------------------------------------------------------------------------------


class Caller(NamedTuple):
    """A key, and the view that it asks for.

    Attributes:
        user: the name of the user whose view it is; None: nobody's.
        names_user: whether requests say whose view it is.
        tells: whether it is told how much is withheld.
    """

    name: str
    key: str
    user: str | None = None
    tenant: str = TENANT
    names_user: bool = True
    everyone: bool = False
    tells: bool = True


CALLERS: Final = {
    caller.name: caller
    for caller in (
        *(Caller(name, READ_KEY, name) for name in NAMES),
        Caller("nobody", READ_KEY),
        Caller("a key of ann", ANN_KEY, "ann", names_user=False, tells=False),
        Caller("ann elsewhere", OTHER_KEY, "ann", OTHER),
        Caller("an operator", ADMIN_KEY, everyone=True),
    )
}


@dataclass
class Look:
    """What one caller asks about: own things, shared ones, and those of others by their ids.

    Attributes:
        seen: texts of answers by route.
        withheld: by route, the largest number that was told.
    """

    town: Town
    caller: Caller
    chosen: random.Random
    many: int
    seen: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    withheld: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    @property
    def user_id(self) -> str | None:
        name = self.caller.user
        return None if name is None else self.town.made.users[name]

    @property
    def view(self) -> dict[str, Any]:
        """As requests name it."""
        if not self.caller.names_user:
            return {}
        if self.caller.everyone:
            return {"user_id": "*"}
        return {"user_id": self.user_id or STRANGER}

    def ids(self, prefix: str = "") -> list[str]:
        """Of some nodes of a kind that the caller sees, and of some that it does not."""
        nodes = self.town.nodes
        picked: list[str] = []
        for some in (nodes.seen(self.user_id), nodes.hidden(self.user_id)):
            of_kind = [one for one in some if one.rpartition(":")[0] == prefix.rstrip(":")]
            picked += self.chosen.sample(of_kind, min(self.many, len(of_kind)))
        return picked

    def words(self) -> list[str]:
        """One of each user, and of nobody."""
        made = self.town.made
        return [made.own_words(own_id)[4] for own_id in (None, *made.users.values())]

    def sessions(self) -> list[str]:
        return [ROOM, HALL, *map(self.town.made.session_of, NAMES)]


class Request(NamedTuple):
    """One question."""

    path: str
    params: Mapping[str, Any] = {}
    body: Mapping[str, Any] | None = None
    accept: str = "application/json"


# -- what is asked ---------------------------------------------------------------------------------


def entities(look: Look) -> Iterator[Request]:
    yield Request("/v1/entities", {"limit": 5})
    for word in (*look.words(), SHARED_PLACE):
        yield Request("/v1/entities", {"limit": 2, "query": word})


def entity(look: Look) -> Iterator[Request]:
    names = [f"entity:{SHARED_PLACE}", *(f"entity:{word} vault" for word in look.words())]
    for own_id in (*look.ids("entity:"), *names):
        yield Request(f"/v1/entities/{quote(own_id, safe='')}", {"limit": 2})


def summaries(look: Look) -> Iterator[Request]:
    for own_id in look.ids("summary:"):
        kind, named = look.town.nodes.scopes[own_id]
        yield Request(f"/v1/summaries/{kind}/{own_id}", {"limit": 1})
        yield Request(f"/v1/summaries/{kind}/{quote(named, safe='')}", {"limit": 1})
    for session in look.sessions():
        yield Request(f"/v1/summaries/session/{session}")
    yield Request(f"/v1/summaries/agent/{AGENT}")


def communities(look: Look) -> Iterator[Request]:
    yield Request("/v1/communities", {"limit": 1})
    yield Request("/v1/communities")


def community(look: Look) -> Iterator[Request]:
    for own_id in look.ids("community:"):
        yield Request(f"/v1/communities/{own_id}", {"limit": 1})
        yield Request(f"/v1/communities/{own_id.removeprefix('community:')}")


def episodes(look: Look) -> Iterator[Request]:
    for session in look.sessions():
        yield Request(f"/v1/sessions/{session}/episodes", {"limit": 1})


def sessions(look: Look) -> Iterator[Request]:
    yield Request("/v1/sessions", {"limit": 2})
    for word in (AGENT, *look.words(), *look.town.made.users.values()):
        yield Request("/v1/sessions", {"limit": 1, "query": word})


def session_events(look: Look) -> Iterator[Request]:
    for session in look.sessions():
        yield Request(f"/v1/sessions/{session}/events", {"limit": 3})


def neighbours(look: Look) -> Iterator[Request]:
    for own_id in (look.town.made.message_of(look.user_id), *look.ids()):
        yield Request(f"/v1/nodes/{own_id}/neighbours")
    for kind in ("entity:", "summary:", "community:"):
        for own_id in look.ids(kind):
            yield Request(f"/v1/nodes/{own_id}/neighbours")


def fact_history(look: Look) -> Iterator[Request]:
    names = [f"entity:{SHARED_PLACE}", *(f"entity:{word} vault" for word in look.words())]
    for own_id in (*look.ids("entity:"), *names):
        yield Request(f"/v1/facts/{quote(own_id, safe='')}", {"limit": 2})


def users(look: Look) -> Iterator[Request]:
    if not look.view and look.user_id is None:
        return  # a user in the path is the user whose view it is
    for user_id in (*look.town.made.users.values(), STRANGER):
        yield Request(f"/v1/users/{user_id}", {"limit": 2})


def user_context(look: Look) -> Iterator[Request]:
    for request in users(look):
        yield Request(f"{request.path}/context", accept="text/markdown")


def context(look: Look) -> Iterator[Request]:
    for session in look.sessions():
        yield Request(f"/v1/context/{session}")


def lineage(look: Look) -> Iterator[Request]:
    for own_id in (look.town.made.message_of(look.user_id), *look.ids()):
        for direction in ("causes", "effects"):
            params = {"direction": direction, "intent": look.chosen.choice(("why", "when"))}
            yield Request(f"/v1/nodes/{own_id}/lineage", params)
    for kind in ("entity:", "summary:", "community:"):
        for own_id in look.ids(kind):
            yield Request(f"/v1/nodes/{own_id}/lineage", {})


def events(look: Look) -> Iterator[Request]:
    decisions = sorted(look.town.nodes.decisions)
    decided = look.chosen.sample(decisions, min(look.many, len(decisions)))
    for own_id in (look.town.made.message_of(look.user_id), *look.ids(), *decided):
        yield Request(f"/v1/events/{own_id}")


def changes(look: Look) -> Iterator[Request]:
    yield Request("/v1/changes", {"from": "0", "wait": "false", "limit": 500})
    yield Request("/v1/changes", {"from": "0"}, accept="text/event-stream")
    for session in look.sessions():
        yield Request("/v1/changes", {"from": "0", "wait": "false", "session": session})


def question(look: Look, **fields: Any) -> dict[str, Any]:
    """Words of all users and what is common, in one of the sessions."""
    words = " ".join((*look.words(), SHARED_PLACE, "refund of the lost parcel failed vault"))
    # Another question after a pass: what was kept of the answers before is not asked for.
    words += f" {look.town.passes}"
    session = look.chosen.choice((ROOM, HALL, f"elsewhere-{look.town.passes}"))
    return {"query": words, "session_id": session, "agent_id": AGENT, **fields}


def subgraph(look: Look) -> Iterator[Request]:
    every = [one for kind in ("", "entity:", "summary:", "community:") for one in look.ids(kind)]
    bodies = [
        question(look, include=["content"], max_nodes=6),
        question(look, seed_nodes=every),
    ]
    for body in bodies:
        for accept in ("application/json", "text/markdown"):
            yield Request(SUBGRAPH, body=body, accept=accept)


def why(look: Look) -> Iterator[Request]:
    heads = (look.town.made.message_of(look.user_id), *look.ids())
    for body in (question(look), *(question(look, head=own_id) for own_id in heads)):
        for accept in ("application/json", "text/markdown"):
            yield Request(WHY, body=body, accept=accept)


def facts(look: Look) -> Iterator[Request]:
    for body in (
        question(look, max_facts=3),
        question(look, mode="bfs", seed_nodes=look.ids("entity:")),
    ):
        for accept in ("application/json", "text/markdown"):
            yield Request(FACTS, body=body, accept=accept)


ROUTES: Final[Mapping[tuple[str, str], Callable[[Look], Iterator[Request]]]] = {
    ("get", "/v1/entities"): entities,
    ("get", "/v1/entities/{entity_id}"): entity,
    ("get", "/v1/summaries/{scope}/{scope_id}"): summaries,
    ("get", "/v1/sessions/{session_id}/episodes"): episodes,
    ("get", "/v1/sessions"): sessions,
    ("get", "/v1/sessions/{session_id}/events"): session_events,
    ("get", "/v1/nodes/{node_id}/neighbours"): neighbours,
    ("get", "/v1/facts/{entity_id}"): fact_history,
    ("get", "/v1/users/{user_id}"): users,
    ("get", "/v1/users/{user_id}/context"): user_context,
    ("get", "/v1/communities"): communities,
    ("get", "/v1/communities/{community_id}"): community,
    ("get", "/v1/context/{session_id}"): context,
    ("get", "/v1/nodes/{node_id}/lineage"): lineage,
    ("get", "/v1/events/{event_id}"): events,
    ("get", "/v1/changes"): changes,
    ("post", SUBGRAPH): subgraph,
    ("post", WHY): why,
    ("post", FACTS): facts,
}
SUMMED_UP: Final = {"/v1/summaries/{scope}/{scope_id}", "/v1/sessions/{session_id}/episodes"}
OF_USERS: Final = {"/v1/communities", "/v1/communities/{community_id}"}
"""Of a community that is nobody's it is not written down whose it is: it is for operators."""
OF_PERSONS: Final = {"/v1/users/{user_id}", "/v1/users/{user_id}/context"}
"""Nobody has no page; and no fact of these users holds that is a wish, or about themselves."""
TOLD_BY_PASSES: Final = SUMMED_UP | OF_USERS
SHOWN_AFTER: Final = (
    {route for _, route in ROUTES} - TOLD_BY_PASSES - OF_PERSONS,
    {route for _, route in ROUTES} - OF_PERSONS,
    {*SUMMED_UP, "/v1/events/{event_id}", "/v1/changes", SUBGRAPH},
)
"""Routes that show something of everybody, by the number of passes: the second forgets events."""


class Leaked(AssertionError):
    """Who was told what, by which route, to which request, and where it stands."""


# -- asked, and looked through ---------------------------------------------------------------------


def ask_all(look: Look, *, routes: Mapping[Any, Any] = ROUTES) -> Look:
    """Ask every route, its answers twice, and on to the next pages; fails at the first leak."""
    headers = {"X-Tenant": look.caller.tenant} if look.caller.everyone else {}
    with look.town.api.client(look.caller.key, **headers) as client:
        for (method, route), generator in routes.items():
            for request in generator(look):
                cursor: str | None = None
                for page in range(PAGES):
                    answer = sent(look, client, method, request, cursor)
                    if method == "post" and not page:
                        again = sent(look, client, method, request, cursor)
                        check(look, route, request, again)
                    check(look, route, request, answer)
                    cursor = next_cursor(answer)
                    if cursor is None:
                        break
    return look


def sent(
    look: Look, client: httpx.Client, method: str, request: Request, cursor: str | None
) -> httpx.Response:
    more = {} if cursor is None else {"cursor": cursor}
    of_ledger = request.path.startswith(("/v1/events/", "/v1/changes"))
    patient = {} if of_ledger else PATIENT
    if method == "get":
        params = {**request.params, **look.view, **patient, **more}
        return client.get(request.path, params=params)
    body = {**(request.body or {}), **look.view, **patient, **more}
    return client.post(request.path, json=body, headers={"accept": request.accept})


def next_cursor(answer: httpx.Response) -> str | None:
    if answer.status_code != 200 or answer.headers["content-type"] != "application/json":
        return None
    document = answer.json()
    cursor: str | None = document.get("next_cursor") or document.get("meta", {}).get("next_cursor")
    return cursor


def check(look: Look, route: str, request: Request, answer: httpx.Response) -> None:
    """The answer holds nothing that is hidden from the caller."""
    assert answer.status_code in (200, 404), (look.caller.name, request, answer.text)
    text = unsaid(request, answer) + unpacked(next_cursor(answer))
    text += " ".join(f"{name}: {value}" for name, value in answer.headers.items())
    made, caller = look.town.made, look.caller
    exact, small = hidden_from(
        made, look.town.nodes, caller.tenant, look.user_id, everyone=caller.everyone
    )
    lowered = text.lower()
    leaked = [one for one in exact if one in text] + [one for one in small if one in lowered]
    if leaked:
        raise Leaked(caller.name, route, request, leaked, around(text, leaked[0]))
    if answer.status_code == 200:
        look.seen[route].append(lowered)
        note_withheld(look, route, answer)


def unsaid(request: Request, answer: httpx.Response) -> str:
    """The body without the words of the request that it says again."""
    if answer.headers["content-type"].startswith("text/"):
        return answer.text
    document = answer.json()
    document.pop("instance", None)
    given = set((request.body or {}).get("seed_nodes", ()))
    for name in ("seed_nodes", "unknown_seeds"):
        if given and name in document["meta"]:
            meta = document["meta"]
            meta[name] = [one for one in meta[name] if one not in given]
    return json.dumps(document, ensure_ascii=False)


def around(text: str, word: str) -> str:
    """Where a word stands."""
    place = text.lower().find(word.lower())
    return text[max(0, place - 150) : place + 150]


def unpacked(cursor: str | None) -> str:
    """What a cursor holds."""
    if cursor is None:
        return ""
    packed = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
    content: bytes = zlib.decompress(packed[CURSOR_HEAD:])
    return content.decode()


def note_withheld(look: Look, route: str, answer: httpx.Response) -> None:
    with suppress(ValueError):
        meta = answer.json().get("meta")
        if meta is None:
            return
        if not look.caller.tells:
            assert meta["withheld"] is None, route
        look.withheld[route] = max(look.withheld[route], meta["withheld"] or 0)


def check_positive(look: Look, *, passes: int) -> None:
    """What may be seen is seen: by every route that is meant to show it."""
    made, nodes, caller = look.town.made, look.town.nodes, look.caller
    everywhere = "".join(text for texts in look.seen.values() for text in texts)
    if caller.everyone:
        for own_id in (None, *made.users.values()):
            assert any(word in everywhere for word in made.own_words(own_id)), own_id
        return
    if caller.tenant != TENANT:
        words = made.words[caller.tenant, look.user_id]
        assert any(word in everywhere for word in words)
        return
    mine = {*made.own_words(look.user_id)} | {
        one.rpartition(":")[2]
        for one in nodes.seen(look.user_id)
        if look.user_id is None or not nodes.seen_by(one, STRANGER)
    }
    for _, route in ROUTES:
        if route not in SHOWN_AFTER[passes] or (look.user_id is None and route in OF_USERS):
            continue
        assert any(one in text for text in look.seen[route] for one in mine), (caller.name, route)


COUNTED: Final = (
    "/v1/entities",
    "/v1/entities/{entity_id}",
    "/v1/context/{session_id}",
    SUBGRAPH,
    FACTS,
)


def check_withheld(look: Look) -> None:
    """Something was held back, and who may know is told so."""
    counts = {route: look.withheld[route] for route in COUNTED}
    if look.caller.everyone or not look.caller.tells:
        assert not any(counts.values()), counts
    elif look.caller.tenant == TENANT:
        assert all(counts.values()), counts


def test_every_read_route_is_asked(town: Town) -> None:
    with town.api.client(None) as client:
        paths = client.get("/openapi.json").json()["paths"]
    listed = {(method, path) for path, item in paths.items() for method in item}
    assert listed == {*ROUTES} | NOT_READS, "a route that nobody asks here"


@pytest.mark.parametrize(
    ("passes", "name"),
    [(0, "ann"), (0, "nobody"), *((1, name) for name in CALLERS)],
)
def test_nothing_of_others_comes_back(town: Town, passes: int, name: str) -> None:
    """Before the first pass, and after it."""
    look = Look(town.after(passes), CALLERS[name], random.Random(passes), many=2)
    ask_all(look)
    check_positive(look, passes=passes)
    check_withheld(look)


def test_no_key_asks_for_another_view_than_its_own(town: Town) -> None:
    """The refusal names field and rule, and nothing else."""
    users = town.made.users
    of_bob = town.made.own_words(users["bob"])
    with town.api.client(ANN_KEY) as ann, town.api.client(READ_KEY) as reader:
        for client, view in ((ann, users["bob"]), (ann, "*"), (reader, "*")):
            for (method, route), generator in ROUTES.items():
                look = Look(town, CALLERS["ann"], random.Random(3), many=1)
                request = next(iter(generator(look)))
                if method == "get":
                    answer = client.get(request.path, params={"user_id": view})
                else:
                    answer = client.post(route, json={**(request.body or {}), "user_id": view})
                problem = assert_problem(answer, 403, "forbidden")
                assert [error["field"] for error in problem["errors"]] == ["user_id"]
                assert not [word for word in of_bob if word in problem["detail"]]


def test_a_cursor_of_one_view_is_of_no_use_in_another(town: Town) -> None:
    with town.api.client(ADMIN_KEY, **{"X-Tenant": TENANT}) as operator:
        page = operator.get("/v1/entities", params={"limit": 2, "user_id": "*", **PATIENT})
    cursor = page.json()["next_cursor"]
    with town.api.client(ANN_KEY) as ann:
        answer = ann.get("/v1/entities", params={"limit": 2, "cursor": cursor, **PATIENT})
    problem = assert_problem(answer, 422, "invalid-input")
    assert [error["field"] for error in problem["errors"]] == ["cursor"]


def test_a_community_is_read_with_its_members(town: Town) -> None:
    """All that may be listed is read, page by page; what is of another tenant is not there."""
    town.after(1)
    text = "MATCH (n:Entity {tenant: $tenant})-[:MEMBER_OF]->(c) RETURN c.community_id, n.entity_id"
    members: dict[str, list[str]] = defaultdict(list)
    with town.stack.driver.session() as session:
        for community_id, entity_id in session.run(text, {"tenant": TENANT}):
            members[f"community:{community_id}"].append(f"entity:{entity_id}")
    with town.api.client(ADMIN_KEY, **{"X-Tenant": TENANT}) as operator:
        operator.params = {"user_id": "*", **PATIENT}
        listed = operator.get("/v1/communities").json()
        assert [one["community_id"] for one in listed["communities"]] == sorted(members)
        assert [node["node_id"] for node in listed["nodes"]] == sorted(members)
        for own_id, expected in members.items():
            shown: list[str] = []
            cursor: dict[str, str] = {}
            while True:
                answer = operator.get(f"/v1/communities/{own_id}", params={"limit": 2, **cursor})
                page = CommunityResponse.model_validate_json(answer.text, strict=True)
                of_page = [one.entity_id for one in page.members]
                shown += of_page
                assert [node.node_id for node in page.nodes] == [own_id, *of_page]
                assert page.nodes[0].provenance.event_id == page.community.event_id
                assert page.meta.seed_nodes == [own_id]
                joined = {edge.source for edge in page.edges if edge.type == "MEMBER_OF"}
                assert joined == {*of_page}
                if page.next_cursor is None:
                    break
                cursor = {"cursor": page.next_cursor}
            assert shown == sorted(expected)
            lineage = operator.get(f"/v1/nodes/{own_id}/lineage").json()
            depths = {node["node_id"]: node["depth"] for node in lineage["nodes"]}
            assert depths.pop(own_id) == 0
            assert {one for one, depth in depths.items() if depth == 1} == {*expected}
        assert_problem(operator.get("/v1/communities/" + "0" * 32), 404, "not-found")
    with town.api.client(OTHER_KEY) as stranger:
        answer = stranger.get(f"/v1/communities/{min(members)}", params=PATIENT)
        assert_problem(answer, 404, "not-found")


@pytest.mark.parametrize("evidence", [False, True])
def test_a_person_who_asks_sees_one_view(town: Town, tmp_path: Path, *, evidence: bool) -> None:
    """`recollect ask`, as it prints an answer, and as text for a language model."""
    look = Look(town.after(1), CALLERS["ann"], random.Random(4), many=2)
    key_file = tmp_path / "key"
    key_file.write_text(READ_KEY)
    words = question(look)["query"]
    how = ["--max-tokens", "400"] if evidence else ["--limit", "50"]
    where = ["--api", town.api.url, "--api-key-file", str(key_file), "--tenant", TENANT]
    who = ["--user", look.user_id or "", "--session", ROOM]
    done = CliRunner().invoke(app, ["ask", f"Why? {words}", *how, *where, *who])
    assert done.exit_code == 0, done.output
    printed = done.stdout.replace(f"Why? {words}", "").replace("\n", " ")
    exact, small = hidden_from(look.town.made, look.town.nodes, TENANT, look.user_id)
    said_again = {word for word in small if word in words}
    assert not [one for one in exact if one in printed]
    assert not [one for one in small - said_again if one in printed.lower()]
    assert any(word in printed.lower() for word in town.made.own_words(look.user_id))


EVERYONE_OR, IS_THE_USER = r"\$question\.everyone OR ", r" = \$question\.user_id"
OF_VIEWER = rf"\({EVERYONE_OR}(\w+)\.user_id IS NULL OR \1\.user_id{IS_THE_USER}\)"
OF_VIEWER_ALONE = rf"\({EVERYONE_OR}coalesce\(all\(source IN \w+\.user_ids WHERE .*?\), false\)\)"
FIRST_SEEN = rf"{EVERYONE_OR}(\w+)\.first_user_id IS NULL OR \1\.first_user_id{IS_THE_USER}"
MET = r"\(\$question\.all_entities OR"
RULES: Final = {
    "of an event": (OF_VIEWER, "true", "/v1/nodes/{node_id}/lineage"),
    "of a fact": (OF_VIEWER, "true", FACTS),
    "of a fact over time": (OF_VIEWER, "true", "/v1/facts/{entity_id}"),
    "of a summary": (OF_VIEWER_ALONE, "true", "/v1/summaries/{scope}/{scope_id}"),
    "of a community": (OF_VIEWER_ALONE, "true", "/v1/communities/{community_id}"),
    "of the name of an entity": (FIRST_SEEN, "true", "/v1/entities"),
    "of an entity": (MET, "(true OR", "/v1/entities"),
}


@pytest.mark.parametrize("rule", RULES)
def test_a_rule_that_is_taken_out_is_noticed(
    town: Town, monkeypatch: pytest.MonkeyPatch, rule: str
) -> None:
    pattern, instead, route = RULES[rule]
    in_scope = scope_of_reads.in_scope

    def without(text: str, *, then: bool) -> str:
        return re.sub(pattern, instead, in_scope(text, then=then), flags=re.DOTALL)

    monkeypatch.setattr(scope_of_reads, "in_scope", without)
    routes = {key: generator for key, generator in ROUTES.items() if key[1] == route}
    leaks = 0
    for name in NAMES:  # whose mention of a thing is the first is not hidden from that one
        look = Look(town.after(1), CALLERS[name], random.Random(7), many=3)
        with suppress(Leaked):
            ask_all(look, routes=routes)
            continue
        leaks += 1
    assert leaks


def test_the_ledger_read_by_anybody_is_noticed(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scope_of_reads.Scope, "sees_user", lambda scope, user_id: True)
    look = Look(town.after(1), CALLERS["bob"], random.Random(7), many=3)
    with pytest.raises(Leaked):
        ask_all(look, routes={("get", "/v1/events/{event_id}"): events})


@pytest.mark.parametrize("name", ["bob", "an operator"])
def test_what_was_forgotten_leaks_no_more(town: Town, name: str) -> None:
    """After a pass that forgets every event; summaries and the ledger are left."""
    look = Look(town.after(2), CALLERS[name], random.Random(2), many=2)
    assert not town.stack.event_ids()
    ask_all(look)
    check_positive(look, passes=2)


@pytest.mark.acceptance_long
@pytest.mark.parametrize("seed", range(1, 6))
def test_nothing_of_others_comes_back_in_other_worlds(
    valkey: ValkeyServer, neo4j: Neo4jServer, seed: int
) -> None:
    with town_of(valkey, neo4j, seed) as town:
        for passes in range(3):
            for caller in CALLERS.values():
                look = Look(town.after(passes), caller, random.Random(seed), many=6)
                ask_all(look)
                check_positive(look, passes=passes)
